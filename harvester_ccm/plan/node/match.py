"""Which VM a Node is: the first of its identities that a VM has decides. Then signs of another machine are tested.

Differences from the Go provider, which uses host name and name only and keeps host names in memory:

* A VM is not matched by host name or name if it is labeled for another cluster, if another Node has its provider ID, or
  if its firmware UUID differs from the Node's system UUID.
* A Node that is not initialized yet does not match a VM of another cluster, or a running one with another UUID, by
  system UUID and provider ID either. An initialized Node keeps such a VM: its label may have been changed by mistake.
* A Node with a provider ID of another provider has no VM.
* If the VM in the provider ID no longer exists, another VM replaces it only if it has the Node's system UUID and is the
  one that is recorded on the Node, for example after a restore from a backup. Otherwise the Node must join again.
* A host name with a domain matches a Node name without one, and vice versa.
* Several VMs that match a Node equally are an error that names them; the Go provider uses the one seen last.
* A VM that is in the provider ID of another Node is not that of a new Node.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.kube.errors import Forbidden
from harvester_ccm.model.core import Node, is_of_other_provider, parse_provider_id
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import NODE_DRIVER, UNINITIALIZED_TAINT, VM_ANNOTATION, VM_CLUSTER, VM_CREATOR, NodeReason
from harvester_ccm.plan.node.messages import deletion_command, harvester_unavailable, listed
from harvester_ccm.plan.node.patch import uninitialized_taints, was_initialized
from harvester_ccm.plan.node.vms import (
    VM,
    Contradiction,
    Membership,
    NodeStore,
    UUIDComparison,
    compare_uuids,
    contradiction_of,
    identity,
    owner_of,
    recorded_name,
    vm_named,
    vms_of,
)


class MatchedBy(StrEnum):
    """Identities by which a VM is found, in their order. Each docstring says which VM has the identity."""

    PROVIDER_ID = "provider ID"
    """The VM with the UID in the provider ID of the Node."""
    SYSTEM_UUID = "system UUID"
    """The VM whose firmware UUID is the system UUID of the Node. Of several, one that no other Node has, labeled for
    this cluster, with the name of the Node. A firmware UUID that KubeVirt derived from the name of the VM does not
    identify a VM of another cluster."""
    HOSTNAME = "host name"
    """The VM whose guest agent reports the name of the Node as host name, with or without a domain. It is not labeled
    for another cluster, no other Node has its provider ID, and the UUIDs do not contradict."""
    NAME = "name"
    """The VM with the name of the Node, with the same conditions."""


class Match(Struct, frozen=True):
    """The VM of a Node, or the reason why it has none."""

    vm: VM | None = None
    by: MatchedBy | None = None
    problem: EventMessage | None = None
    """Set if and only if ``vm`` is None."""
    unmanaged: bool = False
    """Whether the Node is certainly, or probably, not a VM of this namespace: nothing of it is changed."""
    event: EventMessage | None = None
    """Warning about the VM that was found."""
    runs_other_machine: bool = False
    """Whether the VM is another machine than the Node, so that its addresses and its power state are not the Node's."""
    rival: str = ""
    """Name of another Node with the same VM, which the problem or the event is about."""


def find_vm(store: NodeStore, node: Node) -> Match:
    """Return the VM of a Node. While Harvester cannot be read, that is the reason why it has none.

    A new Node does not get a VM that is labeled for another cluster, has another UUID, or is in the provider ID of
    another Node: a kubelet can register with any provider ID. An initialized Node keeps such a VM.
    """
    match = _identified_vm(store, node)
    if match.vm is None:
        return match
    contradiction = contradiction_of(node, match.vm)
    if contradiction is not None:
        doubt = _contradicted(store, node, match.vm, match.by, contradiction)
        if not was_initialized(node):
            return Match(problem=doubt)
        runs_other_machine = contradiction is Contradiction.UUID
        return replace(match, event=match.event or doubt, runs_other_machine=runs_other_machine)
    owner = owner_of(store, match.vm)
    if owner is not None and owner != node.metadata.name:
        return _of_two_nodes(node, match.vm, match, owner)
    return match


def _of_two_nodes(node: Node, vm: VM, match: Match, owner: str) -> Match:
    """Return the match of a Node whose VM is in the provider ID of another Node, too."""
    name = node.metadata.name
    if not was_initialized(node):
        return Match(problem=_in_use(node, vm, match.by, owner, f"Node {name} is not initialized"), rival=owner)
    if match.by is not MatchedBy.PROVIDER_ID and parse_provider_id(node.spec.provider_id) is not None:
        # The VM replaces that of the provider ID, so the Node never had it.
        return Match(problem=_in_use(node, vm, match.by, owner, f"Node {name} does not change"), rival=owner)
    return replace(match, event=_in_use(node, vm, match.by, owner, "Both keep it"), rival=owner)


