#!/bin/sh
#
# Creates the credential with which the cloud provider of a guest cluster accesses Harvester. Prints it as a kubeconfig
# ("cloud config"), and as cloud-init user data that writes this file on a node.
#
# It uses the current context of kubectl, which must be Harvester's. Only the two results are written to stdout. A
# second run changes nothing and prints the same. It needs kubectl and the commands of POSIX, base64 and mktemp.

set -eu
umask 077
# Makes ranges such as [a-z] ASCII only.
LC_ALL=C
export LC_ALL

ROLE=harvesterhci.io:cloudprovider
CSI_ROLE=harvesterhci.io:csi-driver
# The first path is the default of all installations, the second the one of RKE2's chart.
PATHS='/etc/kubernetes/cloud-config /var/lib/rancher/rke2/etc/config-files/cloud-provider-config'
TOKEN_TYPE=kubernetes.io/service-account-token
# Type of a Secret, and name and UID of the account that its token is for.
SECRET_FIELDS='{.type} {.metadata.annotations.kubernetes\.io/service-account\.name} {.metadata.annotations.kubernetes\.io/service-account\.uid}'
# The CA in base64 and the token, if a Secret has both.
CA_AND_TOKEN='{{with .data}}{{if and (index . "ca.crt") (index . "token")}}{{index . "ca.crt"}} {{base64decode .token}}{{end}}{{end}}'

account='' namespace='' context='' server='' output='' action=create csi='' pools='' shared='' rke1='' work='' replacing=''
separator=''

usage() {
  echo 'Creates the credential of a cloud provider in Harvester and prints it as cloud config and as cloud-init user data.'
  echo 'Usage: generate_addon.sh [OPTIONS] <serviceAccount> <namespace>    (-h explains the options)'
}

help() {
  usage
  cat <<'END'

  <serviceAccount>  name of the guest cluster: the --cluster-name of its cloud provider
  <namespace>       namespace in Harvester that contains the VMs of the cluster

  --context NAME    use this context of the kubeconfig instead of the current one
  --server URL      address of Harvester for the nodes of the cluster (default: the server of the context; if that is a
                    loopback address or leads through Rancher, Harvester's virtual IP)
  -o, --output DIR  write DIR/cloud-config and DIR/cloud-init.yaml (mode 0600) instead of printing them
  --csi             also grant the cluster-wide permissions of the CSI driver
  --address-pools POOL,...
                    also permit the cluster to request certain addresses of these IP pools: spec.loadBalancerIP of its
                    Services. A later run without this option changes nothing about it
  --shared-pool     permit that also for pools that serve other namespaces, whose free addresses the cluster can take
  --rke1 FILE       also print a part of cluster.yml for RKE1 (DIR/rke1-addons.yaml): the credential, and the contents
                    of FILE, which is the manifest rke1.yaml
  --rotate          replace the account by one with the same name and permissions, and print its token; all previous
                    tokens of the account become invalid within seconds, and never become valid again
  --delete          delete the account and everything that was granted to it
END
}

say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

kube() { kubectl ${context:+"--context=$context"} --request-timeout=20s "$@"; }

# Without validation, kubectl does not download the OpenAPI schema.
apply() { kube apply --validate=false -f - "$@"; }

# Creates an object, or updates it.
create() { kube create "$@" --dry-run=client -o yaml | apply >&2; }

cleanup() {
  [ -z "$work" ] || rm -rf "$work"
  [ -z "$replacing" ] ||
    say 'The old token might be invalid, or still valid. Run this again with --rotate until it prints a token.'
}

need_value() { [ $# -gt 1 ] || die "option $1 needs a value"; }

parse_arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) help && exit 0 ;;
      --csi) csi=yes ;;
      --address-pools) need_value "$@" && pools=$2 && shift ;;
      --shared-pool) shared=yes ;;
      --rotate | --delete) action=${1#--} ;;
      --context) need_value "$@" && context=$2 && shift ;;
      --server) need_value "$@" && server=${2%/} && shift ;;
      --output | -o) need_value "$@" && output=$2 && shift ;;
      --rke1) need_value "$@" && rke1=$2 && shift ;;
      -*) die "unknown option $1 (-h explains the options)" ;;
      *)
        [ -z "$namespace" ] || die "unexpected argument $1: expected <serviceAccount> and <namespace>"
        if [ -z "$account" ]; then account=$1; else namespace=$1; fi
        ;;
    esac
    shift
  done
  if [ -z "$account" ] || [ -z "$namespace" ]; then
    usage
    exit 1
  fi
}

