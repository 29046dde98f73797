"""Identity of the cluster behind a client, on simulated time."""

import asyncio

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.errors import ClusterReplaced, Forbidden
from harvester_ccm.kube.identity import ServerIdentity
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer, refused

EFFECT = "objects get no owner"


def cluster(uid: str) -> MemoryServer:
    """Return a cluster whose kube-system namespace has this UID."""
    server = MemoryServer()
    server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": uid}})
    return server


@jumping_time
@pytest.mark.kube("A credential that leads to another server, namespace or cluster raises ClusterReplaced")
async def test_other_cluster_is_detected_when_the_identity_is_confirmed() -> None:
    client = MemoryClient(cluster("one"), cluster="guest")
    identity = ServerIdentity(client, without=EFFECT)
    assert await identity.learn() == "one"
    await identity.confirm()
    client.server = cluster("other")
    with pytest.raises(ClusterReplaced, match="had UID one and has other now"):
        await identity.confirm()


@jumping_time
async def test_uid_is_empty_and_a_warning_is_logged_when_reading_the_namespace_is_forbidden() -> None:
    server = cluster("one")
    server.fault = lambda _call: refused(403, "Forbidden", "namespaces is forbidden")
    identity = ServerIdentity(MemoryClient(server, cluster="guest"), without=EFFECT)
    with capture_logs() as logs:
        assert await identity.learn() == ""
    assert [(entry["log_level"], entry["effect"]) for entry in logs] == [("warning", EFFECT)]
    await identity.confirm()
    assert len(server.calls) == 1


@jumping_time
async def test_confirmation_fails_when_the_permission_was_removed_later() -> None:
    server = cluster("one")
    identity = ServerIdentity(MemoryClient(server, cluster="guest"), without=EFFECT)
    await identity.learn()
    server.fault = lambda _call: refused(403, "Forbidden", "namespaces is forbidden")
    with pytest.raises(Forbidden):
        await identity.confirm()


@jumping_time
async def test_unavailable_server_is_retried() -> None:
    server = cluster("one")
    server.fault = lambda _call: refused(503, "ServiceUnavailable", "away")
    identity = ServerIdentity(MemoryClient(server, cluster="guest"), without=EFFECT)
    learning = asyncio.create_task(identity.learn())
    await asyncio.sleep(600)
    assert not learning.done()
    server.fault = None
    assert await learning == "one"
