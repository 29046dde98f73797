"""Which VM is a Node's.

Asked in this order: provider ID, the kubelet's system UUID, the guest agent's host name, the name. Differences from
the Go provider, which knows host name and name only and keeps the host names in memory:

* A VM marked as another cluster's is never found by host name or name. It is by provider ID, and by a system UUID that
  cannot be equal by chance: KubeVirt before 1.4 makes the UUID of a VM from its name.
* A VM that is another Node's by provider ID is not found by host name or name either.
* A VM whose firmware UUID contradicts the Node's system UUID is not found by host name or name either.
* A Node with another provider's ID has no VM, whatever else it shows; nor has one that is recorded as a VM of another
  namespace.
* If the VM in the provider ID no longer exists, another VM replaces it only with the system UUID of the Node, for
  example after a restore from a backup. Otherwise VMs of the same names in a wrong namespace would be taken.
* A host name may be a full domain name where the Node's name is short, and the other way round.
* Two VMs that claim one Node are an error that names both; Go takes the one seen last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from harvester_ccm.errors import Forbidden
from harvester_ccm.model.core import Node, is_of_other_provider, parse_provider_id
from harvester_ccm.model.matches import NodeMatches
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import MACHINE_RECORD, NODE_DRIVER, VM_CLUSTER, VM_CREATOR, NodeReason
from harvester_ccm.plan.node.events import harvester_note, warning
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.node.vms import VM, Membership, NodeStore, VMIndex, full_network, is_elsewhere, recorded_vm

_SEARCHED: Final = frozenset({NodeReason.VM_NOT_FOUND, NodeReason.VM_AMBIGUOUS})
_PASSING: Final = frozenset({NodeReason.VM_NOT_FOUND, NodeReason.HARVESTER_FORBIDDEN, NodeReason.HARVESTER_UNAVAILABLE})


class MatchedBy(StrEnum):
    """Evidence by which a VM was found, strongest first."""

    PROVIDER_ID = "provider ID"
    SYSTEM_UUID = "system UUID"
    HOSTNAME = "host name"
    NAME = "name"


class Match(Struct, frozen=True):
    """The VM of a Node, or why there is none."""

    vm: VM | None = None
    by: MatchedBy | None = None
    problem: EventMessage | None = None
    """Set exactly when there is no VM."""
    stranger: bool = False
    """Whether what is known of the Node says that it is no machine of ours: nothing of it is changed."""
    note: EventMessage | None = None
    """An oddity of a VM that was found."""


def match_vm(store: NodeStore, node: Node) -> Match:
    """Return the Node's VM. While Harvester cannot be read, that is the reason why there is none."""
    match = find_vm(node, store.index())
    problem = unreadable(store) if match.vm is None and not match.stranger else None
    return Match(problem=problem) if problem is not None else match


def unreadable(store: NodeStore) -> EventMessage | None:
    """Return why the VMs cannot be read at the moment, None while they can."""
    for action, error in (
        ("list VirtualMachines", store.vms.problem),
        ("list VirtualMachineInstances", store.vmis.problem),
    ):
        if error is not None:
            return harvester_note(error, action=action, namespace=store.cluster.namespace)
    return None


def node_matches(store: NodeStore) -> NodeMatches:
    """Return which VM each Node is. Where VMs may not be listed, what its provider ID and record say has to do."""
    read = all(one.synced or isinstance(one.problem, Forbidden) for one in (store.vms, store.vmis))
    names, strangers = {}, set()
    networks: dict[str, list[str]] = {}
    matches = []
    for node in store.nodes.all():
        name, match = node.metadata.name, match_vm(store, node)
        matches.append(match)
        ours = parse_provider_id(node.spec.provider_id) is not None
        if match.vm is not None:
            names[name] = match.vm.name
            for network, addresses in _addresses_on_networks(match.vm):
                networks.setdefault(network, []).extend(addresses)
        elif ours and not store.vms.synced:
            names[name] = recorded_vm(node)[1] or name
        elif not uninitialized_taints(node) and not (ours and _is_missing(match)):
            strangers.add(name)
    found = {network: tuple(addresses) for network, addresses in networks.items()}
    return NodeMatches(names, frozenset(strangers), found, _attached(matches), known=read)


def _attached(matches: Sequence[Match]) -> frozenset[str] | None:
    """Return the VM networks of all these VMs; None where one is not known, or there is none at all."""
    vmis = [match.vm.vmi if match.vm is not None else None for match in matches]
    known = [vmi for vmi in vmis if vmi is not None]
    if not known or len(known) < len(vmis):
        return None
    return frozenset(
        full_network(network, vmi) for vmi in known for network in vmi.spec.multus_networks.values() if network
    )


