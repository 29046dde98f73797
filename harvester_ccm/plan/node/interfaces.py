"""What Harvester reports about a VM's addresses: which interface counts, and which of its addresses can be used.

Differences from the Go provider, all for reports that it handles badly:

* One unreadable entry is dropped and the others are used; Go drops all.
* IPv4-mapped addresses become IPv4, a zone is cut off, a repeated address counts once; Go publishes them as they are.
* Virtual IPs of load balancers are dropped; Go publishes them.
* A network name without a namespace in the VM means the VM's own namespace; Go compares the text.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.netip import IPAddress, plain_address

_BROADCAST: Final = ipaddress.IPv4Address("255.255.255.255")


class DropReason(StrEnum):
    """Why an address of a VM is not an address of its Node."""

    UNREADABLE = "not an IP address"
    UNSPECIFIED = "unspecified"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"
    DUPLICATE = "repeated"
    VIRTUAL_IP = "virtual IP of a load balancer"
    EXCLUDED = "excluded by --node-exclude-ip-ranges"
    ADDITIONAL = "named by the annotation for additional internal IPs"


@dataclass(frozen=True)
class DroppedAddress:
    """An address as it was reported, and why it is not published."""

    address: str
    reason: DropReason


@dataclass(frozen=True)
class Nic:
    """The interface whose addresses are the Node's."""

    name: str
    network: str
    guessed_among: tuple[str, ...] = ()
    """Names of all candidates, when no network was asked for and there are several."""


def management_nic(vmi: VirtualMachineInstance, network: str | None) -> Nic | None:
    """Return the first interface in the network ``namespace/name``, without a network the first one at all.

    Interfaces in the pod network never count. None: the VM has no such interface.
    """
    namespace, attached = vmi.metadata.namespace, vmi.spec.multus_networks
    wanted = _qualified(network, namespace) if network else None
    for name, net in attached.items():
        if wanted is None or _qualified(net, namespace) == wanted:
            return Nic(name, net, tuple(attached) if wanted is None and len(attached) > 1 else ())
    return None


def reported_addresses(vmi: VirtualMachineInstance, nic: Nic) -> tuple[str, ...]:
    """Return what Harvester reports for the interface now, in its order; later entries of the same name are ignored."""
    interfaces = vmi.status.interfaces if vmi.status else None
    entry = next((i for i in interfaces or () if i.name == nic.name), None)
    return entry.addresses if entry is not None else ()


def addresses_elsewhere(vmi: VirtualMachineInstance, nic: Nic) -> dict[IPAddress, str]:
    """Return the addresses that the VM's other interfaces have now, with the name of the interface."""
    interfaces = vmi.status.interfaces if vmi.status else None
    found: dict[IPAddress, str] = {}
    for entry in interfaces or ():
        if entry.name != nic.name:
            usable, _ = read_addresses((*(entry.ip_addresses or ()), entry.ip_address), frozenset())
            found |= dict.fromkeys(usable, entry.name or entry.interface_name)
    return found


def read_addresses(
    texts: Iterable[str], virtual_ips: Collection[IPAddress]
) -> tuple[tuple[IPAddress, ...], tuple[DroppedAddress, ...]]:
    """Return the usable addresses in order, and the others with the reason."""
    usable: list[IPAddress] = []
    dropped: list[DroppedAddress] = []
    for text in texts:
        try:
            address = plain_address(text)
        except ValueError:
            dropped.append(DroppedAddress(text, DropReason.UNREADABLE))
            continue
        reason = _unusable(address)
        if reason is None and address in virtual_ips:
            reason = DropReason.VIRTUAL_IP
        if reason is None and address in usable:
            reason = DropReason.DUPLICATE
        if reason is None:
            usable.append(address)
        else:
            dropped.append(DroppedAddress(text, reason))
    return tuple(usable), tuple(dropped)


def _unusable(address: IPAddress) -> DropReason | None:
    reasons = (
        (address.is_unspecified, DropReason.UNSPECIFIED),
        (address.is_loopback, DropReason.LOOPBACK),
        (address.is_link_local, DropReason.LINK_LOCAL),
        (address.is_multicast, DropReason.MULTICAST),
        (address == _BROADCAST, DropReason.BROADCAST),
    )
    return next((reason for holds, reason in reasons if holds), None)


def _qualified(network: str, namespace: str) -> str:
    return network if "/" in network else f"{namespace}/{network}"
