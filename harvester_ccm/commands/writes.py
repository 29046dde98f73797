"""Why a planned write is not sent: no replica leads, the API server rejects it, or another client changes the object.

A plan shows the next write, and only the controller knows why it does not succeed. It reports that in an Event, which
a user outside the pod may read; ``preflight`` checks the permissions of the controller also inside.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore, request_or_error
from harvester_ccm.commands.events import RECORDED_EVENTS, RecordedEvent, is_recent
from harvester_ccm.commands.leader import NO_LEADER
from harvester_ccm.commands.states import ObjectStatus, State, StatusReason
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import Service
from harvester_ccm.names import NodeReason, Reason

UNEXPLAINED: Final = frozenset({Reason.QUEUED, "Uninitialized"})
"""Reasons that only say that a write comes next."""
_ABOUT_WRITES: Final = frozenset(
    {Reason.SYNC_FAILED, Reason.FIELD_CONFLICT, Reason.HARVESTER_UNAVAILABLE, NodeReason.UPDATE_REJECTED}
)
"""Reasons of Events about writes that fail."""
NOT_LED: Final = StatusReason(
    NO_LEADER, "No replica of the controller leads, so nothing is written; see the problem of the Lease"
)


class FailedWrites(Struct, frozen=True):
    """Why writes are not sent, as far as it can be found."""

    is_led: bool = True
    """Whether a replica of the controller leads."""
    by_uid: Mapping[str, StatusReason] = {}
    """What the newest Event says, by the UID of its object."""

    def explain(self, uid: str, status: ObjectStatus) -> ObjectStatus:
        """Return the status of an object whose next write is planned, with the reason for which it is not sent."""
        is_unexplained = any(one.reason in UNEXPLAINED for one in status.reasons)
        reason = self.by_uid.get(uid)
        if is_unexplained and not self.is_led:
            reason = NOT_LED
        if reason is None:
            return status
        others = tuple(one for one in status.reasons if one.reason not in {*UNEXPLAINED, reason.reason})
        state = State.DEGRADED if status.state is State.READY else status.state
        return replace(status, state=state, reasons=(reason, *others))


async def read_failed_writes(
    store: ClusterStore, guest: ApiClient, kinds: Iterable[str], *, is_led: bool
) -> FailedWrites:
    """Return why the writes to objects of these kinds are not sent."""
    kinds = sorted(set(kinds))
    if not kinds or not is_led:
        return FailedWrites(is_led=is_led)
    lists = await asyncio.gather(*(request_or_error(_list_events(guest, kind)) for kind in kinds))
    by_uid: dict[str, StatusReason] = {}
    for events in lists:
        if not isinstance(events, KubeError):
            by_uid.update(_newest(events, store))
    return FailedWrites(by_uid=by_uid)


async def _list_events(guest: ApiClient, kind: str) -> tuple[RecordedEvent, ...]:
    page = await guest.list(RECORDED_EVENTS, params={"fieldSelector": f"type=Warning,involvedObject.kind={kind}"})
    return tuple(page.items)


def _newest(events: Iterable[RecordedEvent], store: ClusterStore) -> dict[str, StatusReason]:
    """Return the newest Event about a write for each object, unless its Service has become ready since."""
    ready_since = dict(_ready_since(store.services.all()))
    found: dict[str, StatusReason] = {}
    for event in sorted(events, key=lambda one: one.last_timestamp or ""):
        uid = event.involved_object.uid
        is_about_now = is_recent(event, store.taken) and (event.last_timestamp or "") >= ready_since.get(uid, "")
        if is_about_now and event.reason in _ABOUT_WRITES:
            found[uid] = StatusReason(event.reason, event.message)
    return found


def _ready_since(services: Iterable[Service]) -> Iterator[tuple[str, str]]:
    """Yield the UID of each Service that is ready, and since when."""
    for service in services:
        condition = service.ready_condition
        if condition is not None and condition.status == "True":
            yield service.metadata.uid, condition.last_transition_time or ""
