"""Wishes that a load balancer of Harvester does not fulfil: what has no effect on it, what cannot change any more."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import Capabilities, LoadBalancer
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import (
    DESCRIPTION,
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    HEALTH_CHECK_TIMEOUT,
    IP_POOL,
    IPAM,
    LB_REQUESTED_NETWORK,
    LB_SELECT_NAMESPACE,
    LB_SELECT_NETWORK,
    LB_SELECT_PROJECT,
    NETWORK,
    POOL_NAMESPACE,
    PROJECT,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.netip import ipv4_text
from harvester_ccm.plan.service.request import Request, asked_in, normal_network

POINT_TO_POINT: Final = 31
"""Length of the prefix from which on a subnet has no room for load balancers beside nodes."""
HEALTH_CHECK_DETAILS: Final = (
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_TIMEOUT,
)


def ignored_settings(service: Service, can: Capabilities, *, vm: bool) -> EventMessage | None:
    """Return one note about all settings that have no effect on this kind of load balancer, or None."""
    of_type = _ignored_on_vm(service, can) if vm else _ignored_on_cluster(service)
    return without_effect([*_ignored_anywhere(service), *of_type, *_ignored_for_want_of(can, service)])


def without_effect(ignored: list[str]) -> EventMessage | None:
    """Return the note about settings without effect, each with its reason, or None if there are none."""
    if not ignored:
        return None
    return EventMessage("Warning", Reason.IGNORED, f"Without effect on this load balancer: {'; '.join(ignored)}")


def _ignored_anywhere(service: Service) -> Iterator[str]:
    if "IPv6" in service.spec.ip_families:
        yield _ignored_family(service.spec.ip_family_policy)
    if any(entry.ip_mode not in {"", "VIP"} for entry in service.status.load_balancer.ingress):
        yield "ipMode Proxy in the status (packets keep the address as destination, so ipMode is VIP)"


def _ignored_family(policy: str) -> str:
    """Return what of ``spec.ipFamilyPolicy`` is not fulfilled for a Service that is served on IPv4."""
    if policy == "RequireDualStack":
        return (
            "the IPv6 address of spec.ipFamilyPolicy RequireDualStack (Harvester's load balancers have one IPv4 "
            "address, which this Service had before and keeps; a new one would get none. Set PreferDualStack)"
        )
    if policy == "PreferDualStack":
        return "IPv6 of spec.ipFamilyPolicy PreferDualStack (the load balancer has one IPv4 address)"
    return "IPv6 of spec.ipFamilies (the load balancer has one IPv4 address)"


def _ignored_on_cluster(service: Service) -> Iterator[str]:
    checks = _health_check_annotations(service)
    if service.metadata.annotation(WORKLOAD_TYPE) == "cluster" and checks:
        port = "" if HEALTH_CHECK_PORT in checks else f" and {HEALTH_CHECK_PORT} to the port to check"
        yield f"{', '.join(checks)} (health checks need a VM load balancer; set annotation {WORKLOAD_TYPE} to vm{port})"


def _ignored_on_vm(service: Service, can: Capabilities) -> Iterator[str]:
    yield from _fields_ignored_on_vm(service)
    if can.has_ip_pools and service.metadata.annotation(NETWORK):
        yield (
            f"annotation {NETWORK}, beyond the choice of a pool (Harvester announces the address in the network of its "
            "hosts; an address of another network cannot be reached)"
        )
    details = _health_check_annotations(service)
    if details and HEALTH_CHECK_PORT not in details:
        yield f"{', '.join(details)} (nodes are checked only with annotation {HEALTH_CHECK_PORT})"


def _ignored_for_want_of(can: Capabilities, service: Service) -> Iterator[str]:
    choosing = [key for key in (IP_POOL, NETWORK, PROJECT, POOL_NAMESPACE) if service.metadata.annotation(key)]
    if choosing and not can.has_ip_pools:
        yield (
            f"annotations {', '.join(choosing)} (Harvester before 1.2 gives addresses by the namespace of the VMs, "
            "from its setting vip-pools)"
        )
    if service.metadata.annotation(WORKLOAD_TYPE) == "cluster" and not can.has_cluster_type:
        yield (
            f"annotation {WORKLOAD_TYPE} cluster (Harvester before 1.2 announces every address itself; the load "
            "balancer is recreated as a cluster load balancer once Harvester is upgraded. Remove the annotation to "
            "keep it then)"
        )
    if can.has_ip_pools and service.metadata.annotation(IPAM) == "dhcp" and IP_POOL in choosing:
        yield f"annotation {IP_POOL} (the address comes from DHCP)"


def converted(request: Request, load_balancer: LoadBalancer) -> EventMessage | None:
    """Return what to tell when a load balancer of Harvester before 1.2 lives on and new ones would be otherwise."""
    spec = load_balancer.spec
    if spec.named_workload_type or request.workload_type or request.wants_health_check:
        return None
    text = (
        f"Load balancer {load_balancer.metadata.name} was made for Harvester before 1.2 and goes on serving as a VM "
        f"load balancer. New Services get a cluster load balancer. Set annotation {WORKLOAD_TYPE} to vm to keep this "
        "one without further notice, or to cluster to have it recreated; the address is kept where Harvester allows "
        "it, and traffic stops for some seconds"
    )
    return EventMessage("Normal", Reason.ADOPTED, text)


def _fields_ignored_on_vm(service: Service) -> Iterator[str]:
    spec = service.spec
    if spec.load_balancer_source_ranges:
        yield "spec.loadBalancerSourceRanges (Harvester forwards from everywhere; use a NetworkPolicy or a firewall)"
    if spec.session_affinity == "ClientIP":
        yield "spec.sessionAffinity ClientIP (the nodes see Harvester's hosts, not the clients)"
    if spec.external_traffic_policy == "Local":
        yield (
            "the client address of spec.externalTrafficPolicy Local (Harvester's hosts hide it; nodes without an "
            "endpoint only drop traffic)"
        )
    if any(port.protocol == "SCTP" for port in spec.ports):
        yield "SCTP ports (not known to work with Harvester's load balancers)"
    unreachable = [f"{port.port}/{port.protocol}" for port in spec.ports if not port.node_port]
    if unreachable and spec.allocate_load_balancer_node_ports is False:
        yield f"ports {', '.join(unreachable)} (they have no node port; set spec.allocateLoadBalancerNodePorts to true)"


def _health_check_annotations(service: Service) -> list[str]:
    keys = (HEALTH_CHECK_PORT, *HEALTH_CHECK_DETAILS)
    return [key for key in keys if service.metadata.annotation(key) is not None]


def ignored_on_secondary(service: Service, primary: Service, *, vm: bool) -> EventMessage | None:
    """Return one note about all that a Service asks for and cannot have with the address of another one, or None."""
    keys = (IP_POOL, WORKLOAD_TYPE, PROJECT, POOL_NAMESPACE)
    present = [key for key in keys if service.metadata.annotation(key)] + _health_check_annotations(service)
    if (service.metadata.annotation(IPAM) or "").strip() not in {"", "pool", "dhcp"}:
        present.append(IPAM)
    ignored = [f"{', '.join(present)} (set on {primary.metadata.key}, whose address is shared)"] if present else []
    if service.metadata.annotation(DESCRIPTION):
        ignored.append(f"annotation {DESCRIPTION} (this Service has no load balancer of its own)")
    wishes = {
        "spec.loadBalancerIP": service.spec.load_balancer_ip,
        f"annotation {REQUESTED_ADDRESS}": (service.metadata.annotation(REQUESTED_ADDRESS) or "").strip(),
    }
    ignored += [
        f"{name} (the address is that of {primary.metadata.key})"
        for name, wish in wishes.items()
        if wish and wish not in primary.addresses
    ]
    ignored += _ignored_anywhere(service)
    if vm:
        ignored += _fields_ignored_on_vm(service)
    return without_effect(ignored)


def refused_changes(service: Service, request: Request, load_balancer: LoadBalancer) -> tuple[EventMessage, ...]:
    """Return what to tell about wishes that were changed after the load balancer was created."""
    notes = []
    spec = load_balancer.spec
    if request.ipam is not None and request.ipam != spec.ipam:
        notes.append(_fixed(IPAM, service.metadata.annotation(IPAM) or "", spec.ipam))
    notes += [_fixed(*one) for one in asked_since_given(request, load_balancer)]
    checks = _health_check_annotations(service)
    if spec.workload_type == "cluster" and request.workload_type is None and checks:
        port = "" if HEALTH_CHECK_PORT in checks else f"{HEALTH_CHECK_PORT} to the port to check, and "
        text = (
            f"Annotation {checks[0]} has no effect: health checks need a VM load balancer, and this one was created as "
            f"a cluster load balancer. Set annotation {port}{WORKLOAD_TYPE} to vm to have it recreated as one; the "
            "address is kept where Harvester allows it, and traffic stops for some seconds"
        )
        notes.append(EventMessage("Warning", Reason.IGNORED, text))
    return tuple(notes)


def asked_since_given(request: Request, load_balancer: LoadBalancer) -> tuple[tuple[str, str, str], ...]:
    """Return the network and the pool, as annotation, wish and what there is, where an address fixes another one.

    Without an address there is nothing to lose: network and pool follow. Load balancers made by providers before 0.2.7
    do not say which network was asked for.
    """
    if not load_balancer.allocated_ip:
        return ()
    found: list[tuple[str, str, str]] = []
    given = load_balancer.metadata.annotation(LB_REQUESTED_NETWORK)
    if given is not None and request.network != normal_network(given):
        found.append((NETWORK, request.network, given))
    spec = load_balancer.spec
    pool = spec.ip_pool or load_balancer.allocated_pool
    if request.ip_pool and spec.ipam == "pool" and pool and request.ip_pool != pool:
        found.append((IP_POOL, request.ip_pool, pool))
    return tuple(found)


def _fixed(key: str, asked: str, has: str) -> EventMessage:
    wish = f"is {asked!r}" if asked else "was removed"
    made_with = f"with {has!r}" if has else "without one"
    remedy = "Set the annotation back" if has else "Remove the annotation"
    text = (
        f"Annotation {key} {wish}, but the load balancer was created {made_with} and keeps it so, because a change "
        f"would cost the address. {remedy}, or delete the Service and create it anew"
    )
    return EventMessage("Warning", Reason.IMMUTABLE, text)


def not_as_requested(
    service: Service, request: Request, load_balancer: LoadBalancer, address: str
) -> EventMessage | None:
    """Return what to tell when the address, or how it was chosen, is not as asked for, or None."""
    differences = []
    if request.address and address and request.address != address:
        where = "".join(f" ({place})" for place in asked_in(service, request.address)[:1])
        text = (
            f"address {request.address} was asked for{where} and {address} was given, because Harvester chooses the "
            "address itself"
        )
        if load_balancer.capabilities.has_ip_pools:
            text += (
                f". To have {request.address}, make an IP pool with only that address, name the pool in annotation "
                f"{IP_POOL}, delete this Service and create it anew"
            )
        differences.append(text)
    pool, wanted = load_balancer.allocated_pool, load_balancer.spec.ip_pool
    if pool and wanted and pool != wanted:
        differences.append(f"IP pool {wanted} was asked for and the address comes from {pool}")
    differences += _chosen_otherwise(service, request, load_balancer)
    if not differences:
        return None
    return EventMessage("Warning", Reason.ADDRESS_NOT_AS_REQUESTED, f"Not as requested: {'; '.join(differences)}")


def out_of_reach(request: Request, load_balancer: LoadBalancer, nodes: tuple[str, ...]) -> EventMessage | None:
    """Return what to tell of an address that fits no node in the network that was asked for, or None.

    Harvester falls back to a global pool, whatever network that is for. ``nodes`` are the addresses of the nodes there;
    where none is known nothing follows.
    """
    subnet, known = _subnet(load_balancer), [address for address in map(ipv4_text, nodes) if address]
    if not request.network or subnet is None or not known or any(IPv4Address(one) in subnet for one in known):
        return None
    text = (
        f"Address {load_balancer.allocated_ip} comes from IP pool {load_balancer.allocated_pool} ({subnet}), but no "
        f"node has an address of that subnet in network {request.network}: it will probably not be reachable. Give the "
        "network an IP pool of its own, delete the Service and create it anew"
    )
    return EventMessage("Warning", Reason.ADDRESS_NOT_AS_REQUESTED, text)


def _subnet(load_balancer: LoadBalancer) -> IPv4Network | None:
    """Return the subnet of the pool of the address; None where that has no room for nodes, or does not say."""
    allocated = load_balancer.status.allocated_address if load_balancer.status else None
    try:
        subnet = IPv4Network((allocated.ip, allocated.mask) if allocated else "", strict=False)
    except ValueError:
        return None
    return subnet if subnet.prefixlen < POINT_TO_POINT else None


def _chosen_otherwise(service: Service, request: Request, load_balancer: LoadBalancer) -> Iterator[str]:
    """Yield the differences between what the pool was to be chosen by and what Harvester made of it."""
    meta = load_balancer.metadata
    asked = meta.annotation(LB_REQUESTED_NETWORK)
    network = normal_network(asked) if asked is not None else request.network
    chosen = meta.annotation(LB_SELECT_NETWORK) or ""
    if network and chosen and normal_network(chosen) != network:
        yield f"network {network} was asked for and Harvester chose {chosen} (versions before 1.9 do that)"
    for key, used_by in ((PROJECT, LB_SELECT_PROJECT), (POOL_NAMESPACE, LB_SELECT_NAMESPACE)):
        wish, used = service.metadata.annotation(key), meta.annotation(used_by)
        if wish and used is not None and wish != used:
            yield f"{key} {wish} was asked for and Harvester uses {used or 'none'}, that of the load balancer itself"
