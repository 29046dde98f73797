"""The device of the nodes in the network of a Service, from the ConfigMap that maps networks to devices."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK

_CONFIG_MAP: Final = f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"


class Device(Struct, frozen=True):
    """The device for a network, or why it has none."""

    name: str = ""
    unknown: str = ""
    """Why there is no device for the requested network; empty if there is one."""
    awaited: bool = False
    """Whether the address is not announced until the device is known."""


def device_for(
    network: str,
    devices: Mapping[str, str] | None,
    *,
    read: bool = True,
    published: bool = True,
) -> Device:
    """Return the device for a network in normal form.

    ``devices`` is the content of the ConfigMap, None if none exists; ``read``: whether it has been looked up;
    ``published``: whether this controller writes it.
    """
    if not read:
        return Device(awaited=True)
    if devices is None and not published:
        why = f"this controller does not publish the devices (--disable-vmi-controller), and there is no {_CONFIG_MAP}"
        return Device(unknown=why)
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
        f"have one in {', '.join(sorted(devices))} ({_CONFIG_MAP}). Correct the annotation, or give all VMs an "
        "interface in that network"
    )
    return Device(unknown=why, awaited=True)
