"""Metrics of Services, load balancers and Nodes."""

import json
import time
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import NODES, Node, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LB_CLUSTER, LB_SERVICE_NAME, LB_SERVICE_NAMESPACE, SHUTDOWN_TAINT, UNINITIALIZED_TAINT
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.objects import LoadBalancerMetrics, NodeMetrics, ServiceMetrics
from tests.support.builders import CLUSTER, load_balancer, service
from tests.support.offline import offline_client
from tests.unit.telemetry.states import ElectorState
from tests.unit.telemetry.test_metrics import samples

CREATED = "2026-11-21T08:00:00Z"
NOW = datetime.fromisoformat(CREATED).timestamp()


async def done(_key: str) -> Outcome:
    return Outcome()


class MeasuredCaches(Caches):
    """Caches and wall time that a test sets, and the metrics of them."""

    def __init__(self) -> None:
        super().__init__(offline_client(), offline_client("harvester"), CLUSTER)
        self.now = NOW
        self.elector = ElectorState(leading=True)
        self.telemetry = Telemetry("1")
        self.telemetry.follow_lease("cloud-controller-manager", cast("LeaderElector", self.elector))
        self.queues = {name: WorkQueue(name, done, workers=1) for name in ("service", "node")}
        for queue in self.queues.values():
            self.telemetry.follow_queue(queue)
        self._version = 0
        ServiceMetrics(self.telemetry, self)
        LoadBalancerMetrics(self.telemetry, self)
        NodeMetrics(self.telemetry, self)

    def see(self, item: Service, *, created: str | None = CREATED) -> Service:
        self._version += 1
        meta = msgspec.structs.replace(item.metadata, resource_version=str(self._version), creation_timestamp=created)
        item = msgspec.structs.replace(item, metadata=meta)
        self.services.observe(item)
        return item

    def see_node(
        self, *, tainted: bool = False, age: float | None = 40.0, stopped: bool = False, deleting: bool = False
    ) -> Node:
        self._version += 1
        created = None if age is None else datetime.fromtimestamp(self.now - age, UTC).isoformat()
        keys = {UNINITIALIZED_TAINT: tainted, SHUTDOWN_TAINT: stopped}
        taints = [{"key": key, "effect": "NoSchedule"} for key, is_set in keys.items() if is_set]
        meta: dict[str, object] = {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": str(self._version),
            "creationTimestamp": created,
        }
        if deleting:
            meta |= {"deletionTimestamp": CREATED, "finalizers": ["example.org/kept"]}
        node = NODES.decode(json.dumps({"metadata": meta, "spec": {"taints": taints}}).encode())
        self.nodes.observe(node)
        return node

    def answer(self, **reasons: str) -> None:
        """Report what reconciles of Services returned."""
        for name, reason in reasons.items():
            self.queues["service"].reasons[f"shop/{name}"] = reason

    def shown(self, name: str) -> dict[tuple[str, ...], float]:
        found = samples(self.telemetry).get(f"harvester_ccm_{name}", {})
        return {tuple(value for _, value in labels): amount for labels, amount in found.items()}

    def observed(self, name: str) -> tuple[float, float]:
        """Return how often a histogram was observed, and the sum."""
        found = samples(self.telemetry)
        return found[f"{name}_count"][()], found[f"{name}_sum"][()]


@pytest.fixture
async def caches(monkeypatch: pytest.MonkeyPatch) -> MeasuredCaches:
    caches = MeasuredCaches()
    monkeypatch.setattr(time, "time", lambda: caches.now)
    return caches


async def test_pending_services_are_counted_by_reason(caches: MeasuredCaches) -> None:
    for name in ("a", "b", "c"):
        caches.see(service(name))
    caches.see(service("served", address="192.0.2.1"))
    caches.see(service("inside", kind="ClusterIP"))
    caches.see(service("elsewhere", spec={"loadBalancerClass": "example.org/other"}))
    caches.answer(a="PoolExhausted", b="PoolExhausted", inside="DHCPLeasePending", served="HarvesterMismatch")

    assert caches.shown("services") == {(): 4}
    pending = {("PoolExhausted",): 2, ("HarvesterMismatch",): 1, ("Queued",): 1}
    assert caches.shown("services_pending") == pending


async def test_pending_time_starts_with_the_request_for_a_load_balancer(caches: MeasuredCaches) -> None:
    caches.now += 60
    caches.see(service("old"))
    caches.see(service("changed", kind="ClusterIP"))
    caches.now += 40
    caches.see(service("changed"))
    caches.now += 30
    caches.see(service("old", annotations={"a": "b"}))
    caches.see(service("young"), created=None)
    caches.answer(changed="DHCPLeasePending")

    assert caches.shown("oldest_pending_service_age_seconds") == {("Queued",): 130, ("DHCPLeasePending",): 30}


