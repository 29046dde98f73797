"""The program on a machine that can be paused: halt its process, and its clock stands still as that of a paused VM.

For a process alone SIGSTOP is no such pause, because the clock of the machine goes on. Here a clock that nobody has
looked at for a while has not gone on meanwhile; a thread looks at it all the time while the process runs.
"""

from __future__ import annotations

import asyncio.base_events
import sys
import threading
import time
from typing import Final

from harvester_ccm.cli import main

LOOKS_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 1.0
"""What goes by between two looks counts up to here: the thread may have to wait for a processor."""


class Clock:
    """Seconds that this process was there to see."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = time.monotonic()
        self._shown = self._seen

    def time(self) -> float:
        """Return the time on the clock."""
        with self._lock:
            now = time.monotonic()
            self._shown += min(now - self._seen, LONGEST_SECONDS)
            self._seen = now
            return self._shown

    def keep_going(self) -> None:
        """Look at it all the time."""
        while True:
            self.time()
            time.sleep(LOOKS_SECONDS)


if __name__ == "__main__":
    clock = Clock()
    threading.Thread(target=clock.keep_going, daemon=True).start()
    asyncio.base_events.BaseEventLoop.time = lambda _loop: clock.time()  # type: ignore[method-assign, assignment]
    sys.exit(main())
