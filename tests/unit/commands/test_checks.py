"""The table of checks that ``status`` and ``preflight`` share: what each finds, and what its text advises."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from harvester_ccm.names import IPAM, LB_CONTROLLER_FINALIZER, LB_OWNER, LB_SELECT_NETWORK, PRIMARY_SERVICE, VM_CLUSTER
from tests.support.loopback_api import TOKEN, LoopbackApi, two_clusters
from tests.support.offline import json_web_token
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_status import balancer, not_ready, ready_node, served

Row = Sequence[Json | Callable[[], Json]]
"""Objects, and functions for those whose times must be of now: a run of all tests lasts longer than a Lease."""
LONG_AGO: Final = "2026-11-20T08:00:00Z"


def made(row: Row) -> list[Json]:
    return [one() if callable(one) else one for one in row]


def labelled() -> Json:
    """Return a Service with a setting as a label."""
    one = served()
    one["metadata"]["labels"] = {IPAM: "dhcp"}
    return one


def of_service_lb(**spec: Any) -> Json:
    """Return a Service to whose status ServiceLB of K3s wrote the address of a Node."""
    return objects.service("klipper", uid="8", address="10.0.0.5", **spec)


def not_ready_balancer() -> Json:
    """Return a load balancer with an address that Harvester reports as not ready."""
    one = balancer()
    one["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "fail to get pool lan. Wait"}]
    return one


def hanging(*finalizers: str) -> Json:
    """Return a load balancer of a deleted Service that Harvester does not remove."""
    one = balancer(of="shop/gone", uid="9")
    one["metadata"] |= {"deletionTimestamp": LONG_AGO, "finalizers": list(finalizers)}
    return one


def of_another_cluster() -> Json:
    """Return a load balancer of another cluster with the same name."""
    return objects.balancer(of="shop/theirs", uid="9", annotations={LB_OWNER: "another"})


def under_another_name() -> Json:
    """Return a load balancer that this cluster made under another name."""
    return objects.balancer("renamed", of="shop/theirs", uid="9", annotations={LB_OWNER: objects.CLUSTER_UID})


def joining(name: str, *, minutes: int, phase: str = "Running") -> Json:
    """Return the instance of a VM that is labelled for this cluster, and has run for this time."""
    one = objects.instance(name, ("eth0", "default/lan", ["10.0.0.9"]), labels={VM_CLUSTER: "demo"})
    began = datetime.now(UTC) - timedelta(minutes=minutes)
    one["metadata"]["creationTimestamp"] = f"{began:%Y-%m-%dT%H:%M:%SZ}"
    one["status"]["phase"] = phase
    return one


def of_vms(first: Sequence[str], second: Sequence[str] = ()) -> list[Json]:
    """Return two Nodes, and their VMs with what their guest agents report in addition to the addresses of the Nodes."""
    one, two = objects.working_node("w1"), objects.working_node("w2")
    two[0]["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.6"}]
    vmis = [
        objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5", *first])),
        objects.instance("w2", ("eth0", "default/lan", ["10.0.0.6", *second])),
    ]
    return [*one[:2], *two[:2], *vmis]


def cluster_ip(address: str) -> Json:
    return objects.service(f"of-{address}", uid=address, type="ClusterIP", clusterIPs=[address, "fd00::1"])


def service_cidr(*cidrs: str) -> Json:
    metadata = {"name": "kubernetes"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": metadata,
        "spec": {"cidrs": list(cidrs)},
    }


def with_pods(*cidrs: str) -> list[Json]:
    """Return a Node with ranges for its Pods, and its VM."""
    node, *rest = objects.working_node()
    node["spec"]["podCIDRs"] = list(cidrs)
    return [node, *rest]


def in_networks(name: str, number: int, *, first: str = "lan") -> list[Json]:
    """Return a Node whose VM has two interfaces, in the networks lan and storage; InternalIP is that of the first."""
    node, machine, _ = objects.working_node(name)
    networks = {"lan": f"192.0.2.{number}", "storage": f"198.51.100.{number}"}
    node["status"]["addresses"] = [{"type": "InternalIP", "address": networks[first]}]
    node["metadata"]["annotations"] = {"alpha.kubernetes.io/provided-node-ip": networks[first]}
    nics = [("eth0", f"default/{network}", [address]) for network, address in networks.items()]
    return [node, machine, objects.instance(name, *nics)]


def chosen_for(network: str) -> Json:
    """Return a load balancer whose pool Harvester chose for a network."""
    one = balancer()
    one["metadata"]["annotations"][LB_SELECT_NETWORK] = network
    return one


def of_named_pool(mask: str) -> Json:
    """Return a load balancer whose Service names its pool; ``mask`` is that of the pool's range."""
    one = balancer()
    one["spec"]["ipPool"] = "lan"
    one["status"]["allocatedAddress"]["mask"] = mask
    return one


