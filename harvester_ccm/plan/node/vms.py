"""The VMs of our Harvester namespace, and how one is known to belong to this cluster.

Lists are joined here once (VM, VMI, guest host name, owner) so that looking a Node's VM up is cheap and no odd VM can
stop it. Where the lists come from is a ``NodeStore``: the running program's caches, or what a command read once. Which
VM is a Node's is decided in ``match``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from operator import itemgetter
from typing import Final, Protocol
from uuid import UUID, uuid5

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import InstanceSpec, VirtualMachine, VirtualMachineInstance
from harvester_ccm.model.lister import Lister
from harvester_ccm.model.meta import DNS_SUBDOMAIN, OBJECT_NAME
from harvester_ccm.names import GO_MACHINE_RECORD, MACHINE_RECORD, NODE_DRIVER, VM_CLUSTER, VM_CREATOR

_UUIDS_OF_NAMES: Final = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
"""Space in which KubeVirt before 1.4 makes firmware UUIDs from the names of VMs."""
_UNSET_HOSTNAMES: Final = frozenset({"localhost", "localhost.localdomain", "localhost.localdomain6"})
"""What a guest calls itself before it got a name; many VMs do at the same time."""


class Membership(IntEnum):
    """Whose VM it is, by the label ``guestcluster.harvesterhci.io/name``; the lower, the surer it is ours."""

    OWN = 0
    """The label names this cluster."""
    UNMARKED = 1
    """No label, or this cluster has no name of its own to compare with."""
    FOREIGN = 2
    """The label names another cluster."""


class VM(Struct, frozen=True):
    """A VM with what belongs to it."""

    object: VirtualMachine
    vmi: VirtualMachineInstance | None = None
    """Present only while the VM runs."""
    hostname: str = ""
    """What the guest agent says, in lower case; empty while it is unknown or no usable name."""
    membership: Membership = Membership.UNMARKED

    @property
    def name(self) -> str:
        """Name of the VM, and of its VMI."""
        return self.object.metadata.name

    @property
    def uid(self) -> str:
        """UID of the VM: the identity in a provider ID."""
        return self.object.metadata.uid

    @property
    def short_hostname(self) -> str:
        """The guest's host name without its domain; empty while it is unknown."""
        return self.hostname.partition(".")[0]

    @property
    def firmware_uuid(self) -> str:
        """The UUID the guest's firmware shows, in lower case; the VMI's value counts first."""
        template = self.object.spec.template
        running = _firmware_uuid(self.vmi.spec) if self.vmi else ""
        return running or _firmware_uuid(template.spec if template else None)

    @property
    def uuid_is_made_from_name(self) -> bool:
        """Whether every VM of this name has this firmware UUID, in every namespace and every Harvester."""
        return self.firmware_uuid == str(uuid5(_UUIDS_OF_NAMES, self.name))

    @property
    def cluster_label(self) -> str:
        """Name of the cluster the VM is marked as a node of; empty without a mark."""
        template = self.object.spec.template
        template_labels = template.metadata.labels if template and template.metadata else None
        sources = (self.vmi.metadata.labels if self.vmi else None, self.object.metadata.labels, template_labels)
        return next((labels[VM_CLUSTER] for labels in sources if labels and labels.get(VM_CLUSTER)), "")


class VMIndex(Struct, frozen=True):
    """All VMs of the namespace, findable by every identity a Node may show."""

    cluster: ClusterIdentity
    synced: bool
    """Whether the lists were complete. Until then nothing is concluded from a VM's absence."""
    by_uid: Mapping[str, VM] = field(default_factory=dict)
    by_name: Mapping[str, VM] = field(default_factory=dict)
    by_firmware: Mapping[str, tuple[VM, ...]] = field(default_factory=dict)
    by_short_hostname: Mapping[str, tuple[VM, ...]] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    """VM UID to the name of the Node whose provider ID it is."""


class NodeStore(Protocol):
    """All that is known of Nodes and VMs."""

    @property
    def nodes(self) -> Lister[Node]:
        """The Nodes of this cluster."""

    @property
    def vms(self) -> Lister[VirtualMachine]:
        """The VMs of our namespace in Harvester."""

    @property
    def vmis(self) -> Lister[VirtualMachineInstance]:
        """Those of them that run."""

    @property
    def cluster(self) -> ClusterIdentity:
        """Who we are."""

    def index(self) -> VMIndex:
        """Return ``join`` of all this, made anew only after a change."""


