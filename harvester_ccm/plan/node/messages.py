"""Events on Nodes: state, cause and action.

A plan returns a message for every state that holds; the recorder drops repeated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harvester_ccm.errors import CCMError, CredentialError, Forbidden, NotServed, Unauthorized, Unreachable
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import (
    ADDITIONAL_INTERNAL_IPS,
    MACHINE_RECORD,
    NODE_DRIVER,
    PROVIDED_NODE_IP,
    UNINITIALIZED_TAINT,
    VM_CLUSTER,
    VM_CREATOR,
    NodeReason,
)
from harvester_ccm.netip import IPAddress, IPNetwork
from harvester_ccm.plan.node.interfaces import DroppedAddress, Nic
from harvester_ccm.plan.node.vms import VM, agent_connected, recorded_vm


def warning(reason: NodeReason, message: str, subject: str = "") -> EventMessage:
    """Return a Warning. Events with equal reason and subject are equal; without a subject, the message counts."""
    return EventMessage("Warning", reason, message, subject)


def write_failed(error: CCMError) -> EventMessage:
    """Return the Event for a rejected patch of a Node."""
    advice = "See what rejects it, for example an admission webhook"
    if isinstance(error, Forbidden):
        advice = "Grant the verb patch on nodes and nodes/status to the ClusterRole of this cloud controller manager"
    return warning(NodeReason.WRITE_REFUSED, f"The Node could not be written: {error}. {advice}")


def harvester_unavailable(error: CCMError, *, action: str, namespace: str) -> EventMessage:
    """Return the Event for a failed request to Harvester. None of these errors means that a VM is deleted.

    ``action`` is the request, for example ``list VirtualMachines``.
    """
    match error:
        case Forbidden():
            return warning(
                NodeReason.HARVESTER_FORBIDDEN,
                f"Harvester forbids the credential in the cloud-config to {action} in namespace {namespace}: {error}. "
                f"{error.remedy[0].upper()}{error.remedy[1:]}",
                subject=action,
            )
        case Unauthorized():
            text, subject = f"{error.meaning} (401). {error.remedy}", "credential"
        case CredentialError():
            text, subject = f"cannot be queried without the credential of the cloud-config: {error}", "credential"
        case Unreachable():
            text, subject = f"{error.meaning}; requests are retried. {error.remedy}: {error}", "unreachable"
        case NotServed():
            text, subject = f"does not know how to {action}; is the cloud-config's server a Harvester? {error}", "kind"
        case _:
            text, subject = f"failed to {action} in namespace {namespace}; trying again: {error}", "failing"
    return warning(NodeReason.HARVESTER_UNAVAILABLE, f"Harvester {text}", subject=subject)


def not_synced(namespace: str) -> EventMessage:
    """Return the Event for a Node whose VM is searched before the first list of VMs is complete."""
    text = f"The VMs in Harvester namespace {namespace} have not been listed yet"
    return warning(NodeReason.HARVESTER_UNAVAILABLE, text, subject="unsynced")


def vm_not_found(node: Node, cluster: ClusterIdentity) -> EventMessage:
    """Return the Event for a Node without a VM."""
    label = f"{VM_CLUSTER}={cluster.name}" if cluster.named else f"{VM_CREATOR}={NODE_DRIVER}"
    other_name = "must have its system UUID, because guests are not queried for host names"
    if cluster.asks_guests:
        other_name = f"must run qemu-guest-agent and have the label {label}"
    return warning(
        NodeReason.VM_NOT_FOUND,
        f"No VM of that name in namespace {cluster.namespace} of Harvester, and none with this Node's provider "
        f"ID, system UUID or guest host name {node.metadata.name}. Check the namespace in the cloud-config; a VM with "
        f"another name than its Node {other_name}",
    )


def ambiguous(names: Sequence[str], identity: str) -> EventMessage:
    """Return the Event for a Node that several VMs match equally."""
    text = f"Several VMs have the {identity}: {', '.join(names)}"
    return warning(
        NodeReason.VM_AMBIGUOUS, f"{text}. Give each its own, or set the label {VM_CLUSTER} on the VMs of this cluster"
    )


def other_cluster(vm: VM, cluster: ClusterIdentity) -> EventMessage:
    """Return the Event for a Node whose name is that of another cluster's VM."""
    return warning(
        NodeReason.VM_OF_OTHER_CLUSTER,
        f"VM {vm.object.metadata.key} has this Node's name but its label {VM_CLUSTER} is "
        f"{vm.cluster_label!r}, and this cluster is {cluster.name!r}. Correct the label or --cluster-name",
    )


