"""A guest cluster of VMs: VMs boot, kubelets register, and a watch shows the Nodes."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from devenv.background import Background
from devenv.faults import Record
from devenv.harvester.machines import Machine, Machines, machine_document
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import DOCUMENTS, Kubelet, Kubelets
from devenv.stage import VM_NAMESPACE, Stage, until
from devenv.watch import Document, Mirror
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.model.core import CONFIG_MAPS
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, UNINITIALIZED_TAINT

SYNC_SECONDS = 10.0


class Cluster:
    """VMs and kubelets."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.machines = Machines(stage.host)
        self.kubelets = Kubelets(stage.guest)
        self.nodes = Mirror(stage.guest, DOCUMENTS)
        self.instances = Mirror(stage.host, INSTANCES, namespace=VM_NAMESPACE)
        self._watching = Background("cluster", [self.nodes.run, self.instances.run])

    async def open(self) -> None:
        await self._watching.start([self.nodes.wait_synced, self.instances.wait_synced], within=SYNC_SECONDS)

    async def close(self) -> None:
        """Remove all Nodes and VMs, and the network mapping."""
        await self._watching.stop()
        for collection in (INSTANCES, MACHINES):
            await self.stage.host.request("DELETE", collection.path(VM_NAMESPACE))
        await self.stage.guest.request("DELETE", DOCUMENTS.path())
        with suppress(NotFound):
            await self.stage.guest.delete(CONFIG_MAPS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)

    async def define(self, vm: Machine) -> str:
        """Create a VM that does not run yet; return its UID."""
        stored = await self.stage.host.create(MACHINES, machine_document(vm), namespace=vm.namespace)
        return str(stored["metadata"]["uid"])

    async def boot(self, vm: Machine, *addresses: str) -> str:
        return str((await self.machines.create(vm, *addresses))["metadata"]["uid"])

    async def join(self, *vms: Machine, ready: str = "True") -> None:
        """Register a Node for each VM, under its name and with its UUID."""
        kubelets = [Kubelet(vm.name, system_uuid=vm.system_uuid) for vm in vms]
        await asyncio.gather(*(self.kubelets.register(kubelet, ready=ready) for kubelet in kubelets))

    async def initialised(self, *names: str, within: float = 60) -> None:
        """Return once none of the Nodes has the taint any more."""

        async def all_done() -> bool:
            return all(self.node(name) and not has_taint(self.node(name)) for name in names)

        await until(all_done, within=within, what=f"initialisation of {', '.join(names)}")

    async def shows(self, name: str, *addresses: str, within: float = 60) -> None:
        """Return once the Node has exactly these addresses, as ``type address``, in any order."""

        async def shown() -> bool:
            return sorted(addresses_of(self.node(name))) == sorted(addresses)

        await until(
            shown, within=within, what=f"addresses {addresses} of {name}, it has {addresses_of(self.node(name))}"
        )

    def node(self, name: str) -> Document:
        """Return the cached Node; empty if it does not exist."""
        return self.nodes.get(name) or {}

    async def told(self, name: str) -> list[str]:
        """Return the reasons of the Events on a Node, oldest first."""
        return [str(event["reason"]) for event in await self.stage.events("Node", name)]

    async def hears(self, name: str, reason: str, *, within: float = 60) -> str:
        """Return the message of the newest Event with this reason on a Node, once there is one."""

        async def heard() -> list[str]:
            return [str(e["message"]) for e in await self.stage.events("Node", name) if e["reason"] == reason]

        return (await until(heard, within=within, what=f"Event {reason} on Node {name}"))[-1]

    async def mapping(self) -> str | None:
        """Return the networks and devices in the ConfigMap, None if it does not exist."""
        found = await self.stage.guest_object(CONFIG_MAPS.path(NAD_MAPPING_NAMESPACE, NAD_MAPPING_NAME))
        return None if found is None else (found.get("data") or {}).get(NAD_MAPPING_KEY)


def has_taint(node: Document) -> bool:
    return UNINITIALIZED_TAINT in taints_of(node)


def taints_of(node: Document) -> list[str]:
    return [taint["key"] for taint in node.get("spec", {}).get("taints") or ()]


def addresses_of(node: Document) -> list[str]:
    return [f"{entry['type']} {entry['address']}" for entry in node.get("status", {}).get("addresses") or ()]


def label_of(node: Document, key: str) -> str | None:
    value = node.get("metadata", {}).get("labels", {}).get(key)
    return None if value is None else str(value)


def single_reads(requests: Iterable[Record]) -> list[str]:
    """Return the paths of reads that are neither lists nor watches."""
    collections = ("virtualmachines", "virtualmachineinstances", "loadbalancers")
    return [one.path for one in requests if one.method == "GET" and not one.path.endswith(collections)]
