"""Events in the guest cluster, which a user outside the pod of the controller may read."""

from datetime import datetime
from typing import Final

from harvester_ccm.commands.states import seconds_between
from harvester_ccm.kube.objects import Model, Object, Resource, decoder

MAX_AGE_SECONDS: Final = 3600.0
"""Age up to which an Event counts: while the state lasts, the controller does not repeat it."""


class InvolvedObject(Model, frozen=True, kw_only=True):
    """The object that an Event is about."""

    kind: str = ""
    uid: str = ""


class RecordedEvent(Object, frozen=True, kw_only=True):
    """An Event in the guest cluster."""

    involved_object: InvolvedObject = InvolvedObject()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None


RECORDED_EVENTS: Final = Resource("", "v1", "events", "Event", decoder(RecordedEvent))


def is_recent(event: RecordedEvent, now: datetime) -> bool:
    """Return whether what an Event reports can still hold."""
    age = seconds_between(event.last_timestamp, now)
    return age is not None and age < MAX_AGE_SECONDS
