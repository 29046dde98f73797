"""What the controller reports in Events of the guest cluster, which a user outside its pod may read.

A plan shows the next write, and only the controller knows why it does not succeed: no replica leads, the API server
rejects it, or another client changes the object.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore, request_or_error
from harvester_ccm.commands.states import NO_LEADER, ObjectStatus, State, StatusReason, seconds_between
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import Model, Object, Resource, decoder
from harvester_ccm.kube.written_fields import fields_of_patch
from harvester_ccm.model.core import NODES, SERVICES, ServiceCondition
from harvester_ccm.model.event import REPORT_SECONDS
from harvester_ccm.names import NodeReason, Reason
from harvester_ccm.plan.node.patch import NodePatch

MAX_AGE_SECONDS: Final = 3600.0
"""Age up to which an Event counts: while a Warning holds, the controller writes it again before."""
REPORTED_SECONDS: Final = 2 * REPORT_SECONDS
"""Age up to which a Warning of a process about itself counts, which is repeated while it holds."""


class InvolvedObject(Model, frozen=True, kw_only=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class RecordedEvent(Object, frozen=True, kw_only=True):
    """An Event in the guest cluster."""

    involved_object: InvolvedObject = InvolvedObject()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    reporting_instance: str = ""
    """Host of the process that wrote it."""


RECORDED_EVENTS: Final = Resource("", "v1", "events", "Event", decoder(RecordedEvent))


def is_recent(event: RecordedEvent, now: datetime, within: float = MAX_AGE_SECONDS) -> bool:
    """Return whether what an Event reports can still hold: it was written at most ``within`` seconds ago."""
    age = seconds_between(event.last_timestamp, now)
    return age is not None and age < within


def self_reports(events: Iterable[RecordedEvent], now: datetime) -> list[RecordedEvent]:
    """Return the Warnings of processes about themselves that hold, the newest first.

    A process repeats its Warning while it holds, and ends it with another Event. Two processes can have the same one.
    """
    newest: dict[str, RecordedEvent] = {}
    # The names of Events of one process are in the order of time, which the timestamp has only in seconds.
    for event in sorted(events, key=lambda one: (one.last_timestamp or "", one.metadata.name)):
        is_report = event.reason in (Reason.CREDENTIAL_NOT_RELOADED, Reason.CREDENTIAL_RELOADED)
        if is_report and is_recent(event, now, REPORTED_SECONDS):
            newest[event.reporting_instance] = event
    holding = [event for event in newest.values() if event.reason == Reason.CREDENTIAL_NOT_RELOADED]
    by_text = {event.message: event for event in holding}
    return sorted(by_text.values(), key=lambda event: event.last_timestamp or "", reverse=True)


UNEXPLAINED: Final = frozenset({Reason.QUEUED, "Uninitialized"})
"""Reasons that only say that a write comes next."""
_ABOUT_WRITES: Final = frozenset(
    {Reason.SYNC_FAILED, Reason.FIELD_CONFLICT, Reason.HARVESTER_UNAVAILABLE, NodeReason.UPDATE_REJECTED}
)
"""Reasons of Events about writes that fail."""
NOT_LED: Final = StatusReason(
    NO_LEADER, "No replica of the controller leads, so nothing is written; see the problem of the Lease"
)


def with_failed_write(reason: StatusReason | None, write: object, status: ObjectStatus) -> ObjectStatus:
    """Return the status of an object with the reason for which its next ``write``, if there is one, is not sent."""
    if reason is None or write is None or _is_of_other_fields(reason, write):
        return status
    if reason is NOT_LED and not any(known.reason in UNEXPLAINED for known in status.reasons):
        return status
    others = tuple(other for other in status.reasons if other.reason not in {*UNEXPLAINED, reason.reason})
    state = State.DEGRADED if status.state is State.READY else status.state
    return replace(status, state=state, reasons=(reason, *others))


def _is_of_other_fields(reason: StatusReason, write: object) -> bool:
    """Return whether a conflict has ended: the next patch of the Node changes none of the fields that it was about."""
    if reason.reason != NodeReason.FIELD_CONFLICT or not isinstance(write, NodePatch):
        return False
    return not any(field in reason.message for field in fields_of_patch(write.body))


async def read_failed_writes(store: ClusterStore, guest: ApiClient) -> dict[str, StatusReason]:
    """Return why writes to Services and Nodes are not sent: what the newest Event says, by the UID of its object."""
    lists = await asyncio.gather(
        *(request_or_error(_list_events(guest, resource.kind)) for resource in (SERVICES, NODES))
    )
    by_uid: dict[str, StatusReason] = {}
    for events in lists:
        if not isinstance(events, KubeError):
            by_uid.update(_newest(events, store))
    return by_uid


async def _list_events(guest: ApiClient, kind: str) -> tuple[RecordedEvent, ...]:
    page = await guest.list(RECORDED_EVENTS, params={"fieldSelector": f"type=Warning,involvedObject.kind={kind}"})
    return tuple(page.items)


def _newest(events: Iterable[RecordedEvent], store: ClusterStore) -> dict[str, StatusReason]:
    """Return the newest Event about a write for each object.

    It does not hold any more if the Service has become ready since, or has got the reason of its condition since.
    """
    conditions = {service.metadata.uid: service.ready_condition for service in store.services.all()}
    found: dict[str, StatusReason] = {}
    for event in sorted(events, key=lambda one: one.last_timestamp or ""):
        uid = event.involved_object.uid
        condition = conditions.get(uid)
        is_about_now = is_recent(event, store.taken) and (event.last_timestamp or "") >= _ready_since(condition)
        if is_about_now and event.reason in _ABOUT_WRITES:
            found[uid] = StatusReason(event.reason, event.message)
        elif condition is not None and event.reason == condition.reason:
            found.pop(uid, None)
    return found


def _ready_since(condition: ServiceCondition | None) -> str:
    """Return the time since which a Service is ready; empty if it is not."""
    if condition is None or condition.status != "True":
        return ""
    return condition.last_transition_time or ""
