"""Writes of a process that may have lost its Lease, that are cancelled, and that are waited for."""

from __future__ import annotations

import asyncio

import pytest

from harvester_ccm.kube.fence import NotLeading, Writes


async def answer() -> bytes:
    return b"{}"


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        pytest.param("/api/v1/namespaces/default/services/web/status", False, id="service"),
        pytest.param("/api/v1/namespaces/default/services/events/status", False, id="service called events"),
        pytest.param("/api/v1/namespaces/events/services/web/status", False, id="namespace called events"),
        pytest.param("/api/v1/nodes/events", False, id="node called events"),
        pytest.param("/api/v1/nodes/w1/status", False, id="node"),
        pytest.param("/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/d/loadbalancers/x", False, id="balancer"),
        pytest.param("/api/v1/namespaces/default/events", True, id="new event"),
        pytest.param("/api/v1/namespaces/default/events/web.1", True, id="repeated event"),
        pytest.param("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm", True, id="lease"),
        pytest.param("/apis/authentication.k8s.io/v1/tokenreviews", True, id="who is it"),
        pytest.param("/apis/authorization.k8s.io/v1/subjectaccessreviews", True, id="may they"),
    ],
)
async def test_only_bookkeeping_is_sent_without_the_lease(path: str, sent: bool) -> None:
    writes = Writes()
    writes.permitted = lambda: False

    if sent:
        assert await writes.send(path, answer) == b"{}"
        return
    with pytest.raises(NotLeading, match="the Lease was not renewed in time and may be another's"):
        await writes.send(path, answer)


async def begun(writes: Writes, over: asyncio.Event) -> list[str]:
    """Send a write, cancel who asked for it, and return what happens to it, to be filled later."""
    story: list[str] = []
    sent = asyncio.Event()

    async def exchange() -> bytes:
        story.append("sent")
        sent.set()
        await over.wait()
        story.append("answered")
        raise ConnectionError("nobody is there to see this")

    asking = asyncio.create_task(writes.send("/api/v1/nodes/w1", exchange), name="asking")
    await sent.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    return story


async def test_write_goes_on_when_the_caller_is_cancelled() -> None:
    writes, over = Writes(), asyncio.Event()
    story = await begun(writes, over)
    waiting = asyncio.create_task(writes.answered(), name="waiting")
    await asyncio.sleep(0)
    assert (story, waiting.done()) == (["sent"], False)

    over.set()
    await waiting

    assert story == ["sent", "answered"]


async def test_write_that_is_cut_is_not_waited_for() -> None:
    writes = Writes()
    story = await begun(writes, asyncio.Event())

    writes.cut()
    await writes.answered()

    assert story == ["sent"]
