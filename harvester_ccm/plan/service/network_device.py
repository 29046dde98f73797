"""The device in the nodes that is in a network, as the ConfigMap of this cluster's networks says."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Set
from typing import Final

from msgspec import Struct

from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK


class Device(Struct, frozen=True):
    """The device for a network, or why there is none."""

    name: str = ""
    unknown: str = ""
    """Why there is none for the network that is asked for."""
    unread: bool = False
    """Whether nobody has looked yet."""


NO_DEVICE: Final = Device()
"""Where no network is asked for."""


def device_for(
    network: str, devices: Mapping[str, str] | None, *, read: bool = True, attached: Set[str] | None = None
) -> Device:
    """Return the device for a network in normal form; ``devices`` is what the ConfigMap says, once it was ``read``.

    ``attached`` are the networks that the VMs are in; None where that is not known of all.
    """
    if not read:
        return Device(unread=True)
    if attached is not None and network not in {*attached, *(devices or ())}:
        return Device(unknown=_no_such_network(network, attached))
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


def _no_such_network(network: str, attached: Set[str]) -> str:
    close = difflib.get_close_matches(network, attached, n=1)
    guess = f"; did you mean {close[0]}?" if close else "."
    there = f"they are in {', '.join(sorted(attached))}" if attached else "they are in no VM network"
    return (
        f"no VM of this cluster's nodes is in network {network} of annotation {NETWORK}, {there}{guess} Correct "
        "the annotation, or give all the VMs an interface in that network"
    )
