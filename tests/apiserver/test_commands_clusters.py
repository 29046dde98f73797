"""``explain``, ``preflight`` and ``cleanup`` on real API servers: their output, and exactly the writes they send."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devenv.apiserver import ControlPlane
from devenv.harvester.admission import REMOVAL_ANNOTATION
from devenv.harvester.emulator import HarvesterEmulator
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from harvester_ccm.cli import main
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
)
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
MAX_SECONDS = 60.0
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
        answer: Json = json.loads(self.out)
        return answer


@dataclass
class Field:
    """Both clusters behind proxies that record every request."""

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
        settings = {f"cloudprovider.harvesterhci.io/{key}": value for key, value in annotations.items()}
        body = {
            "metadata": {"name": name, "annotations": settings},
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
        return self.harvester.admin.get_or_none(f"{BALANCERS.format(self.vm_namespace)}/{name}")

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of every request that is not a read, a dry run or a review, which stores nothing."""
        records = [*self.guest_proxy.requests, *self.harvester_proxy.requests]
        return [
            (request.method, request.path)
            for request in records
            if request.method != "GET" and "dryRun" not in str(request) and "reviews" not in request.path
        ]


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
    # Lines are wrapped at the width of the terminal, which is 80 in pytest's workers.
    monkeypatch.setenv("COLUMNS", "120")
    # The machine can be slow.
    monkeypatch.setattr(ApiClient.__init__, "__kwdefaults__", {**DEFAULTS, "timeout": MAX_SECONDS})
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


async def test_explain_service_only_reads(field: Field) -> None:
    key = f"{field.namespace}/web"
    stored = field.service()
    name = load_balancer_name("demo", field.namespace, "web", stored["metadata"]["uid"])
    first = await field.run("explain", "service", key, "--output=json")
    assert "error" not in first.err
    uid = field.guest.admin.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    created = next(
        one["diff"] for one in first.document["nextWrites"] if one["request"] == f"create LoadBalancer {name}"
    )
    assert f'+ metadata.annotations.{LB_OWNER}: "{uid}"' in created
    field.balancer(name)
    second = await field.run("explain", "service", key)
    assert f"  Name:           {name}\n" in second.out
    assert "  Address:        10.0.0.7\n" in second.out
    assert field.writes() == []


async def test_preflight_only_reads(field: Field) -> None:
    result = await field.run("preflight", "--output=json")
    assert "error" not in result.err
    assert field.writes() == []


@pytest.fixture
async def emulator(harvester: ControlPlane) -> Any:
    async with (
        ApiClient(load_credentials(harvester.admin_kubeconfig), cluster="harvester-admin") as admin,
        HarvesterEmulator(admin, webhook=False) as running,
    ):
        yield running


async def test_cleanup_after_a_cluster_that_is_gone(field: Field, emulator: HarvesterEmulator) -> None:
    await emulator.create_pool(f"pool-{field.vm_namespace}", "127.99.0.0/28")
    for service, cluster in (("a", "demo"), ("b", "demo"), ("c", "other")):
        field.balancer(f"{cluster}-{service}", service=service, cluster=cluster, owner="gone", status={})

    async def all_allocated() -> bool:
        return (await emulator.counts(field.vm_namespace)).booked == 3

    await wait_for(all_allocated, what="addresses of three load balancers")
    listed = await field.run("cleanup", "--cluster-name=demo")
    assert listed.code == 0
    assert "demo-a" in listed.out
    assert "other-c" not in listed.out
    assert "Nothing was deleted; add --yes to delete them" in listed.out
    other = await field.run("cleanup", "--cluster-name=demo", "--cluster-uid=another", "--yes", "-o", "json")
    assert other.document["loadBalancers"] == []
    assert field.writes() == []
    done = await field.run("cleanup", "--cluster-name=demo", "--yes", "--output=json")
    assert (done.code, sorted(done.document["deleted"])) == (0, ["demo-a", "demo-b"])
    assert (field.stored("demo-a"), field.stored("demo-b")) == (None, None)
    assert field.stored("other-c") is not None
    assert (await emulator.counts(field.vm_namespace)).booked == 1
    nothing = await field.run("cleanup", "--cluster-name=demo", "--yes")
    assert nothing.code == 0
    assert "Nothing to delete. Clusters with load balancers in namespace" in nothing.out
    assert nothing.out.endswith(": other\n")
    assert not field.guest_proxy.requests


async def test_cleanup_deletes_a_load_balancer_that_harvester_gave_no_address(
    field: Field, emulator: HarvesterEmulator
) -> None:
    field.balancer("demo-a", service="a", status={})

    def rejected() -> bool:
        stored = field.stored("demo-a")
        return bool(stored and stored["metadata"].get("finalizers") and stored["status"].get("conditions"))

    await wait_for(rejected, what="a rejection, as there is no pool")
    done = await field.run("cleanup", "--cluster-name=demo", "--yes", "--output=json")
    assert (done.code, done.document["deleted"]) == (0, ["demo-a"]), done.document
    assert [method for method, _ in field.writes()] == ["PUT", "DELETE"]
    assert field.stored("demo-a") is None


async def test_cleanup_of_a_cluster_with_vms_needs_its_uid(
    field: Field, joined: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harvester_ccm.commands.cleanup.REMOVAL_ATTEMPTS", 0)
    field.balancer("demo-a", service="a", owner="previous")
    joined(f"{field.vm_namespace}-alive", "10.0.0.9")
    rejected = await field.run("cleanup", "--cluster-name=demo", "--yes")
    assert rejected.code == 1
    assert "Nothing is deleted without --cluster-uid, because of the warnings" in rejected.out
    assert "Warnings:         VMs of a cluster of this name exist" in rejected.out
    assert field.writes() == []
    deleted = await field.run("cleanup", "--cluster-name=demo", "--cluster-uid=previous", "--yes")
    assert (deleted.code, "a finalizer keeps it. Check that harvester-load-balancer" in deleted.out) == (1, True)
    assert [method for method, _ in field.writes()] == ["DELETE"]


async def test_webhook_decides_about_the_dry_run(field: Field, joined: Callable[..., Machine]) -> None:
    """The API server forwards the dry run to the webhook, which admits, rejects, or is not reachable."""
    machine = joined(f"{field.vm_namespace}-w3", "10.0.0.3")
    path = f"/apis/kubevirt.io/v1/namespaces/{field.vm_namespace}/virtualmachines/{machine.name}"

    async def results() -> set[str]:
        preflight = await field.run("preflight", "--output=json")
        (check,) = (one for one in preflight.document["checks"] if one["check"] == "webhook")
        return {check["result"]}

    async with (
        ApiClient(load_credentials(field.harvester.admin_kubeconfig), cluster="harvester-admin") as admin,
        HarvesterEmulator(admin) as running,
    ):
        webhook = running.webhook
        assert webhook is not None
        assert await results() == {"ok"}
        removed = {"metadata": {"annotations": {REMOVAL_ANNOTATION: "true"}}}
        field.harvester.admin.request("PATCH", path, body=removed)

        async def rejects() -> bool:
            return await results() == {"failed"}

        await wait_for(rejects, what="the webhook to know of the removal")
        text = await field.run("preflight")
        assert text.code == 1
        assert "Harvester would refuse the load balancer" in text.out
        assert "Rancher is removing this cluster" in " ".join(text.out.split())
        await webhook.stop()
        assert await results() == {"failed"}
        await webhook.start()
    assert field.harvester.admin.request("GET", BALANCERS.format(field.vm_namespace))["items"] == []
