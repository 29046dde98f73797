"""What an operator does with the controller, in this order. Every step is a function that returns what it found.

A step raises DevenvError if something is not as the documentation says. Later steps use what earlier ones made.
"""

import subprocess
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from devenv.cluster import layout
from devenv.cluster.builds import CHECKOUT, CONTROLLER_IMAGE, KUBE_VIP_IMAGE
from devenv.cluster.cluster import CONTROLLER, NAMESPACE, Cluster, until
from devenv.helm import CHART, RELEASE
from devenv.process import DevenvError
from devenv.restclient import Json, RefusedError, RestClient
from harvester_ccm.names import IPAM, UNINITIALIZED_TAINT

DEPLOYMENT: Final = f"deployment/{RELEASE}"
TIMEOUT: Final = "--timeout=180s"
LEFT_BY_HELM: Final = (
    "configmap/harvester-nad-mapping",
    "lease/cloud-controller-manager",
    "lease/plndr-svcs-lock",
    "secret/cloud-config",
)
"""What ``helm uninstall`` leaves, and the page about the uninstallation deletes."""
EXPECTED: Final = (
    # Kubernetes refuses new objects in a namespace that is being deleted. Events about its Services are such objects.
    "because it is being terminated",
    # Preflight looks for Events about the Lease, which only an administrator can read, and does without them in a pod.
    f'User "system:serviceaccount:{NAMESPACE}:{CONTROLLER}" cannot list resource "events"',
    # So do status and preflight for Leases of other controllers: the chart grants the one Lease only.
    f'User "system:serviceaccount:{NAMESPACE}:{CONTROLLER}" cannot list resource "leases"',
    # And for the networks of Services, which cluster IPs show as well.
    f'User "system:serviceaccount:{NAMESPACE}:{CONTROLLER}" cannot list resource "servicecidrs"',
    # And for the pods of the controller while none leads.
    f'User "system:serviceaccount:{NAMESPACE}:{CONTROLLER}" cannot list resource "pods"',
)
"""Parts of refusals that mean no missing permission."""


def credential_in(cluster: Cluster) -> Path:
    """Return the directory with the present credential."""
    return cluster.setup.work / "credential"


def write_secret(cluster: Cluster) -> None:
    """Create or replace the Secret with the present credential."""
    source = f"--from-file=cloud-config={credential_in(cluster) / 'cloud-config'}"
    words = ("create", "secret", "generic", "cloud-config", source, "--dry-run=client", "--output=yaml")
    secret = cluster.kubectl(f"--namespace={NAMESPACE}", *words)
    cluster.kubectl(f"--namespace={NAMESPACE}", "apply", "-f", "-", stdin=secret)


def image_values() -> list[str]:
    """Return the options of Helm for the images that were built."""
    values = {}
    for key, image in (("image", CONTROLLER_IMAGE), ("kube-vip.image", KUBE_VIP_IMAGE)):
        values[f"{key}.repository"], _, values[f"{key}.tag"] = image.rpartition(":")
    return [f"--set-string={key}={value}" for key, value in values.items()]


def await_rollout(cluster: Cluster) -> None:
    """Wait until the controller and kube-vip run as configured."""
    for workload in (DEPLOYMENT, "daemonset/kube-vip"):
        cluster.kubectl(f"--namespace={NAMESPACE}", "rollout", "status", workload, TIMEOUT)


def install(cluster: Cluster, *options: str) -> None:
    """Install the chart, and wait until the controller and kube-vip run."""
    common = [*image_values(), f"--set=global.cattle.clusterName={layout.CLUSTER}"]
    chosen = [f"--set-string={value}" for value in cluster.setup.values]
    cluster.helm("install", RELEASE, CHART, *common, *options, *chosen)
    await_rollout(cluster)


def upgrade(cluster: Cluster, *options: str) -> None:
    """Upgrade the release to other values, and wait until the controller and kube-vip run."""
    cluster.helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values", *options)
    await_rollout(cluster)


def harvester_ccm(cluster: Cluster, *words: str) -> str:
    """Return the output of a command in the controller's pod."""
    return cluster.kubectl(f"--namespace={NAMESPACE}", "exec", DEPLOYMENT, "--", "harvester-ccm", *words)


def served(cluster: Cluster, name: str) -> str:
    """Create a Service, wait until a client reaches it, delete it, and return its address."""
    cluster.create_service(name)
    address = cluster.address(name)
    cluster.curl(address)
    cluster.delete_services(name)
    return address


