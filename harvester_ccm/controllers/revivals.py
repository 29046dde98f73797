"""What one success says for others that wait for the same: Harvester works again, or a pool has addresses again.

Who failed tries again after a pause of its own, up to a minute, and Harvester's controller looks at a load balancer
that it has refused an address after half a minute, later after two. So the first one that succeeds calls the others.
Called are as few as can be: creations wait for their turn as ever, and of those that wait for an address of a pool one
is called at a time, which calls the next one only if it gets one.
"""

from __future__ import annotations

from collections.abc import Callable

from harvester_ccm.errors import CCMError, ServerError, Throttled, Unreachable
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.pending import awaited_pool, freed_pool


class Stalled:
    """Services whose write to Harvester failed for no fault of theirs."""

    def __init__(self, call: Callable[[str], None]) -> None:
        """Build it; ``call`` has a Service looked at."""
        self._call = call
        self._stalled: dict[bool, set[str]] = {True: set(), False: set()}
        """By whether it was a deletion, which Harvester's webhook is not asked about."""

    def failed(self, key: str, error: CCMError, *, deletes: bool) -> None:
        """Take note of a write of a Service that failed."""
        if isinstance(error, ServerError | Throttled | Unreachable):
            self._stalled[deletes].add(key)

    def worked(self, *, deletes: bool) -> None:
        """Call those whose writes of this kind have failed, as one has worked."""
        stalled, self._stalled[deletes] = self._stalled[deletes], set()
        for key in sorted(stalled):
            self._call(key)


class PoolLines:
    """Load balancers that wait for an address, by the pool that has none for them, the first one first."""

    def __init__(self, call: Callable[[LoadBalancer], bool]) -> None:
        """Build it; ``call`` has one written once more, after which Harvester looks at it at once.

        It returns whether that is up to this program: those of other clusters wait in the same line.
        """
        self._call = call
        self._lines: dict[str, dict[str, LoadBalancer]] = {}
        self._awaited: dict[str, str] = {}
        """The pool that each of them is in line for."""

    def changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        """Take note of a change of a load balancer, and call the next one where an address may be free."""
        either = new or old
        if either is None:
            return
        key = either.metadata.key
        before, after = self._awaited.pop(key, ""), awaited_pool(new)
        if before and before != after:
            self._lines[before].pop(key)
            if not self._lines[before]:
                del self._lines[before]
        if after and new is not None:
            self._awaited[key] = after
            self._lines.setdefault(after, {})[key] = new
        pool = freed_pool(old, new, was_refused=bool(before))
        # Up to the first one that could be called.
        any(self._call(one) for one in self._lines.get(pool, {}).values())
