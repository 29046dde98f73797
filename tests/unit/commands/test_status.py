"""``status``: the lines that are printed for each state of a Service, a Node, the Lease and the servers."""

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from harvester_ccm.commands.status import age
from harvester_ccm.names import (
    DESCRIPTION,
    HEALTH_CHECK_PORT,
    IP_POOL,
    LB_OWNER,
    NETWORK,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    VM_ANNOTATION,
)
from harvester_ccm.plan.service.announcing.record import Step
from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner

MARK = {LB_OWNER: objects.CLUSTER_UID}
ANNOUNCED = {"kube-vip.io/loadbalancerIPs": "10.0.0.7", "kube-vip.io/vipHost": "w1"}
FULL = "fail to get ip from pool tiny, error: no IP addresses available in range set"
LEASE = "Lease kube-system/cloud-controller-manager"


def served(name: str = "web", annotations: Json | None = None) -> Json:
    """Return a Service with an address."""
    marks = {**ANNOUNCED, **objects.record(Step.SHOWN, "10.0.0.7"), **(annotations or {})}
    return objects.service(name, address="10.0.0.7", finalizers=[SERVICE_FINALIZER], annotations=marks)


def balancer(of: str = "shop/web", uid: str = objects.UID, address: str = "10.0.0.7") -> Json:
    """Return the load balancer of that Service."""
    return objects.balancer(address=address, annotations=MARK, of=of, uid=uid)


def ready_node() -> Json:
    node = objects.node(taints=[], providerID="harvester://uid-of-vm-w1")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.5"}]
    return node


def not_ready(status: str, message: str = "") -> Json:
    """Return an initialized Node that is not Ready."""
    node = ready_node()
    node["status"]["conditions"] = [{"type": "Ready", "status": status, "message": message}]
    return node


STOPPED = (
    "VM vms/w1 is stopped in Harvester (status Stopped), so this Node is not Ready. If that is not intended, start it "
    "with the kubeconfig of Harvester"
)


NO_ROOM = "0/3 nodes are available: 3 Insufficient memory."
UNSCHEDULABLE = (
    "VM vms/w1 cannot be started in Harvester (status ErrorUnschedulable), so this Node is not Ready. See the events "
    f"of the VM in Harvester. KubeVirt: {NO_ROOM}"
)


def unschedulable_machine() -> Json:
    """Return the VM of the Node, which no host of Harvester has room for."""
    machine = objects.machine()
    condition = {"type": "PodScheduled", "status": "False", "message": NO_ROOM}
    machine["status"] = {"printableStatus": "ErrorUnschedulable", "created": True, "conditions": [condition]}
    return machine


IO_ERROR = "VMI was paused, low-level IO error detected"
PAUSED = (
    "VM vms/w1 is paused in Harvester (status Paused), so this Node is not Ready. After an I/O error, repair its "
    "storage first. Continue it with the kubeconfig of Harvester"
)


def paused_machine() -> Json:
    """Return the VM of the Node, whose disk had an error."""
    machine = objects.machine()
    condition = {"type": "Paused", "status": "True", "message": IO_ERROR}
    machine["status"] = {"printableStatus": "Paused", "created": True, "conditions": [condition]}
    return machine


def stopped_machine() -> Json:
    """Return the VM of the Node while it is stopped."""
    machine = objects.machine()
    machine["status"] = {"printableStatus": "Stopped"}
    return machine


