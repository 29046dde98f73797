"""Whether time went by that this machine did not see: a virtual machine that is paused stops all of its clocks.

The only witness is another machine: every answer of an API server has its time, in the header ``Date``, to the second.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

GAIN_SECONDS: Final = 2.0
"""A server's clock that gains more than this between two answers has not gained it by drift or by chance."""


class ServerClock:
    """The clock of one server, compared with the clock of the event loop."""

    def __init__(self) -> None:
        self._most: float | None = None
        """The most that the server's clock can have been ahead at its last answer."""

    def gained(self, date: str, asked: float, answered: float) -> float:
        """Return the seconds that the server's clock has gained on ours at least since the answer before.

        ``date`` is the header, ``asked`` and ``answered`` are loop times around it. 0 where the header says nothing.
        """
        try:
            stamp = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError, OverflowError):
            return 0.0
        before, self._most = self._most, stamp + 1 - asked
        return 0.0 if before is None else max(0.0, stamp - answered - before)
