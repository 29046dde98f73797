"""The program, which tells on a signal how many tasks its event loop has: ``python -m benchmarks.observed FLAGS``.

SIGUSR1 has it write one line to standard error, ``asyncio tasks: NUMBER``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from types import FrameType
from typing import Final

from harvester_ccm.cli import main

TASKS: Final = "asyncio tasks: "


def tell(_number: int, _frame: FrameType | None) -> None:
    """Write how many tasks there are."""
    try:
        count = len(asyncio.all_tasks())
    except RuntimeError:
        # No loop runs yet, or any more.
        count = 0
    sys.stderr.write(f"{TASKS}{count}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    sys.exit(main())
