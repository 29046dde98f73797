"""Which VM a Node is: by provider ID, system UUID, guest host name or name, in this order.

Differences from the Go provider, which uses host name and name only and keeps host names in memory:

* A VM is not matched by host name or name if it is labeled for another cluster, if another Node has its provider ID, or
  if its firmware UUID differs from the Node's system UUID. A VM of another cluster is not matched by a firmware UUID
  either if KubeVirt derived that UUID from the name of the VM.
* A Node with a provider ID of another provider has no VM. Neither has a Node that is recorded as a VM of another
  namespace.
* If the VM in the provider ID no longer exists, another VM replaces it only with the Node's system UUID, for example
  after a restore from a backup. By name alone, a wrong namespace would match.
* A host name with a domain matches a Node name without one, and vice versa.
* Several VMs that match a Node equally are an error that names them; the Go provider uses the one seen last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.errors import Forbidden
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, is_of_other_provider, parse_provider_id
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.matches import NodeMatches
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NODE_DRIVER, VM_CLUSTER, VM_CREATOR, NodeReason
from harvester_ccm.plan.node.messages import harvester_unavailable, warning
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.node.vms import (
    VM,
    Membership,
    NodeStore,
    full_network,
    identity,
    is_elsewhere,
    owner_of,
    recorded_vm,
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
    """The VM of a Node, or the reason why there is none."""

    vm: VM | None = None
    by: MatchedBy | None = None
    problem: EventMessage | None = None
    """Set if and only if ``vm`` is None."""
    unmanaged: bool = False
    """Whether the Node is certainly, or probably, not a VM of this namespace: nothing of it is changed."""
    event: EventMessage | None = None
    """Warning about the VM that was found."""


def find_vm(store: NodeStore, node: Node) -> Match:
    """Return the VM of a Node. While Harvester cannot be read, that is the reason why there is none."""
    uid = parse_provider_id(node.spec.provider_id)
    if uid is not None and (found := vms_of(store, identity("uid", uid))):
        return Match(found[0], MatchedBy.PROVIDER_ID)
    match = _excluded(store, node) or _by_system_uuid(store, node) or _by_hostname(store, node) or _by_name(store, node)
    if match is None or (match.vm is None and not match.unmanaged):
        problem = unreadable(store) or (match.problem if match else _not_found(node, store.cluster))
        return Match(problem=problem)
    if match.vm is None or uid is None:
        return match
    if not _is_replacement(node, match.vm):
        return Match(problem=_other_machine(node, match.vm), unmanaged=True)
    provider_id, vm = node.spec.provider_id, match.vm
    event = warning(NodeReason.VM_REPLACED, provider_id=provider_id, vm=vm.name, uid=vm.uid)
    return Match(vm, match.by, event=event)


def _excluded(store: NodeStore, node: Node) -> Match | None:
    """Return why no VM can be found except by provider ID; None if one can."""
    if is_of_other_provider(node.spec.provider_id):
        problem = warning(NodeReason.OTHER_PROVIDER, provider_id=node.spec.provider_id)
        return Match(problem=problem, unmanaged=True)
    if not (store.vms.synced and store.vmis.synced):
        return Match(problem=harvester_unavailable(None, action="list VMs", namespace=store.cluster.namespace))
    if is_elsewhere(node, store.cluster.namespace):
        return Match(problem=_other_namespace(store, node), unmanaged=True)
    return None


def unreadable(store: NodeStore) -> EventMessage | None:
    """Return why VMs or VMIs cannot be read now; None if they can."""
    for action, error in (
        ("list VirtualMachines", store.vms.problem),
        ("list VirtualMachineInstances", store.vmis.problem),
    ):
        if error is not None:
            return harvester_unavailable(error, action=action, namespace=store.cluster.namespace)
    return None


def _not_found(node: Node, cluster: ClusterIdentity) -> EventMessage:
    label = f"{VM_CLUSTER}={cluster.name}" if cluster.named else f"{VM_CREATOR}={NODE_DRIVER}"
    need = f"run qemu-guest-agent and have the label {label}"
    if not cluster.asks_guests:
        need = "have its system UUID, because guests are not queried for host names"
    return warning(NodeReason.VM_NOT_FOUND, namespace=cluster.namespace, node=node.metadata.name, need=need)


def _other_machine(node: Node, vm: VM) -> EventMessage:
    return warning(
        NodeReason.VM_OF_OTHER_MACHINE,
        subject=vm.uid,
        vm=vm.object.metadata.key,
        firmware=vm.firmware_uuid or "unknown",
        system=node.status.node_info.system_uuid or "unknown",
        provider_id=node.spec.provider_id or "not set",
        recorded=recorded_vm(node)[1] or "unknown",
        node=node.metadata.name,
    )


def needs_hostname(node: Node, match: Match) -> bool:
    """Return whether only the host name of a guest can identify the VM of a new Node."""
    searched = match.problem is not None and match.problem.reason in {NodeReason.VM_NOT_FOUND, NodeReason.VM_AMBIGUOUS}
    return searched and bool(uninitialized_taints(node)) and not node.spec.provider_id


def _other_namespace(store: NodeStore, node: Node) -> EventMessage:
    # One controller for each of several namespaces is a valid setup. A VM with the name of the Node is suspicious.
    is_suspect = vm_named(store, node.metadata.name) is not None
    recorded, namespace = "/".join(recorded_vm(node)), store.cluster.namespace
    problem = warning(NodeReason.VM_IN_OTHER_NAMESPACE, recorded=recorded, namespace=namespace)
    return problem if is_suspect else replace(problem, reason=NodeReason.VM_NOT_FOUND)


def _is_replacement(node: Node, vm: VM) -> bool:
    """Return whether a VM has replaced the one in the provider ID of a Node.

    A clone has the UUID of the original and another name. A UUID that was derived from the name proves nothing in
    another namespace, so the Node must be recorded as a VM of this one.
    """
    namespace, name = recorded_vm(node)
    is_unique = bool(namespace) or not vm.uuid_is_made_from_name
    return is_unique and name in {"", vm.name} and _has_system_uuid(vm, node) is True


def _by_system_uuid(store: NodeStore, node: Node) -> Match | None:
    uuid = node.status.node_info.system_uuid.strip().lower()
    found = [vm for vm in vms_of(store, identity("uuid", uuid)) if vm.firmware_uuid == uuid] if uuid else []
    group = _best(
        store, node, [vm for vm in found if vm.membership is not Membership.FOREIGN or not vm.uuid_is_made_from_name]
    )
    name = node.metadata.name
    # Clones of a VM can have its UUID. The name of the Node distinguishes them.
    named = [vm for vm in group if vm.name == name or _is_same_host(name, vm.hostname)] if len(group) > 1 else []
    return _single(named or group, MatchedBy.SYSTEM_UUID, f"system UUID {uuid}")


def _by_hostname(store: NodeStore, node: Node) -> Match | None:
    name = node.metadata.name
    guests = (vm_named(store, vm_name) for vm_name in store.hostnames)
    group = [
        vm
        for vm in guests
        if vm is not None
        and _is_same_host(name, vm.hostname)
        and vm.membership is not Membership.FOREIGN
        and not _is_taken(store, node, vm)
        and _has_system_uuid(vm, node) is not False
    ]
    best = _best(store, node, group)
    exact = [vm for vm in best if vm.hostname == name]
    return _single(exact or best, MatchedBy.HOSTNAME, f"guest host name {name}")


def _by_name(store: NodeStore, node: Node) -> Match | None:
    vm = vm_named(store, node.metadata.name)
    if vm is None:
        return None
    if vm.membership is Membership.FOREIGN:
        key, cluster = vm.object.metadata.key, store.cluster.name
        return Match(problem=warning(NodeReason.VM_OF_OTHER_CLUSTER, vm=key, label=vm.cluster_label, cluster=cluster))
    if _is_taken(store, node, vm):
        key, owner = vm.object.metadata.key, owner_of(store, vm)
        return Match(problem=warning(NodeReason.VM_OF_OTHER_NODE, vm=key, owner=owner))
    if _has_system_uuid(vm, node) is False:
        return Match(problem=_other_machine(node, vm), unmanaged=True)
    return Match(vm, MatchedBy.NAME)


def _has_system_uuid(vm: VM, node: Node) -> bool | None:
    """Return whether the firmware UUID of a VM is the system UUID of a Node; None if one of them is unknown.

    Firmware reports the first three fields in either byte order.
    """
    try:
        system, firmware = UUID(node.status.node_info.system_uuid.strip()), UUID(vm.firmware_uuid)
    except ValueError:
        return None
    return firmware.bytes in (system.bytes, system.bytes_le)


def _best(store: NodeStore, node: Node, vms: Iterable[VM]) -> list[VM]:
    """Return the VMs that match equally well and better than all others."""
    ranked = [((_is_taken(store, node, vm), vm.membership), vm) for vm in vms]
    best = min((rank for rank, _ in ranked), default=None)
    return [vm for rank, vm in ranked if rank == best]


def _is_taken(store: NodeStore, node: Node, vm: VM) -> bool:
    return owner_of(store, vm) not in {None, node.metadata.name}


def _is_same_host(node_name: str, hostname: str) -> bool:
    if node_name == hostname:
        return True
    has_short_name = "." not in node_name or "." not in hostname
    return has_short_name and node_name.partition(".")[0] == hostname.partition(".")[0]


def _single(group: Sequence[VM], by: MatchedBy, shared: str) -> Match | None:
    if len(group) > 1:
        names = sorted(vm.name for vm in group)
        return Match(problem=warning(NodeReason.VM_AMBIGUOUS, identity=shared, names=names))
    return Match(group[0], by) if group else None


def node_matches(store: NodeStore) -> NodeMatches:
    """Return the VMs of all Nodes for the Service controller.

    If VMs must not be listed, the VM that is recorded on a Node with our provider ID counts.
    """
    names: dict[str, str] = {}
    unknown: set[str] = set()
    networks: dict[str, list[str]] = {}
    attached: set[str] | None = set()
    for node in store.nodes.all():
        name, match = node.metadata.name, find_vm(store, node)
        managed = parse_provider_id(node.spec.provider_id) is not None
        vmi = match.vm.vmi if match.vm is not None else None
        attached = None if vmi is None or attached is None else attached | _networks_of(vmi, networks)
        if match.vm is not None:
            names[name] = match.vm.name
        elif managed and not store.vms.synced:
            names[name] = recorded_vm(node)[1] or name
        elif not uninitialized_taints(node) and not (managed and _is_transient(match)):
            unknown.add(name)
    known = all(one.synced or isinstance(one.problem, Forbidden) for one in (store.vms, store.vmis))
    reported = {network: tuple(addresses) for network, addresses in networks.items()}
    all_attached = frozenset(attached) if names and attached is not None else None
    return NodeMatches(names, frozenset(unknown), reported, all_attached, known=known)


def _networks_of(vmi: VirtualMachineInstance, addresses: dict[str, list[str]]) -> set[str]:
    """Return the VM networks of a VMI; add the addresses that it reports there."""
    networks = {nic: full_network(network, vmi) for nic, network in vmi.spec.multus_networks.items() if network}
    for interface in vmi.interfaces:
        if interface.name in networks:
            addresses.setdefault(networks[interface.name], []).extend(interface.addresses)
    return set(networks.values())


def _is_transient(match: Match) -> bool:
    """Return whether the VM can still appear, or the Node will be deleted."""
    reasons = {NodeReason.VM_NOT_FOUND, NodeReason.HARVESTER_FORBIDDEN, NodeReason.HARVESTER_UNAVAILABLE}
    return match.problem is not None and match.problem.reason in reasons
