"""Events about objects with texts and names of any length."""

import asyncio
import sys

import pytest

from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.errors import AlreadyExists, Answer, KubeError, NotServed, ServerError, Unreachable
from harvester_ccm.kube.events import QUEUE_LENGTH, EventRecorder
from harvester_ccm.kube.objects import Object, ObjectMeta
from harvester_ccm.kube.turns import NamespaceTurns
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import NodeReason
from tests.support.background import running
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient, MemoryServer


def emit(recorder: EventRecorder, name: str, subject: str, namespace: str = "") -> None:
    """Emit a Warning about an object."""
    item = Object(metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid of {name}"))
    event = EventMessage("Warning", NodeReason.INVALID_ANNOTATION, "short", subject=subject)
    recorder.emit(NAMESPACES, item, event, component="test")


async def test_subject_of_any_length_is_not_kept() -> None:
    """A kubelet changed an annotation of 240 KB every five minutes: 229 MiB after 1,000 of them."""
    recorder = EventRecorder(MemoryClient(MemoryServer(), cluster="guest"), host="test")
    for number in range(3):
        emit(recorder, f"node-{number}", "x" * 240_000)
    kept = [part for key in recorder._last_seen for part in key]
    assert len(recorder._last_seen) == 3
    assert sum(map(sys.getsizeof, kept)) < 2000


async def test_events_with_long_subjects_differ_at_their_ends() -> None:
    recorder = EventRecorder(MemoryClient(MemoryServer(), cluster="guest"), host="test")
    for end in ("a", "b", "a"):
        emit(recorder, "node", "x" * 240_000 + end)
    assert len(recorder._last_seen) == 2


@pytest.mark.parametrize("name", ["x" * 253, "x" * 235 + "-.y", "x" * 236 + ".y", "node"])
@jumping_time
async def test_event_about_an_object_with_a_long_name_has_a_valid_name(name: str) -> None:
    server = MemoryServer()
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="test")
    async with running(recorder.run()):
        emit(recorder, name, "subject")
        await asyncio.sleep(1)
    (event,) = server.items("v1/events")
    assert len(event["metadata"]["name"]) <= 253
    assert ".." not in event["metadata"]["name"]
    assert "-." not in event["metadata"]["name"]
    assert event["involvedObject"]["name"] == name


@pytest.mark.parametrize(
    "error",
    [Unreachable("no route"), NotServed(Answer(404, "", "404 page not found")), ServerError(Answer(503, "", "no"))],
    ids=lambda error: type(error).__name__,
)
@jumping_time
async def test_event_is_written_once_the_server_or_its_proxy_answers_again(error: KubeError) -> None:
    """A proxy without a route answered with a page, and the Warning of a Service was lost."""
    server = MemoryServer()
    server.faults = [error, error]
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="test")
    async with running(recorder.run()):
        emit(recorder, "node", "subject")
        await asyncio.sleep(30)
    assert len(server.items("v1/events")) == 1


@jumping_time
async def test_event_whose_first_response_was_lost_is_not_counted_as_dropped() -> None:
    server = MemoryServer()
    server.faults = [AlreadyExists(Answer(409, "AlreadyExists", "exists"))]
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="test")
    async with running(recorder.run()):
        emit(recorder, "node", "subject")
        await asyncio.sleep(1)
    assert (len(server.faults), recorder.dropped) == (0, 0)


def test_namespace_gives_way_only_to_one_that_has_fewer_afterwards() -> None:
    turns = NamespaceTurns()
    for key in ("a/1", "a/2", "b/1"):
        turns.add(key)
    assert turns.newest_of_most("b") is None
    turns.add("a/3")
    assert (turns.newest_of_most("b"), turns.newest_of_most("a")) == ("a/3", None)


@pytest.mark.kube("Namespaces take turns: many Events of one neither delay nor displace the Events of another")
@pytest.mark.kube("Emitting never waits: what exceeds the queue or the limit of an object is dropped and counted")
@pytest.mark.parametrize("flood", [QUEUE_LENGTH // 2, QUEUE_LENGTH, 2 * QUEUE_LENGTH])
@jumping_time
async def test_event_of_another_namespace_waits_for_one_of_a_flood(flood: int) -> None:
    server = MemoryServer()
    recorder = EventRecorder(MemoryClient(server, cluster="guest"), host="test")
    for number in range(flood):
        emit(recorder, f"flood-{number}", "wrong", "mallory")
    for number in range(3):
        emit(recorder, f"web-{number}", "wrong", "shop")
    async with running(recorder.run()):
        await asyncio.sleep(10)
    written = [event["involvedObject"]["namespace"] for event in server.items("v1/events")]
    order = [call.path.split("/")[4] for call in server.calls][:6]
    assert order == ["mallory", "shop"] * 3
    assert written.count("shop") == 3
    lost = max(flood + 3 - QUEUE_LENGTH, 0)
    assert (len(written), recorder.dropped) == (flood + 3 - lost, lost)