def install_with_secret(cluster: Cluster) -> str:
    """Credential in a Secret, installation"""
    cluster.harvester_script("-o", str(credential_in(cluster)), layout.CLUSTER, layout.VM_NAMESPACE)
    write_secret(cluster)
    install(cluster, "--set=cloudConfig.secretName=cloud-config")
    pod = cluster.controller_pods()[0]
    user = pod["spec"]["securityContext"]["runAsUser"]
    return f"{pod['spec']['nodeName']} runs the controller as user {user}"


def nodes_initialized(cluster: Cluster) -> str:
    """Nodes initialized"""

    def nodes() -> list[Json]:
        found: list[Json] = cluster.guest.admin.request("GET", "/api/v1/nodes")["items"]
        return found if all(_is_initialized(node) for node in found) else []

    addresses = {node["metadata"]["name"]: _internal_ips(node) for node in until(nodes, "initialized Nodes")}
    expected = {place.name: [place.address] for place in layout.NODES}
    if addresses != expected:
        raise DevenvError(f"InternalIPs are {addresses}, not {expected}")
    return ", ".join(f"{name} {address}" for name, (address,) in addresses.items())


def _is_initialized(node: Json) -> bool:
    taints = [taint["key"] for taint in node["spec"].get("taints", ())]
    return node["spec"].get("providerID", "").startswith("harvester://") and UNINITIALIZED_TAINT not in taints


def _internal_ips(node: Json) -> list[str]:
    return [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]


def preflight(cluster: Cluster) -> str:
    """Preflight"""
    output = harvester_ccm(cluster, "preflight")
    ready = [line for line in output.splitlines() if line.startswith("READY")]
    if not ready:
        raise DevenvError(f"preflight does not say READY: {output}")
    cluster.helm("test", RELEASE)
    return ready[0]


def service(cluster: Cluster) -> str:
    """Service, curl from another network"""
    cluster.apply_web()
    cluster.create_service("web")
    address = cluster.address("web")
    pod = cluster.curl(address)
    if address not in cluster.nodes[0].addresses():
        raise DevenvError(f"{address} is not on {cluster.nodes[0].place.name}, where kube-vip runs")
    return f"{address}, answered by {pod}"


def dhcp(cluster: Cluster) -> str:
    """Service with an address from a DHCP server"""
    cluster.create_service("dhcp", {IPAM: "dhcp"})
    address = cluster.address("dhcp")
    if not is_lease(address):
        raise DevenvError(f"{address} is no address of the DHCP server")
    pod = cluster.curl(address)
    cluster.delete_services("dhcp")
    until(lambda: address not in cluster.nodes[0].addresses(), f"removal of {address} from the node")
    return f"{address}, answered by {pod}; removed after the deletion"


def is_lease(address: str) -> bool:
    """Whether the DHCP server can have given this address."""
    first, last = (int(bound.rpartition(".")[2]) for bound in layout.LEASES)
    network, _, number = address.rpartition(".")
    return network == layout.LEASES[0].rpartition(".")[0] and first <= int(number) <= last


def rolling_restart(cluster: Cluster) -> str:
    """Rolling restart of the controller"""
    before = cluster.controller_pods()[0]["metadata"]["name"]
    traffic = cluster.start_traffic(cluster.address("web"))
    cluster.kubectl(f"--namespace={NAMESPACE}", "rollout", "restart", DEPLOYMENT)
    await_rollout(cluster)
    address = served(cluster, "after-restart")
    answers = traffic.stop()
    after = cluster.controller_pods()[0]["metadata"]["name"]
    if before == after:
        raise DevenvError(f"the pod is still {before}")
    if answers.asked != answers.answered:
        raise DevenvError(f"traffic was interrupted: {answers}")
    return f"{answers}; a new Service got {address}"


def drain(cluster: Cluster) -> str:
    """Drain of the controller's node"""
    node = cluster.controller_pods()[0]["spec"]["nodeName"]
    # One web server is on this node, and its requests end with it.
    cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", TIMEOUT)
    await_rollout(cluster)
    now = cluster.controller_pods()[0]["spec"]["nodeName"]
    if now == node:
        raise DevenvError(f"the controller is still on {node}")
    address = served(cluster, "after-drain")
    cluster.kubectl("uncordon", node)
    pod = cluster.curl(cluster.address("web"))
    return f"the controller moved from {node} to {now}; a new Service got {address}; {pod} still answers"


