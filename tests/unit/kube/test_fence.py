"""Writes of a process that may have lost its Lease, that are cancelled, and that are waited for."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from harvester_ccm.kube.client import ApiClient, NotLeading, WriteFence
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.events import EventRecorder, ObjectReference
from harvester_ccm.kube.lease import LeaderElector, LeaseLost, LeaseTimes
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.telemetry.auth import AccessReviewer
from tests.worlds.background import running
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryClient, MemoryServer, refused

NAMESPACE = "default"
LEASE = "kube-system/cloud-controller-manager"
LEASES = "coordination.k8s.io/v1/leases"
METADATA = {"metadata": {"name": "web"}}
CHANGES: dict[str, Callable[[ApiClient], Awaitable[Any]]] = {
    "service": lambda client: client.merge_patch(SERVICES, "web", {}, namespace=NAMESPACE, subresource="status"),
    "service called events": lambda client: client.merge_patch(SERVICES, "events", {}, namespace=NAMESPACE),
    "namespace called events": lambda client: client.merge_patch(SERVICES, "web", {}, namespace="events"),
    "node called leases": lambda client: client.merge_patch(NODES, "leases", {}),
    "node": lambda client: client.delete(NODES, "w1"),
    "node with its version": lambda client: client.request("DELETE", NODES.path(None, "w1"), body={}),
    "new balancer": lambda client: client.create(LOAD_BALANCERS, METADATA, namespace=NAMESPACE),
    "balancer": lambda client: client.replace(LOAD_BALANCERS, "web", METADATA, namespace=NAMESPACE),
    "balancer that goes": lambda client: client.delete(LOAD_BALANCERS, "web", namespace=NAMESPACE),
}


class ReviewingServer(MemoryServer):
    """It also says who callers are and that they may do anything."""

    async def serve(
        self, verb: str, path: str, body: Any, params: Mapping[str, str] | None = None, *, by: str = ""
    ) -> Document:
        """Answer one request."""
        if not path.endswith("reviews"):
            return await super().serve(verb, path, body, params, by=by)
        self.calls.append(Call(verb, path, asyncio.get_running_loop().time()))
        return {"status": {"authenticated": True, "user": {"username": "prometheus"}, "allowed": True}}


class Leader:
    """An elector and the clients of its process, on one server in memory."""

    def __init__(self, server: MemoryServer | None = None, identity: str = "us") -> None:
        self.server = server or MemoryServer()
        self.fence = WriteFence(shut=True)
        self._numbers = itertools.count()
        self.guest = MemoryClient(self.server, cluster="guest", fence=self.fence)
        self.harvester = MemoryClient(self.server, cluster="harvester", fence=self.fence)
        times = LeaseTimes(lease_duration=15, renew_deadline=10, retry_period=2)
        namespace, _, name = LEASE.partition("/")
        self.elector = LeaderElector(
            self.guest, self.fence, namespace=namespace, name=name, identity=identity, times=times
        )

    async def writes(self) -> bool:
        """Return whether a write leaves for either server."""
        left = set()
        for client in (self.guest, self.harvester):
            try:
                await client.create(NODES, {"metadata": {"name": f"node-{next(self._numbers)}"}})
            except NotLeading:
                left.add(False)
            else:
                left.add(True)
        (both,) = left
        return both


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_no_change_is_sent_without_the_lease(change: Callable[[ApiClient], Awaitable[Any]]) -> None:
    @jumping_time
    async def scenario() -> None:
        process = Leader()
        # Also by a client that has got new credentials.
        await process.guest.use(Credentials("another", NAMESPACE, None, FixedToken("token")))
        for client in (process.guest, process.harvester):
            with pytest.raises(NotLeading, match="the Lease was not renewed in time and may be another's"):
                await change(client)
        assert process.server.calls == []

    scenario()


@jumping_time
async def test_bookkeeping_needs_no_lease() -> None:
    process = Leader(ReviewingServer())
    recorder = EventRecorder(process.guest, host="test")
    reference = ObjectReference("v1", "Node", "", "w1", "uid")
    for _ in range(2):
        recorder.record(reference, "Normal", "Reason", "happened", component="test")
    async with running(recorder.run()):
        await asyncio.sleep(1)
    await AccessReviewer(process.guest).check("Bearer token", "/metrics")
    await process.elector.acquire()
    process.fence.deadline = -math.inf
    async with running(process.elector.hold()):
        await asyncio.sleep(3)

    asked = [(call.verb, call.path.rpartition("/v1/")[2].split("/w1.")[0]) for call in process.server.calls]
    leases = "namespaces/kube-system/leases"
    assert asked == [
        ("POST", "namespaces/default/events"),
        ("POST", "namespaces/default/events"),
        ("POST", "tokenreviews"),
        ("POST", "subjectaccessreviews"),
        ("GET", f"{leases}/cloud-controller-manager"),
        ("POST", leases),
        ("PUT", f"{leases}/cloud-controller-manager"),
    ]


@jumping_time
async def test_elector_opens_the_fence_while_it_holds_the_lease() -> None:
    process = Leader()
    assert not await process.writes()
    await process.elector.acquire()
    assert await process.writes()
    async with running(process.elector.hold()):
        await asyncio.sleep(100)
        assert await process.writes()
    await process.elector.release()
    assert not await process.writes()


@jumping_time
async def test_fence_is_shut_by_the_clock_before_the_loss_is_known() -> None:
    """As in a process that was halted, and goes on before its timers do."""
    process = Leader()
    await process.elector.acquire()
    await asyncio.sleep(10.1)
    assert process.elector.leading
    assert not await process.writes()


def lease_writes(server: MemoryServer) -> int:
    return sum(call.verb == "PUT" and "leases" in call.path for call in server.calls)


@jumping_time
async def test_writes_cost_no_renewal_of_the_lease() -> None:
    process = Leader()
    await process.elector.acquire()
    async with running(process.elector.hold()):
        for _ in range(100):
            await asyncio.sleep(1)
            assert await process.writes()
    assert lease_writes(process.server) == 50


@jumping_time
async def test_fence_is_shut_when_the_lease_cannot_be_renewed() -> None:
    process = Leader()
    await process.elector.acquire()
    process.server.hanging = True
    with pytest.raises(LeaseLost):
        await process.elector.hold()
    process.server.hanging = False
    assert not await process.writes()


@jumping_time
async def test_fence_is_shut_when_another_has_taken_the_lease() -> None:
    process = Leader()
    await process.elector.acquire()
    process.server.change(LEASES, LEASE, {"spec": {"holderIdentity": "them"}})
    conflict = refused(409, "Conflict", "the object has been modified")
    process.server.fault = lambda call: conflict if call.verb == "PUT" else None
    with pytest.raises(LeaseLost, match="taken by them"):
        await process.elector.hold()
    assert not await process.writes()


@jumping_time
async def test_fence_of_a_candidate_stays_shut() -> None:
    first = Leader()
    second = Leader(first.server, "them")
    await first.elector.acquire()
    async with running(first.elector.hold()), running(second.elector.acquire()):
        await asyncio.sleep(100)
        assert await first.writes()
        assert not await second.writes()


async def begun(fence: WriteFence, over: asyncio.Event) -> list[str]:
    """Send a write, cancel who asked for it, and return what happens to it, to be filled later."""
    story: list[str] = []
    sent = asyncio.Event()

    async def exchange() -> bytes:
        story.append("sent")
        sent.set()
        await over.wait()
        story.append("answered")
        raise ConnectionError("nobody is there to see this")

    asking = asyncio.create_task(fence.send(exchange, "PATCH w1"), name="asking")
    await sent.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    return story


async def test_write_goes_on_when_the_caller_is_cancelled() -> None:
    fence, over = WriteFence(), asyncio.Event()
    story = await begun(fence, over)
    waiting = asyncio.create_task(fence.answered(), name="waiting")
    await asyncio.sleep(0)
    assert (story, waiting.done()) == (["sent"], False)

    over.set()
    await waiting

    assert story == ["sent", "answered"]


async def test_write_that_is_cut_is_not_waited_for() -> None:
    fence = WriteFence()
    story = await begun(fence, asyncio.Event())

    fence.cut()
    await fence.answered()

    assert story == ["sent"]
