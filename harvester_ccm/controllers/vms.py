"""The caches of Nodes and VMs, and which Nodes a change enqueues.

A change of a Node enqueues that Node. A change of a VM, its VMI or the host name of its guest enqueues the Nodes that
have an identity in common with it. Changes that no plan reads (versions, heartbeats) enqueue nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from msgspec import Struct

from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import VirtualMachine, VirtualMachineInstance
from harvester_ccm.model.matches import NodeMatches
from harvester_ccm.plan.node.device_mapping import DeviceReport, device_report
from harvester_ccm.plan.node.match import node_matches
from harvester_ccm.plan.node.vms import (
    IDENTITY,
    identity,
    vm_identities,
    vmi_identities,
    vms_of,
)

HOSTNAME_SECONDS = 60.0
"""Time for which the host name of a guest, or the failure to get it, is cached."""

NodeWake = Callable[[str], None]
"""Called with the name of a Node that must be reconciled."""


class GuestHostname(Struct, frozen=True):
    """Result of a query of a guest agent."""

    vmi_uid: str
    hostname: str
    """Empty if the agent did not return one."""
    at: float
    """Loop time of the response."""


class VMCache:
    """Nodes with their VMs: the ``NodeStore`` of the controllers."""

    def __init__(
        self,
        nodes: Informer[Node],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        cluster: ClusterIdentity,
    ) -> None:
        """The informers have NODE_INDEXES, VM_INDEXES and VMI_INDEXES."""
        self.nodes = nodes
        self.vms = vms
        self.vmis = vmis
        self.cluster = cluster
        self._guests: dict[str, GuestHostname] = {}
        """Results of the last queries by VM name."""
        self._hostnames: dict[str, str] = {}
        self._hostnames_expire = 0.0
        """Loop time at which ``_hostnames`` must be computed again."""
        self._on_wake: list[NodeWake] = []
        self._on_networks: list[Callable[[], None]] = []
        nodes.on_change(self._node_changed)
        vms.on_change(self._vm_changed)
        vmis.on_change(self._vmi_changed)
        vms.on_state(self._state_changed)
        vmis.on_state(self._state_changed)

    @property
    def hostnames(self) -> Mapping[str, str]:
        """VM name to the host name of its guest, as long as it is cached."""
        # Every join of a VM reads it, so it is not computed each time.
        if loop_time() >= self._hostnames_expire:
            self._guests = {name: guest for name, guest in self._guests.items() if self.is_cached(name)}
            self._hostnames = {name: guest.hostname for name, guest in self._guests.items() if guest.hostname}
            oldest = min((guest.at for guest in self._guests.values()), default=float("inf"))
            self._hostnames_expire = oldest + HOSTNAME_SECONDS
        return self._hostnames

    def is_cached(self, vm_name: str) -> bool:
        """Return whether the result for a VM is cached: for a minute, unless the VM is restarted."""
        vmi, guest = self.vmis.get(f"{self.cluster.namespace}/{vm_name}"), self._guests.get(vm_name)
        if vmi is None or guest is None or vmi.metadata.uid != guest.vmi_uid:
            return False
        return loop_time() - guest.at < HOSTNAME_SECONDS

    def cache_hostnames(self, guests: Mapping[str, GuestHostname]) -> bool:
        """Cache results by VM name; return whether there is a new host name."""
        before = set(self.hostnames.items())
        self._guests |= guests
        self._hostnames_expire = 0.0
        return not before.issuperset(self.hostnames.items())

    def on_wake(self, callback: NodeWake) -> None:
        """Call ``callback`` with the name of every Node, also a deleted one, that must be reconciled."""
        self._on_wake.append(callback)

    def on_networks(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the networks or devices of this cluster's VMs change."""
        self._on_networks.append(callback)

    def matches(self) -> NodeMatches:
        """Return the VMs of all Nodes."""
        return node_matches(self)

    def nodes_of(self, vm: VirtualMachine, *vmis: VirtualMachineInstance | None) -> set[str]:
        """Return the names of the Nodes that can be this VM."""
        values = chain(vm_identities(vm), *(vmi_identities(vmi) for vmi in vmis if vmi is not None))
        guest = identity("host", self.hostnames.get(vm.metadata.name, "").lower().partition(".")[0])
        return {node.metadata.name for value in (*values, guest) for node in self.nodes.by_index(IDENTITY, value)}

    def wake_all(self) -> None:
        """Enqueue every Node."""
        self._wake(node.metadata.name for node in self.nodes.all())

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if _is_equal(old, new):
            return
        names = {one.metadata.name for one in (old, new) if one is not None}
        before, after = (parse_provider_id(one.spec.provider_id) if one else None for one in (old, new))
        if before != after:
            # Another Node can be waiting for the VM.
            for vm in (vm for uid in (before, after) if uid for vm in vms_of(self, identity("uid", uid))):
                names |= self.nodes_of(vm.object, vm.vmi)
            self._networks_changed()
        self._wake(names)

    def _vm_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        if _is_equal(old, new):
            return
        vms = [one for one in (old, new) if one is not None]
        vmi = self.vmis.get(vms[0].metadata.key)
        self._wake(set().union(*(self.nodes_of(vm, vmi) for vm in vms)))
        if vmi is not None and (old is None or new is None or old.metadata.labels != new.metadata.labels):
            self._networks_changed()

    def _vmi_changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        vm = self.vms.get(next(one.metadata.key for one in (old, new) if one is not None))
        self._hostnames_expire = 0.0
        # A VMI without a VM is no Node.
        if vm is None or _is_equal(old, new):
            return
        self._wake(self.nodes_of(vm, old, new))
        if _report(old) != _report(new):
            self._networks_changed()

    def _networks_changed(self) -> None:
        for callback in self._on_networks:
            callback()

    def _state_changed(self) -> None:
        self.wake_all()
        self._networks_changed()

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for callback in self._on_wake:
                callback(name)


def _report(vmi: VirtualMachineInstance | None) -> DeviceReport | None:
    return None if vmi is None or vmi.metadata.deleting else device_report(vmi)


def _is_equal(
    old: Node | VirtualMachine | VirtualMachineInstance | None,
    new: Node | VirtualMachine | VirtualMachineInstance | None,
) -> bool:
    """Return whether everything that a plan reads is equal."""
    if old is None or new is None:
        return False
    before, after = (
        (one.spec, one.status, meta.uid, meta.deleting, meta.labels, meta.annotations)
        for one, meta in ((old, old.metadata), (new, new.metadata))
    )
    return before == after