# The API server checks the rest of the names.
check_arguments() {
  case $account$namespace in
    *[!a-z0-9.-]*) die "\"$account\" or \"$namespace\" is not a valid name: use lower-case letters, digits, '-' and '.'" ;;
  esac
  case $server in
    '' | https://[!/]*) ;;
    *) die "--server \"$server\" is not an https:// address" ;;
  esac
  [ -z "$rke1" ] || [ -r "$rke1" ] || die "--rke1 \"$rke1\" cannot be read: give the path of the manifest rke1.yaml"
  case $pools in
    '') [ -z "$shared" ] || die '--shared-pool is about the pools of --address-pools: give both' ;;
    *[!a-z0-9.,-]* | ,* | *, | *,,*)
      die "--address-pools \"$pools\" is not a list of names: give the names of IP pools with commas between them" ;;
    *) [ "$action" != delete ] || die '--address-pools cannot be combined with --delete, which deletes that, too' ;;
  esac
  command -v kubectl >/dev/null || die 'kubectl was not found on PATH'
  binding="$namespace-$account"
  # A namespace contains no dot, so no other account has this name.
  rights="harvester-ccm-address-pools.$namespace.$account"
}

config() { kube config view --minify -o "jsonpath={$1}"; }

# Sets context, cluster and context_server from the kubeconfig, and checks that the context is one of Harvester.
check_cluster() {
  context=$(config .current-context) ||
    die 'kubectl has no usable context: set KUBECONFIG to a kubeconfig of Harvester, or choose one with --context'
  cluster=$(config '.clusters[0].name')
  context_server=$(config '.clusters[0].cluster.server')
  [ -n "$context_server" ] ||
    die "cluster \"$cluster\" of context $context has no server: set KUBECONFIG to a kubeconfig of Harvester"
  say "Using context $context"
  kube get namespace "$namespace" -o name >/dev/null || die "namespace $namespace is not usable in this cluster"
  kube get clusterrole "$ROLE" -o name >/dev/null ||
    die "ClusterRole $ROLE cannot be read: is context $context a Harvester cluster?"
  [ "$action" = delete ] || [ -z "$csi" ] || kube get clusterrole "$CSI_ROLE" -o name >/dev/null ||
    die "ClusterRole $CSI_ROLE cannot be read. Harvester 1.2.0 and 1.2.1 have none: update Harvester, or omit --csi"
}

# Prints type, account and UID of the token Secret; nothing if it does not exist.
secret_fields() { kube -n "$namespace" get --ignore-not-found secret "$account-token" -o "jsonpath=$SECRET_FIELDS"; }

# Prints the accounts of a ClusterRoleBinding; nothing if it does not exist.
bound_accounts() {
  kube get --ignore-not-found clusterrolebinding "$1" -o 'jsonpath={range .subjects[*]}{.namespace}/{.name}{end}'
}

# Sets uid. The permissions are limited to the namespace.
create_account() {
  create serviceaccount "$account" -n "$namespace"
  create rolebinding "$binding" -n "$namespace" --clusterrole="$ROLE" --serviceaccount="$namespace:$account"
  uid=$(account_uid)
}

account_uid() { kube -n "$namespace" get serviceaccount "$account" -o 'jsonpath={.metadata.uid}'; }

# Sets uid. A token contains the names of its Secret and its account, the UID of the account, and nothing that changes.
# Harvester signs with RSA, where the same content has the same signature: a Secret that is created again has the same
# token again. Only a new UID gives another token, and makes the old one invalid forever. Bindings that Harvester
# created for Rancher are owned by the account: without "orphan" they would be deleted with it.
replace_account() {
  old_uid=$uid
  # From here on the old token can be invalid, even if the response is lost.
  replacing=yes
  kube -n "$namespace" get serviceaccount "$account" -o yaml |
    kube -n "$namespace" replace --force --cascade=orphan --validate=false -f - >&2
  uid=$(account_uid)
  [ "$uid" != "$old_uid" ] || die "service account $namespace/$account was not replaced"
}