def other_machine(node: Node, vm: VM) -> EventMessage:
    """Return the Event for a VM that is, or can be, another machine than the Node."""
    before = f"; the VM in its provider ID {node.spec.provider_id} does not exist" if node.spec.provider_id else ""
    name, recorded = node.metadata.name, recorded_vm(node)[1] or "unknown"
    return warning(
        NodeReason.VM_OF_OTHER_MACHINE,
        f"VM {vm.object.metadata.key} can be another machine than this Node: its firmware UUID is "
        f"{vm.firmware_uuid or 'unknown'}, the Node's system UUID is {node.status.node_info.system_uuid or 'unknown'}, "
        f"the recorded VM of the Node is {recorded}{before}. Nothing is changed on the Node. Check the namespace and "
        "the server in the cloud-config. If the VM replaces the old one, let it join again: run "
        f"kubectl delete node {name} and restart its kubelet",
        subject=vm.uid,
    )


def other_namespace(node: Node, namespace: str, *, is_suspect: bool) -> EventMessage:
    """Return the Event for a Node that is recorded as a VM of another namespace.

    ``is_suspect``: the namespace in the cloud-config is probably wrong.
    """
    reason = NodeReason.VM_IN_OTHER_NAMESPACE if is_suspect else NodeReason.VM_NOT_FOUND
    recorded = node.metadata.annotation(MACHINE_RECORD) or ""
    return warning(
        reason,
        f"Annotation {MACHINE_RECORD} says that this Node is VM {recorded}, and the cloud-config names namespace "
        f"{namespace}. Nothing is changed on the Node. Check the namespace in the cloud-config; if the VM was moved, "
        "delete the Node and restart its kubelet",
    )


def other_provider(node: Node) -> EventMessage:
    """Return the Event for a new Node with the provider ID of another provider."""
    return warning(
        NodeReason.OTHER_PROVIDER,
        f"Provider ID {node.spec.provider_id} is another provider's, so the Node is ignored. If it is a VM of this "
        "Harvester, delete the Node and restart its kubelet without --provider-id: it joins with an ID of its own",
    )


def other_node(vm: VM, owner: str) -> EventMessage:
    """Return the Event for a VM with the Node's name that another Node has as provider ID."""
    return warning(
        NodeReason.VM_OF_OTHER_NODE,
        f"VM {vm.object.metadata.key} has this Node's name but is in the provider ID of Node {owner}. Delete Node "
        f"{owner} if it is not used any more, or install qemu-guest-agent in this Node's VM",
    )


def vm_replaced(node: Node, vm: VM) -> EventMessage:
    """Return the Event for a Node whose VM was restored with another UID."""
    return warning(
        NodeReason.VM_REPLACED,
        f"The VM in the provider ID {node.spec.provider_id} no longer exists; VM {vm.name} with UID {vm.uid} "
        "is taken for this Node. A provider ID cannot be changed: delete the Node to let it join with the new one",
    )


def not_running(vm: VM) -> EventMessage:
    """Return the note for a VM that has no VMI."""
    status = vm.object.status.printable_status if vm.object.status else ""
    return warning(
        NodeReason.VM_NOT_RUNNING,
        f"VM {vm.object.metadata.key} is not running (status {status or 'unknown'}), so it has no address yet",
    )


def no_provider_id(vm: VM) -> EventMessage:
    """Return the note for a Node that was not initialised by any cloud controller manager."""
    return warning(
        NodeReason.NO_PROVIDER_ID,
        f"This Node is VM {vm.object.metadata.key} and has no provider ID, because it joined without the taint "
        f"{UNINITIALIZED_TAINT}. Its addresses and labels follow the VM, but it is not deleted with it. Run its "
        "kubelet with --cloud-provider=external, delete the Node and restart the kubelet",
    )


def no_network(vmi: VirtualMachineInstance, network: str | None) -> EventMessage:
    """Return the note for a VM without an interface that counts."""
    name, attached = vmi.metadata.key, ", ".join(vmi.spec.multus_networks.values())
    if attached:
        text = f"VM {name} has no interface in --management-network {network}; its networks: {attached}"
    else:
        wanted = f"VM network {network}, which --management-network names," if network else "a VM network"
        text = (
            f"VM {name} is only in Harvester's management (pod) network, whose addresses change. Give it {wanted} as "
            "first or second network; --management-network never means Harvester's management network"
        )
    return warning(NodeReason.NO_MANAGEMENT_NETWORK, text, subject=network or "")