async def test_time_until_the_address_is_observed_once(caches: MeasuredCaches) -> None:
    caches.see(service("web"))
    deleted = caches.see(service("deleted"))
    caches.see(service("changed"))
    # The clock of the API server is ahead.
    caches.see(service("ahead"), created="2026-11-21T08:00:05Z")
    caches.now += 3
    caches.see(service("web", address="192.0.2.1"))
    caches.see(service("ahead", address="192.0.2.3"))
    caches.see(service("web", address="192.0.2.1", annotations={"a": "b"}))
    caches.see(service("restarted", address="192.0.2.2"))
    caches.services.remove(deleted.metadata.key, deleted.metadata.uid)
    caches.see(service("changed", kind="ClusterIP"))

    assert caches.observed("harvester_ccm_service_provisioning_duration_seconds") == (2, 6)
    assert caches.shown("services_pending") == {("Queued",): 0}


async def test_only_the_leader_shows_objects(caches: MeasuredCaches) -> None:
    caches.elector.leading = False
    caches.see(service("a"))
    caches.see(service("b"))
    caches.see(service("b", address="192.0.2.1"))
    caches.see_node(tainted=True)
    caches.load_balancers.observe(load_balancer(labels={LB_CLUSTER: "demo"}))
    names = ("services_pending", "oldest_pending_service_age_seconds", "load_balancers", "nodes_pending")
    for name in names:
        assert caches.shown(name) == {}
    assert caches.observed("harvester_ccm_service_provisioning_duration_seconds") == (0, 0)
    assert caches.shown("services") == {(): 0}

    caches.elector.leading = True
    for name in names:
        assert caches.shown(name)


async def test_load_balancers_of_this_cluster_are_counted(caches: MeasuredCaches) -> None:
    def one(name: str, cluster: str = "demo", target: str = "web", **fields: Any) -> LoadBalancer:
        labels = {LB_CLUSTER: cluster, LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: target}
        return load_balancer(name, uid=name, labels=labels, **fields)

    caches.see(service("web", address="192.0.2.1"))
    for item in (
        one("a", ip="192.0.2.1"),
        one("b", ip="192.0.2.2"),
        one("c", spec={"ipam": "dhcp"}),
        one("d", ip="192.0.2.3", spec={"workloadType": "vm"}),
        one("e", message="no IP addresses available"),
        one("f", ip="192.0.2.6", message="no running backend servers"),
        one("g", ip="192.0.2.7", deleting=True),
        one("h", ip="192.0.2.8", spec={"ipam": ""}),
        one("foreign", "other", ip="192.0.2.4"),
        one("orphan", target="missing", ip="192.0.2.5"),
    ):
        caches.load_balancers.observe(item)
    # Labels in alphabetical order: ipam, state, workload_type.
    known = {("pool", "ready", "cluster"): 3, ("dhcp", "pending", "cluster"): 1, ("pool", "ready", "vm"): 1}
    known |= {("pool", state, "cluster"): 1 for state in ("pending", "unhealthy", "deleting")}
    known |= {("pool", "orphaned", "cluster"): 0}
    # Before the Services are synced, a missing one is no orphan.
    assert caches.shown("load_balancers") == {**known, ("pool", "ready", "cluster"): 4}

    caches.services._synced.set()
    assert caches.shown("load_balancers") == {**known, ("pool", "orphaned", "cluster"): 1}


async def test_new_nodes_are_timed_once(caches: MeasuredCaches) -> None:
    for tainted in (True, True, False, False):
        node = caches.see_node(tainted=tainted)
    caches.nodes.remove(node.metadata.key, node.metadata.uid)
    caches.see_node(tainted=True, age=None)
    caches.see_node(tainted=False, age=None)

    name = "node_controller_cloud_provider_taint_removal_delay_seconds"
    assert caches.observed(name) == pytest.approx((1, 40))


async def test_nodes_with_the_taint_are_counted_by_reason(caches: MeasuredCaches) -> None:
    caches.see_node(tainted=True)
    assert caches.shown("nodes_pending") == {("Queued",): 1}
    caches.queues["node"].reasons["n1"] = "VMNotFound"
    assert caches.shown("nodes_pending") == {("Queued",): 0, ("VMNotFound",): 1}
    caches.see_node(tainted=True, deleting=True)
    assert caches.shown("nodes_pending") == {("Queued",): 0}
    caches.see_node(tainted=False)
    assert caches.shown("nodes_pending") == {("Queued",): 0}


async def test_nodes_of_stopped_vms_are_counted_by_the_leader(caches: MeasuredCaches) -> None:
    caches.see_node(stopped=True)
    assert caches.shown("nodes_shut_down") == {(): 1}
    caches.elector.leading = False
    assert caches.shown("nodes_shut_down") == {(): 0}
    caches.elector.leading = True
    caches.see_node()
    assert caches.shown("nodes_shut_down") == {(): 0}
