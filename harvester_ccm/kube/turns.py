"""Turns: keys in a fair order between namespaces."""

from collections import OrderedDict
from collections.abc import Container


class NamespaceTurns:
    """Keys in the order of their turns: the namespaces in turn, and first come first served within a namespace.

    Every operation takes constant time, except ``newest_of_most``: that looks at each namespace.
    """

    def __init__(self) -> None:
        # Of an ordinary dict, the first key is found only behind the gaps of all that were removed before it.
        self._namespaces: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: str) -> bool:
        return key in self._namespaces.get(_namespace_of(key), ())

    def add(self, key: str) -> None:
        """Add a key behind the others of its namespace, unless it is there already."""
        keys = self._namespaces.setdefault(_namespace_of(key), OrderedDict())
        if key not in keys:
            keys[key] = None
            self._length += 1

    def first(self, *, without: Container[str] = ()) -> str | None:
        """Return the key whose turn it is; keys in ``without`` have no turn. None if there is no other key."""
        for keys in self._namespaces.values():
            for key in keys:
                if key not in without:
                    return key
        return None

    def newest_of_most(self, namespace: str) -> str | None:
        """Return the newest key of the namespace with the most, if it has at least two more than the given one."""
        most = max(self._namespaces.values(), key=len, default=None)
        if most is None or len(most) <= len(self._namespaces.get(namespace, ())) + 1:
            return None
        return next(reversed(most))

    def remove(self, key: str) -> None:
        """Remove a key without a turn. Raises KeyError."""
        namespace = _namespace_of(key)
        keys = self._namespaces[namespace]
        del keys[key]
        self._length -= 1
        if not keys:
            del self._namespaces[namespace]

    def take(self, key: str) -> None:
        """Remove a key that had its turn: the other namespaces are next. Raises KeyError."""
        namespace = _namespace_of(key)
        self.remove(key)
        if namespace in self._namespaces:
            self._namespaces.move_to_end(namespace)


def _namespace_of(key: str) -> str:
    """Return the namespace of an object by its key; empty for a cluster-scoped one."""
    return key.rpartition("/")[0]
