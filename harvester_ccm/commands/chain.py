"""The chain from each Service to the host that its traffic enters, for ``status --all``.

Service, load balancer, IP pool, address, the node that announces it, its VM, and the host of Harvester under that.
"""

from collections.abc import Iterable, Iterator

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.commands.runner import Document
from harvester_ccm.commands.states import Planned
from harvester_ccm.model.event import abbreviate
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import VM_NAME
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import vm_named
from harvester_ccm.plan.service.announcing.endpoints import Reading
from harvester_ccm.plan.service.ownership.virtual_ips import VIRTUAL_IP
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

BY_HARVESTER = "Harvester"
"""Announces the address of a VM load balancer, on a host that it does not show."""


def chains(store: ClusterStore, planned: Iterable[Planned]) -> Iterator[Document]:
    """Yield the chain of each Service of type LoadBalancer; what is missing or not visible is empty."""
    for entry in sorted(planned, key=lambda one: one.service.metadata.key):
        if entry.service.spec.type == "LoadBalancer":
            yield _chain(store, entry)


def chain_text(entry: Document) -> str:
    """Return what is behind the address of a Service, in the order in which traffic depends on it.

    >>> chain_text({"pool": "lan", "loadBalancer": "demo-web", "announcedBy": "w1", "vm": "w1", "host": "host-2"})
    'IP pool lan > load balancer demo-web > announced by w1 > VM w1 > host host-2'
    """
    titles = {
        "pool": "IP pool",
        "loadBalancer": "load balancer",
        "announcedBy": "announced by",
        "vm": "VM",
        "host": "host",
    }
    return " > ".join(f"{title} {entry[key]}" for key, title in titles.items() if entry[key])


def _chain(store: ClusterStore, entry: Planned) -> Document:
    service = entry.service
    snapshot = entry.snapshot
    load_balancer = _load_balancer(store, snapshot)
    node, vm, host = _announcing(store, snapshot, load_balancer)
    return {
        "service": service.metadata.key,
        "state": str(entry.status.state),
        "address": ", ".join(service.addresses),
        "pool": _pool(load_balancer),
        "loadBalancer": load_balancer.metadata.name if load_balancer else "",
        "announcedBy": node,
        "vm": vm,
        "host": host,
    }


def _load_balancer(store: ClusterStore, snapshot: ServiceSnapshot) -> LoadBalancer | None:
    """Return the load balancer of the Service, or of the primary whose address it shares."""
    if snapshot.match.load_balancer is not None or snapshot.primary is None:
        return snapshot.match.load_balancer
    for address in snapshot.service.addresses:
        for load_balancer in store.load_balancers.by_index(VIRTUAL_IP, address):
            return load_balancer
    return None


def _pool(load_balancer: LoadBalancer | None) -> str:
    if load_balancer is None:
        return ""
    return "DHCP" if load_balancer.spec.ipam == "dhcp" else load_balancer.allocated_pool or load_balancer.spec.ip_pool


def _announcing(
    store: ClusterStore, snapshot: ServiceSnapshot, load_balancer: LoadBalancer | None
) -> tuple[str, str, str]:
    """Return the announcing node, its VM and the host of that; of a VM load balancer the VMs behind it."""
    if not snapshot.service.addresses:
        return "", "", ""
    if load_balancer is not None and load_balancer.spec.workload_type == "vm":
        names = sorted((load_balancer.spec.backend_server_selector or {}).get(VM_NAME) or ())
        hosts = {_host(store, name) for name in names} - {""}
        return BY_HARVESTER, abbreviate(names), abbreviate(sorted(hosts))
    if not snapshot.scope.is_managed:
        return "", "", ""
    noted = snapshot.seen.node
    if snapshot.remembered.endpoints.reading is Reading.MISSING:
        return "", "", ""
    node = store.nodes.get(noted)
    if node is None:
        return noted, "", ""
    vm = find_vm(store, node).vm
    if vm is None:
        return node.metadata.name, "", ""
    return node.metadata.name, vm.name, _host(store, vm.name)


def _host(store: ClusterStore, vm_name: str) -> str:
    vm = vm_named(store, vm_name)
    return vm.vmi.status.node_name if vm is not None and vm.vmi is not None else ""
