"""The second announcement of an address: kube-vip makes it only after a change of the EndpointSlices.

A Service whose address was withdrawn, by this controller or by kube-vip after a change of another field, goes through
these stages until kube-vip announces an address again. Only the time of the resync is kept in memory: what the Service
shows (``kube_vip.needs_resync``, ``kube_vip.is_withdrawn_by_change``) leads to the same stages again.
"""

from enum import StrEnum, auto

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.core import Service, endpoint_slice_selector
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.desired import Desired, TriggerKubeVipResync, waits_for
from harvester_ccm.plan.service.kube_vip import (
    RESYNC_AFTER_SECONDS,
    Annotations,
    Announce,
    Intent,
    Withdraw,
    is_withdrawn_by_change,
    needs_resync,
    record_for,
)
from harvester_ccm.plan.service.snapshot import ServiceSnapshot


class Stage(StrEnum):
    """The stages of a second announcement."""

    NOT_NEEDED = auto()
    """kube-vip announces the address, or will by itself."""
    WITHDRAW_FIRST = auto()
    """kube-vip reads another address. A patch withdraws that one: in the event in which kube-vip withdraws an address
    it announces no other one."""
    PUBLISH = auto()
    """A patch writes the address, or the record of the fields that have changed, and the controller notes that the
    endpoints have to be touched a second later."""
    WAIT = auto()
    """kube-vip gets a second to read the address. The load balancer is brought to its desired state meanwhile."""
    RESYNC = auto()
    """An EndpointSlice is patched, after which kube-vip announces the address."""


class Reannouncement(Struct, frozen=True):
    """The stage, and the seconds until the next one."""

    stage: Stage
    seconds: float = 0.0


def reannouncement_of(snapshot: ServiceSnapshot, address: str) -> Reannouncement:
    """Return the stage of the second announcement of ``address``, which is ``0.0.0.0`` for DHCP."""
    kube_vip = snapshot.kube_vip
    resync_at = snapshot.remembered.resync_at
    awaits_resync = resync_at is not None and kube_vip.read_address != address
    if needs_resync(kube_vip, address) or awaits_resync or _is_withdrawn_by_change(snapshot, address):
        if kube_vip.read_address not in {"", address}:
            return Reannouncement(Stage.WITHDRAW_FIRST)
        return Reannouncement(Stage.PUBLISH, RESYNC_AFTER_SECONDS)
    if resync_at is None:
        return Reannouncement(Stage.NOT_NEEDED)
    if resync_at > snapshot.now:
        return Reannouncement(Stage.WAIT, resync_at - snapshot.now)
    return Reannouncement(Stage.RESYNC)


def _is_withdrawn_by_change(snapshot: ServiceSnapshot, address: str) -> bool:
    """Another program than kube-vip withdraws nothing when a field changes."""
    if snapshot.cluster.announcer is Announcer.OTHER:
        return False
    return is_withdrawn_by_change(snapshot.kube_vip, address, _announced_as(snapshot))


def _announced_as(snapshot: ServiceSnapshot) -> str:
    """Return the fields with which kube-vip announced the address; empty if they are not known."""
    return snapshot.kube_vip.announced_as or snapshot.remembered.announced_as


def record_in(snapshot: ServiceSnapshot, intent: Intent) -> Annotations:
    """Return the record of the fields with which kube-vip announces the address, as an intent leaves it."""
    if isinstance(intent, Announce) and snapshot.cluster.announcer is Announcer.OTHER:
        return {}
    return record_for(snapshot.kube_vip, intent, _announced_as(snapshot))


def _warnings_in(desired: Desired) -> tuple[EventMessage, ...]:
    """Return the Warnings of a state: a Normal Event reports that the Service has its address, which comes later."""
    return tuple(event for event in desired.events if event is not None and event.type == "Warning")


def resync_not_permitted(service: Service) -> EventMessage:
    """Return the Warning for a Service whose EndpointSlices must not be patched."""
    cause = (
        "kube-vip has withdrawn the address and announces it again only after a change of an EndpointSlice of the "
        "Service, which this controller is not permitted to make. The Service gets no traffic until then"
    )
    remedy = "Grant patch on endpointslices (chart: rbac.endpointSlices), or change an EndpointSlice yourself"
    command = (
        f"kubectl --namespace {service.metadata.namespace} annotate endpointslices --selector "
        f"{endpoint_slice_selector(service)} --overwrite touched=$(date +%s)"
    )
    return EventMessage("Warning", Reason.NOT_ANNOUNCED, cause, remedy, command)


def with_reannouncement(desired: Desired, snapshot: ServiceSnapshot, address: str) -> Desired:
    """Return a state that announces an address, with what kube-vip needs to do that."""
    reannouncement = reannouncement_of(snapshot, address)
    waits = waits_for(Reason.KUBE_VIP_RESYNC_PENDING)
    match reannouncement.stage:
        case Stage.NOT_NEEDED:
            return desired
        case Stage.WITHDRAW_FIRST:
            # Before the first lease, an address in the status is removed with its withdrawal.
            ingress = () if desired.ingress == () else None
            return Desired(waits, kube_vip=Withdraw(), ingress=ingress, events=_warnings_in(desired))
        case Stage.PUBLISH:
            seconds = reannouncement.seconds
            return replace(desired, verdict=waits, triggers_resync=True, look_again_after=seconds)
        case Stage.WAIT:
            return replace(desired, verdict=waits, look_again_after=reannouncement.seconds)
        case Stage.RESYNC:
            # The process can end between a patch of the Service and the touch: only afterwards, the condition is True.
            return replace(desired, verdict=waits, write=desired.write or TriggerKubeVipResync())
