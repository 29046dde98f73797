"""The condition LoadBalancerReady of a Service: status, reason, times, and the conditions of other controllers."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import ANNOUNCED_AS, KUBE_VIP_ADDRESSES, LOAD_BALANCER_READY, WORKLOAD_TYPE
from tests.support.builders import ADDRESS, marked, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, document_of, refused
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
LB_KEY = "vms/demo-shop-web-df804e86"
OTHER: Document = {"type": "example.com/Audited", "status": "True", "reason": "Audited", "message": ""}


@pytest.fixture
def new_program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return a program whose wall clock advances at every reading."""
    times: Iterator[str] = (f"2026-03-01T00:{number // 60:02}:{number % 60:02}Z" for number in count())
    monkeypatch.setattr("harvester_ccm.controllers.service.wall_time", lambda: next(times))
    return Program(guest_server(), Harvester(), "demo")


def test_condition_reports_the_state_and_when_it_changed(new_program: Program) -> None:
    program = new_program

    @jumping_time
    async def run() -> None:
        program.put(service())
        program.harvester.put(LOAD_BALANCERS, document_of(marked(message=EXHAUSTED)))
        async with program.live():
            await asyncio.sleep(60)
            pending = program.condition()
            assert (pending["status"], pending["reason"]) == ("False", "PoolExhausted")
            assert pending["message"] == program.warnings()[-1]
            status: Document = {
                "conditions": [{"type": "Ready", "status": "False", "message": "fail to get allocator lab"}]
            }
            program.harvester.change(LOAD_BALANCERS, LB_KEY, {"status": status})
            await asyncio.sleep(60)
            second = program.condition()
            assert second["reason"] == "NoMatchingPool"
            assert second["lastTransitionTime"] == pending["lastTransitionTime"], "the status is still False"
            program.harvester.put(LOAD_BALANCERS, document_of(marked(ip=ADDRESS, pool="lan")))
            await asyncio.sleep(60)
            ready = program.condition()
            assert ready["lastTransitionTime"] > pending["lastTransitionTime"]
            assert (ready["status"], ready["reason"], ready["message"]) == (
                "True",
                "EnsuredLoadBalancer",
                f"The load balancer has address {ADDRESS}",
            )
            program.change(metadata={"generation": 2}, spec={"sessionAffinity": "None"})
            await asyncio.sleep(60)
            assert program.condition()["observedGeneration"] == 2

    run()


@jumping_time
async def test_conditions_of_other_controllers_stay() -> None:
    program = Program(guest_server(), Harvester(), "demo")
    program.put(service(finalizers=["example.com/keep"]))
    async with program.live():
        await asyncio.sleep(5)
        program.guest.lagging = True
        program.change(status={"conditions": [OTHER, program.condition()]})
        program.harvester.remove(LOAD_BALANCERS, LB_KEY)
        await asyncio.sleep(5)
        program.guest.catch_up()
        await asyncio.sleep(60)
        assert {one["type"] for one in program.service()["status"]["conditions"]} == {
            OTHER["type"],
            LOAD_BALANCER_READY,
        }
        program.change(spec={"type": "ClusterIP"})
        await asyncio.sleep(60)
    assert program.service()["status"]["conditions"] == [OTHER]
    assert program.service()["metadata"]["finalizers"] == ["example.com/keep"]


@jumping_time
async def test_condition_is_written_if_a_policy_rejects_the_finalizer() -> None:
    program = Program(guest_server(), Harvester(), "demo")
    denied = refused(422, "Invalid", "denied request: no finalizers here")

    def policy(call: Call) -> KubeError | None:
        return denied if call.verb == "PATCH" and "finalizers" in call.body.get("metadata", {}) else None

    program.guest.fault = policy
    async with program.live():
        program.create("web")
        await asyncio.sleep(300)
        assert "no finalizers here" in program.condition()["message"]
        patches = [call.body for call in program.guest.calls if call.verb == "PATCH" and "/services/" in call.path]
        assert sum("status" in body for body in patches) == 1


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@jumping_time
async def test_condition_that_another_client_removed_is_written_again(*, running: bool) -> None:
    program = Program(guest_server(), Harvester(), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        before = program.condition()
        if running:
            program.change(status={"conditions": None})
            await asyncio.sleep(10)
            assert program.condition()["message"] == before["message"]
    program.change(status={"conditions": None})
    async with program.live():
        await asyncio.sleep(10)
        assert (program.condition()["status"], program.condition()["message"]) == ("True", before["message"])
        assert set(program.annotations()) == {ANNOUNCED_AS, KUBE_VIP_ADDRESSES}


AWAY = refused(500, "InternalError", 'failed calling webhook "v.harvesterhci.io": connection refused')
OUT_OF_REACH = Unreachable("no route to host")


@pytest.mark.parametrize("error", [AWAY, OUT_OF_REACH], ids=["webhook", "Harvester"])
@jumping_time
async def test_change_that_harvester_does_not_take_is_in_the_condition_of_a_service_with_an_address(
    error: KubeError,
) -> None:
    """The listeners of a VM load balancer forward to a node port that no node has any more."""
    program = Program(with_nodes(guest_server()), with_machines(Harvester()), "demo")
    program.put(service(annotations={WORKLOAD_TYPE: "vm"}))
    async with program.live():
        await asyncio.sleep(10)
        assert program.condition()["status"] == "True"
        program.harvester.fault = lambda call: error if call.verb == "PUT" else None
        program.change(spec={"ports": [{"port": 80, "protocol": "TCP", "nodePort": 31999}]})
        await asyncio.sleep(60)
        condition = program.condition()
        assert (condition["status"], condition["reason"]) == ("False", "HarvesterUnavailable")
        assert condition["message"] == program.warnings()[-1]
        assert program.address()
        program.harvester.fault = None
        await asyncio.sleep(60)
        assert program.condition()["status"] == "True"
    (balancer,) = program.harvester.items(LOAD_BALANCERS)
    assert balancer["spec"]["listeners"][0]["backendPort"] == 31999


@pytest.mark.parametrize(
    "pending", [{"status": {"address": ""}}, {"metadata": {"labels": None}}], ids=["status", "marks"]
)
@jumping_time
async def test_outage_without_a_change_for_clients_leaves_the_condition(pending: Document) -> None:
    """An administrator changes the load balancer, and the change cannot be reverted."""
    program = Program(guest_server(), Harvester(), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        program.harvester.fault = lambda call: AWAY if call.verb == "PUT" else None
        program.harvester.change(LOAD_BALANCERS, next(iter(program.harvester.of(LOAD_BALANCERS))), pending)
        await asyncio.sleep(60)
        assert program.condition()["status"] == "True"
