"""Acceptance test of an installed controller, on the guest cluster and the Harvester that it runs on.

``python -m devenv.acceptance GUEST HARVESTER`` takes the kubeconfigs of both clusters. The current context for
Harvester must have the namespace of the VMs, as in a cloud-config. The test creates a namespace in the guest cluster,
changes only Services in it, deletes them at the end, also after a failure, and prints a report. It sends no traffic.
"""

import argparse
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import urllib3
import yaml
from kubernetes import client, config

from harvester_ccm import names
from harvester_ccm.model.core import SERVICE_LABEL

API: Final = ("loadbalancer.harvesterhci.io", "v1beta1")
SERVER_VERSION: Final = ("harvesterhci.io", "v1beta1", "settings", "server-version")
ENDPOINT: Final = "192.0.2.1"
"""Address of the endpoint of each Service, from the range for documentation: nothing responds there."""
POLL_SECONDS: Final = 0.5
SWAP_SECONDS: Final = 1800.0


class StepFailedError(Exception):
    """A step did not have its result in time. The text states what was missing."""


ERRORS: Final = (StepFailedError, client.ApiException, urllib3.exceptions.HTTPError)


@dataclass(frozen=True)
class Run:
    """The APIs of both clusters, and the namespaces of the VMs and of the test."""

    core: Any
    custom: Any
    vm_namespace: str
    seconds: float = 180.0
    """Timeout of each wait."""
    prompt: Callable[[str], None] = print
    """Ask the user for an action."""
    namespace: str = field(default_factory=lambda: f"ccm-acceptance-{uuid.uuid4().hex[:8]}")


def until(condition: Callable[[], Any], missing: Callable[[], str], seconds: float) -> Any:
    """Return the value of the condition once it is true. Raises StepFailedError."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise StepFailedError(f"not within {seconds:g} s: {missing()}")
        time.sleep(POLL_SECONDS)
    return value


def create(run: Run, name: str, annotations: dict[str, str], port: int = 80) -> None:
    """Create a Service of type LoadBalancer with an endpoint.

    kube-vip announces an address, and writes a lease from DHCP, only for a Service that has an endpoint.
    """
    add_endpoint(run, name, port)
    spec = {"type": "LoadBalancer", "ports": [{"name": "main", "port": port}]}
    body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
    run.core.create_namespaced_service(run.namespace, body)


def add_endpoint(run: Run, name: str, port: int) -> None:
    """Create the EndpointSlice of a Service without a selector, with an endpoint that gets no traffic."""
    slices = client.DiscoveryV1Api(run.core.api_client)
    body = {
        "metadata": {"name": name, "labels": {SERVICE_LABEL: name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ENDPOINT], "conditions": {"ready": True}}],
        "ports": [{"name": "main", "port": port, "protocol": "TCP"}],
    }
    slices.create_namespaced_endpoint_slice(run.namespace, body)


def change(run: Run, name: str, patch: dict[str, Any]) -> None:
    """Send a merge patch of a Service."""
    run.core.patch_namespaced_service(name, run.namespace, patch, _content_type="application/merge-patch+json")


def addresses(run: Run) -> dict[str, str]:
    """Return the address of each Service, empty if it has none."""
    items = run.core.list_namespaced_service(run.namespace).items
    ingress = {one.metadata.name: one.status.load_balancer.ingress for one in items}
    return {name: (entries[0].ip or "") if entries else "" for name, entries in ingress.items()}


def load_balancers(run: Run) -> dict[str, dict[str, Any]]:
    """Return the load balancers of the test's namespace by the names of their Services."""
    selector = f"{names.LB_SERVICE_NAMESPACE}={run.namespace}"
    found = run.custom.list_namespaced_custom_object(*API, run.vm_namespace, "loadbalancers", label_selector=selector)
    return {one["metadata"]["labels"][names.LB_SERVICE_NAME]: one for one in found["items"]}


def served(run: Run, name: str, workload: str = "cluster") -> tuple[str, dict[str, Any]]:
    """Return the address and the load balancer of a Service once both agree. Raises StepFailedError with its Events."""

    def agreed() -> tuple[str, dict[str, Any]] | None:
        address, balancer = addresses(run).get(name), load_balancers(run).get(name)
        if not address or balancer is None or "deletionTimestamp" in balancer["metadata"]:
            return None
        is_same = balancer.get("status", {}).get("address") == address and balancer["spec"]["workloadType"] == workload
        return (address, balancer) if is_same else None

    found: tuple[str, dict[str, Any]] = until(agreed, lambda: f"address of {name}. {warnings(run, name)}", run.seconds)
    return found