def _identified_vm(store: NodeStore, node: Node) -> Match:
    """Return the VM that the Node identifies."""
    by_provider_id = _by_provider_id(store, node)
    if by_provider_id is not None:
        return by_provider_id
    if is_of_other_provider(node.spec.provider_id):
        return Match(problem=_of_other_provider(node), unmanaged=True)
    match = _by_other_identity(store, node)
    if match is not None and match.vm is not None:
        return _checked_replacement(node, match.vm, match)
    if match is not None and match.unmanaged:
        return match
    # A VM that is not in the cache can exist.
    outage = unreadable(store)
    if outage is not None:
        return Match(problem=outage)
    # A Node that was initialized without a provider ID may be a machine that Harvester never had.
    is_other_machine = was_initialized(node) and not node.spec.provider_id
    return match or Match(problem=_not_found(node, store.cluster), unmanaged=is_other_machine)


def _by_other_identity(store: NodeStore, node: Node) -> Match | None:
    """Return the VM, or the problem, by the first identity behind the provider ID that any VM has."""
    return _by_system_uuid(store, node) or _by_hostname(store, node) or _by_name(store, node)


def _checked_replacement(node: Node, vm: VM, match: Match) -> Match:
    """Return the match of a Node whose provider ID, if it has one, names a VM that does not exist.

    A clone has the UUID of the original, and its name as well if it is in another namespace or another Harvester.
    """
    if parse_provider_id(node.spec.provider_id) is None:
        return match
    is_recorded = node.metadata.annotation(VM_ANNOTATION) == vm.object.metadata.key
    if not is_recorded or compare_uuids(node, vm.firmware_uuid) is not UUIDComparison.EQUAL:
        return Match(problem=_other_machine(node, vm), unmanaged=True)
    cause = (
        f"The VM in the provider ID {node.spec.provider_id} no longer exists; VM {vm.name} with UID {vm.uid} is taken "
        "for this Node"
    )
    remedy = (
        "Nothing has to be done. A provider ID cannot be changed: to let the Node join with the new one, delete it and "
        "restart its kubelet"
    )
    return replace(match, event=EventMessage("Warning", NodeReason.VM_REPLACED, cause, remedy))


def needs_hostname(node: Node, match: Match) -> bool:
    """Return whether only the host name of a guest can identify the VM of a new Node."""
    searched = match.problem is not None and match.problem.reason in {NodeReason.VM_NOT_FOUND, NodeReason.VM_AMBIGUOUS}
    is_unidentified = bool(uninitialized_taints(node)) and not node.spec.provider_id
    return is_unidentified and (searched or match.by is MatchedBy.HOSTNAME)


def unreadable(store: NodeStore) -> EventMessage | None:
    """Return why VMs or VMIs cannot be read now; None if they can."""
    for collection in (store.vms, store.vmis):
        if collection.problem is not None or not collection.synced:
            return harvester_unavailable(collection.problem)
    return None


def _not_found(node: Node, cluster: ClusterIdentity) -> EventMessage:
    label = f"{VM_CLUSTER}={cluster.name}" if cluster.named else f"{VM_CREATOR}={NODE_DRIVER}"
    need = f"run qemu-guest-agent in it, and give its VirtualMachineInstance the label {label}"
    if not cluster.asks_guests:
        need = "it must have the Node's system UUID, because guests are not queried for host names"
    cause = (
        f"No VM in namespace {cluster.namespace} of Harvester has this Node's provider ID, system UUID, name, or guest "
        f"host name {node.metadata.name}"
    )
    elsewhere = (
        f"If its VM is in another namespace, create it in {cluster.namespace}; if the VMs of all Nodes are there, "
        "correct the namespace of the cloud-config"
    )
    if was_initialized(node):
        remedy = f"{elsewhere}. If the VM was deleted, and the Node stays, delete the Node"
        return EventMessage("Warning", NodeReason.VM_NOT_FOUND, cause, remedy, deletion_command(node))
    remedy = (
        f"{elsewhere}. If its VM has another name, {need}. If the machine is not a VM of this Harvester, remove taint "
        f"{UNINITIALIZED_TAINT} from the Node, or give its kubelet another --provider-id"
    )
    return EventMessage("Warning", NodeReason.VM_NOT_FOUND, cause, remedy)


def _of_other_provider(node: Node) -> EventMessage:
    cause = f"Provider ID {node.spec.provider_id} is another provider's, so the Node is ignored"
    remedy = (
        "If it is a VM of this Harvester, end what sets that ID: usually a second cloud controller manager (start K3s "
        "with --disable-cloud-controller and RKE2 with disable-cloud-controller: true; uninstall that of Talos), else "
        "the kubelet's --provider-id. Then delete the Node and restart its kubelet"
    )
    return EventMessage("Warning", NodeReason.PROVIDER_MISMATCH, cause, remedy)