def upgrade_release(cluster: Cluster) -> str:
    """Upgrade with other values: kube-vip on all nodes"""
    address = cluster.address("web")
    upgrade(
        cluster,
        "--set-string=logLevel=2",
        "--set=kube-vip.runOn=all",
        "--set-string=kube-vip.env.svc_election=true",
    )
    pod = cluster.curl(address)
    now = cluster.address("web")
    if now != address:
        raise DevenvError(f"the address changed from {address} to {now}")
    return f"{address} kept, answered by {pod}"


def rotation(cluster: Cluster) -> str:
    """Rotation of the credential"""
    old = cluster.setup.work / "old-cloud-config"
    new = credential_in(cluster) / "cloud-config"
    old.write_bytes(new.read_bytes())
    pod = cluster.controller_pods()[0]
    cluster.harvester_script("-o", str(new.parent), "--rotate", layout.CLUSTER, layout.VM_NAMESPACE)
    write_secret(cluster)
    until(lambda: not _is_accepted(old), "refusal of the old token")
    address = served(cluster, "after-rotation")
    after = cluster.controller_pods()[0]
    is_same = after["metadata"]["uid"] == pod["metadata"]["uid"]
    if not is_same or _restarts(after) != _restarts(pod):
        raise DevenvError("the controller was restarted")
    return f"the old token is refused; without a restart, a new Service got {address}"


def _is_accepted(cloud_config: Path) -> bool:
    """Whether Harvester accepts the token in a file."""
    path = f"/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{layout.VM_NAMESPACE}/loadbalancers"
    try:
        RestClient(cloud_config).request("GET", path)
    except RefusedError as refusal:
        return refusal.status != HTTPStatus.UNAUTHORIZED
    return True


def _restarts(pod: Json) -> int:
    return sum(container["restartCount"] for container in pod["status"].get("containerStatuses", ()))


def credential_in_file(cluster: Cluster) -> str:
    """Credential in a file of the nodes"""
    for node in cluster.nodes:
        node.write_credential(credential_in(cluster) / "cloud-config")
    upgrade(cluster, "--set-string=cloudConfig.secretName=")
    cluster.kubectl(f"--namespace={NAMESPACE}", "delete", "secret", "cloud-config")
    address = served(cluster, "with-file")
    user = cluster.controller_pods()[0]["spec"]["securityContext"]["runAsUser"]
    return f"user {user} reads a file of root; a new Service got {address}"


def acceptance(cluster: Cluster) -> str:
    """make acceptance"""
    skipped = []
    if cluster.setup.harvester_bin:
        # With Harvester's programs, nothing plays the kube-vip of Harvester's hosts.
        skipped = ["--skip=switch", "--skip=vm"]
    words = ["-m", "devenv.acceptance", *skipped, str(cluster.guest.kubeconfig)]
    words.append(str(credential_in(cluster) / "cloud-config"))
    done = subprocess.run([sys.executable, *words], check=False, capture_output=True, text=True, cwd=CHECKOUT)
    (cluster.setup.out / "acceptance.md").write_text(done.stdout + done.stderr)
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    if done.returncode != 0:
        failed = [row for row in rows if "| ok |" not in row]
        raise DevenvError(f"{' '.join(failed)} {done.stderr}")
    return f"{len(rows)} steps"


def permissions(cluster: Cluster) -> str:
    """No permission is missing"""
    accounts = tuple(f"system:serviceaccount:{NAMESPACE}:{name}" for name in (CONTROLLER, "kube-vip"))
    missing = [request for request in cluster.guest.refused(accounts) if not any(text in request for text in EXPECTED)]
    harvester = cluster.harvester.plane.refused((f"system:serviceaccount:{layout.VM_NAMESPACE}:{layout.CLUSTER}",))
    # Only make acceptance reads the version of Harvester.
    missing += [request for request in harvester if "server-version" not in request]
    if missing:
        raise DevenvError(" ".join(missing))
    return "neither cluster refused a request of the controller or kube-vip"


