"""``preflight``: what it concludes from the content of the clusters, from permissions and from a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from harvester_ccm.commands.checks import Result, check_admission
from harvester_ccm.commands.checks_content import check_content
from harvester_ccm.commands.clusters import GUEST, HARVESTER, ClusterStore
from harvester_ccm.commands.permissions import check_permissions, permissions_of
from harvester_ccm.commands.preflight import check_versions
from harvester_ccm.errors import Answer, CCMError, Forbidden, NotServed, Unreachable
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.reviews import Review, ReviewStatus
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.model.meta import Page, Resource
from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER, VM_CLUSTER
from tests.unit.commands import objects
from tests.worlds.memory_server import MemoryClient, MemoryServer, refused

SETTINGS = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
DEMO = ClusterIdentity("demo", objects.VMS, objects.CLUSTER_UID)
VMS = "harvester VMs"
NODES_ROW, NAME, LBS, ADDRESSES = (
    "both Nodes and VMs",
    "both cluster name",
    "both load balancers",
    "both node addresses",
)


def decoded(resource: Resource[Any], documents: Sequence[objects.Json]) -> Page[Any]:
    return Page(tuple(resource.decode(msgspec.json.encode(one)) for one in documents), "")


def store(
    *vms: tuple[str, str],
    nodes: Sequence[objects.Json | str] = (),
    balancers: Sequence[objects.Json] = (),
    problems: dict[str, CCMError] | None = None,
) -> ClusterStore:
    """Return VMs, each with the cluster in its label, running, and Nodes and load balancers."""
    labeled = [
        objects.instance(name, ("eth0", "default/lan", ["10.0.0.1"]), labels={VM_CLUSTER: of} if of else {})
        for name, of in vms
    ]
    lists: dict[str, Any] = {
        SERVICES.plural: Page((), ""),
        NODES.plural: decoded(NODES, [objects.node(one) if isinstance(one, str) else one for one in nodes]),
        LOAD_BALANCERS.plural: decoded(LOAD_BALANCERS, balancers),
        VIRTUAL_MACHINES.plural: decoded(VIRTUAL_MACHINES, [objects.machine(name) for name, _ in vms]),
        INSTANCES.plural: decoded(INSTANCES, labeled),
    }
    return ClusterStore(DEMO, {**lists, **(problems or {})})


def node(name: str, address: str) -> objects.Json:
    """Return an initialized Node with an InternalIP."""
    one = objects.node(name, providerID=f"harvester://uid-of-vm-{name}", taints=[])
    one["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
    return one


def marked(owner: str, cluster: str = "demo") -> objects.Json:
    return objects.balancer(cluster, name=f"lb-{owner}", annotations={LB_OWNER: owner} if owner else {})


DEMO_VM = ("w1", "demo")
NO_PERMISSION = Forbidden(Answer(403, "Forbidden", "no", "GET /"))
CASES: dict[str, tuple[ClusterStore, str, Result, str, str]] = {
    "no VM": (store(), VMS, Result.FAILED, "there is no VM in namespace vms", "must be the one of this cluster's VMs"),
    "labeled VMs": (
        store(DEMO_VM, ("x", "")),
        VMS,
        Result.OK,
        f"2 in namespace vms, 1 with label {VM_CLUSTER}=demo",
        "",
    ),
    "VMs of others": (
        store(("w1", "other"), ("w2", "third")),
        VMS,
        Result.WARNING,
        "; there is other, third",
        "set --cluster-name to it",
    ),
    "VMs without a label": (
        store(("w1", "")),
        VMS,
        Result.WARNING,
        f"none with label {VM_CLUSTER}=demo",
        "Harvester before 1.8.1",
    ),
    "forbidden VMs": (
        store(problems={VIRTUAL_MACHINES.plural: NO_PERMISSION}),
        VMS,
        Result.SKIPPED,
        "see the permissions above",
        "",
    ),
    "unreachable VMs": (
        store(problems={VIRTUAL_MACHINES.plural: Unreachable("away")}),
        VMS,
        Result.SKIPPED,
        "away",
        "",
    ),
    "Nodes found": (
        store(DEMO_VM, nodes=["w1"]),
        NODES_ROW,
        Result.OK,
        "the VMs of all 1 Nodes are found, by name",
        "",
    ),
    "a Node lost": (
        store(DEMO_VM, nodes=["w1", "w2"]),
        NODES_ROW,
        Result.WARNING,
        "1 of 2 Nodes have no VM: w2",
        "No VM",
    ),
    "all Nodes lost": (
        store(("w1", "x"), nodes=["w1"]),
        NODES_ROW,
        Result.FAILED,
        "1 of 1 Nodes have no VM: w1",
        "Correct the label",
    ),
    "no Node": (store(DEMO_VM), NODES_ROW, Result.WARNING, "the cluster has no Node", "right cluster"),
    "name": (store(DEMO_VM, nodes=["w1"]), NAME, Result.OK, f"have label {VM_CLUSTER}=demo, as --cluster-name", ""),
    "another name": (
        store(("w1", "x"), nodes=["w1"]),
        NAME,
        Result.FAILED,
        "--cluster-name is 'demo' and the VMs",
        "Set --cluster-name=x",
    ),
    "no name": (store(("w1", ""), nodes=["w1"]), NAME, Result.SKIPPED, "no VM of a Node has label", ""),
    "load balancers": (
        store(balancers=[marked(objects.CLUSTER_UID), marked("")]),
        LBS,
        Result.OK,
        "1 of this cluster, 1 with its name and no owner annotation yet",
        "",
    ),
    "load balancers of another cluster": (
        store(balancers=[marked("another")]),
        LBS,
        Result.WARNING,
        "belong to another cluster: lb-another",
        "cleanup",
    ),
    "load balancers under a former name": (
        store(balancers=[marked(objects.CLUSTER_UID, "before")]),
        LBS,
        Result.WARNING,
        "some are this cluster's under another name: before",
        "--former-cluster-name=before",
    ),
    "another InternalIP": (
        store(DEMO_VM, nodes=[node("w1", "10.9.9.9")]),
        ADDRESSES,
        Result.WARNING,
        "1 Nodes would get another InternalIP: w1: InternalIP changed from 10.9.9.9 to 10.0.0.1",
        "break",
    ),
    "shared InternalIP": (
        store(nodes=[node("w1", "10.0.0.1"), node("w3", "10.0.0.1")]),
        "both InternalIPs",
        Result.WARNING,
        "Nodes have the same InternalIP: 10.0.0.1 (w1, w3)",
        "its own address",
    ),
}


@pytest.mark.parametrize(("found", "row", "result", "detail", "advice"), CASES.values(), ids=CASES.keys())
def test_content(found: ClusterStore, row: str, result: Result, detail: str, advice: str) -> None:
    checks = {f"{one.where} {one.check}": one for one in check_content(found, SETTINGS)}
    check = checks[row]
    assert (check.result, detail in check.detail, advice in check.advice) == (result, True, True), check
    assert bool(check.advice) == bool(advice)


@pytest.mark.parametrize(
    ("path", "result", "detail"),
    [
        ("", Result.OK, "loadbalancer.harvesterhci.io/v1beta1, kubevirt.io/v1"),
        (LOAD_BALANCERS.api_version, Result.FAILED, "not served: loadbalancer.harvesterhci.io/v1beta1"),
    ],
)
async def test_version_of_harvester(path: str, result: Result, detail: str) -> None:
    class Server:
        async def request(self, _method: str, asked: str) -> bytes:
            if path and asked.endswith(path):
                raise NotServed(Answer(404, "NotFound", "page not found", asked))
            return b"{}"

    found = await check_versions(cast("ApiClient", Server()))
    assert (found[:2], "Harvester before 1.2" in found[2]) == ((result, detail), result is Result.FAILED)


def test_requested_address_that_harvester_has_not_allocated() -> None:
    found = store()
    wish = "192.168.1.50"
    services = [
        objects.service("kept", uid="1", address=wish, finalizers=[SERVICE_FINALIZER], loadBalancerIP=wish),
        objects.service("other", uid="2", address=wish, loadBalancerIP=wish),
        objects.service("unasked", uid="3", address="192.168.1.51", finalizers=[SERVICE_FINALIZER]),
    ]
    found = ClusterStore(DEMO, {**found.lists, SERVICES.plural: decoded(SERVICES, services)})
    checks = {one.check: one for one in check_content(found, SETTINGS)}
    assert checks["addresses"].detail.endswith("that no load balancer of Harvester has: shop/kept (192.168.1.50)")


def test_addresses_that_stay_are_not_listed() -> None:
    found = store(DEMO_VM, nodes=[node("w1", "10.0.0.1")])
    assert {one.check for one in check_content(found, SETTINGS)}.isdisjoint({"node addresses", "InternalIPs"})


WEBHOOK = 'admission webhook "validator.harvester-system" denied the request: '
RESPONSES: dict[str, tuple[CCMError | None, Result, str]] = {
    "admitted": (None, Result.OK, ""),
    "name exists": (refused(409, "AlreadyExists", "exists"), Result.OK, ""),
    "rejected": (
        refused(500, "InternalError", f"{WEBHOOK}it has no running vm"),
        Result.FAILED,
        "give the VMs the label",
    ),
    "quota": (refused(403, "Forbidden", 'loadbalancers "x" is forbidden: exceeded quota: a'), Result.FAILED, ""),
    "bad name": (refused(422, "Invalid", "metadata.name: Invalid value"), Result.FAILED, "lower-case"),
    "no webhook": (
        refused(500, "InternalError", 'failed calling webhook "validator": connection refused'),
        Result.FAILED,
        "pods of harvester-load-balancer-webhook",
    ),
    "not permitted": (refused(403, "Forbidden", "may not create"), Result.SKIPPED, ""),
    "no response": (Unreachable("no answer within 10 s"), Result.WARNING, ""),
    "no dry run": (refused(400, "BadRequest", "admission webhook does not support dry run"), Result.WARNING, ""),
}


@pytest.mark.parametrize(("error", "result", "advice"), RESPONSES.values(), ids=RESPONSES.keys())
async def test_dry_run(error: CCMError | None, result: Result, advice: str) -> None:
    server = MemoryServer()
    server.fault = lambda call: error if call.is_write else None
    client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
    found = await check_admission(client, objects.balancer(), objects.VMS)
    assert (found[0], advice in found[2]) == (result, True), found
    assert result in (Result.OK, Result.SKIPPED) or str(error) in found[1]


class Reviewer:
    """Answers reviews; ``asked`` has the attributes of each."""

    namespace = "prod"

    def __init__(self, error: CCMError | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._error = error

    async def create(self, _resource: object, body: dict[str, Any]) -> Review:
        self.asked.append(body["spec"]["resourceAttributes"])
        if self._error is not None:
            raise self._error
        return Review(status=ReviewStatus(allowed=True))


@pytest.mark.parametrize(("cluster", "namespaces"), [(HARVESTER, {"prod"}), (GUEST, {None, "kube-system"})])
async def test_each_permission_is_reviewed_in_its_namespace(cluster: str, namespaces: set[str | None]) -> None:
    server = Reviewer()
    found = await check_permissions(cast("ApiClient", server), cluster, SETTINGS, "me")
    assert {one.result for one in found} == {Result.OK}
    assert {one.get("namespace") for one in server.asked} == namespaces
    assert len(server.asked) == len(permissions_of(cluster, SETTINGS))
    found = await check_permissions(cast("ApiClient", Reviewer(Unreachable("away"))), cluster, SETTINGS, "me")
    assert {(one.result, one.detail) for one in found} == {(Result.FAILED, "unknown: away")}


def test_permissions_of_what_is_switched_off_are_not_checked() -> None:
    words = ["--cloud-config=x", "--leader-elect=false", "--secure-port=0", "--controllers=service-lb-controller"]
    less = {one.title for one in permissions_of(GUEST, build_settings(parse_command_line(words), {}))}
    everything = {one.title for one in permissions_of(GUEST, SETTINGS)}
    assert everything - less == {"leases", "tokenreviews", "subjectaccessreviews", "nodes/status"}
