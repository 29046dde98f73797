"""Where a VM's address really is.

The API server takes no loopback address for an endpoint, and nothing but loopback may be reached from here. So VMs
carry documentation addresses, and the server that plays such a VM listens on the loopback address with the same last
three numbers: 192.0.2.11 is played on 127.0.2.11, 198.51.100.7 on 127.51.100.7. Every other address is a black hole
unless a table names its place.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

DOCUMENTATION: Final = tuple(
    ipaddress.ip_network(network) for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)


def loopback_of(address: str) -> str | None:
    """Return where a documentation address is played; None for any other address.

    >>> loopback_of("192.0.2.11"), loopback_of("10.52.0.255")
    ('127.0.2.11', None)
    """
    parsed = ipaddress.ip_address(address)
    if any(parsed in network for network in DOCUMENTATION):
        return "127." + address.partition(".")[2]
    return None


class Routes:
    """Finds the loopback address behind a VM's address."""

    def __init__(self, table: Mapping[str, str] | None = None) -> None:
        """``table`` maps addresses to loopback addresses and wins. Raises ValueError for any other target."""
        self._table = dict(table or {})
        for target in self._table.values():
            if not ipaddress.ip_address(target).is_loopback:
                raise ValueError(f"route to {target}: only loopback addresses may be reached")

    def find(self, address: str) -> str | None:
        """Return the loopback address to connect to, or None for a black hole."""
        return self._table.get(address) or loopback_of(address)
