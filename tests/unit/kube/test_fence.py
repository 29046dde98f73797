"""The fence of writes, and the Lease that opens it; tests/apiserver/test_lease.py has the requests for the Lease."""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from harvester_ccm.kube.builtin import LEASES as LEASE_DOCUMENTS
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.fence import NotLeading, WriteFence
from harvester_ccm.kube.lease import LeaderElector, LeaseLost, LeaseTimes
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.core import NODES, SERVICES, Node
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import NodeReason
from harvester_ccm.telemetry.server import AccessReviewer
from tests.support.background import running
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, MemoryClient, MemoryServer, refused

NAMESPACE = "default"
LEASE = "kube-system/cloud-controller-manager"
LEASES = "coordination.k8s.io/v1/leases"
METADATA = {"metadata": {"name": "web"}}
CHANGES: dict[str, Callable[[ApiClient], Awaitable[Any]]] = {
    "status": lambda client: client.merge_patch(SERVICES, "web", {}, namespace=NAMESPACE, subresource="status"),
    "Service with the name events": lambda client: client.merge_patch(SERVICES, "events", {}, namespace=NAMESPACE),
    "Node with the name leases": lambda client: client.merge_patch(NODES, "leases", {}),
    "deletion": lambda client: client.delete(NODES, "w1"),
    "creation": lambda client: client.create(LOAD_BALANCERS, METADATA, namespace=NAMESPACE),
    "replacement": lambda client: client.replace(LOAD_BALANCERS, "web", METADATA, namespace=NAMESPACE),
}


class ReviewingServer(MemoryServer):
    """Also authenticates and authorizes every caller."""

    async def serve(
        self, verb: str, path: str, body: Any, params: Mapping[str, str] | None = None, *, by: str = ""
    ) -> Document:
        """Respond to one request."""
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
        """Return whether writes to both servers are sent; either both are, or none."""
        sent = set()
        for client in (self.guest, self.harvester):
            try:
                await client.create(NODES, {"metadata": {"name": f"node-{next(self._numbers)}"}})
                sent.add(True)
            except NotLeading:
                sent.add(False)
        (both,) = sent
        return both


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.kube(
    "No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile"
)
@jumping_time
async def test_no_change_is_sent_without_the_lease(change: Callable[[ApiClient], Awaitable[Any]]) -> None:
    process = Leader()
    # Also by a client with new credentials.
    await process.guest.use(Credentials("another", NAMESPACE, None, TokenSource("token")))
    for client in (process.guest, process.harvester):
        with pytest.raises(NotLeading, match="the Lease was not renewed in time and may be another's"):
            await change(client)
    assert process.server.calls == []


@jumping_time
async def test_events_reviews_and_the_lease_need_no_lease() -> None:
    process = Leader(ReviewingServer())
    recorder = EventRecorder(process.guest, host="test")
    node = Node(metadata=ObjectMeta(name="w1", uid="uid"))
    recorder.emit(NODES, node, EventMessage("Normal", NodeReason.SYNCED, "synced"), component="test")
    async with running(recorder.run()):
        await asyncio.sleep(1)
    await AccessReviewer(process.guest).check("Bearer token", "/metrics", "10.0.0.1")
    await process.elector.acquire()
    process.fence.deadline = -math.inf
    await process.elector.release()

    requests = [(call.verb, call.path.rpartition("/v1/")[2]) for call in process.server.calls]
    leases = "namespaces/kube-system/leases"
    assert requests == [
        ("POST", "namespaces/default/events"),
        ("POST", "tokenreviews"),
        ("POST", "subjectaccessreviews"),
        ("GET", f"{leases}/cloud-controller-manager"),
        ("POST", leases),
        ("GET", f"{leases}/cloud-controller-manager"),
        ("PUT", f"{leases}/cloud-controller-manager"),
    ]


@jumping_time
@pytest.mark.guarantee("No write is sent without the Lease")
@pytest.mark.security("Only the holder of the Lease writes")
async def test_leader_writes_until_it_releases_the_lease_and_a_candidate_never() -> None:
    first, changes = Leader(), list[str]()
    second = Leader(first.server, "them")
    first.elector.on_change = lambda verb, _lease: changes.append(verb)
    assert not await first.writes()
    await first.elector.acquire()
    first.server.calls.clear()
    async with running(first.elector.hold()), running(second.elector.acquire()):
        for _ in range(100):
            await asyncio.sleep(1)
            assert await first.writes()
            assert not await second.writes()
    leases = Counter(call.verb for call in first.server.calls if "leases" in call.path)
    assert leases["PUT"] == 50, "a write costs no renewal"
    assert 50 <= leases["GET"] <= 110, "the candidate reads the Lease every one or two seconds"
    await first.elector.release()
    assert not await first.writes()
    assert changes == ["became leader", "stopped leading"]


