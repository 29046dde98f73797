"""What kube-vip writes on a Service for itself: the node that announces it, the MAC and the lease of DHCP.

It follows every change of the announcing node and says nothing that a plan decides on; the lease itself is in the
status.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harvester_ccm.model.core import Service
from harvester_ccm.names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, KUBE_VIP_INTERFACE

_PREFIX: Final = "kube-vip.io/"
_READ: Final = frozenset({KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, KUBE_VIP_INTERFACE})


def same_but_for_notes(old: Service, new: Service) -> bool:
    """Return whether a Service is what it was, but for kube-vip's notes and the fields that nobody here reads."""
    return _without_notes(old) == _without_notes(new)


def _without_notes(service: Service) -> Service:
    annotations = {
        key: value
        for key, value in (service.metadata.annotations or {}).items()
        if key in _READ or not key.startswith(_PREFIX)
    }
    meta = msgspec.structs.replace(service.metadata, resource_version="", annotations=annotations)
    return msgspec.structs.replace(service, metadata=meta)
