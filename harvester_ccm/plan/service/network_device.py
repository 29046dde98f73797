"""The device of the nodes in the network of a Service, from the ConfigMap that maps networks to devices."""

from typing import Final

from msgspec import Struct

from harvester_ccm.model.core import Service
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK, Reason
from harvester_ccm.plan.service.kube_vip import NAME_DEVICE, RESTART, Announcement
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

_CONFIG_MAP: Final = f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"


class Device(Struct, frozen=True):
    """The device for a network, or why it has none."""

    name: str = ""
    """Empty for kube-vip's default device, or if the device is unknown."""
    note: EventMessage | None = None
    """The Warning about the device."""
    awaited: bool = False
    """Whether the address is not announced until the device is known: kube-vip reads the device only once."""


def device_for(network: str, address: str, snapshot: ServiceSnapshot) -> Device:
    """Return the device on which an address of a network, in normal form, is announced.

    A device that a user wrote on the Service is used if none is known.
    """
    found, devices = Announcement.of(snapshot.service), snapshot.network_devices
    awaited = found.read_address != address
    if devices is None:
        return Device(awaited=awaited)
    if network in devices:
        return Device(devices[network], changed_device(snapshot.service, address, devices[network]))
    why = (
        f"no device is known for network {network}, because {_CONFIG_MAP} has no entries. Unless "
        "--disable-vmi-controller is set, it is written when all VMs of this cluster report their devices "
        "(qemu-guest-agent), for networks that are on the same device of all of them"
    )
    if devices:
        why = (
            f"the nodes do not all have a device in network {network} of annotation {NETWORK}, or not the same one; "
            f"they have one in {', '.join(sorted(devices))} ({_CONFIG_MAP}). Correct the annotation, or give all VMs "
            "an interface in that network"
        )
    awaited = awaited and not found.device and (snapshot.cluster.publishes_devices or bool(devices))
    if awaited:
        cause = f"Address {address} is not announced before its device is known: {why}"
        return Device("", EventMessage("Warning", Reason.NO_DEVICE, cause, NAME_DEVICE), awaited)
    cause = f"kube-vip announces the address on {found.device or 'its default device'}: {why}"
    return Device("", EventMessage("Warning", Reason.NO_DEVICE, cause), awaited)


def changed_device(service: Service, address: str, device: str) -> EventMessage | None:
    """Return the Warning about an address that is announced on another device than this one, or None."""
    found = Announcement.of(service)
    if found.device == device or found.read_address != address or found.ignored:
        return None
    cause = (
        f"The device of the network is {device}, but kube-vip announces the address on "
        f"{found.device or 'its default device'} until it restarts, and the address may not be reachable there"
    )
    return EventMessage("Warning", Reason.DEVICE_CHANGED, cause, RESTART)
