"""Types of flag values. What Go's ``pflag`` accepts is accepted, because charts and scripts were written for it.

Parsers raise ValueError with the valid values, as in "expected true or false".
"""

import csv
import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.config import CONTROLLERS
from harvester_ccm.netip import IPNetwork, parse_range

_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_QUANTITY: Final = rf"([0-9]+\.?[0-9]*|\.[0-9]+)({'|'.join(_UNITS)})"


MAX_INT32: Final = 2**31 - 1
"""Maximum of an integer of Go's type ``int32``, and of the duration of a Lease in seconds."""
MAX_SECONDS: Final = 2562047 * 3600.0
"""Maximum of Go's type ``Duration``, in whole hours."""


class Kind(Struct, frozen=True):
    """Type of a flag's value."""

    name: str
    """Placeholder of the value in the help."""
    parse: Callable[[str], Any]
    is_switch: bool = False
    """Whether the flag without a value means true."""
    appends: bool = False
    """Whether the values of repeated flags are joined. Otherwise, the last one counts."""


def parse_bool(text: str) -> bool:
    """Return the truth value."""
    if text not in (*_TRUE, *_FALSE):
        raise ValueError("expected true or false")
    return text in _TRUE


def parse_int(text: str) -> int:
    """Return the integer, also with the prefixes ``0x``, ``0o`` and ``0b``; a leading 0 means octal, as in Go."""
    try:
        return int(re.sub(r"^([+-]?)0(?=[0-7])", r"\g<1>0o", text), 0)
    except ValueError:
        raise ValueError("expected a whole number") from None


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration.

    >>> parse_duration("1h2m3.5s")
    3723.5
    """
    quantities = text.removeprefix("+")
    if quantities == "0":
        return 0.0
    if not re.fullmatch(f"(?:{_QUANTITY})+", quantities):
        raise ValueError("expected a duration such as 90s, 5m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_QUANTITY, quantities))
    if seconds > MAX_SECONDS:
        raise ValueError("expected a duration of at most 2562047h")
    return round(seconds, 9)


def parse_ip(text: str) -> str:
    """Return the canonical form of an IP address."""
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        raise ValueError("expected an IP address") from None


def parse_file(text: str) -> Path | None:
    """Return a path, None for an empty text."""
    return Path(text) if text else None


def parse_list(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list, read as one CSV record. An empty text has none."""
    try:
        return tuple(next(csv.reader([text], strict=True)))
    except csv.Error:
        raise ValueError("expected a comma-separated list") from None


def parse_controllers(text: str) -> tuple[str, ...]:
    """Return a list of ``*``, names of controllers, and names with ``-`` in front."""
    entries = parse_list(text)
    if not {entry.removeprefix("-") for entry in entries} <= {"*", *CONTROLLERS}:
        raise ValueError(f"expected '*' or names out of {', '.join(CONTROLLERS)}")
    return entries


def parse_network(text: str) -> str | None:
    """Return a Harvester network as ``namespace/name``, None for an empty text."""
    namespace, slash, name = text.rpartition("/")
    if "/" in namespace or (slash and not (namespace and name)):
        raise ValueError("expected namespace/name, or a name in the namespace default")
    if not text:
        return None
    return f"{namespace or 'default'}/{name}"


def parse_ranges(text: str) -> tuple[IPNetwork, ...]:
    """Return the ranges of a comma-separated list of CIDRs and IP addresses."""
    ranges = []
    for entry in filter(None, map(str.strip, parse_list(text))):
        try:
            ranges.append(parse_range(entry))
        except ValueError:
            raise ValueError(f"expected CIDRs or IP addresses, {entry!r} is neither") from None
    return tuple(ranges)


def parse_node_ranges(text: str) -> tuple[IPNetwork, ...]:
    """Return the ranges of node addresses, at most one for each IP family."""
    ranges = parse_ranges(text)
    if len({node_range.version for node_range in ranges}) < len(ranges):
        raise ValueError("expected at most one IPv4 and one IPv6 entry")
    if any(_is_never_of_node(node_range) for node_range in ranges):
        raise ValueError("expected addresses of nodes: no loopback, link-local, multicast or unspecified ones")
    return ranges


def _is_never_of_node(network: IPNetwork) -> bool:
    return network.is_loopback or network.is_link_local or network.is_multicast or network.is_unspecified


def one_of(values: Mapping[str, Any]) -> Kind:
    """Return the type of texts that each stand for a value."""

    def parse(text: str) -> Any:
        if text not in values:
            raise ValueError(f"expected {' or '.join(filter(None, values))}")
        return values[text]

    return Kind("string", parse)


def _limited(kind: Kind, is_valid: Callable[[Any], bool], expected: str) -> Kind:
    def parse(text: str) -> Any:
        value = kind.parse(text)
        if not is_valid(value):
            raise ValueError(f"expected {expected}")
        return value

    return Kind(kind.name, parse)


def between(minimum: int, maximum: int) -> Kind:
    """Return the type of integers in a range."""
    return _limited(INT, lambda value: minimum <= value <= maximum, f"a number from {minimum} to {maximum}")


def seconds_between(minimum: float, maximum: float, expected: str) -> Kind:
    """Return the type of durations in a range."""
    return _limited(DURATION, lambda seconds: minimum <= seconds <= maximum, expected)


SWITCH: Final = Kind("bool", parse_bool, is_switch=True)
VERSION: Final = Kind("bool", lambda text: text == "raw" or text.startswith("v") or parse_bool(text), is_switch=True)
TEXT: Final = Kind("string", str)
FILE: Final = Kind("file", parse_file)
LIST: Final = Kind("list", parse_list, appends=True)
CONTROLLER_LIST: Final = Kind("list", parse_controllers, appends=True)
INT: Final = Kind("int", parse_int)
PORT: Final = _limited(INT, lambda port: 0 <= port <= 65535, "a port up to 65535, or 0 for none")
DURATION: Final = Kind("duration", parse_duration)
PERIOD: Final = _limited(DURATION, lambda seconds: seconds > 0, "a duration above zero")
LEASE_DURATION: Final = _limited(DURATION, lambda seconds: seconds <= MAX_INT32, f"a duration of at most {MAX_INT32}s")
WORKERS: Final = between(1, MAX_INT32)
_TLS12: Final = dict.fromkeys(("", "VersionTLS10", "VersionTLS11", "VersionTLS12"), "1.2")
TLS_VERSION: Final = one_of({**_TLS12, "VersionTLS13": "1.3"})
"""Lowest version to serve. Nothing below 1.2 is ever offered."""
IP: Final = Kind("IP", parse_ip)
NETWORK: Final = Kind("string", parse_network)
RANGES: Final = Kind("CIDRs", parse_ranges, appends=True)
NODE_RANGES: Final = Kind("CIDRs", parse_node_ranges)
