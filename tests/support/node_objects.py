"""Builders of Nodes, VMs and instances with defaults for what a test does not specify."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.config import NodeSettings
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.documents import Page
from harvester_ccm.kube.errors import Answer, ApiError, KubeError, error_from_answer
from harvester_ccm.model.core import NODES, Node, NodeAddress
from harvester_ccm.model.harvester import (
    INSTANCES,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    VirtualMachine,
    VirtualMachineInstance,
)
from tests.support.merge_patch import merged

NAMESPACE = "prod"
CLUSTER = ClusterIdentity(name="demo", namespace=NAMESPACE)
OWN = {"guestcluster.harvesterhci.io/name": "demo", "harvesterhci.io/creator": "docker-machine-driver-harvester"}
FOREIGN = {**OWN, "guestcluster.harvesterhci.io/name": "other"}
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
REINITIALIZE = {**UNINITIALIZED, "effect": "PreferNoSchedule"}
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}

Pairs = Sequence[tuple[str, str]]

DEFAULTS: Final = build_settings(parse_command_line(["--cloud-config=x"]), {}).nodes
"""The settings without flags."""


def node_settings(**fields: Any) -> NodeSettings:
    return replace(DEFAULTS, **fields)


def node(
    name: str = "w1",
    *,
    uid: str = "node-uid",
    provider_id: str = "",
    taints: Sequence[Mapping[str, str]] = (),
    addresses: Pairs = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    system_uuid: str = "",
    ready: str | None = "True",
    version: str = "7",
    deleting: bool = False,
) -> Node:
    """Return a Node; ``ready`` None leaves the Ready condition out."""
    metadata: dict[str, Any] = {"name": name, "uid": uid, "resourceVersion": version}
    metadata |= {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    status: dict[str, Any] = {
        "addresses": [{"type": kind, "address": address} for kind, address in addresses],
        "conditions": [] if ready is None else [{"type": "Ready", "status": ready}],
        "nodeInfo": {"systemUUID": system_uuid},
    }
    spec = {"providerID": provider_id, "taints": [dict(taint) for taint in taints]}
    return NODES.decode(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


def vm(
    name: str = "w1",
    *,
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    printable: str = "Running",
    ready: bool = True,
    created: bool = True,
    firmware: str = "",
) -> VirtualMachine:
    template: dict[str, Any] = {"spec": {"domain": {"firmware": {"uuid": firmware}}}} if firmware else {}
    document = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}" if uid is None else uid,
            "labels": dict(labels or {}),
        },
        "spec": {"template": template},
        "status": {"ready": ready, "created": created, "printableStatus": printable},
    }
    return VIRTUAL_MACHINES.decode(msgspec.json.encode(document))


def instance(
    name: str = "w1",
    *,
    networks: Pairs = (("nic-1", "prod/mgmt"),),
    interfaces: Sequence[Mapping[str, Any]] = (),
    ips: Sequence[str] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
    agent: bool = True,
    migration: Mapping[str, Any] | None = None,
    firmware: str = "",
    uid: str | None = None,
) -> VirtualMachineInstance:
    """Return an instance; ``ips`` are the addresses of its first NIC, an empty network name is the pod network."""
    spec = {
        "networks": [
            {"name": nic, "multus": {"networkName": net}} if net else {"name": nic, "pod": {}} for nic, net in networks
        ],
        "domain": {"firmware": {"uuid": firmware}} if firmware else {},
    }
    entries = [*([] if ips is None else [{"name": networks[0][0], "ipAddresses": list(ips)}]), *interfaces]
    status: dict[str, Any] = {
        "phase": phase,
        "interfaces": entries,
        "conditions": [{"type": "AgentConnected", "status": "True"}] if agent else [],
    }
    if migration is not None:
        status["migrationState"] = dict(migration)
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid or f"instance-{name}",
        "annotations": dict(annotations or {}),
        "labels": dict(labels or {}),
    }
    return INSTANCES.decode(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status}))


class Owners(dict[str, str]):
    """``VirtualIPs`` of a mapping from addresses to owners."""

    listed = True

    def owner(self, address: str) -> str:
        return self.get(address, "")


def store(
    vms: Iterable[VirtualMachine],
    instances: Iterable[VirtualMachineInstance] = (),
    *,
    hostnames: Mapping[str, str] | None = None,
    nodes: Iterable[Node] = (),
    cluster: ClusterIdentity = CLUSTER,
    problem: KubeError | None = None,
) -> ClusterStore:
    """Return a store with these objects; ``problem``: why VMs cannot be listed."""
    lists = {
        NODES.plural: Page(tuple(nodes), ""),
        VIRTUAL_MACHINES.plural: problem or Page(tuple(vms), ""),
        INSTANCES.plural: Page(tuple(instances), ""),
    }
    made = ClusterStore(cluster, lists)
    made.hostnames = hostnames or {}
    return made


def parsed(addresses: str) -> tuple[NodeAddress, ...]:
    """Return addresses from a short form: ``I 10.0.0.1, E 10.0.0.2, H w1``."""
    kinds = {"I": "InternalIP", "E": "ExternalIP", "H": "Hostname", "ID": "InternalDNS", "ED": "ExternalDNS"}
    pairs = (entry.split() for entry in addresses.split(",") if entry.strip())
    return tuple(NodeAddress(type=kinds[kind], address=address) for kind, address in pairs)


def pairs(addresses: str) -> Pairs:
    """Return the short form as pairs for ``node``."""
    return tuple((address.type, address.address) for address in parsed(addresses))


def shown(addresses: Iterable[NodeAddress]) -> str:
    """Return the short form of addresses."""
    kinds = {"InternalIP": "I", "ExternalIP": "E", "Hostname": "H", "InternalDNS": "ID", "ExternalDNS": "ED"}
    return ", ".join(f"{kinds[address.type]} {address.address}" for address in addresses)


def answered(status: int, message: str, reason: str = "", *, about: str = "") -> ApiError:
    """Return the error for a response of an API server about an object."""
    return error_from_answer(Answer(status, reason, message, about))


def vm_not_found(name: str = "w1") -> ApiError:
    return answered(404, f'virtualmachines.kubevirt.io "{name}" not found', "NotFound", about=name)


def patched(target: Node, body: Mapping[str, object]) -> Node:
    """Return the Node after a JSON merge patch, with the resource version counted up."""
    document = merged(msgspec.to_builtins(target), body)
    document["metadata"]["resourceVersion"] = str(int(target.metadata.resource_version) + 1)
    document["spec"].setdefault("taints", [])
    return NODES.decode(msgspec.json.encode(document))
