"""Another controller changes the same fields repeatedly: how often this controller writes, and its Events."""

import asyncio
from collections import Counter

import pytest

from harvester_ccm.kube.informer import RELIST_SECONDS
from harvester_ccm.kube.workqueue import RESYNC_JITTER, RESYNC_SECONDS
from harvester_ccm.kube.write_limit import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import Reason
from tests.support.clock import jumping_time
from tests.support.conflicts import (
    CONFLICTS,
    OTHER_ANNOTATION,
    OTHER_STATUS,
    SERVICE,
    STRIPPED_ANNOTATION,
    ConflictWorld,
    FieldConflict,
    conflicting,
)
from tests.support.memory_server import placed

MAX_WRITES = 25
"""Writes for one object in 30 s of a conflict."""
SEQUENCE_SECONDS = 12 * WRITE_INTERVAL_SECONDS + 12
"""Time of the longest sequence of writes, the change of the workload type, if each of them waits for the limit."""


@pytest.mark.guarantee("Writes are rate-limited")
@jumping_time
async def test_nothing_but_periodic_lists_and_reviews_is_sent_when_nothing_changes() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        before = len(world.calls)
        await asyncio.sleep(3600)
        calls = world.calls[before:]
    assert {call.verb for call in calls} <= {"GET", "REVIEW"}
    reviews = [call for call in calls if call.verb == "REVIEW"]
    assert len(reviews) <= 3600 / RESYNC_SECONDS / (1 - RESYNC_JITTER)
    # Without leader election, the controller looks from time to time whether another one holds the Lease.
    looks = [call for call in calls if call.path.endswith("/leases/cloud-controller-manager")]
    lists = [call for call in calls if call not in reviews and call not in looks]
    assert all(placed(call.path).name == "" for call in lists)
    assert max(Counter(call.path for call in lists).values(), default=0) <= 3600 / RELIST_SECONDS[0]


@pytest.mark.parametrize("conflict", CONFLICTS.values(), ids=CONFLICTS.keys())
@pytest.mark.guarantee("Writes are rate-limited")
@jumping_time
async def test_writes_are_limited_and_one_event_is_emitted_in_a_conflict(conflict: FieldConflict) -> None:
    world = ConflictWorld()
    async with world.at_rest():
        correct, before = world.state(), len(world.writes())
        async with conflicting(world, conflict):
            await asyncio.sleep(30)
        assert len(world.writes()) - before <= MAX_WRITES
        assert world.state() == correct or len(world.writes()) - before >= WRITE_BURST
        async with conflicting(world, conflict):
            await asyncio.sleep(600)
        assert len(world.writes()) - before <= MAX_WRITES + 2 * 600 / WRITE_INTERVAL_SECONDS
        await asyncio.sleep(SEQUENCE_SECONDS + 600)
        assert world.state() == correct
        (text,) = world.events(conflict.about, Reason.FIELD_CONFLICT)
        assert conflict.field in text.partition(" overwrites ")[2].partition(". ")[0]


@pytest.mark.parametrize("conflict", CONFLICTS.values(), ids=CONFLICTS.keys())
@jumping_time
async def test_fields_are_right_soon_after_the_last_change_of_another_controller(conflict: FieldConflict) -> None:
    world = ConflictWorld()
    async with world.at_rest():
        correct = world.state()
        async with conflicting(world, conflict):
            await asyncio.sleep(45)
        await asyncio.sleep(SEQUENCE_SECONDS)
        assert world.state() == correct


@pytest.mark.parametrize("conflict", [STRIPPED_ANNOTATION, OTHER_ANNOTATION], ids=["stripped", "annotation"])
@jumping_time
async def test_service_is_not_ready_while_a_write_that_kube_vip_needs_is_delayed(conflict: FieldConflict) -> None:
    world = ConflictWorld()
    async with world.at_rest():
        async with conflicting(world, conflict):
            await asyncio.sleep(120)
            statuses = []
            for _ in range(300):
                await asyncio.sleep(1)
                statuses.append(world.condition()["status"])
        await asyncio.sleep(SEQUENCE_SECONDS)
        assert world.condition()["status"] == "True"
    assert set(statuses) == {"False"}


@pytest.mark.parametrize("conflict", [OTHER_STATUS, OTHER_ANNOTATION], ids=["status", "annotation"])
@jumping_time
async def test_deleted_service_never_waits_for_the_rate_limit(conflict: FieldConflict) -> None:
    world = ConflictWorld()
    async with world.at_rest(), conflicting(world, conflict):
        await asyncio.sleep(180)
        world.guest.delete(SERVICES, SERVICE)
        await asyncio.sleep(10)
        assert SERVICE not in world.guest.of(SERVICES)
        assert world.load_balancer() is None
