"""Events in the guest cluster, which a user outside the pod of the controller may read."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from harvester_ccm.commands.states import seconds_between
from harvester_ccm.kube.objects import Model, Object, Resource, decoder
from harvester_ccm.model.event import REPORT_SECONDS
from harvester_ccm.names import SELF_REPORTS

MAX_AGE_SECONDS: Final = 3600.0
"""Age up to which an Event counts: while the state lasts, the controller does not repeat it."""
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
    endings: dict[str, str] = {end: warning for warning, end in SELF_REPORTS.items()}
    newest: dict[tuple[str, str], RecordedEvent] = {}
    # The names of Events of one process are in the order of time, which the timestamp has only in seconds.
    for event in sorted(events, key=lambda one: (one.last_timestamp or "", one.metadata.name)):
        warning = endings.get(event.reason, event.reason)
        if is_recent(event, now, REPORTED_SECONDS):
            newest[event.reporting_instance, warning] = event
    holding = [event for event in newest.values() if event.reason in SELF_REPORTS]
    by_text = {(event.reason, event.message): event for event in holding}
    return sorted(by_text.values(), key=lambda event: event.last_timestamp or "", reverse=True)
