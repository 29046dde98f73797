"""Writes of the Service controller that fail, conflict, get no response or have no effect."""

import asyncio
from typing import Any

import pytest

from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import DESCRIPTION, LB_DESCRIPTION
from harvester_ccm.plan.service.ownership.orphans import ORPHAN_GRACE_SECONDS
from tests.support.builders import allocated, served, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, document_of, page, refused
from tests.support.program_world import Harvester, Program, guest_server

KEY = "shop/web"


def new_program(*services: Any, balancer: Any = None) -> Program:
    program = Program(guest_server(), Harvester(), "demo")
    for one in services:
        program.put(one)
    if balancer is not None:
        program.harvester.put(LOAD_BALANCERS, document_of(balancer))
    return program


FAILURES: dict[str, tuple[KubeError, str, bool]] = {
    "denied by the webhook": (
        refused(500, "InternalError", 'admission webhook "v" denied the request: listener has duplicate name x'),
        "SyncLoadBalancerFailed",
        True,
    ),
    "forbidden": (refused(403, "Forbidden", "no"), "HarvesterUnavailable", True),
    "busy": (refused(503, "ServiceUnavailable", "busy"), "HarvesterUnavailable", False),
    "unreachable": (Unreachable("no route"), "HarvesterUnavailable", False),
}


@pytest.mark.parametrize(("error", "reason", "at_once"), FAILURES.values(), ids=FAILURES.keys())
@jumping_time
async def test_failed_creation_is_reported_once_and_retried(error: KubeError, reason: str, at_once: bool) -> None:
    """An error that can pass is reported if it is repeated, any other at once."""
    program = new_program()
    once = [error]
    program.harvester.fault = lambda call: once.pop() if once and call.verb == "POST" else None
    async with program.live():
        await asyncio.sleep(1)
        program.create("web")
        await asyncio.sleep(60)
        assert program.address()
        assert program.reasons() == ([f"web: {reason}"] if at_once else [])
        program.harvester.fault = lambda call: error if call.verb == "POST" else None
        program.create("api")
        program.put(served("old", uid="old"))
        await asyncio.sleep(600)
        assert "old: AddressNotAllocated" in program.reasons()
        assert [one for one in program.reasons() if "api" in one] == [f"api: {reason}"]
        program.harvester.fault = None
        await asyncio.sleep(60)
        assert program.address("api")


@jumping_time
async def test_responses_are_used_before_the_watch_delivers_the_changes() -> None:
    program = new_program()
    for server in (program.guest, program.harvester):
        server.watch_lag = lambda _watch: 3.0
    async with program.live():
        await asyncio.sleep(5)
        program.create("web")
        await asyncio.sleep(60)
        assert program.address()
    assert [line.partition(" ")[0] for line in program.harvester.writes()] == ["POST", "PUT"]
    assert len(program.guest.writes("/services/")) == 2


@jumping_time
async def test_no_load_balancer_is_created_for_a_service_without_the_finalizer() -> None:
    program = new_program(service())
    # Accepted without an effect, as by a webhook that removes finalizers.
    program.guest.deaf_to = lambda call: call.verb == "PATCH"
    async with program.live():
        await asyncio.sleep(600)
    assert program.harvester.writes() == []
    (text,) = program.warnings("web")
    assert "The API server of this cluster accepted the last write, and " in text
    assert "metadata.finalizers" in text
    assert "kubectl get mutatingwebhookconfigurations" in text


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"spec": {"description": "other"}}, "Harvester does not store spec.description"),
        ({"metadata": {"annotations": {LB_DESCRIPTION: None}}}, "With the kubeconfig of Harvester: find"),
    ],
)
@jumping_time
async def test_write_without_effect_is_repeated_if_it_is_of_no_field(change: Document, warning: str) -> None:
    program = new_program(service(annotations={DESCRIPTION: "front"}))
    async with program.live():
        await asyncio.sleep(60)
        program.harvester.deaf_to = lambda call: call.verb == "PUT"
        program.harvester.change(LOAD_BALANCERS, next(iter(program.harvester.of(LOAD_BALANCERS))), change)
        before = len(program.harvester.writes())
        await asyncio.sleep(60)
    assert (len(program.harvester.writes()) == before + 1) is ("spec" in change)
    (text,) = program.warnings()
    assert warning in text