REFUSED = objects.conditioned(
    objects.service(finalizers=[SERVICE_FINALIZER]), "SyncLoadBalancerFailed", "Harvester refused it"
)
"""A Service whose creation Harvester rejected, which only the controller knows."""
NOT_UPDATED = objects.conditioned(
    served(annotations={DESCRIPTION: "front"}), "HarvesterUnavailable", "The webhook does not answer"
)
"""A Service whose change Harvester does not take, which only the controller knows."""
VM_CHECK = {HEALTH_CHECK_PORT: "80", "kube-vip.io/ignore": "true"}
INSTANCE = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
HELD = {
    "kube-vip.io/loadbalancerIPs": "",
    "kube-vip.io/ignore": "true",
    **objects.record(Step.HELD, again=False),
}
GOING = objects.service(deleted="2026-11-21T09:00:00Z", finalizers=[SERVICE_FINALIZER])
CASES: dict[str, tuple[list[Json], str]] = {
    "ready": ([served(), balancer()], ""),
    "pool is full": (
        [objects.service(finalizers=[SERVICE_FINALIZER]), objects.balancer(message=FULL, annotations=MARK)],
        "Service shop/web Pending PoolExhausted IP pool 'tiny' has no free address.",
    ),
    "new": ([objects.service()], "Service shop/web Pending Queued The Service waits for "),
    "change that Harvester does not take": (
        [NOT_UPDATED, balancer()],
        "Service shop/web Degraded HarvesterUnavailable The webhook does not answer",
    ),
    "rejected by a webhook": ([REFUSED], "Service shop/web Pending SyncLoadBalancerFailed Harvester refused it"),
    "invalid annotation": (
        [objects.service(annotations={"cloudprovider.harvesterhci.io/ipam": "dchp"})],
        "Service shop/web Blocked InvalidAnnotation ",
    ),
    "invalid annotation, with an address": (
        [served(annotations={"cloudprovider.harvesterhci.io/ipam": "dchp"}), balancer()],
        "Service shop/web Degraded InvalidAnnotation ",
    ),
    "misspelled annotation": (
        [served(annotations={"cloudprovider.harvesterhci.io/ipamm": "dhcp"}), balancer()],
        "Service shop/web Degraded SettingsIgnored ",
    ),
    "load balancer deleted": (
        [served()],
        "Service shop/web Degraded LoadBalancerLost The load balancer with address 10.0.0.7 of this Service",
    ),
    "VM load balancer deleted": (
        [served(annotations=VM_CHECK), ready_node(), objects.machine(), INSTANCE],
        "Service shop/web Degraded LoadBalancerLost The load balancer with address 10.0.0.7 of this Service",
    ),
    "address that is not published yet": (
        [objects.service(finalizers=[SERVICE_FINALIZER], annotations=HELD), balancer()],
        "Service shop/web Pending Queued Harvester has allocated the address, and the controller publishes it next.",
    ),
    "of another cluster": (
        [objects.balancer(of="shop/gone", uid="9", annotations={LB_OWNER: "another"}, cluster="other")],
        "",
    ),
    "node": ([ready_node(), objects.machine(), INSTANCE], ""),
    "node that reports its cause": (
        [not_ready("False", "cni plugin not initialized"), objects.machine(), INSTANCE],
        "Node w1 Degraded NodeNotReady The kubelet reports: cni plugin not initialized",
    ),
    "silent node": (
        [not_ready("Unknown"), objects.machine(), INSTANCE],
        "Node w1 Degraded KubeletNotReporting VM vms/w1 runs",
    ),
    "node of a stopped VM": (
        [not_ready("Unknown"), stopped_machine()],
        f"Node w1 Degraded VMNotRunning {STOPPED}: virtctl start w1 -n vms",
    ),
    "node of a VM that cannot be scheduled": (
        [not_ready("Unknown"), unschedulable_machine()],
        f"Node w1 Degraded VMNotRunning {UNSCHEDULABLE}",
    ),
    "paused VM with an I/O error": (
        [not_ready("Unknown"), paused_machine()],
        f"Node w1 Degraded VMNotRunning {PAUSED}",
    ),
    "new node of another provider": (
        [objects.node(providerID="k3s://w1")],
        "Node w1 Pending ProviderMismatch Provider ID k3s://w1 is another provider's",
    ),
    "node without its VM": ([ready_node()], "Node w1 Degraded VMNotFound No VM in namespace vms"),
    "new node without a VM": ([objects.node()], "Node w1 Pending VMNotFound No VM in namespace vms"),
}


def problems(text: str) -> list[str]:
    """Return the problems of a status, each on one line without the time."""
    rows = text.partition("PROBLEMS")[2].partition("\n\n")[0].splitlines()[2:]
    found: list[str] = []
    for row in rows:
        if row.startswith("   "):
            # The message of the problem, or its command.
            found[-1] += f" {row.strip()}"
        else:
            found.append(" ".join(word for word in row.split() if not word[:-1].isdigit() and word != "-"))
    return found


@pytest.mark.parametrize(("documents", "line"), CASES.values(), ids=CASES.keys())
def test_state_of_an_object(run: Runner, serve: ClusterServer, documents: list[Json], line: str) -> None:
    result = run("status", *serve(objects.home(), objects.lease(), *documents))
    found = problems(result.out)
    assert result.err == ""
    assert result.code == bool(line)
    assert (len(found), "".join(found)[: len(line)]) == (bool(line), line)
    assert result.out.endswith("1 problem.\n" if line else "All is well.\n")


