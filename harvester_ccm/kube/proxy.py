"""Which HTTP proxy the environment names for a server, by the rules that Go programs follow.

Charts and distributions set ``NO_PROXY`` with ranges such as ``10.0.0.0/8``, which Python's own rules do not know:
with those, a cluster's own API server would be asked for at the proxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from harvester_ccm.netip import IPAddress, parse_prefix, unmapped

_PORTS: Final = {"http": 80, "https": 443}


def proxy_for(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server's URL, or None.

    Read are ``HTTPS_PROXY`` or ``HTTP_PROXY`` and ``NO_PROXY``, or their lower-case forms. Loopback addresses never
    go through a proxy.

    >>> proxy_for("https://10.43.0.1:443", {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8,.svc"}) is None
    True
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    proxy = _either(environment, f"{parts.scheme.upper()}_PROXY")
    if not proxy or _is_local(host):
        return None
    port = parts.port or _PORTS.get(parts.scheme, 0)
    for entry in _either(environment, "NO_PROXY").split(","):
        if _covers(entry.strip().lower(), host, port):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _either(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _covers(entry: str, host: str, port: int) -> bool:
    if entry in {"", "*"}:
        return entry == "*"
    address = _address(host)
    try:
        network = parse_prefix(entry)[1]
    except ValueError:
        pass
    else:
        return address is not None and address in network
    name, wanted = _split_port(entry)
    if wanted and wanted != str(port):
        return False
    exact = _address(name)
    if exact is not None:
        return address == exact
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, str]:
    """Return host and port of ``host``, ``host:port``, ``[v6]:port`` or a bare IPv6 address."""
    if _address(entry) is not None:
        return entry, ""
    name, _, port = entry.rpartition(":")
    return (name.strip("[]"), port) if port.isdecimal() else (entry.strip("[]"), "")


def _address(text: str) -> IPAddress | None:
    try:
        return unmapped(ipaddress.ip_address(text))
    except ValueError:
        return None
