"""The reason for which a planned write is not sent: what ``status`` and ``explain`` say instead of "next"."""

from datetime import UTC, datetime, timedelta

import pytest

from harvester_ccm.commands.events import NOT_LED
from harvester_ccm.names import SERVICE_FINALIZER
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_status import INSTANCE, balancer, ready_node, served

GRANT = "The API server of this cluster rejected the update of this Service. Add the verb patch on services/status"
NEW = objects.service(finalizers=[SERVICE_FINALIZER])


def event(uid: str, reason: str = "SyncLoadBalancerFailed", *, minutes: float = 1, message: str = GRANT) -> Json:
    """Return a Warning Event about a Service, as the controller writes it."""
    last = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"web.{minutes}", "namespace": "shop"},
        "involvedObject": {"kind": "Service", "namespace": "shop", "name": "web", "uid": uid},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": last,
    }


def first_reason(run: Runner, flags: list[str], *words: str) -> tuple[str, str]:
    """Return reason and message of the first problem of ``status``, or of the object of ``explain``."""
    document = run(*(words or ("status",)), "-o", "json", *flags).document
    first = (document["reasons"] if words else document["problems"])[0]
    return first["reason"], first["message"]


@pytest.mark.parametrize("words", [(), ("explain", "svc/web", "-n", "shop")], ids=["status", "explain"])
def test_newest_event_about_a_write_is_shown(run: Runner, serve: ClusterServer, words: tuple[str, ...]) -> None:
    documents = [
        NEW,
        event(objects.UID),
        event(objects.UID, minutes=30, message="earlier"),
        event(objects.UID, "NoMatchingPool", minutes=0.1, message="about the state, which the plan knows better"),
        event("another Service of this name", minutes=0.5, message="of another Service"),
    ]
    flags = serve(objects.home(), objects.lease(), *documents)
    assert first_reason(run, flags, *words) == ("SyncLoadBalancerFailed", GRANT)


def test_outdated_event_says_nothing(run: Runner, serve: ClusterServer) -> None:
    without_time = {**event(objects.UID, message="of no time"), "lastTimestamp": None}
    flags = serve(objects.home(), objects.lease(), NEW, event(objects.UID, minutes=61), without_time)
    assert first_reason(run, flags)[0] == "Queued"


def test_event_before_that_of_the_condition_says_nothing(run: Runner, serve: ClusterServer) -> None:
    reason = "LoadBalancerOwnershipConflict"
    web = objects.conditioned(NEW, reason)
    events = event(objects.UID), event(objects.UID, reason, minutes=0.5, message="has another owner")
    assert first_reason(run, serve(objects.home(), objects.lease(), web, events[0])) == (
        "SyncLoadBalancerFailed",
        GRANT,
    )
    assert first_reason(run, serve(objects.home(), objects.lease(), web, *events))[0] == reason


def test_service_with_an_address_whose_writes_are_undone_is_degraded(run: Runner, serve: ClusterServer) -> None:
    """Another client removes the finalizer again and again; the plan alone would put it back and be content."""
    web = served()
    web["metadata"]["finalizers"] = []
    working = [web, balancer(), ready_node(), objects.machine(), INSTANCE]
    conflict = event(objects.UID, "FieldConflict", message="Writes are delayed")
    result = run("status", *serve(objects.home(), objects.lease(), *working, conflict))
    assert result.code == 1
    assert "1 Degraded" in result.out
    assert "FieldConflict" in result.out


@pytest.mark.parametrize("words", [(), ("explain", "svc/web", "-n", "shop")], ids=["status", "explain"])
def test_nothing_is_written_without_a_leader(run: Runner, serve: ClusterServer, words: tuple[str, ...]) -> None:
    flags = serve(objects.home(), NEW, event(objects.UID))
    document = run(*(words or ("status",)), "-o", "json", *flags).document
    found = document["reasons"] if words else document["problems"]
    about = [one["message"] for one in found if words or one["object"] == "Service shop/web"]
    assert about == [NOT_LED.message]


def test_event_before_the_service_became_ready_says_nothing(run: Runner, serve: ClusterServer) -> None:
    """Its finalizer was removed just now; the conflict of half an hour ago has ended."""
    web = served()
    web["metadata"]["finalizers"] = []
    conflict = event(objects.UID, "FieldConflict", minutes=30, message="Writes are delayed")
    for minutes, is_shown in ((20, False), (40, True)):
        since = f"{datetime.now(UTC) - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
        ready = objects.conditioned(web, "EnsuredLoadBalancer", status="True", since=since)
        working = [ready, balancer(), ready_node(), objects.machine(), INSTANCE]
        result = run("status", *serve(objects.home(), objects.lease(), *working, conflict))
        assert ("FieldConflict" in result.out) is is_shown


@pytest.mark.parametrize(
    ("field", "is_shown"), [("status.addresses", True), ("label topology.kubernetes.io/zone", False)]
)
def test_conflict_of_a_node_counts_while_its_fields_are_written(
    run: Runner, serve: ClusterServer, field: str, *, is_shown: bool
) -> None:
    node, *vm = objects.working_node()
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.5"}]
    conflict = event(node["metadata"]["uid"], "FieldConflict", message=f"Another controller overwrites {field}")
    conflict["involvedObject"] = {"kind": "Node", "name": "w1", "uid": node["metadata"]["uid"]}
    result = run("status", *serve(objects.home(), objects.lease(), node, *vm, conflict))
    assert ("FieldConflict" in result.out) is is_shown
    assert result.code == is_shown
