"""The addresses of load balancers, which kube-vip binds to the nodes' interfaces and which are never a node's own."""

from __future__ import annotations

from collections.abc import Iterable

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import KUBE_VIP_ADDRESSES, KUBE_VIP_HOST
from harvester_ccm.netip import IPAddress, plain_address


def virtual_ips(services: Iterable[Service], load_balancers: Iterable[LoadBalancer]) -> frozenset[IPAddress]:
    """Return the addresses of Harvester's load balancers and of the Services that kube-vip announces.

    A Service counts when kube-vip's annotations are on it. The status of other Services is not believed: a load
    balancer that answers on the nodes' own addresses (K3s ServiceLB) writes exactly those there.
    """
    texts: list[str] = []
    for service in services:
        requested = service.metadata.annotation(KUBE_VIP_ADDRESSES)
        if requested or service.metadata.annotation(KUBE_VIP_HOST):
            texts += (requested or "").split(",")
            texts += service.addresses
    for balancer in load_balancers:
        texts += (balancer.address, balancer.allocated_ip)
    return frozenset(address for address in map(_read, texts) if address is not None and not address.is_unspecified)


def _read(text: str) -> IPAddress | None:
    try:
        return plain_address(text.strip())
    except ValueError:
        return None
