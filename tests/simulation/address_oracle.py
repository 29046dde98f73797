"""Published addresses: each belongs to its Service or to the primary of that, and to no other Service."""

from collections.abc import Iterator
from typing import Final

from devenv.announcement import ADDRESS_ANNOTATION, wanted_addresses
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import DHCP_ADDRESS, PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL
from tests.simulation.facts import annotation, has_finalizer, has_other_class, made_for, name_of, served, shown
from tests.simulation.guest import NAMESPACE
from tests.simulation.kubevip import LEASES
from tests.simulation.world import World
from tests.support.memory_server import Call, Document, placed
from tests.support.memory_server import name_of as collection_of

CACHE_DELAY: Final = 5.0
"""Seconds for which the controller can publish an address that a load balancer has lost, while all works."""
FAULT_DELAY: Final = 400.0
"""The same around faults: a watch can be silent, and the next list can fail."""
CORRECTED_WITHIN: Final = 60.0
"""Seconds for which a Service can show the address of another one."""


class AddressOracle:
    """Checks every address that the controller publishes, and every one that stays published."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: dict[tuple[str, str], float] = {}
        """When a load balancer made for the Service of this name last had this address."""
        self._held_now: set[tuple[str, str]] = set()
        self._named: dict[tuple[str, str], float] = {}
        """When the Service of this name last named this primary, or had its label."""
        self._named_now: set[tuple[str, str]] = set()
        self._strangers: dict[tuple[str, str, str], float] = {}
        """Since when a Service (cluster, name) shows an address of another one."""

    def look(self) -> None:
        """Record which Service has which address, after a change."""
        now = self._world.loop.time()
        held = {(made_for(balancer), served(balancer)) for balancer in self._world.balancers() if served(balancer)}
        self._held |= dict.fromkeys(held | self._held_now, now)
        self._held_now = held
        services = [service for guest in self._world.guests for service in guest.services()]
        named = {(name_of(service), owner) for service in services for owner in _owners(service)}
        self._named |= dict.fromkeys(named | self._named_now, now)
        self._named_now = named
        strangers = {
            (guest.cluster, name_of(service), address)
            for guest in self._world.guests
            for service in guest.services()
            for address in self._of_others(service)
        }
        self._strangers = {stranger: self._strangers.get(stranger, now) for stranger in strangers}

    def check_write(self, call: Call) -> str:
        """Return what is wrong about a request of the controller; empty for nothing."""
        guest = self._world.guest_of(call.by)
        if self._world.may_be_blind or placed(call.path).collection != collection_of(SERVICES):
            return ""
        service = guest.service(placed(call.path).name)
        if service is None:
            return ""
        for address in _published(call):
            if not self._belongs(address, service, call.at):
                return f"{call.by} publishes {address} for {name_of(service)}, whose load balancer does not have it"
        return ""

    def late(self) -> list[str]:
        """Return Services that have shown the address of another one for too long."""
        now = self._world.loop.time()
        if self._world.may_be_blind or self._world.controllers.let_go:
            return []
        return [
            f"{name} of {cluster} shows {address}, which another Service has"
            for (cluster, name, address), since in self._strangers.items()
            if now - max(since, self._world.disturbed_until) > CORRECTED_WITHIN
        ]

    def _belongs(self, address: str, service: Document, at: float) -> bool:
        """Return whether a load balancer of a Service or of its primary has an address, or had it just now."""
        if address == DHCP_ADDRESS or address in LEASES:
            # Only kube-vip knows its leases.
            return True
        delay = FAULT_DELAY if at < self._world.disturbed_until else CACHE_DELAY
        primaries = {
            primary
            for (secondary, primary), last in self._named.items()
            if secondary == name_of(service) and at - last <= delay
        }
        return any(
            (owner, address) in self._held_now or at - self._held.get((owner, address), float("-inf")) <= delay
            for owner in {*primaries, *_owners(service)}
        )

    def _of_others(self, service: Document) -> Iterator[str]:
        """Yield the addresses that a managed Service shows and that only load balancers of other Services have."""
        is_managed = has_finalizer(service)
        if not is_managed or has_other_class(service):
            return
        owners = set(_owners(service))
        for address in {*shown(service), *wanted_addresses(service)} - {DHCP_ADDRESS}:
            holders = {owner for owner, held in self._held_now if held == address}
            if holders and holders.isdisjoint(owners):
                yield address


def _owners(service: Document) -> tuple[str, ...]:
    """Return the names of the Services whose address a Service can show: its own and those of its primaries."""
    named = annotation(service, PRIMARY_SERVICE).removeprefix(f"{NAMESPACE}/")
    labelled = (service["metadata"].get("labels") or {}).get(PRIMARY_SERVICE_LABEL, "").removeprefix(f"{NAMESPACE}.")
    return tuple(name for name in (name_of(service), named, labelled) if name)


def _published(call: Call) -> set[str]:
    """Return the addresses that a patch of a Service publishes."""
    annotations = (call.body.get("metadata") or {}).get("annotations") or {}
    ingress = ((call.body.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return {annotations.get(ADDRESS_ANNOTATION) or "", *(entry.get("ip") or "" for entry in ingress)} - {""}
