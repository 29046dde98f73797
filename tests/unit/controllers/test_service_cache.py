"""The cache of Harvester's load balancers, on a server in memory."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from harvester_ccm.controllers.service import follow_load_balancers
from harvester_ccm.errors import NotServed
from harvester_ccm.kube.informer import Selection
from harvester_ccm.model.harvester import LOAD_BALANCERS
from tests.worlds.builders import LB_NAME, allocated
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer


@jumping_time
async def test_harvester_before_1_2_is_logged_once_and_read_after_its_upgrade() -> None:
    server = MemoryServer()
    server.put(LOAD_BALANCERS, allocated())
    server.unserved = frozenset({LOAD_BALANCERS.api_version})
    informer = follow_load_balancers(MemoryClient(server, cluster="harvester", namespace="vms"), Selection("vms"))
    with capture_logs() as logs:
        following = asyncio.create_task(informer.run())
        await asyncio.sleep(600)
        problems = [informer.problem]
        server.unserved = frozenset()
        await informer.wait_synced()
        following.cancel()
        await asyncio.wait({following})
    assert [one.metadata.name for one in informer.all()] == [LB_NAME]
    assert [type(problem) for problem in (*problems, informer.problem)] == [NotServed, type(None)]
    (detail,) = [entry["detail"] for entry in logs if entry["log_level"] == "error"]
    assert "Harvester before 1.2 is not supported: upgrade Harvester to 1.2 or later" in detail
