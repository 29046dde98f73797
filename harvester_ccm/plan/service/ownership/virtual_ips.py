"""Addresses of Services and load balancers, which are never published as addresses of a Node.

kube-vip binds them to the devices of the nodes, so Harvester's guest agents report them. An address from DHCP does not
count: kube-vip binds it to a device that it makes for the lease, which is in no network of the VM.
"""

from typing import Final

from msgspec import Struct

from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service, ipv4_text
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import DHCP_ADDRESS
from harvester_ccm.plan.service.announcing.record import read_record
from harvester_ccm.plan.service.scope import is_in_scope

VIRTUAL_IP: Final = "virtual IP"
"""Index of Services and load balancers."""


class VirtualIPIndex(Struct, frozen=True):
    """The virtual IPs of Services and load balancers, both with the index VIRTUAL_IP: ``VirtualIPs`` of Node plans."""

    services: Store[Service]
    load_balancers: Store[LoadBalancer]
    cluster: ClusterIdentity

    @property
    def listed(self) -> bool:
        """Whether both collections were listed, or cannot be listed."""
        return _is_listed(self.services) and _is_listed(self.load_balancers)

    def owner(self, address: str) -> str:
        """Return the object that has the address; empty if it is no virtual IP."""
        for service in self.services.by_index(VIRTUAL_IP, address):
            if is_in_scope(service, self.cluster):
                return owner_of_service(service)
        for load_balancer in self.load_balancers.by_index(VIRTUAL_IP, address):
            return owner_of_load_balancer(load_balancer)
        return ""


def _is_listed(store: Store[Service] | Store[LoadBalancer]) -> bool:
    return store.synced or store.problem is not None


def owner_of_service(service: Service) -> str:
    """Return a Service as the owner of an address, for messages."""
    return f"Service {service.metadata.key}"


def owner_of_load_balancer(load_balancer: LoadBalancer) -> str:
    """Return a load balancer as the owner of an address, for messages."""
    return f"load balancer {load_balancer.metadata.key} in Harvester"


def virtual_ips_of_service(service: Service) -> set[str]:
    """Return the addresses of a Service that kube-vip binds to the nodes' devices, if this controller manages it.

    The record shows what this controller has published, and the status that kube-vip has taken it over: a tenant can
    write the record of a Service, but not its status. A lease does not count.
    """
    if service.spec.type != "LoadBalancer" or not service.has_finalizer:
        return set()
    record = read_record(service)
    if record is None or not record.is_published or record.address not in service.addresses:
        return set()
    return {ipv4_text(record.address)} - {"", DHCP_ADDRESS}


def virtual_ips_of_load_balancer(load_balancer: LoadBalancer) -> set[str]:
    """Return the addresses of a load balancer that are from an IP pool."""
    if load_balancer.allocated_ip == DHCP_ADDRESS:
        return set()
    return {ipv4_text(load_balancer.address), ipv4_text(load_balancer.allocated_ip)} - {"", DHCP_ADDRESS}
