"""Network of a Service to the device in the nodes on which kube-vip announces its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harvester_ccm.model.core import ConfigMap, published_devices
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK, Reason
from harvester_ccm.plan.service.request import normal_network


@dataclass(frozen=True)
class Device:
    """The device for kube-vip, or why there is none."""

    name: str = ""
    note: EventMessage | None = None


def network_devices(config_map: ConfigMap | None) -> Mapping[str, str] | None:
    """Return the mapping in the ConfigMap, networks in normal form; None while it is absent, empty or unreadable."""
    mapping = published_devices(config_map) or {}
    return {normal_network(network): device for network, device in mapping.items() if device} or None


def device_for(network: str, devices: Mapping[str, str] | None) -> Device:
    """Return the device for a network in normal form; an empty network needs none.

    An unknown mapping or network never holds an address back: kube-vip then takes its own default device.
    """
    if not network:
        return Device()
    where = f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
    if devices is None:
        why = (
            f"no device is known for network {network}, because {where} has no entries yet. It is filled when all VMs "
            "of this cluster report their devices (qemu-guest-agent)"
        )
        return Device(note=_note(why))
    device = devices.get(network)
    if device is not None:
        return Device(name=device)
    known = ", ".join(sorted(devices))
    why = f"network {network} of annotation {NETWORK} is not on the same device of all nodes; {where} has {known}"
    return Device(note=_note(why))


def _note(why: str) -> EventMessage:
    return EventMessage("Warning", Reason.NO_DEVICE, f"kube-vip announces the address on its default device: {why}")
