"""The condition LoadBalancerReady of a Service: status, reason, times, and the conditions of other controllers."""

import asyncio

import pytest

from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LOAD_BALANCER_READY, WORKLOAD_TYPE
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import Document, refused
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

LB_KEY = "vms/demo-shop-web-df804e86"
OTHER: Document = {"type": "example.com/Audited", "status": "True", "reason": "Audited", "message": ""}


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
