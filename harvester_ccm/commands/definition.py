"""What a command is, how it was called, and what its exit codes mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

EXIT_OK: Final = 0
"""All is right, or there is nothing to do."""
EXIT_PROBLEMS: Final = 1
"""Something was found that somebody has to see to, or a cluster could not be asked."""
EXIT_USAGE: Final = 2
"""The command line or a file on it cannot be used; nothing was done."""


@dataclass(frozen=True)
class Invocation:
    """How the program was called."""

    program: str
    """Name to show in the help."""
    words: tuple[str, ...]
    """Arguments, without a command's name."""
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Command:
    """A subcommand: the first argument, when it is this name."""

    name: str
    summary: str
    """One sentence for the help."""
    run: Callable[[Invocation], int]
    """Returns the exit code; errors of the ``CCMError`` family are reported as for a plain run."""
