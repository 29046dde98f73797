"""The commands on Harvester before 1.2: what they read, from the clusters and from files, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from harvester_ccm.commands.adopt import propose
from harvester_ccm.commands.backend_report import backends_of
from harvester_ccm.commands.checks_connection import Result
from harvester_ccm.commands.checks_content import api_check, served_by
from harvester_ccm.commands.clusters import read_load_balancers
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.service_view import ServiceView
from harvester_ccm.errors import Forbidden, NotServed
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import BEFORE_1_2, INSTANCES, LOAD_BALANCERS_V1ALPHA1
from harvester_ccm.names import LB_CLUSTER
from tests.unit.commands import objects
from tests.unit.commands.conftest import Runner, Writer
from tests.worlds.memory_server import Document, MemoryClient, MemoryServer, refused

GROUP = "/apis/loadbalancer.harvesterhci.io"
UUID = "cloudprovider.harvesterhci.io/service-uuid"


def old_balancer(**metadata: Any) -> Document:
    """Return a load balancer as an earlier provider made it."""
    return {
        "apiVersion": LOAD_BALANCERS_V1ALPHA1.api_version,
        "kind": "LoadBalancer",
        "metadata": {
            "name": "kubernetes-shop-web-1234",
            "namespace": objects.VMS,
            "uid": "lb-uid",
            "resourceVersion": "3",
            "labels": {LB_CLUSTER: "demo"},
            "annotations": {UUID: objects.UID},
            **metadata,
        },
        "spec": {"ipam": "pool", "listeners": [], "backendServers": ["10.0.0.1", "10.0.0.9"]},
        "status": {"address": "10.9.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Harvester(MemoryServer):
    """Serves load balancers in these versions and the other groups in the versions that are needed."""

    def __init__(self, *served: str) -> None:
        super().__init__()
        self.served = served

    async def serve(
        self, verb: str, path: str, body: Any, params: Mapping[str, str] | None = None, *, by: str = ""
    ) -> Document:
        """Answer discovery and lists."""
        if "/namespaces/" in path:
            if not any(f"/{version}/" in path for version in self.served):
                raise refused(404, "", "404 page not found")
            return await super().serve(verb, path, body, params, by=by)
        if path.startswith(GROUP):
            if path == GROUP and not self.served:
                raise refused(404, "", "404 page not found")
            resources = [{"name": "loadbalancers"}] if path.rpartition("/")[2] in self.served else []
            return {"versions": [{"version": version} for version in self.served], "resources": resources}
        return {"versions": [{"version": "v1"}]}

    @property
    def client(self) -> MemoryClient:
        """A client of it."""
        return MemoryClient(self, cluster="harvester", namespace=objects.VMS)


@pytest.mark.parametrize(
    ("served", "result", "says", "advises"),
    [
        pytest.param(("v1beta1", "v1alpha1"), Result.OK, "loadbalancer.harvesterhci.io/v1beta1", "", id="today"),
        pytest.param(
            ("v1alpha1",), Result.WARNING, "v1beta1 is not served (there is v1alpha1)", "before 1.2", id="before 1.2"
        ),
        pytest.param((), Result.FAILED, "there is nothing of this group", "has to be installed", id="nothing"),
        pytest.param(("v2",), Result.FAILED, "there is v2", "has to be installed", id="nothing that is spoken"),
    ],
)
async def test_preflight(served: tuple[str, ...], result: Result, says: str, advises: str) -> None:
    check = api_check(await served_by(Harvester(*served).client), "harvester")
    assert check.result is result
    assert says in check.detail
    assert advises in check.advice


async def test_load_balancers_are_read_in_the_version_there_is() -> None:
    harvester = Harvester("v1alpha1")
    harvester.put("loadbalancer.harvesterhci.io/v1alpha1/loadbalancers", old_balancer())
    resource, found = await read_load_balancers(harvester.client, objects.VMS)
    assert resource == LOAD_BALANCERS_V1ALPHA1
    assert [one.address for one in found] == ["10.9.0.1"]


async def test_without_any_version_the_refusal_stays() -> None:
    with pytest.raises(NotServed):
        await read_load_balancers(Harvester().client, objects.VMS)


async def test_other_refusals_are_not_asked_about() -> None:
    harvester = Harvester("v1beta1")
    harvester.fault = lambda _call: refused(403, "Forbidden", "no")
    with pytest.raises(Forbidden):
        await read_load_balancers(harvester.client, objects.VMS)


def test_explained_from_files(run: Runner, case: Writer) -> None:
    node = objects.node(taints=[])
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    file = case(objects.service(), objects.home(), node, old_balancer())
    document = run("explain", "service", "-f", file, "--cluster-name=demo").document
    assert document["claimed"]["name"] == "kubernetes-shop-web-1234"
    judged = document["claimed"]
    assert judged["because"] == f"annotation {UUID} is this Service's UID"
    (written,) = [one["loadBalancer"]["update"] for one in document["steps"] if "loadBalancer" in one]
    assert written["apiVersion"] == LOAD_BALANCERS_V1ALPHA1.api_version
    assert written["spec"]["backendServers"] == ["10.0.0.1"]
    assert any("Harvester is one before 1.2" in sentence for sentence in document["assumptions"])


def test_backends_by_address() -> None:
    instance = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.1"]))
    instance["status"]["interfaces"][0]["ipAddress"] = "10.0.0.1"
    inventory = Inventory(vmis=(INSTANCES.decode(msgspec.json.encode(instance)),), capabilities=BEFORE_1_2)
    found = backends_of(LOAD_BALANCERS_V1ALPHA1.decode(msgspec.json.encode(old_balancer())), inventory, "")
    assert found is not None
    assert found.selected == ("w1", "10.0.0.9")
    assert [one.title for one in found.found] == ["w1 (10.0.0.1)", "10.0.0.9"]


def test_a_kind_that_it_does_not_know_is_no_obstacle_to_an_adoption() -> None:
    asked = {"cloudprovider.harvesterhci.io/workload-type": "cluster"}
    service = SERVICES.decode(msgspec.json.encode(objects.service(annotations=asked)))
    old = LOAD_BALANCERS_V1ALPHA1.decode(msgspec.json.encode(old_balancer()))
    inventory = Inventory(services=(service,), load_balancers=(old,), capabilities=BEFORE_1_2)
    view = ServiceView(ClusterIdentity("demo", objects.VMS, objects.CLUSTER_UID), True, 0.0, None)
    assert propose(service, old, inventory, view).obstacles == ()