def test_creation_behind_one_that_harvester_does_not_process_is_queued(run: Runner, serve: ClusterServer) -> None:
    paused = {**HELD, **objects.record(Step.HELD, uid="2", again=False)}
    documents = [
        objects.service("first", uid="1", finalizers=[SERVICE_FINALIZER]),
        objects.balancer(of="shop/first", uid="1", annotations=MARK),
        objects.service("second", uid="2", finalizers=[SERVICE_FINALIZER], annotations=paused),
    ]
    found = problems(run("status", *serve(objects.home(), objects.lease(), *documents)).out)
    assert found[0].startswith("Service shop/first Pending NotProcessed")
    assert found[1].startswith("Service shop/second Pending CreationQueued Creation is queued for more")


def test_request_behind_a_creation_is_queued_before_its_pool_is_read(run: Runner, serve: ClusterServer) -> None:
    paused = {**HELD, **objects.record(Step.HELD, uid="2", again=False)}
    wish = {IP_POOL: "lan", REQUESTED_ADDRESS: "10.0.0.7"}
    documents = [
        objects.service("first", uid="1", finalizers=[SERVICE_FINALIZER]),
        objects.balancer(of="shop/first", uid="1", annotations=MARK),
        objects.service("second", uid="2", finalizers=[SERVICE_FINALIZER], annotations={**paused, **wish}),
        objects.pool(allocated={"10.0.0.7": "vms/other"}),
    ]
    found = problems(run("status", *serve(objects.home(), objects.lease(), *documents)).out)
    assert found[1].startswith("Service shop/second Pending CreationQueued Creation is queued for more")


def test_services_with_one_address_are_both_listed(run: Runner, serve: ClusterServer) -> None:
    new = served("new")
    new["metadata"]["uid"] = "2"
    pair = [served(), balancer(), new, balancer("shop/new", "2")]
    result = run("status", *serve(objects.home(), objects.lease(), *pair))
    found = problems(result.out)
    assert sorted(line.split()[1] for line in found) == ["shop/new", "shop/web"]
    assert all("AddressNotAllocated Harvester has allocated address 10.0.0.7 twice" in line for line in found)


def test_pending_and_blocked_are_listed_before_degraded(run: Runner, serve: ClusterServer) -> None:
    """Services with the same problem share a row."""
    wrong = {"cloudprovider.harvesterhci.io/ipam": "dchp"}
    documents = [
        served(annotations={"cloudprovider.harvesterhci.io/ipamm": "dhcp"}),
        balancer(),
        balancer(of="shop/gone", uid="9", address="10.0.0.8"),
        *(objects.service(f"full-{n}", uid=f"{n}", finalizers=[SERVICE_FINALIZER]) for n in range(3)),
        *(objects.balancer(of=f"shop/full-{n}", uid=f"{n}", message=FULL, annotations=MARK) for n in range(3)),
        objects.service("wrong", uid="w", annotations=wrong),
    ]
    result = run("status", *serve(objects.home(), objects.lease(), *documents))
    rows = ["Service shop/wrong Blocked", "Service shop/full-0 and 2 more Pending", "Service shop/web Degraded"]
    found = problems(result.out)
    assert [line[: len(row)] for line, row in zip(found, rows, strict=False)] == rows
    assert found[-1].startswith("LoadBalancer demo-shop-gone-2401289f Orphaned")
    assert "Services:         1 Blocked, 3 Pending, 1 Degraded\n" in result.out
    assert result.out.endswith("6 problems.\n")


def test_many_nodes_with_one_cause_share_a_row(run: Runner, serve: ClusterServer) -> None:
    """Their texts differ in names and addresses. Up to three have a row each."""
    for number in (3, 9):
        nodes = [objects.node(f"w{n}", taints=[], providerID=f"harvester://uid-of-vm-w{n}") for n in range(number)]
        result = run("status", *serve(objects.home(), objects.lease(), *nodes))
        found = problems(result.out)
        assert len(found) == (3 if number == 3 else 1)
        assert result.out.endswith(f"{number} problems.\n")
    assert found[0].startswith("Node w0 and 8 more Degraded VMNotFound No VM in namespace vms")
    assert "Likewise: w1, w2, w3, w4, w5 and 3 more; explain prints the text of each" in found[0]


def test_service_that_waits_counts_from_its_creation_and_first_says_what_for(run: Runner, serve: ClusterServer) -> None:
    waiting = objects.service(annotations={**HELD, HEALTH_CHECK_PORT: "9999"})
    just_now = objects.conditioned(waiting, "Queued", since="2999-01-01T00:00:00Z")
    flags = serve(objects.home(), objects.lease(), just_now, balancer(address=""))
    rows = run("status", "-o", "json", *flags).document["problems"]
    assert [row["reason"] for row in rows][:2] == ["Queued", "InvalidAnnotation"]
    assert {row["since"] for row in rows} == {objects.CREATED}


