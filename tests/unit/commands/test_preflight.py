"""``preflight``: its conclusions from Nodes and VMs, from permissions, and from a dry run."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from harvester_ccm.commands.clusters import GUEST, HARVESTER
from harvester_ccm.commands.permissions import missing_in_harvester, permissions_of
from harvester_ccm.commands.preflight import (
    DRY_RUN_SECONDS,
    Result,
    check_admission,
    check_credential,
    check_permissions,
    check_requests,
)
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import KubeError, NoResponse, TimedOut, Unreachable
from harvester_ccm.kube.reviews import Review, ReviewStatus
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.harvester import IP_POOLS, ClusterIdentity
from harvester_ccm.names import LB_OWNER, VM_CLUSTER
from tests.support.clock import jumping_time
from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.support.memory_server import MemoryClient, MemoryServer, refused
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import ClusterServer, Runner
from tests.unit.commands.test_cluster_name import unnamed

FLAGS = ["--cloud-config=x", "--cluster-name=demo"]
SETTINGS = build_settings(parse_command_line(FLAGS), {})
DEMO = ClusterIdentity("demo", objects.VMS, objects.CLUSTER_UID)
DEMO_VM, OTHER_VM = ("w1", "demo"), ("w1", "x")


W1 = objects.node("w1")
VM = [objects.machine("w1"), objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]), labels={VM_CLUSTER: "x"})]
CONTENTS: dict[str, tuple[list[objects.Json], str, str, str]] = {
    "no Node": ([], "contents", "warning", "0 Nodes and 0 Services, 0 VMs in Harvester: the cluster has no Node"),
    "all is well": (objects.working_node(), "contents", "ok", "1 Nodes and 0 Services, 1 VMs in Harvester"),
    "one lost": ([*objects.working_node("w2"), W1], "VMNotFound", "warning", "Node w1: No VM"),
    "no VM": ([W1], "VMNotFound", "failed", "If its VM is in another namespace"),
    "label of another cluster": ([W1, *VM], "VMClusterMismatch", "failed", "Node w1: "),
    "another cluster name": (
        [objects.working_node()[0], *VM],
        "OtherClusterName",
        "failed",
        f"Cluster demo: --cluster-name is 'demo' and the VMs of the Nodes have label {VM_CLUSTER}=x. Set --cluster-n",
    ),
}


@pytest.mark.parametrize(("documents", "row", "result", "detail"), CONTENTS.values(), ids=CONTENTS.keys())
def test_content(
    run: Runner, serve: ClusterServer, documents: list[objects.Json], row: str, result: str, detail: str
) -> None:
    _, found = checks(run, serve(objects.home(), objects.lease(), *documents))
    assert found[row][0] == result
    assert detail in found[row][1]


OWN_WEBHOOK = "validator.harvester-system.harvester-load-balancer-webhook"
WEBHOOK = 'admission webhook "validator.harvester-system" denied the request: '
RESPONSES: dict[str, tuple[KubeError | None, Result, str]] = {
    "admitted": (None, Result.OK, ""),
    "name exists": (refused(409, "AlreadyExists", "exists"), Result.OK, ""),
    "rejected": (
        refused(500, "InternalError", f"{WEBHOOK}it has no running vm"),
        Result.FAILED,
        "update it to 1.8.1, or give one VM",
    ),
    "quota": (refused(403, "Forbidden", 'loadbalancers "x" is forbidden: exceeded quota: a'), Result.FAILED, ""),
    "bad name": (refused(422, "Invalid", "metadata.name: Invalid value"), Result.FAILED, "lower-case"),
    "no webhook": (
        refused(500, "InternalError", f'failed calling webhook "{OWN_WEBHOOK}": connection refused'),
        Result.FAILED,
        "pods of harvester-load-balancer-webhook",
    ),
    "webhook with another certificate": (
        refused(500, "InternalError", f'failed calling webhook "{OWN_WEBHOOK}": x509: unknown authority'),
        Result.FAILED,
        "with the kubeconfig of Harvester: kubectl -n harvester-system rollout restart deployment",
    ),
    "webhook of another program": (
        refused(500, "InternalError", 'failed calling webhook "validate.example.com-fail": connection refused'),
        Result.FAILED,
        "delete its webhook configuration",
    ),
    "webhook hangs": (NoResponse("no answer within 35 s"), Result.FAILED, "pods of harvester-load-balancer-webhook"),
    "not permitted": (refused(403, "Forbidden", "may not create"), Result.SKIPPED, ""),
    "unreachable": (Unreachable("away"), Result.WARNING, ""),
    "load balancers are not served": (
        refused(404, "NotFound", "404 page not found"),
        Result.FAILED,
        "load balancer controller is installed",
    ),
    "failing server": (refused(500, "InternalError", "etcd is away"), Result.FAILED, "is installed"),
    "no dry run": (refused(400, "BadRequest", "admission webhook does not support dry run"), Result.WARNING, ""),
}


@jumping_time
async def test_dry_run_that_hangs_has_failed_soon() -> None:
    class Hanging:
        """A Harvester whose webhook does not respond for half a minute."""

        async def check_creation(self, *_arguments: object, **_names: object) -> None:
            await asyncio.sleep(30)

        async def get(self, *_arguments: object, **_names: object) -> None:
            raise refused(404, "NotFound", "not found")

    began = asyncio.get_running_loop().time()
    found = await check_admission(cast("ApiClient", Hanging()), objects.balancer(), DEMO)
    assert asyncio.get_running_loop().time() - began == pytest.approx(DRY_RUN_SECONDS)
    assert found[0] is Result.FAILED
    assert "does not respond to the dry run: no answer within 5 s" in found[1]
    assert "pods of harvester-load-balancer-webhook" in found[2]


async def test_webhook_is_not_suspected_while_reads_hang_as_well() -> None:
    server = MemoryServer()
    server.fault = lambda call: NoResponse("no answer within 35 s") if call.is_write else TimedOut("no answer")
    client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
    found = await check_admission(client, objects.balancer(), DEMO)
    assert found[1] == "Harvester responds neither to the dry run nor to a read: no answer"
    assert found[2].startswith("On each management node of Harvester, run kubectl get --raw /readyz")


@pytest.mark.parametrize(("error", "result", "fix"), RESPONSES.values(), ids=RESPONSES.keys())
async def test_dry_run(error: KubeError | None, result: Result, fix: str) -> None:
    server = MemoryServer()
    server.fault = lambda call: error if call.is_write else None
    client = MemoryClient(server, cluster="harvester", namespace=objects.VMS)
    found = await check_admission(client, objects.balancer(), DEMO)
    assert (found[0], fix in found[2]) == (result, True), found
    assert result in (Result.OK, Result.SKIPPED) or str(error) in found[1]


class Reviewer:
    """An API server that grants everything or nothing, or cannot be reached; ``reviews`` has what was asked."""

    namespace = "prod"

    def __init__(self, cluster: str, error: KubeError | None = None, *, is_granted: bool = True) -> None:
        self.cluster = cluster
        self.reviews: list[dict[str, Any]] = []
        self._error = error
        self._is_granted = is_granted

    async def create(self, _resource: object, body: dict[str, Any]) -> Review:
        self.reviews.append(body["spec"]["resourceAttributes"])
        if self._error is not None:
            raise self._error
        return Review(status=ReviewStatus(allowed=self._is_granted))


@pytest.mark.parametrize(("cluster", "namespaces"), [(HARVESTER, {"prod"}), (GUEST, {None, "kube-system"})])
async def test_each_permission_is_reviewed_in_its_namespace(cluster: str, namespaces: set[str | None]) -> None:
    server = Reviewer(cluster)
    found = await check_permissions(cast("ApiClient", server), SETTINGS, "me")
    assert {one.result for one in found} == {Result.OK}
    assert {one.get("namespace") for one in server.reviews} == namespaces
    assert len(server.reviews) == len(permissions_of(cluster, SETTINGS))
    away = cast("ApiClient", Reviewer(cluster, Unreachable("away")))
    found = await check_permissions(away, SETTINGS, "me")
    assert {(one.result, one.detail) for one in found} == {(Result.FAILED, "unknown: away")}
    assert await missing_in_harvester(away, SETTINGS) == []


@pytest.mark.parametrize(
    ("namespace", "fix"),
    [
        ("prod", "bind the ClusterRole harvesterhci.io:cloudprovider to it in namespace prod"),
        (
            "default",
            "the context of the cloud-config names namespace prod. If the VMs of this cluster are in default, ",
        ),
    ],
)
async def test_missing_permissions_show_a_context_of_another_namespace(namespace: str, fix: str) -> None:
    server = cast("ApiClient", Reviewer(HARVESTER, is_granted=False))
    found = await check_permissions(server, SETTINGS, f"system:serviceaccount:{namespace}:demo")
    assert all(fix in one.fix for one in found)
    results = {one.check: one.result for one in found}
    assert (results["virtualmachines"], results["virtualmachineinstances/guestosinfo"]) == ("failed", "warning")


def test_lease_is_not_checked_without_leader_election() -> None:
    less = permissions_of(GUEST, build_settings(parse_command_line([*FLAGS, "--leader-elect=false"]), {}))
    assert {one.title for one in permissions_of(GUEST, SETTINGS)} - {one.title for one in less} == {"leases"}


RULE: dict[str, Any] = {
    "verbs": ["get", "patch"],
    "apiGroups": [IP_POOLS.group],
    "resources": [IP_POOLS.plural],
}
REQUESTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no permission": ([], "not possible, so Harvester chooses each address of a pool"),
    "a pool": ([{**RULE, "resourceNames": ["lan"]}], "possible in IP pools lan"),
    "all pools": ([RULE], "possible in all IP pools"),
}


@pytest.mark.parametrize(("rules", "detail"), REQUESTS.values(), ids=REQUESTS)
async def test_pools_in_which_addresses_can_be_requested(rules: list[dict[str, Any]], detail: str) -> None:
    server = MemoryServer()
    server.permissions.rules = lambda _by: rules
    server.put(IP_POOLS, {"metadata": {"name": "lan"}, "spec": {"ranges": []}})
    found = await check_requests(MemoryClient(server, cluster=HARVESTER))
    assert (found[0], detail in found[1]) == (Result.OK, True)
    server.fault = lambda _call: Unreachable("away")
    assert (await check_requests(MemoryClient(server, cluster=HARVESTER)))[1] == "not known: away"


def test_file_that_every_user_can_read_is_a_warning(tmp_path: Path) -> None:
    file, mounted = tmp_path / "kubeconfig", tmp_path / "mounted"
    file.touch()
    mounted.symlink_to(file)
    for mode, expected in ((0o600, Result.OK), (0o644, Result.WARNING)):
        file.chmod(mode)
        found = [Credentials("x", "", None, TokenSource(None), origin=str(one)) for one in (file, mounted)]
        assert [check_credential(one, GUEST, "me")[0] for one in found] == [expected, Result.OK]
        assert check_credential(found[0], GUEST, "system:anonymous")[0] is Result.FAILED


def checks(run: Runner, flags: list[str]) -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit code of ``preflight``, and result and detail of each check by its name."""
    result = run("preflight", "-o", "json", *flags)
    found = result.document["checks"]
    return result.code, {one["check"]: (one["result"], one["detail"]) for one in found}


