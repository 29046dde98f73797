"""Which addresses are load balancers': kube-vip binds them to the nodes' devices, where they are no Node's."""

from typing import Final

from msgspec import Struct

from harvester_ccm.model.core import Service, ipv4_text
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.meta import Store
from harvester_ccm.names import DHCP_ADDRESS, SERVICE_FINALIZER
from harvester_ccm.plan.service.kube_vip import Announcement

VIRTUAL_IP: Final = "virtual IP"
"""Index of Services and load balancers."""


class VirtualIPIndex(Struct, frozen=True):
    """The virtual IPs of Services and load balancers, both with the index VIRTUAL_IP: ``VirtualIPs`` of Node plans."""

    services: Store[Service]
    load_balancers: Store[LoadBalancer]

    @property
    def listed(self) -> bool:
        """Whether both collections were listed, or cannot be listed."""
        return all(one.synced or one.problem is not None for one in (self.services, self.load_balancers))

    def owner(self, address: str) -> str:
        """Return the object that has the address; empty if it is no virtual IP."""
        services = [f"Service {one.metadata.key}" for one in self.services.by_index(VIRTUAL_IP, address)]
        found = self.load_balancers.by_index(VIRTUAL_IP, address)
        return next(iter((*services, *(f"load balancer {one.metadata.key} in Harvester" for one in found))), "")


def virtual_ips_of_service(service: Service | None) -> set[str]:
    """Return the addresses of a Service that kube-vip binds to the nodes' devices.

    Only Services that this controller manages count: a tenant can write any address to a Service. The
    status of a Service that kube-vip does not announce does not count: a load balancer that uses the nodes' own
    addresses (K3s ServiceLB) writes exactly those. An annotation with several addresses does not count: a tenant can
    write the addresses of all nodes there.
    """
    if service is None or service.spec.type != "LoadBalancer" or not service.metadata.has_finalizer(SERVICE_FINALIZER):
        return set()
    found = Announcement.of(service)
    texts = (found.address or "", *found.status) if found.address or found.node else ()
    return set(map(ipv4_text, texts)) - {"", DHCP_ADDRESS}


def virtual_ips_of_load_balancer(load_balancer: LoadBalancer | None) -> set[str]:
    """Return the addresses of a load balancer."""
    if load_balancer is None:
        return set()
    return {ipv4_text(load_balancer.address), ipv4_text(load_balancer.allocated_ip)} - {"", DHCP_ADDRESS}
