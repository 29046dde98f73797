"""What is told of clients, caches, the Lease and queues, tied to real ones or to their state."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harvester_ccm.config import SERVICE_CONTROLLER, ServerSettings
from harvester_ccm.errors import CCMError, CredentialError, Unreachable
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import NODES, SERVICES, Node, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.model.outcome import Done, Outcome
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.telemetry.auth import AccessReviewer
from harvester_ccm.telemetry.health import STUCK_SECONDS, Aspect, HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.server import https_server
from harvester_ccm.telemetry.services import ServiceMetrics, follow_new_nodes
from tests.unit.telemetry.test_metrics import samples
from tests.unit.telemetry.test_nodes import node
from tests.worlds.background import running
from tests.worlds.builders import CLUSTER, load_balancer, service
from tests.worlds.offline import json_web_token, offline_client
from tests.worlds.waiting import wait_for


@dataclass
class Cache:
    """An informer's state."""

    name: str
    synced: bool = True
    problem: CCMError | None = None
    restarts: int = 0
    last_contact: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def __len__(self) -> int:
        return 3


@dataclass
class Candidate:
    """A leader elector's state."""

    leading: bool = True
    renewed_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())


LEASE = "cloud-controller-manager"


def problems(health: HealthRegistry, aspect: Aspect) -> dict[str, str]:
    return {one.name: one.problem for one in health.results(aspect) if one.problem is not None}


async def test_expiry_is_shown_where_it_is_known() -> None:
    class Broken(FixedToken):
        def get(self) -> str:
            raise CredentialError("/token: no such file")

    class Plugin(FixedToken):
        renewed = True

    expiring = json_web_token({"exp": 1800000000})
    telemetry = Telemetry("1")
    telemetry.follow_clients(
        offline_client("harvester", FixedToken(expiring)),
        offline_client("guest", Broken(None)),
        offline_client("opaque", FixedToken("token-abc:xyz")),
        offline_client("plugin", Plugin(expiring)),
    )

    shown = samples(telemetry)["harvester_ccm_credential_expiry_timestamp_seconds"]

    assert shown == {(("cluster", "harvester"),): 1800000000.0}


async def test_readiness_follows_the_caches() -> None:
    services: Any = Cache("guest/services")
    balancers: Any = Cache("harvester/loadbalancers")
    optional: Any = Cache("guest/configmaps", synced=False)
    telemetry, health = Telemetry("1"), HealthRegistry()
    health.follow_caches(guest=[services], harvester=[balancers])
    telemetry.follow_caches(guest=[services, optional], harvester=[balancers])
    telemetry.follow_health(health)
    assert problems(health, Aspect.READY) == {}

    services.synced = False
    balancers.problem = Unreachable("no route to host")

    assert problems(health, Aspect.LIVE) == {}
    assert problems(health, Aspect.READY) == {
        "caches-synced": "never listed: guest/services",
        "harvester-reachable": "harvester/loadbalancers: no route to host",
    }
    shown = samples(telemetry)
    checks = shown["kubernetes_healthcheck"]
    assert checks[(("name", "harvester-reachable"), ("type", "readyz"))] == 0
    assert checks[(("name", "harvester-credential"), ("type", "readyz"))] == 1
    assert checks[(("name", "ping"), ("type", "livez"))] == 1
    assert shown["harvester_ccm_cache_synced"] == {
        (("collection", "guest/services"),): 0,
        (("collection", "harvester/loadbalancers"),): 1,
        (("collection", "guest/configmaps"),): 0,
    }
    assert shown["harvester_ccm_cache_objects"][(("collection", "guest/services"),)] == 3


async def test_last_contact_is_the_latest_of_watches_and_requests() -> None:
    name = "harvester_ccm_harvester_last_contact_timestamp_seconds"
    balancers: Any = Cache("harvester/loadbalancers", last_contact=float("-inf"))
    telemetry = Telemetry("1")
    telemetry.follow_caches(guest=[], harvester=[balancers])
    assert name not in samples(telemetry)

    balancers.last_contact = asyncio.get_running_loop().time() - 100
    assert samples(telemetry)[name][()] == pytest.approx(time.time() - 100, abs=30)

    telemetry.request_done("harvester", "GET", "/version", 200, 0.1)
    assert samples(telemetry)[name][()] == pytest.approx(time.time(), abs=30)


