"""Commands for people and scripts: look before and after, explain what the program does and why, tidy up.

They take the flags of the program, read the clusters with its credentials and call its plan functions, so they say
what the running program would do. Each is loaded only when it is called; the running program loads none.
"""

from __future__ import annotations

from typing import Final

from harvester_ccm.commands.definition import Command, Invocation

__all__ = ["COMMANDS", "Command", "Invocation"]


def _preflight(invocation: Invocation) -> int:
    from harvester_ccm.commands.preflight import run  # noqa: PLC0415 - loaded when called

    return run(invocation)


def _explain(invocation: Invocation) -> int:
    from harvester_ccm.commands.explain import run  # noqa: PLC0415 - loaded when called

    return run(invocation)


def _adopt(invocation: Invocation) -> int:
    from harvester_ccm.commands.adopt import run  # noqa: PLC0415 - loaded when called

    return run(invocation)


def _cleanup(invocation: Invocation) -> int:
    from harvester_ccm.commands.cleanup import run  # noqa: PLC0415 - loaded when called

    return run(invocation)


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "preflight", "Check both clusters as the running program would, and say what to do about faults.", _preflight
    ),
    Command(
        "explain",
        "Say what a Service or a Node is, what would be done about it now and why, from the clusters or from files.",
        _explain,
    ),
    Command("adopt", "Let a Service take over a load balancer that nothing proves to be its own.", _adopt),
    Command("cleanup", "List or delete the load balancers of a guest cluster that is gone.", _cleanup),
)
"""In the order of the help."""
