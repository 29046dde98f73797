"""Somebody else undoes what the program writes, without end: how often it writes, and what it tells of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from harvester_ccm.kube.brakes import MADE_AT_ONCE, MADE_PAUSE, UNDONE_AT_ONCE, UNDONE_PAUSE
from harvester_ccm.kube.informer import RELIST_MINUTES
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.names import PRIMARY_SERVICE, SERVICE_FINALIZER, WORKLOAD_TYPE, NodeReason, Reason
from tests.worlds.builders import service
from tests.worlds.clock import JumpingLoop, jumping_time
from tests.worlds.fights import (
    BY_ANNOTATION,
    BY_STATUS,
    FIGHTS,
    MINUTE,
    NODE,
    SERVICE,
    Arena,
    Fight,
    calls_per_minute,
    strip_annotation,
)
from tests.worlds.memory_server import Call, placed, refused

MOST = 6
"""Writes in a minute."""
FEW, MANY = 8, 20
"""Minutes of a fight: either is several pauses long."""


def in_jumping_time(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(work)


def changes(calls: list[Call]) -> list[Call]:
    """Return the writes that are no Events."""
    return [one for one in calls if one.is_write and "/events" not in one.path]


@jumping_time
async def test_where_nothing_changes_there_are_only_the_lists_of_now_and_then() -> None:
    arena = Arena()
    async with arena.at_rest():
        minutes = await calls_per_minute(arena, None, 60)
    calls = [call for minute in minutes for call in minute]
    assert {call.verb for call in calls} <= {"GET"}
    assert all(placed(call.path).name == "" for call in calls)
    assert max(Counter(call.path for call in calls).values(), default=0) <= 60 / RELIST_MINUTES[0]


@pytest.mark.parametrize("fight", FIGHTS.values(), ids=FIGHTS.keys())
def test_a_fight_is_damped_and_told_once(fight: Fight, *, thorough: bool) -> None:
    async def scene() -> None:
        arena = Arena()
        async with arena.at_rest():
            before = arena.shown()
            minutes = await calls_per_minute(arena, fight, MANY if thorough else FEW)
            told = arena.told(fight.about, Reason.CONTESTED)
            # It is left off: all is right again by and by, without another word.
            await asyncio.sleep(UNDONE_PAUSE)
            assert arena.shown() == before
            assert arena.told(fight.about, Reason.CONTESTED) == told
        assert max(len(changes(calls)) for calls in minutes) <= MOST, [len(changes(calls)) for calls in minutes]
        requests = [len([one for one in calls if one.is_write or placed(one.path).name]) for calls in minutes]
        assert max(requests[1:]) <= MOST, requests
        if not fight.about:
            assert told == []
            return
        ((count, text),) = told
        assert count == 1
        assert fight.field in text
        assert (f"({fight.manager}" in text) == bool(fight.manager)

    in_jumping_time(scene())


@jumping_time
async def test_what_is_undone_now_and_then_is_put_right_at_once() -> None:
    arena = Arena()
    async with arena.at_rest():
        for _ in range(10):
            for _ in range(UNDONE_AT_ONCE):
                strip_annotation(arena)
                await asyncio.sleep(1)
                assert arena.address_annotation() == arena.program.address("web")
            await asyncio.sleep(UNDONE_AT_ONCE * UNDONE_PAUSE)
        assert arena.told("web", Reason.CONTESTED) == []


@jumping_time
async def test_another_fight_after_quiet_is_told_again() -> None:
    arena = Arena()
    async with arena.at_rest():
        await calls_per_minute(arena, BY_STATUS, 5)
        await asyncio.sleep(10 * MINUTE)
        assert [count for count, _ in arena.told("web", Reason.CONTESTED)] == [1]
        await calls_per_minute(arena, BY_STATUS, 5)
        assert sum(count for count, _ in arena.told("web", Reason.CONTESTED)) == 2


@jumping_time
async def test_a_fight_about_one_thing_does_not_hold_up_another() -> None:
    arena = Arena()
    async with arena.at_rest():
        fight = asyncio.create_task(calls_per_minute(arena, BY_ANNOTATION, 10))
        await asyncio.sleep(2 * MINUTE)
        for port in range(81, 91):
            arena.guest.change(SERVICES, SERVICE, {"spec": {"ports": [{"port": port, "nodePort": 30080}]}})
            await asyncio.sleep(1)
            (shown,) = arena.guest.of(SERVICES)[SERVICE]["status"]["loadBalancer"]["ingress"]
            assert [one["port"] for one in shown["ports"]] == [port]
        await fight


@jumping_time
async def test_a_service_in_a_fight_is_let_go_at_once() -> None:
    arena = Arena()
    async with arena.at_rest():
        fight = asyncio.create_task(calls_per_minute(arena, BY_STATUS, 10))
        await asyncio.sleep(3 * MINUTE)
        arena.guest.delete(SERVICES, SERVICE)
        await asyncio.sleep(10)
        assert SERVICE not in arena.guest.of(SERVICES)
        assert arena.load_balancer() is None
        await fight


@jumping_time
async def test_load_balancers_made_and_deleted_without_end_wait_and_it_is_told_once() -> None:
    arena = Arena()
    async with arena.at_rest():
        before = len(arena.harvester.calls)
        for number in range(300):
            kind = "ClusterIP" if number % 2 else "LoadBalancer"
            arena.guest.change(SERVICES, SERVICE, {"spec": {"type": kind}})
            await asyncio.sleep(1)
        made = [one for one in arena.harvester.calls[before:] if one.verb in {"POST", "DELETE"}]
        assert len(made) <= MADE_AT_ONCE + 300 / MADE_PAUSE
        # What the user changes is followed each time: the announcement ends with the change, whatever waits.
        assert len([one for one in arena.guest.calls if one.verb == "PATCH"]) <= 1.3 * 300
        assert [count for count, _ in arena.told("web", Reason.MADE_TOO_OFTEN)] == [1]
        arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "LoadBalancer"}})
        await asyncio.sleep(3 * MINUTE)
        assert arena.program.address("web")


@pytest.mark.parametrize(
    ("annotation", "values"),
    [(WORKLOAD_TYPE, ("vm", "cluster")), (PRIMARY_SERVICE, ("shop/first", None))],
    ids=["workload type", "primary"],
)
def test_what_serves_goes_on_serving_while_it_may_not_be_replaced(
    annotation: str, values: tuple[str, str | None]
) -> None:
    async def scene() -> None:
        arena = Arena()
        async with arena.at_rest():
            other = {"port": 81, "protocol": "TCP", "nodePort": 30081}
            arena.program.put(service("first", uid="uid-of-first", ports=(other,)))
            await asyncio.sleep(5)
            silent, minutes = 0, []
            for _ in range(9):
                before = len(arena.calls)
                for number in range(20):
                    change = {"metadata": {"annotations": {annotation: values[number % 2]}}}
                    arena.guest.change(SERVICES, SERVICE, change)
                    await asyncio.sleep(3)
                    silent += 3 * (not arena.program.address("web") or not arena.is_announced())
                minutes.append(len(changes(arena.calls[before:])))
            # From then on one change of its mind is followed each two minutes.
            assert max(minutes[3:]) <= 2 * MOST, minutes
            assert sum(minutes[3:]) <= MOST * len(minutes[3:]), minutes
            assert silent <= 9 * MINUTE / 6
            assert [count for count, _ in arena.told("web", Reason.MADE_TOO_OFTEN)] == [1]
            arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {annotation: values[0]}}})
            await asyncio.sleep(3 * MINUTE)
            found = arena.load_balancer()
            assert (found["spec"]["workloadType"] if found else None) == ("vm" if annotation == WORKLOAD_TYPE else None)

    in_jumping_time(scene())


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(WORKLOAD_TYPE, "vm"), (PRIMARY_SERVICE, "shop/first")],
    ids=["replaced", "given up for the address of another one"],
)
def test_what_serves_is_given_up_when_another_one_could_be_made_at_once(annotation: str, value: str) -> None:
    async def scene() -> None:
        arena = Arena()
        other = {"port": 81, "protocol": "TCP", "nodePort": 30081}
        arena.program.put(service("first", uid="uid-of-first", ports=(other,)))
        async with arena.program.live():
            await asyncio.sleep(10)
            for number in range(MADE_AT_ONCE - 2):
                arena.guest.change(SERVICES, SERVICE, {"spec": {"type": ("ClusterIP", "LoadBalancer")[number % 2]}})
                await asyncio.sleep(3)
            before = arena.program.address("web")
            assert before
            arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {annotation: value}}})
            await asyncio.sleep(10)
            assert arena.program.address("web") == arena.address_annotation() == before
            ((_, text),) = arena.told("web", Reason.MADE_TOO_OFTEN)
            # One more would have been permitted.
            assert f"{MADE_AT_ONCE} times" not in text
            assert "what serves stays until both are due" in text

    in_jumping_time(scene())


@jumping_time
async def test_many_services_and_many_edits_are_not_held_up() -> None:
    arena = Arena()
    names = [f"web-{number}" for number in range(100)]
    async with arena.at_rest():
        arena.program.create(*names)
        await asyncio.sleep(5)
        assert all(arena.program.address(name) for name in names)
        for number in range(60):
            ports = [{"port": 80 + number % 2, "nodePort": 30080}]
            arena.guest.change(SERVICES, SERVICE, {"spec": {"ports": ports}})
            await asyncio.sleep(0.2)
            (shown,) = arena.guest.of(SERVICES)[SERVICE]["status"]["loadBalancer"]["ingress"]
            assert [one["port"] for one in shown["ports"]] == [80 + number % 2]
        assert [one for one in arena.guest.events() if one["type"] == "Warning"] == []


@jumping_time
async def test_a_service_that_is_another_writers_at_the_moment_is_let_go_at_once() -> None:
    """The fight has gone on until just before, and what the other one wrote still stands there."""
    arena = Arena()
    async with arena.at_rest():
        await calls_per_minute(arena, BY_ANNOTATION, 1)
        arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "ClusterIP"}})
        await asyncio.sleep(10)
        assert arena.address_annotation() is None
        assert arena.load_balancer() is None


@jumping_time
async def test_a_service_whose_annotation_is_fought_about_is_let_go_at_once() -> None:
    arena = Arena()
    async with arena.at_rest():
        fight = asyncio.create_task(calls_per_minute(arena, BY_ANNOTATION, 2))
        await asyncio.sleep(MINUTE)
        before = len(arena.calls)
        arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "ClusterIP"}})
        await asyncio.sleep(10)
        assert arena.load_balancer() is None
        assert len(changes(arena.calls[before:])) <= MOST
        await fight


@jumping_time
async def test_a_type_that_is_changed_now_and_then_is_followed_at_once() -> None:
    """Harvester gives the same address again: that it is written once more is nobody's doing."""
    arena = Arena()
    async with arena.at_rest():
        given = arena.program.address("web")
        for _ in range(7):
            # An API server empties the status with the change of the type.
            other = {"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": None}}
            arena.guest.change(SERVICES, SERVICE, other)
            await asyncio.sleep(MINUTE / 2)
            arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "LoadBalancer"}})
            await asyncio.sleep(MINUTE / 2)
            assert arena.program.address("web") == arena.address_annotation() == given
        assert arena.told("web", Reason.CONTESTED) == []


