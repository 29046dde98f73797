#!/bin/sh
# shellcheck shell=dash
#
# Makes the credential with which a guest cluster's cloud provider reaches Harvester, and prints it twice: as a
# kubeconfig ("cloud config") and as cloud-init user data that writes this file on a node.
#
# It runs with the current context of kubectl, which must be Harvester's. Only the two results go to stdout. What it
# makes belongs to one namespace, and running it again changes nothing. It needs kubectl and base64, nothing else, and
# any shell that knows POSIX and "local": it is piped into sh, which is dash on Debian and Ubuntu.

set -eu
umask 077
# Ranges such as [a-z] are of ASCII.
LC_ALL=C
export LC_ALL

readonly ROLE='harvesterhci.io:cloudprovider'
readonly CSI_ROLE='harvesterhci.io:csi-driver'
# The first path is where every installation looks that does not say otherwise, the second where RKE2's chart does.
readonly PATHS='/etc/kubernetes/cloud-config /var/lib/rancher/rke2/etc/config-files/cloud-provider-config'
# What the caller's kubeconfig says, a line each. The last line is none of it: "$(...)" drops lines that end empty.
readonly CONTEXT_LINES='{.current-context}{"\n"}{.clusters[0].name}{"\n"}{.clusters[0].cluster.server}{"\n"}end'
# A line for each object: kind, name, and of a binding the accounts, of a Secret what it is and of which account a token.
readonly OBJECT_LINES='{{range .items}}{{.kind}} {{.metadata.name}}: {{range .subjects}}{{.namespace}}/{{.name}}{{end}}'\
'{{if eq .kind "Secret"}}{{printf "%q" .type}}{{with .metadata.annotations}}{{printf " %q %q" '\
'(index . "kubernetes.io/service-account.name") (index . "kubernetes.io/service-account.uid")}}{{end}}{{end}}{{"\n"}}{{end}}'
# The base64 of the cluster's CA and a token, once a Secret has both.
readonly CA_AND_TOKEN='{{with .data}}{{if and (index . "ca.crt") (index . "token")}}{{index . "ca.crt"}} {{base64decode .token}}{{end}}{{end}}'

account='' namespace='' context='' server='' output='' action='make' timeout=30 csi='' rke1=''
cluster='' own_server='' there='' unread='' left='' work='' found='' replacing=''
newline='
'

usage() {
  echo 'Makes the credential of a cloud provider in Harvester and prints it as cloud config and as cloud-init user data.'
  echo 'Usage: generate_addon.sh [OPTIONS] <serviceAccount> <namespace>    (-h explains the options)'
}

help() {
  usage
  cat <<'END'

  <serviceAccount>  name of the guest cluster: the --cluster-name of its cloud provider
  <namespace>       namespace in Harvester that has the cluster's VMs

  --context NAME    use this context of the kubeconfig instead of the current one
  --server URL      address of Harvester as the guest's nodes reach it (default: the one in the context; when that is
                    a loopback address or goes through Rancher, Harvester's virtual IP)
  -o, --output DIR  write DIR/cloud-config and DIR/cloud-init.yaml (mode 0600) instead of printing them
  --csi             grant what the CSI driver needs cluster-wide, too
  --rke1 FILE       print a part of cluster.yml for RKE1, too (DIR/rke1-addons.yaml): the credential and what is in
                    FILE, which is the manifest rke1.yaml
  --rotate          replace the token: the old one ends at once
  --delete          remove the account and everything that was granted to it
  --timeout SECONDS how long to wait for the token (default 30)
END
}

say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

# Every request has an end, and none reads the script that may be on our standard input.
kube() {
  kubectl ${context:+"--context=$context"} --request-timeout=20s "$@"
}

# What is applied is written here: whether it is right need not be looked up in the description of all of the API.
apply() { kube apply --validate=false -f - "$@"; }

cleanup() {
  [ -z "$work" ] || rm -rf "$work"
  # Whatever has ended us.
  [ -z "$replacing" ] || say "The old token may have ended. Run this again without --rotate: it waits for the new one and prints it."
}