def test_resource_that_harvester_does_not_serve_has_failed(run: Runner, tmp_path: Path) -> None:
    """The CustomResourceDefinition was deleted; that of the pools keeps the API version alive."""
    groups = {**clusters.HARVESTER_GROUPS, "loadbalancer.harvesterhci.io/v1beta1": ["ippools"]}
    guest = LoopbackApi([objects.home(), objects.lease()], clusters.GUEST_GROUPS)
    with two_clusters(guest, LoopbackApi([], groups), tmp_path, objects.VMS) as flags:
        code, found = checks(run, flags)
    assert code == 1
    expected = ("failed", "not served: loadbalancers of loadbalancer.harvesterhci.io/v1beta1")
    assert found["API versions"] == expected
    assert "webhook" not in found


def test_flag_that_fits_no_node_has_failed(run: Runner, serve: ClusterServer) -> None:
    one = objects.working_node("w1")
    other = [*objects.working_node("w2")[:2], objects.instance("w2", ("eth0", "default/lan", ["10.0.0.6"]))]
    other[0]["status"]["addresses"][0]["address"] = "10.0.0.6"
    flags = serve(objects.home(), objects.lease(), *one, *other)
    code, found = checks(run, [*flags, "--management-network=default/dmz"])
    assert (code, found["NoVMNetwork"][0]) == (1, "failed")
    assert found["NoVMNetwork"][1].startswith("Node w2: VM vms/w2 has no interface in --management-network")
    code, found = checks(run, [*flags, "--node-ip-cidr=172.16.0.0/12"])
    assert (code, found["NoInternalIP"][0]) == (1, "failed")
    assert checks(run, [*flags, "--node-ip-cidr=10.0.0.0/8"])[0] == 0


