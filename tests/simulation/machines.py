"""The VMs of the guest cluster and the kubelets in them."""

from typing import Final

from devenv.harvester.machines import (
    Machine,
    conditions_of,
    instance_document,
    interfaces_of,
    machine_document,
)
from harvester_ccm.model.core import NODES
from harvester_ccm.model.harvester import INSTANCES, VIRTUAL_MACHINES
from harvester_ccm.names import UNINITIALIZED_TAINT, ZONE
from tests.simulation.loop import SeededLoop
from tests.support.builders import CLUSTER
from tests.support.memory_server import Document, MemoryServer

MACHINES: Final = ("w1", "w2", "w3")
UNREADY_SECONDS: Final = 8.0
"""After which a Node whose VM has stopped counts as not ready."""


def key_of(name: str) -> str:
    return f"{CLUSTER.namespace}/{name}"


class Machines:
    """Changes of VMs."""

    def __init__(self, guest: MemoryServer, harvester: MemoryServer, loop: SeededLoop) -> None:
        self._guest = guest
        self._harvester = harvester
        self._loop = loop
        self._machines = {name: Machine(name, namespace=CLUSTER.namespace, zone="zone-1") for name in MACHINES}
        self.node_addresses = {name: f"10.9.0.{number}" for number, name in enumerate(MACHINES, 1)}
        """The address of each VM."""
        self._made_at: dict[str, float] = {}
        """Loop time when each VM was made last."""

    def boot(self, name: str, *, reports: bool = True) -> None:
        """Make a VM, start it, and have its kubelet register a Node."""
        if key_of(name) not in self._harvester.of(VIRTUAL_MACHINES):
            self._harvester.put(VIRTUAL_MACHINES, machine_document(self._machines[name]))
            self._made_at[name] = self._loop.time()
        self.start(name, reports=reports)
        if name not in self._guest.of(NODES):
            self._guest.create(NODES, node_document(self._machines[name]))

    def start(self, name: str, *, reports: bool = True) -> None:
        key, machine = key_of(name), self._machines[name]
        if key not in self._harvester.of(VIRTUAL_MACHINES) or key in self._harvester.of(INSTANCES):
            return
        self._harvester.put(INSTANCES, instance_document(machine, *([self.node_addresses[name]] if reports else ())))
        self._say(name, {"created": True, "ready": True, "printableStatus": "Running"})
        self.say_ready(name, ready=True)

    def halt(self, name: str) -> None:
        """Switch a VM off."""
        key = key_of(name)
        if key in self._harvester.of(INSTANCES):
            self._harvester.remove(INSTANCES, key)
            self._say(name, {"created": None, "ready": None, "printableStatus": "Stopped"})
            self._loop.call_later(UNREADY_SECONDS, self._look_at_kubelet, name)

    def destroy(self, name: str) -> None:
        """Delete a VM."""
        key = key_of(name)
        for collection in (INSTANCES, VIRTUAL_MACHINES):
            if key in self._harvester.of(collection):
                self._harvester.remove(collection, key)
        self._loop.call_later(UNREADY_SECONDS, self._look_at_kubelet, name)

    def recreate(self, name: str) -> bool:
        """Restore a VM from a backup, with another UID; return whether there was one."""
        key, exists = key_of(name), self.exists(name)
        if exists:
            for collection in (INSTANCES, VIRTUAL_MACHINES):
                if key in self._harvester.of(collection):
                    self._harvester.remove(collection, key)
            self.boot(name)
        return exists

    def report(self, name: str, *, zone: str | None = None, agent: bool = True) -> None:
        """Have KubeVirt report of a VM that runs: where it is, and what its guest agent says."""
        key, machine = key_of(name), self._machines[name]
        if key not in self._harvester.of(INSTANCES):
            return
        addresses = (self.node_addresses[name],) if agent else ()
        status = {"interfaces": interfaces_of(machine, *addresses), "conditions": conditions_of(agent=agent)}
        moved = {"metadata": {"annotations": {ZONE: zone}}} if zone else {}
        self._harvester.change(INSTANCES, key, {**moved, "status": status})

    def say_ready(self, name: str, *, ready: bool) -> None:
        if name in self._guest.of(NODES):
            conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
            self._guest.change(NODES, name, {"status": {"conditions": conditions}})

    def rejoin(self) -> None:
        """Have the kubelets of all VMs notice that an API server has gone back to older data."""
        for name in MACHINES:
            self._loop.call_later(UNREADY_SECONDS, self._join_again, name)

    def _join_again(self, name: str) -> None:
        if self.runs(name):
            self.boot(name)
        self._look_at_kubelet(name)

    def _look_at_kubelet(self, name: str) -> None:
        self.say_ready(name, ready=key_of(name) in self._harvester.of(INSTANCES))

    def _say(self, name: str, status: Document) -> None:
        self._harvester.change(VIRTUAL_MACHINES, key_of(name), {"status": status})

    def exists(self, name: str) -> bool:
        """Return whether there is such a VM."""
        return key_of(name) in self._harvester.of(VIRTUAL_MACHINES)

    def existed(self, name: str, at: float) -> bool:
        """Return whether there is such a VM, which existed at this loop time."""
        return self.exists(name) and self._made_at[name] <= at

    def runs(self, name: str) -> bool:
        return key_of(name) in self._harvester.of(INSTANCES)


def node_document(machine: Machine) -> Document:
    """Return the Node that a kubelet registers which waits for a cloud provider."""
    return {
        "metadata": {"name": machine.name, "labels": {}, "annotations": {}},
        "spec": {"taints": [{"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": machine.name}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"systemUUID": machine.system_uuid},
        },
    }