def not_serving() -> Json:
    """Return the EndpointSlice of a Service whose Pod fails its readiness probe."""
    one = objects.endpoint_slice()
    one["endpoints"][0]["conditions"] = {"ready": False, "serving": False, "terminating": False}
    return one


def in_another_subnet() -> list[Json]:
    """Return a Node with its VM."""
    node, machine, _ = objects.working_node()
    node["status"]["addresses"][0]["address"] = "10.0.4.5"
    return [node, machine, objects.instance("w1", ("eth0", "default/lan", ["10.0.4.5"]))]


STORAGE = ("eth0", "default/storage", ["10.0.0.5"])
VM_OF_NODE = objects.working_node()[1:]
FAULTS: Final[dict[str, tuple[Row, str, str]]] = {
    "load balancer that is not ready": (
        [served(), not_ready_balancer()],
        "LoadBalancerNotReady",
        "although it has address 10.0.0.7: fail to get pool lan. Wait. Check that its IP pool exists",
    ),
    "deletion that waits for another program": (
        [hanging(LB_CONTROLLER_FINALIZER, "example.com/backup")],
        "LoadBalancerDeleting",
        "It waits for finalizers in Harvester: example.com/backup. Check that the controller of each runs",
    ),
    "deletion that waits for a pool": (
        [hanging(LB_CONTROLLER_FINALIZER)],
        "LoadBalancerDeleting",
        "Check that harvester-load-balancer and its webhook run",
    ),
    "address in the status of a Service of another controller": (
        [served(), balancer(), objects.service("old", uid="8", address="10.0.0.7", loadBalancerClass="metallb")],
        "AddressShownTwice",
        "Address 10.0.0.7 is shown by Service shop/old as well, in its status or spec.externalIPs. Traffic for one",
    ),
    "address in the specification of another Service": (
        [served(), balancer(), objects.service("old", uid="8", type="ClusterIP", externalIPs=["10.0.0.7"])],
        "AddressShownTwice",
        "Address 10.0.0.7 is shown by Service shop/old as well",
    ),
    "address of a Node": (
        [of_service_lb(), *objects.working_node()],
        "NodeAddressPublished",
        "Address 10.0.0.5 in the status is that of Node w1, and no load balancer has it. End the program",
    ),
    "setting as a label": (
        [labelled(), balancer()],
        "SettingsIgnored",
        f"Labels have no effect on the load balancer: {IPAM}. Settings are annotations",
    ),
    "second controller with a Lease of its own": (
        [partial(objects.lease, "harvester-ccm-2", holder="w2_y", mark="harvester-ccm/1 w2_y")],
        "SecondController",
        "w2_y holds this Lease, so a second controller writes at the same time. Stop one of the two",
    ),
    "address in the range of cluster IPs": (
        [served(), balancer(), service_cidr("10.0.0.0/16", "fd00::/112"), cluster_ip("10.0.9.1")],
        "AddressInClusterNetwork",
        "Addresses inside the network of Services (cluster IPs) of this cluster, 10.0.0.0/16: 10.0.0.7. Addresses of",
    ),
    "address between cluster IPs": (
        [served(), balancer(), cluster_ip("10.0.0.1"), cluster_ip("10.0.0.10")],
        "AddressInClusterNetwork",
        "Addresses inside the network of Services (cluster IPs) of this cluster, 10.0.0.0/28: 10.0.0.7",
    ),
    "address in the range of Pods": (
        [served(), balancer(), *with_pods("10.0.0.0/24", "fd00::/64")],
        "AddressInClusterNetwork",
        "Addresses inside the network of Pods of this cluster, 10.0.0.0/24: 10.0.0.7",
    ),
    "address of a VM that is no Node": (
        [served(), balancer(), objects.machine("db"), objects.instance("db", ("eth0", "default/lan", ["10.0.0.7"]))],
        "AddressInUse",
        "VM db has address 10.0.0.7 as well. The IP pool 'lan' contains addresses of a DHCP server, or static ones",
    ),
    "orphan": ([balancer(of="shop/gone", uid="9")], "Orphaned", "--orphaned-load-balancer-policy=report"),
}
HINTS: Final[dict[str, tuple[list[Json], str]]] = {
    "VM of this cluster that is no Node": (
        [*objects.working_node(), objects.machine("w9"), joining("w9", minutes=11)],
        "VM w9: It runs with the label of this cluster and is no Node",
    ),
    "announcing Node that does not exist": (
        [served(), balancer(), *objects.working_node("w2")],
        "Service shop/web: kube-vip has noted that Node w1 announces the address, and that Node does not exist.",
    ),
    "announcing Node that is not Ready": (
        [served(), balancer(), not_ready("Unknown"), *VM_OF_NODE],
        "Service shop/web: kube-vip has noted that Node w1 announces the address, and that Node is not Ready.",
    ),
    "kube-vip that does not renew its Lease": (
        [
            served(),
            balancer(),
            *objects.working_node(),
            objects.lease("plndr-svcs-lock", holder="w1", mark="", seconds=90),
        ],
        "Service shop/web: kube-vip has noted that Node w1 announces the address, and kube-vip there has not renewed",
    ),
    "address that nobody has": (
        of_vms(["10.0.0.9"]),
        "VMs: Addresses that no Node, Service or load balancer has: 10.0.0.9 (w1).",
    ),
    "addresses that nobody has, one on two VMs": (
        of_vms(["10.0.0.9", "10.0.0.8"], ["10.0.0.9"]),
        "VMs: Addresses that no Node, Service or load balancer has: 10.0.0.8 (w1), 10.0.0.9 (w1, w2). A kube-vip that",
    ),
    "address of a Service on two VMs": (
        [served(), balancer(), *of_vms(["10.0.0.7"], ["10.0.0.7"])],
        "VMs: Several report the address of a Service: 10.0.0.7 (w1, w2). kube-vip announces an address on one node",
    ),
    "Node in another network than most": (
        [*in_networks("w1", 5), *in_networks("w2", 6), *in_networks("w3", 7, first="storage")],
        "Node w3: Its InternalIP is in network default/storage, that of most Nodes in default/lan, and its",
    ),
    "pool chosen for another network": (
        [served(), chosen_for("default/storage"), *in_networks("w1", 5)],
        "LoadBalancer demo-shop-web-df804e86: Harvester chose IP pool lan for network default/storage, that of",
    ),
    "named pool of another network": (
        [served(), of_named_pool("255.255.255.0"), *in_another_subnet()],
        "LoadBalancer demo-shop-web-df804e86: Address 10.0.0.7 of IP pool lan is in 10.0.0.0/24, and no VM of a",
    ),
    "network that nothing but the order of interfaces selects": (
        [*objects.working_node()[:2], objects.instance("w1", STORAGE, ("eth1", "default/lan", ["192.0.2.5"]))],
        "Node w1: The VM has several network interfaces (nic-0, nic-1); the addresses of 'nic-0' in network default",
    ),
    "Service without an endpoint": (
        [served(), balancer(), *objects.working_node(), objects.endpoint_slice("other")],
        "Service shop/web: The Service has no endpoint any more, and since version 1.2 kube-vip withdraws the address",
    ),
    "Service whose Pods are not ready": (
        [served(), balancer(), *objects.working_node(), not_serving()],
        "Service shop/web: None of its endpoints is ready, so nothing answers at the address. Check its Pods",
    ),
    "load balancer of another cluster of this name": (
        [of_another_cluster()],
        "Cluster demo: Load balancers in Harvester have this name and the UID of another cluster: demo-shop-theirs-",
    ),
    "load balancer that this cluster made under another name": (
        [under_another_name()],
        "Cluster demo: Load balancers in Harvester have the UID of this cluster and another cluster name: renamed",
    ),
}