parse_arguments() {
  local count=0
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) help && exit 0 ;;
      --csi) csi=yes ;;
      --rotate) action=rotate ;;
      --delete) action=delete ;;
      --context | --server | --timeout | --output | -o | --rke1)
        [ $# -gt 1 ] || die "option $1 needs a value"
        case $1 in
          --context) context=$2 ;;
          --server) server=${2%/} ;;
          --timeout) timeout=$2 ;;
          --rke1) rke1=$2 ;;
          *) output=$2 ;;
        esac
        shift
        ;;
      -*) die "unknown option $1 (-h explains the options)" ;;
      *)
        count=$((count + 1))
        case $count in
          1) account=$1 ;;
          2) namespace=$1 ;;
        esac
        ;;
    esac
    shift
  done
  if [ -z "$account" ] || [ -z "$namespace" ]; then
    usage
    exit 1
  fi
  [ "$count" -eq 2 ] || die "expected two arguments, got $count"
}

# Parts of lower-case letters, digits and '-' that begin and end with a letter or digit, with dots between.
is_name() {
  case $1 in
    '' | *[!a-z0-9.-]* | [.-]* | *[.-] | *..* | *.-* | *-.*) return 1 ;;
  esac
}

check_arguments() {
  { is_name "$account" && [ ${#account} -le 240 ]; } ||
    die "service account \"$account\" is no valid name: use lower-case letters, digits, '-' and '.'"
  { is_name "$namespace" && [ "$namespace" = "${namespace%%.*}" ] && [ ${#namespace} -le 63 ]; } ||
    die "namespace \"$namespace\" is no valid name: use at most 63 lower-case letters, digits and '-'"
  case $timeout in
    '' | *[!0-9]*) die "--timeout \"$timeout\" is no number of seconds" ;;
  esac
  case $server in
    '' | https://[!/]*) ;;
    *) die "--server \"$server\" is no https:// address" ;;
  esac
  [ -z "$rke1" ] || [ -r "$rke1" ] || die "--rke1 \"$rke1\" cannot be read: give the path of the manifest rke1.yaml"
  command -v kubectl >/dev/null || die 'kubectl was not found on PATH'
}

# Sets context, cluster and own_server from the caller's kubeconfig.
read_kubeconfig() {
  local view
  view=$(kube config view --minify -o "jsonpath=$CONTEXT_LINES") || die "$(why_no_view)"
  {
    IFS= read -r context
    IFS= read -r cluster
    IFS= read -r own_server
  } <<END
$view
END
  [ -n "$own_server" ] ||
    die "context $context leads to no server: its cluster \"$cluster\" has no address. Set KUBECONFIG to a kubeconfig of Harvester"
  say "Using context $context"
}

# Prints why the kubeconfig's context cannot be read.
why_no_view() {
  local name
  if name=${context:-$(kubectl config current-context 2>/dev/null)} && kubectl config get-contexts "$name" >/dev/null 2>&1; then
    echo "context $name names no cluster, or a cluster or user that the kubeconfig does not have: correct it, or name another one with --context"
  else
    echo "kubectl has no ${context:+context }${context:-current context}: set KUBECONFIG to a kubeconfig of Harvester"
  fi
}

# Sets there to what is in Harvester already. One request for all of it: starting kubectl takes longer than asking.
look() {
  local failed=''
  there=$(lines_of "clusterrole/$ROLE" "secret/$account-token" "clusterrolebinding/$namespace-$account" "clusterrolebinding/$account") ||
    failed=yes
  there="$newline$there$newline"
  is_there Namespace "$namespace" || die "namespace $namespace is not usable in this cluster"
  is_there ClusterRole "$ROLE" || die "ClusterRole $ROLE is not there: is context $context a Harvester cluster?"
  [ -n "$failed" ] || return 0
  [ "$action" = delete ] || die "what is in this cluster already could not be read"
  look_at_each "secret/$account-token" "clusterrolebinding/$namespace-$account" "clusterrolebinding/$account"
}

# Adds to there what can be read, and to unread what cannot. kubectl has said why.
look_at_each() {
  local object lines
  for object; do
    if lines=$(lines_of "$object" 2>/dev/null); then
      there="$there$lines$newline"
    else
      unread="$unread $object"
    fi
  done
}

# Prints a line for the namespace and each of the objects that is there: of a single one kubectl would give no list.
lines_of() {
  kube -n "$namespace" get --ignore-not-found -o "go-template=$OBJECT_LINES" "namespace/$namespace" "$@"
}

is_there() {
  case $there in
    *"$newline$1 $2: "*) ;;
    *) return 1 ;;
  esac
}

# Prints what look has found out about an object; nothing when it is not there.
about() {
  local line="${there#*"$newline$1 $2: "}"
  ! is_there "$1" "$2" || printf '%s' "${line%%"$newline"*}"
}

# Prints the account's UID. Names are quoted wherever they stand in YAML: 2024, 1e3, on and null are good names.
make_account() {
  apply -o 'jsonpath={.metadata.uid}' <<END
apiVersion: v1
kind: ServiceAccount
metadata:
  name: '$account'
  namespace: '$namespace'
END
}

# In the namespace only. Another cluster's binding has the same name only in another namespace.
bind_role() {
  apply >&2 <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: '$namespace-$account'
  namespace: '$namespace'
  ownerReferences: [{apiVersion: v1, kind: ServiceAccount, name: '$account', uid: '$1'}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: '$ROLE'}
subjects: [{kind: ServiceAccount, name: '$account', namespace: '$namespace'}]
END
}

# A binding of the whole cluster. Its name is the one that Harvester gives it, which two accounts can have in common.
bind_csi_role() {
  local holder
  holder=$(about ClusterRoleBinding "$namespace-$account")
  [ -z "$holder" ] || [ "$holder" = "$namespace/$account" ] ||
    die "ClusterRoleBinding $namespace-$account belongs to account $holder: choose another service account name"
  apply >&2 <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: '$namespace-$account'
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: '$CSI_ROLE'}
subjects: [{kind: ServiceAccount, name: '$account', namespace: '$namespace'}]
END
}

# A token of an account that was deleted and made again is worthless: its Secret has to go first.
make_token() {
  local uid="$1" secret="$account-token" present='' deadline
  present=$(about Secret "$secret")
  case $present in
    '' | "\"kubernetes.io/service-account-token\" \"$account\" \"$uid\"") ;;
    "\"kubernetes.io/service-account-token\" \"$account\" "*) action=rotate ;;
    *) die "Secret $namespace/$secret is there but is no token of account $account: remove it or choose another name" ;;
  esac
  if [ -n "$present" ] && [ "$action" = rotate ]; then
    # From here on the old token may be gone, also when the answer is not.
    replacing=yes
    kube -n "$namespace" delete secret "$secret" --ignore-not-found >&2
  fi
  deadline=$(($(date +%s) + timeout))
  until request_token "$secret" "$uid"; do
    [ "$(date +%s)" -lt "$deadline" ] || die "Secret $namespace/$secret could not be made within $timeout s"
    sleep 1
  done
}

