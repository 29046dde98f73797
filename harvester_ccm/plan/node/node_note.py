"""What is said about a Node: why it waits, what is odd about it, what was done to it.

A note becomes an Event on the Node the first time it holds and again only after it stopped holding or its reason
changed; ``news`` decides that. The same notes are the sentences in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harvester_ccm.errors import CCMError, CredentialError, Forbidden, NotFound, Unauthorized, Unreachable
from harvester_ccm.model.outcome import EventType
from harvester_ccm.names import NodeReason


@dataclass(frozen=True)
class NodeNote:
    """One fact about a Node, in words for its owner."""

    reason: NodeReason
    message: str
    type: EventType = "Warning"
    subject: str = ""
    """What the note is about, where one reason can have several: an annotation's value, the VMs that clash."""

    @property
    def key(self) -> str:
        """What must change for the note to be told again. The message may carry volatile detail."""
        return f"{self.reason} {self.subject}"


def news(notes: Iterable[NodeNote], told: frozenset[str]) -> tuple[tuple[NodeNote, ...], frozenset[str]]:
    """Return the notes that were not told yet, and what to pass as ``told`` next time for this Node.

    A note that stopped holding is forgotten, so it is told again when it comes back. Forget the whole set when the
    Node is deleted: a Node that joins again is a new one.
    """
    current = {note.key: note for note in notes}
    fresh = tuple(note for key, note in current.items() if key not in told)
    return fresh, frozenset(current)


def write_note(error: CCMError) -> NodeNote:
    """Return why a write to the Node failed."""
    what_to_do = (
        "Grant the verb patch on nodes and nodes/status to the ClusterRole of this cloud controller manager"
        if isinstance(error, Forbidden)
        else "See what refuses it, for example an admission webhook"
    )
    return NodeNote(NodeReason.WRITE_REFUSED, f"The Node could not be written: {error}. {what_to_do}")


def harvester_note(error: CCMError, *, action: str, namespace: str) -> NodeNote:
    """Return why Harvester could not be asked about the VM of a Node. None of this ever means that the VM is gone.

    ``action`` is what was tried, for example ``list VirtualMachines``.
    """
    match error:
        case Forbidden():
            return NodeNote(
                NodeReason.HARVESTER_FORBIDDEN,
                f"Harvester forbids to {action} in namespace {namespace}: {error}. Bind the ClusterRole "
                "harvesterhci.io:cloudprovider to the service account of the cloud-config in that namespace",
                subject=action,
            )
        case Unauthorized() | CredentialError():
            text, subject = f"does not accept the credential in the cloud-config; renew it: {error}", "credential"
        case Unreachable():
            text, subject = f"cannot be reached; trying again: {error}", "unreachable"
        case NotFound():
            text, subject = f"does not know how to {action}; is the cloud-config's server a Harvester? {error}", "kind"
        case _:
            text, subject = f"failed to {action} in namespace {namespace}; trying again: {error}", "failing"
    return NodeNote(NodeReason.HARVESTER_UNAVAILABLE, f"Harvester {text}", subject=subject)