@pytest.mark.parametrize(("documents", "reason", "text"), FAULTS.values(), ids=FAULTS.keys())
def test_fault_is_a_problem_of_status_and_a_warning_of_preflight(
    run: Runner, serve: ClusterServer, documents: Row, reason: str, text: str
) -> None:
    flags = serve(objects.home(), objects.lease(), *made(documents))
    result = run("status", "-o", "json", *flags)
    found = [row for row in result.document["problems"] if row["reason"] == reason]
    assert any(text in row["message"] for row in found)
    assert len(found) == (2 if reason == "AddressShownTwice" else 1)
    assert result.code == 1
    assert text in " ".join(warnings(run, flags, reason))


@pytest.mark.parametrize(
    ("mark", "is_other"), [("harvester-ccm/1 w1_x", False), ("harvester-ccm/1 before", True), ("", True)]
)
def test_holder_of_the_lease_that_is_another_program_is_a_problem(
    run: Runner, serve: ClusterServer, mark: str, *, is_other: bool
) -> None:
    """client-go keeps the mark of the holder before it."""
    flags = serve(objects.home(), objects.lease(mark=mark), objects.service())
    problems = run("status", "-o", "json", *flags).document["problems"]
    found = [row for row in problems if row["reason"] == "OtherLeader"]
    assert len(found) == is_other
    assert len(warnings(run, flags, "OtherLeader")) == is_other
    if is_other:
        assert "w1_x holds the Lease and is not harvester-ccm" in found[0]["message"]
        assert found[0]["command"].startswith("kubectl get deployments,daemonsets")
        assert [row["reason"] for row in problems if row["object"] == "Service shop/web"] == ["NoLeader"]