def _addresses_on_networks(vm: VM) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each VM network that the VM reports addresses of, as ``namespace/name``, with these."""
    if vm.vmi is None:
        return
    networks = vm.vmi.spec.multus_networks
    for interface in vm.vmi.interfaces:
        if network := networks.get(interface.name):
            yield full_network(network, vm.vmi), interface.addresses


def _is_missing(match: Match) -> bool:
    """Return whether the VM may come, or its Node will go."""
    return match.problem is not None and match.problem.reason in _PASSING


def wants_hostname(node: Node, match: Match) -> bool:
    """Return whether the host name of a guest could tell which VM a new Node is."""
    searched = match.problem is not None and match.problem.reason in _SEARCHED
    return searched and bool(uninitialized_taints(node)) and parse_provider_id(node.spec.provider_id) is None


def find_vm(node: Node, index: VMIndex) -> Match:
    """Return the Node's VM.

    A provider ID whose VM no longer exists does not end the search: a VM that was restored from a backup under its
    old name has a new UID and is still the Node's, as it is for the Go provider. The match then has a note.
    """
    uid = parse_provider_id(node.spec.provider_id)
    if uid is not None and uid in index.by_uid:
        return Match(index.by_uid[uid], MatchedBy.PROVIDER_ID)
    ruled_out = _ruled_out(node, index)
    if ruled_out is not None:
        return ruled_out
    match = _by_system_uuid(node, index) or _by_hostname(node, index) or _by_name(node, index)
    if match is None:
        return Match(problem=_not_found(node, index))
    if match.vm is None or uid is None:
        return match
    if not _is_replacement(node, match.vm):
        return Match(problem=_unproven(node, match.vm), stranger=True)
    return Match(match.vm, match.by, note=_replaced(node, match.vm))


def _ruled_out(node: Node, index: VMIndex) -> Match | None:
    """Return why no VM is looked for beyond the one in the provider ID; None when one is."""
    if is_of_other_provider(node.spec.provider_id):
        return Match(problem=_of_other_provider(node), stranger=True)
    if not index.synced:
        text = f"The VMs in Harvester namespace {index.cluster.namespace} have not been read completely yet"
        return Match(problem=warning(NodeReason.HARVESTER_UNAVAILABLE, text, subject="unsynced"))
    if is_elsewhere(node, index.cluster.namespace):
        return Match(problem=_elsewhere(node, index), stranger=True)
    return None


def _is_replacement(node: Node, vm: VM) -> bool:
    """Return whether a VM replaces the one in the provider ID of the Node: it has the system UUID of the Node.

    A clone has the UUID of its original and another name. A UUID that was made from the name proves nothing in another
    namespace, so the Node must be recorded to be a VM of this one.
    """
    namespace, name = recorded_vm(node)
    proven = bool(namespace) or not vm.uuid_is_made_from_name
    return proven and name in {"", vm.name} and _has_system_uuid(vm, node) is True


def _by_system_uuid(node: Node, index: VMIndex) -> Match | None:
    uuid = node.status.node_info.system_uuid.strip().lower()
    found = index.by_firmware.get(uuid, ()) if uuid else ()
    group = _best(
        (m for m in found if not (m.membership is Membership.FOREIGN and m.uuid_is_made_from_name)), node, index
    )
    if len(group) > 1:
        # Copies of a VM can share the UUID; what else the Node shows tells them apart.
        names = node.metadata.name
        group = tuple(m for m in group if m.name == names or _same_host(names, m.hostname)) or group
    return _only(group, MatchedBy.SYSTEM_UUID, f"system UUID {uuid}")


def _by_hostname(node: Node, index: VMIndex) -> Match | None:
    name = node.metadata.name
    group = index.by_short_hostname.get(name.partition(".")[0], ())
    ours = [m for m in group if m.membership is not Membership.FOREIGN and _same_host(name, m.hostname)]
    free = [m for m in ours if not _claimed(m, node, index) and _has_system_uuid(m, node) is not False]
    best = _best(free, node, index)
    exact = tuple(vm for vm in best if vm.hostname == name)
    return _only(exact or best, MatchedBy.HOSTNAME, f"guest host name {name}")


def _by_name(node: Node, index: VMIndex) -> Match | None:
    vm = index.by_name.get(node.metadata.name)
    if vm is None:
        return None
    if vm.membership is Membership.FOREIGN:
        return Match(problem=_foreign(vm, index))
    if _claimed(vm, node, index):
        return Match(problem=_of_other_node(vm, index))
    if _has_system_uuid(vm, node) is False:
        return Match(problem=_of_other_machine(vm, node, index), stranger=True)
    return Match(vm, MatchedBy.NAME)


def _has_system_uuid(vm: VM, node: Node) -> bool | None:
    """Return whether the VM's firmware UUID is the Node's system UUID; None if one of them is unknown.

    Firmware shows the first three fields in either byte order.
    """
    try:
        shown, firmware = UUID(node.status.node_info.system_uuid.strip()), UUID(vm.firmware_uuid)
    except ValueError:
        return None
    return firmware.bytes in (shown.bytes, shown.bytes_le)


def _best(vms: Iterable[VM], node: Node, index: VMIndex) -> tuple[VM, ...]:
    """Return the VMs that are equally likely ours, and more than all others."""
    ranked = [((_claimed(vm, node, index), vm.membership), vm) for vm in vms]
    best = min((rank for rank, _ in ranked), default=None)
    return tuple(vm for rank, vm in ranked if rank == best)


def _claimed(vm: VM, node: Node, index: VMIndex) -> bool:
    return index.claims.get(vm.uid, node.metadata.name) != node.metadata.name


def _same_host(node_name: str, hostname: str) -> bool:
    if node_name == hostname:
        return True
    short = "." not in node_name or "." not in hostname
    return short and node_name.partition(".")[0] == hostname.partition(".")[0]


def _only(group: Sequence[VM], by: MatchedBy, identity: str) -> Match | None:
    if not group:
        return None
    if len(group) == 1:
        return Match(group[0], by)
    names = ", ".join(sorted(vm.name for vm in group))
    return Match(
        problem=warning(
            NodeReason.VM_AMBIGUOUS,
            f"Several VMs have the {identity}: {names}. Give each its own, or mark the VMs of this cluster with the "
            f"label {VM_CLUSTER}",
        )
    )


def _not_found(node: Node, index: VMIndex) -> EventMessage:
    # What ``may_be_asked`` lets a guest agent be asked for.
    cluster = index.cluster
    label = f"{VM_CLUSTER}={cluster.name}" if cluster.named else f"{VM_CREATOR}={NODE_DRIVER}"
    if cluster.asks_guests:
        other_name = f"must run qemu-guest-agent and have the label {label}"
    else:
        other_name = "must have its system UUID, because guests are not asked for host names"
    return warning(
        NodeReason.VM_NOT_FOUND,
        f"No VM of that name in namespace {cluster.namespace} of Harvester, and none with this Node's provider "
        f"ID, system UUID or guest host name {node.metadata.name}. Check the namespace in the cloud-config; a VM with "
        f"another name than its Node {other_name}",
    )


def _foreign(vm: VM, index: VMIndex) -> EventMessage:
    return warning(
        NodeReason.VM_OF_OTHER_CLUSTER,
        f"VM {index.cluster.namespace}/{vm.name} has this Node's name but its label {VM_CLUSTER} is "
        f"{vm.cluster_label!r}, and this cluster is {index.cluster.name!r}. Correct the label or --cluster-name",
    )


def _of_other_machine(vm: VM, node: Node, index: VMIndex) -> EventMessage:
    return warning(
        NodeReason.VM_OF_OTHER_MACHINE,
        f"VM {index.cluster.namespace}/{vm.name} has this Node's name but is another machine: its firmware UUID is "
        f"{vm.firmware_uuid}, and the Node's system UUID is {node.status.node_info.system_uuid}. Nothing is changed on "
        "the Node. Check the namespace and the server in the cloud-config",
    )


def _elsewhere(node: Node, index: VMIndex) -> EventMessage:
    recorded, namespace = node.metadata.annotation(MACHINE_RECORD) or "", index.cluster.namespace
    namesake, serves_others = index.by_name.get(node.metadata.name), not index.claims.keys().isdisjoint(index.by_uid)
    # A program for each of several namespaces is no mistake.
    reason = NodeReason.VM_NOT_FOUND if serves_others and namesake is None else NodeReason.VM_IN_OTHER_NAMESPACE
    return warning(
        reason,
        f"Annotation {MACHINE_RECORD} says that this Node is VM {recorded}, and the cloud-config names namespace "
        f"{namespace}. Nothing is changed on the Node. Check the namespace in the cloud-config; if the VM was moved, "
        "delete the Node and restart its kubelet",
    )


def _unproven(node: Node, vm: VM) -> EventMessage:
    return warning(
        NodeReason.VM_OF_OTHER_MACHINE,
        f"The VM in the provider ID {node.spec.provider_id} no longer exists. VM {vm.object.metadata.key} can be "
        f"another machine: its firmware UUID is {vm.firmware_uuid or 'unknown'}, the Node's system UUID is "
        f"{node.status.node_info.system_uuid or 'unknown'}, and the Node was VM {recorded_vm(node)[1] or 'unknown'}. "
        "Nothing is changed on the Node. Check the namespace and the server in the cloud-config. If the VM replaces "
        f"the old one, let it join again: run kubectl delete node {node.metadata.name} and restart its kubelet",
    )


def _of_other_provider(node: Node) -> EventMessage:
    return warning(
        NodeReason.OTHER_PROVIDER,
        f"Provider ID {node.spec.provider_id} is another provider's, so the Node is left alone. If it is a VM of this "
        "Harvester, delete the Node and restart its kubelet without --provider-id: it joins with an ID of its own",
    )


def _of_other_node(vm: VM, index: VMIndex) -> EventMessage:
    owner = index.claims[vm.uid]
    return warning(
        NodeReason.VM_OF_OTHER_NODE,
        f"VM {index.cluster.namespace}/{vm.name} has this Node's name but is the machine of Node {owner} by its "
        f"provider ID. Delete Node {owner} if it is a left-over, or install qemu-guest-agent in this Node's VM",
    )


def _replaced(node: Node, vm: VM) -> EventMessage:
    return warning(
        NodeReason.VM_REPLACED,
        f"The VM in the provider ID {node.spec.provider_id} no longer exists; VM {vm.name} with UID {vm.uid} "
        "is taken for this Node. A provider ID cannot be changed: delete the Node to let it join with the new one",
    )
