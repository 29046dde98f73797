"""The nodes that get traffic, the listeners of a VM load balancer, and the network devices of the nodes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.core import NODES, ConfigMap
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.names import EXCLUDE_NODE_LABEL, WORKLOAD_TYPE
from harvester_ccm.plan.service.request import network_devices
from harvester_ccm.plan.service.vm_lb import backends_of, listeners
from tests.unit.plan.service.plans import plan, short
from tests.worlds.builders import ADDRESS, DELETED_AT, SUPPRESSED, VM_SPEC, allocated, service

NODE_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "plain": ({}, {}, True),
    "cordoned": ({}, {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]}, True),
    "control plane": ({"labels": {"node-role.kubernetes.io/control-plane": "true"}}, {}, True),
    "excluded": ({"labels": {EXCLUDE_NODE_LABEL: ""}}, {}, False),
    "excluded, any value": ({"labels": {EXCLUDE_NODE_LABEL: "yes"}}, {}, False),
    "excluded, false": ({"labels": {EXCLUDE_NODE_LABEL: "false"}}, {}, True),
    "being deleted": ({"deletionTimestamp": DELETED_AT}, {}, False),
    "removed by the autoscaler": ({}, {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}, False),
}


@pytest.mark.parametrize(("metadata", "spec", "expected"), NODE_FIELDS.values(), ids=NODE_FIELDS.keys())
def test_nodes_that_get_traffic(metadata: dict[str, Any], spec: dict[str, Any], expected: bool) -> None:
    node = NODES.decode(msgspec.json.encode({"metadata": {"name": "host-a", **metadata}, "spec": spec}))
    backends = backends_of([node], {"host-a": "vm-a"})
    assert backends == (("vm-a",) if expected else ())


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
    asked = service(
        ours=True,
        ports=ports,
        annotations={WORKLOAD_TYPE: "vm", **SUPPRESSED},
        spec={"allocateLoadBalancerNodePorts": False},
    )
    made: Any = short(plan(asked).write, asked)
    found = [f"{one['name']} {one['port']}/{one['protocol']} {one['backendPort']}" for one in made["listeners"]]
    assert found == expected


def test_selector_of_backends_that_another_client_narrowed_is_restored() -> None:
    asked = service(ours=True, address=ADDRESS, annotations={WORKLOAD_TYPE: "vm", **SUPPRESSED})
    selector = {**VM_SPEC["backendServerSelector"], "zone": ["a"]}
    narrowed = allocated(spec={**VM_SPEC, "backendServerSelector": selector})
    made: Any = short(plan(asked, narrowed).write, asked)
    assert made["spec"] == {"backendServerSelector": VM_SPEC["backendServerSelector"]}


port = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["", "http", "tcp-80", "udp-80", "x" * 63]),
        "port": st.sampled_from([80, 81, 443]),
        "protocol": st.sampled_from(["TCP", "UDP"]),
        "nodePort": st.integers(30000, 30003),
    }
)


# The names of the ports of one Service are unique, unless it has a single port without a name.
ports = st.lists(port, max_size=5, unique_by=lambda one: one["name"])


@given(own=ports, shared=ports)
def test_listeners_pass_the_rules_of_harvester(own: list[dict[str, Any]], shared: list[dict[str, Any]]) -> None:
    found: Any = listeners(service(ports=own), service("api", ports=shared).spec.ports)
    assert len({one["name"] for one in found}) == len(found)
    first: dict[tuple[str, int], int] = {}
    for one in (*own, *shared):
        first.setdefault((one["protocol"], one["port"]), one["nodePort"])
    assert {(one["protocol"], one["port"]): one["backendPort"] for one in found} == first
    assert len(first) == len(found)
    assert all(0 < len(one["name"]) <= 63 for one in found)


MAPPINGS: dict[str, tuple[str | None, dict[str, str] | None]] = {
    "networks": ('{"infra/vlan9":"eth1","vlan8":"eth2"}', {"infra/vlan9": "eth1", "default/vlan8": "eth2"}),
    "empty": ("", {}),
    "no networks": ("{}", {}),
    "no JSON": ("x", {}),
    "no JSON object": ("[1]", {}),
    "device that is no text": ('{"infra/vlan9":"eth1","vlan8":2}', {}),
    "network without a device": ('{"infra/vlan9":""}', {}),
    "no such key": (None, {}),
}


@pytest.mark.parametrize(("text", "expected"), MAPPINGS.values(), ids=MAPPINGS.keys())
def test_network_devices(text: str | None, expected: dict[str, str] | None) -> None:
    data = {} if text is None else {"interface-nad-mapping": text}
    assert network_devices(ConfigMap(metadata=ObjectMeta(name="x"), data=data)) == expected