# Sets found to the answer's token when that has one: it is so where there was one before.
request_token() {
  found=$(
    apply -o "go-template=$CA_AND_TOKEN" <<END
apiVersion: v1
kind: Secret
metadata:
  name: '$1'
  namespace: '$namespace'
  annotations:
    kubernetes.io/service-account.name: '$account'
    kubernetes.io/service-account.uid: '$2'
  ownerReferences: [{apiVersion: v1, kind: ServiceAccount, name: '$account', uid: '$2'}]
type: kubernetes.io/service-account-token
END
  )
}

# Sets found to the base64 of the cluster's CA and the token, with a blank between. Not for a subshell: a signal would
# be acted on only at its end. A request that fails is made again.
wait_for_token() {
  local deadline
  deadline=$(($(date +%s) + timeout))
  while [ -z "$found" ]; do
    found=$(kube -n "$namespace" get secret "$account-token" -o "go-template=$CA_AND_TOKEN") || found=''
    [ -z "$found" ] || break
    [ "$(date +%s)" -lt "$deadline" ] ||
      die "Secret $namespace/$account-token got no token within $timeout s: is kube-controller-manager running?"
    sleep 1
  done
}

# The address in the caller's context may lead nowhere from a node, or to Rancher, which does not know the token.
choose_server() {
  local place='' address
  [ -z "$server" ] || return 0
  server=${own_server%/}
  case $server in
    */k8s/clusters/*) place=Rancher ;;
    https://127.* | https://localhost | https://localhost[:/]* | https://\[::1\]* | https://0.0.0.0*) place='this machine only' ;;
    *) return 0 ;;
  esac
  address=$(kube -n harvester-system get configmap vip --ignore-not-found -o 'jsonpath={.data.ip}')
  case $address in
    '') ;;
    *:*) address="https://[$address]:6443" ;;
    *) address="https://$address:6443" ;;
  esac
  if [ -n "$address" ]; then
    say "Using Harvester's virtual IP: $server of context $context is for $place"
    server=$address
  elif [ "$place" = Rancher ]; then
    die "$server goes through Rancher, where the token is not valid: give Harvester's own address with --server"
  else
    say "warning: $server is for $place; nodes need another address: give it with --server"
  fi
}

# A YAML scalar: plain where that can only be text.
scalar() {
  local rest="$1" quoted=''
  case $1 in
    '' | [!A-Za-z]* | *[!A-Za-z0-9._-]*) ;;
    [Tt]rue | [Ff]alse | [Yy]es | [Nn]o | [Oo]n | [Oo]ff | [Nn]ull | [YyNn] | TRUE | FALSE | YES | NO | ON | OFF | NULL) ;;
    *) printf '%s' "$1" && return 0 ;;
  esac
  while [ "$rest" != "${rest#*\'}" ]; do
    quoted="$quoted${rest%%\'*}''" rest=${rest#*\'}
  done
  printf "'%s'" "$quoted$rest"
}

write_kubeconfig() {
  local authority="$1" token="$2" name user
  name=$(scalar "$cluster")
  user=$(scalar "$account-$namespace-$cluster")
  cat <<END
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: $authority
    server: $(scalar "$server")
  name: $name
contexts:
- context:
    cluster: $name
    namespace: $(scalar "$namespace")
    user: $user
  name: $user
current-context: $user
kind: Config
preferences: {}
users:
- name: $user
  user:
    token: $token
END
}

write_cloud_init() {
  local content path
  content=$(base64 <"$1")
  content=$(printf '%s' "$content" | tr -d '\n')
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

# RKE1 applies what stands under "addons". Without "kubectl create secret" after it the program finds its credential.
write_rke1() {
  local line
  cat <<'END'
cloud_provider:
  name: external
addons: |-
  ---
  apiVersion: v1
  kind: Secret
  metadata:
    name: cloud-config
    namespace: kube-system
  type: Opaque
  stringData:
    cloud-config: |
END
  while IFS= read -r line; do
    printf '      %s\n' "$line"
  done <"$1"
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      '#'*) continue ;;
      *CLUSTER-NAME*) line="${line%%CLUSTER-NAME*}$account${line#*CLUSTER-NAME}" ;;
    esac
    printf '%s\n' "${line:+  $line}"
  done <"$rke1"
}

# Only told, not fatal: from here the address may be out of reach. A new binding counts after a moment.
verify() {
  local deadline answer
  deadline=$(($(date +%s) + 5))
  until answer=$(may_update "$1" 2>&1) && [ "$answer" != "${answer#*'"allowed":true'}" ]; do
    case $answer in
      *'"allowed":false'*) answer="it may not update loadbalancers.loadbalancer.harvesterhci.io" ;;
      *) deadline=0 ;;
    esac
    if [ "$(date +%s)" -ge "$deadline" ]; then
      say "warning: the credential could not be verified at $server: ${answer##*"$newline"}"
      return 0
    fi
    sleep 1
  done
  say "Verified at $server"
}

# Prints what the server answers when a kubeconfig's account asks for its right, without first asking what kinds there are.
may_update() {
  kubectl --kubeconfig="$1" --request-timeout=5s create -f - --raw /apis/authorization.k8s.io/v1/selfsubjectaccessreviews <<END
{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
  "namespace": "$namespace", "verb": "update", "group": "loadbalancer.harvesterhci.io", "resource": "loadbalancers"}}}
END
}

# Earlier versions of this script bound the role for the whole cluster.
report_old_binding() {
  [ "$(about ClusterRoleBinding "$account")" = "$namespace/$account" ] || return 0
  say "note: ClusterRoleBinding $account still grants this account every namespace. It is not needed any more:"
  say "  kubectl delete clusterrolebinding $account"
}

# Sets left when something stays that may be the account's. What ends the credential comes first, and a deletion that is
# refused keeps no other one from being made. What has the name of ours and was not read may be somebody else's.
delete_account() {
  local binding="$namespace-$account" secret="$account-token" token=''
  case $(about Secret "$secret") in
    '') ;;
    "\"kubernetes.io/service-account-token\" \"$account\" "*) token="secret/$secret" ;;
    *) say "note: Secret $namespace/$secret is no token of account $account, and is left" ;;
  esac
  kube -n "$namespace" delete --ignore-not-found "serviceaccount/$account" ${token:+"$token"} "rolebinding/$binding" >&2 || left=yes
  [ "$(about ClusterRoleBinding "$binding")" != "$namespace/$account" ] ||
    kube delete --ignore-not-found "clusterrolebinding/$binding" >&2 || left=yes
}

# Says what stays because it could not be read, and what to do.
report_unread() {
  local object
  for object in $unread; do
    left=yes
    case $object in
      secret/*)
        say "Secret $namespace/${object#*/} could not be read and is left. If it is there and a token of account $account:"
        say "  kubectl -n $namespace delete secret ${object#*/}"
        ;;
      *)
        say "ClusterRoleBinding ${object#*/} could not be read and is left. If it is there and of account $namespace/$account only:"
        say "  kubectl delete clusterrolebinding ${object#*/}"
        ;;
    esac
  done
}

