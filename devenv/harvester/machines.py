"""VirtualMachine objects like those of Rancher's node driver and KubeVirt, for tests of Nodes.

No VM is started. A test causes each change: start, addresses of the guest agent, stop, deletion.
"""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from devenv.harvester.admission import CREATOR_LABEL, GUEST_CLUSTER_LABEL, NODE_DRIVER
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound

VM_NAME_LABEL: Final = "harvesterhci.io/vmName"
UUIDS_OF_NAMES: Final = uuid.UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"


class Kind(Enum):
    """Who made a VM, and what it has to tell about its guest cluster."""

    RANCHER = "Rancher's node driver since 2.11: all labels, on the VM, its template and its VMI"
    OLDER_RANCHER = "Rancher's node driver before 2.11: all labels but that of the guest cluster"
    PLAIN = "somebody else: no label"
    LABELLED = "somebody else: the label of the guest cluster on the template, from where the VMI gets it"


@dataclass(frozen=True)
class Machine:
    """A VM for a node of a guest cluster."""

    name: str
    namespace: str = "default"
    cluster: str = "demo"
    networks: tuple[str, ...] = ("default/vlan1",)
    """One NIC each, ``namespace/name`` of a NetworkAttachmentDefinition; empty text is the pod network."""
    host: str = "harvester-1"
    zone: str = ""
    region: str = ""
    uuid_from_name: bool = False
    """Whether the firmware UUID is derived from the name, as in KubeVirt before 1.6."""
    kind: Kind = Kind.RANCHER

    @classmethod
    def of_kind(cls, kind: Kind, number: int, cluster: str = "demo", **more: Any) -> "Machine":
        """Return a VM with the name that such a VM has: Rancher begins it with the name of the cluster."""
        is_rancher = kind in {Kind.RANCHER, Kind.OLDER_RANCHER}
        name = f"{cluster}-pool-{number}" if is_rancher else f"node-{number}"
        return cls(name, cluster=cluster, kind=kind, **more)

    @property
    def system_uuid(self) -> str:
        """The firmware UUID, which is the system UUID of the Node."""
        if self.uuid_from_name:
            return str(uuid.uuid5(UUIDS_OF_NAMES, self.name))
        digest = hashlib.md5(f"{self.namespace}/{self.name}".encode(), usedforsecurity=False).hexdigest()
        return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the VM itself."""
        return {} if self.kind is Kind.LABELLED else self.instance_labels

    @property
    def instance_labels(self) -> dict[str, str]:
        """The labels of its template and its VMI."""
        cluster = {GUEST_CLUSTER_LABEL: self.cluster}
        driver = {CREATOR_LABEL: NODE_DRIVER, VM_NAME_LABEL: self.name}
        match self.kind:
            case Kind.RANCHER:
                return driver | cluster
            case Kind.OLDER_RANCHER:
                return driver
            case Kind.LABELLED:
                return cluster
            case Kind.PLAIN:
                return {}


def machine_document(machine: Machine) -> Document:
    """Return the VM before its start."""
    return {
        "apiVersion": MACHINES.api_version,
        "kind": MACHINES.kind,
        "metadata": {"name": machine.name, "namespace": machine.namespace, "labels": machine.labels},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {"metadata": {"labels": machine.instance_labels}, "spec": _instance_spec(machine)},
        },
        "status": {"printableStatus": "Starting"},
    }


def instance_document(machine: Machine, *addresses: str) -> Document:
    """Return the running VMI. ``addresses`` are those of the guest agent, one per NIC; none means no agent."""
    zone = {ZONE: machine.zone} if machine.zone else {}
    region = {REGION: machine.region} if machine.region else {}
    return {
        "apiVersion": INSTANCES.api_version,
        "kind": INSTANCES.kind,
        "metadata": {
            "name": machine.name,
            "namespace": machine.namespace,
            "labels": {**machine.instance_labels, "kubevirt.io/nodeName": machine.host},
            "annotations": {**zone, **region},
        },
        "spec": _instance_spec(machine),
        "status": {
            "phase": "Running",
            "nodeName": machine.host,
            "interfaces": interfaces_of(machine, *addresses),
            "conditions": conditions_of(agent=bool(addresses)),
        },
    }


def interfaces_of(machine: Machine, *addresses: str) -> list[Document]:
    """Return ``status.interfaces``: every NIC, with the addresses of the guest agent."""
    found: list[Document] = []
    for index in range(len(machine.networks)):
        nic: Document = {
            "name": _nic(index),
            "mac": f"52:54:00:{machine.system_uuid[:2]}:{machine.system_uuid[2:4]}:{index:02x}",
            "infoSource": "domain, guest-agent" if addresses else "domain",
        }
        if index < len(addresses):
            nic |= {
                "interfaceName": f"enp{index + 1}s0",
                "ipAddress": addresses[index],
                "ipAddresses": [addresses[index]],
            }
        found.append(nic)
    return found


def interface_lists(machine: Machine, *of_nics: Sequence[str]) -> list[Document]:
    """Return ``status.interfaces`` with several addresses for each NIC, as a guest agent reports them."""
    return [
        {**nic, "ipAddress": next(iter(addresses), ""), "ipAddresses": list(addresses)}
        for nic, addresses in zip(interfaces_of(machine), of_nics, strict=True)
    ]


def conditions_of(*, agent: bool) -> list[Document]:
    """Return ``status.conditions`` of a running VMI, with or without a connected guest agent."""
    kinds = ["Ready", *(["AgentConnected"] if agent else []), "LiveMigratable"]
    return [{"type": kind, "status": "True"} for kind in kinds]


class Machines:
    """Changes of the VMs of one Harvester. Every method raises NotFound if the VM does not exist."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def create(self, machine: Machine, *addresses: str) -> Document:
        """Create a VM and start it; return the VM as stored. Its UID is the node's provider ID."""
        stored = await self._client.create(MACHINES, machine_document(machine), namespace=machine.namespace)
        await self.start(machine, *addresses)
        return stored

    async def start(self, machine: Machine, *addresses: str) -> None:
        """Create the VMI and set the status of the VM to running."""
        await self._client.create(INSTANCES, instance_document(machine, *addresses), namespace=machine.namespace)
        status = {"created": True, "ready": True, "printableStatus": "Running"}
        await self._change_machine(machine, {"spec": {"runStrategy": "RerunOnFailure"}, "status": status})

    async def report(self, machine: Machine, *addresses: str) -> None:
        """Change the addresses of the guest agent; none means that the agent is disconnected."""
        status = {"interfaces": interfaces_of(machine, *addresses), "conditions": conditions_of(agent=bool(addresses))}
        await self._client.merge_patch(INSTANCES, machine.name, {"status": status}, namespace=machine.namespace)

    async def stop(self, machine: Machine) -> None:
        """Stop the VM: the VMI is deleted, the VM stays."""
        status = {"created": None, "ready": None, "printableStatus": "Stopped"}
        await self._change_machine(machine, {"spec": {"runStrategy": "Halted"}, "status": status})
        await self._client.delete(INSTANCES, machine.name, namespace=machine.namespace)

    async def delete(self, machine: Machine) -> None:
        """Delete the VMI, if it exists, and the VM."""
        for resource in (INSTANCES, MACHINES):
            try:
                await self._client.delete(resource, machine.name, namespace=machine.namespace)
            except NotFound:
                if resource is MACHINES:
                    raise

    async def _change_machine(self, machine: Machine, change: Document) -> None:
        await self._client.merge_patch(MACHINES, machine.name, change, namespace=machine.namespace)


def _instance_spec(machine: Machine) -> Document:
    networks: list[Document] = []
    for index, network in enumerate(machine.networks):
        source = {"multus": {"networkName": network}} if network else {"pod": {}}
        networks.append({"name": _nic(index), **source})
    # Harvester attaches to its management network, the pod network, with masquerade.
    nics = [{"name": network["name"], "masquerade" if "pod" in network else "bridge": {}} for network in networks]
    return {
        "domain": {"devices": {"interfaces": nics}, "firmware": {"uuid": machine.system_uuid}},
        "networks": networks,
    }


def _nic(index: int) -> str:
    return "default" if index == 0 else f"nic-{index}"