# The name is the one that Harvester itself uses. Two accounts can have it in common: a-b in c, and b in c-a.
create_csi_binding() {
  bound=$(bound_accounts "$binding")
  [ -z "$bound" ] || [ "$bound" = "$namespace/$account" ] ||
    die "ClusterRoleBinding $binding belongs to account $bound: choose another service account name"
  create clusterrolebinding "$binding" --clusterrole="$CSI_ROLE" --serviceaccount="$namespace:$account"
}

# A pool that serves other namespaces has addresses that their load balancers would get back.
check_pools() {
  for pool in $(echo "$pools" | tr ',' ' '); do
    scopes=$(kube get ippools.loadbalancer.harvesterhci.io "$pool" \
      -o 'jsonpath={range .spec.selector.scope[*]}[{.namespace}]{end}') ||
      die "IP pool $pool of --address-pools cannot be read"
    others=$(printf %s "$scopes" | sed "s/\[$namespace\]//g")
    [ -z "$others" ] || [ -n "$shared" ] ||
      die "IP pool $pool serves other namespaces than $namespace: with requests, this cluster could take free addresses
       of it that their load balancers would get back. Give it a scope for $namespace only, or add --shared-pool"
  done
}

# Policies exist since Kubernetes 1.30.
has_policies() {
  case $(kube get --raw /apis/admissionregistration.k8s.io/v1 2>/dev/null) in
    *'"validatingadmissionpolicies"'*) return 0 ;;
    *) return 1 ;;
  esac
}

# RBAC cannot permit a part of an object. An entry of the history is a free address and the load balancer that gets it.
create_policy() {
  apply >&2 <<END
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: '$rights'
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [loadbalancer.harvesterhci.io]
        apiVersions: ['*']
        operations: [UPDATE]
        resources: [ippools]
  matchConditions:
    - name: account
      expression: request.userInfo.username == 'system:serviceaccount:$namespace:$account'
  variables:
    - name: statusBefore
      expression: 'has(oldObject.status) ? oldObject.status : {}'
    - name: statusAfter
      expression: 'has(object.status) ? object.status : {}'
    - name: before
      expression: "'allocatedHistory' in variables.statusBefore ? variables.statusBefore.allocatedHistory : {}"
    - name: after
      expression: "'allocatedHistory' in variables.statusAfter ? variables.statusAfter.allocatedHistory : {}"
    - name: allocated
      expression: "'allocated' in variables.statusBefore ? variables.statusBefore.allocated : {}"
    - name: changed
      expression: >-
        variables.after.filter(address,
        !(address in variables.before) || variables.before[address] != variables.after[address])
    - name: subnets
      expression: >-
        (has(object.spec) && 'ranges' in object.spec ? object.spec.ranges : [])
        .filter(range, 'subnet' in range && isCIDR(range.subnet)).map(range, cidr(range.subnet))
  validations:
    - message: this account may change status.allocatedHistory of an IP pool only
      expression: >-
        object.all(key, key in ['metadata', 'status'] || (key in oldObject && object[key] == oldObject[key])) &&
        oldObject.all(key, key == 'status' || key in object)
    - message: this account may not change the metadata of an IP pool
      expression: >-
        object.metadata.all(key, key in ['managedFields', 'generation', 'resourceVersion'] ||
        (key in oldObject.metadata && object.metadata[key] == oldObject.metadata[key])) &&
        oldObject.metadata.all(key, key == 'managedFields' || key in object.metadata)
    - message: of the status of an IP pool, this account may change allocatedHistory only
      expression: >-
        variables.statusAfter.all(key, key == 'allocatedHistory' ||
        (key in variables.statusBefore && variables.statusAfter[key] == variables.statusBefore[key])) &&
        variables.statusBefore.all(key, key == 'allocatedHistory' || key in variables.statusAfter)
    - message: this account may change only entries of load balancers in namespace $namespace
      expression: >-
        variables.changed.all(address, variables.after[address].matches('^$namespace/[a-z0-9.-]{1,253}\$') &&
        (!(address in variables.before) || variables.before[address].startsWith('$namespace/'))) &&
        variables.before.all(address, address in variables.after ||
        variables.before[address].startsWith('$namespace/'))
    - message: this account may add one entry at a time
      expression: variables.after.size() <= variables.before.size() + 1
    - message: this account may request only addresses in the ranges of the IP pool
      expression: >-
        variables.changed.all(address, isIP(address) && ip.isCanonical(address) &&
        variables.subnets.exists(subnet, subnet.containsIP(address)))
    - message: the address is allocated to a load balancer of another namespace
      expression: >-
        variables.changed.all(address, !(address in variables.allocated) ||
        variables.allocated[address].startsWith('$namespace/'))
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: '$rights'
spec:
  policyName: '$rights'
  validationActions: [Deny]
END
}

