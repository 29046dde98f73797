"""What the plans of Services read: the collections of both clusters, with their indexes.

The caches of the controllers are such a store, and so are the complete lists of a command.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import ConfigMap, Node, Service, ipv4_text
from harvester_ccm.model.harvester import LoadBalancer, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import DHCP_ADDRESS
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.ownership.owner import service_key
from harvester_ccm.plan.service.ownership.virtual_ips import (
    VIRTUAL_IP,
    virtual_ips_of_load_balancer,
    virtual_ips_of_service,
)
from harvester_ccm.plan.service.request import requested_addresses
from harvester_ccm.plan.service.scope import BY_PRIMARY, primaries_of
from harvester_ccm.plan.service.sharing.ranking import Rankings

BY_SERVICE: Final = "service"
"""Index of load balancers by the Service that their labels name, or by its UID (Go provider before 0.2)."""
BY_REQUEST: Final = "request"
"""Index of Services without an address by the address that they request."""
BY_ADDRESS: Final = "address"
"""Index of load balancers by the address that Harvester has allocated, and of Services by those in their status."""
BY_CLUSTER_IP: Final = "cluster IP"
"""Index of Services by their cluster IPs."""


Backends = tuple[str, ...] | None
"""The VMs of the nodes that may get traffic; None until the VMs are listed: the backends are left as they are then."""


class ServiceStore:
    """Services and everything that they depend on: with SERVICE_INDEXES and LOAD_BALANCER_INDEXES."""

    services: Store[Service]
    rankings: Rankings
    load_balancers: Store[LoadBalancer]
    config_maps: Store[ConfigMap]
    """Holds the network mapping."""
    nodes: Store[Node]
    vms: Store[VirtualMachine]
    """The VMs in the namespace of the load balancers."""
    vmis: Store[VirtualMachineInstance]
    backends: Backends = None
    """The nodes that may get traffic."""
    pool_rights = PoolRights(are_known=False)
    """The IP pools in which an address can be requested."""
    api_servers: frozenset[str] = frozenset()
    """The addresses of both API servers in the kubeconfigs."""
    last_announced_at = -math.inf
    """When kube-vip last wrote a receipt on a Service without one, in seconds of the monotonic clock."""


def _requests_of(service: Service) -> Iterable[str]:
    """Return the addresses that a Service without an address may wait for."""
    if service.addresses:
        return ()
    values = requested_addresses(service, read_seen(service)).values()
    return set(map(ipv4_text, values)) - {"", DHCP_ADDRESS}


SERVICE_INDEXES: Final[Mapping[str, Callable[[Service], Iterable[str]]]] = {
    BY_PRIMARY: primaries_of,
    BY_REQUEST: _requests_of,
    BY_ADDRESS: lambda service: set(service.addresses),
    BY_CLUSTER_IP: lambda service: service.spec.cluster_ips,
    VIRTUAL_IP: virtual_ips_of_service,
}
LOAD_BALANCER_INDEXES: Final[Mapping[str, Callable[[LoadBalancer], Iterable[str]]]] = {
    BY_SERVICE: lambda load_balancer: {service_key(load_balancer)} - {""},
    BY_ADDRESS: lambda load_balancer: {load_balancer.allocated_ip} - {"", DHCP_ADDRESS},
    VIRTUAL_IP: virtual_ips_of_load_balancer,
}
