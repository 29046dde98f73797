"""When something about a Node is told, and what is said about Harvester's answers."""

from __future__ import annotations

import pytest

from harvester_ccm.errors import CCMError, ConnectionRefused, CredentialError, HostUnknown, NotTrusted, Unreachable
from harvester_ccm.plan.node.messages import harvester_unavailable
from tests.worlds.node_objects import answered


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
    said = harvester_unavailable(error, action="list VirtualMachines", namespace="prod")
    assert said.reason.name == reason
    assert words in said.message
