"""kube-vip in the guest: what it finds on a Service, what it has noted there, and how we have it announce or be silent.

kube-vip announces whatever address it finds on a Service and stalls on one that has none; an empty annotation makes it
withdraw and pass over. The empty annotation replaces a user's own one, so the wish in that is moved to an annotation
of ours.

kube-vip handles its events one after another, and while it waits for an address it looks ahead. With the empty
annotation alone it may announce the address that follows, meet the empty annotation after that, withdraw, and stay
silent; v0.9 and v1.0 never announce a Service that they met so. It passes over the events of a Service that it is to
ignore, whenever it meets them; but it withdraws nothing of it either.

Each verb returns annotations to write; None removes the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from harvester_ccm.kube_vip_names import (
    ENDPOINTS_TOUCHED,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    USER_IGNORE,
)
from harvester_ccm.model.core import SERVICE_LABEL, EndpointSlice, Ingress, PortStatus, Service
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import DHCP_ADDRESS, IP_POOL, REQUESTED_ADDRESS, SERVICE_FINALIZER, Reason
from harvester_ccm.netip import ipv4_text
from harvester_ccm.plan.service.network_device import Device

Annotations = dict[str, str | None]

WITHDRAWN: Final[Mapping[str, str | None]] = {KUBE_VIP_ADDRESSES: ""}
"""Have kube-vip announce nothing, unless it ignores the Service."""
NO_OWN_DEVICE: Final[Annotations] = {KUBE_VIP_INTERFACE: None}
"""Take away the device of the primary."""

_PREFIX: Final = "kube-vip.io/"
_NOT_NOTES: Final = frozenset({KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, KUBE_VIP_INTERFACE})
RESTART: Final = "Restart it, for example by: kubectl --namespace kube-system rollout restart daemonset kube-vip"


class Announcement(Struct, frozen=True):
    """What kube-vip finds on a Service, and where it announces it.

    What it is told to announce and whether it looks at the Service at all are two annotations, each with its own
    history: any pair of their values is met.
    """

    address: str | None
    """What it is told to announce: an address, ``0.0.0.0`` for one from DHCP, or nothing (empty). None when it is told
    nothing: then it takes the address in the status or, where that has none, the one in the specification."""
    status: tuple[str, ...]
    specified: str
    """``spec.loadBalancerIP``."""
    requested: str
    """The address that is asked for in our annotation."""
    ignored: bool
    """Whether it is to leave the Service alone; on a Service of ours Harvester announces the address then."""
    ignored_by_user: bool
    """Whether that was on the Service before we were, by our own record."""
    device: str | None
    """Device in the nodes on which it is told to announce the address."""
    node: str | None
    """The node that announces the address, as kube-vip has noted; None when it never has."""

    @classmethod
    def of(cls, service: Service) -> Announcement:
        """Return what is on the Service now."""
        annotation = service.metadata.annotation
        return cls(
            address=annotation(KUBE_VIP_ADDRESSES),
            status=service.addresses,
            specified=service.spec.load_balancer_ip,
            requested=(annotation(REQUESTED_ADDRESS) or "").strip(),
            ignored=annotation(KUBE_VIP_IGNORE) == "true",
            ignored_by_user=annotation(USER_IGNORE) is not None,
            device=annotation(KUBE_VIP_INTERFACE),
            node=annotation(KUBE_VIP_HOST),
        )

    @property
    def withdrawn(self) -> bool:
        """Whether it is told to announce nothing."""
        return self.address == ""

    @property
    def ignored_for_us(self) -> bool:
        """Whether it leaves the Service alone, and not because the user said so."""
        return self.ignored and not self.ignored_by_user

    @property
    def held(self) -> bool:
        """Whether we keep it from the Service, and nobody has written an address for it since."""
        return self.withdrawn and self.ignored_for_us

    @property
    def shown(self) -> bool:
        """Whether it is told to announce an address, or may announce the one in the status."""
        return bool(self.status) if self.address is None else bool(self.address)

    @property
    def told(self) -> str:
        """The address that it has found; one in the specification counts more than one in the status."""
        first = self.status[0] if self.status else ""
        return self.address if self.address is not None else self.specified or first

    @property
    def wished(self) -> str:
        """The address that it finds where the status has none; empty when there is none."""
        return self.specified if self.address is None else self.address


def hold(service: Service) -> Annotations:
    """Keep kube-vip from a Service that waits for an address; nothing if it has one already.

    One that kube-vip may announce is not ignored: kube-vip would not withdraw it then. So it may where it has noted
    that once on a Service of ours, of which somebody took the annotation off and emptied the status.
    """
    found = Announcement.of(service)
    if found.status:
        return {}
    stripped_off = found.node is not None and service.metadata.has_finalizer(SERVICE_FINALIZER)
    shown = found.address is not None or found.wished or stripped_off
    ignored: Annotations = {} if shown else {KUBE_VIP_IGNORE: "true"}
    return {KUBE_VIP_ADDRESSES: "", **ignored, **_kept_wishes(service)}


def hold_or_leave_requested(service: Service) -> Annotations:
    """Keep kube-vip from a Service whose address Harvester is about to give, unless it announces the user's wish.

    kube-vip has been first to see the Service then. It goes on until Harvester has decided: most often that is the
    address given, and once kube-vip has withdrawn one it may not announce it again.
    """
    found = Announcement.of(service)
    if found.wished and not found.ignored:
        return _kept_wishes(service)
    return {**_kept_wishes(service), **hold_and_withdraw(service)}


def hold_and_withdraw(service: Service) -> Annotations:
    """Keep kube-vip from a Service that waits for an address, and have it withdraw one that it may announce."""
    return {**hold(service), **_look_again(service)}


def withdraw(service: Service) -> Annotations:
    """Have kube-vip announce nothing, even if it ignores the Service now."""
    return {**WITHDRAWN, **_look_again(service)}


def withdraws(service: Service, annotations: Mapping[str, str | None]) -> bool:
    """Return whether these annotations make kube-vip withdraw an address that it has met."""
    return Announcement.of(service).shown and WITHDRAWN.items() <= annotations.items()


def _look_again(service: Service) -> Annotations:
    """Return what makes kube-vip withdraw from a Service of ours that it ignores, if it finds an address there.

    While it waited for an address it may have found one that somebody wrote after it was told to ignore the Service, or
    that of the status where somebody took the empty annotation off.
    """
    found = Announcement.of(service)
    ours = service.metadata.has_finalizer(SERVICE_FINALIZER) and found.ignored_for_us
    return {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None} if ours and found.shown else {}


def hand_to_harvester(service: Service) -> Annotations:
    """Have kube-vip leave a Service to Harvester; one that it may announce is withdrawn by a patch before that.

    kube-vip does not withdraw what it ignores. An address that somebody wrote later, or left to be found in the status,
    may have reached it while it still waited for one, and then it has to look at the Service once more.
    """
    found, look_again = Announcement.of(service), _look_again(service)
    withdrawn: Annotations = {KUBE_VIP_ADDRESSES: "", **_kept_wishes(service), **look_again}
    if look_again or (not found.ignored and (found.shown or found.wished)):
        return withdrawn
    return {**withdrawn, KUBE_VIP_IGNORE: "true"}


def announce(service: Service, address: str, *, device: str = "") -> Annotations:
    """Have kube-vip announce an address; on its default device, unless one is named.

    The annotation is left away where it takes the address from the specification: from an annotation it would take it
    for another one, withdraw, and stay silent.
    """
    found = Announcement.of(service)
    annotations: Annotations = {}
    if found.address is not None or found.specified != address:
        annotations[KUBE_VIP_ADDRESSES] = address
    if _is_held(service, address):
        annotations[KUBE_VIP_IGNORE] = None
    if device:
        annotations[KUBE_VIP_INTERFACE] = device
    return annotations


def _is_held(service: Service, address: str) -> bool:
    """Return whether we keep kube-vip from a Service, also where somebody took half of that off or wrote over it.

    ``address`` is the one to be announced: where kube-vip was told that, its user has it ignore the Service since then.
    """
    found = Announcement.of(service)
    waits = service.metadata.has_finalizer(SERVICE_FINALIZER) and found.address != address and not found.status
    return found.held or (waits and found.ignored_for_us)


def stays_silent(service: Service, address: str) -> bool:
    """Return whether an address is new to kube-vip that has announced one: it waits for the endpoints to change then.

    What it let go of may be the same address or another one, also where the address stayed in the status when somebody
    took it out of the annotation. Where Harvester announced it, kube-vip never has. A withdrawn Service that it does
    not ignore was shown an address once: kube-vip may be about to announce that, and has noted nothing yet.
    """
    found = Announcement.of(service)
    known = found.told == address and stripped(service, address) is None
    if known or (found.ignored and not _is_held(service, address)):
        return False
    return found.node is not None or (not found.ignored and (bool(found.status) or found.withdrawn))


def lease_of(service: Service, *, touched: bool = True) -> str:
    """Return the address that kube-vip has leased from DHCP for a Service; empty while it has none.

    kube-vip writes a lease once, to the status and to its own annotation, which is read if the status was emptied.
    Until kube-vip announces a withdrawn Service again, the annotation has the previous lease. ``touched``: whether
    kube-vip does not have to be made to look at the Service before that.
    """
    found = Announcement.of(service)
    if found.status:
        return found.status[0]
    announces = found.address == DHCP_ADDRESS and found.node is not None and touched
    return ipv4_text(service.metadata.annotation(KUBE_VIP_LEASE) or "") if announces else ""


def slice_to_touch(slices: Iterable[EndpointSlice]) -> str:
    """Return the name of a slice that has endpoints; empty when there is none, and kube-vip waits for the first one.

    kube-vip takes those of the slice that changed last for all of them: it withdraws where there are none.
    """
    return min((one.metadata.name for one in slices if one.endpoints), default="")


def touch(service: Service) -> Annotations:
    """Return what to write on an EndpointSlice of a Service to have kube-vip look at both; each time another value."""
    return {ENDPOINTS_TOUCHED: service.metadata.resource_version}


def not_announced(service: Service) -> EventMessage:
    """Return what to tell where no EndpointSlice may be touched."""
    meta = service.metadata
    text = (
        "kube-vip has let go of the address of this Service before and does not announce it again until an "
        "EndpointSlice of the Service changes, which this program is not permitted to bring about (chart: "
        "rbac.endpointSlices); it is tried again every ten minutes. Traffic stays away until that is granted, the pods "
        "of the Service change or you run: kubectl --namespace "
        f"{meta.namespace} annotate endpointslices --selector {SERVICE_LABEL}={meta.name} --overwrite "
        "touched=$(date +%s), or restart kube-vip: kubectl --namespace kube-system rollout restart daemonset kube-vip"
    )
    return EventMessage("Warning", Reason.NOT_ANNOUNCED, text)


def announce_like(primary: Service, service: Service, address: str) -> Annotations:
    """Have kube-vip announce the address that a Service shares with its primary as it announces that one's.

    It announces the address for each of them, on the device that it finds there: on the default one, too, where only
    the primary names another. Where Harvester announces the address, the Service has been handed to it before.
    """
    found = Announcement.of(primary)
    if found.ignored:
        return NO_OWN_DEVICE
    return {**(WITHDRAWN if found.withdrawn else announce(service, address)), KUBE_VIP_INTERFACE: found.device}


def device_of_primary(primary: Service, service: Service, address: str) -> EventMessage | None:
    """Return what to tell of the device of an address that a Service shares, and that is announced."""
    found = Announcement.of(primary)
    return None if found.ignored else device_note(service, address, Device(found.device or ""))


def virtual_ip_ingress(address: str, service: Service) -> tuple[Ingress, ...]:
    """Return the status for an address, in the shape kube-vip writes: any other makes it announce again."""
    ports = tuple(PortStatus(port=port.port, protocol=port.protocol) for port in service.spec.ports)
    return (Ingress(ip=address, ip_mode="VIP", ports=ports),)


def release(service: Service, *, device: str, announced_by_us: bool) -> Annotations:
    """Take everything of ours from a Service that stays: another controller's announcement and the user's word do not.

    ``device`` is the one that we write for the Service.
    """
    found = Announcement.of(service)
    annotations: Annotations = {USER_IGNORE: None}
    if announced_by_us:
        annotations[KUBE_VIP_ADDRESSES] = None
        if not found.ignored_by_user:
            annotations[KUBE_VIP_IGNORE] = None
    if device and found.device == device:
        annotations[KUBE_VIP_INTERFACE] = None
    return annotations


def has_ignored(annotations: Mapping[str, str | None]) -> bool:
    """Return whether annotations to be written make kube-vip ignore the Service."""
    return annotations.get(KUBE_VIP_IGNORE) is not None


def awaits_device(service: Service, address: str, device: Device) -> bool:
    """Return whether an address that is not announced yet has to wait for its device: kube-vip reads it only then.

    One that is written on the Service will do where none is known.
    """
    found = Announcement.of(service)
    return found.told != address and (device.unread or bool(device.unknown and not found.device))


def awaited_device(address: str, device: Device) -> EventMessage | None:
    """Return what to tell while an address waits for its device."""
    text = (
        f"Address {address} is not announced before its device is known: {device.unknown}. A device can also be named "
        f"in annotation {KUBE_VIP_INTERFACE} of the Service"
    )
    return EventMessage("Warning", Reason.NO_DEVICE, text) if device.unknown else None


def device_note(service: Service, address: str, device: Device) -> EventMessage | None:
    """Return what to tell of the device of an address that is announced."""
    found = Announcement.of(service)
    now = f"device {found.device}" if found.device else "its default device"
    if device.unknown:
        text = f"kube-vip announces the address on {now}: {device.unknown}"
        return EventMessage("Warning", Reason.NO_DEVICE, text)
    announced = found.told == address and (found.node is not None or found.status) and not found.ignored
    if not announced or found.device == (device.name or found.device):
        return None
    text = (
        f"The device of the network is {device.name}, and kube-vip was told to announce the address on {now}. It does "
        f"not look at that again before it restarts, and until then may announce the address where it cannot be "
        f"reached. {RESTART}"
    )
    return EventMessage("Warning", Reason.DEVICE_CHANGED, text)


def requested_address(service: Service, *, dhcp: bool) -> dict[str, str]:
    """Return what a user wrote for kube-vip before we touched the Service, by the annotation that it stands in.

    kube-vip's own word for DHCP is no address if one from DHCP is asked for (``dhcp``).
    """
    value = Announcement.of(service).address or ""
    is_dhcp = dhcp and value.strip() == DHCP_ADDRESS
    return {} if is_dhcp or service.metadata.has_finalizer(SERVICE_FINALIZER) else {KUBE_VIP_ADDRESSES: value}


def _kept_wishes(service: Service) -> Annotations:
    """Return the annotations that keep what the user said to kube-vip before we did.

    Where the Service is ours and has an address, the annotation is ours too.
    """
    meta, found = service.metadata, Announcement.of(service)
    ours = meta.has_finalizer(SERVICE_FINALIZER)
    kept: Annotations = {}
    address = "" if ours and found.status else ipv4_text(found.address or "")
    if address not in {"", DHCP_ADDRESS} and not (found.specified or found.requested):
        kept[REQUESTED_ADDRESS] = address
    # Our condition comes with our first patch, which may set the annotation.
    if found.ignored and not found.withdrawn and not ours and service.ready_condition is None:
        kept[USER_IGNORE] = "true"
    return kept


def edited(service: Service, address: str) -> EventMessage | None:
    """Return what to tell when somebody wrote another address for kube-vip on a Service that is served."""
    found = Announcement.of(service)
    if not found.address or not found.status or found.address in {address, DHCP_ADDRESS, *found.status}:
        return None
    text = (
        f"Annotation {KUBE_VIP_ADDRESSES} was changed to {found.address} and is set back to {address}, the address "
        "that Harvester gave. To pin an address, make an IP pool with that single address and name it in annotation "
        f"{IP_POOL} when the Service is created"
    )
    return EventMessage("Warning", Reason.ADDRESS_NOT_AS_REQUESTED, text)


def stripped(service: Service, address: str) -> EventMessage | None:
    """Return what to tell when somebody took our annotations off a Service that is served, as a replacement does.

    ``address`` is the one that kube-vip is to announce; empty where Harvester announces it.
    """
    found = Announcement.of(service)
    served = bool(found.status) and service.metadata.has_finalizer(SERVICE_FINALIZER)
    if not served or found.address is not None or found.ignored or found.specified == address != "":
        return None
    if address and found.status != (address,):
        return None
    effect = "without it kube-vip stops announcing the address" if address else "kube-vip announces the address as well"
    names = KUBE_VIP_ADDRESSES if address else f"{KUBE_VIP_ADDRESSES} and {KUBE_VIP_IGNORE}"
    text = (
        f"Somebody took {names} off the annotations of the Service; that is set again: {effect}. Whatever replaces the "
        "Service has to keep its annotations"
    )
    return EventMessage("Warning", Reason.ANNOTATION_RESTORED, text)


def stays_up(service: Service) -> bool:
    """Return whether kube-vip goes on announcing an address because the Service has another type now."""
    found = Announcement.of(service)
    other_type = not service.metadata.deleting and service.spec.type != "LoadBalancer"
    return other_type and not found.ignored and found.node is not None


def same_but_for_notes(old: Service, new: Service) -> bool:
    """Return whether a Service is what it was, but for kube-vip's notes, conditions and what nobody here reads.

    kube-vip notes the node that announces it, the MAC and the lease of DHCP; they follow every move of the address, and
    none of them alone calls for a change.
    """
    return _without_notes(old) == _without_notes(new)


def _without_notes(service: Service) -> Service:
    annotations = {
        key: value
        for key, value in (service.metadata.annotations or {}).items()
        if key in _NOT_NOTES or not key.startswith(_PREFIX)
    }
    meta = msgspec.structs.replace(service.metadata, resource_version="", annotations=annotations)
    status = msgspec.structs.replace(service.status, conditions=())
    return msgspec.structs.replace(service, metadata=meta, status=status)
