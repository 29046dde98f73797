"""What is told about Services and load balancers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec
import pytest

from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import LB_CLUSTER, LB_SERVICE_NAME, LB_SERVICE_NAMESPACE
from harvester_ccm.telemetry import catalogue
from harvester_ccm.telemetry.catalogue import Metric
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.services import ServiceMetrics, state_of
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.builders import CLUSTER, load_balancer, service
from tests.worlds.offline import OfflineInformer, offline_client

CREATED = "2026-11-21T08:00:00Z"
NOW = datetime.fromisoformat(CREATED).timestamp()


@dataclass
class Candidate:
    """A leader elector's state."""

    leading: bool = True
    renewed_at: float = 0.0


class ServiceMetricsWorld:
    """Caches that are filled by hand, and a report on them under a clock that is set by hand."""

    def __init__(self) -> None:
        self.services: OfflineInformer[Service] = OfflineInformer(offline_client(), SERVICES)
        self.load_balancers: Informer[LoadBalancer] = Informer(offline_client(), LOAD_BALANCERS)
        self.now = NOW
        self.candidate = Candidate()
        self.telemetry = Telemetry("1", wall_clock=lambda: self.now)
        self.telemetry.follow_lease("cloud-controller-manager", cast("LeaderElector", self.candidate))
        self._version = 0
        ServiceMetrics(self.telemetry, self.services, self.load_balancers, CLUSTER)

    def see(self, item: Service, *, created: str | None = CREATED) -> Service:
        self._version += 1
        meta = msgspec.structs.replace(item.metadata, resource_version=str(self._version), creation_timestamp=created)
        item = msgspec.structs.replace(item, metadata=meta)
        self.services.observe(item)
        return item

    def answer(self, reasons: dict[str, str]) -> None:
        """Let the queue of Services know what keys wait for."""
        for key, reason in reasons.items():
            self.telemetry.queue("service").answered(key, reason)

    @property
    def pending(self) -> dict[tuple[str, ...], float]:
        return self._shown(catalogue.SERVICES_PENDING)

    @property
    def longest(self) -> dict[tuple[str, ...], float]:
        return self._shown(catalogue.PENDING_LONGEST)

    @property
    def states(self) -> dict[tuple[str, ...], float]:
        return self._shown(catalogue.LOAD_BALANCERS)

    @property
    def served(self) -> list[float]:
        """How many Services got an address, and how many seconds they waited together."""
        shown = samples(self.telemetry)
        name = catalogue.PENDING_SECONDS.name
        return [shown[f"{name}_{part}"][()] for part in ("count", "sum")]

    def _shown(self, metric: Metric) -> dict[tuple[str, ...], float]:
        shown = samples(self.telemetry).get(metric.name, {})
        return {tuple(dict(labels)[label] for label in metric.labels): value for labels, value in shown.items()}


@pytest.fixture
async def scene() -> ServiceMetricsWorld:
    return ServiceMetricsWorld()


async def test_services_without_an_address_are_counted_by_reason(scene: ServiceMetricsWorld) -> None:
    for name in ("a", "b", "c"):
        scene.see(service(name))
    scene.see(service("served", address="192.0.2.1"))
    scene.see(service("inside", kind="ClusterIP"))
    scene.see(service("elsewhere", spec={"loadBalancerClass": "example.org/other"}))
    scene.answer({"shop/a": "pool_exhausted", "shop/b": "pool_exhausted", "shop/inside": "dhcp"})

    assert scene.pending == {("pool_exhausted",): 2, ("queued",): 1}


async def test_the_time_counts_from_when_the_service_asked(scene: ServiceMetricsWorld) -> None:
    scene.now = NOW + 60
    scene.see(service("old"))
    inside = scene.see(service("changed", kind="ClusterIP"))
    scene.now = NOW + 100
    scene.see(service("changed"))
    scene.now = NOW + 130
    scene.answer({"shop/changed": "dhcp"})

    assert inside.spec.type == "ClusterIP"
    assert scene.longest == {("queued",): 130, ("dhcp",): 30}


