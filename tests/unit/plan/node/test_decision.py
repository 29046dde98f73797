"""The plan for a Node: whole plans, one write each."""

from ipaddress import ip_address

import pytest

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.model.core import Node
from harvester_ccm.names import PROVIDED_NODE_IP, VM_ANNOTATION, NodeReason
from harvester_ccm.plan.node.decision import NodePlan, observe, plan_node
from harvester_ccm.plan.node.messages import harvester_unavailable
from tests.support.node_objects import (
    OWN,
    REINITIALIZE,
    UNINITIALIZED,
    Owners,
    answered,
    instance,
    node,
    node_settings,
    pairs,
    patched,
    shown,
    store,
    vm,
)

OTHER_TAINT = {"key": "example.com/drained", "effect": "NoExecute"}
ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
RECORD = {VM_ANNOTATION: "prod/w1"}
MACHINES = store([vm(labels=OWN)], [instance(ips=["10.0.0.1", "132.1.1.3"], annotations={ZONE: "z1"})])
BESIDE_W2 = store(
    [vm(), vm("w2")],
    [instance(ips=["10.0.0.1"]), instance("w2")],
    nodes=[node("w2", provider_id="harvester://uid-w2", addresses=pairs("I 10.0.0.9, H w2"))],
)
NEW = node(taints=[OTHER_TAINT, UNINITIALIZED], addresses=pairs("H w1"))
READY = node(
    provider_id="harvester://uid-w1",
    addresses=pairs("I 10.0.0.1, E 132.1.1.3, H w1"),
    labels={ZONE: "z1", OLD_ZONE: "z1"},
    annotations=RECORD,
)


def addresses_of(target: Node) -> list[dict[str, str]]:
    return [{"type": entry.type, "address": entry.address} for entry in target.status.addresses]


def planned(target: Node, machines: ClusterStore = MACHINES, known: Owners | None = None) -> NodePlan:
    settings = node_settings()
    return plan_node(observe(machines, target, virtual_ips=Owners() if known is None else known, settings=settings))


def outline(plan: NodePlan) -> str:
    """Return the fields that are written, and the reasons of Events and of the wait."""
    body = plan.write.body if plan.write else {}
    written = [f"{part}.{field}" for part, fields in body.items() for field in fields if field != "uid"]  # type: ignore[attr-defined]
    texts = [*written, *(f"then {event.reason}" for event in plan.events_after_write)]
    texts += [f"now {event.reason}" for event in plan.events]
    texts += [f"waits {plan.waiting.reason}"] if plan.waiting else []
    return ", ".join(texts)


@pytest.mark.parametrize(
    ("target", "machines", "expected"),
    [
        pytest.param(READY, MACHINES, "", id="nothing to do"),
        pytest.param(NEW, store([]), "now VMNotFound, waits VMNotFound", id="new, no VM"),
        pytest.param(NEW, store([vm()]), "now VMNotRunning, waits VMNotRunning", id="new, VM stopped"),
        pytest.param(NEW, store([vm()], [instance(ips=[])]), "now NoAddress, waits NoAddress", id="new, no address"),
        pytest.param(
            NEW,
            store([], problem=Unreachable("x")),
            "now HarvesterUnavailable, waits HarvesterUnavailable",
            id="new, away",
        ),
        pytest.param(READY, store([]), "", id="initialized, no VM"),
        pytest.param(READY, store([vm()], [instance(ips=[])]), "", id="initialized, silent agent"),
        pytest.param(
            node(provider_id="harvester://uid-w1", addresses=pairs("H w1")),
            store([vm()], [instance(ips=[])]),
            "now NoAddress",
            id="initialized without InternalIP",
        ),
        pytest.param(
            node(addresses=pairs("I 10.0.0.1, E 132.1.1.3, H w1"), labels={ZONE: "z1", OLD_ZONE: "z1"}),
            MACHINES,
            "now NoProviderID",
            id="joined without the taint",
        ),
        pytest.param(
            node(
                provider_id="harvester://uid-w1",
                addresses=pairs("I 10.0.0.9, H w1"),
                labels={ZONE: "z1", OLD_ZONE: "z1"},
            ),
            store([vm()], [instance(networks=[("n", "x")], ips=["10.0.0.1"], annotations={ZONE: "z1"})]),
            "status.addresses",
            id="new address is published first as ExternalIP",
        ),
        pytest.param(
            node(
                provider_id="harvester://uid-w1",
                taints=[REINITIALIZE],
                addresses=pairs("I 10.0.0.1, E 132.1.1.3, H w1"),
                labels={ZONE: "z1", OLD_ZONE: "z1"},
                annotations=RECORD,
            ),
            MACHINES,
            "metadata.resourceVersion, spec.taints, then Synced",
            id="taint was set again",
        ),
        pytest.param(
            node(provider_id="harvester://uid-w1", addresses=pairs("I 10.0.0.1, E 132.1.1.3, H w1")),
            MACHINES,
            "metadata.labels, metadata.annotations",
            id="record comes with the labels",
        ),
        pytest.param(
            node(provider_id="harvester://uid-w1", taints=[UNINITIALIZED], deleting=True), MACHINES, "", id="going"
        ),
        pytest.param(
            patched(READY, {"status": {"addresses": [*reversed(addresses_of(READY))]}}), MACHINES, "", id="other order"
        ),
        pytest.param(
            patched(READY, {"status": {"addresses": [*addresses_of(READY), addresses_of(READY)[0]]}}),
            MACHINES,
            "status.addresses",
            id="one address twice",
        ),
        pytest.param(node(addresses=pairs("H w1")), store([]), "", id="no VM, joined without the taint"),
        pytest.param(
            node(taints=[UNINITIALIZED], addresses=pairs("I 132.1.1.3, E 10.0.0.1, H w1")),
            MACHINES,
            "status.addresses",
            id="new, other guess of the kubelet",
        ),
        pytest.param(
            node(provider_id="harvester://uid-w1", taints=[REINITIALIZE], addresses=pairs("I 10.0.0.1, H w1")),
            store([]),
            "now VMNotFound, waits VMNotFound",
            id="taint was set again, no VM",
        ),
        pytest.param(
            node(taints=[UNINITIALIZED], annotations={PROVIDED_NODE_IP: "fd00::9, 10.0.0.9"}),
            BESIDE_W2,
            "now InternalIPInUse, waits InternalIPInUse",
            id="another Node has the address of the kubelet",
        ),
        pytest.param(
            node(provider_id="harvester://uid-w1", addresses=pairs("I 10.0.0.9, H w1")),
            BESIDE_W2,
            "status.addresses, now InternalIPInUse",
            id="another Node has the InternalIP, which the VM does not report",
        ),
    ],
)
def test_one_write_or_the_reason_to_wait(target: Node, machines: ClusterStore, expected: str) -> None:
    assert outline(planned(target, machines)) == expected


