"""The device in the nodes that is in a network, as the ConfigMap of this cluster's networks says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK


@dataclass(frozen=True)
class Device:
    """The device for a network, or why there is none."""

    name: str = ""
    unknown: str = ""
    """Why there is none for the network that is asked for."""
    unread: bool = False
    """Whether nobody has looked yet."""


NO_DEVICE: Final = Device()
"""Where no network is asked for."""


def device_for(network: str, devices: Mapping[str, str] | None, *, read: bool = True) -> Device:
    """Return the device for a network in normal form; ``devices`` is what the ConfigMap says, once it was ``read``."""
    if not read:
        return Device(unread=True)
    where = f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
    if devices is None:
        why = (
            f"no device is known for network {network}, because {where} has no entries yet. It is filled when all VMs "
            "of this cluster report their devices (qemu-guest-agent), for networks that are on the same device of all"
        )
        return Device(unknown=why)
    device = devices.get(network)
    if device is not None:
        return Device(name=device)
    known = ", ".join(sorted(devices))
    why = (
        f"not all nodes have a device in network {network} of annotation {NETWORK}, or not the same one; they have one "
        f"in {known} ({where})"
    )
    return Device(unknown=why)