@pytest.mark.parametrize(
    ("lease", "denied"),
    [(objects.lease(seconds=7200), "update"), (objects.lease(holder="", mark=""), "update"), (None, "create")],
)
def test_missing_permission_for_the_lease_is_named(
    run: Runner, tmp_path: Path, lease: Json | None, denied: str
) -> None:
    """In the pod of the controller, a command has its credential; elsewhere, the usual account is asked for."""
    stored = [objects.home()]
    if lease is not None:
        spec = {**lease["spec"], "leaseDurationSeconds": 15}
        stored.append({**lease, "spec": spec})
    name = "" if lease is None else "/cloud-controller-manager"
    guest = LoopbackApi(stored, clusters.GUEST_GROUPS, denied=frozenset({f"{denied} leases{name}"}))
    harvester = LoopbackApi([], clusters.HARVESTER_GROUPS)
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        flags.append("--leader-elect-retry-period=100ms")
        of_others = run("status", "-o", "json", *flags).document["problems"][0]["message"]
        file = tmp_path / "kubeconfig"
        claims = {"sub": "system:serviceaccount:kube-system:harvester-cloud-provider"}
        file.write_text(file.read_text().replace(TOKEN, json_web_token(claims)))
        message = run("status", "-o", "json", *flags).document["problems"][0]["message"]
    expected = (
        f"ServiceAccount kube-system/harvester-cloud-provider may not {denied} the Lease: Role and RoleBinding "
        "harvester-cloud-provider-leader-election of namespace kube-system grant it"
    )
    assert (expected in message, expected in of_others) == (True, True)


