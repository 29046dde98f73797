"""When something about a Node is told, and what is said about Harvester's answers."""

from __future__ import annotations

import pytest

from harvester_ccm.errors import CCMError, ConnectionRefused, CredentialError, HostUnknown, NotTrusted, Unreachable
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.events import harvester_note, new_events
from tests.worlds.node_objects import answered


def note(reason: NodeReason = NodeReason.NO_ADDRESS, message: str = "m", subject: str = "") -> EventMessage:
    return EventMessage("Warning", reason, message, subject)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param([], [note()], 1, id="first time"),
        pytest.param([note()], [note()], 0, id="still so"),
        pytest.param([note()], [note(message="12 s")], 0, id="other detail, same reason"),
        pytest.param([note()], [note(NodeReason.VM_NOT_FOUND)], 1, id="other reason"),
        pytest.param([note(subject="a")], [note(subject="b")], 1, id="other subject"),
        pytest.param([note()], [note(), note(NodeReason.TOPOLOGY_INVALID)], 1, id="one more"),
        pytest.param([], [note(), note()], 1, id="twice in one plan"),
        pytest.param([note()], [], 0, id="it is over"),
    ],
)
def test_told_once_per_reason(before: list[EventMessage], after: list[EventMessage], told: int) -> None:
    _, state = new_events(before, frozenset())
    assert len(new_events(after, state)[0]) == told


def test_told_again_when_it_comes_back() -> None:
    _, state = new_events([note()], frozenset())
    _, state = new_events([], state)
    assert new_events([note()], state)[0] == (note(),)


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        pytest.param(
            answered(403, "virtualmachines is forbidden"),
            "HARVESTER_FORBIDDEN",
            "to list VirtualMachines in namespace prod: virtualmachines is forbidden. Bind the ClusterRole",
            id="403",
        ),
        pytest.param(answered(401, "Unauthorized"), "HARVESTER_UNAVAILABLE", "(generate_addon.sh <account>", id="401"),
        pytest.param(
            CredentialError("no token"), "HARVESTER_UNAVAILABLE", "without the credential", id="no credential"
        ),
        pytest.param(Unreachable("timed out"), "HARVESTER_UNAVAILABLE", "cannot be reached", id="time-out"),
        pytest.param(HostUnknown("x"), "HARVESTER_UNAVAILABLE", "the DNS servers of the nodes", id="DNS"),
        pytest.param(ConnectionRefused("x"), "HARVESTER_UNAVAILABLE", "address and port of the server", id="refused"),
        pytest.param(NotTrusted("x"), "HARVESTER_UNAVAILABLE", "or the cloud-config is old", id="TLS"),
        pytest.param(answered(404, "no such kind"), "HARVESTER_UNAVAILABLE", "is the cloud-config's server", id="404"),
        pytest.param(answered(500, "boom"), "HARVESTER_UNAVAILABLE", "failed to list VirtualMachines", id="500"),
    ],
)
def test_harvesters_answer(error: CCMError, reason: str, words: str) -> None:
    said = harvester_note(error, action="list VirtualMachines", namespace="prod")
    assert said.reason.name == reason
    assert words in said.message
