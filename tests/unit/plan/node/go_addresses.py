"""A model of how the Go provider and its framework make a new Node's addresses, faults included.

Written for comparison and for nothing else: texts stay texts, and what Go does badly is done badly here too.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from harvester_ccm.netip import IPAddress, IPNetwork, parse_range

ip_address = cache(ipaddress.ip_address)
Entry = tuple[str, str]
"""Type and address."""


@dataclass(frozen=True)
class Case:
    """What decides about the addresses of a new Node."""

    report: Sequence[str]
    """What the guest agent reports of the first interface."""
    provided: str | None = None
    additional: str | None = None
    cidrs: str = ""
    exclude: Sequence[str] = ()
    annotations_off: bool = False
    network: str = ""
    networks: Mapping[str, str] = field(default_factory=lambda: {"nic-1": "prod/mgmt"})


@dataclass(frozen=True)
class Result:
    """What becomes of the Node."""

    offered: tuple[Entry, ...]
    """What the provider tells the framework."""
    published: tuple[Entry, ...] | None
    """What the framework writes; None: it refuses, and the Node keeps its taint for ever."""

    @property
    def internal(self) -> tuple[str, ...]:
        """The InternalIPs on the Node."""
        return tuple(text for kind, text in self.published or () if kind == "InternalIP")


def go_addresses(case: Case, name: str = "w1") -> Result:
    """Return what the Go provider makes of a new Node."""
    host = ("Hostname", name)
    offered = (*(_offered(case) if _interface(case) == "nic-1" else ()), host)
    return Result(offered, _framework(offered, case.provided))


def _interface(case: Case) -> str | None:
    if not case.network:
        return next(iter(case.networks), None)
    return next((nic for nic, network in case.networks.items() if network == case.network), None)


def _offered(case: Case) -> tuple[Entry, ...]:
    try:
        texts = [_canonical(text) for text in case.report]
    except ValueError:
        return ()
    texts = [text for text in texts if not _special(ip_address(text))]
    provided = case.provided is not None and not case.annotations_off
    if provided:
        internal = _first_of_families([text for text in texts if text == case.provided])
    elif case.cidrs:
        internal = _first_of_families([text for text in texts if _inside(text, case.cidrs.split(","))])
    else:
        internal = _first_of_families(texts)
    hidden = _hidden(case, by_range=bool(case.cidrs) and not provided)
    entries = []
    for text in texts:
        if text in internal:
            entries.append(("InternalIP", text))
        elif not hidden(text):
            entries.append(("ExternalIP", text))
    return tuple(entries)


def _hidden(case: Case, *, by_range: bool) -> Callable[[str], bool]:
    if by_range:
        return lambda text: _inside(text, case.exclude)
    try:
        named = json.loads(case.additional or "null") or []
    except ValueError:
        named = []
    if case.annotations_off or not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        named = []
    return lambda text: text in named


def _framework(offered: tuple[Entry, ...], annotation: str | None) -> tuple[Entry, ...] | None:
    """Return the addresses with those of the annotation first; None where it is invalid or names an unknown one."""
    if annotation is None:
        return offered
    try:
        wanted = [ip_address(part) for part in annotation.split(",")]
    except ValueError:
        return None
    if len(wanted) > 2 or len({address.version for address in wanted}) < len(wanted):
        return None
    first: list[Entry] = []
    for address in wanted:
        equal = [entry for entry in offered if entry[0] != "Hostname" and ip_address(entry[1]) == address]
        if not equal:
            return None
        first += equal
    enforced = {kind for kind, _ in first}
    return (*first, *(entry for entry in offered if entry[0] not in enforced))


def _canonical(text: str) -> str:
    address = ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return f"::ffff:{mapped}" if mapped else str(address)


def _special(address: IPAddress) -> bool:
    return (
        any((address.is_loopback, address.is_link_local, address.is_multicast, address.is_unspecified))
        or str(address) == "255.255.255.255"
    )


def _first_of_families(texts: Sequence[str]) -> set[str]:
    firsts: dict[int, str] = {}
    for text in texts:
        firsts.setdefault(ip_address(text).version, text)
    return set(firsts.values())


def _inside(text: str, ranges: Sequence[str]) -> bool:
    return "%" not in text and any(ip_address(text) in network(one) for one in ranges)


@cache
def network(text: str) -> IPNetwork:
    """Return the range that a text names."""
    return parse_range(text)[1]
