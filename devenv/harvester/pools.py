"""Selection of the pool and the address of a load balancer. Pure.

Rules of the real allocator: it selects pools with matching scopes first, then the global pool, then pools whose scopes
have empty fields. A name in the history of the pool gets the address of its entry, or none while that address cannot be
allocated; nothing checks an entry before. Otherwise, addresses are allocated in order.

Go iterates over a map in any order. Where several entries have one owner, ``Pick`` selects one of them.
"""

import ipaddress
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from devenv.harvester.versions import V1_9, Version, Words
from devenv.watch import Document, labels_of

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Pick = Callable[[Sequence[str]], str]
"""Selects one of several entries of a map."""

GLOBAL_LABEL: Final = "loadbalancer.harvesterhci.io/global-ip-pool"
ANY: Final = "*"


class PoolProblem(Exception):
    """Raised if a pool cannot allocate an address; the text is that of the real allocator."""


class DuplicateAllocation(PoolProblem):
    """Raised if the pool already has an allocation for the same name."""

    def __init__(self, address: str, owner: str) -> None:
        super().__init__(f"{address} has been allocated to {owner}, duplicate allocation is not allowed")


class RangeProblem(ValueError):
    """Raised if a range of a pool is invalid; the text is that of the real webhook."""


@dataclass(frozen=True)
class AddressRange:
    """Addresses from ``first`` to ``last``; the gateway is never allocated."""

    first: Address
    last: Address
    gateway: Address | None
    network: Network

    @property
    def mask(self) -> str:
        """The mask of its subnet."""
        return str(self.network.netmask)

    @property
    def size(self) -> int:
        """The number of addresses that can be allocated."""
        inside = self.gateway is not None and self.gateway in self
        return int(self.last) - int(self.first) + 1 - int(inside)

    def __contains__(self, address: Address) -> bool:
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class Scope:
    """A tuple of ``spec.selector.scope``."""

    project: str = ""
    namespace: str = ""
    guest_cluster: str = ""

    @property
    def everybody(self) -> bool:
        """Whether the tuple matches everything."""
        return self.project == self.namespace == self.guest_cluster == ANY


@dataclass(frozen=True)
class Requirement:
    """Requirements of a load balancer; printed as in the messages of the real controller."""

    network: str = ""
    project: str = ""
    namespace: str = ""
    cluster: str = ""

    def __str__(self) -> str:
        return f"&{{Network:{self.network} Project:{self.project} Namespace:{self.namespace} Cluster:{self.cluster}}}"


@dataclass(frozen=True)
class Pool:
    """An IPPool, read from its document."""

    name: str
    ranges: tuple[AddressRange, ...]
    network: str = ""
    priority: int = 0
    scopes: tuple[Scope, ...] = ()
    is_global: bool = False
    allocated: Mapping[str, str] | None = None
    history: Mapping[str, str] | None = None
    last: str = ""

    @classmethod
    def of(cls, document: Document, ranges: tuple[AddressRange, ...] | None = None) -> "Pool":
        """Read a pool, with ``ranges`` instead of its own. Raises RangeProblem if one of its own is invalid."""
        spec, status = document["spec"], document.get("status") or {}
        selector = spec.get("selector") or {}
        return cls(
            name=document["metadata"]["name"],
            ranges=read_ranges(document) if ranges is None else ranges,
            network=selector.get("network") or "",
            priority=selector.get("priority") or 0,
            scopes=read_scopes(selector),
            is_global=labels_of(document).get(GLOBAL_LABEL) == "true",
            allocated=status.get("allocated") or {},
            history=status.get("allocatedHistory") or {},
            last=status.get("lastAllocated") or "",
        )

    @property
    def size(self) -> int:
        """The number of addresses of the pool."""
        return sum(entry.size for entry in self.ranges)

    def range_of(self, address: str) -> AddressRange | None:
        """Return the range that contains the address."""
        parsed = parsed_address(address)
        if parsed is None:
            return None
        return next((entry for entry in self.ranges if parsed in entry), None)

    def text(self) -> str:
        """Return the ranges in the format of messages."""
        return ",".join(str(entry) for entry in self.ranges)