def join(store: NodeStore, hostnames: Mapping[str, str]) -> VMIndex:
    """Return the index over a store. ``hostnames`` maps VM names to what the guest agents said.

    VMs of other namespaces, VMIs without a VM and unusable host names are passed over.
    """
    cluster = store.cluster
    running = {i.metadata.name: i for i in store.vmis.all() if i.metadata.namespace == cluster.namespace}
    vms = {vm.metadata.name: vm for vm in store.vms.all() if is_indexed(vm, cluster)}
    joined = {
        name: join_one(vm, running.get(name), hostnames.get(name, ""), cluster=cluster) for name, vm in vms.items()
    }
    synced = store.vms.synced and store.vmis.synced
    return with_vms(VMIndex(cluster, synced, claims=claims_of(store.nodes.all())), joined)


def is_indexed(vm: VirtualMachine, cluster: ClusterIdentity) -> bool:
    """Return whether a VM can be a Node's: it is in our namespace and has an identity."""
    meta = vm.metadata
    return meta.namespace == cluster.namespace and bool(meta.name and meta.uid)


def join_one(vm: VirtualMachine, vmi: VirtualMachineInstance | None, hostname: str, *, cluster: ClusterIdentity) -> VM:
    """Return a VM with what belongs to it; ``hostname`` is what its guest agent said."""
    joined = VM(vm, vmi, usable_hostname(hostname))
    mark = joined.cluster_label
    if not cluster.named or not mark:
        return joined
    return replace(joined, membership=Membership.OWN if mark in cluster.names else Membership.FOREIGN)


def with_vms(index: VMIndex, changes: Mapping[str, VM | None]) -> VMIndex:
    """Return the index with the VMs of these names as they are now; None for one that is gone."""
    by_name, by_uid = dict(index.by_name), dict(index.by_uid)
    by_firmware, by_short_hostname = dict(index.by_firmware), dict(index.by_short_hostname)
    for name, new in changes.items():
        old = by_name.pop(name, None)
        if old is not None:
            by_uid.pop(old.uid, None)
            _regroup(by_firmware, old.firmware_uuid, without=old)
            _regroup(by_short_hostname, old.short_hostname, without=old)
        if new is not None:
            by_name[name] = by_uid[new.uid] = new
            _regroup(by_firmware, new.firmware_uuid, and_with=new)
            _regroup(by_short_hostname, new.short_hostname, and_with=new)
    return replace(index, by_name=by_name, by_uid=by_uid, by_firmware=by_firmware, by_short_hostname=by_short_hostname)


def _regroup(
    groups: dict[str, tuple[VM, ...]], key: str, *, without: VM | None = None, and_with: VM | None = None
) -> None:
    group = tuple(vm for vm in groups.pop(key, ()) if vm is not without)
    group += (and_with,) if and_with is not None else ()
    if key and group:
        groups[key] = group


def claims_of(nodes: Iterable[Node]) -> dict[str, str]:
    """Return VM UID to Node name for the Nodes that carry a provider ID of ours; of several Nodes the first by name."""
    pairs = ((parse_provider_id(node.spec.provider_id), node.metadata.name) for node in nodes)
    return {uid: name for uid, name in sorted(pairs, key=itemgetter(1), reverse=True) if uid is not None}


def with_claims(index: VMIndex, changes: Mapping[str, Iterable[Node]]) -> VMIndex:
    """Return the index with the Nodes that carry these VM UIDs as they are now."""
    claims = {uid: name for uid, name in index.claims.items() if uid not in changes}
    return replace(index, claims=claims | claims_of(node for nodes in changes.values() for node in nodes))


def recorded_vm(node: Node) -> tuple[str, str]:
    """Return namespace and name of the VM that the Node is recorded to be.

    The namespace is empty where an earlier version, or the Go provider, wrote the name alone; both are where nothing
    usable is written.
    """
    record = node.metadata.annotation(MACHINE_RECORD) or node.metadata.annotation(GO_MACHINE_RECORD) or ""
    namespace, _, name = record.rpartition("/")
    usable = OBJECT_NAME.fullmatch(name) and (not namespace or OBJECT_NAME.fullmatch(namespace))
    return (namespace, name) if usable else ("", "")


