"""The network by which Harvester chose the IP pool of an address, compared with the one that the Service requests.

Before 1.9, Harvester replaces the requested network: by the first network of a VM that Rancher made for the cluster, or
by none. What it stored on the load balancer shows that, in every version. A pool that the Service names is its choice.
"""

from enum import StrEnum, auto

from harvester_ccm.model.event import EventMessage, quoted
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import IP_POOL, LB_SELECT_NETWORK, Reason
from harvester_ccm.plan.service.load_balancer.specification import network_of
from harvester_ccm.plan.service.request import normal_network
from harvester_ccm.plan.service.snapshot import ServiceSnapshot


class ChosenNetwork(StrEnum):
    """By which network Harvester chose the IP pool of an allocated address."""

    REQUESTED = auto()
    """By the requested network; or the Service requests no network, or names the pool."""
    NONE = auto()
    """By no network: only pools without one, and global pools."""
    OTHER = auto()
    """By another network."""


def chosen_network(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> ChosenNetwork:
    """Return by which network Harvester chose the pool of the address of a cluster load balancer."""
    stored = load_balancer.metadata.annotation(LB_SELECT_NETWORK)
    requested = network_of(load_balancer, snapshot.request.network)
    if not requested or stored is None or load_balancer.spec.ipam != "pool":
        return ChosenNetwork.REQUESTED
    is_named = snapshot.request.ip_pool == load_balancer.allocated_pool
    if is_named or normal_network(stored) == requested:
        return ChosenNetwork.REQUESTED
    return ChosenNetwork.OTHER if stored else ChosenNetwork.NONE


def is_withheld(snapshot: ServiceSnapshot) -> bool:
    """Return whether a new address is not announced because of its network. An announced address stays: it may work."""
    load_balancer = snapshot.load_balancer
    address = load_balancer.allocated_ip
    record = snapshot.record
    is_published = record is not None and record.is_published and record.address == address
    if is_published or snapshot.seen.read_address == address:
        return False
    return chosen_network(snapshot, load_balancer) is ChosenNetwork.OTHER


def network_warning(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> EventMessage | None:
    """Return the Warning about an address that may not be one of the requested network, or None."""
    is_requested = chosen_network(snapshot, load_balancer) is ChosenNetwork.REQUESTED
    return None if is_requested else other_network(snapshot, load_balancer)


def other_network(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> EventMessage:
    """Return the Warning about an address that Harvester did not choose by the requested network."""
    requested = quoted(network_of(load_balancer, snapshot.request.network))
    stored = load_balancer.metadata.annotation(LB_SELECT_NETWORK)
    searched = f"for network {quoted(stored)}" if stored else "without a network"
    pool = quoted(load_balancer.allocated_pool)
    effect = "is not announced" if is_withheld(snapshot) else "may not be reachable there"
    cause = (
        f"The Service requests network {requested}, and Harvester searched its IP pool {searched}, as before version "
        f"1.9: address {load_balancer.allocated_ip} of pool {pool} {effect}"
    )
    remedy = (
        f"If it is reachable, name pool {pool} in annotation {IP_POOL}. If not, name a pool of network {requested}"
        ", delete the Service and create it again"
    )
    return EventMessage("Warning", Reason.OTHER_NETWORK, cause, remedy)