@jumping_time
async def test_no_load_balancer_is_replaced_while_its_address_cannot_be_withdrawn() -> None:
    arena = Arena()
    async with arena.at_rest():
        before = arena.load_balancer()
        assert before is not None
        fight = asyncio.create_task(calls_per_minute(arena, BY_ANNOTATION, 5))
        await asyncio.sleep(MINUTE)
        arena.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
        await asyncio.sleep(10)
        present = arena.load_balancer()
        assert present is not None
        assert present["metadata"]["uid"] == before["metadata"]["uid"]
        # The next withdrawal is due two minutes after the last write.
        await fight
        present = arena.load_balancer()
        assert present is not None
        assert present["spec"]["workloadType"] == "vm"


@jumping_time
async def test_a_fight_about_the_internal_ip_is_told_once() -> None:
    arena = Arena()
    theirs = [{"type": "InternalIP", "address": "10.9.0.77"}, {"type": "Hostname", "address": NODE}]
    kubelet = Fight(
        10.0,
        lambda here: here.overwrite(here.guest, NODES, NODE, {"status": {"addresses": theirs}}, "kubelet"),
        NODE,
        "addresses",
    )
    async with arena.at_rest():
        await calls_per_minute(arena, kubelet, 30)
        first = arena.told(NODE, NodeReason.INTERNAL_IP_CHANGED)
        # Its own address is waited for first, and then another one takes its place.
        assert [count for count, _ in first] == [1, 1]
        await asyncio.sleep(30 * MINUTE)
        await calls_per_minute(arena, kubelet, 30)
        second = arena.told(NODE, NodeReason.INTERNAL_IP_CHANGED)
        assert sum(count for count, _ in second) == 4, "another fight"


@jumping_time
async def test_a_service_that_may_not_be_let_go_is_not_written_without_end_in_a_fight(*, thorough: bool) -> None:
    arena = Arena()
    denied = refused(422, "Invalid", "denied request: no finalizers here")
    async with arena.at_rest():
        arena.guest.fault = lambda call: denied if FINALIZERS in metadata_of(call) else None
        arena.guest.change(SERVICES, SERVICE, {"spec": {"type": "ClusterIP"}})
        minutes = await calls_per_minute(arena, BY_ANNOTATION, MANY if thorough else FEW)
        assert max(len(changes(calls)) for calls in minutes[1:]) <= MOST, [len(changes(calls)) for calls in minutes]
        assert len(changes(minutes[0])) <= 4 * MOST, "until it is clear that it stays refused"
        arena.guest.fault = None
        await asyncio.sleep(3 * MINUTE)
        assert SERVICE_FINALIZER not in arena.program.service("web")["metadata"]["finalizers"]


FINALIZERS = "$deleteFromPrimitiveList/finalizers"


def metadata_of(call: Call) -> dict[str, Any]:
    """Return what a patch writes to the metadata."""
    return (call.body or {}).get("metadata") or {} if call.verb == "PATCH" else {}