@pytest.mark.parametrize(
    ("cluster", "denied", "others", "expected"),
    [
        ("Guest cluster", "patch services", (), "The controller cannot patch: no Service gets an address"),
        ("Guest cluster", "delete nodes", (), ""),
        # The account that the Lease is denied to is not the one of a leader.
        ("Guest cluster", "patch services", ("update leases/cloud-controller-manager",), ""),
        ("Harvester", "create loadbalancers", (), "The controller cannot create: no Service gets a load balancer"),
    ],
)
def test_missing_permission_is_a_problem_before_it_is_needed(
    run: Runner, tmp_path: Path, cluster: str, denied: str, others: Sequence[str], expected: str
) -> None:
    servers = {"Guest cluster": clusters.GUEST_GROUPS, "Harvester": clusters.HARVESTER_GROUPS}
    stored: dict[str, list[Json]] = {"Guest cluster": [objects.home(), objects.lease()], "Harvester": []}
    guest, harvester = (
        LoopbackApi(stored[name], groups, denied=frozenset({denied, *others} if name == cluster else ()))
        for name, groups in servers.items()
    )
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        rows = run("status", "-o", "json", *flags).document["problems"]
    found = [(row["object"], row["message"]) for row in rows if row["reason"] == "PermissionMissing"]
    assert [(name, message.startswith(expected)) for name, message in found] == ([(cluster, True)] if expected else [])


def test_command_with_the_account_of_somebody_else_says_nothing_about_its_credential(
    run: Runner, tmp_path: Path
) -> None:
    """Neither that this account may not write, nor that its token expires, is a problem of the cluster."""
    denied = frozenset({"patch services", "patch nodes", "update leases", "create leases"})
    guest = LoopbackApi([objects.home(), objects.lease()], clusters.GUEST_GROUPS, denied=denied)
    ends = int((datetime.now(UTC) + timedelta(hours=8)).timestamp())
    with two_clusters(guest, LoopbackApi([], clusters.HARVESTER_GROUPS), tmp_path, objects.VMS) as flags:
        file = tmp_path / "kubeconfig"
        claims = {"sub": "system:serviceaccount:monitoring:reader", "exp": ends}
        file.write_text(file.read_text().replace(TOKEN, json_web_token(claims)))
        rows = run("status", "-o", "json", *flags).document["problems"]
    assert [row for row in rows if row["reason"] in {"PermissionMissing", "TokenExpires"}] == []


AWAY = 'failed calling webhook "leases.example.com": connection refused'
REJECTED: dict[str, tuple[Json | None, tuple[int, str], str]] = {
    "no Lease": (None, (500, AWAY), f"leads. The API server rejects the Lease: {AWAY}. Correct or delete that webhook"),
    "a released Lease": (
        objects.lease(holder="", mark=""),
        (500, AWAY),
        f"leads. The API server rejects the Lease: {AWAY}. Correct or delete",
    ),
    "no namespace": (
        None,
        (404, 'namespaces "kube-system" not found'),
        "Namespace kube-system does not exist in this cluster: create it, or correct --leader-elect-resource-namespace",
    ),
    "a slow etcd": (
        None,
        (500, "etcdserver: request timed out"),
        "does not complete a write of the Lease: etcdserver: request timed out. On a control plane node of this",
    ),
}


@pytest.mark.parametrize(("lease", "refusal", "text"), REJECTED.values(), ids=REJECTED.keys())
def test_lease_that_cannot_be_written_is_a_problem_before_the_first_start(
    run: Runner, serve: ClusterServer, lease: Json | None, refusal: tuple[int, str], text: str
) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    request = f"POST {path}" if lease is None else f"PUT {path}/cloud-controller-manager"
    stored = [objects.home(), *objects.working_node(), *filter(None, [lease])]
    flags = serve(*stored, refused={request: refusal})
    problem = run("status", "-o", "json", *flags).document["problems"][0]
    before_installation = run("preflight", *flags)
    assert (problem["reason"], text in problem["message"]) == ("LeaseNotWritable", True)
    assert before_installation.code == 1
    assert text in " ".join(before_installation.out.split())


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]},
        {"conditions": [{"type": "PodScheduled", "status": "False", "message": "ImagePullBackOff: no such image"}]},
    ],
    ids=["waiting", "not scheduled"],
)
def test_reason_for_which_a_pod_of_the_controller_does_not_run_is_named(
    run: Runner, serve: ClusterServer, status: Json
) -> None:
    metadata = {"name": "ccm-x", "namespace": "kube-system"}
    flags = serve(objects.home(), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})
    message = run("status", "-o", "json", *flags).document["problems"][0]["message"]
    assert "leads. Pod ccm-x does not run: ImagePullBackOff: no such image. Nothing is reconciled." in message


