"""The VMs of our Harvester namespace and the Nodes of this cluster, joined, as the caches have them now.

What the controllers of Nodes read, and what wakes them: a change of a Node, or of a VM, its VMI or its guest host
name that can matter to that Node. Changes that no decision looks at (versions, heartbeats) wake nobody. The join is
made anew only when it is asked for after a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import VirtualMachine, VirtualMachineInstance
from harvester_ccm.model.matches import NodeMatches
from harvester_ccm.plan.node.device_mapping import DeviceReport, device_report
from harvester_ccm.plan.node.match import node_matches
from harvester_ccm.plan.node.vms import (
    VM,
    VMIndex,
    is_indexed,
    is_own,
    join,
    join_one,
    node_identities,
    uid_identity,
    vm_identities,
    with_claims,
    with_vms,
)

IDENTITY: Final = "identity"
"""Index of Nodes by ``node_identities``."""
UID: Final = "uid"
"""Index of VMs by UID."""

NodeWake = Callable[[str], None]
"""Called with the name of a Node that should be looked at."""


NODE_INDEXES: Final[Mapping[str, Callable[[Node], Iterable[str]]]] = {IDENTITY: node_identities}
VM_INDEXES: Final[Mapping[str, Callable[[VirtualMachine], Iterable[str]]]] = {UID: lambda vm: (vm.metadata.uid,)}


class VMCache:
    """Nodes with their VMs: the ``NodeStore`` of the running program."""

    def __init__(
        self,
        nodes: Informer[Node],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        cluster: ClusterIdentity,
    ) -> None:
        """``nodes`` has NODE_INDEXES, ``vms`` has VM_INDEXES."""
        self.nodes = nodes
        self.vms = vms
        self.vmis = vmis
        self.cluster = cluster
        self._hostnames: dict[str, str] = {}
        """VM name to what the guest agent of its present VMI said."""
        self._index: VMIndex | None = None
        self._changed: set[str] = set()
        """Names of the VMs that the index does not have as they are now."""
        self._claimed: set[str] = set()
        """UIDs of the VMs of which the index does not know the Nodes as they are now."""
        self._on_wake: list[NodeWake] = []
        self._on_networks: list[Callable[[], None]] = []
        nodes.on_change(self._node_changed)
        vms.on_change(self._vm_changed)
        vmis.on_change(self._vmi_changed)
        vms.on_state(self._state_changed)
        vmis.on_state(self._state_changed)

    def on_wake(self, callback: NodeWake) -> None:
        """Have ``callback`` called with the name of every Node, also a deleted one, that should be looked at."""
        self._on_wake.append(callback)

    def on_networks(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when what the VMs of this cluster say of their networks has changed."""
        self._on_networks.append(callback)

    def index(self) -> VMIndex:
        """Return all VMs, findable by what a Node shows."""
        index = self._index
        if index is None:
            index = join(self, self._hostnames)
        else:
            if self._changed:
                index = with_vms(index, {name: self._present(name) for name in self._changed})
            if self._claimed:
                index = with_claims(index, {uid: self._claimants(uid) for uid in self._claimed})
        self._index = index
        self._changed.clear()
        self._claimed.clear()
        return index

    def matches(self) -> NodeMatches:
        """Return which VM each Node is."""
        return node_matches(self)

    def nodes_of(self, vm: VM) -> tuple[str, ...]:
        """Return the names of the Nodes that can be this VM's."""
        found = {
            node.metadata.name: None
            for identity in sorted(vm_identities(vm))
            for node in self.nodes.by_index(IDENTITY, identity)
        }
        return tuple(found)

    def set_hostname(self, vmi: VirtualMachineInstance, hostname: str) -> None:
        """Take note of a guest's host name, unless the VMI was replaced meanwhile."""
        name, current = vmi.metadata.name, self.vmis.get(vmi.metadata.key)
        if current is None or current.metadata.uid != vmi.metadata.uid or self._hostnames.get(name) == hostname:
            return
        before = self._present(name)
        self._hostnames[name] = hostname
        self._vm_turned(before, self._present(name))

    def wake_all(self) -> None:
        """Have every Node looked at."""
        for node in self.nodes.all():
            self._wake(node.metadata.name)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if _alike(old, new):
            return
        before, after = (parse_provider_id(one.spec.provider_id) if one else None for one in (old, new))
        if before != after:
            uids = [uid for uid in (before, after) if uid is not None]
            self._claimed.update(uids)
            vms = [vm for uid in uids for vm in self.vms.by_index(UID, uid)]
            present = (self._joined(vm, self.vmis.get(vm.metadata.key)) for vm in vms)
            self._wake_nodes(frozenset().union(*map(vm_identities, present)))
            self._tell_of_networks()
        self._wake(next(one.metadata.name for one in (new, old) if one is not None))

    def _vm_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        if not _alike(old, new):
            key = next(one.metadata.key for one in (new, old) if one is not None)
            vmi = self.vmis.get(key)
            self._vm_turned(*(self._joined(vm, vmi) if vm else None for vm in (old, new)))

    def _vmi_changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        if _alike(old, new):
            return
        # Without a VM no Node is its.
        key = next(one.metadata.key for one in (new, old) if one is not None)
        vm = self.vms.get(key)
        before = self._joined(vm, old) if vm else None
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._hostnames.pop(old.metadata.name, None)
        self._vm_turned(before, self._joined(vm, new) if vm else None)

    def _present(self, name: str) -> VM | None:
        key = f"{self.cluster.namespace}/{name}"
        vm = self.vms.get(key)
        return self._joined(vm, self.vmis.get(key)) if vm and is_indexed(vm, self.cluster) else None

    def _joined(self, vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> VM:
        return join_one(vm, vmi, self._hostnames.get(vm.metadata.name, ""), cluster=self.cluster)

    def _vm_turned(self, before: VM | None, after: VM | None) -> None:
        """Have the Nodes looked at that can be this VM's, as it was or is; tell what it says of its networks anew."""
        self._changed |= {vm.name for vm in (before, after) if vm is not None}
        self._wake_nodes(frozenset().union(*(vm_identities(vm) for vm in (before, after) if vm is not None)))
        if self._report(before) != self._report(after):
            self._tell_of_networks()

    def _report(self, vm: VM | None) -> DeviceReport | None:
        if vm is None or vm.vmi is None or vm.vmi.metadata.deleting:
            return None
        claimed = bool(self._claimants(vm.uid))
        return device_report(vm.vmi) if is_own(vm, claimed=claimed) else None

    def _claimants(self, uid: str) -> tuple[Node, ...]:
        """Return the Nodes with the provider ID of this VM."""
        return self.nodes.by_index(IDENTITY, uid_identity(uid))

    def _wake_nodes(self, identities: Iterable[str]) -> None:
        """Have the Nodes with these identities looked at."""
        nodes = self.nodes
        for name in {node.metadata.name for identity in identities for node in nodes.by_index(IDENTITY, identity)}:
            self._wake(name)

    def _tell_of_networks(self) -> None:
        for callback in self._on_networks:
            callback()

    def _state_changed(self) -> None:
        self._index = None
        self.wake_all()
        self._tell_of_networks()

    def _wake(self, name: str) -> None:
        for callback in self._on_wake:
            callback(name)


def _alike(
    old: Node | VirtualMachine | VirtualMachineInstance | None,
    new: Node | VirtualMachine | VirtualMachineInstance | None,
) -> bool:
    """Return whether nothing that a decision looks at differs."""
    if old is None or new is None:
        return False
    before, after = (
        (one.spec, one.status, meta.uid, meta.deleting, meta.labels, meta.annotations)
        for one, meta in ((old, old.metadata), (new, new.metadata))
    )
    return before == after
