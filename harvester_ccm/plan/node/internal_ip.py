"""Choice of the InternalIP: at most one of each family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from harvester_ccm.netip import IPAddress, IPNetwork

_FAMILIES: Final = (4, 6)


@dataclass(frozen=True)
class Candidates:
    """Addresses of a VM, each list in order and without repetitions."""

    reported: tuple[IPAddress, ...]
    """What Harvester reports now; all of them are published."""
    stand_ins: tuple[IPAddress, ...] = ()
    """What may become the InternalIP of a family for which nothing suitable is reported."""


@dataclass(frozen=True)
class InternalIPRules:
    """What decides between candidates."""

    provided: tuple[IPAddress, ...] = ()
    """Addresses the kubelet was given, at most one per family; the first rule that is tried."""
    cidrs: tuple[IPNetwork, ...] = ()
    """Ranges to choose from; without them, and without a provided address, the first of each family is taken."""
    excluded: tuple[IPNetwork, ...] = ()
    """Ranges passed over where the first address would be taken and the VM has another of its family."""
    present: frozenset[IPAddress] = frozenset()
    """The InternalIPs of now, preferred among equally good candidates."""


@dataclass(frozen=True)
class Choice:
    """The chosen addresses."""

    internal: frozenset[IPAddress]
    by_annotation: bool = False
    """Whether a provided address was found: then a family that is not provided has no InternalIP."""
    despite_exclusion: tuple[IPAddress, ...] = ()
    """Excluded addresses that were taken because the VM has no other of their family."""


def choose_internal_ips(candidates: Candidates, rules: InternalIPRules) -> Choice:
    """Return the InternalIPs: the provided addresses, else those in the ranges, else the first of each family.

    A provided family whose address the VM does not have gets its InternalIP by the later rules.
    """
    known = {*candidates.reported, *candidates.stand_ins}
    found = frozenset(address for address in rules.provided if address in known)
    missing = {address.version for address in rules.provided} - {address.version for address in found}
    families = sorted(missing) if found else _FAMILIES
    if rules.cidrs:
        chosen = [_in_ranges(family, candidates, rules) for family in families]
        return Choice(found | {address for address in chosen if address is not None}, by_annotation=bool(found))
    chosen = [_first(family, candidates, rules) for family in families]
    others = tuple(address for address in chosen if address is not None)
    despite = tuple(address for address in others if _inside(address, rules.excluded))
    return Choice(found | set(others), by_annotation=bool(found), despite_exclusion=despite)


def _in_ranges(family: int, candidates: Candidates, rules: InternalIPRules) -> IPAddress | None:
    pools = (candidates.reported, candidates.stand_ins)
    return _pick(family, [[a for a in pool if _inside(a, rules.cidrs)] for pool in pools], rules)


def _first(family: int, candidates: Candidates, rules: InternalIPRules) -> IPAddress | None:
    pools = (candidates.reported, candidates.stand_ins)
    allowed = [[a for a in pool if not _inside(a, rules.excluded)] for pool in pools]
    return _pick(family, [*allowed, *pools], rules)


def _pick(family: int, pools: Iterable[Sequence[IPAddress]], rules: InternalIPRules) -> IPAddress | None:
    """Return an address of the first pool that has one of the family: the present InternalIP, else the first."""
    for pool in pools:
        suitable = [address for address in pool if address.version == family]
        if suitable:
            return next((address for address in suitable if address in rules.present), suitable[0])
    return None


def _inside(address: IPAddress, ranges: Iterable[IPNetwork]) -> bool:
    return any(address in entry for entry in ranges)
