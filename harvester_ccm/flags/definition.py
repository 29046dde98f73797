"""What a flag is: name, kind of value, default, place in the help, meaning, and whether it does anything here.

And what a command line comes to: the values of all flags (``FlagValues``), or a ``UsageError`` with every fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from harvester_ccm.errors import ConfigurationError

FlagValue = bool | int | float | str | tuple[str, ...]
T = TypeVar("T", bool, int, float, str)


class Kind(StrEnum):
    """Kind of value, under the name that the help shows."""

    BOOL = "bool"
    VERSION = "version"
    """``true``, ``false``, ``raw`` or a version; anything but false asks for the version."""
    TEXT = "string"
    WORDS = "strings"
    """Comma separated (one CSV record); further occurrences append."""
    INT = "int"
    INT32 = "int32"
    LEVEL = "level"
    FLOAT = "float"
    DURATION = "duration"
    IP = "ip"


class Group(StrEnum):
    """Section of the help and of the reference page, in the order in which they are shown."""

    HARVESTER = "Harvester"
    SERVICES = "Load balancers"
    NODES = "Nodes"
    GUEST = "Guest cluster"
    CONTROLLERS = "Controllers"
    LEADER = "Leader election"
    SERVER = "Health and metrics server"
    LOGGING = "Logging"
    GENERAL = "General"
    ACCEPTED = "Accepted without effect"


class Flag(Struct, frozen=True):
    """One flag of the command line."""

    name: str
    kind: Kind
    default: str
    """As it would be written on the command line; empty for an empty text or list."""
    group: Group
    meaning: str
    """One or two sentences for the operator."""
    effect: str | None = None
    """None when the flag does something here; otherwise the reason why it is accepted and does nothing."""
    shorthand: str = ""

    @property
    def needs_value(self) -> bool:
        """False when the bare flag means true."""
        return self.kind not in (Kind.BOOL, Kind.VERSION)


class FlagValues(Struct, frozen=True):
    """What the words after the program's name say: values of all flags, defaults included, and arguments."""

    values: Mapping[str, FlagValue]
    explicit: frozenset[str] = frozenset()
    """Names of the flags that were given."""
    ignored: tuple[str, ...] = ()
    """Sentences about given flags that do nothing here."""
    arguments: tuple[str, ...] = ()
    """The words that are no flags, in order; always empty where the grammar takes none."""

    def read(self, name: str, kind: type[T]) -> T:
        """Return the value of a flag. Raises TypeError when the flag is of another kind."""
        value = self.values[name]
        if not isinstance(value, kind):
            raise TypeError(f"--{name} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        """Return the value of a text flag."""
        return self.read(name, str)

    def words(self, name: str) -> tuple[str, ...]:
        """Return the entries of a list flag. Raises TypeError when the flag is of another kind."""
        value = self.values[name]
        if not isinstance(value, tuple):
            raise TypeError(f"--{name} is a {type(value).__name__}, not a list")
        return value

    def path(self, name: str) -> Path | None:
        """Return the path in a text flag, None when it is empty."""
        return Path(self.text(name)) if self.text(name) else None


class UsageError(ConfigurationError):
    """Raised when the command line cannot be read; carries every fault found."""

    def __init__(self, problems: Sequence[str], *, flags: FlagValues, unknown_flag: bool) -> None:
        super().__init__(problems)
        self.flags = flags
        """What could be read, so that what is wrong with that is told too; defaults for the rest."""
        self.unknown_flag = unknown_flag
        """Whether a flag is not known or not written as a flag: a slip in the chart's values, most often."""
