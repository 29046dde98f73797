"""Another controller keeps changing fields of this one: how often this one writes, and which Event it emits."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from harvester_ccm.kube.events import REPEAT_SECONDS
from harvester_ccm.kube.informer import RELIST_SECONDS
from harvester_ccm.kube.workqueue import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import IPAM, WORKLOAD_TYPE, NodeReason, Reason
from harvester_ccm.plan.service.writes import WITHDRAWAL_WRITES
from tests.worlds.clock import jumping_time
from tests.worlds.conflicts import (
    CONFLICTS,
    OTHER_ANNOTATION,
    OTHER_STATUS,
    SERVICE,
    Arena,
    FieldConflict,
    conflicting,
)
from tests.worlds.memory_server import placed

MAX_WRITES = 25
"""Writes for one object in 30 s of a conflict."""
RECOVERY_SECONDS = 2 * WRITE_INTERVAL_SECONDS


@jumping_time
async def test_nothing_but_periodic_lists_is_sent_when_nothing_changes() -> None:
    arena = Arena()
    async with arena.at_rest():
        before = len(arena.calls)
        await asyncio.sleep(3600)
        calls = arena.calls[before:]
    assert {call.verb for call in calls} <= {"GET"}
    assert all(placed(call.path).name == "" for call in calls)
    assert max(Counter(call.path for call in calls).values(), default=0) <= 3600 / RELIST_SECONDS[0]


@pytest.mark.parametrize("conflict", CONFLICTS.values(), ids=CONFLICTS.keys())
@pytest.mark.guarantee("Writes are rate-limited")
def test_writes_are_limited_and_one_event_is_emitted_in_a_conflict(conflict: FieldConflict) -> None:
    @jumping_time
    async def scenario() -> None:
        arena = Arena()
        async with arena.at_rest():
            correct, before = arena.shown(), len(arena.writes())
            async with conflicting(arena, conflict):
                await asyncio.sleep(30)
            assert len(arena.writes()) - before <= MAX_WRITES
            assert arena.shown() == correct or len(arena.writes()) - before > WRITE_BURST - WITHDRAWAL_WRITES
            async with conflicting(arena, conflict):
                await asyncio.sleep(600)
            assert len(arena.writes()) - before <= MAX_WRITES + 5 * 600 / WRITE_INTERVAL_SECONDS
            await asyncio.sleep(RECOVERY_SECONDS + 600)
            assert arena.shown() == correct
            assert len(arena.events(conflict.about, Reason.FIELD_CONFLICT)) == 1

    scenario()


@jumping_time
async def test_occasional_change_by_another_controller_is_reverted_at_once_without_an_event() -> None:
    arena = Arena()
    async with arena.at_rest():
        for _ in range(2 * WRITE_BURST):
            OTHER_ANNOTATION.change(arena)
            await asyncio.sleep(1)
            assert arena.address_annotation() == arena.program.address("web")
            await asyncio.sleep(4 * WRITE_INTERVAL_SECONDS)
        assert arena.events("web", Reason.FIELD_CONFLICT) == []


@jumping_time
async def test_warning_is_emitted_although_the_next_write_waits() -> None:
    arena = Arena()
    async with arena.at_rest(), conflicting(arena, OTHER_ANNOTATION):
        await asyncio.sleep(10)
        assert len(arena.events("web", Reason.FIELD_CONFLICT)) == 1
        arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: "static"}}})
        await asyncio.sleep(1)
        assert len(arena.events("web", Reason.INVALID_ANNOTATION)) == 1


@pytest.mark.parametrize("conflict", [OTHER_STATUS, OTHER_ANNOTATION], ids=["status", "annotation"])
def test_deleted_service_never_waits_for_the_rate_limit(conflict: FieldConflict) -> None:
    @jumping_time
    async def scenario() -> None:
        arena = Arena()
        async with arena.at_rest(), conflicting(arena, conflict):
            await asyncio.sleep(180)
            arena.guest.delete(SERVICES, SERVICE)
            await asyncio.sleep(10)
            assert SERVICE not in arena.guest.of(SERVICES)
            assert arena.load_balancer() is None

    scenario()


@jumping_time
async def test_type_that_changes_continuously_is_followed_within_the_rate_limit() -> None:
    arena = Arena()
    async with arena.at_rest():
        before = len(arena.writes())
        for number in range(300):
            arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "ClusterIP" if number % 2 else "LoadBalancer"}})
            await asyncio.sleep(1)
        assert len(arena.writes()) - before <= MAX_WRITES + 5 * 300 / WRITE_INTERVAL_SECONDS
        assert len(arena.events("web", Reason.FIELD_CONFLICT)) == 1
        arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "LoadBalancer"}})
        await asyncio.sleep(20 * WRITE_INTERVAL_SECONDS)
        assert arena.program.address("web") == arena.address_annotation() != ""


@jumping_time
async def test_working_load_balancer_is_not_replaced_before_all_writes_of_the_replacement_are_allowed() -> None:
    arena = Arena()
    async with arena.at_rest():
        present = arena.load_balancer()
        assert present is not None
        # Each change takes two writes: kube-vip withdraws the other address before it announces this one.
        for _ in range(WRITE_BURST // 2 - 2):
            OTHER_ANNOTATION.change(arena)
            await asyncio.sleep(0.5)
        arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
        await asyncio.sleep(10)
        assert arena.load_balancer() == present
        assert arena.program.address("web") == arena.address_annotation() != ""
        assert arena.events("web", Reason.REPLACING) == []
        await asyncio.sleep(WRITE_BURST * WRITE_INTERVAL_SECONDS)
        replacement = arena.load_balancer()
        assert replacement is not None
        assert replacement["spec"]["workloadType"] == "vm"


@pytest.mark.parametrize("used", range(6, 13))
def test_started_replacement_is_completed_without_a_delay(used: int) -> None:
    @jumping_time
    async def scenario() -> None:
        arena = Arena()
        async with arena.at_rest():
            before = len(arena.writes())
            while len(arena.writes()) - before < used:
                OTHER_ANNOTATION.change(arena)
                await asyncio.sleep(0.5)
            arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
            withdrawn = 0
            for _ in range(600):
                await asyncio.sleep(1)
                present = arena.load_balancer()
                withdrawn += not arena.address_annotation() and (
                    present is None or present["spec"]["workloadType"] != "vm"
                )
            assert present is not None
            assert present["spec"]["workloadType"] == "vm"
            assert withdrawn <= 10

    scenario()


@jumping_time
async def test_hundred_services_created_at_once_cause_no_warning() -> None:
    arena = Arena()
    names = [f"web-{number}" for number in range(100)]
    async with arena.at_rest():
        arena.program.create(*names)
        await asyncio.sleep(10)
        assert all(arena.program.address(name) for name in names)
        assert [event["reason"] for event in arena.guest.events() if event["type"] == "Warning"] == []


@jumping_time
async def test_persistent_warning_is_emitted_once_in_two_hours_and_again_after_a_restart() -> None:
    arena = Arena()
    arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: "static"}}})
    for number in range(1, 3):
        async with arena.program.live():
            await asyncio.sleep(2 * REPEAT_SECONDS)
        assert len(arena.events("web", Reason.INVALID_ANNOTATION)) == number


def test_both_controllers_have_the_same_reason_for_a_conflict() -> None:
    assert str(Reason.FIELD_CONFLICT) == str(NodeReason.FIELD_CONFLICT)
