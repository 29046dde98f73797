"""What a candidate for the Lease asks and says, in memory; what it writes is tested on a real server."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from harvester_ccm.errors import Unreachable
from harvester_ccm.kube.lease import LeaseLost
from harvester_ccm.model.core import LEASES, Lease
from tests.unit.kube.test_fence import LEASE, Leader
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryServer


def told_to(process: Leader) -> list[str]:
    """Return the list of what an elector has told, which grows."""
    told: list[str] = []

    def note(verb: str, _lease: Lease) -> None:
        told.append(verb)

    process.elector.on_change = note
    return told


@jumping_time
async def test_a_candidate_looks_every_one_or_two_seconds_and_says_once_who_holds_it() -> None:
    server = MemoryServer()
    first, second = Leader(server, "first"), Leader(server, "second")
    await first.elector.acquire()
    with capture_logs() as logs:
        waiting = asyncio.create_task(second.elector.acquire())
        server.calls.clear()
        await asyncio.sleep(10.0)
        waiting.cancel()
    assert 5 <= len(server.calls) <= 11
    assert {call.verb for call in server.calls} == {"GET"}
    assert [(one["event"], one["holder"]) for one in logs if one["log_level"] != "debug"] == [
        ("waiting for leadership", "first")
    ]


@jumping_time
async def test_one_whose_lease_is_taken_says_that_it_stopped() -> None:
    process = Leader()
    told = told_to(process)
    await process.elector.acquire()
    process.server.change(LEASES, LEASE, {"spec": {"holderIdentity": "thief"}})
    with capture_logs() as logs, pytest.raises(LeaseLost, match="taken by thief"):
        await process.elector.hold()
    assert told == ["became leader", "stopped leading"]
    assert "stopped leading" in [one["event"] for one in logs]


@jumping_time
async def test_what_is_another_ones_is_not_released() -> None:
    server = MemoryServer()
    first, second = Leader(server, "first"), Leader(server, "second")
    await first.elector.acquire()
    second.elector.taking = True
    with capture_logs() as logs:
        await second.elector.release()
    assert [one["event"] for one in logs] == []
    assert first.elector.leading
    assert server.get(LEASES, LEASE)["spec"]["holderIdentity"] == "first"


@jumping_time
async def test_a_server_that_is_away_at_the_start_is_asked_again() -> None:
    process = Leader()
    process.server.fault = lambda _call: Unreachable("away")
    with capture_logs() as logs:
        waiting = asyncio.create_task(process.elector.acquire())
        await asyncio.sleep(10.0)
        process.server.fault = None
        await waiting
    assert process.elector.leading
    said = [one["event"] for one in logs if one["log_level"] != "debug"]
    assert said == [
        "lease requests failed",
        "waiting for leadership",
        "lease requests recovered",
        "became leader",
    ]
