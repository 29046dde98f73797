"""Plans of a Service whose address Harvester announces, and the specification of its load balancer."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.model.core import NODES
from harvester_ccm.names import (
    EXCLUDE_NODE_LABEL,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_SUCCESS_THRESHOLD,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LB_UPDATE_AFTER_CREATE,
    VM_NAME,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.load_balancer.vm_spec import backends_of, listeners
from tests.support.builders import ADDRESS, DELETED_AT, LB_NAME, SUPPRESSED, VM_SPEC, allocated, served, service
from tests.unit.plan.service.outcomes import differences
from tests.unit.plan.service.snapshots import (
    HEALTH_CHECK,
    HOSTED,
    VM,
    VM_LOAD_BALANCER,
    WITHDRAWN,
    World,
    messages,
    plan,
    short_write,
)

NOT_HEALTHY: Final = "running backend servers are not probed as healthy total:2, healthy:0"
UNHEALTHY: Final = allocated(spec=VM_SPEC, message=NOT_HEALTHY)
CHECK: Final = {**HEALTH_CHECK, "successThreshold": 2, "periodSeconds": 10}
CHECK_ANNOTATIONS: Final = {
    HEALTH_CHECK_PORT: "80",
    HEALTH_CHECK_SUCCESS_THRESHOLD: "2",
    HEALTH_CHECK_PERIOD: "10",
}
RECREATED: Final = allocated(spec=VM_SPEC, annotations={LB_UPDATE_AFTER_CREATE: "true"})

PLANS: dict[str, World] = {
    "an address since": World(service(ours=True, annotations={**SUPPRESSED, **VM}), (VM_LOAD_BALANCER,)),
    "an address since, without the finalizer": World(service(annotations={**SUPPRESSED, **VM}), (VM_LOAD_BALANCER,)),
    "both annotations are restored": World(service(ours=True, annotations=VM), (VM_LOAD_BALANCER,)),
    "ready": World(HOSTED, (VM_LOAD_BALANCER,)),
    "ready, VMs not listed": World(HOSTED, (VM_LOAD_BALANCER,), {"backends": None}),
    "kube-vip has to withdraw the address first": World(served(annotations=VM), (VM_LOAD_BALANCER,)),
    "kube-vip has to withdraw the address first, although it ignores the Service": World(
        served(annotations={**VM, KUBE_VIP_IGNORE: "true"}), (VM_LOAD_BALANCER,)
    ),
    "kube-vip has withdrawn the address": World(
        service(ours=True, address=ADDRESS, annotations={**VM, **WITHDRAWN, KUBE_VIP_HOST: "n1"}),
        (VM_LOAD_BALANCER,),
    ),
    "kube-vip announces the address of the specification": World(
        service(ours=True, annotations=VM, spec={"loadBalancerIP": ADDRESS}), (VM_LOAD_BALANCER,)
    ),
    "another address": World(HOSTED, (allocated(spec=VM_SPEC, ip="10.0.0.9", address="10.0.0.9"),)),
    "another port": World(
        replace(HOSTED, spec=service(ports=[{"port": 81, "nodePort": 30081}]).spec), (VM_LOAD_BALANCER,)
    ),
    "another node": World(HOSTED, (VM_LOAD_BALANCER,), {"backends": ("vm-1", "vm-3")}),
    "no node takes traffic": World(HOSTED, (VM_LOAD_BALANCER,), {"backends": ()}),
    "no node takes traffic, the load balancer has no backend": World(
        HOSTED,
        (allocated(spec={**VM_SPEC, "backendServerSelector": {VM_NAME: ["no-node-of-this-cluster"]}}),),
        {"backends": ()},
    ),
    "the first health checks": World(HOSTED, (UNHEALTHY,)),
    "the first health checks are over": World(HOSTED, (UNHEALTHY,), {"waited": 10.0}),
    "the first health checks, each of them takes long": World(
        service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM, **CHECK_ANNOTATIONS}),
        (allocated(spec={**VM_SPEC, "healthCheck": CHECK}, message=NOT_HEALTHY),),
        {"waited": 10.0},
    ),
    "Harvester reports a problem that is not about backends": World(
        HOSTED, (allocated(spec=VM_SPEC, message="service is waiting for external IP"),), {"waited": 99.0}
    ),
    "recreated": World(HOSTED, (RECREATED,)),
    "recreated 4 s ago": World(HOSTED, (RECREATED,), {"waited": 4.0}),
    "recreated 4 s ago, each of the first health checks takes long": World(
        HOSTED,
        (
            allocated(
                spec={**VM_SPEC, "healthCheck": CHECK},
                annotations={LB_UPDATE_AFTER_CREATE: "true"},
                message=NOT_HEALTHY,
            ),
        ),
        {"waited": 4.0},
    ),
    "recreated 10 s ago: it is written once more": World(HOSTED, (RECREATED,), {"waited": 10.0}),
    "made for Harvester before 1.2": World(
        service(ours=True, address=ADDRESS, annotations=SUPPRESSED),
        (allocated(spec={**VM_SPEC, "workloadType": ""}),),
    ),
}


def test_announced_by_harvester() -> None:
    assert differences("delegated", PLANS) == []


SELECTOR: Final = "fail to new selector, error: "
REPORTS: dict[str, tuple[str | None, str]] = {
    "nothing": (None, ""),
    "a problem": (f"{SELECTOR}no", f". Harvester reports: {SELECTOR}no"),
    "control characters": (f"{SELECTOR}\x1b[1m", f". Harvester reports: {SELECTOR}\\u001b[1m"),
    "a conflict, which passes by itself": ("the object has been modified", ""),
    "an announcement that is pending": ("service is waiting for external IP", ""),
    "the first health checks": (NOT_HEALTHY, ""),
}


@pytest.mark.parametrize(("message", "text"), REPORTS.values(), ids=REPORTS.keys())
def test_condition_has_a_problem_of_harvester_whose_effect_is_not_known(message: str | None, text: str) -> None:
    condition = plan(HOSTED, allocated(spec=VM_SPEC, message=message)).condition
    assert condition is not None
    assert (condition.status, condition.message) == ("True", f"The load balancer has address {ADDRESS}{text}")


def test_service_without_a_node_says_what_excludes_nodes() -> None:
    (message,) = messages(plan(HOSTED, VM_LOAD_BALANCER, backends=()))
    assert EXCLUDE_NODE_LABEL in message
    assert "ToBeDeletedByClusterAutoscaler" in message


NODE_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "plain": ({}, {}, True),
    "cordoned": ({}, {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}, True),
    "control plane": ({"labels": {"node-role.kubernetes.io/control-plane": "true"}}, {}, True),
    "excluded": ({"labels": {EXCLUDE_NODE_LABEL: ""}}, {}, False),
    "excluded, any value": ({"labels": {EXCLUDE_NODE_LABEL: "yes"}}, {}, False),
    "excluded, false": ({"labels": {EXCLUDE_NODE_LABEL: "false"}}, {}, True),
    "excluded, another spelling of false": ({"labels": {EXCLUDE_NODE_LABEL: "F"}}, {}, True),
    "being deleted": ({"deletionTimestamp": DELETED_AT}, {}, False),
    "removed by the autoscaler": ({}, {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}, False),
}


@pytest.mark.parametrize(("metadata", "spec", "is_backend"), NODE_FIELDS.values(), ids=NODE_FIELDS.keys())
def test_nodes_that_get_traffic(metadata: dict[str, Any], spec: dict[str, Any], *, is_backend: bool) -> None:
    node = NODES.decode(msgspec.json.encode({"metadata": {"name": "host-a", **metadata}, "spec": spec}))
    assert backends_of([node], {"host-a": "vm-a"}) == (("vm-a",) if is_backend else ())


def test_nodes_without_a_known_vm_get_no_traffic() -> None:
    nodes = [NODES.decode(msgspec.json.encode({"metadata": {"name": name}})) for name in ("host-b", "host-a", "host-c")]
    assert backends_of(nodes, {"host-a": "vm-1", "host-b": "vm-2"}) == ("vm-1", "vm-2")
    assert backends_of(nodes, None) is None


PORTS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "named": ([{"name": "http", "port": 80, "nodePort": 30080}], ["http 80/TCP 30080"]),
    "without a name": ([{"port": 80, "nodePort": 30080}], ["tcp-80 80/TCP 30080"]),
    "one number, two protocols": (
        [
            {"name": "dns-tcp", "port": 53, "protocol": "TCP", "nodePort": 30053},
            {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
        ],
        ["dns-tcp 53/TCP 30053", "dns 53/UDP 30053"],
    ),
    "without a node port": (
        [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30081}],
        ["b 81/TCP 30081"],
    ),
}


@pytest.mark.parametrize(("ports", "expected"), PORTS.values(), ids=PORTS.keys())
def test_listeners(ports: list[dict[str, Any]], expected: list[str]) -> None:
    new = service(
        ours=True,
        ports=ports,
        annotations={WORKLOAD_TYPE: "vm", **SUPPRESSED},
        spec={"allocateLoadBalancerNodePorts": False},
    )
    created: Any = short_write(plan(new).write)
    assert [
        f"{listener['name']} {listener['port']}/{listener['protocol']} {listener['backendPort']}"
        for listener in created["listeners"]
    ] == expected


def test_selector_of_backends_that_another_client_narrowed_is_restored() -> None:
    selector = {**VM_SPEC["backendServerSelector"], "zone": ["a"]}
    narrowed = allocated(spec={**VM_SPEC, "backendServerSelector": selector})
    assert short_write(plan(HOSTED, narrowed).write) == {
        "change": LB_NAME,
        "spec": {"backendServerSelector": VM_SPEC["backendServerSelector"]},
    }


port = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["", "http", "tcp-80", "udp-80", "x" * 63]),
        "port": st.sampled_from([80, 81, 443]),
        "protocol": st.sampled_from(["TCP", "UDP"]),
        "nodePort": st.integers(30000, 30003),
    }
)


# The names of the ports of one Service are unique, unless it has a single port without a name.
port_lists = st.lists(port, max_size=5, unique_by=lambda port: port["name"])


@given(own=port_lists, shared=port_lists)
def test_listeners_pass_the_rules_of_harvester(own: list[dict[str, Any]], shared: list[dict[str, Any]]) -> None:
    made: Any = listeners(service(ports=own), service("api", ports=shared).spec.ports)
    names = [listener["name"] for listener in made]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= 63 for name in names)
    first: dict[tuple[str, int], int] = {}
    for requested in (*own, *shared):
        first.setdefault((requested["protocol"], requested["port"]), requested["nodePort"])
    assert {(listener["protocol"], listener["port"]): listener["backendPort"] for listener in made} == first
    assert len(first) == len(made)