# A file that is there already is replaced, so that the new one has the mode of ours.
store() {
  local file="$1" fresh
  fresh=$(mktemp "$file.XXXXXX")
  cat >"$fresh"
  mv -f "$fresh" "$file"
  say "Wrote $file"
}

show_results() {
  if [ -n "$output" ]; then
    mkdir -p "$output"
    store "$output/cloud-config" <"$work/cloud-config"
    store "$output/cloud-init.yaml" <"$work/cloud-init.yaml"
    [ -z "$rke1" ] || store "$output/rke1-addons.yaml" <"$work/rke1-addons.yaml"
    return 0
  fi
  echo '########## cloud config ############'
  cat "$work/cloud-config"
  echo
  echo '########## cloud-init user data ############'
  cat "$work/cloud-init.yaml"
  if [ -n "$rke1" ]; then
    echo
    echo '########## RKE1: part of cluster.yml ############'
    cat "$work/rke1-addons.yaml"
  fi
}

main() {
  local uid
  trap cleanup EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  parse_arguments "$@"
  check_arguments
  read_kubeconfig
  look
  if [ "$action" = delete ]; then
    delete_account
    report_old_binding
    report_unread
    [ -z "$left" ] || die "not all was removed: see above, and run this again as somebody who may read and delete it"
    return 0
  fi
  choose_server
  work=$(mktemp -d "${TMPDIR:-/tmp}/generate-addon.XXXXXX")
  uid=$(make_account)
  bind_role "$uid"
  [ -z "$csi" ] || bind_csi_role
  make_token "$uid"
  wait_for_token
  write_kubeconfig "${found%% *}" "${found#* }" >"$work/cloud-config"
  write_cloud_init "$work/cloud-config" >"$work/cloud-init.yaml"
  [ -z "$rke1" ] || write_rke1 "$work/cloud-config" >"$work/rke1-addons.yaml"
  verify "$work/cloud-config"
  report_old_binding
  show_results
  replacing=''
}

# Last, so that nothing runs before all of the script is there.
main "$@"
