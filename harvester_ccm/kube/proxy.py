"""HTTP proxy of the environment, by the rules of Go programs.

Charts and distributions set ``NO_PROXY`` with ranges such as ``10.0.0.0/8``, which Python's own rules do not support:
they would send requests for the cluster's own API server to the proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from harvester_ccm.netip import IPAddress, parse_prefix, plain_address


def proxy_for(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server's URL, or None.

    The variables are ``HTTPS_PROXY`` or ``HTTP_PROXY`` and ``NO_PROXY``, or their lower-case forms. Requests to
    loopback addresses never use a proxy.

    >>> proxy_for("https://10.43.0.1:443", {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8,.svc"}) is None
    True
    """
    parts = urlsplit(server)
    host, scheme = (parts.hostname or "").rstrip("."), parts.scheme
    proxy = environment.get(f"{scheme.upper()}_PROXY") or environment.get(f"{scheme}_proxy")
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    port = parts.port or {"http": 80, "https": 443}.get(scheme)
    # These loopback addresses are exceptions by Go's rules.
    entries = f"{exceptions},127.0.0.0/8,::1".lower().split(",")
    if not proxy or host == "localhost" or any(_matches(entry.strip(), host, port) for entry in entries):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _matches(entry: str, host: str, port: int | None) -> bool:
    """Return whether an entry of NO_PROXY covers a host: ``*``, a prefix, an address, or a domain, with a port or not.

    An entry ``.domain`` covers only the subdomains.
    """
    if entry == "*":
        return True
    address = _address(host)
    try:
        if "/" in entry:
            return address is not None and address in parse_prefix(entry)[1]
        parts = urlsplit(f"//[{entry}]" if entry.count(":") > 1 and "[" not in entry else f"//{entry}")
        name = (parts.hostname or "").removeprefix("*")
        if not name or parts.port not in {None, port}:
            return False
    except ValueError:
        return False
    if (exact := _address(name)) is not None:
        return exact == address
    return host == name or host.endswith(name if name.startswith(".") else f".{name}")


def _address(text: str) -> IPAddress | None:
    try:
        return plain_address(text)
    except ValueError:
        return None
