"""``status`` is not green while something waits in the cluster, also if another controller has to act."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from harvester_ccm.kube.clock import time_text
from harvester_ccm.names import SERVICE_FINALIZER
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Runner
from tests.unit.commands.test_status import INSTANCE, MARK, balancer, ready_node, served

GOING = objects.service(deleted="2026-11-21T09:00:00Z", finalizers=[SERVICE_FINALIZER])
HELD = objects.service(deleted="2026-11-21T09:00:00Z", finalizers=["example.com/hold"])
UNMANAGED = "Service shop/web: not managed by this controller"
PENDING = "Service shop/web: without an address, and not managed by this controller"
OTHERS_CLASS = "spec.loadBalancerClass is 'metallb', which another controller has to serve. To have it served by"
K3S = "Provider ID k3s://w1 is another provider's, so the Node is ignored"
NO_LB_CONTROLLER = "--controllers=-service-lb-controller,*"
NO_NODE_CONTROLLER = "--controllers=-cloud-node-controller,*"


def addressed(*addresses: str) -> Json:
    """Return an initialized Node with these InternalIPs."""
    node = ready_node()
    node["status"]["addresses"] = [{"type": "InternalIP", "address": address} for address in addresses]
    return node


def leaving_node() -> Json:
    """Return an initialized Node that is being deleted."""
    node = ready_node()
    node["metadata"].update(deletionTimestamp="2026-11-21T09:00:00Z", finalizers=["example.com/hold"])
    return node


def of_k3s(*, ready: str = "True") -> Json:
    """Return an initialized Node of another provider."""
    node = objects.node(taints=[], providerID="k3s://w1")
    node["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    return node


KUBELET = {"alpha.kubernetes.io/provided-node-ip": "10.0.0.6"}


def with_other_node_ip() -> Json:
    """Return an initialized Node whose kubelet has an address that the VM does not report."""
    node = addressed("10.0.0.6")
    node["metadata"]["annotations"] = KUBELET
    return node


CASES: dict[str, tuple[list[Json], tuple[str, ...], str]] = {
    "being deleted": (
        [GOING, objects.balancer(address="10.0.0.7", annotations=MARK)],
        (),
        "Service shop/web: is being deleted, and waits for its load balancer to be deleted",
    ),
    "held by the finalizer of another controller": (
        [HELD],
        (),
        f"{UNMANAGED}: it is being deleted, and nothing of this controller is left. It waits for finalizers of other",
    ),
    "class of another controller": (
        [objects.service(loadBalancerClass="metallb")],
        (),
        f"{PENDING}: {OTHERS_CLASS}",
    ),
    "annotation of another controller": (
        [objects.service(annotations={"metallb.universe.tf/address-pool": "lan"})],
        (),
        f"{PENDING}: annotation metallb.universe.tf/address-pool belongs to another load balancer controller",
    ),
    "controller of Services is switched off": (
        [objects.service()],
        (NO_LB_CONTROLLER,),
        f"{PENDING}: service-lb-controller is switched off",
    ),
    "Node of another provider": ([of_k3s()], (), f"Node w1: not managed by this controller. {K3S}"),
    "Node of another provider that is not Ready": (
        [of_k3s(ready="Unknown")],
        (),
        f"Node w1: not managed by this controller. It is NotReady. {K3S}",
    ),
    "controller of Nodes is switched off": (
        [objects.node()],
        (NO_NODE_CONTROLLER,),
        "Node w1: not managed by this controller. It is not initialized. cloud-node-controller is switched off",
    ),
    "Node that is being deleted": (
        [leaving_node(), objects.machine(), INSTANCE],
        (),
        "Node w1: is being deleted. It waits for finalizers: example.com/hold.",
    ),
    "address of the kubelet that the VM does not report": (
        [with_other_node_ip(), objects.machine(), INSTANCE],
        (),
        "Node w1: has address 10.0.0.6, which its VM does not report. If this stays, correct the kubelet's --node-ip",
    ),
}


@pytest.mark.parametrize(("documents", "flags", "note"), CASES.values(), ids=CASES.keys())
def test_what_waits_is_a_note_and_no_problem(
    run: Runner, serve: ClusterServer, documents: list[Json], flags: tuple[str, ...], note: str
) -> None:
    given = [*serve(objects.home(), objects.lease(), *documents), *flags]
    document = run("status", "-o", "json", *given).document
    assert any(found.startswith(note) for found in document["notes"]), document["notes"]
    assert document["problems"] == []
    result = run("status", *given)
    assert result.code == 0
    assert result.out.endswith("No problem found; see the notes.\n")


def test_many_unmanaged_objects_share_notes(run: Runner, serve: ClusterServer) -> None:
    services = [objects.service(f"s{number}", uid=f"{number}", loadBalancerClass="metallb") for number in range(9)]
    nodes = [objects.node(f"n{number}", taints=[], providerID=f"k3s://n{number}") for number in range(9)]
    notes = run("status", "-o", "json", *serve(objects.home(), objects.lease(), *services, *nodes)).document["notes"]
    assert len(notes) == 2
    assert notes[0].startswith("Service shop/s0, shop/s1, shop/s2, shop/s3, shop/s4 and 4 more: without an address")
    assert notes[1].startswith(
        "Node n0, n1, n2, n3, n4 and 4 more: not managed by this controller. Of n0: Provider ID k3s://n0"
    )


def test_service_of_another_controller_with_an_address_waits_for_nothing(run: Runner, serve: ClusterServer) -> None:
    of_metallb = objects.service("other", uid="9", address="10.9.0.1", loadBalancerClass="metallb")
    working = [served(), balancer(), ready_node(), objects.machine(), INSTANCE]
    result = run("status", *serve(objects.home(), objects.lease(), *working, of_metallb))
    assert result.out.endswith("All is well.\n")


GONE = "The kubeconfig cannot be loaded"


def report(reason: str, seconds: int, *, host: str = "w1", text: str = GONE) -> Json:
    """Return an Event about the Lease of a process on a host, written this long ago."""
    written = datetime.now(UTC) - timedelta(seconds=seconds)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"lease.{10**6 - seconds}.{reason}.{host}", "namespace": "kube-system"},
        "involvedObject": {"kind": "Lease", "name": "cloud-controller-manager"},
        "type": "Warning" if reason == FAILED else "Normal",
        "reason": reason,
        "message": text,
        "lastTimestamp": time_text(written),
        "reportingInstance": host,
    }


FAILED = "CredentialNotReloaded"
ENDED = "CredentialReloaded"
REPORTS: dict[str, tuple[list[partial[Json]], str]] = {
    "holds": ([partial(report, FAILED, 200)], "3m"),
    "the clock of the controller is ahead": ([partial(report, FAILED, -30)], "0s"),
    "not repeated: the process was killed": ([partial(report, FAILED, 700)], ""),
    "ended": ([partial(report, FAILED, 200), partial(report, ENDED, 100)], ""),
    "ended in the same second": ([partial(report, FAILED, 100), partial(report, ENDED, 100)], ""),
    "again": ([partial(report, FAILED, 300), partial(report, ENDED, 280), partial(report, FAILED, 200)], "3m"),
    "repeated": ([partial(report, FAILED, 500), partial(report, FAILED, 200)], "3m"),
    "of two processes": ([partial(report, FAILED, 300), partial(report, FAILED, 200, host="w2")], "3m"),
    "ended in another process": ([partial(report, FAILED, 200), partial(report, ENDED, 100, host="w2")], "3m"),
    "another event": ([partial(report, FAILED, 200), partial(report, "LeaderElection", 100)], "3m"),
    "another cause": ([partial(report, FAILED, 300, text="not YAML"), partial(report, FAILED, 200)], "3m"),
}


@pytest.mark.parametrize("seconds", [0, 7200], ids=["that leads", "that does not renew its Lease any more"])
def test_report_before_the_leader_began_is_no_note_until_it_is_repeated(
    run: Runner, serve: ClusterServer, seconds: float
) -> None:
    """The process that wrote it was replaced, without the Event that ends it."""
    lease = objects.lease(seconds=seconds)
    lease["spec"]["acquireTime"] = time_text(datetime.now(UTC) - timedelta(seconds=100))
    flags = serve(objects.home(), lease, report(FAILED, 200))
    assert "the controller reported" not in run("status", *flags).out
    flags = serve(objects.home(), lease, report(FAILED, 50))
    assert "the controller reported" in run("status", *flags).out


@pytest.mark.parametrize(("events", "elapsed"), REPORTS.values(), ids=REPORTS.keys())
def test_what_a_controller_reports_about_itself_is_a_note_while_it_holds(
    run: Runner, serve: ClusterServer, events: list[partial[Json]], elapsed: str
) -> None:
    served_objects = [objects.home(), objects.lease(), *(event() for event in events)]
    document = run("status", "-o", "json", *serve(*served_objects)).document
    # A busy machine is a slow server, which is another note.
    notes = [note for note in document["notes"] if "the controller reported" in note]
    assert notes == ([f"{elapsed} ago the controller reported CredentialNotReloaded: {GONE}"] if elapsed else [])
    assert document["problems"] == []