def test_nothing_is_decided_before_load_balancers_were_listed() -> None:
    unlisted = Owners()
    unlisted.listed = False
    for target in (NEW, patched(READY, {"status": {"addresses": []}})):
        plan = planned(target, known=unlisted)
        assert (plan.write, plan.skip_reason) == (None, "the addresses of load balancers have not been listed yet")
    assert shown(planned(NEW, known=Owners({"10.0.0.1": "x"})).addresses.addresses) == "I 132.1.1.3, H w1"


@pytest.mark.parametrize(("first", "second", "expected"), [(0.0, 20.0, 40.0), (60.0, 20.0, 40.0), (60.0, 60.0, None)])
def test_next_address_that_is_overdue_decides_when_the_node_is_planned_again(
    first: float, second: float, expected: float | None
) -> None:
    target = node(taints=[UNINITIALIZED], annotations={PROVIDED_NODE_IP: "10.0.0.9,fd00::9"})
    missing = {ip_address("10.0.0.9"): first, ip_address("fd00::9"): second}
    view = observe(MACHINES, target, virtual_ips=Owners(), settings=node_settings(), missing_for=missing)
    assert plan_node(view).requeue_after == expected


def test_labels_of_an_initialized_node_stay_without_the_vmi_controller() -> None:
    target = node(provider_id="harvester://uid-w1", addresses=pairs("I 10.0.0.1, E 132.1.1.3, H w1"))
    view = observe(MACHINES, target, virtual_ips=Owners(), settings=node_settings(vmi_controller=False))
    assert plan_node(view).write is None


def test_change_of_the_internal_ip_is_emitted_with_its_reason() -> None:
    target = node(provider_id="harvester://uid-w1", addresses=pairs("I 10.0.0.9, H w1"))
    view = observe(MACHINES, target, virtual_ips=Owners(), settings=node_settings(monitor_period=0.0))
    (event,) = plan_node(view).events_after_write
    assert event.message == (
        "InternalIP changes from 10.0.0.9 to 10.0.0.1 (10.0.0.1: first IPv4 address of the interface, "
        "10.0.0.9: not reported by the VM)"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (answered(403, "no"), "forbids the credential in the cloud-config to read VMs"),
        (answered(401, "no"), "does not accept the token in the cloud-config; requests are retried"),
        (Unreachable("timeout"), "cannot be reached; requests are retried"),
        (None, "has not listed its VMs yet"),
    ],
)
def test_harvester_unavailable(error: KubeError | None, text: str) -> None:
    event = harvester_unavailable(error)
    assert event.reason is NodeReason.HARVESTER_UNAVAILABLE
    assert text in event.message
