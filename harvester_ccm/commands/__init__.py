"""Commands that show, check and clean up both clusters.

They take the flags of the controller, list the clusters with its credentials and call its plan functions. A module is
loaded only when its command runs; the controller loads none.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from msgspec import Struct

EXIT_OK: Final = 0
"""All is well, or there is nothing to do."""
EXIT_PROBLEMS: Final = 1
"""There is a problem, or a cluster or the cloud-config cannot be read."""
EXIT_USAGE: Final = 2
"""The command line or, except by ``preflight``, the kubeconfig of the guest cluster cannot be used."""


class Invocation(Struct, frozen=True):
    """The command line of this call."""

    program: str
    """Name to show in the help."""
    words: tuple[str, ...]
    """Arguments, without the name of the command."""
    environment: Mapping[str, str]
    proc: Path = Path("/proc")
    """The proc filesystem, which has the command line of the controller."""


class Command(Struct, frozen=True):
    """A subcommand."""

    name: str
    summary: str
    """One sentence for the help."""

    def run(self, invocation: Invocation) -> int:
        """Load and run the command. Report errors and return the exit code."""
        spec = import_module(f"{__name__}.{self.name}").SPEC
        return int(import_module(f"{__name__}.runner").run_command(invocation, spec))


_SUMMARIES: Final = {
    "status": "Show the leader, both clusters, and every problem with its cause.",
    "preflight": "Check both clusters as the controller uses them, with a fix for each failure.",
    "explain": "Show the state of a Service or a Node, what is wrong with it, and the next write.",
    "cleanup": "List or delete the load balancers of a guest cluster that no longer exists.",
    "completion": "Print the script that completes command lines in bash, zsh or fish.",
    "version": "Show the version.",
}
COMMANDS: Final = tuple(Command(name, summary) for name, summary in _SUMMARIES.items())
"""In the order of the help."""
HELP: Final = ("help", "Show the help, or that of a command.")
"""An argument that is no command of its own."""
