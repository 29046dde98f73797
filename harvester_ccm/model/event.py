"""The content of an Event, and how a message quotes and names."""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from harvester_ccm.names import NodeReason, Reason
from harvester_ccm.redaction import MAX_MESSAGE, sanitize

COMMAND_TOO_LONG: Final = "harvester-ccm explain prints the command"
"""Stands for a command that is too long for an Event."""
REPORT_SECONDS: Final = 300.0
"""Time after which a process repeats a Warning about itself that still holds."""
QUOTED: Final = 200
"""Maximum characters of a value in a message."""
NAMED: Final = 5
"""Maximum number of objects that a message names; the others are counted."""


class EventMessage(Struct, frozen=True, gc=False):
    """The content of an Event: what is wrong, where, what to do, and the answer of a server.

    The recorder writes an equal one on an object only once. The fields are put together only when they are printed, so
    that text of others is never taken for a command.
    """

    type: Literal["Normal", "Warning"]
    reason: Reason | NodeReason
    cause: str
    """What is wrong, or what happened: a sentence without a full stop; the rest of one if ``place`` is its subject."""
    remedy: str = ""
    """What to do, without a full stop."""
    command: str = ""
    """A command to paste, in the quoting of a shell. It is printed completely or not at all."""
    place: str = ""
    """The field, annotation or object that is concerned, if ``cause`` does not name it."""
    answer: str = ""
    """What a server said, with its name. It is cut before anything else."""
    subject: str = ""
    """Events with the same reason and subject are equal; empty if the message decides."""

    @property
    def prose(self) -> str:
        """All fields but the command as one text, cut to the length of a message."""
        return self._text(MAX_MESSAGE)

    @property
    def message(self) -> str:
        """All fields as one text of at most the length of a message."""
        if not self.command:
            return self.prose
        ending = f". Run: {self.command}"
        if len(ending) > MAX_MESSAGE // 2:
            ending = f". {COMMAND_TOO_LONG}"
        return self._text(MAX_MESSAGE - len(ending)) + ending

    def _text(self, room: int) -> str:
        """Return the text in ``room`` characters: the cause makes room for the remedy, and the answer for both."""
        remedy = f". {sanitize(self.remedy)}" if self.remedy else ""
        remedy = remedy[: room // 2]
        cause = sanitize(f"{self.place} {self.cause}".lstrip())
        text = cause[: room - len(remedy)] + remedy
        answer = f". {sanitize(self.answer)}" if self.answer else ""
        return text + answer[: room - len(text)]


def quoted(value: str) -> str:
    """Return a value of a tenant in quotes for a sentence, shortened: what follows it must fit into the message.

    >>> quoted("a" * 300)[-8:]
    "aaaa...'"
    """
    shown = value if len(value) <= QUOTED else f"{value[:QUOTED]}..."
    return repr(shown)


def abbreviate(names: Sequence[str]) -> str:
    """Return names for a sentence: the first ones, and how many more there are.

    >>> abbreviate(["a", "b", "c", "d", "e", "f", "g"])
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
