"""A process that goes on after its Lease has expired: it says nothing before it ends."""

import asyncio
import math

import pytest
from structlog.testing import capture_logs

from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LB_SERVICE_NAME, WORKLOAD_TYPE
from tests.support.builders import CLUSTER, LB_NAME, service
from tests.support.clock import jumping_time, until
from tests.support.program_world import Harvester, Program, guest_server


@pytest.mark.guarantee("No write is sent without the Lease")
@jumping_time
async def test_process_that_does_not_lead_emits_no_event() -> None:
    program = Program(guest_server(), Harvester(), CLUSTER.name)
    program.put(service())
    with capture_logs() as logs:
        async with program.live():
            await until(lambda: bool(program.address()), seconds=60)
            await asyncio.sleep(10)
            logs.clear()
            events = len(program.guest.events())
            sent = len(program.guest.writes("services/"))
            program.fence.deadline = -math.inf
            # A load balancer to correct, a Service to correct, and a mistake of its user.
            key = f"{CLUSTER.namespace}/{LB_NAME}"
            program.harvester.change(LOAD_BALANCERS, key, {"metadata": {"labels": {LB_SERVICE_NAME: "other"}}})
            program.change(metadata={"annotations": {KUBE_VIP_ADDRESSES: "10.9.9.9", WORKLOAD_TYPE: "wrong"}})
            await asyncio.sleep(60)
            assert len(program.guest.events()) == events
            assert [entry for entry in logs if entry["log_level"] in {"warning", "error"}] == []
            assert len(program.guest.writes("services/")) == sent
            # It goes on when it leads, as after a restart.
            program.fence.deadline = math.inf
            await until(lambda: len(program.guest.events()) > events, seconds=60)
