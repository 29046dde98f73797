"""The proxy for a server, by the rules of Go programs."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from harvester_ccm.netip import parse_range, plain_address

_PORTS: Final = {"http": 80, "https": 443}


def proxy_for(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server's URL, or None.

    The variables are ``HTTPS_PROXY`` or ``HTTP_PROXY`` and ``NO_PROXY``, or their lower-case forms. Requests to
    loopback addresses never use a proxy. Distributions of Kubernetes set ``NO_PROXY`` with ranges such as
    ``10.0.0.0/8``, which Python's own rules do not support: they would send requests for the cluster's own API server
    to the proxy.

    >>> proxy_for("https://10.43.0.1:443", {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "10.0.0.0/8,.svc"}) is None
    True
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or _PORTS.get(parts.scheme)
    proxy = environment.get(f"{parts.scheme.upper()}_PROXY") or environment.get(f"{parts.scheme}_proxy")
    listed = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    # Go programs have these exceptions for loopback addresses.
    exceptions = f"{listed},localhost,127.0.0.0/8,::1".lower().split(",")
    if not proxy:
        return None
    if any(_covers(entry.strip(), host, str(port)) for entry in exceptions):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(entry: str, host: str, port: str) -> bool:
    """Return whether an entry of NO_PROXY covers a host: ``*``, an address, a range, or a domain, with a port or not.

    ``.domain`` and ``*.domain`` cover only the subdomains.
    """
    if entry == "*":
        return True
    with suppress(ValueError):
        return plain_address(host) in parse_range(entry.removesuffix(f"]:{port}").strip("[]"))
    name, _, entry_port = entry.removeprefix("*").partition(":")
    suffix = name if name.startswith(".") else f".{name}"
    is_domain = host == name or host.endswith(suffix)
    return is_domain and entry_port in ("", port)
