"""The device of the nodes in the network of a Service, from the ConfigMap that maps networks to devices."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Set
from typing import Final

from msgspec import Struct

from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK

_CONFIG_MAP: Final = f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"


class Device(Struct, frozen=True):
    """The device for a network, or why there is none."""

    name: str = ""
    unknown: str = ""
    """Why there is no device for the requested network; empty if there is one."""
    awaited: bool = False
    """Whether the address is not announced until the device is known."""


NO_DEVICE: Final = Device()
"""No network is requested."""


def device_for(
    network: str,
    devices: Mapping[str, str] | None,
    *,
    read: bool = True,
    published: bool = True,
    attached: Set[str] | None = None,
) -> Device:
    """Return the device for a network in normal form.

    ``devices`` is the content of the ConfigMap, None if there is none; ``read``: whether it has been looked up;
    ``published``: whether this program writes it. ``attached`` are the networks of the VMs, None if that is not known
    of all of them.
    """
    if not read:
        return Device(awaited=True)
    if devices is None and not published:
        why = f"this program does not publish the devices (--disable-vmi-controller), and there is no {_CONFIG_MAP}"
        return Device(unknown=why)
    if attached is not None and network not in {*attached, *(devices or ())}:
        return Device(unknown=_no_such_network(network, attached), awaited=True)
    if devices is None:
        why = (
            f"no device is known for network {network}, because {_CONFIG_MAP} has no entries yet. It is written when "
            "all VMs of this cluster report their devices (qemu-guest-agent), for networks that are on the same device "
            "of all of them"
        )
        return Device(unknown=why, awaited=True)
    if network in devices:
        return Device(name=devices[network])
    why = (
        f"the nodes do not all have a device in network {network} of annotation {NETWORK}, or not the same one; they "
        f"have one in {', '.join(sorted(devices))} ({_CONFIG_MAP})"
    )
    return Device(unknown=why, awaited=True)


def _no_such_network(network: str, attached: Set[str]) -> str:
    close = difflib.get_close_matches(network, attached, n=1)
    guess = f"; did you mean {close[0]}?" if close else "."
    present = f"they are in {', '.join(sorted(attached))}" if attached else "they are in no VM network"
    return (
        f"no VM of this cluster's nodes is in network {network} of annotation {NETWORK}, {present}{guess} Correct "
        "the annotation, or give all the VMs an interface in that network"
    )
