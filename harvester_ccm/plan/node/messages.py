"""Events on Nodes that several rules emit; the message of a single rule is next to it.

A plan returns a message for every state that holds; the recorder drops repeated ones.
"""

from collections.abc import Iterable

from harvester_ccm.kube.errors import (
    AdmissionDenied,
    ApiError,
    Forbidden,
    Invalid,
    KubeError,
    Unauthorized,
    Unreachable,
    WebhookFailed,
)
from harvester_ccm.model.core import Node
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import NodeReason
from harvester_ccm.remedies import GUEST_WEBHOOK_AWAY, problem_of, remedy_of


def listed(values: Iterable[object]) -> str:
    """Return values for a sentence."""
    return ", ".join(map(str, values)) or "none"


def invalid_annotation(annotation: str, value: str, expected: str) -> EventMessage:
    """Return the Warning about an annotation of the Node or its VM that is ignored."""
    cause = f"Annotation {annotation} is {value!r}, expected {expected}. It is ignored"
    return EventMessage("Warning", NodeReason.INVALID_ANNOTATION, cause, subject=f"{annotation}={value}")


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
    """Return the Event for a patch or a deletion of a Node that failed in the guest cluster."""
    verb = "delete" if deletion else "update"
    advice = "The controller tries again; check the API servers of this cluster"
    if isinstance(error, AdmissionDenied | Invalid):
        advice = (
            f"Allow the service account of this controller to {verb} Nodes in the policy or webhook that rejects it"
        )
    if isinstance(error, WebhookFailed):
        advice = GUEST_WEBHOOK_AWAY
    if isinstance(error, Forbidden):
        verb = "delete on nodes" if deletion else "patch on nodes and nodes/status"
        advice = f"Grant the verb {verb} to the ClusterRole of this cloud controller manager"
    answer = f"API server: {error}"
    subject = type(error).__name__
    if not deletion:
        cause = (
            "The API server rejected the update of this Node: it cannot be initialized, and its addresses cannot "
            "follow the VM"
        )
        return EventMessage("Warning", NodeReason.UPDATE_REJECTED, cause, advice, answer=answer, subject=subject)
    return EventMessage(
        "Warning",
        NodeReason.DELETION_FAILED,
        f"Failed deleting node {node.metadata.name}",
        f"{advice}, or delete the Node",
        deletion_command(node),
        answer=answer,
        subject=subject,
    )


def deletion_command(node: Node) -> str:
    """Return the command that deletes a Node."""
    return f"kubectl delete node {node.metadata.name}"