def parsed_address(text: str) -> Address | None:
    """Return the address as Go's ``net.ParseIP``: None if the text is none; IPv4 in IPv6 is IPv4.

    >>> parsed_address("::ffff:10.0.0.9"), parsed_address("10.0.0.09")
    (IPv4Address('10.0.0.9'), None)
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if address.version == 6 and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def read_ranges(document: Document) -> tuple[AddressRange, ...]:
    """Return the ranges of a pool with their defaults. Raises RangeProblem."""
    return tuple(read_range(entry) for entry in document["spec"].get("ranges") or ())


def read_scopes(selector: Mapping[str, Any]) -> tuple[Scope, ...]:
    """Return the tuples of a pool's selector."""
    return tuple(
        Scope(entry.get("project") or "", entry.get("namespace") or "", entry.get("guestCluster") or "")
        for entry in selector.get("scope") or ()
    )


def read_range(entry: Mapping[str, str], words: Words = V1_9.words) -> AddressRange:
    """Return the range with its defaults. Raises RangeProblem."""
    network = _subnet(entry.get("subnet") or "")
    if network is None:
        error = f"invalid CIDR address: {entry.get('subnet') or ''}"
        raise RangeProblem(words.range.format(error=error, entry=_range_text(entry)))
    single = network.num_addresses == 1
    start = _bound(network, entry.get("rangeStart"), "range start")
    end = _bound(network, entry.get("rangeEnd"), "range end")
    gateway = _bound(network, entry.get("gateway"), "gateway")
    first = start or (network[0] if single else network[1])
    last = end or (network[-1] if single or network.version == 6 else network[-2])
    if first > last:  # type: ignore[operator]  # both are of the network's version
        first, last = last, first
    if gateway is None and not single:
        gateway = network[1]
    return AddressRange(first, last, gateway, network)


def _subnet(text: str) -> Network | None:
    if not re.fullmatch(r".+/\d+", text):
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _range_text(entry: Mapping[str, str]) -> str:
    """Return an entry of ``spec.ranges`` in Go's format of the structure."""
    fields = (("RangeStart", "rangeStart"), ("RangeEnd", "rangeEnd"), ("Subnet", "subnet"), ("Gateway", "gateway"))
    return "&{" + " ".join(f"{name}:{entry.get(key) or ''}" for name, key in fields) + "}"


def _bound(network: Network, text: str | None, name: str) -> Address | None:
    if not text:
        return None
    problem = f"invalid {name} {text}: "
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise RangeProblem(f"{problem}invalid IP {text}") from None
    if address not in network:
        raise RangeProblem(f"{problem}IP {text} is out of subnet {network}")
    if address == network.network_address:
        raise RangeProblem(f"{problem}IP {text} is the network address")
    if address == network.broadcast_address:
        raise RangeProblem(f"{problem}IP {text} is the broadcast address")
    return address


def select_pool(pools: Sequence[Pool], requirement: Requirement, *, loose: bool) -> Pool | None:
    """Return the pool for a load balancer that names no pool, or None.

    ``loose`` allows the second pass, only for cluster load balancers. Of matching pools with equal priority the last
    one is selected; their order is arbitrary.
    """
    found = _best(pools, requirement, gaps=False)
    if found is None:
        found = next((pool for pool in pools if pool.is_global), None)
    if found is None and loose:
        found = _best(pools, requirement, gaps=True)
    return found


def _best(pools: Sequence[Pool], requirement: Requirement, *, gaps: bool) -> Pool | None:
    best: Pool | None = None
    for pool in pools:
        if pool.is_global or pool.network != requirement.network:
            continue
        if not any(_fits(scope, requirement, gaps=gaps) for scope in pool.scopes):
            continue
        if best is None or pool.priority >= best.priority:
            best = pool
    return best


def _fits(scope: Scope, requirement: Requirement, *, gaps: bool) -> bool:
    def same(offered: str, wanted: str) -> bool:
        return offered == wanted or ANY in (offered, wanted)

    return (
        same(scope.namespace, requirement.namespace)
        and (same(scope.project, requirement.project) or (gaps and not scope.project))
        and (same(scope.guest_cluster, requirement.cluster) or (gaps and not scope.guest_cluster))
    )


def choose_address(
    pool: Pool,
    owner: str,
    pick: Pick = random.choice,
    version: Version = V1_9,
) -> str:
    """Return the next address of ``owner`` (``namespace/name``).

    Raises PoolProblem if no address is free, DuplicateAllocation if the owner already has an allocation.
    """
    allocated = pool.allocated or {}
    remembered = [address for address, name in (pool.history or {}).items() if name == owner]
    if remembered:
        requested = parsed_address(pick(remembered))
        if requested is not None:
            return _checked(pool, requested, owner, version)
    for address, name in allocated.items():
        if name == owner and pool.range_of(address) is not None:
            raise DuplicateAllocation(address, owner)
    for candidate in _round(pool):
        if str(candidate) not in allocated:
            return str(candidate)
    raise PoolProblem(f"no IP addresses available in range set: {pool.text()}")


