"""Leases that are hard to produce on an API server: with odd values, and from before the restore of a backup."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.builtin import LEASES
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.lease import LeaderElector, LeaseLost, LeaseTimes
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


@jumping_time
async def test_lease_of_another_uid_with_the_same_version_is_not_renewed() -> None:
    """After a restore, another process created the Lease, and it got the version of the earlier one by chance."""
    server = MemoryServer()
    client = MemoryClient(server, cluster="guest")
    elector = LeaderElector(
        client, WriteFence(shut=True), namespace="kube-system", name="lock", identity="me", times=LeaseTimes()
    )
    await elector.acquire()
    server.remove(LEASES, "kube-system/lock")
    server.version -= 2
    metadata = {"name": "lock", "namespace": "kube-system"}
    server.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "another", "leaseDurationSeconds": 60}})
    async with asyncio.timeout(60):
        with pytest.raises(LeaseLost, match="another"):
            await elector.hold()
    assert server.of(LEASES)["kube-system/lock"]["spec"]["holderIdentity"] == "another"