def _in_use(node: Node, vm: VM, by: MatchedBy | None, owner: str | None, effect: str) -> EventMessage:
    name = node.metadata.name
    cause = f"VM {vm.object.metadata.key} is in the provider ID of Node {owner}, and Node {name} has its {by}. {effect}"
    remedy = (
        f"Delete the Node that is not used any more. If both are used, the VM of Node {name} is another one: give it a "
        "name, a host name and a firmware UUID of its own, and install qemu-guest-agent in it"
    )
    return EventMessage("Warning", NodeReason.VM_IN_USE, cause, remedy, subject=f"{vm.uid} {owner} {name}")


_UNCHANGED: Final = "Nothing is changed on the Node"
_KEPT: Final = "The Node was initialized with this VM and keeps it, with its addresses"


def _contradicted(
    store: NodeStore, node: Node, vm: VM, by: MatchedBy | None, contradiction: Contradiction
) -> EventMessage:
    """Return the Warning about a VM that has an identity of the Node, but is not its own."""
    effect = _KEPT if was_initialized(node) else _UNCHANGED
    if contradiction is not Contradiction.UUID:
        return _of_other_cluster(store, vm, by, effect)
    match = _by_system_uuid(store, node)
    if match is None or match.vm is None:
        return _other_machine(node, vm, effect)
    return _under_its_name(match.vm, vm, effect)


def _under_its_name(other: VM, vm: VM, effect: str) -> EventMessage:
    """Return the Warning about a VM, usually a clone, whose kubelet has the name of the Node of a VM."""
    name = other.object.metadata.key
    cause = (
        f"The kubelet of VM {name} runs under this Node's name: the Node has its system UUID, and not that of VM "
        f"{vm.object.metadata.key}. {effect}"
    )
    remedy = (
        f"Stop VM {name}, or give its guest a host name of its own and restart its kubelet, and then that of VM "
        f"{vm.name}. If it is to replace {vm.name}, delete the Node instead"
    )
    return EventMessage("Warning", NodeReason.VM_IDENTITY_MISMATCH, cause, remedy, subject=other.uid)


def _of_other_cluster(store: NodeStore, vm: VM, by: MatchedBy | None, effect: str = _UNCHANGED) -> EventMessage:
    meta = vm.object.metadata
    cluster = store.cluster.name
    kind = "virtualmachineinstances" if vm.vmi is not None else "virtualmachines"
    cause = (
        f"VM {meta.key} has this Node's {by}, but its label {VM_CLUSTER} is {vm.cluster_label!r}, and this cluster is "
        f"{cluster!r}. {effect}"
    )
    remedy = (
        "Correct --cluster-name, or with the kubeconfig of Harvester the label: in the template of the VM "
        "(spec.template.metadata.labels) for its next start, and on the object that counts now"
    )
    command = f"kubectl label --overwrite {kind}.kubevirt.io -n {meta.namespace} {meta.name} {VM_CLUSTER}={cluster}"
    return EventMessage("Warning", NodeReason.VM_CLUSTER_MISMATCH, cause, remedy, command)


def _other_machine(node: Node, vm: VM, effect: str = _UNCHANGED) -> EventMessage:
    firmware = vm.firmware_uuid or "unknown"
    system = node.status.node_info.system_uuid or "unknown"
    provider_id = node.spec.provider_id or "not set"
    recorded = node.metadata.annotation(VM_ANNOTATION) or "unknown"
    return EventMessage(
        "Warning",
        NodeReason.VM_IDENTITY_MISMATCH,
        f"VM {vm.object.metadata.key} might be a clone: it is not recorded on this Node, or has another UUID. {effect}",
        "Check the namespace and the server in the cloud-config. To accept the VM, delete the Node and restart its "
        "kubelet",
        deletion_command(node),
        answer=f"Firmware UUID {firmware}, system UUID {system}, provider ID {provider_id}, recorded VM {recorded}",
        subject=vm.uid,
    )


def _by_provider_id(store: NodeStore, node: Node) -> Match | None:
    uid = parse_provider_id(node.spec.provider_id)
    if uid is None:
        return None
    vms = vms_of(store, identity("uid", uid))
    if not vms:
        return None
    return Match(vms[0], MatchedBy.PROVIDER_ID)


def _by_system_uuid(store: NodeStore, node: Node) -> Match | None:
    uuid = node.status.node_info.system_uuid.strip().lower()
    if not uuid:
        return None
    vms = [vm for vm in vms_of(store, identity("uuid", uuid)) if _has_uuid(vm, uuid)]
    return _best(store, node, vms, MatchedBy.SYSTEM_UUID, f"system UUID {uuid}")