# The policy comes first: the account never has the permission without it.
permit_requests() {
  edits='the account can change nothing but that'
  if has_policies; then
    create_policy
  else
    edits='by the API, the account could also edit these pools (policies that forbid it need Kubernetes 1.30)'
  fi
  apply >&2 <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: '$rights'
rules:
  - apiGroups: [loadbalancer.harvesterhci.io]
    resources: [ippools]
    resourceNames: ['$(echo "$pools" | sed "s/,/', '/g")']
    verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: '$rights'
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: '$rights'
subjects:
  - kind: ServiceAccount
    name: '$account'
    namespace: '$namespace'
END
  say "Services of the cluster can request free addresses of IP pools $pools, also ones that another load balancer"
  say "would get back; $edits."
}

forbid_requests() {
  set -- clusterrolebinding clusterrole
  ! has_policies || set -- "$@" validatingadmissionpolicybinding validatingadmissionpolicy
  for kind in "$@"; do
    found=$(kube get --ignore-not-found "$kind/$rights" -o name) || complete=''
    [ -z "$found" ] || kube delete "$kind/$rights" >&2 || complete=''
  done
}

# A Secret of this name that another user created is never changed.
check_secret() {
  secret=$(secret_fields)
  case $secret in
    '' | "$TOKEN_TYPE $account "*) ;;
    *) die "Secret $namespace/$account-token exists but is not a token of account $account: delete it or choose another name" ;;
  esac
}

# Deletes a token whose account was deleted or replaced. It is invalid.
delete_old_token() {
  case $secret in
    '' | "$TOKEN_TYPE $account $uid") ;;
    *) kube -n "$namespace" delete --ignore-not-found secret "$account-token" >&2 ;;
  esac
}

# Creates the Secret, and prints CA and token once a controller has added them. Names are quoted: 2024 is a valid name.
request_token() {
  apply -o "go-template=$CA_AND_TOKEN" <<END
apiVersion: v1
kind: Secret
metadata:
  name: '$account-token'
  namespace: '$namespace'
  annotations:
    kubernetes.io/service-account.name: '$account'
    kubernetes.io/service-account.uid: '$uid'
type: $TOKEN_TYPE
END
}