def warnings(run: Run, name: str) -> str:
    """Return the Warning Events of a Service."""
    events = run.core.list_namespaced_event(run.namespace, field_selector=f"involvedObject.name={name},type=Warning")
    return " ".join(f"{one.reason}: {one.message}" for one in events.items)


def nodes(run: Run) -> str:
    """Nodes"""
    vms = run.custom.list_namespaced_custom_object("kubevirt.io", "v1", run.vm_namespace, "virtualmachines")["items"]
    ids = {f"harvester://{vm['metadata']['uid']}" for vm in vms}

    def is_complete(node: Any) -> bool:
        has_address = any(one.type == "InternalIP" for one in node.status.addresses or ())
        is_new = any(taint.key == names.UNINITIALIZED_TAINT for taint in node.spec.taints or ())
        return node.spec.provider_id in ids and has_address and not is_new

    def incomplete() -> list[str]:
        return [node.metadata.name for node in run.core.list_node().items if not is_complete(node)]

    until(lambda: not incomplete(), lambda: f"initialization of {', '.join(incomplete())}", run.seconds)
    return f"{len(run.core.list_node().items)} Nodes have the provider ID of a VM, an InternalIP and no taint"


def creation(run: Run) -> str:
    """Creation"""
    create(run, "web", {names.IPAM: "pool"})
    address, balancer = served(run, "web")
    return f"{address}, load balancer {balancer['metadata']['name']}"


def update(run: Run) -> str:
    """Update of the port"""
    address, _ = served(run, "web")
    change(run, "web", {"spec": {"ports": [{"name": "main", "port": 81}]}})

    def ports() -> list[int]:
        ingress = run.core.read_namespaced_service("web", run.namespace).status.load_balancer.ingress or ()
        return [port.port for entry in ingress if entry.ip == address for port in entry.ports or ()]

    until(lambda: ports() == [81], lambda: f"port 81 in the status, instead of {ports()}", run.seconds)
    return f"{address} kept, port 81 in the status"


def sharing(run: Run) -> str:
    """Shared address"""
    address, _ = served(run, "web")
    create(run, "shared", {names.PRIMARY_SERVICE: f"{run.namespace}/web"}, port=82)
    until(lambda: addresses(run)["shared"] == address, lambda: f"{address}. {warnings(run, 'shared')}", run.seconds)
    if "shared" in load_balancers(run):
        raise StepFailedError("the secondary Service has a load balancer")
    return f"{address} on both Services, one load balancer"


def switch(run: Run) -> str:
    """Switch to a VM load balancer and back"""
    create(run, "switched", {names.IPAM: "pool"})
    address, before = served(run, "switched")
    for workload in ("vm", "cluster"):
        change(run, "switched", {"metadata": {"annotations": {names.WORKLOAD_TYPE: workload}}})
        after, balancer = served(run, "switched", workload)
        if (after, balancer["metadata"]["name"]) != (address, before["metadata"]["name"]):
            raise StepFailedError(f"{workload}: address {after}, load balancer {balancer['metadata']['name']}")
    return f"{address} and the name of the load balancer kept"


def vm(run: Run) -> str:
    """VM load balancer"""
    create(run, "vm", {names.WORKLOAD_TYPE: "vm"})
    return served(run, "vm", "vm")[0]


def dhcp(run: Run) -> str:
    """DHCP"""
    create(run, "dhcp", {names.IPAM: "dhcp"})
    return served(run, "dhcp")[0]


def swap(run: Run) -> str:
    """Swap with another controller and back"""

    leases = client.CoordinationV1Api(run.core.api_client)

    def holder() -> str:
        spec = leases.read_namespaced_lease("cloud-controller-manager", "kube-system").spec
        return spec.holder_identity or ""

    def state() -> set[tuple[str, str]]:
        uids = {name: one["metadata"]["uid"] for name, one in load_balancers(run).items()}
        return {*addresses(run).items(), *uids.items()}

    holders, before = [holder()], state()
    for name in ("swapped", "swapped-back"):
        run.prompt(f"Replace the controller {holders[-1]} by the other one ({name}).")
        until(lambda: holder() not in ("", holders[-1]), lambda: "another holder of the Lease", SWAP_SECONDS)
        holders.append(holder())
        create(run, name, {names.IPAM: "pool"})
        served(run, name)
        if lost := before - state():
            raise StepFailedError(f"{name}: lost {sorted(lost)}")
    return f"addresses and load balancers kept; holders of the Lease: {', '.join(holders)}"