def is_elsewhere(node: Node, namespace: str) -> bool:
    """Return whether the Node is recorded to be a VM of another namespace."""
    return recorded_vm(node)[0] not in {"", namespace}


def node_identities(node: Node) -> tuple[str, ...]:
    """Return the identities of a Node: VM UID of its provider ID, system UUID, short name.

    They are the index by which an event of a VM finds its Nodes: a Node and a VM without a common identity are never
    matched. The reverse does not hold.
    """
    uid = parse_provider_id(node.spec.provider_id)
    uuid = node.status.node_info.system_uuid.strip().lower()
    return (*([uid_identity(uid)] if uid else []), *([f"uuid {uuid}"] if uuid else []), _host(node.metadata.name))


def vm_identities(vm: VM) -> frozenset[str]:
    """Return the identities of a VM: UID, firmware UUID, short name, short guest host name."""
    found = {uid_identity(vm.uid), _host(vm.name)}
    if vm.firmware_uuid:
        found.add(f"uuid {vm.firmware_uuid}")
    if vm.hostname:
        found.add(_host(vm.hostname))
    return frozenset(found)


def uid_identity(uid: str) -> str:
    """Return the identity of the VM with this UID, and of the Nodes that have it as provider ID."""
    return f"uid {uid}"


def _host(name: str) -> str:
    return f"host {name.partition('.')[0]}"


def usable_hostname(hostname: str) -> str:
    """Return a guest's host name in the form node names have, or an empty string when it identifies nothing.

    >>> usable_hostname("W1.Example.com."), usable_hostname("localhost"), usable_hostname("my host")
    ('w1.example.com', '', '')
    """
    name = hostname.strip().lower().removesuffix(".")
    return name if DNS_SUBDOMAIN.fullmatch(name) and name not in _UNSET_HOSTNAMES else ""


def own_vmis(index: VMIndex) -> tuple[VirtualMachineInstance, ...]:
    """Return the VMIs that are nodes of this cluster: marked with its name, or bound to one of its Nodes.

    Differs from the Go provider, which knows only the mark: VMs that were not made by Rancher count too once they
    are Nodes, and a cluster without a name of its own is served as well.
    """
    vms = (vm for vm in index.by_name.values() if is_own(vm, claimed=vm.uid in index.claims))
    return tuple(vm.vmi for vm in vms if vm.vmi is not None and not vm.vmi.metadata.deleting)


def is_own(vm: VM, *, claimed: bool) -> bool:
    """Return whether a VM is a node of this cluster; ``claimed``: a Node has its UID as provider ID."""
    return vm.membership is Membership.OWN or claimed


def may_be_asked(vm: VM, index: VMIndex) -> bool:
    """Return whether a guest agent may be asked for its host name.

    Only VMs that may be ours and are no Node's yet are asked (our mark, or no mark and made by Rancher's node driver),
    and only while they run with a connected agent: every other question is answered with an error.
    """
    vmi = vm.vmi
    if vm.uid in index.claims or vmi is None or phase(vmi) != "Running" or not agent_connected(vmi):
        return False
    labels = vmi.metadata.labels or {}
    unmarked = vm.membership is Membership.UNMARKED and labels.get(VM_CREATOR) == NODE_DRIVER
    return vm.membership is Membership.OWN or unmarked


def full_network(network: str, vmi: VirtualMachineInstance) -> str:
    """Return a network as ``namespace/name``; a bare name is in the VM's own namespace."""
    return network if "/" in network else f"{vmi.metadata.namespace}/{network}"


def migrating(vmi: VirtualMachineInstance) -> bool:
    """Return whether a live migration is under way; the state of a finished one, failed ones too, stays."""
    state = vmi.status.migration_state if vmi.status else None
    return state is not None and not state.completed


def agent_connected(vmi: VirtualMachineInstance) -> bool:
    """Return whether qemu-guest-agent in the guest answers."""
    conditions = vmi.status.conditions if vmi.status else None
    return any((c.type, c.status) == ("AgentConnected", "True") for c in conditions or ())


def phase(vmi: VirtualMachineInstance | None) -> str:
    """Return the phase, empty when there is no VMI or it has none yet."""
    return vmi.status.phase if vmi and vmi.status else ""


def _firmware_uuid(spec: InstanceSpec | None) -> str:
    firmware = spec.domain.firmware if spec and spec.domain else None
    return firmware.uuid.strip().lower() if firmware else ""