# Sets ca and token.
wait_for_token() {
  deadline=$(($(date +%s) + 30))
  until found=$(request_token) && [ -n "$found" ]; do
    [ "$(date +%s)" -lt "$deadline" ] ||
      die "Secret $namespace/$account-token got no token within 30 s: is kube-controller-manager running?"
    sleep 1
  done
  ca=${found%% *} token=${found#* }
}

# Sets server. Nodes cannot use a loopback address of the context, and Rancher does not accept the token.
choose_server() {
  [ -z "$server" ] || return 0
  server=${context_server%/}
  case $server in
    */k8s/clusters/*) reach=Rancher ;;
    https://127.* | https://localhost | https://localhost[:/]* | https://\[::1\]* | https://0.0.0.0*) reach='this machine only' ;;
    *) return 0 ;;
  esac
  address=$(kube -n harvester-system get --ignore-not-found configmap vip -o 'jsonpath={.data.ip}')
  case $address in
    *:*) address="[$address]" ;;
  esac
  if [ -n "$address" ]; then
    say "Using Harvester's virtual IP: $server of context $context is for $reach"
    server="https://$address:6443"
  elif [ "$reach" = Rancher ]; then
    die "$server goes through Rancher, where the token is not valid: give Harvester's own address with --server"
  else
    say "warning: $server is for $reach; nodes need another address: give it with --server"
  fi
}

# Prints a YAML string.
quote() { printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"; }

write_kubeconfig() {
  name=$(quote "$account-$namespace-$cluster")
  cat <<END
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: $ca
    server: $(quote "$server")
  name: $(quote "$cluster")
contexts:
- context:
    cluster: $(quote "$cluster")
    namespace: '$namespace'
    user: $name
  name: $name
current-context: $name
kind: Config
preferences: {}
users:
- name: $name
  user:
    token: $token
END
}

write_cloud_init() {
  content=$(base64 <"$work/cloud-config" | tr -d '\n')
  echo 'write_files:'
  for path in $PATHS; do
    cat <<END
- encoding: b64
  content: $content
  owner: root:root
  path: $path
  permissions: '0600'
END
  done
}

# RKE1 applies the manifests in "addons".
write_rke1() {
  printf 'cloud_provider:\n  name: external\naddons: |-\n'
  {
    kubectl create secret generic cloud-config -n kube-system --from-file="$work/cloud-config" --dry-run=client -o yaml
    sed -e '/^#/d' -e "s/CLUSTER-NAME/$account/" "$rke1"
  } | sed 's/^./  &/'
}

# Only a warning: the address might be unreachable from this machine. A new RoleBinding is effective after a moment.
verify() {
  path="/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/$namespace/loadbalancers?limit=1"
  for _ in 1 2 3 4 5; do
    ! answer=$(kubectl --kubeconfig="$work/cloud-config" --request-timeout=5s get --raw "$path" 2>&1) ||
      { say "Verified at $server" && return 0; }
    case $answer in
      *Forbidden* | *Unauthorized*) sleep 1 ;;
      *) break ;;
    esac
  done
  say "warning: the credential could not be verified at $server: $answer"
}

# An earlier version of this script granted the role in all namespaces.
report_old_binding() {
  [ "$(bound_accounts "$account" 2>/dev/null)" = "$namespace/$account" ] || return 0
  say "note: ClusterRoleBinding $account still grants this account all namespaces. It is no longer needed:"
  say "  kubectl delete clusterrolebinding $account"
}

# A deletion that is refused does not prevent the others.
delete_account() {
  complete=yes
  set -- "serviceaccount/$account" "rolebinding/$binding"
  secret=$(secret_fields) || complete=''
  case $secret in
    '') ;;
    "$TOKEN_TYPE $account "*) set -- "$@" "secret/$account-token" ;;
    *) say "note: Secret $namespace/$account-token is not a token of account $account, and is left" ;;
  esac
  kube -n "$namespace" delete --ignore-not-found "$@" >&2 || complete=''
  bound=$(bound_accounts "$binding") || complete=''
  [ "$bound" != "$namespace/$account" ] || kube delete "clusterrolebinding/$binding" >&2 || complete=''
  forbid_requests
  report_old_binding
  [ -n "$complete" ] || die 'not everything was deleted (see above): run this again with sufficient permissions'
}

# Prints a file, or moves it to the output directory. Its mode is 0600, because of umask.
publish() {
  if [ -n "$output" ]; then
    mkdir -p "$output"
    mv -f "$work/$2" "$output/$2"
    say "Wrote $output/$2"
  else
    echo "$separator########## $1 ############"
    cat "$work/$2"
    separator='
'
  fi
}

create_credential() {
  choose_server
  [ -z "$pools" ] || check_pools
  create_account
  [ -z "$csi" ] || create_csi_binding
  [ -z "$pools" ] || permit_requests
  check_secret
  [ "$action" != rotate ] || replace_account
  delete_old_token
  wait_for_token
  work=$(mktemp -d "${TMPDIR:-/tmp}/generate-addon.XXXXXX")
  write_kubeconfig >"$work/cloud-config"
  write_cloud_init >"$work/cloud-init.yaml"
  [ -z "$rke1" ] || write_rke1 >"$work/rke1-addons.yaml"
  verify
  report_old_binding
  publish 'cloud config' cloud-config
  publish 'cloud-init user data' cloud-init.yaml
  [ -z "$rke1" ] || publish 'RKE1: part of cluster.yml' rke1-addons.yaml
  replacing=''
}

main() {
  trap cleanup EXIT
  trap 'exit 143' HUP INT TERM
  parse_arguments "$@"
  check_arguments
  check_cluster
  if [ "$action" = delete ]; then
    delete_account
  else
    create_credential
  fi
}

# At the end, so that an incomplete download runs nothing.
main "$@"
