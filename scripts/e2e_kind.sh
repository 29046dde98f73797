#!/usr/bin/env bash
# The image and the chart on real clusters: two kind clusters, a guest and a Harvester whose controllers are emulated.
# A Service must get its address, and after its deletion no load balancer may be left in Harvester.
#
# Needs Docker, kind, kubectl, helm, a network and the virtual environment (make setup).
# IMAGE=name:tag uses an image that exists; without it one is built. KEEP=1 leaves the clusters for manual work.
# DRY=DIRECTORY tests without Docker and kind, on the API servers of the administrators' kubeconfigs DIRECTORY/guest and
# DIRECTORY/harvester. The chart is installed there, and the controller runs on this machine with its account.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
GUEST=harvester-ccm-guest
HARVESTER=harvester-ccm-harvester
NAMESPACE=vms
POOL=192.0.2.0/28
SECONDS_TO_WAIT=120
DRY=${DRY:-}
work=
emulator=
program=
made=()

say() { echo "e2e-kind: $*" >&2; }

require() {
  local missing=() tools=(docker kind kubectl helm) tool
  if [[ -n $DRY ]]; then tools=(kubectl helm); fi
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || missing+=("$tool (not on PATH)")
  done
  [[ -x $PYTHON ]] || missing+=("$PYTHON (run make setup)")
  if [[ -z $DRY ]] && command -v docker >/dev/null && ! docker info >/dev/null 2>&1; then
    missing+=("a running Docker engine that this user may use (docker info fails)")
  fi
  if ((${#missing[@]})); then
    say "missing:"
    printf '  %s\n' "${missing[@]}" >&2
    exit 2
  fi
  if [[ -n $DRY ]]; then return; fi
  local cluster
  for cluster in "$GUEST" "$HARVESTER"; do
    if kind get clusters 2>/dev/null | grep -qx "$cluster"; then
      say "cluster $cluster exists already; remove it with: kind delete cluster --name $cluster"
      exit 2
    fi
  done
}

clean_up() {
  local code=$?
  trap - EXIT
  if ((code != 0)) && [[ -n $work ]]; then report >&2 || true; fi
  local process
  for process in $program $emulator; do kill "$process" 2>/dev/null && wait "$process" || true; done
  if [[ -n $DRY ]]; then leave_as_found >/dev/null 2>&1; fi
  if [[ ${KEEP:-} == 1 ]]; then
    say "kept: clusters ${made[*]:-none}, files in $work; the emulator is stopped"
  else
    local cluster
    for cluster in "${made[@]}"; do kind delete cluster --name "$cluster" || true; done
    if [[ -n $work ]]; then rm -rf "$work"; fi
  fi
  exit "$code"
}

leave_as_found() {
  helm --kubeconfig "$work/guest" uninstall harvester-cloud-provider --namespace kube-system
  guest -n kube-system delete secret cloud-config
  harvester delete namespace "$NAMESPACE" --wait=false
}

report() {
  say "what there is:"
  guest get nodes,services,pods -A -o wide
  guest get events -A --field-selector type=Warning
  if [[ -n $DRY ]]; then
    tail -n 100 "$work/program.log"
  else
    guest -n kube-system logs deployment/harvester-cloud-provider --tail=100
  fi
  harvester get loadbalancers.loadbalancer.harvesterhci.io -A -o yaml
  tail -n 50 "$work/emulator.log"
}

guest() { kubectl --kubeconfig "$work/guest" "$@"; }
harvester() { kubectl --kubeconfig "$work/harvester" "$@"; }

# wait_for WHAT COMMAND...: until it prints something.
wait_for() {
  local what=$1 end=$((SECONDS + SECONDS_TO_WAIT)) answer
  shift
  until answer=$("$@" 2>/dev/null) && [[ -n $answer ]]; do
    if ((SECONDS >= end)); then
      say "not within $SECONDS_TO_WAIT s: $what"
      return 1
    fi
    sleep 1
  done
  echo "$answer"
}

# make_cluster NAME KUBECONFIG
make_cluster() {
  if [[ -n $DRY ]]; then
    cp "$DRY/${2##*/}" "$2"
    return
  fi
  made+=("$1")
  kind create cluster --name "$1" --kubeconfig "$2" --wait 180s
}

start_harvester() {
  harvester apply -f devenv/crds -f devenv/rbac/harvester-cloud-provider.yaml
  harvester wait --for=condition=Established --timeout=60s crd --all
  harvester create namespace "$NAMESPACE"
  PYTHONPATH=. "$PYTHON" scripts/kind_harvester.py "$work/harvester" "$POOL" >"$work/emulator.log" 2>&1 &
  emulator=$!
  wait_for "the emulator" grep -x ready "$work/emulator.log" >/dev/null
}

install() {
  # Nodes of kind clusters know each other by name, and the certificate has it.
  local server="https://$HARVESTER-control-plane:6443" waiting=(--wait --timeout "${SECONDS_TO_WAIT}s")
  if [[ -n $DRY ]]; then
    server=$(harvester config view --minify -o jsonpath='{.clusters[0].cluster.server}')
    waiting=()
  fi
  KUBECONFIG="$work/harvester" deploy/generate_addon.sh --server "$server" -o "$work/credential" kind "$NAMESPACE"
  guest -n kube-system create secret generic cloud-config --from-file=cloud-config="$work/credential/cloud-config"
  # The nodes are no VMs of Harvester, so only Services are served; nothing here could announce an address.
  helm --kubeconfig "$work/guest" install harvester-cloud-provider deploy/charts/harvester-cloud-provider \
    --namespace kube-system --set global.cattle.clusterName=kind --set cloudConfig.secretName=cloud-config \
    --set image.repository="${IMAGE%:*}" --set image.tag="${IMAGE##*:}" --set image.pullPolicy=Never \
    --set kube-vip.enabled=false --set 'controllers={service-lb-controller}' "${waiting[@]}"
}

# Runs the controller with the arguments and the account of the chart, as the pod would.
run_here() {
  local args
  cp "$work/guest" "$work/account"
  # In a file: all users of the machine can list the arguments of a process.
  (umask 077 && guest -n kube-system create token harvester-cloud-provider >"$work/token")
  kubectl --kubeconfig "$work/account" config set-credentials account
  kubectl --kubeconfig "$work/account" config set users.account.tokenFile "$work/token"
  kubectl --kubeconfig "$work/account" config set-context --current --user=account
  mapfile -t args < <(guest -n kube-system get deployment harvester-cloud-provider \
    -o jsonpath='{range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}')
  args=("${args[@]/\/etc\/kubernetes\/cloud-config/$work/credential/cloud-config}")
  PYTHONPATH=. "$PYTHON" -m harvester_ccm "${args[@]}" --kubeconfig="$work/account" --secure-port=0 >"$work/program.log" 2>&1 &
  program=$!
}

address_of_service() { guest get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'; }
load_balancers() { harvester -n "$NAMESPACE" get loadbalancers.loadbalancer.harvesterhci.io -o name; }
nothing_left() { local names; names=$(load_balancers) && [[ -z $names ]] && echo nothing; }

require
trap clean_up EXIT
work=$(mktemp -d)
if [[ -z ${IMAGE:-} ]]; then
  IMAGE=localhost/harvester-ccm:kind
  if [[ -z $DRY ]]; then
    say "building $IMAGE"
    # Without attestations, because kind imports them as a platform of the image, which fails.
    BUILDX_NO_DEFAULT_ATTESTATIONS=1 make image IMAGE="$IMAGE"
  fi
fi
make_cluster "$HARVESTER" "$work/harvester"
make_cluster "$GUEST" "$work/guest"
if [[ -z $DRY ]]; then kind load docker-image "$IMAGE" --name "$GUEST"; fi
start_harvester
install
if [[ -n $DRY ]]; then run_here; fi

say "a Service"
guest create service loadbalancer web --tcp=80:80
address=$(wait_for "the address of Service web" address_of_service)
say "Service web has address $address"
guest delete service web --timeout="${SECONDS_TO_WAIT}s"
wait_for "the end of the load balancer in Harvester" nothing_left >/dev/null
say "passed: nothing is left in Harvester"
