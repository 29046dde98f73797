"""``explain`` and ``cleanup`` on real clusters: what they say, and exactly what they write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devenv.apiserver import ControlPlane
from devenv.faults import Answer, Hang
from devenv.harvester.admission import REMOVAL_ANNOTATION
from devenv.harvester.emulator import HarvesterEmulator
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from harvester_ccm.cli import main
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    MACHINE_RECORD,
)
from harvester_ccm.plan.service.ownership import load_balancer_name
from tests.worlds.waiting import wait_for

pytestmark = pytest.mark.apiserver

BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
PATIENCE = 60.0
DEFAULTS = ApiClient.__init__.__kwdefaults__ or {}
CONTROLLER_FINALIZER = "wrangler.cattle.io/harvester-lb-controller"


@dataclass
class Result:
    """A run of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Json:
        """The JSON that was printed."""
        answer: Json = json.loads(self.out)
        return answer


@dataclass
class Field:
    """Both clusters behind proxies that write down every request."""

    guest: ControlPlane
    harvester: ControlPlane
    guest_proxy: FaultProxy
    harvester_proxy: FaultProxy
    namespace: str
    vm_namespace: str
    flags: tuple[str, ...]
    capsys: pytest.CaptureFixture[str]

    async def run(self, *words: str) -> Result:
        """Run a command as the product's accounts."""
        self.capsys.readouterr()
        code = await asyncio.to_thread(main, ["harvester-ccm", *words, *self.flags], {})
        captured = self.capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def service(self, name: str = "web", **annotations: str) -> Json:
        """Create a Service of type LoadBalancer and return it as stored."""
        path = f"/api/v1/namespaces/{self.namespace}/services"
        wishes = {f"cloudprovider.harvesterhci.io/{key}": value for key, value in annotations.items()}
        body = {
            "metadata": {"name": name, "annotations": wishes},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "name": "http"}]},
        }
        return self.guest.admin.request("POST", path, body=body)

    def balancer(self, name: str, *, service: str = "web", cluster: str = "demo", owner: str = "", **more: Any) -> Json:
        """Create a load balancer as Harvester's controller leaves it and return it as stored."""
        labels = {LB_CLUSTER: cluster, LB_SERVICE_NAMESPACE: self.namespace, LB_SERVICE_NAME: service}
        metadata: Json = {"name": name, "labels": labels, "finalizers": [CONTROLLER_FINALIZER]}
        if owner:
            metadata["annotations"] = {LB_OWNER: owner}
        body = {
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
            "kind": "LoadBalancer",
            "metadata": metadata,
            "spec": {"workloadType": "cluster", "ipam": "pool"},
            "status": {"allocatedAddress": {"ip": "10.0.0.7", "ipPool": "lan"}},
            **more,
        }
        return self.harvester.admin.request("POST", BALANCERS.format(self.vm_namespace), body=body)

    def stored(self, name: str) -> Json | None:
        """Return a load balancer as stored, or None."""
        return self.harvester.admin.get_or_none(f"{BALANCERS.format(self.vm_namespace)}/{name}")

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of every request that was more than a read; a dry run makes nothing."""
        records = [*self.guest_proxy.requests, *self.harvester_proxy.requests]
        return [(one.method, one.path) for one in records if one.method != "GET" and "dryRun" not in str(one)]


@pytest.fixture
async def field(
    guest: ControlPlane,
    harvester: ControlPlane,
    guest_proxy: FaultProxy,
    harvester_proxy: FaultProxy,
    namespace: str,
    vm_namespace: str,
    guest_kubeconfig: Path,
    harvester_kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Field:
    # Lines are broken at the width of the terminal, which pytest's workers say is 80.
    monkeypatch.setenv("COLUMNS", "120")
    # A busy machine is no fault of a server.
    monkeypatch.setattr(ApiClient.__init__, "__kwdefaults__", {**DEFAULTS, "patience": PATIENCE})
    flags = (
        f"--cloud-config={harvester_proxy.kubeconfig(harvester_kubeconfig, tmp_path / 'cloud-config')}",
        f"--kubeconfig={guest_proxy.kubeconfig(guest_kubeconfig, tmp_path / 'kubeconfig')}",
        "--cluster-name=demo",
    )
    return Field(guest, harvester, guest_proxy, harvester_proxy, namespace, vm_namespace, flags, capsys)


@pytest.fixture
def joined(guest: ControlPlane, harvester: ControlPlane, vm_namespace: str) -> Iterator[Callable[..., Machine]]:
    """A function that makes a running VM and its Node."""
    made: list[str] = []

    def join(name: str, *addresses: str) -> Machine:
        machine = Machine(name, namespace=vm_namespace)
        harvester.apply(machine_document(machine), instance_document(machine, *addresses))
        guest.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        made.append(name)
        return machine

    yield join
    for name in made:
        guest.admin.request("DELETE", f"/api/v1/nodes/{name}")


def cluster_uid(field: Field) -> str:
    uid: str = field.guest.admin.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    return uid


async def test_a_service_is_explained_by_reading_only(field: Field) -> None:
    key = f"{field.namespace}/web"
    stored = field.service()
    name = load_balancer_name("demo", field.namespace, "web", stored["metadata"]["uid"])
    first = await field.run("explain", "service", key, "--output=json")
    assert (first.code, first.err) == (0, "")
    assert first.document["expectedName"] == name
    created = next(one["diff"] for one in first.document["nextWrites"] if one["request"].startswith("create"))
    assert f'+ metadata.annotations.{LB_OWNER}: "{cluster_uid(field)}"' in created
    field.balancer(name)
    second = await field.run("explain", "service", key, "--output=json")
    assert second.document["loadBalancer"]["name"] == name
    assert second.document["waitsFor"] == ""
    text = await field.run("explain", "service", key)
    assert "  Address:        10.0.0.7\n" in text.out
    assert field.writes() == []
    assert field.stored(name) is not None


async def test_harvester_that_refuses_is_what_it_waits_for(field: Field) -> None:
    field.service()
    field.harvester_proxy.inject(Answer(401, "Unauthorized", "Unauthorized"))
    result = await field.run("explain", "service", f"{field.namespace}/web")
    assert result.code == 1
    assert "does not accept the token of ServiceAccount" in " ".join(result.out.split())
    assert "Waits for:        Harvester to respond" in result.out


async def test_the_guest_must_answer(field: Field) -> None:
    field.guest_proxy.inject(Answer(503, "away"), path="/api/v1/services")
    result = await field.run("explain", "service", f"{field.namespace}/web")
    assert (result.code, result.out) == (1, "")
    assert "away" in result.err
    field.guest_proxy.heal()
    missing = await field.run("explain", "service", f"{field.namespace}/none")
    assert missing.code == 1
    assert f"there is no Service {field.namespace}/none" in missing.err


async def test_a_node_is_explained_by_reading_only(field: Field, joined: Callable[..., Machine]) -> None:
    name = f"{field.vm_namespace}-w1"
    joined(name, "10.0.0.1")
    result = await field.run("explain", "node", name, "--output=json")
    assert result.document["vm"]["foundBy"] == "name"
    assert [(one["address"], one["type"]) for one in result.document["addresses"]] == [
        ("10.0.0.1", "InternalIP"),
        (name, "Hostname"),
    ]
    missing = await field.run("explain", "node", f"{name}-none")
    assert missing.code == 1
    assert field.writes() == []


async def test_a_node_whose_vm_is_gone(field: Field, joined: Callable[..., Machine]) -> None:
    name = f"{field.vm_namespace}-w2"
    machine = joined(name, "10.0.0.2")
    vms = f"/apis/kubevirt.io/v1/namespaces/{field.vm_namespace}"
    uid = field.harvester.admin.request("GET", f"{vms}/virtualmachines/{machine.name}")["metadata"]["uid"]
    field.guest.admin.request("PATCH", f"/api/v1/nodes/{name}", body={"spec": {"providerID": f"harvester://{uid}"}})
    unready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    field.guest.admin.request("PATCH", f"/api/v1/nodes/{name}/status", body=unready)
    for plural in ("virtualmachineinstances", "virtualmachines"):
        field.harvester.admin.request("DELETE", f"{vms}/{plural}/{machine.name}")
    held = "NodeDeletionBlocked"
    result = await field.run("explain", "node", name)
    assert result.code == 1
    assert held in result.out
    recorded = {"metadata": {"annotations": {MACHINE_RECORD: name}}}
    field.guest.admin.request("PATCH", f"/api/v1/nodes/{name}", body=recorded)
    result = await field.run("explain", "node", name)
    assert result.code == 1
    assert "Vm existence:     absent" in result.out
    assert held in result.out
    assert field.writes() == []


async def test_preflight_writes_nothing(field: Field) -> None:
    result = await field.run("preflight", "--output=json")
    assert result.err == ""
    assert {path.rpartition("/")[2] for _, path in field.writes()} == {"selfsubjectaccessreviews", "selfsubjectreviews"}


async def test_servers_that_answer_no_question_but_one_do_not_hold_preflight_up(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApiClient.__init__, "__kwdefaults__", {**DEFAULTS, "patience": 3.0})
    for proxy in (field.guest_proxy, field.harvester_proxy):
        proxy.inject(Hang(), path="^(?!/version)")
    result = await field.run("preflight", "-o", "json")
    assert result.code == 1
    checks = {(one["where"], one["check"]): one for one in result.document["checks"]}
    assert "no answer within 3 s" in checks["guest", "credential"]["detail"]
    assert checks["harvester", "API versions"]["detail"].startswith("unknown: ")


@pytest.fixture
async def emulator(harvester: ControlPlane) -> Any:
    async with (
        ApiClient(load_kubeconfig(harvester.admin_kubeconfig), cluster="harvester-admin") as admin,
        HarvesterEmulator(admin, webhook=False) as running,
    ):
        yield running


async def test_cleanup_after_a_cluster_that_is_gone(field: Field, emulator: HarvesterEmulator) -> None:
    await emulator.create_pool(f"pool-{field.vm_namespace}", "127.99.0.0/28")
    for service, cluster in (("a", "demo"), ("b", "demo"), ("c", "other")):
        field.balancer(f"{cluster}-{service}", service=service, cluster=cluster, owner="gone", status={})

    async def all_booked() -> bool:
        return (await emulator.counts(field.vm_namespace)).booked == 3

    await wait_for(all_booked, what="addresses of three load balancers")
    listed = await field.run("cleanup", "--cluster=demo")
    assert listed.code == 0
    assert "demo-a" in listed.out
    assert "other-c" not in listed.out
    assert "Nothing was deleted; add --yes to delete them" in listed.out
    of_another = await field.run("cleanup", "--cluster=demo", "--cluster-uid=another", "--yes", "-o", "json")
    assert of_another.document["loadBalancers"] == []
    assert field.writes() == []
    done = await field.run("cleanup", "--cluster=demo", "--yes", "--output=json")
    assert done.code == 0
    assert sorted(done.document["deleted"]) == ["demo-a", "demo-b"]
    assert (field.stored("demo-a"), field.stored("demo-b")) == (None, None)
    assert field.stored("other-c") is not None
    assert (await emulator.counts(field.vm_namespace)).booked == 1
    nothing = await field.run("cleanup", "--cluster=demo", "--yes")
    assert (nothing.code, nothing.out) == (0, f"Cluster:          demo\nNamespace:        {field.vm_namespace}\n")
    assert not field.guest_proxy.requests


async def test_cleanup_asks_harvester_again_about_one_that_it_refused_an_address(
    field: Field, emulator: HarvesterEmulator
) -> None:
    field.balancer("demo-a", service="a", status={})

    def refused() -> bool:
        stored = field.stored("demo-a")
        return bool(stored and stored["metadata"].get("finalizers") and stored["status"].get("conditions"))

    await wait_for(refused, what="a refusal, as there is no pool")
    done = await field.run("cleanup", "--cluster=demo", "--yes", "--output=json")
    assert (done.code, done.document["deleted"]) == (0, ["demo-a"]), done.document
    assert [method for method, _ in field.writes()] == ["PUT", "DELETE"]
    assert field.stored("demo-a") is None


async def test_cleanup_leaves_a_cluster_that_lives(field: Field, joined: Callable[..., Machine]) -> None:
    field.balancer("demo-a", service="a")
    joined(f"{field.vm_namespace}-alive", "10.0.0.9")
    refused = await field.run("cleanup", "--cluster=demo", "--yes")
    assert refused.code == 1
    assert "Nothing is deleted without --force, because of the warnings" in refused.out
    assert "Warnings:         VMs of a cluster of this name exist" in refused.out
    assert field.writes() == []


async def test_cleanup_does_not_lose_an_address_that_is_being_booked(field: Field) -> None:
    unfinished = field.balancer("demo-a", service="a", status={})
    result = await field.run("cleanup", "--cluster=demo", "--yes", "--output=json")
    assert result.code == 1
    assert [one["name"] for one in result.document["failed"]] == [unfinished["metadata"]["name"]]
    assert field.stored("demo-a") is not None


async def test_the_webhook_is_asked_what_it_would_say(field: Field, joined: Callable[..., Machine]) -> None:
    """By a dry run that the API server itself sends on: it admits, refuses, or is away."""
    key = f"{field.namespace}/web"
    field.service()
    machine = joined(f"{field.vm_namespace}-w3", "10.0.0.3")
    path = f"/apis/kubevirt.io/v1/namespaces/{field.vm_namespace}/virtualmachines/{machine.name}"

    async def asked() -> dict[str, str]:
        preflight = await field.run("preflight", "--output=json")
        (check,) = (one for one in preflight.document["checks"] if one["check"] == "webhook")
        explained = await field.run("explain", "service", key, "--output=json")
        return {"preflight": check["result"], "explain": explained.document["dryRun"]["result"]}

    async with (
        ApiClient(load_kubeconfig(field.harvester.admin_kubeconfig), cluster="harvester-admin") as admin,
        HarvesterEmulator(admin) as running,
    ):
        webhook = running.webhook
        assert webhook is not None
        assert await asked() == {"preflight": "ok", "explain": "ok"}
        removed = {"metadata": {"annotations": {REMOVAL_ANNOTATION: "true"}}}
        field.harvester.admin.request("PATCH", path, body=removed)

        async def refuses() -> bool:
            return await asked() == {"preflight": "failed", "explain": "failed"}

        await wait_for(refuses, what="the webhook to know of the removal")
        text = await field.run("explain", "service", key)
        assert text.code == 1
        assert "Harvester would refuse the load balancer" in text.out
        assert "Rancher is removing this cluster" in " ".join(text.out.split())
        await webhook.stop()
        assert await asked() == {"preflight": "failed", "explain": "failed"}
        await webhook.start()
    assert field.harvester.admin.request("GET", BALANCERS.format(field.vm_namespace))["items"] == []