@jumping_time
async def test_load_balancer_of_a_service_that_is_gone_at_the_confirmation_is_an_orphan() -> None:
    program = new_program(served(), balancer=allocated())

    def lose(call: Call) -> None:
        if call.path.endswith("/services/web") and KEY in program.guest.of(SERVICES):
            program.guest.lagging = True
            program.guest.remove(SERVICES, KEY)

    async with program.live():
        await asyncio.sleep(5)
        program.guest.on_sent.append(lose)
        program.guest.delete(SERVICES, KEY)
        await asyncio.sleep(ORPHAN_GRACE_SECONDS + 1)
    assert not program.harvester.of(LOAD_BALANCERS)
    assert program.reasons() == []


@pytest.mark.parametrize("stored", ["finalizer", "UID"])
@jumping_time
@pytest.mark.guarantee("Fields of other controllers survive")
async def test_service_that_changed_since_it_was_read_is_not_overwritten(stored: str) -> None:
    """A patch of finalizers carries the resourceVersion, and every patch carries the UID."""
    program = new_program()
    async with program.live():
        await asyncio.sleep(5)
        program.guest.lagging = True
        program.put(service())
        lines, program.guest._undelivered = program.guest._undelivered, []
        if stored == "finalizer":
            program.change(metadata={"finalizers": ["example.com/keep"]})
        else:
            program.put(service(uid="another"))
        before = program.service()
        states_after_conflicts: list[Document] = []

        def answered(call: Call, error: KubeError | None) -> None:
            if call.verb == "PATCH" and error is not None:
                states_after_conflicts.append(program.service())

        program.guest.on_answered.append(answered)
        for collection, kind, document in lines:
            program.guest._deliver(collection, kind, document)
        await asyncio.sleep(30)
        # The controller reads it after that.
        assert states_after_conflicts == [before]
        program.guest.catch_up()
        await asyncio.sleep(60)
        assert program.address()
        assert set(before["metadata"]["finalizers"]) < set(program.service()["metadata"]["finalizers"])


@pytest.mark.parametrize("existed", [True, False], ids=["service deleted", "orphan"])
@jumping_time
async def test_load_balancer_is_deleted_only_with_its_uid_and_version(*, existed: bool) -> None:
    program = new_program(*([served()] if existed else []), balancer=allocated())
    async with program.live():
        await asyncio.sleep(5)
        if existed:
            program.guest.delete(SERVICES, KEY)
        await asyncio.sleep(60)
    assert not program.harvester.of(LOAD_BALANCERS)
    (deletion,) = [call for call in program.harvester.calls if call.verb == "DELETE"]
    assert set(deletion.body["preconditions"]) == {"uid", "resourceVersion"}


@jumping_time
async def test_404_page_of_a_proxy_does_not_mean_that_an_object_is_deleted() -> None:
    program = new_program(served(), balancer=allocated())
    async with program.live():
        await asyncio.sleep(5)
        program.harvester.fault = lambda call: page() if call.verb == "DELETE" else None
        program.guest.delete(SERVICES, KEY)
        await asyncio.sleep(60)
        assert KEY in program.guest.of(SERVICES)
        program.guest.fault = lambda call: page() if call.verb == "PATCH" else None
        program.create("new")
        program.harvester.fault = None
        await asyncio.sleep(60)
        assert KEY in program.guest.of(SERVICES)
        program.guest.fault = None
        await asyncio.sleep(60)
        assert program.address("new")
    assert list(program.guest.of(SERVICES)) == ["shop/new"]
    assert len(program.harvester.of(LOAD_BALANCERS)) == 1
