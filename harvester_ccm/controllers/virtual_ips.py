"""The addresses of load balancers, kept up to date: they appear on the nodes' interfaces and are no node addresses.

An address counts for ``LINGER_SECONDS`` after the last load balancer or Service with it is gone, because the guest
agents go on reporting it for a while.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Set
from typing import Final

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.meta import ObjectT
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.decision import VirtualIPs, virtual_ips_of
from harvester_ccm.plan.service.kube_vip import virtual_ips

LINGER_SECONDS: Final = 120.0


class VirtualAddresses:
    """Counts who has which address."""

    def __init__(self, services: Informer[Service], load_balancers: Informer[LoadBalancer]) -> None:
        self._services = services
        self._load_balancers = load_balancers
        self._counts: Counter[IPAddress] = Counter()
        self._departed: dict[IPAddress, float] = {}
        self._on_new: list[Callable[[Set[IPAddress]], None]] = []
        self._follow(services, lambda one: virtual_ips((one,), ()))
        self._follow(load_balancers, lambda one: virtual_ips((), (one,)))

    def current(self) -> VirtualIPs:
        """Return the addresses, and how far they can be relied on."""
        now = asyncio.get_running_loop().time()
        self._departed = {address: until for address, until in self._departed.items() if until > now}
        return virtual_ips_of(self._counts.keys() | self._departed.keys(), self._services, self._load_balancers)

    def on_new(self, callback: Callable[[Set[IPAddress]], None]) -> None:
        """Have ``callback`` called with addresses that became virtual ones."""
        self._on_new.append(callback)

    def on_state(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when how far they can be relied on may have changed."""
        self._services.on_state(callback)
        self._load_balancers.on_state(callback)

    def _follow(self, informer: Informer[ObjectT], addresses_of: Callable[[ObjectT], Set[IPAddress]]) -> None:
        def changed(old: ObjectT | None, new: ObjectT | None) -> None:
            before, after = (frozenset() if one is None else addresses_of(one) for one in (old, new))
            self._changed(before, after)

        for item in informer.all():
            changed(None, item)
        informer.on_change(changed)

    def _changed(self, before: Set[IPAddress], after: Set[IPAddress]) -> None:
        fresh = {address for address in after - before if address not in self._counts}
        for address in after - before:
            self._counts[address] += 1
            self._departed.pop(address, None)
        for address in before - after:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]
                self._departed[address] = asyncio.get_running_loop().time() + LINGER_SECONDS
        if fresh:
            for callback in self._on_new:
                callback(fresh)
