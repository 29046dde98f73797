"""Addresses on the VMs of Nodes that are nobody's, or on several of them, for ``status``.

A kube-vip that is killed or panics leaves the addresses that it announced on its node, also after their Services are
deleted. Harvester can allocate such an address again, and then two nodes answer for it. The guest agents of the VMs
report the addresses, up to a minute late.
"""

from collections.abc import Iterator
from typing import Final

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.model.event import abbreviate
from harvester_ccm.plan.node.vms import own_vmis

LEFT: Final = (
    "A kube-vip that died leaves addresses like these: see 'Addresses that kube-vip left' on the page about "
    "troubleshooting. An address that someone else gave to the node, such as that of the control plane, can stay"
)
ON_SEVERAL: Final = (
    "kube-vip announces an address on one node, so the others do it by mistake if this does not end within a minute: "
    "see 'Addresses that kube-vip left' on the page about troubleshooting"
)


def left_addresses(store: ClusterStore) -> Iterator[str]:
    """Yield a note about the addresses of VMs that nobody has, and one about those of Services on several VMs."""
    own = {entry.address for node in store.nodes.all() for entry in node.status.addresses} | store.api_servers
    of_services = {address for service in store.services.all() for address in service.addresses}
    unknown: list[str] = []
    repeated: list[str] = []
    for address, vms in sorted(_vms_by_address(store).items()):
        text = f"{address} ({abbreviate(sorted(vms))})"
        if address in own:
            continue
        if address not in of_services and not store.virtual_ips.owner(address):
            unknown.append(text)
        elif len(vms) > 1:
            repeated.append(text)
    if unknown:
        yield f"VMs report addresses that no Node, Service or load balancer has: {abbreviate(unknown)}. {LEFT}"
    if repeated:
        yield f"Several VMs report the address of a Service: {abbreviate(repeated)}. {ON_SEVERAL}"


def _vms_by_address(store: ClusterStore) -> dict[str, set[str]]:
    """Return the names of the VMs of Nodes by the IPv4 addresses that a device has besides its own, the first."""
    names: dict[str, set[str]] = {}
    for instance in own_vmis(store):
        for interface in instance.interfaces:
            # Load balancers have no IPv6 address, and each device has some.
            _own, *added = [address for address in interface.addresses if ":" not in address] or [""]
            for address in added:
                names.setdefault(address, set()).add(instance.metadata.name)
    return names
