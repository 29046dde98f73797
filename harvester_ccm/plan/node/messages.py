"""Events on Nodes: state, cause and action, by reason.

A plan returns a message for every state that holds; the recorder drops repeated ones.
"""

from collections.abc import Mapping
from typing import Final

from harvester_ccm.errors import CCMError, Forbidden, Unauthorized, Unreachable
from harvester_ccm.model.core import Node
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import PROVIDED_NODE_IP, UNINITIALIZED_TAINT, VM_CLUSTER, NodeReason

TEXTS: Final[Mapping[NodeReason, str]] = {
    NodeReason.VM_NOT_FOUND: "No VM in namespace {namespace} of Harvester has this Node's provider ID, system UUID, "
    "name, or guest host name {node}. Check the namespace in the cloud-config; a VM with another name than its Node "
    "must {need}",
    NodeReason.VM_AMBIGUOUS: "Several VMs have the {identity}: {names}. Give each its own, or set the label "
    "{cluster_label} on the VMs of this cluster",
    NodeReason.VM_CLUSTER_MISMATCH: "VM {vm} has this Node's name but its label {cluster_label} is {label!r}, and this "
    "cluster is {cluster!r}. Correct the label or --cluster-name",
    NodeReason.VM_IDENTITY_MISMATCH: "VM {vm} can be another machine than this Node: its firmware UUID is {firmware}, "
    "the Node's system UUID is {system}, its provider ID is {provider_id}, and its recorded VM is {recorded}. Nothing "
    "is changed on the Node. Check the namespace and the server in the cloud-config. If the VM replaces the old one, "
    "let it join again: run kubectl delete node {node} and restart its kubelet",
    NodeReason.VM_IN_USE: "VM {vm} has this Node's name but is in the provider ID of Node {owner}. Delete Node "
    "{owner} if it is not used any more, or install qemu-guest-agent in this Node's VM",
    NodeReason.PROVIDER_MISMATCH: "Provider ID {provider_id} is another provider's, so the Node is ignored. If it is a "
    "VM of this Harvester, delete the Node and restart its kubelet without --provider-id",
    NodeReason.VM_REPLACED: "The VM in the provider ID {provider_id} no longer exists; VM {vm} with UID {uid} is taken "
    "for this Node. A provider ID cannot be changed: delete the Node to let it join with the new one",
    NodeReason.VM_NOT_RUNNING: "VM {vm} is not running (status {status}), so it has no address yet",
    NodeReason.NO_PROVIDER_ID: "This Node is VM {vm} and has no provider ID, because it joined without the taint "
    "{taint}. Its addresses and labels follow the VM, but it is not deleted with it. Run its kubelet with "
    "--cloud-provider=external, delete the Node and restart the kubelet",
    NodeReason.NO_MANAGEMENT_NETWORK: "VM {vm} has no interface in {network}; its VM networks: {attached}. Harvester's "
    "own management (pod) network does not count, because its addresses change. Attach the VM to a VM network, or "
    "correct --management-network",
    NodeReason.NETWORK_DEFAULTED: "The VM has several network interfaces ({nics}); the addresses of {nic!r} in network "
    "{network} are used. Name the network with --management-network",
    NodeReason.NO_ADDRESS: "VM {vm} has no address yet on network {network}{unusable}. {advice}",
    NodeReason.NO_INTERNAL_IP: "{state}. Correct the address, --node-ip-cidr, --management-network or the kubelet's "
    "--node-ip",
    NodeReason.INVALID_ANNOTATION: "Annotation {annotation} is {value!r}, expected {expected}. It is ignored",
    NodeReason.PROVIDED_IP_NOT_FOUND: "Annotation {node_ip_annotation} names {addresses}, which the VM does not report "
    "on network {network} ({own}), but on interface {others}. A new Node waits for it for a minute and then uses it. "
    "An initialized one keeps its InternalIP. {advice}, or correct the kubelet's --node-ip, the address of the VM or "
    "--management-network",
    NodeReason.INTERNAL_IP_CHANGED: "InternalIP changed from {before} to {after} ({reasons})",
    NodeReason.DELETION_BLOCKED: "The VM of this Node was not found in Harvester, but the Node is not deleted: {why}. "
    "If its VM is gone for good, run: kubectl delete node {node}",
    NodeReason.DELETION_FAILED: "Failed deleting node {node}: {error}. {advice}, or run: kubectl delete node {node}",
    NodeReason.WRITE_REFUSED: "The Node could not be written: {error}. {advice}",
}
"""Text by reason. The fields are the keyword arguments of ``warning``, and ``_NAMES``."""
_NAMES: Final = {
    "cluster_label": VM_CLUSTER,
    "node_ip_annotation": PROVIDED_NODE_IP,
    "taint": UNINITIALIZED_TAINT,
}


def warning(reason: NodeReason, subject: str = "", **fields: object) -> EventMessage:
    """Return a Warning. Events with equal reason and subject are equal; without a subject, the message counts.

    A sequence is printed as a list.
    """
    texts = {
        name: ", ".join(map(str, value)) or "none" if isinstance(value, tuple | list) else value
        for name, value in fields.items()
    }
    return EventMessage("Warning", reason, TEXTS[reason].format(**_NAMES, **texts), subject)


def invalid_annotation(annotation: str, value: str, expected: str) -> EventMessage:
    """Return the Warning about an annotation of the Node or its VM that is ignored."""
    subject = f"{annotation}={value}"
    return warning(NodeReason.INVALID_ANNOTATION, subject, annotation=annotation, value=value, expected=expected)


def harvester_unavailable(error: CCMError | None) -> EventMessage:
    """Return the Event while VMs or VMIs cannot be read, which never means that a VM is deleted.

    No error: there is no response yet.
    """
    reason, subject = NodeReason.HARVESTER_UNAVAILABLE, type(error).__name__
    match error:
        case None:
            text = "Harvester has not listed its VMs yet"
        case Forbidden():
            reason, subject = NodeReason.HARVESTER_FORBIDDEN, ""
            text = f"Harvester forbids the credential in the cloud-config to read VMs: {error}. {error.remedy}"
        case Unauthorized() | Unreachable():
            text, subject = f"Harvester {error.summary}; requests are retried. {error.remedy}: {error}", error.summary
        case _:
            text = f"Harvester failed to list its VMs; requests are retried: {error}"
    return EventMessage("Warning", reason, text, subject)


def write_failed(node: Node, error: CCMError, *, deletion: bool = False) -> EventMessage:
    """Return the Event for a patch or a deletion of a Node that the API server of the guest cluster rejected."""
    advice = "See what rejects it, for example an admission policy or webhook"
    if isinstance(error, Forbidden):
        verb = "delete on nodes" if deletion else "patch on nodes and nodes/status"
        advice = f"Grant the verb {verb} to the ClusterRole of this cloud controller manager"
    reason, subject = NodeReason.DELETION_FAILED if deletion else NodeReason.WRITE_REFUSED, type(error).__name__
    return warning(reason, subject, node=node.metadata.name, error=error, advice=advice)
