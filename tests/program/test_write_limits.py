"""Another controller changes the same fields repeatedly: how often this controller writes, and its Events."""

import asyncio
from collections import Counter

import pytest

from harvester_ccm.kube.informer import RELIST_SECONDS
from harvester_ccm.kube.workqueue import RESYNC_JITTER, RESYNC_SECONDS
from harvester_ccm.kube.write_limit import WRITE_BURST, WRITE_INTERVAL_SECONDS, WRITES_OF_A_ROUND
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import IPAM, SERVICE_FINALIZER, WORKLOAD_TYPE, Reason
from harvester_ccm.plan.service.announcing.sequence import STEP_SECONDS
from harvester_ccm.plan.service.plan import PUBLICATION_WRITES
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
USUAL_SECONDS = WRITE_INTERVAL_SECONDS + 4 * STEP_SECONDS + 4
"""One interval, and the time until kube-vip announces an address again, which takes several steps."""


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
        assert world.state() == correct or len(world.writes()) - before > WRITE_BURST - PUBLICATION_WRITES
        async with conflicting(world, conflict):
            await asyncio.sleep(600)
        assert len(world.writes()) - before <= MAX_WRITES + 5 * 600 / WRITE_INTERVAL_SECONDS
        await asyncio.sleep(WRITE_INTERVAL_SECONDS + 600)
        assert world.state() == correct
        (text,) = world.events(conflict.about, Reason.FIELD_CONFLICT)
        assert conflict.field in text.partition(" overwrites ")[2].partition(". ")[0]


@pytest.mark.parametrize("conflict", CONFLICTS.values(), ids=CONFLICTS.keys())
@jumping_time
async def test_fields_are_right_one_interval_after_the_last_change_of_another_controller(
    conflict: FieldConflict,
) -> None:
    world = ConflictWorld()
    async with world.at_rest():
        correct = world.state()
        async with conflicting(world, conflict):
            await asyncio.sleep(45)
        await asyncio.sleep(USUAL_SECONDS)
        assert world.state() == correct


@pytest.mark.parametrize(
    ("conflict", "writes"),
    [(STRIPPED_ANNOTATION, 2), (OTHER_ANNOTATION, 2), (OTHER_STATUS, 1)],
    ids=["stripped", "annotation", "status"],
)
@pytest.mark.guarantee("Writes are rate-limited")
@jumping_time
async def test_few_writes_per_30_s_remain_for_a_service_in_a_conflict(conflict: FieldConflict, writes: int) -> None:
    """kube-vip announces an address again only after a withdrawal, so its annotation takes two writes."""
    world = ConflictWorld()
    async with world.at_rest(), conflicting(world, conflict):
        await asyncio.sleep(120)
        before = len(world.writes())
        await asyncio.sleep(3600)
        written = len(world.writes()) - before
    assert 3600 / 30 <= written <= writes * (3600 / 30 + 1)


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
        assert len(world.writes()) - before <= WRITE_BURST + WRITES_OF_A_ROUND * 300 / WRITE_INTERVAL_SECONDS
        assert len(world.events("web", Reason.FIELD_CONFLICT)) == 1
        world.guest.change(SERVICES, SERVICE, {"spec": {"type": "LoadBalancer"}})
        await asyncio.sleep(USUAL_SECONDS)
        assert world.address("web") == world.address_annotation() != ""


