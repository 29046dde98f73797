"""Selection of the pool and the address of a load balancer. Pure.

Rules of the real allocator: it selects pools with matching scopes first, then the global pool, then pools whose scopes
have empty fields. A name that had an address gets it again if it is free; otherwise, addresses are allocated in order.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from devenv.watch import Document, labels_of

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

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
    mask: str

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
    def of(cls, document: Document) -> "Pool":
        """Read a pool. Raises RangeProblem if a range is invalid."""
        spec, status = document["spec"], document.get("status") or {}
        selector = spec.get("selector") or {}
        return cls(
            name=document["metadata"]["name"],
            ranges=tuple(read_range(entry) for entry in spec.get("ranges") or ()),
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
        parsed = ipaddress.ip_address(address)
        return next((entry for entry in self.ranges if parsed in entry), None)

    def text(self) -> str:
        """Return the ranges in the format of messages."""
        return ",".join(str(entry) for entry in self.ranges)


def read_scopes(selector: Mapping[str, Any]) -> tuple[Scope, ...]:
    """Return the tuples of a pool's selector."""
    return tuple(
        Scope(entry.get("project") or "", entry.get("namespace") or "", entry.get("guestCluster") or "")
        for entry in selector.get("scope") or ()
    )


def read_range(entry: Mapping[str, str]) -> AddressRange:
    """Return the range with its defaults. Raises RangeProblem."""
    subnet = entry.get("subnet") or ""
    if not re.fullmatch(r".+/\d+", subnet):
        raise RangeProblem(f"invalid CIDR address: {subnet}, a valid example is 192.168.1.0/24")
    try:
        network = ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        raise RangeProblem(f"invalid CIDR address: {subnet}, a valid example is 192.168.1.0/24") from None
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
    return AddressRange(first, last, gateway, str(network.netmask))


def _bound(network: ipaddress.IPv4Network | ipaddress.IPv6Network, text: str | None, name: str) -> Address | None:
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


def choose_address(pool: Pool, owner: str) -> str:
    """Return the next address of ``owner`` (``namespace/name``).

    Raises PoolProblem if no address is free, DuplicateAllocation if the owner already has an allocation.
    """
    allocated = pool.allocated or {}
    remembered = next((ip for ip, name in (pool.history or {}).items() if name == owner), None)
    if remembered is not None:
        _check_remembered(pool, remembered, owner)
        return remembered
    for address, name in allocated.items():
        if name == owner:
            raise DuplicateAllocation(address, owner)
    gateways = {entry.gateway for entry in pool.ranges}
    for candidate in _round(pool):
        if candidate not in gateways and str(candidate) not in allocated:
            return str(candidate)
    raise PoolProblem(f"no IP addresses available in range set: {pool.text()}")


def _check_remembered(pool: Pool, address: str, owner: str) -> None:
    entry = pool.range_of(address)
    if entry is None:
        raise PoolProblem(f"{address} not in range set {pool.text()}")
    if entry.gateway is not None and str(entry.gateway) == address:
        raise PoolProblem(f"requested ip {address} is subnet's gateway")
    if (pool.allocated or {}).get(address, owner) != owner:
        raise PoolProblem(f"requested IP address {address} is not available in range set {pool.text()}")


def _round(pool: Pool) -> Iterator[Address]:
    """Yield every address once, beginning after the last allocated address."""
    start = pool.range_of(pool.last) if pool.last else None
    if start is None:
        for entry in pool.ranges:
            yield from _span(entry.first, entry.last)
        return
    index, last = pool.ranges.index(start), ipaddress.ip_address(pool.last)
    if last != start.last:
        yield from _span(last + 1, start.last)
    for entry in (*pool.ranges[index + 1 :], *pool.ranges[:index]):
        yield from _span(entry.first, entry.last)
    yield from _span(start.first, last)


def _span(first: Address, last: Address) -> Iterator[Address]:
    for number in range(int(first), int(last) + 1):
        yield ipaddress.ip_address(number) if first.version == 4 else ipaddress.IPv6Address(number)


def allocated_address(pool: Pool, address: str) -> Document:
    """Return ``status.allocatedAddress`` of a load balancer with the address."""
    entry = pool.range_of(address)
    gateway = str(entry.gateway) if entry and entry.gateway is not None else "<nil>"
    return {"ipPool": pool.name, "ip": address, "mask": entry.mask if entry else "", "gateway": gateway}


def booked(document: Document, address: str, owner: str) -> Document:
    """Return the pool's document with the address allocated to the owner."""
    status = document.get("status") or {}
    history = {ip: name for ip, name in (status.get("allocatedHistory") or {}).items() if ip != address}
    changed = _with_books(document, {**(status.get("allocated") or {}), address: owner}, history)
    changed["status"]["lastAllocated"] = address
    return changed


def given_back(document: Document, owner: str) -> Document:
    """Return the pool's document with the allocation of the owner moved to the history; unchanged without one."""
    status = document.get("status") or {}
    allocated = dict(status.get("allocated") or {})
    address = next((ip for ip, name in allocated.items() if name == owner), None)
    if address is None:
        return document
    history = {**(status.get("allocatedHistory") or {}), address: allocated.pop(address)}
    return _with_books(document, allocated, history)


def counted(document: Document) -> Document:
    """Return the pool's document with the counts of its ranges, and without history outside of them."""
    pool = Pool.of(document)
    history = {ip: name for ip, name in (pool.history or {}).items() if pool.range_of(ip) is not None}
    return _with_books(document, pool.allocated or {}, history)


def _with_books(document: Document, allocated: Mapping[str, str], history: Mapping[str, str]) -> Document:
    total = Pool.of(document).size
    status = {**(document.get("status") or {}), "total": total, "available": total - len(allocated)}
    for key, book in (("allocated", allocated), ("allocatedHistory", history)):
        status.pop(key, None)
        if book:
            status[key] = dict(book)
    return {**document, "status": status}