def lease(seconds: float, holder: str) -> Json:
    """Return a Lease that was renewed some seconds ago."""
    one = objects.lease()
    renewed = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    one["spec"] = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    return one


@pytest.mark.parametrize(
    ("seconds", "holder", "leader", "line"),
    [
        (1, "w1_x", "w1_x", ""),
        (16, "w1_x", "none", f"{LEASE} LeaseExpired w1_x has not renewed the Lease"),
        (-3600, "w1_x", "none", f"{LEASE} LeaseExpired w1_x has not renewed the Lease"),
        (1, "", "none", f"{LEASE} NoLeader No replica"),
        (None, "", "none", f"{LEASE} NoLeader No replica"),
    ],
    ids=["renewed", "frozen", "frozen, and its clock was ahead", "released", "never held"],
)
def test_leader(run: Runner, serve: ClusterServer, seconds: float | None, holder: str, leader: str, line: str) -> None:
    documents = [] if seconds is None else [lease(seconds, holder)]
    flags = [*serve(objects.home(), *documents), "--leader-elect-retry-period=100ms"]
    result = run("status", *flags)
    assert f"Leader:           {leader}\n" in result.out
    assert "".join(problems(result.out)).startswith(line)
    assert result.code == bool(line)


class RenewedLease(LoopbackApi):
    """A guest cluster whose leader renews the Lease ten times a second, and has a clock that is years slow."""

    began = time.monotonic()

    def answer(self, method: str, target: str, body: Json) -> tuple[int, Json]:
        one = objects.lease()
        one["spec"]["renewTime"] = f"2020-11-21T08:00:00.{int(10 * (time.monotonic() - self.began)):06}Z"
        self.objects = [objects.home(), one]
        return super().answer(method, target, body)


def test_leader_with_another_time_leads_while_it_renews_the_lease(run: Runner, tmp_path: Path) -> None:
    guest = RenewedLease([], clusters.GUEST_GROUPS)
    with two_clusters(guest, LoopbackApi([], clusters.HARVESTER_GROUPS), tmp_path, objects.VMS) as flags:
        result = run("status", *flags, "--leader-elect-retry-period=100ms")
    assert (result.code, "Leader:           w1_x\n" in result.out) == (0, True)
    assert re.search(r"Leader w1_x: Its clock is \d+ s behind", result.out)


def test_lease_is_not_missed_without_leader_election(run: Runner, serve: ClusterServer) -> None:
    result = run("status", *serve(objects.home()), "--leader-elect=false")
    assert (result.code, "Lease" in result.out) == (0, False)


def test_second_controller_has_a_lease_in_the_namespace_of_the_first(run: Runner, serve: ClusterServer) -> None:
    leases = objects.lease(), objects.lease("harvester-ccm-2", holder="w2_y", mark="harvester-ccm/1 w2_y")
    for one in leases:
        one["metadata"]["namespace"] = "infra"
    flags = [*serve(objects.home(), *leases), "--leader-elect-resource-namespace=infra", "-o", "json"]
    assert [row["reason"] for row in run("status", *flags).document["problems"]] == ["SecondController"]


def test_only_controller_may_have_another_lease_than_the_command_expects(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease("harvester-ccm-2"))
    rows = run("status", "-o", "json", *flags).document["problems"]
    (text,) = [row["message"] for row in rows if row["reason"] == "OtherLease"]
    assert text.endswith("Repeat the command with --leader-elect-resource-name=harvester-ccm-2")
    assert "SecondController" not in {row["reason"] for row in rows}
    assert run("status", "--leader-elect-resource-name=harvester-ccm-2", *flags).code == 0


def test_cause_of_a_node_that_is_not_ready_is_said_without_the_lifecycle_controller(
    run: Runner, serve: ClusterServer
) -> None:
    flags = [*serve(not_ready("Unknown"), stopped_machine(), objects.home(), objects.lease()), "-o", "json"]
    flags.append("--controllers=*,-cloud-node-lifecycle-controller")
    for words in (("status",), ("explain", "node/w1")):
        document = run(*words, *flags).document
        rows = document["problems"] if words == ("status",) else document["reasons"]
        assert any(STOPPED in row["message"] for row in rows), words