@pytest.mark.parametrize("ipam", ["pool", "dhcp"])
@pytest.mark.parametrize("pause", [0.05, 1.0, 7.0])
@pytest.mark.guarantee("Writes are rate-limited")
@jumping_time
async def test_workload_type_that_changes_continuously_is_followed_within_the_rate_limit(
    ipam: str, pause: float
) -> None:
    world = ConflictWorld()
    world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: ipam}}})
    async with world.at_rest():
        before = len(world.writes())
        for number in range(int(600 / pause)):
            workload_type = "cluster" if number % 2 else "vm"
            world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: workload_type}}})
            await asyncio.sleep(pause)
        assert len(world.writes()) - before <= WRITE_BURST + WRITES_OF_A_ROUND * 600 / WRITE_INTERVAL_SECONDS
        assert len(world.events("web", Reason.FIELD_CONFLICT)) == 1


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
        await asyncio.sleep(USUAL_SECONDS)
        if last == "ClusterIP":
            assert world.load_balancer() is None
            assert SERVICE_FINALIZER not in world.service()["metadata"]["finalizers"]
            return
        assert world.address("web") == world.address_annotation() != ""
        assert world.condition()["status"] == "True"


@pytest.mark.parametrize(("flips", "pause"), FLIPS.values(), ids=FLIPS.keys())
@pytest.mark.parametrize("last", ["cluster", "vm"])
@pytest.mark.parametrize("ipam", ["pool", "dhcp"])
@jumping_time
async def test_last_workload_type_of_many_is_reached_within_one_interval(
    flips: int, pause: float, last: str, ipam: str
) -> None:
    """With DHCP, nobody gives the cluster load balancer a lease."""
    world = ConflictWorld()
    world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {IPAM: ipam}}})
    async with world.at_rest():
        types = ["vm", "cluster"] if last == "cluster" else ["cluster", "vm"]
        for number in range(flips):
            world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: types[number % 2]}}})
            await asyncio.sleep(pause)
        await asyncio.sleep(USUAL_SECONDS)
        assert world.is_served_by(last, ipam)


async def _use_up(world: ConflictWorld, conflict: FieldConflict, *, writes: int) -> None:
    """Let another controller change fields until this one has written so often."""
    before = len(world.writes())
    while len(world.writes()) - before < writes:
        conflict.change(world)
        await asyncio.sleep(0.5)


@jumping_time
async def test_working_load_balancer_is_not_replaced_before_all_writes_of_the_replacement_are_allowed() -> None:
    world = ConflictWorld()
    async with world.at_rest():
        present = world.load_balancer()
        assert present is not None
        await _use_up(world, OTHER_ANNOTATION, writes=WRITE_BURST)
        world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: "vm"}}})
        await asyncio.sleep(10)
        assert world.load_balancer() == present
        assert world.address("web") == world.address_annotation() != ""
        assert world.events("web", Reason.CHANGING_WORKLOAD_TYPE) == []
        await asyncio.sleep(USUAL_SECONDS - 10)
        assert world.is_served_by("vm", "pool")


@pytest.mark.parametrize("used", range(6, WRITE_BURST + 4))
@pytest.mark.parametrize(
    ("present", "requested", "conflict"),
    [("cluster", "vm", OTHER_ANNOTATION), ("vm", "cluster", OTHER_STATUS)],
    ids=["to VMs", "to the cluster"],
)
@jumping_time
async def test_started_replacement_is_completed_without_a_delay(
    present: str, requested: str, conflict: FieldConflict, used: int
) -> None:
    world = ConflictWorld()
    world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: present}}})
    async with world.at_rest():
        await _use_up(world, conflict, writes=min(used, WRITE_BURST))
        # The present round has a few more writes, each with a value of its own.
        for port in range(81, 81 + used - WRITE_BURST):
            world.guest.change(SERVICES, SERVICE, {"spec": {"ports": [{"port": port, "nodePort": 30000 + port}]}})
            await asyncio.sleep(0.5)
        world.guest.change(SERVICES, SERVICE, {"metadata": {"annotations": {WORKLOAD_TYPE: requested}}})
        interrupted = 0
        for _ in range(120):
            await asyncio.sleep(1)
            is_started = bool(world.events("web", Reason.CHANGING_WORKLOAD_TYPE))
            interrupted += is_started and not world.is_served_by(requested, "pool")
        assert world.is_served_by(requested, "pool")
        assert interrupted <= 3