def test_cloud_config_that_leads_to_the_guest_cluster_is_named(run: Runner, tmp_path: Path) -> None:
    path = "GET /apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers"
    away = {path: (404, "404 page not found")}
    guest = LoopbackApi([objects.home(), objects.lease()], clusters.GUEST_GROUPS, refusals=away)
    with two_clusters(guest, LoopbackApi([], clusters.HARVESTER_GROUPS), tmp_path, objects.VMS) as flags:
        (tmp_path / "cloud-config").write_text((tmp_path / "kubeconfig").read_text())
        code, found = checks(run, flags)
    assert (code, found["SameCluster"][0]) == (1, "failed")
    assert "leads to the guest cluster, not to Harvester. Set --cloud-config" in found["SameCluster"][1]


def test_name_of_the_cluster_is_checked_when_it_is_not_given(run: Runner, serve: ClusterServer) -> None:
    named = objects.balancer("prod", address="10.0.0.7", annotations={LB_OWNER: objects.CLUSTER_UID})
    lease = objects.lease(flags="--cluster-name=prod")
    code, found = checks(run, unnamed(serve(objects.home(), lease, *objects.working_node(), named)))
    assert code == 0
    assert found["cluster name"] == ("ok", "'prod'")
    code, found = checks(run, unnamed(serve(objects.home(), objects.lease(), objects.node(), objects.machine())))
    assert code == 2
    assert found["cluster name"][0] == "failed"
    assert (
        "name of this cluster: no controller has noted its flags on Lease cloud-controller-manager"
        in found["cluster name"][1]
    )
    reviews = {"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": (500, "another fault")}
    code, found = checks(run, unnamed(serve(objects.home(), objects.lease(), refused=reviews)))
    assert (code, found["cluster name"][0]) == (1, "failed")


