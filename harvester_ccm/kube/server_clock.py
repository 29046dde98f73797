"""Whether time went by that this machine did not see: a virtual machine that is paused stops all of its clocks.

The only witness is another machine: every answer of an API server has its time, in the header ``Date``, to the second.
Behind one address there may be several whose clocks differ: what one is ahead of another is no time that was lost.
"""

from __future__ import annotations

from collections import deque
from email.utils import parsedate_to_datetime
from typing import Final

GAIN_SECONDS: Final = 2.0
"""A server's clock that gains more than this between two answers has not gained it by drift or by chance."""
MEMORY_SECONDS: Final = 60.0
"""For so long a server that is ahead is remembered; and that time was lost is logged once in so long."""


class ServerClock:
    """The clock of what answers at one address, compared with the clock of the event loop.

    One server never seems to gain. Of several, time that was lost is noticed when it is longer than they differ.
    """

    def __init__(self) -> None:
        self._most: float | None = None
        """The most that the server's clock can have been ahead at its last answer."""
        self._least: deque[tuple[float, float]] = deque()
        """When there was an answer, and how far ahead the clock was at least; only what is more than all after it.

        Not the most: after one slow answer that would hide lost time for a minute.
        """

    def gained(self, date: str, asked: float, answered: float) -> float:
        """Return the seconds that the server's clock has gained on ours at least since the answers before.

        ``date`` is the header, ``asked`` and ``answered`` are loop times around it. 0 where the header says nothing.
        """
        try:
            stamp = parsedate_to_datetime(date).timestamp()
        except (TypeError, ValueError, OverflowError):
            return 0.0
        least = stamp - answered
        while self._least and self._least[0][0] < answered - MEMORY_SECONDS:
            self._least.popleft()
        before, self._most = self._most, stamp + 1 - asked
        if before is not None and self._least:
            before = max(before, self._least[0][1])
        while self._least and self._least[-1][1] <= least:
            self._least.pop()
        self._least.append((answered, least))
        return 0.0 if before is None else max(0.0, least - before)
