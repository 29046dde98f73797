"""Order and number of the creations that the gate admits."""

from __future__ import annotations

import asyncio

from harvester_ccm.controllers.service import RESPONSE_SECONDS, CreationGate
from tests.worlds.builders import CLUSTER, allocated, marked
from tests.worlds.clock import jumping_time


@jumping_time
async def test_first_queued_service_is_admitted_first() -> None:
    enqueued: list[str] = []
    gate = CreationGate(enqueued.append, CLUSTER)
    assert gate.admit("first")
    assert not gate.admit("second"), "the request of the first one has no response yet"
    assert not gate.admit("third")
    gate.observe(None, marked())
    gate.reconciled("first", queued=False)
    assert not gate.admit("second"), "Harvester has not responded yet"
    assert enqueued == []
    gate.observe(marked(), allocated())
    assert enqueued == ["second"]
    assert not gate.admit("third")
    assert gate.admit("second")


@jumping_time
async def test_failed_creation_admits_the_next_one() -> None:
    enqueued: list[str] = []
    gate = CreationGate(enqueued.append, CLUSTER)
    assert gate.admit("first")
    assert not gate.admit("second")
    gate.reconciled("first", queued=False)
    assert enqueued == ["second"]
    assert not gate.admit("first"), "it lost its place"


@jumping_time
async def test_load_balancer_without_response_delays_the_next_creation_once() -> None:
    enqueued: list[str] = []
    gate = CreationGate(enqueued.append, CLUSTER)
    gate.observe(None, marked())
    assert not gate.admit("next")
    await asyncio.sleep(RESPONSE_SECONDS - 1)
    gate.observe(marked(), marked(labels={"changed": "while it is in progress"}))
    assert enqueued == []
    await asyncio.sleep(2)
    assert enqueued == ["next"]
    assert gate.admit("next")
