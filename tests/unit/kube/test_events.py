"""How many Events an object may have, on a clock that jumps."""

from __future__ import annotations

import asyncio

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.events import BURST, QUEUE_LENGTH, REFILL_SECONDS, EventRecorder, ObjectReference
from harvester_ccm.kube.tokens import FixedToken
from tests.worlds.clock import jumping_time


def offline_recorder() -> EventRecorder:
    """Return a recorder that writes nothing, because it is never run."""
    nowhere = Credentials(server="https://192.0.2.1", namespace="", tls=None, token=FixedToken(None))
    return EventRecorder(ApiClient(nowhere, cluster="guest"), host="node-1")


def warn(recorder: EventRecorder, name: str, message: str) -> None:
    reference = ObjectReference("v1", "Service", "shop", name, uid=name)
    recorder.record(reference, "Warning", "SyncFailed", message, component="service-controller")


@jumping_time
async def test_budget_grows_again_and_is_no_concern_of_other_objects() -> None:
    recorder = offline_recorder()
    for number in range(BURST + 1):
        warn(recorder, "one", str(number))
    assert recorder.dropped == 1
    warn(recorder, "other", "first")
    assert recorder.dropped == 1

    await asyncio.sleep(REFILL_SECONDS)
    warn(recorder, "one", "after a while")
    assert recorder.dropped == 1
    warn(recorder, "one", "at once again")
    assert recorder.dropped == 2


@jumping_time
async def test_full_queue_drops_and_does_not_wait() -> None:
    recorder = offline_recorder()
    for number in range(QUEUE_LENGTH + 3):
        warn(recorder, f"web-{number}", "no pool")

    assert recorder.dropped == 3
