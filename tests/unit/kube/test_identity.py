"""Who the cluster behind a client is."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.identity import FORBIDDEN_PAUSE, ClusterReplaced, GuestIdentity
from harvester_ccm.model.core import NAMESPACES
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import MemoryClient, MemoryServer, refused


def cluster(uid: str) -> MemoryServer:
    """Return a cluster whose kube-system namespace has this UID."""
    server = MemoryServer()
    server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": uid}})
    return server


@jumping_time
async def test_it_is_asked_once_and_after_each_doubt() -> None:
    server = cluster("one")
    identity = GuestIdentity(MemoryClient(server, cluster="guest"))
    work = asyncio.create_task(identity.run())
    assert await identity.answered() == "one"
    await asyncio.sleep(3600)
    assert len(server.calls) == 1
    identity.doubt()
    await asyncio.sleep(1)
    assert len(server.calls) == 2
    work.cancel()


@jumping_time
async def test_another_cluster_ends_it() -> None:
    client = MemoryClient(cluster("one"), cluster="guest")
    identity = GuestIdentity(client)
    work = asyncio.create_task(identity.run())
    await identity.answered()
    client.server = cluster("other")
    with pytest.raises(ClusterReplaced, match="had UID one and has other now"):
        await identity.confirm()
    with pytest.raises(ClusterReplaced):
        await work


@jumping_time
async def test_what_may_not_be_read_is_asked_for_slowly_until_it_may() -> None:
    server = cluster("one")
    server.fault = lambda _call: refused(403, "Forbidden", "namespaces is forbidden")
    identity, learned = GuestIdentity(MemoryClient(server, cluster="guest")), list[str]()
    identity.on_learned(learned.append)
    with capture_logs() as logs:
        work = asyncio.create_task(identity.run())
        assert await identity.answered() == ""
        await asyncio.sleep(10 * FORBIDDEN_PAUSE)
        assert 9 <= len(server.calls) <= 11
        server.fault = None
        await asyncio.sleep(2 * FORBIDDEN_PAUSE)
    assert learned == ["one"]
    assert [entry["event"][:33] for entry in logs] == ["kube-system namespace not readabl"]
    work.cancel()


@jumping_time
async def test_a_server_that_is_away_is_waited_for() -> None:
    server = cluster("one")
    server.fault = lambda _call: refused(503, "ServiceUnavailable", "away")
    identity = GuestIdentity(MemoryClient(server, cluster="guest"))
    work = asyncio.create_task(identity.run())
    waiting = asyncio.create_task(identity.answered())
    await asyncio.sleep(600)
    assert not waiting.done()
    server.fault = None
    assert await waiting == "one"
    work.cancel()
