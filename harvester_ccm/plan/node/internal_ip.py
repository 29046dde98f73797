"""Choice of the InternalIP: at most one of each family, each with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from msgspec import Struct

from harvester_ccm.names import PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress, IPNetwork

_FAMILIES: Final = (4, 6)
_KEPT: Final = "is the InternalIP already, and the VM reports no other that may replace it"


class Candidates(Struct, frozen=True):
    """Addresses of a VM, each list in order and without repetitions."""

    reported: tuple[IPAddress, ...]
    """What Harvester reports now; all of them are published."""
    awaited: tuple[IPAddress, ...] = ()
    """InternalIPs of now that are not reported, and may be any moment: they count as if they were."""
    stand_ins: tuple[IPAddress, ...] = ()
    """What may become the InternalIP of a family for which nothing suitable is reported."""
    interface: str = ""
    """Name of the interface that is reported on."""


class InternalIPRules(Struct, frozen=True):
    """What decides between candidates."""

    provided: tuple[IPAddress, ...] = ()
    """Addresses the kubelet was given, at most one per family; the first rule that is tried."""
    cidrs: tuple[IPNetwork, ...] = ()
    """Ranges to choose from; without them, and without a provided address, the first of each family is taken."""
    excluded: tuple[IPNetwork, ...] = ()
    """Ranges passed over where the first address would be taken and the VM has another of its family."""
    present: frozenset[IPAddress] = frozenset()
    """The InternalIPs of now, preferred among equally good candidates."""
    reserved: frozenset[int] = frozenset()
    """Families whose provided address is waited for: no other becomes their InternalIP."""


class Choice(Struct, frozen=True):
    """The chosen addresses."""

    reasons: Mapping[IPAddress, str]
    """Each chosen address and why it was chosen."""
    by_annotation: bool = False
    """Whether a provided address was found: then a family that is not provided has no InternalIP."""
    despite_exclusion: tuple[IPAddress, ...] = ()
    """Excluded addresses that were taken because the VM has no other of their family."""

    @property
    def internal(self) -> Set[IPAddress]:
        """The chosen addresses."""
        return self.reasons.keys()


def choose_internal_ips(candidates: Candidates, rules: InternalIPRules) -> Choice:
    """Return the InternalIPs: the provided addresses, else those in the ranges, else the first of each family.

    A provided family whose address the VM does not have keeps its InternalIP, or gets it by the later rules.
    """
    known = {*candidates.reported, *candidates.awaited, *candidates.stand_ins}
    found = {address: _named(address, candidates, rules) for address in rules.provided if address in known}
    missing = {address.version for address in rules.provided} - {address.version for address in found}
    families = sorted(missing) if found else _FAMILIES
    choose = _in_ranges if rules.cidrs else _first
    others = dict(filter(None, (choose(family, candidates, rules) for family in families)))
    despite = () if rules.cidrs else tuple(address for address in others if _inside(address, rules.excluded))
    return Choice({**found, **others}, by_annotation=bool(found), despite_exclusion=despite)


def _named(address: IPAddress, candidates: Candidates, rules: InternalIPRules) -> str:
    named = f"annotation {PROVIDED_NODE_IP} names it"
    if address in candidates.reported:
        return named
    return _KEPT if address in rules.present else f"{named}, and the VM has not reported it for a while"


def _in_ranges(family: int, candidates: Candidates, rules: InternalIPRules) -> tuple[IPAddress, str] | None:
    pools = _pools(family, candidates, rules)
    address = _pick(family, [[a for a in pool if _inside(a, rules.cidrs)] for pool in pools], rules)
    if address is None:
        return None
    cidr = next(entry for entry in rules.cidrs if address in entry)
    return address, f"inside --node-ip-cidr {cidr}" if address in candidates.reported else _KEPT


def _first(family: int, candidates: Candidates, rules: InternalIPRules) -> tuple[IPAddress, str] | None:
    pools = _pools(family, candidates, rules)
    allowed = [[a for a in pool if not _inside(a, rules.excluded)] for pool in pools]
    address = _pick(family, [*allowed, *pools], rules)
    if address is None:
        return None
    if address not in candidates.reported:
        return address, _KEPT
    if address in rules.present:
        return address, "is the InternalIP already, and the VM still has it"
    first = f"first IPv{family} address of interface {candidates.interface}"
    if _inside(address, rules.excluded):
        return address, f"{first}; --node-exclude-ip-ranges has it, and the VM has no other"
    passed = any(entry.version == family for entry in rules.excluded)
    return address, f"{first} that is not excluded" if passed else first


def _pools(family: int, candidates: Candidates, rules: InternalIPRules) -> tuple[tuple[IPAddress, ...], ...]:
    """Return the candidates, the better ones first."""
    pools = (*candidates.reported, *candidates.awaited), candidates.stand_ins
    if family not in rules.reserved:
        return pools
    return tuple(tuple(address for address in pool if address in rules.present) for pool in pools)


def _pick(family: int, pools: Iterable[Sequence[IPAddress]], rules: InternalIPRules) -> IPAddress | None:
    """Return an address of the first pool that has one of the family: the present InternalIP, else the first."""
    for pool in pools:
        suitable = [address for address in pool if address.version == family]
        if suitable:
            return next((address for address in suitable if address in rules.present), suitable[0])
    return None


def _inside(address: IPAddress, ranges: Iterable[IPNetwork]) -> bool:
    return any(address in entry for entry in ranges)