def with_endpoints(name: str = "web-a", *, ready: bool) -> Json:
    found = objects.endpoint_slice()
    found["metadata"]["name"] = name
    found["endpoints"][0]["conditions"]["ready"] = ready
    return found


NO_FAULTS: Final[dict[str, Row]] = {
    "Lease of this program that is not renewed any more": [
        partial(objects.lease, "harvester-ccm-2", holder="w2_y", mark="harvester-ccm/1 w2_y", seconds=600)
    ],
    "Lease of another program": [partial(objects.lease, "kube-scheduler", holder="cp1_z", mark="")],
    "Lease of kube-vip, renewed": [partial(objects.lease, "plndr-svcs-lock", holder="w1", mark="")],
    "Lease of kube-vip, held by another node": [
        partial(objects.lease, "plndr-svcs-lock", holder="w2", mark="", seconds=90)
    ],
    "Lease of kube-vip, which elects for each Service": [
        partial(objects.lease, "plndr-svcs-lock", holder="w1", mark="", seconds=90),
        partial(objects.lease, "kubevip-web", holder="w1", mark=""),
    ],
    "address of a Node, of another class": [of_service_lb(loadBalancerClass="metallb"), *objects.working_node()],
    "address of a Service on one VM": of_vms(["10.0.0.7"]),
    "IPv6 address": of_vms(["fe80::1"]),
    "address outside of cluster IPs, of several ranges": [cluster_ip("10.0.9.1"), cluster_ip("172.20.0.1")],
    "address outside of the ranges of the cluster": [
        *with_pods("10.42.0.0/24"),
        service_cidr("10.43.0.0/16"),
        cluster_ip("10.43.0.1"),
    ],
    "pool chosen for the network of the Nodes": [chosen_for("default/lan"), *in_networks("w1", 5)],
    "addresses of another Node and of the API server on a VM": of_vms(["10.0.0.6", "127.0.0.1"]),
    "VM of this cluster that has ended": [objects.machine("w9"), joining("w9", minutes=11, phase="Succeeded")],
    "address of a Service that shares it": [
        objects.service("api", address="10.0.0.7", annotations={PRIMARY_SERVICE: "shop/web"}, loadBalancerClass="x")
    ],
    "address on a VM of others": [
        *of_vms([]),
        objects.instance("of-another-cluster", ("eth0", "default/lan", ["10.0.0.9"])),
    ],
    "named pool in the network of the Nodes": [of_named_pool("255.255.248.0"), *in_another_subnet()],
    "named pool that is a part of the network": [of_named_pool("255.255.255.252")],
    "one of two endpoints is not ready": [with_endpoints(ready=True), with_endpoints("web-b", ready=False)],
    "device of another network": [*in_networks("w1", 5), *in_networks("w2", 6)],
}


@pytest.mark.parametrize("documents", NO_FAULTS.values(), ids=NO_FAULTS.keys())
def test_what_is_usual_is_no_fault(run: Runner, serve: ClusterServer, documents: Row) -> None:
    stored = made(documents)
    nodes = [] if any(one["kind"] == "Node" for one in stored) else objects.working_node()
    flags = serve(objects.home(), objects.lease(), served(), balancer(), *nodes, *stored)
    assert run("status", *flags).out.endswith("All is well.\n")


