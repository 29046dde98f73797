"""Which VM a Node is: by provider ID, system UUID, guest host name or name, in this order.

Differences from the Go provider, which uses host name and name only and keeps host names in memory:

* A VM is not matched by host name or name if it is labeled for another cluster, if another Node has its provider ID, or
  if its firmware UUID differs from the Node's system UUID. A Node that is not initialized yet does not match a VM of
  another cluster, or a running one with another UUID, by system UUID and provider ID either. A VM of another cluster
  is never matched by a firmware UUID that KubeVirt derived from the name of the VM.
* A Node with a provider ID of another provider has no VM.
* If the VM in the provider ID no longer exists, another VM replaces it only if it has the Node's system UUID and is the
  one that is recorded on the Node, for example after a restore from a backup. Otherwise the Node must join again.
* A host name with a domain matches a Node name without one, and vice versa.
* Several VMs that match a Node equally are an error that names them; the Go provider uses the one seen last.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.errors import Forbidden
from harvester_ccm.model.core import Node, is_of_other_provider, parse_provider_id
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NODE_DRIVER, VM_ANNOTATION, VM_CLUSTER, VM_CREATOR, NodeReason
from harvester_ccm.plan.node.messages import harvester_unavailable, warning
from harvester_ccm.plan.node.patch import uninitialized_taints, was_initialized
from harvester_ccm.plan.node.vms import (
    VM,
    Contradiction,
    Membership,
    NodeStore,
    contradiction_of,
    identity,
    is_uuid_of,
    owner_of,
    recorded_name,
    vm_named,
    vms_of,
)


class MatchedBy(StrEnum):
    """Identity by which a VM was found, the strongest first."""

    PROVIDER_ID = "provider ID"
    SYSTEM_UUID = "system UUID"
    HOSTNAME = "host name"
    NAME = "name"


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


def find_vm(store: NodeStore, node: Node) -> Match:
    """Return the VM of a Node. While Harvester cannot be read, that is the reason why it has none.

    A VM of another cluster, or with another UUID, is not that of a new Node, which a kubelet registers with any
    provider ID. An initialized Node keeps such a VM: its label may have been changed by mistake.
    """
    match = _identified_vm(store, node)
    contradiction = contradiction_of(node, match.vm) if match.vm else None
    if match.vm is None or contradiction is None:
        return match
    if was_initialized(node):
        return replace(match, event=match.event or _contradicted(store, node, match.vm, match.by, contradiction))
    return Match(problem=_contradicted(store, node, match.vm, match.by, contradiction))


def _identified_vm(store: NodeStore, node: Node) -> Match:
    """Return the VM that the Node identifies."""
    uid = parse_provider_id(node.spec.provider_id)
    if uid is not None and (found := vms_of(store, identity("uid", uid))):
        return Match(found[0], MatchedBy.PROVIDER_ID)
    if is_of_other_provider(node.spec.provider_id):
        return Match(problem=warning(NodeReason.PROVIDER_MISMATCH, provider_id=node.spec.provider_id), unmanaged=True)
    match = _by_system_uuid(store, node) or _by_hostname(store, node) or _by_name(store, node)
    if match is None or (match.vm is None and not match.unmanaged):
        problem = unreadable(store) or (match.problem if match else _not_found(node, store.cluster))
        return Match(problem=problem)
    if match.vm is None or uid is None:
        return match
    # A clone has the UUID of the original, and its name as well if it is in another namespace or another Harvester.
    is_recorded = node.metadata.annotation(VM_ANNOTATION) == match.vm.object.metadata.key
    if not (is_recorded and is_uuid_of(node, match.vm.firmware_uuid)):
        return Match(problem=_other_machine(node, match.vm), unmanaged=True)
    provider_id, vm = node.spec.provider_id, match.vm
    event = warning(NodeReason.VM_REPLACED, provider_id=provider_id, vm=vm.name, uid=vm.uid)
    return Match(vm, match.by, event=event)


def needs_hostname(node: Node, match: Match) -> bool:
    """Return whether only the host name of a guest can identify the VM of a new Node."""
    searched = match.problem is not None and match.problem.reason in {NodeReason.VM_NOT_FOUND, NodeReason.VM_AMBIGUOUS}
    is_new = bool(uninitialized_taints(node)) and not node.spec.provider_id
    return is_new and (searched or match.by is MatchedBy.HOSTNAME)


def unreadable(store: NodeStore) -> EventMessage | None:
    """Return why VMs or VMIs cannot be read now; None if they can."""
    listers = (store.vms, store.vmis)
    failed = [one for one in listers if one.problem is not None or not one.synced]
    return harvester_unavailable(failed[0].problem) if failed else None


def _not_found(node: Node, cluster: ClusterIdentity) -> EventMessage:
    label = f"{VM_CLUSTER}={cluster.name}" if cluster.named else f"{VM_CREATOR}={NODE_DRIVER}"
    need = f"run qemu-guest-agent and have the label {label}"
    if not cluster.asks_guests:
        need = "have its system UUID, because guests are not queried for host names"
    return warning(NodeReason.VM_NOT_FOUND, namespace=cluster.namespace, node=node.metadata.name, need=need)


_UNCHANGED: Final = "Nothing is changed on the Node"
_KEPT: Final = "The Node was initialized with this VM and keeps it, with its addresses"


def _contradicted(
    store: NodeStore, node: Node, vm: VM, by: MatchedBy | None, contradiction: Contradiction
) -> EventMessage:
    """Return the Warning about a VM that has an identity of the Node, but is not its own."""
    effect = _KEPT if was_initialized(node) else _UNCHANGED
    if contradiction is Contradiction.UUID:
        return _other_machine(node, vm, effect)
    return _of_other_cluster(store, vm, by, effect)


def _of_other_cluster(store: NodeStore, vm: VM, by: MatchedBy | None, effect: str = _UNCHANGED) -> EventMessage:
    return warning(
        NodeReason.VM_CLUSTER_MISMATCH,
        vm=vm.object.metadata.key,
        identity=by,
        label=vm.cluster_label,
        cluster=store.cluster.name,
        effect=effect,
    )


def _other_machine(node: Node, vm: VM, effect: str = _UNCHANGED) -> EventMessage:
    return warning(
        NodeReason.VM_IDENTITY_MISMATCH,
        subject=vm.uid,
        vm=vm.object.metadata.key,
        firmware=vm.firmware_uuid or "unknown",
        system=node.status.node_info.system_uuid or "unknown",
        provider_id=node.spec.provider_id or "not set",
        recorded=node.metadata.annotation(VM_ANNOTATION) or "unknown",
        node=node.metadata.name,
        effect=effect,
    )


def _by_system_uuid(store: NodeStore, node: Node) -> Match | None:
    uuid = node.status.node_info.system_uuid.strip().lower()
    found = (vm for vm in vms_of(store, identity("uuid", uuid)) if vm.firmware_uuid == uuid) if uuid else ()
    vms = [vm for vm in found if vm.membership is not Membership.FOREIGN or not vm.uuid_is_made_from_name]
    return _best(store, node, vms, MatchedBy.SYSTEM_UUID, f"system UUID {uuid}")


def _by_hostname(store: NodeStore, node: Node) -> Match | None:
    name = node.metadata.name
    vms = [
        vm
        for vm in filter(None, (vm_named(store, vm_name) for vm_name in store.hostnames))
        if _is_same_host(name, vm.hostname)
        and vm.membership is not Membership.FOREIGN
        and not _is_taken(store, node, vm)
        and is_uuid_of(node, vm.firmware_uuid) is not False
    ]
    return _best(store, node, vms, MatchedBy.HOSTNAME, f"guest host name {name}")


def _by_name(store: NodeStore, node: Node) -> Match | None:
    vm = vm_named(store, node.metadata.name)
    if vm is None:
        return None
    if vm.membership is Membership.FOREIGN:
        return Match(problem=_of_other_cluster(store, vm, MatchedBy.NAME))
    if _is_taken(store, node, vm):
        key, owner = vm.object.metadata.key, owner_of(store, vm)
        return Match(problem=warning(NodeReason.VM_IN_USE, vm=key, owner=owner))
    if is_uuid_of(node, vm.firmware_uuid) is False:
        return Match(problem=_other_machine(node, vm), unmanaged=True)
    return Match(vm, MatchedBy.NAME)


def _best(store: NodeStore, node: Node, vms: Iterable[VM], by: MatchedBy, shared: str) -> Match | None:
    """Return the VM that matches best: of no other Node, labeled for this cluster, with the name of the Node."""
    name = node.metadata.name
    ranked = [((_is_taken(store, node, vm), vm.membership, name not in {vm.name, vm.hostname}), vm) for vm in vms]
    best = min((rank for rank, _ in ranked), default=None)
    group = [vm for rank, vm in ranked if rank == best]
    if len(group) > 1:
        names = sorted(vm.name for vm in group)
        return Match(problem=warning(NodeReason.VM_AMBIGUOUS, identity=shared, names=names))
    return Match(group[0], by) if group else None


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
    if not all(one.synced or isinstance(one.problem, Forbidden) for one in (store.vms, store.vmis)):
        return None
    found: dict[str, str] = {}
    for node in store.nodes.all():
        name, match = node.metadata.name, find_vm(store, node)
        if match.vm is not None:
            found[name] = match.vm.name
        elif was_initialized(node) and parse_provider_id(node.spec.provider_id) is not None and not store.vms.synced:
            found[name] = recorded_name(node, store.cluster.namespace) or name
    return found
