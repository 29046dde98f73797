"""The device of the nodes in the network of a Service, from the ConfigMap that maps networks to devices."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from harvester_ccm.model.event import EventMessage, quoted
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NETWORK, Reason
from harvester_ccm.plan.service.allocation.chosen_network import ChosenNetwork, chosen_network
from harvester_ccm.plan.service.announcing.seen import DEVICE_ANNOTATION, Seen
from harvester_ccm.plan.service.load_balancer.specification import network_of
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

_CONFIG_MAP: Final = f"ConfigMap {NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
_DEFAULT_DEVICE: Final = "its default device"
RESTART: Final = (
    "Restart it (DaemonSet kube-vip in namespace kube-system): the addresses that it announces stop for some seconds"
)
"""Remedy for what kube-vip reads only once; without a command, because a restart withdraws addresses."""


class Device(Struct, frozen=True):
    """The device for the network of a Service."""

    name: str | None = None
    """None: the one that is annotated, or kube-vip's default device, is used."""
    warning: EventMessage | None = None
    """What is wrong with it."""
    is_awaited: bool = False
    """Whether the address is not announced until the device is known: kube-vip reads the device only once."""


def device_for(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Device:
    """Return the device on which the allocated address of a cluster load balancer is announced.

    A device that a user wrote on the Service is used if none is known.
    """
    seen = snapshot.seen
    address = load_balancer.allocated_ip
    network = network_of(load_balancer, snapshot.request.network)
    if not network or chosen_network(snapshot, load_balancer) is ChosenNetwork.OTHER:
        # An address of another network is announced already, and may work where it is.
        return Device()
    devices = snapshot.network_devices
    is_unread = seen.read_address != address
    if devices is None:
        return Device(is_awaited=is_unread)
    if network in devices:
        return Device(devices[network], changed_device(seen, address, devices[network]))
    # Without the controller of VM instances and without entries, no device will ever be known.
    is_expected = snapshot.cluster.publishes_devices or bool(devices)
    if is_unread and not seen.device and is_expected:
        cause = f"Address {address} is not announced: {_unknown_device(network, devices)}"
        remedy = f"Or set annotation {DEVICE_ANNOTATION} of the Service to a device"
        return Device(None, EventMessage("Warning", Reason.NETWORK_DEVICE_UNKNOWN, cause, remedy), is_awaited=True)
    used = seen.device or _DEFAULT_DEVICE
    cause = f"kube-vip announces the address on {used}: {_unknown_device(network, devices)}"
    return Device(None, EventMessage("Warning", Reason.NETWORK_DEVICE_UNKNOWN, cause))


def _unknown_device(network: str, devices: Mapping[str, str]) -> str:
    """Return why no device is known for a network, and what to do."""
    if not devices:
        return (
            f"no device is known for network {quoted(network)}, because {_CONFIG_MAP} has no entries. Unless "
            "--disable-vmi-controller is set, it is written when all VMs of this cluster report their devices "
            "(qemu-guest-agent), for networks that are on the same device of all of them"
        )
    known = ", ".join(sorted(devices))
    return (
        f"the Nodes have no common device in network {quoted(network)}. Networks with one: {known} ({_CONFIG_MAP}). "
        f"Correct annotation {NETWORK}, or add an interface in that network to every VM, in the same place"
    )


def changed_device(seen: Seen, address: str, device: str) -> EventMessage | None:
    """Return the Warning about an address that is announced on another device than this one, or None."""
    if seen.device == device or seen.ignored or seen.read_address != address:
        return None
    cause = (
        f"The device of the network is {device}, but kube-vip announces the address on "
        f"{seen.device or _DEFAULT_DEVICE} until it restarts, and the address may not be reachable there"
    )
    return EventMessage("Warning", Reason.DEVICE_CHANGED, cause, RESTART)
