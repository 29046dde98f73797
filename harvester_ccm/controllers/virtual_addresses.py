"""The addresses of load balancers, kept up to date: they appear on the nodes' interfaces and are no node addresses.

An address counts for ``LINGER_SECONDS`` after the last load balancer or Service with it is gone, because the guest
agents go on reporting it for a while; then the Nodes concerned are woken. One that kube-vip goes on announcing after a
change of the type of its Service counts until the Service is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Set
from typing import Final

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.meta import ObjectT
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.decision import VirtualIPs, virtual_ips_of
from harvester_ccm.plan.service.kube_vip import stays_up
from harvester_ccm.plan.service.virtual_ips import virtual_ips

LINGER_SECONDS: Final = 120.0

_Held = Mapping[IPAddress, str]
"""Addresses, each with what has it."""


class VirtualAddresses:
    """Knows who has which address."""

    def __init__(self, services: Informer[Service], load_balancers: Informer[LoadBalancer]) -> None:
        self._services = services
        self._load_balancers = load_balancers
        self._holders: dict[IPAddress, list[str]] = {}
        self._departed: dict[IPAddress, tuple[str, asyncio.TimerHandle]] = {}
        self._on_change: list[Callable[[Set[IPAddress]], None]] = []
        self._taken: dict[IPAddress, str] | None = None
        """All of them, each with what has it or has had it lately; None when that has changed."""
        self._follow(services, lambda one, before: {**(before if stays_up(one) else {}), **virtual_ips((one,), ())})
        self._follow(load_balancers, lambda one, _before: virtual_ips((), (one,)))

    def current(self) -> VirtualIPs:
        """Return the addresses, and how far they can be relied on."""
        if self._taken is None:
            departed = {address: f"{holder}, until lately" for address, (holder, _) in self._departed.items()}
            self._taken = {**departed, **{address: holders[0] for address, holders in self._holders.items()}}
        return virtual_ips_of(self._taken, self._services, self._load_balancers)

    @property
    def complete(self) -> bool:
        """Whether they can be relied on; asked for with every change, whatever their number."""
        return virtual_ips_of({}, self._services, self._load_balancers).complete

    def on_change(self, callback: Callable[[Set[IPAddress]], None]) -> None:
        """Have ``callback`` called with addresses that became virtual ones, or are none any more."""
        self._on_change.append(callback)

    def on_state(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when how far they can be relied on may have changed."""
        self._services.on_state(callback)
        self._load_balancers.on_state(callback)

    def _follow(self, informer: Informer[ObjectT], held_by: Callable[[ObjectT, _Held], _Held]) -> None:
        """``held_by`` returns what an object has, given what it had."""
        known: dict[str, _Held] = {}

        def changed(old: ObjectT | None, new: ObjectT | None) -> None:
            key = next(one.metadata.key for one in (new, old) if one is not None)
            before = known.pop(key, {})
            after = {} if new is None else held_by(new, before)
            if after:
                known[key] = after
            self._changed(before, after)

        for item in informer.all():
            changed(None, item)
        informer.on_change(changed)

    def _changed(self, before: _Held, after: _Held) -> None:
        if before != after:
            self._taken = None
        fresh = {address for address in after if address not in self._holders}
        for address, holder in after.items() - before.items():
            self._holders.setdefault(address, []).append(holder)
            if address in self._departed:
                self._departed.pop(address)[1].cancel()
        for address, holder in before.items() - after.items():
            self._holders[address].remove(holder)
            if not self._holders[address]:
                del self._holders[address]
                end = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._forget, address)
                self._departed[address] = (holder, end)
        self._tell(fresh)

    def _forget(self, address: IPAddress) -> None:
        del self._departed[address]
        self._taken = None
        self._tell({address})

    def _tell(self, addresses: Set[IPAddress]) -> None:
        for callback in self._on_change if addresses else ():
            callback(addresses)