def guessed_network(nic: Nic) -> EventMessage:
    """Return the note for a VM with several interfaces of which none was asked for."""
    return warning(
        NodeReason.NETWORK_GUESSED,
        f"The VM has several network interfaces ({', '.join(nic.guessed_among)}); the addresses of {nic.name!r} in "
        f"network {nic.network} are used. Name the network with --management-network",
    )


def no_address(vmi: VirtualMachineInstance, nic: Nic, dropped: Sequence[DroppedAddress]) -> EventMessage:
    """Return the note for an interface without a usable address."""
    where = f"VM {vmi.metadata.key} has no address yet on network {nic.network}"
    if dropped:
        held = (f"{entry.reason}: {entry.holder}" if entry.holder else entry.reason for entry in dropped)
        unusable = ", ".join(f"{entry.address} ({why})" for entry, why in zip(dropped, held, strict=True))
        text = f"{where}: unusable are {unusable}. Does the guest get an address from DHCP or its configuration?"
    elif agent_connected(vmi):
        text = f"{where}: qemu-guest-agent is connected but reports none. Does the guest configure this interface?"
    else:
        text = f"{where}: is qemu-guest-agent installed and running in the guest?"
    return warning(NodeReason.NO_ADDRESS, text)


def unreported(internal_ips: Sequence[IPAddress], vmi: VirtualMachineInstance) -> EventMessage:
    """Return the note for an InternalIP that none of several interfaces reports, of which more than one may have it."""
    names = ", ".join(map(str, internal_ips))
    text = f"No interface of VM {vmi.metadata.key} reports {names}, and which of them has it is not known yet"
    return warning(NodeReason.NO_ADDRESS, f"{text}. The Node keeps its addresses")


def no_longer_reported(
    internal_ips: Sequence[IPAddress], vmi: VirtualMachineInstance, others: Mapping[str, Sequence[IPAddress]]
) -> EventMessage:
    """Return the note for an InternalIP that seems gone, where several interfaces may have the one in its place.

    ``others`` are the addresses that are reported instead, by the name of the interface.
    """
    names = ", ".join(map(str, internal_ips))
    seen = "; ".join(f"{name} has {', '.join(map(str, usable)) or 'none'}" for name, usable in others.items())
    text = (
        f"No interface of VM {vmi.metadata.key} reports {names} any more ({seen}), and which of them the Node is to "
        "follow is not known. The Node keeps its addresses until one reports that again. Name the network with "
        "--management-network, or the address with the kubelet's --node-ip"
    )
    return warning(NodeReason.NO_INTERNAL_IP, text, subject=f"unreported {names}")


def no_internal_ip(nic: Nic, reported: Sequence[IPAddress], cidrs: Sequence[IPNetwork]) -> EventMessage:
    """Return the note for addresses none of which may be the InternalIP."""
    seen, ranges = ", ".join(map(str, reported)), ", ".join(map(str, cidrs))
    text = f"None of the VM's addresses on network {nic.network} ({seen}) is inside --node-ip-cidr {ranges}"
    return warning(NodeReason.NO_INTERNAL_IP, f"{text}. Correct the flag or the address", subject=ranges)


def invalid_provided(value: str, cause: str) -> EventMessage:
    """Return the note for an annotation that cannot be read."""
    text = f"Annotation {PROVIDED_NODE_IP} {cause}. It is ignored; correct the kubelet's --node-ip"
    return warning(NodeReason.PROVIDED_IP_INVALID, text, subject=value)


def invalid_additional(value: str, cause: str) -> EventMessage:
    """Return the note for an annotation that cannot be read, or only in part."""
    text = (
        f"Annotation {ADDITIONAL_INTERNAL_IPS} is {value!r}, expected a JSON list of IP addresses such as "
        f'["10.0.0.5"]: {cause}. What cannot be read is ignored'
    )
    return warning(NodeReason.ADDITIONAL_IPS_INVALID, text, subject=value)


def internal_ip_changed(before: Sequence[str], after: Sequence[str], why: Mapping[str, str]) -> EventMessage:
    """Return what to tell when InternalIPs of an initialised Node were written; ``why`` is of those that differ."""
    reasons = "; ".join(f"{address}: {because}" for address, because in why.items())
    text = f"InternalIP changed from {', '.join(before) or 'none'} to {', '.join(after)} ({reasons})"
    return warning(NodeReason.INTERNAL_IP_CHANGED, text, subject=",".join(after))