def test_object_that_cannot_be_decoded_is_a_note(run: Runner, serve: ClusterServer) -> None:
    odd = objects.service("odd", uid="odd")
    odd["spec"]["ports"] = 1
    notes = run("status", "-o", "json", *serve(objects.home(), objects.lease(), odd)).document["notes"]
    assert [note.partition(": ")[0] for note in notes] == ["cannot decode services shop/odd"]


def test_lease_of_a_dead_holder_with_a_long_duration_is_to_be_deleted(run: Runner, serve: ClusterServer) -> None:
    one = lease(120, "w1_x")
    one["spec"]["leaseDurationSeconds"] = 86400
    flags = [*serve(objects.home(), one), "--leader-elect-retry-period=100ms", "-o", "json"]
    (problem,) = run("status", *flags).document["problems"]
    assert problem["reason"] == "LeaseExpired"
    assert "a duration of 86400 s" in problem["message"]
    assert problem["command"] == "kubectl -n kube-system delete lease cloud-controller-manager"


def test_json_and_yaml_are_the_document_of_the_text(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), objects.service(), objects.node())
    document = run("status", "-o", "json", *flags).document
    assert [one["object"] for one in document["problems"]][:1] == ["Node w1"]
    other = yaml.safe_load(run("status", "-o", "yaml", *flags).out)
    for one in (document, other):
        one["observed"] = ""
        for server in ("guest", "harvester"):
            assert one[server].pop("seconds") > 0
    assert other == document


@pytest.mark.guarantee("No credential is logged")
@pytest.mark.security("Control characters from other objects are escaped")
def test_output_of_commands_contains_no_credential_and_no_control_character(run: Runner, serve: ClusterServer) -> None:
    evil = {NETWORK: "x\x1b[2J\u202e", "kube-vip.io/vipHost": "Authorization: Bearer abc123def456"}
    flags = serve(objects.home(), objects.lease(), served(annotations=evil), objects.node())
    for command in (("status",), ("status", "-o", "json"), ("explain", "svc/web", "-n", "shop")):
        text = run(*command, *flags).out
        assert "web" in text
        assert not any(one in text for one in ("abc123def456", "\x1b", "\u202e"))


def test_service_that_gives_up_its_load_balancer_is_counted(run: Runner, serve: ClusterServer) -> None:
    inside = objects.service(type="ClusterIP", finalizers=[SERVICE_FINALIZER])
    flags = serve(
        objects.home(), objects.lease(), inside, balancer(), objects.service("other", uid="o", type="ClusterIP")
    )
    assert run("status", "-o", "json", *flags).document["services"] == {"Deleting": 1}


def test_controllers_that_are_switched_off_manage_nothing(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), objects.service(), objects.node(), objects.balancer(uid="9"))
    document = run("status", "-o", "json", *flags, "--controllers=-*").document
    assert (document["services"], document["nodes"]) == ({"Unmanaged": 1}, {"Unmanaged": 1})
    assert document["problems"] == []


@pytest.mark.parametrize(
    ("since", "shown"),
    [
        ("2026-11-21T11:59:59Z", "1s"),
        ("2026-11-21T11:58:01Z", "119s"),
        ("2026-11-21T11:00:00Z", "60m"),
        ("2026-11-20T12:00:00Z", "24h"),
        ("2026-11-01T12:00:00.123456Z", "19d"),
        ("2020-11-21T12:00:00Z", "6y"),
        ("2026-11-21T12:00:02Z", ""),
        ("", ""),
        ("yesterday", ""),
    ],
)
def test_age(since: str, shown: str) -> None:
    assert age(since, datetime(2026, 11, 21, 12, tzinfo=UTC)) == shown


def test_blocked_deletion_of_a_node_is_a_problem(run: Runner, serve: ClusterServer) -> None:
    nodes = []
    for name in ("w8", "w9"):
        node = not_ready("Unknown")
        node["metadata"] |= {"name": name, "uid": f"uid-of-{name}", "annotations": {VM_ANNOTATION: f"vms/{name}"}}
        node["spec"]["providerID"] = f"harvester://gone-{name}"
        nodes.append(node)
    flags = serve(*nodes, *objects.working_node("w1"), objects.home(), objects.lease())
    rows = [row for row in run("status", "-o", "json", *flags).document["problems"] if "w9" in row["object"]]
    assert {"NodeDeletionBlocked", "VMNotFound"} <= {row["reason"] for row in rows}
    assert not any("taint" in row["message"] for row in rows), "the Node has joined"
