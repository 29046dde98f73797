"""Invariants of Nodes, and their final state."""

from typing import Final

from harvester_ccm.model.core import CONFIG_MAPS, NODES
from harvester_ccm.model.harvester import INSTANCES, VIRTUAL_MACHINES
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, SHUTDOWN_TAINT, UNINITIALIZED_TAINT, ZONE
from tests.simulation.machines import key_of
from tests.simulation.world import World
from tests.support.memory_server import Call, Document, MemoryServer, name_of, placed

COLLECTION: Final = name_of(NODES)


def internal(node: Document) -> list[str]:
    return [one["address"] for one in node["status"].get("addresses") or () if one["type"] == "InternalIP"]


def taints(node: Document) -> set[str]:
    return {one["key"] for one in node["spec"].get("taints") or ()}


class NodeOracles:
    """Checks the Nodes of a world."""

    def __init__(self, world: World, server: MemoryServer) -> None:
        """``server`` is that of the guest cluster."""
        self._world = world
        self._server = server
        self._known: dict[str, list[str]] = {}
        server.on_change.append(self._changed)
        server.on_arrived.append(self._arrived)
        world.on_restore.append(self._restored)

    def _changed(self, collection: str, kind: str, node: Document) -> None:
        """No Node is without its InternalIP once it has one, or ready for pods before."""
        if collection != COLLECTION:
            return
        name, found = node["metadata"]["name"], internal(node)
        before = self._known.pop(name, [])
        if kind == "DELETED":
            return
        self._known[name] = found
        if before and found != before:
            self._world.wrong.append(f"Node {name} had InternalIP {before} and has {found}")
        if not found and UNINITIALIZED_TAINT not in taints(node):
            self._world.wrong.append(f"Node {name} is released without an InternalIP")

    def _restored(self, side: str) -> None:
        if side == "guest":
            self._known = {name: internal(node) for name, node in self._server.of(NODES).items()}

    def _arrived(self, call: Call) -> None:
        """No Node is deleted whose VM is there, or was created again while the request was on its way."""
        if call.verb == "DELETE" and "/nodes/" in call.path:
            name = placed(call.path).name
            if self._world.machines.existed(name, call.at):
                self._world.wrong.append(f"{call.by} deletes Node {name}, whose VM is there")

    def differences(self) -> list[str]:
        """Return the differences from the final state."""
        found = [] if self._are_too_many_missing() else [f"Node {name} has no VM" for name in self._missing()]
        # A write that is forbidden is tried again after ten minutes, which is no write at rest.
        mapped = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}" in self._server.of(CONFIG_MAPS)
        if not mapped and any(map(self._world.machines.runs, self._server.of(NODES))):
            found.append("the network mapping is not written")
        for name, node in self._server.of(NODES).items():
            key = key_of(name)
            instance = self._world.harvester.of(INSTANCES).get(key)
            if not self._world.machines.exists(name):
                continue
            if instance is None:
                # The power state of a VM that was recreated under its name, with another UID, is not followed.
                if self._is_of_its_vm(name, node) and not taints(node) & {UNINITIALIZED_TAINT, SHUTDOWN_TAINT}:
                    found.append(f"Node {name} is not marked as shut down")
                continue
            if taints(node) & {UNINITIALIZED_TAINT, SHUTDOWN_TAINT}:
                found.append(f"Node {name} still has {taints(node)}")
            if internal(node) != [self._world.machines.node_addresses[name]]:
                found.append(f"Node {name} has InternalIP {internal(node)}")
            zone = (instance["metadata"].get("annotations") or {}).get(ZONE)
            if (node["metadata"].get("labels") or {}).get(ZONE) != zone:
                found.append(f"Node {name} is not labelled with zone {zone}")
            # The provider ID of a VM that was recreated stays: it is immutable.
            if not node["spec"].get("providerID"):
                found.append(f"Node {name} has no provider ID")
        return found

    def _missing(self) -> list[str]:
        """Return the names of initialized Nodes whose VM does not exist."""
        nodes = self._server.of(NODES).items()
        return [
            name
            for name, node in nodes
            if UNINITIALIZED_TAINT not in taints(node) and not self._world.machines.exists(name)
        ]

    def _is_of_its_vm(self, name: str, node: Document) -> bool:
        """Return whether the provider ID is that of the VM with the name of the Node, not of an earlier one."""
        uid = self._world.harvester.of(VIRTUAL_MACHINES)[key_of(name)]["metadata"]["uid"]
        return bool(node["spec"].get("providerID") == f"harvester://{uid}")

    def _are_too_many_missing(self) -> bool:
        """Return whether fewer Nodes run on their VM than have none, for example because Harvester was restored.

        The program deletes none of them then.
        """
        nodes = self._server.of(NODES).items()
        running = [name for name, node in nodes if self._world.machines.runs(name) and self._is_of_its_vm(name, node)]
        is_blocked = len(self._missing()) > len(running)
        self._world.met["deletion of Nodes blocked"] |= is_blocked
        return is_blocked
