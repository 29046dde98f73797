"""IP pools of Harvester in which this controller may request a certain address, and what a pool says about one.

Harvester has no field for a request. It gives a load balancer the address that the history of the pool
(``status.allocatedHistory``) names for it, if that is free when the load balancer is created. Harvester checks nothing
when the history is written: an entry for an address that it cannot allocate keeps the load balancer without any.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Self
from urllib.parse import urlsplit

from msgspec import Struct

from harvester_ccm.kube.objects import ResourceRule
from harvester_ccm.model.core import ipv4_text
from harvester_ccm.model.harvester import IP_POOLS, AddressRange, IPPool

GRANT: Final = "generate_addon.sh --address-pools"
"""What an administrator runs to permit the request of addresses."""
_POINT_TO_POINT: Final = 31
"""Prefix length from which a subnet has neither a network address nor a broadcast address."""


class PoolRights(Struct, frozen=True):
    """The pools that the credential for Harvester may read and patch."""

    names: frozenset[str] = frozenset()
    are_all: bool = False
    """Whether it may read and patch every pool."""
    are_known: bool = True
    """Whether Harvester has answered which ones these are."""

    def permit(self, pool: str) -> bool:
        """Return whether addresses of a pool can be requested."""
        return bool(pool) and (self.are_all or pool in self.names)


def rights_of(rules: Iterable[ResourceRule]) -> PoolRights:
    """Return the pools that the rules of a credential permit to read and to patch."""
    granted = tuple(rules)
    readable = _pools_with("get", granted)
    writable = _pools_with("patch", granted)
    if readable.are_all:
        return writable
    return readable if writable.are_all else PoolRights(readable.names & writable.names)


def _pools_with(verb: str, rules: Iterable[ResourceRule]) -> PoolRights:
    names: set[str] = set()
    for rule in rules:
        if not rule.covers(verb, IP_POOLS.group, IP_POOLS.plural):
            continue
        if not rule.resource_names:
            return PoolRights(are_all=True)
        names.update(rule.resource_names)
    return PoolRights(frozenset(names))


def addresses_of_servers(*urls: str) -> frozenset[str]:
    """Return the IPv4 addresses in the URLs of API servers, without those that have a host name.

    >>> addresses_of_servers("https://10.0.0.7:6443/k8s", "https://api.example.com")
    frozenset({'10.0.0.7'})
    """
    addresses = {ipv4_text(urlsplit(url).hostname or "") for url in urls}
    return frozenset(addresses - {""})


class ObservedPool(Struct, frozen=True):
    """An IP pool as it was read for the request of one Service."""

    name: str
    pool: IPPool | None
    """None if Harvester has no pool of this name."""


class RefusedSeed(Struct, frozen=True):
    """A pool that Harvester did not let this controller read or write."""

    pool: str
    address: str
    answer: str
    """What Harvester said."""


def can_allocate(pool: IPPool, address: str) -> bool:
    """Return whether Harvester can allocate an IPv4 address of a pool, if it is free.

    It cannot if the address is in no range, or is the gateway, the network or the broadcast address of a subnet.
    """
    wanted = IPv4Address(address)
    spans = list(_spans(pool))
    if any(wanted in span.reserved for span in spans):
        return False
    return any(span.first <= wanted <= span.last for span in spans)


def ranges_text(pool: IPPool) -> list[str]:
    """Return the ranges of a pool for a message."""
    return [f"{span.first}-{span.last}" for span in _spans(pool)]


class _Span(Struct, frozen=True):
    """A range with the defaults of Harvester."""

    first: IPv4Address
    last: IPv4Address
    reserved: frozenset[IPv4Address]
    """The gateway, and the network address and the broadcast address of the subnet if it has these."""

    @classmethod
    def of(cls, entry: AddressRange) -> Self:
        """Return the range of an entry. Raises ValueError if it is none, or one of IPv6."""
        subnet = IPv4Network(entry.subnet, strict=False)
        first, last = subnet[0], subnet[-1]
        reserved = {IPv4Address(entry.gateway)} if entry.gateway else set()
        if subnet.num_addresses > 1:
            first = subnet[1]
            reserved = reserved or {subnet[1]}
        if subnet.prefixlen < _POINT_TO_POINT:
            reserved.update((subnet[0], subnet[-1]))
            last = subnet[-2]
        first = IPv4Address(entry.range_start) if entry.range_start else first
        last = IPv4Address(entry.range_end) if entry.range_end else last
        return cls(min(first, last), max(first, last), frozenset(reserved))


def _spans(pool: IPPool) -> Iterator[_Span]:
    """Yield the ranges of a pool that can be read; Harvester's webhook lets no others in."""
    for entry in pool.ranges:
        try:
            yield _Span.of(entry)
        except ValueError:
            continue
