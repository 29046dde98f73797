"""State in memory that belongs to one object, and ends with it."""

from collections.abc import Callable
from typing import Generic, TypeVar

from harvester_ccm.kube.objects import Object

T = TypeVar("T")


class ObjectStates(Generic[T]):
    """State by object key and UID: an object that is recreated under the same name starts with new state."""

    def __init__(self, new: Callable[[], T]) -> None:
        """``new`` returns the initial state of an object."""
        self._new = new
        self._states: dict[str, tuple[str, T]] = {}

    def of(self, item: Object) -> T:
        """Return the state of an object; created on first use."""
        key = item.metadata.key
        known_uid, state = self._states.get(key, ("", None))
        if state is None or known_uid != item.metadata.uid:
            state = self._new()
            self._states[key] = (item.metadata.uid, state)
        return state

    def forget(self, key: str) -> None:
        """Drop the state of the object with this key."""
        self._states.pop(key, None)
