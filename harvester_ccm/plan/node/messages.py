"""Events on Nodes: state, cause and action, by reason.

A plan returns a message for every state that holds; the recorder drops repeated ones.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from harvester_ccm.kube.errors import ApiError, Forbidden, KubeError, Unauthorized, Unreachable, WebhookFailed
from harvester_ccm.model.core import Node
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import UNINITIALIZED_TAINT, VM_CLUSTER, NodeReason
from harvester_ccm.remedies import problem_of, remedy_of


class Template(Struct, frozen=True):
    """The fields of an Event, with the names of what differs in braces."""

    cause: str
    remedy: str = ""
    command: str = ""
    answer: str = ""


_DELETE_NODE: Final = "kubectl delete node {node}"
TEMPLATES: Final[Mapping[NodeReason, Template]] = {
    NodeReason.VM_NOT_FOUND: Template(
        "No VM in namespace {namespace} of Harvester has this Node's provider ID, system UUID, name, or guest host "
        "name {node}",
        "If its VM is in another namespace, correct that of the cloud-config. If its VM has another name, {need}. If "
        "the machine is not a VM of this Harvester, remove taint {taint} from the Node, or give its kubelet another "
        "--provider-id",
    ),
    NodeReason.VM_AMBIGUOUS: Template(
        "Several VMs have the {identity}: {names}",
        "{remedy}",
    ),
    NodeReason.VM_CLUSTER_MISMATCH: Template(
        "VM {vm} has this Node's {identity}, but its label {cluster_label} is {label!r}, and this cluster is "
        "{cluster!r}. {effect}",
        "Correct --cluster-name, or with the kubeconfig of Harvester the label: in the template of the VM "
        "(spec.template.metadata.labels) for its next start, and on the object that counts now",
        "kubectl label --overwrite {kind}.kubevirt.io -n {namespace} {name} {cluster_label}={cluster}",
    ),
    NodeReason.VM_IDENTITY_MISMATCH: Template(
        "VM {vm} might be a clone: it is not recorded on this Node, or has another UUID. {effect}",
        "Check the namespace and the server in the cloud-config. To accept the VM, delete the Node and restart its "
        "kubelet",
        _DELETE_NODE,
        "Firmware UUID {firmware}, system UUID {system}, provider ID {provider_id}, recorded VM {recorded}",
    ),
    NodeReason.VM_IN_USE: Template(
        "VM {vm} is in the provider ID of Node {owner}, and Node {node} has its {identity}. {effect}",
        "Delete the Node that is not used any more. If both are used, the VM of Node {node} is another one: give it a "
        "name, a host name and a firmware UUID of its own, and install qemu-guest-agent in it",
    ),
    NodeReason.PROVIDER_MISMATCH: Template(
        "Provider ID {provider_id} is another provider's, so the Node is ignored",
        "If it is a VM of this Harvester, end what sets that ID: usually a second cloud controller manager (start K3s "
        "with --disable-cloud-controller and RKE2 with disable-cloud-controller: true; uninstall that of Talos), else "
        "the kubelet's --provider-id. Then delete the Node and restart its kubelet",
    ),
    NodeReason.VM_REPLACED: Template(
        "The VM in the provider ID {provider_id} no longer exists; VM {vm} with UID {uid} is taken for this Node",
        "A provider ID cannot be changed: delete the Node to let it join with the new one",
    ),
    NodeReason.VM_NOT_RUNNING: Template(
        "VM {vm} {state} in Harvester (status {status}), so {effect}", "{remedy}", "{command}", "{answer}"
    ),
    NodeReason.KUBELET_NOT_REPORTING: Template(
        "VM {vm} runs in Harvester (status {status}), but the kubelet of this Node does not report",
        "Check the kubelet and the network in the VM",
        "{command}",
    ),
    NodeReason.NO_PROVIDER_ID: Template(
        "This Node is VM {vm} and has no provider ID, because it joined without the taint {taint}. Its addresses and "
        "labels follow the VM, but it is not deleted with it",
        "Run its kubelet with --cloud-provider=external, delete the Node and restart the kubelet",
    ),
    NodeReason.NO_VM_NETWORK: Template(
        "VM {vm} has no interface in {network}; its VM networks: {attached}. Harvester's own management (pod) network "
        "does not count, because its addresses change",
        "Attach the VM to a VM network, or correct --management-network",
    ),
    NodeReason.NETWORK_DEFAULTED: Template(
        "The VM has several network interfaces ({nics}); the addresses of {nic!r} in network {network} are used",
        "Name the network with --management-network",
    ),
    NodeReason.NO_ADDRESS: Template("VM {vm} has no address yet on network {network}{unusable}", "{advice}"),
    NodeReason.NO_INTERNAL_IP: Template(
        "{state}", "Correct the address, --node-ip-cidr, --management-network or the kubelet's --node-ip"
    ),
    NodeReason.INVALID_ANNOTATION: Template("Annotation {annotation} is {value!r}, expected {expected}. It is ignored"),
    NodeReason.NODE_IP_NOT_REPORTED: Template(
        "The VM does not report the kubelet's --node-ip {addresses} on network {network} (reported: {own}){elsewhere}. "
        "A new Node uses it after 60 s; an initialized Node keeps its InternalIP",
        "{advice}, or correct --node-ip, the address of the VM or --management-network",
    ),
    NodeReason.NODE_IP_IN_POD_NETWORK: Template(
        "VM {vm} has {address} behind Harvester's management (pod) network: other nodes cannot reach it there, and it "
        "is the same on every VM or changes with each start. {effect}",
        "Set the kubelet's --node-ip (RKE2, K3s: node-ip) to {choices}, and restart the kubelet",
    ),
    NodeReason.INTERNAL_IP_IN_USE: Template(
        "Nodes {nodes} have the address {address}, and both VMs run. A Node that was initialized with it keeps it, "
        "and no other Node gets it",
        "Give one of the Nodes another address: check --node-ip of the kubelets, static addresses, DHCP, and machine "
        "IDs that were cloned with an image. If a Node is not used any more, stop its VM",
    ),
    NodeReason.INTERNAL_IP_CHANGED: Template("InternalIP changes from {before} to {after} ({reasons})"),
    NodeReason.DELETION_BLOCKED: Template(
        "The VM of this Node does not exist, but deletion is blocked: {why}",
        "If the VM is deleted, delete the Node",
        _DELETE_NODE,
    ),
    NodeReason.DELETION_FAILED: Template(
        "Failed deleting node {node}", "{advice}, or delete the Node", _DELETE_NODE, "API server: {error}"
    ),
    NodeReason.UPDATE_REJECTED: Template(
        "The API server rejected the update of this Node: it cannot be initialized, and its addresses cannot follow "
        "the VM",
        "{advice}",
        answer="API server: {error}",
    ),
}
"""The fields of each Event. What differs are the keyword arguments of ``warning``, and ``_NAMES``."""
_NAMES: Final = {
    "cluster_label": VM_CLUSTER,
    "taint": UNINITIALIZED_TAINT,
}


def warning(reason: NodeReason, subject: str = "", **fields: object) -> EventMessage:
    """Return a Warning. Events with equal reason and subject are equal; without a subject, the message counts.

    A sequence is printed as a list.
    """
    values: dict[str, object] = dict(_NAMES)
    for name, value in fields.items():
        if isinstance(value, tuple | list):
            values[name] = ", ".join(map(str, value)) or "none"
        else:
            values[name] = value
    template = TEMPLATES[reason]
    return EventMessage(
        "Warning",
        reason,
        cause=template.cause.format(**values),
        remedy=template.remedy.format(**values),
        command=template.command.format(**values),
        answer=template.answer.format(**values),
        subject=subject,
    )


def invalid_annotation(annotation: str, value: str, expected: str) -> EventMessage:
    """Return the Warning about an annotation of the Node or its VM that is ignored."""
    subject = f"{annotation}={value}"
    return warning(NodeReason.INVALID_ANNOTATION, subject, annotation=annotation, value=value, expected=expected)


def harvester_unavailable(error: KubeError | None) -> EventMessage:
    """Return the Event while VMs or VMIs cannot be read, which never means that a VM is deleted.

    No error: there is no response yet.
    """
    if error is None:
        return _unavailable("Harvester has not listed its VMs yet", subject=type(error).__name__)
    answer = f"Harvester: {error}" if isinstance(error, ApiError) else f"Error: {error}"
    match error:
        case Forbidden():
            cause = "Harvester forbids the credential in the cloud-config to read VMs"
            # The answer names the missing permission, and each one needs an Event.
            return _unavailable(cause, remedy_of(error), answer, subject="")
        case Unauthorized() | Unreachable():
            problem = problem_of(error)
            cause = f"Harvester {problem}; requests are retried"
            return _unavailable(cause, remedy_of(error), answer, subject=problem)
    cause = "Harvester failed to list its VMs; requests are retried"
    return _unavailable(cause, answer=answer, subject=type(error).__name__)


def _unavailable(cause: str, remedy: str = "", answer: str = "", *, subject: str) -> EventMessage:
    reason = NodeReason.HARVESTER_UNAVAILABLE
    return EventMessage("Warning", reason, cause, remedy, answer=answer, subject=subject)


def write_failed(node: Node, error: KubeError, *, deletion: bool = False) -> EventMessage:
    """Return the Event for a patch or a deletion of a Node that the API server of the guest cluster rejected."""
    verb = "delete" if deletion else "update"
    advice = f"Allow the service account of this controller to {verb} Nodes in the policy or webhook that rejects it"
    if isinstance(error, WebhookFailed):
        advice = "Check that the pods of that webhook run"
    if isinstance(error, Forbidden):
        verb = "delete on nodes" if deletion else "patch on nodes and nodes/status"
        advice = f"Grant the verb {verb} to the ClusterRole of this cloud controller manager"
    reason = NodeReason.DELETION_FAILED if deletion else NodeReason.UPDATE_REJECTED
    return warning(reason, type(error).__name__, node=node.metadata.name, error=error, advice=advice)