async def test_a_leader_that_lost_its_lease_and_goes_on_is_not_live() -> None:
    candidate: Any = Candidate()
    telemetry, health = Telemetry("1"), HealthRegistry()
    telemetry.follow_lease(LEASE, candidate)
    health.follow_lease(candidate, 15.0)
    master = (("name", "cloud-controller-manager"),)
    assert samples(telemetry)["leader_election_master_status"][master] == 1
    assert problems(health, Aspect.LIVE) == {}

    candidate.renewed_at -= 40

    expected = {"leaderElection": "the Lease is held and was not renewed for 40 s"}
    assert problems(health, Aspect.LIVE) == problems(health, Aspect.READY) == expected
    candidate.leading = False
    assert problems(health, Aspect.LIVE) == {}
    assert samples(telemetry)["leader_election_master_status"][master] == 0


async def test_a_controller_that_is_stuck_is_not_live() -> None:
    now = 1000.0

    async def never(_key: str) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    telemetry, health = Telemetry("1", clock=lambda: now), HealthRegistry()
    runner = WorkQueue("service", never, workers=1)
    health.follow_controller(SERVICE_CONTROLLER, telemetry.follow_queue(runner))
    for name in (SERVICE_CONTROLLER, "cloud-node-lifecycle-controller"):
        telemetry.follow_controller(name)
    async with running(runner.run()):
        runner.enqueue("shop/web")
        await wait_for(lambda: runner._active)
        assert problems(health, Aspect.LIVE) == {}
        now += STUCK_SECONDS + 1

        assert set(problems(health, Aspect.LIVE)) == {SERVICE_CONTROLLER}

    shown = samples(telemetry)["running_managed_controllers"]
    manager = ("manager", "cloud-controller-manager")
    assert shown == {(manager, ("name", "service")): 1, (manager, ("name", "cloud-node-lifecycle")): 1}


async def test_port_zero_means_no_server(tmp_path: Path) -> None:
    settings = ServerSettings("127.0.0.1", 0, tmp_path / "missing", tmp_path / "missing", "1.2", frozenset())

    reviewer = AccessReviewer(offline_client())
    async with https_server(settings, HealthRegistry(), telemetry=Telemetry("1"), reviewer=reviewer):
        pass


async def test_only_the_leader_tells_about_services_and_nodes() -> None:
    telemetry = Telemetry("1")
    candidate: Any = Candidate(leading=False)
    services: Informer[Service] = Informer(offline_client(), SERVICES)
    balancers: Informer[LoadBalancer] = Informer(offline_client(), LOAD_BALANCERS)
    nodes: Informer[Node] = Informer(offline_client(), NODES)
    ServiceMetrics(telemetry, services, balancers, CLUSTER)
    follow_new_nodes(telemetry, nodes)
    telemetry.follow_lease(LEASE, candidate)
    services.observe(service())
    balancers.observe(load_balancer(labels={LB_CLUSTER: "demo"}))
    nodes.observe(node(1, tainted=True))
    telemetry.queue("service").answered("shop/web", "no_matching_pool")
    shown = samples(telemetry)
    assert "harvester_ccm_services_pending" not in shown
    assert "harvester_ccm_load_balancers" not in shown
    assert shown["node_controller_initial_node_sync_delay_seconds_count"][()] == 0

    candidate.leading = True

    shown = samples(telemetry)
    assert shown["harvester_ccm_services_pending"] == {(("reason", "no_matching_pool"),): 1}
    assert set(shown["harvester_ccm_service_pending_longest_seconds"]) == {(("reason", "no_matching_pool"),)}
    assert sum(shown["harvester_ccm_load_balancers"].values()) == 1
    services.observe(msgspec.structs.replace(service(address="192.0.2.1"), metadata=newer(service())))
    assert samples(telemetry)["harvester_ccm_service_pending_seconds_count"][()] == 1


def newer(item: Service) -> ObjectMeta:
    return msgspec.structs.replace(item.metadata, resource_version="8")
