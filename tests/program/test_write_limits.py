"""Another controller changes the same fields repeatedly: how often this controller writes, and its Events."""

import asyncio
from collections import Counter

import pytest

from harvester_ccm.kube.informer import RELIST_SECONDS
from harvester_ccm.kube.workqueue import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import IPAM, SERVICE_FINALIZER, WORKLOAD_TYPE, Reason
from harvester_ccm.plan.service.plan import WITHDRAWAL_WRITES
from harvester_ccm.plan.service.reannouncement import RESYNC_AFTER_SECONDS
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
RECOVERY_SECONDS = 2 * WRITE_INTERVAL_SECONDS


@pytest.mark.guarantee("Writes are rate-limited")
@jumping_time
async def test_nothing_but_periodic_lists_is_sent_when_nothing_changes() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        before = len(world.calls)
        await asyncio.sleep(3600)
        calls = world.calls[before:]
    assert {call.verb for call in calls} <= {"GET"}
    assert all(placed(call.path).name == "" for call in calls)
    assert max(Counter(call.path for call in calls).values(), default=0) <= 3600 / RELIST_SECONDS[0]


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
        assert world.state() == correct or len(world.writes()) - before > WRITE_BURST - WITHDRAWAL_WRITES
        async with conflicting(world, conflict):
            await asyncio.sleep(600)
        assert len(world.writes()) - before <= MAX_WRITES + 5 * 600 / WRITE_INTERVAL_SECONDS
        await asyncio.sleep(RECOVERY_SECONDS + 600)
        assert world.state() == correct
        (text,) = world.events(conflict.about, Reason.FIELD_CONFLICT)
        assert conflict.field in text.partition(" overwrites ")[2].partition(". ")[0]


@pytest.mark.parametrize(
    "conflict", [STRIPPED_ANNOTATION, OTHER_ANNOTATION, OTHER_STATUS], ids=["stripped", "annotation", "status"]
)
@pytest.mark.guarantee("Writes are rate-limited")
@jumping_time
async def test_one_write_per_30_s_remains_for_a_service_in_a_conflict(conflict: FieldConflict) -> None:
    world = ConflictWorld()
    async with world.at_rest(), conflicting(world, conflict):
        await asyncio.sleep(120)
        before = len(world.writes())
        await asyncio.sleep(3600)
        written = len(world.writes()) - before
    # Two writes that belong together, such as a withdrawal and the next announcement, are sent every 60 s.
    assert 3600 / 60 <= written <= 3600 / 30 + 1


@jumping_time
async def test_occasional_change_by_another_controller_is_reverted_at_once_without_an_event() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        for _ in range(2 * WRITE_BURST):
            OTHER_ANNOTATION.change(world)
            await asyncio.sleep(1)
            assert world.address_annotation() == world.address("web")
            await asyncio.sleep(4 * WRITE_INTERVAL_SECONDS)
        assert world.events("web", Reason.FIELD_CONFLICT) == []


@jumping_time
async def test_warning_is_emitted_although_the_next_write_waits() -> None:
    world = ConflictWorld()
    async with world.at_rest(), conflicting(world, OTHER_ANNOTATION):
        await asyncio.sleep(10)
        assert len(world.events("web", Reason.FIELD_CONFLICT)) == 1
        world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: "static"}}})
        await asyncio.sleep(1)
        assert len(world.events("web", Reason.INVALID_ANNOTATION)) == 1


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


@jumping_time
async def test_type_that_changes_continuously_is_followed_within_the_rate_limit() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        before = len(world.writes())
        for number in range(300):
            world.guest.change(SERVICES, SERVICE, {"spec": {"type": "ClusterIP" if number % 2 else "LoadBalancer"}})
            await asyncio.sleep(1)
        assert len(world.writes()) - before <= MAX_WRITES + 5 * 300 / WRITE_INTERVAL_SECONDS
        assert len(world.events("web", Reason.FIELD_CONFLICT)) == 1
        world.guest.change(SERVICES, SERVICE, {"spec": {"type": "LoadBalancer"}})
        await asyncio.sleep(20 * WRITE_INTERVAL_SECONDS)
        assert world.address("web") == world.address_annotation() != ""


FLIPS: dict[str, tuple[int, float]] = {
    "12 in 4 s": (12, 1 / 3),
    "40 in 10 s": (40, 0.25),
    "12 in a minute": (12, 5.0),
    "200 in 200 s": (200, 1.0),
    "60 in 10 min": (60, 10.0),
}


@pytest.mark.parametrize(("flips", "pause"), FLIPS.values(), ids=FLIPS.keys())
@pytest.mark.parametrize("last", ["LoadBalancer", "ClusterIP"])
@jumping_time
async def test_last_type_of_many_is_reached_within_one_interval(flips: int, pause: float, last: str) -> None:
    """A user and another controller change the type in turn."""
    world = ConflictWorld()
    async with world.at_rest():
        types = ["ClusterIP", "LoadBalancer"] if last == "LoadBalancer" else ["LoadBalancer", "ClusterIP"]
        for number in range(flips):
            world.guest.change(
                SERVICES, SERVICE, {"spec": {"type": types[number % 2]}, "status": {"loadBalancer": None}}
            )
            await asyncio.sleep(pause)
        await asyncio.sleep(WRITE_INTERVAL_SECONDS + RESYNC_AFTER_SECONDS + 4)
        if last == "ClusterIP":
            assert world.load_balancer() is None
            assert SERVICE_FINALIZER not in world.service()["metadata"]["finalizers"]
            return
        assert world.address("web") == world.address_annotation() != ""
        assert world.condition()["status"] == "True"


@jumping_time
async def test_working_load_balancer_is_not_replaced_before_all_writes_of_the_replacement_are_allowed() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        present = world.load_balancer()
        assert present is not None
        # Each change takes two writes: kube-vip withdraws the other address before it announces this one.
        for _ in range(WRITE_BURST // 2 - 2):
            OTHER_ANNOTATION.change(world)
            await asyncio.sleep(0.5)
        world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
        await asyncio.sleep(10)
        assert world.load_balancer() == present
        assert world.address("web") == world.address_annotation() != ""
        assert world.events("web", Reason.CHANGING_WORKLOAD_TYPE) == []
        await asyncio.sleep(WRITE_BURST * WRITE_INTERVAL_SECONDS)
        replacement = world.load_balancer()
        assert replacement is not None
        assert replacement["spec"]["workloadType"] == "vm"


@pytest.mark.parametrize("used", range(6, 13))
@jumping_time
async def test_started_replacement_is_completed_without_a_delay(used: int) -> None:
    world = ConflictWorld()
    async with world.at_rest():
        before = len(world.writes())
        while len(world.writes()) - before < used:
            OTHER_ANNOTATION.change(world)
            await asyncio.sleep(0.5)
        world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
        withdrawn = 0
        for _ in range(600):
            await asyncio.sleep(1)
            present = world.load_balancer()
            withdrawn += not world.address_annotation() and (present is None or present["spec"]["workloadType"] != "vm")
        assert present is not None
        assert present["spec"]["workloadType"] == "vm"
        assert withdrawn <= 10