async def test_other_changes_of_a_pending_service_do_not_reset_its_time(scene: ServiceMetricsWorld) -> None:
    scene.see(service("web"))
    scene.now = NOW + 20
    scene.see(service("web", annotations={"a": "b"}))
    scene.now = NOW + 50

    assert scene.longest == {("queued",): 50}


@pytest.mark.parametrize("created", [None, "yesterday", "2099-01-01T00:00:00Z"])
async def test_a_creation_time_that_cannot_be_used_counts_as_now(
    scene: ServiceMetricsWorld, created: str | None
) -> None:
    scene.see(service("web"), created=created)
    scene.now = NOW + 5

    assert scene.longest == {("queued",): 5}


async def test_the_wait_for_an_address_is_measured(scene: ServiceMetricsWorld) -> None:
    scene.see(service("web"))
    scene.now = NOW + 3
    scene.see(service("web", address="192.0.2.1"))
    scene.see(service("web", address="192.0.2.1", annotations={"a": "b"}))
    scene.see(service("restarted", address="192.0.2.2"))

    assert scene.served == [1, 3]
    assert scene.pending == {}


async def test_a_service_that_goes_away_was_not_served(scene: ServiceMetricsWorld) -> None:
    deleted, changed = scene.see(service("deleted")), scene.see(service("changed"))
    scene.services.lose(deleted)
    scene.see(service("changed", kind="ClusterIP"))
    scene.see(service("leaving", ours=True, deleting=True))

    assert changed.metadata.name == "changed"
    assert scene.served == [0, 0]
    assert scene.pending == {}


async def test_a_standby_follows_and_tells_nothing(scene: ServiceMetricsWorld) -> None:
    scene.candidate.leading = False
    scene.see(service("a"))
    scene.see(service("b"))
    scene.see(service("b", address="192.0.2.1"))
    scene.load_balancers.observe(load_balancer(labels={LB_CLUSTER: "demo"}))
    assert scene.pending == scene.longest == scene.states == {}
    assert scene.served == [0, 0]

    scene.candidate.leading = True

    assert scene.pending == {("queued",): 1}


STATES: dict[str, tuple[Callable[..., LoadBalancer], dict[str, Any], str]] = {
    "address given": (load_balancer, {"ip": "192.0.2.1"}, "ready"),
    "just made": (load_balancer, {}, "pending"),
    "refused": (load_balancer, {"message": "no IP addresses available"}, "pending"),
    "leaving": (load_balancer, {"ip": "192.0.2.1", "deleting": True}, "deleting"),
}


@pytest.mark.parametrize(("make", "fields", "expected"), STATES.values(), ids=STATES.keys())
def test_state_of_a_load_balancer(make: Callable[..., LoadBalancer], fields: dict[str, Any], expected: str) -> None:
    assert state_of(make(**fields)) == expected


def test_an_address_without_backends_is_unhealthy() -> None:
    assert state_of(load_balancer(ip="192.0.2.1", message="no running backend servers")) == "unhealthy"


async def test_load_balancers_of_this_cluster_are_counted(scene: ServiceMetricsWorld) -> None:
    def one(name: str, cluster: str = "demo", target: str = "web", **fields: Any) -> LoadBalancer:
        labels = {LB_CLUSTER: cluster, LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: target}
        return load_balancer(name, uid=name, labels=labels, **fields)

    scene.see(service("web", address="192.0.2.1"))
    for item in (
        one("a", ip="192.0.2.1"),
        one("b", ip="192.0.2.2"),
        one("c", spec={"ipam": "dhcp"}),
        one("d", ip="192.0.2.3", spec={"workloadType": "vm"}),
        one("of others", "other", ip="192.0.2.4"),
        one("orphan", target="gone", ip="192.0.2.5"),
    ):
        scene.load_balancers.observe(item)
    known = {("ready", "pool", "cluster"): 2, ("pending", "dhcp", "cluster"): 1, ("ready", "pool", "vm"): 1}
    # Before all Services are known, none can be missed.
    assert scene.states == {**known, ("ready", "pool", "cluster"): 3}

    scene.services._synced.set()

    assert scene.states == {**known, ("orphan", "pool", "cluster"): 1}
