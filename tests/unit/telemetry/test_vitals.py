"""What this process tells about itself, tied to real clients, queues and informers."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from harvester_ccm.config import SERVICE_CONTROLLER, LeaderElectionSettings, ServerSettings
from harvester_ccm.controllers.runner import Runner
from harvester_ccm.errors import CCMError, CredentialError, Unreachable
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.jwt import token_expiry
from harvester_ccm.kube.tokens import FixedToken, TokenSource
from harvester_ccm.model.core import NODES, SERVICES, Node, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.model.outcome import Done, Outcome
from harvester_ccm.names import LB_CLUSTER, UNINITIALIZED_TAINT
from harvester_ccm.telemetry import Aspect
from harvester_ccm.telemetry.vitals import Vitals
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.background import running
from tests.worlds.builders import CLUSTER, load_balancer, service
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


ELECTION = LeaderElectionSettings(True, 15.0, 10.0, 2.0, "cloud-controller-manager", "kube-system")


def json_web_token(claims: object) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "signature"])


def client(cluster: str, token: TokenSource) -> ApiClient:
    return ApiClient(Credentials("https://127.0.0.1:1", "", None, token), cluster=cluster)


def problems(vitals: Vitals, aspect: Aspect) -> dict[str, str]:
    return {one.name: one.problem for one in vitals.health.results(aspect) if one.problem is not None}


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (json_web_token({"exp": 1800000000, "iss": "kubernetes/serviceaccount"}), 1800000000.0),
        (json_web_token({"exp": 1800000000.5}), 1800000000.5),
        (json_web_token({"iss": "kubernetes/serviceaccount"}), None),
        (json_web_token({"exp": None}), None),
        (json_web_token({"exp": "tomorrow"}), None),
        (json_web_token([]), None),
        ("kubeconfig-u-abcdef:opaque", None),
        ("a.b.c", None),
        ("a.\u00e9.c", None),
        ("a.gA.c", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_may_say_when_it_expires(token: str | None, expiry: float | None) -> None:
    assert token_expiry(token) == expiry


async def test_expiry_is_shown_where_it_is_known() -> None:
    class Broken(FixedToken):
        def get(self) -> str:
            raise CredentialError("/token: no such file")

    class Plugin(FixedToken):
        blocking = True

    expiring = json_web_token({"exp": 1800000000})
    vitals = Vitals("1")
    vitals.follow_clients(
        client("harvester", FixedToken(expiring)),
        client("guest", Broken(None)),
        client("opaque", FixedToken("token-abc:xyz")),
        client("plugin", Plugin(expiring)),
    )

    shown = samples(vitals.telemetry)["harvester_ccm_credential_expiry_timestamp_seconds"]

    assert shown == {(("cluster", "harvester"),): 1800000000.0}


async def test_readiness_follows_the_caches() -> None:
    services, balancers = Cache("guest/services"), Cache("harvester/loadbalancers")
    optional = Cache("guest/configmaps", synced=False)
    vitals = Vitals("1")
    vitals.follow_caches(guest=[services], harvester=[balancers], optional=[optional])
    assert problems(vitals, Aspect.READY) == {}

    services.synced = False
    balancers.problem = Unreachable("no route to host")

    assert problems(vitals, Aspect.LIVE) == {}
    assert problems(vitals, Aspect.READY) == {
        "caches-synced": "never listed: guest/services",
        "harvester-reachable": "harvester/loadbalancers: no route to host",
    }
    shown = samples(vitals.telemetry)
    health = shown["kubernetes_healthcheck"]
    assert health[(("name", "harvester-reachable"), ("type", "readyz"))] == 0
    assert health[(("name", "harvester-credential"), ("type", "readyz"))] == 1
    assert health[(("name", "ping"), ("type", "livez"))] == 1
    assert shown["harvester_ccm_cache_synced"] == {
        (("collection", "guest/services"),): 0,
        (("collection", "harvester/loadbalancers"),): 1,
        (("collection", "guest/configmaps"),): 0,
    }
    assert shown["harvester_ccm_cache_objects"][(("collection", "guest/services"),)] == 3


async def test_last_contact_is_the_latest_of_watches_and_requests() -> None:
    name = "harvester_ccm_harvester_last_contact_timestamp_seconds"
    balancers = Cache("harvester/loadbalancers", last_contact=float("-inf"))
    vitals = Vitals("1")
    vitals.follow_caches(guest=[], harvester=[balancers])
    assert name not in samples(vitals.telemetry)

    balancers.last_contact = asyncio.get_running_loop().time() - 100
    assert samples(vitals.telemetry)[name][()] == pytest.approx(time.time() - 100, abs=1)

    vitals.telemetry.request_done("harvester", "GET", 200, 0.1)
    assert samples(vitals.telemetry)[name][()] == pytest.approx(time.time(), abs=1)


async def test_a_leader_that_lost_its_lease_and_goes_on_is_not_live() -> None:
    candidate = Candidate()
    vitals = Vitals("1")
    vitals.follow_election(candidate, ELECTION)
    master = (("name", "cloud-controller-manager"),)
    assert samples(vitals.telemetry)["leader_election_master_status"][master] == 1
    assert problems(vitals, Aspect.LIVE) == {}

    candidate.renewed_at -= 40

    expected = {"leaderElection": "the Lease is held and was not renewed for 40 s"}
    assert problems(vitals, Aspect.LIVE) == problems(vitals, Aspect.READY) == expected
    candidate.leading = False
    assert problems(vitals, Aspect.LIVE) == {}
    assert samples(vitals.telemetry)["leader_election_master_status"][master] == 0


async def test_a_controller_that_is_stuck_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_key: str) -> Outcome:
        await asyncio.Event().wait()
        return Done()

    vitals = Vitals("1")
    runner = Runner("service", never, workers=1)
    vitals.controller_started(SERVICE_CONTROLLER, runner)
    vitals.controller_started("cloud-node-lifecycle-controller")
    async with running(runner.run()):
        runner.enqueue("shop/web")
        await wait_for(lambda: runner.busy)
        assert problems(vitals, Aspect.LIVE) == {}
        monkeypatch.setattr("harvester_ccm.telemetry.checks.STUCK_SECONDS", 0.0)

        assert set(problems(vitals, Aspect.LIVE)) == {SERVICE_CONTROLLER}

    shown = samples(vitals.telemetry)["running_managed_controllers"]
    manager = ("manager", "cloud-controller-manager")
    assert shown == {(manager, ("name", "service")): 1, (manager, ("name", "cloud-node-lifecycle")): 1}


async def test_what_was_lost_and_removed_is_counted() -> None:
    vitals = Vitals("1")
    recorder = EventRecorder(client("guest", FixedToken(None)), host="here")
    recorder.dropped = 4
    vitals.follow_events(recorder)
    vitals.follow_orphans(lambda: 2)

    shown = samples(vitals.telemetry)

    assert shown["harvester_ccm_events_dropped_total"][()] == 4
    assert shown["harvester_ccm_orphans_deleted_total"][()] == 2


async def test_port_zero_means_no_server(tmp_path: Path) -> None:
    settings = ServerSettings("127.0.0.1", 0, tmp_path / "missing", tmp_path / "missing", "1.2", frozenset())

    async with Vitals("1").served(settings, client("guest", FixedToken(None))):
        pass


def node(version: int, *, tainted: bool, age: float | None = 40.0) -> Node:
    created = None if age is None else datetime.fromtimestamp(time.time() - age, UTC).isoformat()
    taints = [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}] if tainted else []
    meta = {"name": "n1", "uid": "u1", "resourceVersion": str(version), "creationTimestamp": created}
    return NODES.decode(json.dumps({"metadata": meta, "spec": {"taints": taints}}).encode())


async def test_new_nodes_are_timed_once() -> None:
    vitals = Vitals("1")
    nodes: Informer[Node] = Informer(client("guest", FixedToken(None)), NODES)
    vitals.follow_nodes(nodes)
    for version, tainted in enumerate((True, True, False, False), 1):
        nodes.observe(node(version, tainted=tainted))

    shown = samples(vitals.telemetry)

    for name in ("initial_node_sync_delay", "cloud_provider_taint_removal_delay"):
        assert shown[f"node_controller_{name}_seconds_count"][()] == 1
        assert shown[f"node_controller_{name}_seconds_sum"][()] == pytest.approx(40, abs=2)


async def test_nodes_that_were_there_before_are_not_timed() -> None:
    vitals = Vitals("1")
    nodes: Informer[Node] = Informer(client("guest", FixedToken(None)), NODES)
    vitals.follow_nodes(nodes)
    nodes.observe(node(1, tainted=False))
    nodes.forget(node(1, tainted=False))
    nodes.observe(node(2, tainted=True, age=None))

    assert samples(vitals.telemetry)["node_controller_initial_node_sync_delay_seconds_count"][()] == 0


async def test_only_the_leader_tells_about_services_and_nodes() -> None:
    vitals = Vitals("1")
    candidate = Candidate(leading=False)
    guest = client("guest", FixedToken(None))
    services: Informer[Service] = Informer(guest, SERVICES)
    balancers: Informer[LoadBalancer] = Informer(guest, LOAD_BALANCERS)
    nodes: Informer[Node] = Informer(guest, NODES)
    vitals.follow_services(services, balancers, CLUSTER)
    vitals.follow_nodes(nodes)
    vitals.follow_election(candidate, ELECTION)
    services.observe(service())
    balancers.observe(load_balancer(labels={LB_CLUSTER: "demo"}))
    nodes.observe(node(1, tainted=True))
    vitals.telemetry.queue("service").answered("shop/web", "no_matching_pool")
    shown = samples(vitals.telemetry)
    assert "harvester_ccm_services_pending" not in shown
    assert "harvester_ccm_load_balancers" not in shown
    assert shown["node_controller_initial_node_sync_delay_seconds_count"][()] == 0

    candidate.leading = True

    shown = samples(vitals.telemetry)
    assert shown["harvester_ccm_services_pending"] == {(("reason", "no_matching_pool"),): 1}
    assert set(shown["harvester_ccm_service_pending_longest_seconds"]) == {(("reason", "no_matching_pool"),)}
    assert sum(shown["harvester_ccm_load_balancers"].values()) == 1
    services.observe(msgspec.structs.replace(service(address="192.0.2.1"), metadata=newer(service())))
    assert samples(vitals.telemetry)["harvester_ccm_service_pending_seconds_count"][()] == 1


def newer(item: Service) -> ObjectMeta:
    return msgspec.structs.replace(item.metadata, resource_version="8")