def test_leader_is_checked(run: Runner, serve: ClusterServer) -> None:
    _, found = checks(run, serve(objects.home(), objects.lease()))
    assert found["leader election"] == ("ok", "w1_x leads")
    _, found = checks(run, serve(objects.home()))
    assert found["leader election"][0] == "ok"
    assert found["leader election"][1].startswith("no replica leads; before an installation, that is right")
    frozen = objects.lease()
    frozen["spec"]["renewTime"] = objects.CREATED
    _, found = checks(run, [*serve(objects.home(), frozen), "--leader-elect-retry-period=100ms"])
    assert found["LeaseExpired"][0] == "warning"
    assert "w1_x has not renewed the Lease" in found["LeaseExpired"][1]


def test_controller_without_election_is_a_warning(run: Runner, serve: ClusterServer) -> None:
    _, found = checks(run, [*serve(objects.home(), objects.lease()), "--leader-elect=false"])
    assert found["leader election"][0] == "warning"


@pytest.mark.security("Control characters from other objects are escaped")
def test_text_of_others_has_no_credential_and_no_control_character(run: Runner, serve: ClusterServer) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "lease.1", "namespace": "kube-system"},
        "involvedObject": {"kind": "Lease", "name": "cloud-controller-manager"},
        "reason": "CredentialNotReloaded",
        "message": "w2 runs\x1b[2J with Authorization: Bearer abc123def456",
        "lastTimestamp": datetime.now(UTC).isoformat(),
    }
    text = run("preflight", *serve(objects.home(), objects.lease(), event)).out
    assert "w2 runs" in text
    assert not any(one in text for one in ("abc123def456", "\x1b"))
