"""The condition in a Service's status: what it says, when it is written, and whose other conditions stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LOAD_BALANCER_READY, PRIMARY_SERVICE, SERVICE_FINALIZER
from tests.worlds.builders import ADDRESS, LB_NAME, allocated, marked, served, service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Document, MemoryServer, refused
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
THEIRS: Document = {
    "type": "example.com/Audited",
    "status": "True",
    "reason": "Looked",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def days() -> Iterator[str]:
    """Yield a later time of day each time."""
    return (f"2026-03-{day:02d}T00:00:00Z" for day in range(1, 29))


async def stage_with(asked: Any, *balancers: Any) -> ServiceControllerWorld:
    """Return a started stage whose clock goes on by a day with each look."""
    stage, day = ServiceControllerWorld(), days()
    stage.guest.put(SERVICES, asked)
    for one in balancers:
        stage.harvester.put(LOAD_BALANCERS, one)
    await stage.start()
    stage.controller.clock = lambda: next(day)
    return stage


def conditions(guest: MemoryServer) -> list[Document]:
    """Return the conditions of the Service."""
    found: list[Document] = guest.of(SERVICES)[KEY].get("status", {}).get("conditions", [])
    return found


def ours(guest: MemoryServer) -> Document:
    """Return our condition."""
    (found,) = (one for one in conditions(guest) if one["type"] == LOAD_BALANCER_READY)
    return found


async def test_true_goes_with_the_patch_that_brings_the_address() -> None:
    stage = await stage_with(service())
    await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status", f"POST {LB_NAME}"]
    assert conditions(stage.guest) == []
    stage.harvester.put(LOAD_BALANCERS, marked(uid="uid-1", ip=ADDRESS, pool="lan"))
    await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status", f"PUT {LB_NAME}"]
    assert ours(stage.guest) == {
        "type": LOAD_BALANCER_READY,
        "status": "True",
        "reason": "EnsuredLoadBalancer",
        "message": f"The load balancer has address {ADDRESS}",
        "lastTransitionTime": "2026-03-04T00:00:00Z",
    }
    await stage.reconcile(KEY)
    assert stage.writes() == []


async def test_false_says_what_the_event_says_and_keeps_its_time() -> None:
    stage = await stage_with(service(), marked(message=EXHAUSTED))
    for _ in range(3):
        await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status"]
    first = ours(stage.guest)
    assert (first["status"], first["reason"]) == ("False", "PoolExhausted")
    assert first["message"] == stage.recorder.texts[-1]
    stage.harvester.put(LOAD_BALANCERS, marked(message="fail to get allocator lab"))
    await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status"]
    second = ours(stage.guest)
    assert second["reason"] == "NoMatchingPool"
    assert second["lastTransitionTime"] == first["lastTransitionTime"], "False it was, and False it is"
    stage.harvester.put(LOAD_BALANCERS, marked(ip=ADDRESS, pool="lan"))
    await stage.reconcile(KEY)
    assert ours(stage.guest)["status"] == "True"
    assert ours(stage.guest)["lastTransitionTime"] > first["lastTransitionTime"]


async def test_conditions_of_others_stay_also_those_that_were_not_seen_yet() -> None:
    stage = await stage_with(service(), marked(ip=ADDRESS, pool="lan"))
    stage.guest.lagging = True
    stage.guest.change(SERVICES, KEY, {"status": {"conditions": [THEIRS]}})
    stage.guest.catch_up()
    await stage.settle()
    more = {**THEIRS, "type": "example.com/Other"}
    unseen = stage.guest.of(SERVICES)[KEY]
    unseen["status"]["conditions"] = [THEIRS, more]
    await stage.reconcile(KEY)
    assert [one["type"] for one in conditions(stage.guest)] == [THEIRS["type"], more["type"], LOAD_BALANCER_READY]


async def test_it_goes_with_the_service_that_asks_for_no_load_balancer_any_more() -> None:
    stage = await stage_with(service(), marked(ip=ADDRESS, pool="lan", finalizer=True))
    await stage.reconcile(KEY)
    keeps = {"status": {"conditions": [THEIRS, *conditions(stage.guest)]}, "spec": {"type": "ClusterIP"}}
    finalizers = {"metadata": {"finalizers": ["example.com/keep", SERVICE_FINALIZER]}}
    stage.guest.change(SERVICES, KEY, keeps | finalizers)
    stage.writes()
    await stage.reconcile(KEY)
    assert conditions(stage.guest) == [THEIRS]
    assert stage.guest.of(SERVICES)[KEY]["metadata"]["finalizers"] == ["example.com/keep"]
    assert stage.writes()[-1] == f"DELETE {LB_NAME}", stage.writes()


async def test_it_goes_when_it_is_all_that_is_left() -> None:
    """A Service that waited for a Harvester that never answered, with an address of its user, has nothing else."""
    stage = await stage_with(served(ours=False))
    stage.guest.change(SERVICES, KEY, {"spec": {"type": "ClusterIP"}, "status": {"conditions": [own_condition()]}})
    await stage.settle()
    assert stage.woken == [KEY]
    await stage.reconcile(KEY)
    assert conditions(stage.guest) == []
    assert stage.guest.of(SERVICES)[KEY]["status"]["loadBalancer"]["ingress"][0]["ip"] == ADDRESS
    await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status"]


def own_condition(**more: Any) -> Document:
    """Return our condition, as it is stored."""
    return {**THEIRS, "type": LOAD_BALANCER_READY, "status": "False", **more}


async def test_a_service_of_the_go_provider_is_not_written_for_it() -> None:
    stage = await stage_with(served(condition=False), allocated())
    await stage.reconcile(KEY)
    assert stage.writes() == []


async def test_it_follows_the_generation_of_what_it_speaks_of() -> None:
    stage = await stage_with(service(), marked(ip=ADDRESS, pool="lan"))
    await stage.reconcile(KEY)
    stage.guest.change(SERVICES, KEY, {"metadata": {"generation": 2}, "spec": {"sessionAffinity": "None"}})
    await stage.reconcile(KEY)
    assert ours(stage.guest)["observedGeneration"] == 2
    stage.writes()
    await stage.reconcile(KEY)
    assert stage.writes() == []


@jumping_time
async def test_it_is_not_true_of_a_service_whose_address_was_withdrawn() -> None:
    primary = served("p", uid="u-p")
    secondary = service(
        ports=({"port": 81, "protocol": "TCP", "nodePort": 30081},), annotations={PRIMARY_SERVICE: "shop/p"}
    )
    stage = ServiceControllerWorld()
    for one in (primary, secondary):
        stage.guest.put(SERVICES, one)
    stage.harvester.put(LOAD_BALANCERS, allocated(primary, "demo-shop-p-x"))
    await stage.start()
    for _ in range(2):
        await stage.reconcile(KEY)
    assert said(stage) == [("True", "EnsuredLoadBalancer")]
    stage.guest.change(SERVICES, KEY, {"metadata": {"annotations": {PRIMARY_SERVICE: None}}})
    await stage.reconcile(KEY)
    assert stage.guest.of(SERVICES)[KEY]["status"]["loadBalancer"] in ({}, {"ingress": []}, None)
    assert [status for status, _ in said(stage)] == ["False"]


@jumping_time
async def test_its_message_is_as_harmless_as_an_events() -> None:
    hostile = "no\n\x1b[31m password=hunter2" + " and more" * 500
    stage = await stage_with(service())
    stage.harvester.fault = lambda call: refused(403, "Forbidden", hostile) if call.verb == "POST" else None
    for _ in range(3):
        with suppress(CCMError):
            await stage.reconcile(KEY)
    (condition,) = stage.guest.of(SERVICES)[KEY]["status"]["conditions"]
    assert condition["message"].isprintable()
    assert "hunter2" not in condition["message"]
    assert len(condition["message"]) <= 1024


def said(stage: ServiceControllerWorld) -> list[tuple[str, str]]:
    """Return status and reason of the conditions of the Service."""
    return [(one["status"], one["reason"]) for one in stage.guest.of(SERVICES)[KEY]["status"].get("conditions", [])]
