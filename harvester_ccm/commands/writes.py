"""Why a planned write is not sent: no replica leads, the API server rejects it, or another client changes the object.

A plan shows the next write, and only the controller knows why it does not succeed. It reports that in an Event, which
a user outside the pod may read. Inside the pod, Events cannot be read, and the permissions of the controller can.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.clusters import GUEST, Clusters, request_or_error
from harvester_ccm.commands.events import RECORDED_EVENTS, RecordedEvent, is_recent
from harvester_ccm.commands.preflight import Result, check_permissions
from harvester_ccm.commands.states import ObjectStatus, State, StatusReason
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.names import NodeReason, Reason

UNEXPLAINED: Final = frozenset({Reason.QUEUED, "Uninitialized"})
"""Reasons that only say that a write comes next."""
_ABOUT_WRITES: Final = frozenset(
    {Reason.SYNC_FAILED, Reason.FIELD_CONFLICT, Reason.HARVESTER_UNAVAILABLE, NodeReason.UPDATE_REJECTED}
)
"""Reasons of Events about writes that fail."""
_TITLES: Final = {
    SERVICES.kind: frozenset({f"{SERVICES.plural}/status"}),
    NODES.kind: frozenset({NODES.plural, f"{NODES.plural}/status"}),
}
"""Resources that the controller patches for an object of a kind."""
NOT_LED: Final = StatusReason(
    "NoLeader", "No replica of the controller leads, so nothing is written; see the problem of the Lease"
)


class FailedWrites(Struct, frozen=True):
    """Why writes are not sent, as far as it can be found."""

    is_led: bool = True
    """Whether a replica of the controller leads."""
    by_uid: Mapping[str, StatusReason] = {}
    """What the newest Event says, by the UID of its object."""
    denied: Mapping[str, StatusReason] = {}
    """The permission that the controller lacks, by the kind of the object."""

    def explain(self, kind: str, uid: str, status: ObjectStatus) -> ObjectStatus:
        """Return the status of an object whose next write is planned, with the reason for which it is not sent."""
        is_unexplained = any(one.reason in UNEXPLAINED for one in status.reasons)
        if not self.is_led:
            reason = NOT_LED if is_unexplained else None
        else:
            reason = self.denied.get(kind) or self.by_uid.get(uid)
        if reason is None:
            return status
        others = tuple(one for one in status.reasons if one.reason not in {*UNEXPLAINED, reason.reason})
        state = State.DEGRADED if status.state is State.READY else status.state
        return replace(status, state=state, reasons=(reason, *others))


async def read_failed_writes(
    clusters: Clusters, guest: ApiClient, kinds: Iterable[str], *, is_led: bool, in_container: bool
) -> FailedWrites:
    """Return why the writes to objects of these kinds are not sent."""
    kinds = sorted(set(kinds))
    if not kinds or not is_led:
        return FailedWrites(is_led=is_led)
    if in_container:
        return FailedWrites(denied=await _denied(clusters, guest, kinds))
    lists = await asyncio.gather(*(request_or_error(_list_events(guest, kind)) for kind in kinds))
    by_uid: dict[str, StatusReason] = {}
    for events in lists:
        if not isinstance(events, KubeError):
            by_uid.update(_newest(events, clusters.store.taken))
    return FailedWrites(by_uid=by_uid)


async def _list_events(guest: ApiClient, kind: str) -> tuple[RecordedEvent, ...]:
    page = await guest.list(RECORDED_EVENTS, params={"fieldSelector": f"type=Warning,involvedObject.kind={kind}"})
    return tuple(page.items)


def _newest(events: Iterable[RecordedEvent], now: datetime) -> dict[str, StatusReason]:
    """Return the newest Event about a write for each object."""
    found: dict[str, StatusReason] = {}
    for event in sorted(events, key=lambda one: one.last_timestamp or ""):
        if is_recent(event, now) and event.reason in _ABOUT_WRITES:
            found[event.involved_object.uid] = StatusReason(event.reason, event.message)
    return found


async def _denied(clusters: Clusters, guest: ApiClient, kinds: Iterable[str]) -> dict[str, StatusReason]:
    """Return the permissions that the credential of the controller lacks."""
    checks = await check_permissions(guest, GUEST, clusters.settings, user="the ServiceAccount of this pod")
    denied: dict[str, StatusReason] = {}
    for kind in kinds:
        for check in checks:
            if check.check in _TITLES[kind] and check.result is Result.FAILED:
                text = f"The controller {check.detail}. {check.advice}"
                denied.setdefault(kind, StatusReason("Forbidden", text))
    return denied
