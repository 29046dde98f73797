"""Provider IDs of Nodes: ``harvester://<VM UID>``. The form is stored on every Node and never changes."""

from __future__ import annotations

from typing import Final

from harvester_ccm.names import PROVIDER_NAME

SCHEME: Final = f"{PROVIDER_NAME}://"


def format_provider_id(vm_uid: str) -> str:
    """Return the provider ID of the VM with this UID.

    >>> format_provider_id("5f3c")
    'harvester://5f3c'
    """
    return SCHEME + vm_uid


def parse_provider_id(provider_id: str) -> str | None:
    """Return the VM's UID, or None for an empty provider ID and for one of another provider.

    >>> parse_provider_id("harvester://5f3c")
    '5f3c'
    >>> parse_provider_id("k3s://w1") is None
    True
    """
    if not provider_id.startswith(SCHEME):
        return None
    uid = provider_id.removeprefix(SCHEME)
    return uid if uid and "/" not in uid else None
