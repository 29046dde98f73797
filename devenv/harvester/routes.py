"""The loopback addresses of the servers that run instead of VMs.

The API server rejects loopback addresses as endpoints, and only loopback addresses can be reached here. So VMs have
documentation addresses, and the server for such a VM listens on the loopback address with the same last three numbers:
127.0.2.11 for 192.0.2.11, 127.51.100.7 for 198.51.100.7. All other addresses are unreachable.
"""

import ipaddress
from typing import Final

DOCUMENTATION: Final = tuple(
    ipaddress.ip_network(network) for network in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)


def loopback_of(address: str) -> str | None:
    """Return the loopback address for a documentation address; None for any other address.

    >>> loopback_of("192.0.2.11"), loopback_of("10.52.0.255")
    ('127.0.2.11', None)
    """
    parsed = ipaddress.ip_address(address)
    if any(parsed in network for network in DOCUMENTATION):
        return "127." + address.partition(".")[2]
    return None
