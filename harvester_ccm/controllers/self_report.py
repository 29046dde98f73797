"""What a process reports about itself, in Events on the Lease.

No object shows whether such a state still holds, and the process can be killed while it does. So its Warning is
repeated while it holds, a Normal Event ends it, and commands ignore a Warning that was not repeated.
"""

from collections.abc import Callable

from msgspec.structs import replace

from harvester_ccm.kube.clock import loop_time
from harvester_ccm.model.event import REPORT_SECONDS, EventMessage


class SelfReport:
    """One state of this process: nothing, or a Warning with the cause."""

    def __init__(self, emit: Callable[[EventMessage], None], end: EventMessage) -> None:
        """``end`` is the Normal Event for the end of the state."""
        self._emit = emit
        self._end = end
        self._warning: EventMessage | None = None
        """What holds, as far as it was reported."""
        self._repeat_at = 0.0
        """Loop time."""
        self._number = 0
        """Of Events so far. The recorder drops equal ones, and each of these counts."""

    def update(self, warning: EventMessage | None) -> None:
        """Report what holds now, None for nothing. Call it often, and with None before the process ends."""
        if warning is None:
            if self._warning is not None:
                self._warning = None
                self._emit_numbered(self._end)
            return
        if warning == self._warning and loop_time() < self._repeat_at:
            return
        self._warning = warning
        self._repeat_at = loop_time() + REPORT_SECONDS
        self._emit_numbered(warning)

    def _emit_numbered(self, event: EventMessage) -> None:
        self._number += 1
        self._emit(replace(event, subject=f"{event.reason} {self._number}"))
