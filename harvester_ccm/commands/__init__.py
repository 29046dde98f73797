"""Commands for people and scripts: look before and after, explain what the program does and why, tidy up.

They take the flags of the program, read the clusters with its credentials and call its plan functions, so they say
what the running program would do. Each is loaded only when it is called; the running program loads none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from msgspec import Struct

EXIT_OK: Final = 0
"""All is right, or there is nothing to do."""
EXIT_PROBLEMS: Final = 1
"""Something was found that somebody has to see to, or a cluster could not be asked."""
EXIT_USAGE: Final = 2
"""The command line or a file on it cannot be used; nothing was done."""


class Invocation(Struct, frozen=True):
    """How the program was called."""

    program: str
    """Name to show in the help."""
    words: tuple[str, ...]
    """Arguments, without a command's name."""
    environment: Mapping[str, str]
    proc: Path = Path("/proc")
    """The proc filesystem, which has the command line of the running program."""


class Command(Struct, frozen=True):
    """A subcommand: the first argument, when it is this name."""

    name: str
    summary: str
    """One sentence for the help."""
    run: Callable[[Invocation], int]
    """Returns the exit code; errors of the ``CCMError`` family are reported as for a plain run."""


_SUMMARIES: Final = {
    "status": "Show the whole at one look: Services, Nodes, both clusters, what is wrong first.",
    "preflight": "Check both clusters as the running program would, and say what to do about faults.",
    "explain": "Say what a Service or a Node is, what would be done about it now and why.",
    "cleanup": "List or delete the load balancers of a guest cluster that is gone.",
    "completion": "Print the script that completes command lines in bash, zsh or fish.",
}

HELP: Final = ("help", "Show the help, or that of a command.")
VERSION: Final = ("version", "Show the version.")
"""Words that are no commands of their own."""


def _load_and_run(module: str, invocation: Invocation) -> int:
    """Run a module of this package, which is loaded only now, and return its exit code."""
    code: int = import_module(f"{__name__}.call").perform(invocation, import_module(f"{__name__}.{module}").MANUAL)
    return code


COMMANDS: Final = tuple(Command(name, text, partial(_load_and_run, name)) for name, text in _SUMMARIES.items())
"""In the order of the help."""
