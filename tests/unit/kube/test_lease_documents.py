"""Leases with values that no API server stores: the elector waits and raises nothing."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.builtin import LEASES
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.lease import LeaderElector, LeaseTimes
from tests.support.background import running
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer


@jumping_time
@pytest.mark.parametrize(
    "spec",
    [
        {"leaseDurationSeconds": 10**400},
        {"leaseDurationSeconds": "many"},
        {"leaseTransitions": [1]},
        {"renewTime": 5},
        "none",
    ],
)
async def test_odd_lease_ends_no_elector(spec: Any) -> None:
    server = MemoryServer()
    odd = {"holderIdentity": "another", **spec} if isinstance(spec, dict) else spec
    metadata = {"name": "lock", "namespace": "kube-system"}
    server.put(LEASES, {"metadata": metadata, "spec": odd})
    client = MemoryClient(server, cluster="guest")
    elector = LeaderElector(
        client, WriteFence(shut=True), namespace="kube-system", name="lock", identity="me", times=LeaseTimes()
    )
    with capture_logs() as logs:
        async with running(elector.acquire()):
            await asyncio.sleep(60)
            assert elector.holder != "me"
            server.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": ""}})
            await asyncio.sleep(10)
            assert elector.holder == "me"
    assert len([entry for entry in logs if entry["event"] == "lease requests failed"]) <= 1
