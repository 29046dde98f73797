"""Nodes to VMs, ports to listeners."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.core import NODES, ConfigMap, Node
from harvester_ccm.model.harvester import NodeMatches
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.plan.service.backends import Backends, backend_names, takes_traffic
from harvester_ccm.plan.service.request import network_devices
from harvester_ccm.plan.service.vm_lb import listeners
from tests.worlds.builders import DELETED_AT, service

EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def node(name: str = "node-1", *, labels: dict[str, str] | None = None, deleting: bool = False, **spec: Any) -> Node:
    meta: dict[str, Any] = {"name": name, "labels": labels or {}}
    if deleting:
        meta["deletionTimestamp"] = DELETED_AT
    status = spec.pop("status", {})
    return NODES.decode(msgspec.json.encode({"metadata": meta, "spec": spec, "status": status}))


TRAFFIC = {
    "plain": (node(), True),
    "cordoned": (node(unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable"}]), True),
    "control plane": (node(labels={"node-role.kubernetes.io/control-plane": "true"}), True),
    "excluded": (node(labels={EXCLUDE: ""}), False),
    "excluded with any word": (node(labels={EXCLUDE: "yes"}), False),
    "written-out false": (node(labels={EXCLUDE: "false"}), True),
    "being deleted": (node(deleting=True), False),
    "to be removed by the autoscaler": (node(taints=[{"key": "ToBeDeletedByClusterAutoscaler"}]), False),
}


@pytest.mark.parametrize(("one", "takes"), TRAFFIC.values(), ids=TRAFFIC.keys())
def test_nodes_that_take_traffic(one: Node, takes: bool) -> None:
    assert takes_traffic(one) is takes


def test_only_vms_of_nodes_that_are_known_get_traffic() -> None:
    nodes = (node("host-b"), node("vm-a"), node("host-c"), node("host-d", labels={EXCLUDE: "true"}))
    matches = NodeMatches({"host-b": "vm-b", "vm-a": "vm-a", "host-d": "vm-d"}, frozenset({"host-c", "host-d"}))
    assert backend_names(nodes, matches.vm_names) == ("vm-a", "vm-b")
    assert Backends.of(nodes, matches) == Backends(("vm-a", "vm-b"), strangers=("host-c",))


PORTS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "names stay": ([{"name": "http", "port": 80, "nodePort": 30080}], ["http 80/TCP 30080"]),
    "no name": ([{"port": 80, "nodePort": 30080}], ["tcp-80 80/TCP 30080"]),
    "the made-up name is taken": (
        [{"name": "tcp-81", "port": 80, "nodePort": 30080}, {"name": "", "port": 81, "nodePort": 30081}],
        ["tcp-81 80/TCP 30080", "tcp-81-2 81/TCP 30081"],
    ),
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


@pytest.mark.parametrize(("ports", "made"), PORTS.values(), ids=PORTS.keys())
def test_listeners(ports: list[dict[str, Any]], made: list[str]) -> None:
    found = listeners(service(ports=ports), ())
    assert [f"{one.name} {one.port}/{one.protocol} {one.backend_port}" for one in found] == made


port = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["", "http", "tcp-80", "udp-80", "x" * 63]),
        "port": st.sampled_from([80, 81, 443]),
        "protocol": st.sampled_from(["TCP", "UDP"]),
        "nodePort": st.integers(30000, 30003),
    }
)


@given(own=st.lists(port, max_size=5), shared=st.lists(port, max_size=5))
def test_listeners_always_pass_harvesters_rules(own: list[dict[str, Any]], shared: list[dict[str, Any]]) -> None:
    made = listeners(service(ports=own), (service("api", ports=shared),))
    assert len({one.name for one in made}) == len(made)
    assert len({(one.protocol, one.port) for one in made}) == len(made)
    first: dict[tuple[str, int], int] = {}
    for one in (*own, *shared):
        first.setdefault((one["protocol"], one["port"]), one["nodePort"])
    assert {(one.protocol, one.port): one.backend_port for one in made} == first
    assert all(0 < len(one.name) <= 63 for one in made)


MAPPINGS: dict[str, tuple[str | None, dict[str, str] | None]] = {
    "entries": ('{"infra/vlan9":"eth1","vlan8":"eth2"}', {"infra/vlan9": "eth1", "default/vlan8": "eth2"}),
    "empty": ("", None),
    "no entries": ("{}", None),
    "null": ("null", None),
    "no JSON": ("x", None),
    "no JSON object": ("[1]", None),
    "a device that is no text": ('{"infra/vlan9":"eth1","vlan8":2}', None),
    "an entry without a device": ('{"infra/vlan9":""}', None),
    "no such key": (None, None),
}


@pytest.mark.parametrize(("text", "devices"), MAPPINGS.values(), ids=MAPPINGS.keys())
def test_mapping_of_networks(text: str | None, devices: dict[str, str] | None) -> None:
    data = {} if text is None else {"interface-nad-mapping": text}
    assert network_devices(ConfigMap(metadata=ObjectMeta(name="x"), data=data)) == devices


def test_no_config_map_is_no_mapping() -> None:
    assert network_devices(None) is None