def virtual_ips_unread(source: str, error: CCMError | None) -> EventMessage:
    """Return the note for a new Node while what has virtual IPs cannot be listed; no error: there is no answer yet."""
    if error is None:
        text = f"{source} have not been listed yet. The Node waits for that, as their addresses may not become its own"
        return warning(NodeReason.VIRTUAL_IPS_UNREAD, text, subject=source)
    text = (
        f"{source} cannot be listed: {error}. The Node is initialised nevertheless, and an address of its VM that is "
        "a load balancer's may become its own. Let the program list and watch them"
    )
    return warning(NodeReason.VIRTUAL_IPS_UNREAD, text, subject=source)


def provided_elsewhere(misplaced: Sequence[IPAddress], elsewhere: Mapping[IPAddress, str], nic: Nic) -> EventMessage:
    """Return the note for a kubelet's address that the VM has in another network than the one that counts."""
    names = ", ".join(map(str, misplaced))
    interfaces = ", ".join(sorted({elsewhere[address] for address in misplaced}))
    return warning(
        NodeReason.PROVIDED_IP_NOT_FOUND,
        f"Annotation {PROVIDED_NODE_IP} names {names}, which the VM has on interface {interfaces} and not on network "
        f"{nic.network} ({nic.because}). A new Node waits, and one that has addresses keeps them. Name the network of "
        f"interface {interfaces} with --management-network, or correct the kubelet's --node-ip",
        subject=names,
    )


def provided_awaited(
    awaited: Sequence[IPAddress], vmi: VirtualMachineInstance, nic: Nic | None, reported: Sequence[IPAddress]
) -> EventMessage:
    """Return the note for a kubelet's address that the VM does not report yet."""
    names = ", ".join(map(str, awaited))
    text = (
        f"Annotation {PROVIDED_NODE_IP} names {names}, which {_unseen(vmi, nic, reported)}. It is waited for, and "
        "then becomes the InternalIP all the same. Correct the kubelet's --node-ip if the VM does not have it"
    )
    return warning(NodeReason.PROVIDED_IP_NOT_FOUND, text, subject=f"awaited {names}")


def provided_missing(missing: Sequence[IPAddress], reported: Sequence[IPAddress], nic: Nic | None) -> EventMessage:
    """Return the note for a kubelet's address in whose place another one stays or was chosen."""
    names, seen = ", ".join(map(str, missing)), ", ".join(map(str, reported))
    where = f" on network {nic.network} (it has {seen})" if nic else ""
    return warning(
        NodeReason.PROVIDED_IP_NOT_FOUND,
        f"Annotation {PROVIDED_NODE_IP} names {names}, which the VM does not have{where}; another address is used. "
        "Correct the kubelet's --node-ip or the address of the VM",
        subject=names,
    )


def provided_trusted(
    trusted: Sequence[IPAddress], vmi: VirtualMachineInstance, nic: Nic | None, reported: Sequence[IPAddress]
) -> EventMessage:
    """Return the note for a kubelet's address that is used although the VM does not report it."""
    names = ", ".join(map(str, trusted))
    text = (
        f"{names} is the InternalIP because annotation {PROVIDED_NODE_IP} names it. It {_unseen(vmi, nic, reported)}; "
        "correct the kubelet's --node-ip if the VM does not have it"
    )
    return warning(NodeReason.PROVIDED_IP_TRUSTED, text, subject=names)


def _unseen(vmi: VirtualMachineInstance, nic: Nic | None, reported: Sequence[IPAddress]) -> str:
    """Return how an address is not known from the VM: goes on after "which"."""
    if nic is None:
        return "cannot be reported, because the VM is only in Harvester's management (pod) network"
    seen = ", ".join(map(str, reported)) or "none"
    text = f"is not among the addresses that the VM reports on network {nic.network} ({seen})"
    return text if agent_connected(vmi) else f"{text}: is qemu-guest-agent installed and running in the guest?"


def excluded_used(addresses: Sequence[IPAddress]) -> EventMessage:
    """Return the note for an excluded address that is the InternalIP nevertheless."""
    used = ", ".join(map(str, addresses))
    text = f"{used} is in --node-exclude-ip-ranges, and the InternalIP because the VM has no other of its family"
    return warning(NodeReason.EXCLUDED_ADDRESS_USED, f"{text}. Correct the flag", subject=used)