def uninstall(cluster: Cluster) -> str:
    """Uninstallation"""
    cluster.delete_services("web")
    until(lambda: not cluster.harvester.load_balancers(), "deletion of all load balancers")
    cluster.helm("uninstall", RELEASE)
    until(lambda: not cluster.release_pods(), lambda: f"end of {', '.join(cluster.release_pods())}")
    if left := _objects_of_release(cluster):
        raise DevenvError(f"left after the uninstallation: {', '.join(left)}")
    holder = _lease_holder(cluster)
    cluster.kubectl(f"--namespace={NAMESPACE}", "delete", *LEFT_BY_HELM, "--ignore-not-found")
    if left := _unknown_leases(cluster):
        raise DevenvError(f"Leases that the page about the uninstallation does not name: {', '.join(left)}")
    cluster.harvester_script("--delete", layout.CLUSTER, layout.VM_NAMESPACE)
    for node in cluster.nodes:
        node.delete_credential()
    return f"no load balancer, no object of the release and no credential is left; the Lease named {holder}"


def _lease_holder(cluster: Cluster) -> str:
    """Return who has the Lease of the controller, which it releases if it still has the permission."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cloud-controller-manager"
    lease = cluster.guest.admin.request("GET", path)
    return lease["spec"].get("holderIdentity") or "nobody"


def _unknown_leases(cluster: Cluster) -> list[str]:
    """Return the Leases that are not of Kubernetes and not those of kube-vip for single Services, which it leaves."""
    leases = cluster.guest.admin.request("GET", "/apis/coordination.k8s.io/v1/leases")["items"]
    found = [lease["metadata"] for lease in leases if lease["metadata"]["namespace"] != "kube-node-lease"]
    return [lease["name"] for lease in found if not lease["name"].startswith(("apiserver-", "kubevip-"))]


def _objects_of_release(cluster: Cluster) -> list[str]:
    """Return the objects of the chart that exist."""
    kinds = "all,serviceaccount,configmap,secret,role,rolebinding,clusterrole,clusterrolebinding,poddisruptionbudget"
    selector = "--selector=app.kubernetes.io/managed-by=Helm"
    return cluster.kubectl("get", kinds, "--all-namespaces", selector, "--output=name").split()


def install_again(cluster: Cluster) -> str:
    """Installation again"""
    cluster.harvester_script("-o", str(credential_in(cluster)), layout.CLUSTER, layout.VM_NAMESPACE)
    write_secret(cluster)
    install(cluster, "--set=cloudConfig.secretName=cloud-config")
    address = served(cluster, "after-installation")
    nodes_initialized(cluster)
    return f"a new Service got {address}"


def deleted_vm(cluster: Cluster) -> str:
    """Node of a deleted VM"""
    lost = cluster.nodes[-1]
    cluster.kubectl("drain", lost.place.name, "--ignore-daemonsets", "--delete-emptydir-data", TIMEOUT)
    await_rollout(cluster)
    lost.stop_kubelet()
    cluster.harvester.delete_machine(lost.place)
    path = f"/api/v1/nodes/{lost.place.name}"
    until(lambda: cluster.guest.admin.get_or_none(path) is None, f"deletion of Node {lost.place.name}")
    address = served(cluster, "after-deletion")
    return f"{lost.place.name} is deleted; a new Service got {address}"


def nothing_left(cluster: Cluster) -> str:
    """Nothing left"""
    until(lambda: not cluster.harvester.load_balancers(), lambda: f"deletion of {cluster.harvester.load_balancers()}")
    until(lambda: not cluster.harvester.allocated(), lambda: f"release of {cluster.harvester.allocated()}")
    cluster.save_logs("end")
    if "Traceback" in _saved_logs(cluster):
        raise DevenvError("the log of the controller has a traceback")
    restarts = sum(_restarts(pod) for pod in cluster.controller_pods())
    if restarts:
        raise DevenvError(f"the controller was restarted {restarts} times")
    return "no load balancer, no allocated address; no traceback and no restart of the controller"


def _saved_logs(cluster: Cluster) -> str:
    """Return all logs of the controller, which are saved before each step."""
    files = sorted(cluster.setup.out.glob(f"{CONTROLLER}-*.log"))
    return "".join(file.read_text() for file in files)


Step = Callable[[Cluster], str]
BEFORE_SPECS: Final[tuple[Step, ...]] = (
    install_with_secret,
    nodes_initialized,
    preflight,
    service,
    dhcp,
    rolling_restart,
    drain,
    upgrade_release,
    rotation,
    credential_in_file,
    acceptance,
)
AFTER_SPECS: Final[tuple[Step, ...]] = (permissions, uninstall, install_again, deleted_vm, nothing_left)
