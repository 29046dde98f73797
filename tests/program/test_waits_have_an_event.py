"""A Service waits for a request to Harvester that never succeeds: its condition and an Event say so."""

import asyncio

import pytest

from harvester_ccm.names import IP_POOL, Reason
from tests.program.test_backends import World
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import refused

REQUESTED = service("fixed", uid="uid-of-fixed", annotations={IP_POOL: "lan"}, spec={"loadBalancerIP": "10.0.0.7"})


@pytest.mark.parametrize(
    ("request_path", "name"),
    [("/virtualmachines", "web"), ("/virtualmachineinstances", "web"), ("selfsubjectrulesreviews", "fixed")],
    ids=["VMs", "instances of VMs", "permission for IP pools"],
)
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
@jumping_time
async def test_service_that_waits_for_a_request_that_fails_has_an_event(request_path: str, name: str) -> None:
    world = World()
    world.put(REQUESTED)
    world.harvester.fault = lambda call: refused(503, "", "no") if call.path.endswith(request_path) else None
    async with world.live():
        await asyncio.sleep(30)
        assert world.condition(name)["reason"] == Reason.HARVESTER_UNAVAILABLE
        assert world.warnings(name)