def deletion(run: Run) -> str:
    """Deletion"""
    found = list(addresses(run))
    for name in found:
        run.core.delete_namespaced_service(name, run.namespace)

    def rest() -> list[str]:
        return [*addresses(run), *(one["metadata"]["name"] for one in load_balancers(run).values())]

    until(lambda: not rest(), lambda: f"deletion of {', '.join(rest())}", run.seconds)
    return f"{len(found)} Services deleted, no load balancer left"


STEPS: Final = (nodes, creation, update, sharing, switch, vm, dhcp, swap, deletion)


def clean_up(run: Run) -> None:
    """Delete everything that the test created. If the controller does not, delete its load balancers and finalizers."""
    try:
        deletion(run)
    except ERRORS as error:
        print(f"\nDeleted without the controller: {error}")
        for balancer in load_balancers(run).values():
            name = balancer["metadata"]["name"]
            run.custom.delete_namespaced_custom_object(*API, run.vm_namespace, "loadbalancers", name)
        for name in addresses(run):
            change(run, name, {"metadata": {"finalizers": None}})
    run.core.delete_namespace(run.namespace)


def head(run: Run) -> str:
    """Return the head of the report: the versions of both clusters and the images of the controller and kube-vip."""
    apps = client.AppsV1Api(run.core.api_client)
    sources: dict[str, Callable[[], Any]] = {
        "Guest cluster": lambda: client.VersionApi(run.core.api_client).get_code().git_version,
        "Harvester": lambda: run.custom.get_cluster_custom_object(*SERVER_VERSION)["value"],
        "Controller": lambda: apps.read_namespaced_deployment("harvester-cloud-provider", "kube-system"),
        "kube-vip": lambda: apps.read_namespaced_daemon_set("kube-vip", "kube-system"),
    }
    lines = [f"# Acceptance test of harvester-ccm, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}", ""]
    for name, source in sources.items():
        try:
            found = source()
            value = found if isinstance(found, str) else found.spec.template.spec.containers[0].image
        except client.ApiException as error:
            value = f"not readable ({error.status} {error.reason})"
        lines.append(f"- {name}: {value}")
    return "\n".join(lines)


def accept(run: Run, steps: tuple[Callable[[Run], str], ...]) -> bool:
    """Take the steps, print the report, delete everything, and return whether all steps succeeded."""
    print(f"{head(run)}\n\n| Step | Result | Seconds | Detail |\n|---|---|---|---|", flush=True)
    failed = False
    run.core.create_namespace({"metadata": {"name": run.namespace}})
    try:
        for step in steps:
            began, result = time.monotonic(), "ok"
            try:
                detail = step(run)
            except ERRORS as error:
                failed, result, detail = True, "**failed**", " ".join(str(error).split())
            print(f"| {step.__doc__} | {result} | {time.monotonic() - began:.1f} | {detail} |", flush=True)
    finally:
        clean_up(run)
    return not failed


def connect(guest: str, harvester: str) -> Run:
    """Return a run on the clusters of two kubeconfigs."""
    _, context = config.list_kube_config_contexts(harvester)
    in_guest, in_harvester = (config.new_client_from_config(path, persist_config=False) for path in (guest, harvester))
    namespace = context["context"].get("namespace", "default")
    return Run(client.CoreV1Api(in_guest), client.CustomObjectsApi(in_harvester), namespace)


def main() -> int:
    """Entry point of ``python -m devenv.acceptance``. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guest", help="kubeconfig of the guest cluster")
    parser.add_argument("harvester", help="kubeconfig of Harvester, such as the cloud-config")
    parser.add_argument(
        "--skip", choices=[step.__name__ for step in STEPS], action="append", default=[], help="leave out a step"
    )
    parser.add_argument("--swap", action="store_true", help="wait for a swap with the Go provider, and back")
    given = parser.parse_args()
    for variable, name in (("GUEST", given.guest), ("HARVESTER", given.harvester)):
        try:
            config.list_kube_config_contexts(name)
        except (config.ConfigException, OSError, TypeError, yaml.YAMLError) as error:
            print(f"error: {variable}={name} names no kubeconfig: {' '.join(str(error).split())}", file=sys.stderr)
            return 1
    skipped = given.skip if given.swap else [*given.skip, "swap"]
    steps = tuple(step for step in STEPS if step.__name__ not in skipped)
    return 0 if accept(connect(given.guest, given.harvester), steps) else 1


if __name__ == "__main__":
    sys.exit(main())