def test_note_of_an_old_kube_vip_names_the_host_of_a_node(run: Runner, serve: ClusterServer) -> None:
    announcing, *rest = objects.working_node("another-name")
    announcing["status"]["addresses"].append({"type": "Hostname", "address": "w1"})
    flags = serve(objects.home(), objects.lease(), served(), balancer(), announcing, *rest)
    assert "announces the address" not in run("status", *flags).out


@pytest.mark.parametrize(("documents", "text"), HINTS.values(), ids=HINTS.keys())
def test_hint_is_a_note_of_status_and_a_warning_of_preflight(
    run: Runner, serve: ClusterServer, documents: list[Json], text: str
) -> None:
    flags = serve(objects.home(), objects.lease(), *documents)
    notes = run("status", "-o", "json", *flags).document["notes"]
    assert [note[: len(text)] for note in notes] == [text]
    assert text in " ".join(warnings(run, flags))


def warnings(run: Runner, flags: list[str], reason: str = "") -> list[str]:
    """Return the texts of the warnings and failures of ``preflight``, those with a reason if it is given."""
    checks = run("preflight", "-o", "json", *flags).document["checks"]
    return [one["detail"] for one in checks if one["result"] != "ok" and reason in ("", one["check"])]


def test_services_of_a_controller_that_is_switched_off_have_no_fault(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), of_service_lb(), *objects.working_node())
    assert "NodeAddressPublished" not in run("status", *flags, "--controllers=-service-lb-controller,*").out


def test_fault_of_a_service_is_explained(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), labelled(), balancer())
    explained = run("explain", "svc/web", "-n", "shop", "-o", "json", *flags)
    assert [reason["reason"] for reason in explained.document["reasons"]] == ["SettingsIgnored"]
    assert explained.code == 1


def test_healthy_cluster_has_no_row_of_the_table(run: Runner, serve: ClusterServer) -> None:
    just_deleted = hanging(LB_CONTROLLER_FINALIZER)
    just_deleted["metadata"]["deletionTimestamp"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    flags = serve(objects.home(), objects.lease(), served(), balancer(), ready_node(), *VM_OF_NODE, just_deleted)
    assert run("status", *flags).out.endswith("All is well.\n")


@pytest.mark.parametrize(
    ("left", "is_problem"), [(timedelta(days=6), True), (timedelta(days=8), False), (timedelta(days=-1), False)]
)
def test_token_that_expires_within_a_week_is_a_problem(
    run: Runner, serve: ClusterServer, left: timedelta, *, is_problem: bool
) -> None:
    flags = serve(objects.home(), objects.lease())
    file = Path(next(flag for flag in flags if flag.startswith("--cloud-config=")).partition("=")[2])
    claims = {"sub": "system:serviceaccount:vms:demo", "exp": int((datetime.now(UTC) + left).timestamp())}
    file.write_text(file.read_text().replace("token-of-a-test", json_web_token(claims)))
    rows = run("status", "-o", "json", *flags).document["problems"]
    assert [row["object"] for row in rows if row["reason"] == "TokenExpires"] == ["Harvester"] * is_problem


def test_namespace_hides_faults_of_other_services(run: Runner, serve: ClusterServer) -> None:
    flags = serve(
        objects.home(), objects.lease(), served(), balancer(), balancer(of="away/gone", uid="9", address="10.0.0.8")
    )

    def count(namespace: str) -> int:
        return len(run("status", "-o", "json", "-n", namespace, *flags).document["problems"])

    assert (count("shop"), count("away")) == (0, 1)


def test_namespace_without_services_is_named_with_those_that_have_some(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), served(), balancer())
    result = run("status", "-o", "json", "-n", "shpo", *flags)
    assert result.document["notes"] == ["No Service is in namespace 'shpo'; there are Services in: shop"]


def test_service_without_an_endpoint_is_announced_by_no_node(run: Runner, serve: ClusterServer) -> None:
    flags = serve(objects.home(), objects.lease(), served(), balancer(), objects.endpoint_slice("other"))
    explained = run("explain", "svc/web", "-n", "shop", "-o", "json", *flags).document
    assert explained["announcedBy"] == ""
    assert explained["notes"][0].startswith("The Service has no endpoint any more")
