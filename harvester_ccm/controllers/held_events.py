"""Events that are emitted only after they have held for some time."""

from collections.abc import Iterable

from harvester_ccm.kube.clock import loop_time
from harvester_ccm.model.event import EventMessage


class HeldEvents:
    """The Events that hold for one object, and since when they are the same."""

    def __init__(self) -> None:
        self._keys: frozenset[tuple[str, str]] = frozenset()
        self._since = 0.0
        """Loop time."""

    def hold(self, events: Iterable[EventMessage]) -> None:
        """Record the Events that hold now. If their reasons or subjects differ from before, the time starts again."""
        keys = frozenset((event.reason, event.subject) for event in events)
        if keys != self._keys:
            self._keys = keys
            self._since = loop_time()

    def due_after(self, seconds: float) -> float:
        """Return the time until the Events have held for ``seconds``; 0 if they have, or if there are none."""
        if not self._keys:
            return 0.0
        return max(0.0, self._since + seconds - loop_time())
