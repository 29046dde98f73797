"""Events on a real API server: counts, limits and retries."""

import pytest

from devenv.apiserver import ControlPlane
from devenv.faults import Answer, Drop
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.events import TRIES, EventRecorder
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.model.core import NODES, SERVICES, Node, Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import NodeReason, Reason
from tests.support.background import running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

COMPONENT = "service-controller"


@pytest.fixture
def recorder(client: ApiClient) -> EventRecorder:
    return EventRecorder(client, host="node-1")


@pytest.fixture
def web(namespace: str) -> Service:
    return Service(metadata=ObjectMeta(name="web", namespace=namespace, uid="6f1c2a34-9b7d-4e58-8a10-3c5d7e9f0b12"))


class Stored:
    """The Events of one namespace as the administrator sees them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._admin = plane.admin
        self._collection = f"/api/v1/namespaces/{namespace}/events"

    def all(self) -> list[Json]:
        """Return them, oldest first."""
        found: list[Json] = self._admin.request("GET", self._collection)["items"]
        return sorted(found, key=lambda event: str(event["metadata"]["name"]))

    def counts(self) -> dict[str, int]:
        """Return how often each message was said, one Event per message."""
        found = self.all()
        counts = {event["message"]: event["count"] for event in found}
        assert len(counts) == len(found)
        return counts


@pytest.fixture
def stored(guest: ControlPlane, namespace: str) -> Stored:
    return Stored(guest, namespace)


def warn(recorder: EventRecorder, service: Service, message: str) -> None:
    event = EventMessage("Warning", Reason.SYNC_FAILED, message)
    recorder.emit(SERVICES, service, event, component=COMPONENT)


async def test_fields_of_an_event(recorder: EventRecorder, web: Service, stored: Stored) -> None:
    recorder.emit(SERVICES, web, EventMessage("Normal", Reason.ENSURED, "x" * 2000), component=COMPONENT)
    await recorder.flush()

    (event,) = stored.all()
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Service",
        "namespace": web.metadata.namespace,
        "name": "web",
        "uid": web.metadata.uid,
    }
    assert event["source"] == {"component": COMPONENT, "host": "node-1"}
    assert (event["reportingComponent"], event["reportingInstance"]) == (COMPONENT, "node-1")
    assert (event["type"], event["reason"], event["count"]) == ("Normal", Reason.ENSURED, 1)
    assert event["message"] == "x" * 1024
    assert event["firstTimestamp"] == event["lastTimestamp"]


async def test_event_of_a_cluster_scoped_object_is_in_the_default_namespace(
    recorder: EventRecorder, guest: ControlPlane, namespace: str
) -> None:
    node = Node(metadata=ObjectMeta(name=namespace, uid="1"))
    recorder.emit(NODES, node, EventMessage("Warning", NodeReason.VM_NOT_FOUND, "no VM"), component=COMPONENT)
    await recorder.flush()

    events = Stored(guest, "default").all()
    assert [e["involvedObject"]["kind"] for e in events if e["involvedObject"].get("name") == namespace] == ["Node"]


@pytest.mark.parametrize("fault", [Answer(500, "no"), Answer(429, "busy", retry_after=60), Drop()])
@pytest.mark.kube("An Event is written after a short outage of the API server")
async def test_event_is_retried_during_an_outage_and_dropped_after_it_or_if_it_is_forbidden(
    recorder: EventRecorder,
    web: Service,
    stored: Stored,
    guest_proxy: FaultProxy,
    fault: Answer | Drop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harvester_ccm.kube.backoff.MAX_BACKOFF_SECONDS", 0.01)
    guest_proxy.inject(fault, times=TRIES - 1)
    async with running(recorder.run()):
        warn(recorder, web, "first")
        await wait_for(lambda: stored.counts() == {"first": 1})
        guest_proxy.inject(fault, times=TRIES)
        guest_proxy.inject(Answer(403, "Forbidden", "Forbidden"), times=1)
        warn(recorder, web, "lost")
        warn(recorder, web, "forbidden")
        warn(recorder, web, "second")
        await wait_for(lambda: stored.counts() == {"first": 1, "second": 1})
    assert recorder.dropped == 2