def _checked(pool: Pool, requested: Address, owner: str, version: Version) -> str:
    """Return an address of the history if it can be allocated. Raises PoolProblem."""
    address = str(requested)
    entry = pool.range_of(address)
    if entry is None:
        raise PoolProblem(f"{address} not in range set {pool.text()}")
    if entry.gateway == requested:
        raise PoolProblem(f"requested ip {address} is subnet's gateway")
    holder = (pool.allocated or {}).get(address)
    if holder is not None and not (holder == owner and version.reserves_again):
        raise PoolProblem(f"requested IP address {address} is not available in range set {pool.text()}")
    return address


def _round(pool: Pool) -> Iterator[Address]:
    """Yield every address but the gateways once, beginning after the last allocated address."""
    start = pool.range_of(pool.last) if pool.last else None
    if start is None:
        for entry in pool.ranges:
            yield from _span(entry, entry.first, entry.last)
        return
    index, last = pool.ranges.index(start), ipaddress.ip_address(pool.last)
    if last != start.last:
        yield from _span(start, last + 1, start.last)
    for entry in (*pool.ranges[index + 1 :], *pool.ranges[:index]):
        yield from _span(entry, entry.first, entry.last)
    yield from _span(start, start.first, last)


def _span(entry: AddressRange, first: Address, last: Address) -> Iterator[Address]:
    for number in range(int(first), int(last) + 1):
        address = ipaddress.ip_address(number) if first.version == 4 else ipaddress.IPv6Address(number)
        if address != entry.gateway:
            yield address


def allocated_address(pool: Pool, address: str) -> Document:
    """Return ``status.allocatedAddress`` of a load balancer with the address."""
    entry = pool.range_of(address)
    gateway = str(entry.gateway) if entry and entry.gateway is not None else "<nil>"
    return {"ipPool": pool.name, "ip": address, "mask": entry.mask if entry else "", "gateway": gateway}


def booked(document: Document, address: str, owner: str) -> Document:
    """Return the pool's document with the address allocated to the owner."""
    status = document.get("status") or {}
    history = {ip: name for ip, name in (status.get("allocatedHistory") or {}).items() if ip != address}
    allocated = {**(status.get("allocated") or {}), address: owner}
    changed = _with_books(status, allocated, history)
    changed |= {"available": changed["available"] - 1, "lastAllocated": address}
    return {**document, "status": changed}


def given_back(
    document: Document,
    owner: str,
    pick: Pick = random.choice,
    version: Version = V1_9,
) -> Document:
    """Return the pool's document with an allocation of the owner moved to the history; unchanged without one.

    Old versions release all of them; if the history is empty, it gets only one. The history's entry for the address is
    overwritten, whoever wrote it.
    """
    status = document.get("status") or {}
    allocated = dict(status.get("allocated") or {})
    addresses = [address for address, name in allocated.items() if name == owner]
    if not addresses:
        return document
    released = addresses if version.releases_all else [pick(addresses)]
    history = dict(status.get("allocatedHistory") or {})
    remembered = released if history else [pick(released)]
    history |= dict.fromkeys(remembered, owner)
    for address in released:
        del allocated[address]
    changed = _with_books(status, allocated, history)
    changed["available"] += len(released)
    return {**document, "status": changed}


def counted(document: Document) -> Document:
    """Return the pool's document with the counts of its ranges, and without history outside of them.

    Raises PoolProblem if an entry of the history is no address.
    """
    pool = Pool.of(document)
    for address in pool.history or {}:
        if parsed_address(address) is None:
            raise PoolProblem(f"invalid ip {address}")
    history = {ip: name for ip, name in (pool.history or {}).items() if pool.range_of(ip) is not None}
    changed = _with_books(document.get("status") or {}, pool.allocated or {}, history)
    changed |= {"total": pool.size, "available": pool.size - len(pool.allocated or {})}
    return {**document, "status": changed}


def _with_books(status: Document, allocated: Mapping[str, str], history: Mapping[str, str]) -> Document:
    """Return the status with these bookings, and with the fields that Harvester always writes."""
    changed: Document = {"total": 0, "available": 0, "lastAllocated": "", **status}
    for key, book in (("allocated", allocated), ("allocatedHistory", history)):
        changed.pop(key, None)
        if book:
            changed[key] = dict(book)
    return changed