def _has_uuid(vm: VM, uuid: str) -> bool:
    """Return whether the firmware UUID of a VM is this one, and was not derived from the name in another cluster."""
    if vm.firmware_uuid != uuid:
        return False
    return vm.membership is not Membership.FOREIGN or not vm.uuid_is_made_from_name


def _by_hostname(store: NodeStore, node: Node) -> Match | None:
    vms = []
    for vm_name in store.hostnames:
        vm = vm_named(store, vm_name)
        if vm is not None and _has_hostname(store, node, vm):
            vms.append(vm)
    return _best(store, node, vms, MatchedBy.HOSTNAME, f"guest host name {node.metadata.name}")


def _has_hostname(store: NodeStore, node: Node, vm: VM) -> bool:
    """Return whether the host name of a VM is the name of the Node, and nothing contradicts."""
    if not _is_same_host(node.metadata.name, vm.hostname):
        return False
    if vm.membership is Membership.FOREIGN or _is_taken(store, node, vm):
        return False
    return compare_uuids(node, vm.firmware_uuid) is not UUIDComparison.DIFFERENT


def _by_name(store: NodeStore, node: Node) -> Match | None:
    vm = vm_named(store, node.metadata.name)
    if vm is None:
        return None
    if vm.membership is Membership.FOREIGN:
        return Match(problem=_of_other_cluster(store, vm, MatchedBy.NAME))
    if _is_taken(store, node, vm):
        owner = owner_of(store, vm)
        return Match(problem=_in_use(node, vm, MatchedBy.NAME, owner, f"Node {node.metadata.name} does not change"))
    if compare_uuids(node, vm.firmware_uuid) is UUIDComparison.DIFFERENT:
        return Match(problem=_other_machine(node, vm), unmanaged=True)
    return Match(vm, MatchedBy.NAME)


class _Rank(Struct, frozen=True, order=True):
    """How well a VM matches; the lowest value matches best."""

    is_taken: bool
    """Whether another Node has its provider ID."""
    membership: Membership
    has_other_name: bool


def _best(store: NodeStore, node: Node, vms: Sequence[VM], by: MatchedBy, shared: str) -> Match | None:
    """Return the VM that matches best; a problem if several match equally."""
    if not vms:
        return None
    ranks = {vm.name: _rank(store, node, vm) for vm in vms}
    lowest = min(ranks.values())
    best = [vm for vm in vms if ranks[vm.name] == lowest]
    if len(best) == 1:
        return Match(best[0], by)
    names = sorted(vm.name for vm in best)
    remedy = _DISTINGUISHED_BY[by]
    if store.cluster.named and best[0].membership is Membership.UNMARKED:
        remedy = f"{remedy}, or set the label {VM_CLUSTER}={store.cluster.name} on the VM of this Node"
    cause = f"Several VMs have the {shared}: {listed(names)}"
    return Match(problem=EventMessage("Warning", NodeReason.VM_AMBIGUOUS, cause, remedy))


_DISTINGUISHED_BY: Final = {
    MatchedBy.SYSTEM_UUID: (
        "Give the VM that is not this Node another UUID (spec.template.spec.domain.firmware.uuid), and restart it"
    ),
    MatchedBy.HOSTNAME: "Give the guest that is not this Node another host name",
}
"""How VMs with one identity are told apart."""


def _rank(store: NodeStore, node: Node, vm: VM) -> _Rank:
    has_other_name = node.metadata.name not in {vm.name, vm.hostname}
    return _Rank(_is_taken(store, node, vm), vm.membership, has_other_name)


def _is_taken(store: NodeStore, node: Node, vm: VM) -> bool:
    return owner_of(store, vm) not in {None, node.metadata.name}


def _is_same_host(node_name: str, hostname: str) -> bool:
    if node_name == hostname:
        return True
    has_short_name = "." not in node_name or "." not in hostname
    return has_short_name and node_name.partition(".")[0] == hostname.partition(".")[0]


def vm_names(store: NodeStore) -> dict[str, str] | None:
    """Return the name of the VM of each Node that has one, for VM load balancers; None until the VMs are listed.

    If VMs must not be listed, the VM that is recorded on a Node with our provider ID counts.
    """
    collections = (store.vms, store.vmis)
    if not all(collection.synced or isinstance(collection.problem, Forbidden) for collection in collections):
        return None
    names: dict[str, str] = {}
    for node in store.nodes.all():
        match = find_vm(store, node)
        has_our_provider_id = was_initialized(node) and parse_provider_id(node.spec.provider_id) is not None
        if match.vm is not None:
            names[node.metadata.name] = match.vm.name
        elif has_our_provider_id and not store.vms.synced:
            names[node.metadata.name] = recorded_name(node, store.cluster.namespace) or node.metadata.name
    return names
