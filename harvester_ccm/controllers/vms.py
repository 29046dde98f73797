"""The VMs of our Harvester namespace and the Nodes of this cluster, joined, as the caches have them now.

What the controllers of Nodes read, and what wakes them: a change of a Node, or of a VM, its instance or its guest host
name that can matter to that Node. Changes that no decision looks at (versions, heartbeats) wake nobody. The join is
made anew only when it is asked for after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from harvester_ccm.errors import CCMError
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import VirtualMachine, VirtualMachineInstance
from harvester_ccm.plan.node.match import Match, find_vm
from harvester_ccm.plan.node.node_identity import node_identities, vm_identities
from harvester_ccm.plan.node.node_note import NodeNote, harvester_note
from harvester_ccm.plan.node.vms import (
    VM,
    GuestCluster,
    VMIndex,
    claims_of,
    index_vms,
    usable_hostname,
)

IDENTITY: Final = "identity"
"""Index of Nodes by ``node_identities``."""
UID: Final = "uid"
"""Index of VMs by UID."""

NodeWake = Callable[[str], None]
"""Called with the name of a Node that should be looked at."""


def vm_uid(vm: VirtualMachine) -> Iterable[str]:
    """Return the UID, for the index UID."""
    return (vm.metadata.uid,)


NODE_INDEXES: Final[Mapping[str, Callable[[Node], Iterable[str]]]] = {IDENTITY: node_identities}
VM_INDEXES: Final[Mapping[str, Callable[[VirtualMachine], Iterable[str]]]] = {UID: vm_uid}


@dataclass(frozen=True)
class VMCaches:
    """What is joined."""

    nodes: Informer[Node]
    """With NODE_INDEXES."""
    machines: Informer[VirtualMachine]
    """With MACHINE_INDEXES."""
    instances: Informer[VirtualMachineInstance]


@dataclass(frozen=True)
class _Hostname:
    instance_uid: str
    name: str


class VMCache:
    """Nodes with their VMs."""

    def __init__(self, caches: VMCaches, cluster: GuestCluster) -> None:
        self.caches = caches
        self.cluster = cluster
        self.seekers: set[str] = set()
        """Names of new Nodes whose VM is not known by anything that was read so far."""
        self._hostnames: dict[str, _Hostname] = {}
        self._index: VMIndex | None = None
        self._claims_changed = False
        self._on_wake: list[NodeWake] = []
        self._on_machines: list[Callable[[], None]] = []
        self._on_seek: list[Callable[[], None]] = []
        caches.nodes.on_change(self._node_changed)
        caches.machines.on_change(self._machine_changed)
        caches.instances.on_change(self._instance_changed)
        for informer in (caches.machines, caches.instances):
            informer.on_state(self._state_changed)

    def on_wake(self, callback: NodeWake) -> None:
        """Have ``callback`` called with the name of every Node, also a deleted one, that should be looked at."""
        self._on_wake.append(callback)

    def on_machines(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when a VM or its instance changed, or which Node it is."""
        self._on_machines.append(callback)

    def on_seek(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when another Node seeks its VM."""
        self._on_seek.append(callback)

    def index(self) -> VMIndex:
        """Return all VMs, findable by what a Node shows."""
        caches = self.caches
        if self._index is None:
            self._index = index_vms(
                caches.machines.all(),
                caches.instances.all(),
                cluster=self.cluster,
                hostnames={vm: hostname.name for vm, hostname in self._hostnames.items()},
                claims=claims_of(caches.nodes.all()),
                synced=caches.machines.synced and caches.instances.synced,
            )
        elif self._claims_changed:
            self._index = replace(self._index, claims=claims_of(caches.nodes.all()))
        self._claims_changed = False
        return self._index

    def match(self, node: Node) -> Match:
        """Return the Node's VM. While Harvester cannot be read, that is the reason why there is none."""
        match = find_vm(node, self.index())
        if match.vm is None and (problem := self.problem()) is not None:
            return Match(problem=problem)
        return match

    def unread(self) -> frozenset[str]:
        """Return the keys of VMs and instances that are there and could not be decoded."""
        return self.caches.machines.unread | self.caches.instances.unread

    def problem(self) -> NodeNote | None:
        """Return why the VMs cannot be read at the moment, None while they can."""
        caches = self.caches
        for action, error in (
            ("list VirtualMachines", caches.machines.problem),
            ("list VirtualMachineInstances", caches.instances.problem),
        ):
            if isinstance(error, CCMError):
                return harvester_note(error, action=action, namespace=self.cluster.namespace)
        return None

    def nodes_of(self, machine: VM) -> tuple[str, ...]:
        """Return the names of the Nodes that can be this VM's."""
        nodes = self.caches.nodes
        found = {
            node.metadata.name: None
            for identity in sorted(vm_identities(machine))
            for node in nodes.by_index(IDENTITY, identity)
        }
        return tuple(found)

    def seek(self, node_name: str, *, seeking: bool) -> None:
        """Note whether a Node seeks its VM."""
        if not seeking:
            self.seekers.discard(node_name)
        elif node_name not in self.seekers:
            self.seekers.add(node_name)
            for callback in self._on_seek:
                callback()

    def learn(self, instance: VirtualMachineInstance, hostname: str) -> None:
        """Take note of a guest's host name, unless the instance was replaced meanwhile."""
        current = self.caches.instances.get(instance.metadata.key)
        known = self._hostnames.get(instance.metadata.name)
        if current is None or current.metadata.uid != instance.metadata.uid or (known and known.name == hostname):
            return
        before = self._identities(instance)
        self._hostnames[instance.metadata.name] = _Hostname(instance.metadata.uid, hostname)
        self._machines_changed(before | self._identities(instance))

    def wake_all(self) -> None:
        """Have every Node looked at."""
        for node in self.caches.nodes.all():
            self._wake(node.metadata.name)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        before, after = (parse_provider_id(one.spec.provider_id) if one else None for one in (old, new))
        if before != after:
            identities: frozenset[str] = frozenset()
            for uid in {before, after} - {None}:
                for vm in self.caches.machines.by_index(UID, uid or ""):
                    identities |= vm_identities(self._machine(vm))
            self._claims_changed = True
            self._tell(identities)
        for name in {one.metadata.name for one in (old, new) if one is not None}:
            if new is None:
                self.seekers.discard(name)
            self._wake(name)

    def _machine_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        if old is not None and new is not None and _alike(old, new) and old.status == new.status:
            return
        machines = [self._machine(vm) for vm in (old, new) if vm is not None]
        self._machines_changed(frozenset().union(*(vm_identities(machine) for machine in machines)))

    def _instance_changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        if old is not None and new is not None and _alike(old, new) and old.status == new.status:
            return
        identities = frozenset().union(*(self._identities(one) for one in (old, new) if one is not None))
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._hostnames.pop(old.metadata.name, None)
        self._machines_changed(identities)

    def _identities(self, instance: VirtualMachineInstance) -> frozenset[str]:
        """Return the identities of the VM with this instance; none without a VM, because then no Node is its."""
        vm = self.caches.machines.get(instance.metadata.key)
        return vm_identities(replace(self._machine(vm), vmi=instance)) if vm else frozenset()

    def _machine(self, vm: VirtualMachine) -> VM:
        hostname = self._hostnames.get(vm.metadata.name)
        instance = self.caches.instances.get(vm.metadata.key)
        return VM(vm, instance, usable_hostname(hostname.name) if hostname else "")

    def _machines_changed(self, identities: Iterable[str]) -> None:
        self._index = None
        self._tell(identities)

    def _tell(self, identities: Iterable[str]) -> None:
        nodes = self.caches.nodes
        for name in {node.metadata.name for identity in identities for node in nodes.by_index(IDENTITY, identity)}:
            self._wake(name)
        for callback in self._on_machines:
            callback()

    def _state_changed(self) -> None:
        self._index = None
        self.wake_all()
        for callback in self._on_machines:
            callback()

    def _wake(self, name: str) -> None:
        for callback in self._on_wake:
            callback(name)


def _alike(old: VirtualMachine | VirtualMachineInstance, new: VirtualMachine | VirtualMachineInstance) -> bool:
    """Return whether nothing that a decision looks at differs, except perhaps in the status."""
    before, after = old.metadata, new.metadata
    return old.spec == new.spec and (before.uid, before.deleting, before.labels, before.annotations) == (
        after.uid,
        after.deleting,
        after.labels,
        after.annotations,
    )