@pytest.mark.parametrize("response", [0.0, 3.0], ids=["prompt response", "late response"])
@jumping_time
@pytest.mark.kube(
    "No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile"
)
async def test_fence_is_shut_by_the_clock_before_the_loss_is_known(response: float) -> None:
    """A process that was stopped continues before its timers expire. The time counts from the request."""
    process = Leader()
    process.server.way_back = lambda call: response if call.verb == "POST" else 0.0
    await process.elector.acquire()
    await asyncio.sleep(10.1 - response)
    assert process.elector.leading
    assert not await process.writes()


@jumping_time
@pytest.mark.kube(
    "No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile"
)
async def test_fence_is_shut_if_the_lease_cannot_be_renewed() -> None:
    process = Leader()
    await process.elector.acquire()
    process.server.hanging = True
    with pytest.raises(LeaseLost):
        await process.elector.hold()
    process.server.hanging = False
    assert not await process.writes()


@pytest.mark.parametrize("way", ["delay", "way_back"], ids=["request lost", "response lost"])
@jumping_time
async def test_request_for_the_lease_without_an_answer_is_repeated_before_the_lease_is_lost(way: str) -> None:
    process, unanswered = Leader(), iter([True])
    await process.elector.acquire()
    setattr(process.server, way, lambda call: 3600.0 if call.verb == "PUT" and next(unanswered, False) else 0.002)
    async with running(process.elector.hold()):
        await asyncio.sleep(60)
        assert next(unanswered, None) is None
        assert await process.writes()


@jumping_time
async def test_fence_is_shut_if_another_process_took_the_lease() -> None:
    process, changes = Leader(), list[str]()
    process.elector.on_change = lambda verb, _lease: changes.append(verb)
    await process.elector.acquire()
    process.server.change(LEASES, LEASE, {"spec": {"holderIdentity": "them"}})
    conflict = refused(409, "Conflict", "the object has been modified")
    process.server.fault = lambda call: conflict if call.verb == "PUT" else None
    with pytest.raises(LeaseLost, match="taken by them"):
        await process.elector.hold()
    assert not await process.writes()
    assert changes == ["became leader", "stopped leading"]


@pytest.mark.security(
    "If a VM is paused together with its clocks, the controller can send writes until its next renewal, "
    "at most 4 s after it resumes with the default flags"
)
@pytest.mark.parametrize("renewed_before", [0.0, 1.0, 1.9])
@jumping_time
@pytest.mark.kube("Writes of a machine that was paused with its clocks end with its next renewal")
async def test_writes_end_within_4_s_after_a_pause_of_all_clocks(renewed_before: float) -> None:
    """No time passes for the process, while another one takes the Lease."""
    process = Leader()
    await process.elector.acquire()
    async with running(hold_until_it_is_lost(process)):
        await asyncio.sleep(20 + renewed_before)
        process.server.change(LEASES, LEASE, {"spec": {"holderIdentity": "them"}})
        assert await process.writes(), "it cannot know"
        await asyncio.sleep(4.1)
        assert not await process.writes()


async def hold_until_it_is_lost(process: Leader) -> None:
    with suppress(LeaseLost):
        await process.elector.hold()


@jumping_time
@pytest.mark.kube("A write that was sent is waited for before the Lease is released, even if its caller was cancelled")
async def test_write_of_a_cancelled_caller_ends_with_its_response() -> None:
    fence, sent, response = WriteFence(), asyncio.Event(), asyncio.Event()
    finished, logged = [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def exchange() -> bytes:
        sent.set()
        await response.wait()
        finished.append(True)
        raise ConnectionError("no caller is left")

    caller = asyncio.create_task(fence.send(exchange, "PATCH w1"))
    await sent.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    waiting = asyncio.create_task(fence.answered())
    await asyncio.sleep(60)
    assert not waiting.done()
    response.set()
    await waiting
    await asyncio.sleep(0)
    assert finished == [True]
    assert logged == []


@jumping_time
async def test_lease_of_another_uid_with_the_same_version_is_not_renewed() -> None:
    """After a restore, another process created the Lease, and it got the version of the earlier one by chance."""
    process = Leader()
    await process.elector.acquire()
    process.server.remove(LEASE_DOCUMENTS, LEASE)
    process.server.version -= 2
    namespace, _, name = LEASE.partition("/")
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 60}
    process.server.put(LEASE_DOCUMENTS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    async with asyncio.timeout(60):
        with pytest.raises(LeaseLost, match="another"):
            await process.elector.hold()
    assert process.server.of(LEASE_DOCUMENTS)[LEASE]["spec"]["holderIdentity"] == "another"
