"""Names of LoadBalancer objects in Harvester.

Must never change: Harvester remembers addresses by the name of the load balancer, so another name is another address.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

BASE_LENGTH: Final = 55
"""Bytes of the readable part; with the 8 digits of the checksum a name has at most 63."""

_DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def load_balancer_name(cluster: str, namespace: str, name: str, uid: str) -> str:
    """Return the name of a Service's load balancer.

    The checksum covers the uncut readable part and the Service's UID. A cluster name that is no DNS-1035 label gets an
    ``a`` in front; nothing else is repaired.
    """
    if len(cluster) > 63 or not _DNS_1035_LABEL.fullmatch(cluster):
        cluster = f"a{cluster}"
    base = f"{cluster}-{namespace}-{name}-".encode()
    checksum = zlib.crc32(base + uid.encode())
    return base[:BASE_LENGTH].decode("utf-8", "ignore") + f"{checksum:08x}"
