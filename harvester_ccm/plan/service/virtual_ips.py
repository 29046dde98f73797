"""Which addresses are load balancers': kube-vip binds them to the nodes' devices, where they are no Node's."""

from __future__ import annotations

from collections.abc import Iterable

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import SERVICE_FINALIZER
from harvester_ccm.netip import IPAddress, plain_address
from harvester_ccm.plan.service.kube_vip import Announcement


def virtual_ips(services: Iterable[Service], load_balancers: Iterable[LoadBalancer]) -> dict[IPAddress, str]:
    """Return the addresses of load balancers, which kube-vip binds to the nodes' devices, each with what has it.

    Of Services only those that we serve are believed: whoever may write a Service may write any address on it. Nor is
    the status of one that kube-vip does not announce: a load balancer that answers on the nodes' own addresses (K3s
    ServiceLB) writes exactly those there. A Service has one address of each family: what else is in the annotation was
    written by somebody who may want to have the addresses of all nodes.
    """
    texts: list[tuple[str, str]] = []
    for service in services:
        found = Announcement.of(service)
        served = service.spec.type == "LoadBalancer" and service.metadata.has_finalizer(SERVICE_FINALIZER)
        if served and (found.address or found.node):
            announced = (*_first_of_each_family((found.address or "").split(",")), *found.status)
            texts += ((text, f"Service {service.metadata.key}") for text in announced)
    for balancer in load_balancers:
        has = f"load balancer {balancer.metadata.key} in Harvester"
        texts += ((balancer.address, has), (balancer.allocated_ip, has))
    held: dict[IPAddress, str] = {}
    for text, holder in texts:
        try:
            address = plain_address(text.strip())
        except ValueError:
            continue
        if not address.is_unspecified:
            held[address] = holder
    return held


def _first_of_each_family(texts: Iterable[str]) -> tuple[str, ...]:
    found: dict[bool, str] = {}
    for text in texts:
        found.setdefault(":" in text, text)
    return tuple(found.values())
