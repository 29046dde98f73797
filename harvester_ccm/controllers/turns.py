"""The line of Services that wait to have a load balancer created; ``plan.service.pace`` says how many go at once.

Who waits holds no worker and no slot: it is called when it is its turn. A place is held from the moment in which the
creation is decided until Harvester has answered for the load balancer, with an address or with a condition. One that it
does not answer for holds its place for a bounded time, and so does one that it lets go.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable

from msgspec import Struct

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.pace import (
    ANSWER_PATIENCE,
    RETRY_PATIENCE,
    Pace,
    after_answer,
    is_answered,
    is_tried_again,
    next_turns,
)


class _Asked(Struct, frozen=True):
    """A load balancer that Harvester has not answered for."""

    at: float
    given_up: asyncio.TimerHandle
    tried_again: bool = False


class Turns:
    """Lets Services go on, first the one that has waited longest."""

    def __init__(self, call: Callable[[str], None]) -> None:
        """Build it; ``call`` has a Service looked at whose turn it is."""
        self._call = call
        self._since: dict[str, float] = {}
        """Since when each of those in line waits."""
        self._line: list[tuple[float, str]] = []
        """The same, who waits longest first."""
        self._granted: set[str] = set()
        self._looked: set[str] = set()
        """Those that asked for a turn while they are being looked at."""
        self._asked: dict[str, _Asked] = {}
        """By the name of the load balancer."""
        self._leaving: dict[str, asyncio.TimerHandle] = {}
        """Those whose addresses Harvester gives back to their pools; by the same."""
        self.pace = Pace()

    def ask(self, key: str, since: float) -> bool:
        """Return whether it is the turn of a Service, which has waited ``since`` that time; else it stands in line."""
        self._looked.add(key)
        if key in self._granted:
            return True
        if key not in self._since:
            self._since[key] = since
            insort(self._line, (since, key))
        if key not in self._next():
            return False
        self._leave(key)
        self._granted.add(key)
        return True

    def appeared(self, found: LoadBalancer) -> None:
        """Count a load balancer as asked for, whether this process did it, and whether it knows: also one before it."""
        if not is_answered(found):
            self._ask_for(found.metadata.name, ANSWER_PATIENCE)

    def leaves(self, found: LoadBalancer) -> None:
        """Count a load balancer as work for Harvester until it is gone: it is taken out of the same pool."""
        name = found.metadata.name
        if found.allocated_ip and name not in self._leaving:
            self._leaving[name] = asyncio.get_running_loop().call_later(ANSWER_PATIENCE, self._left, name)

    def saw(self, name: str, found: LoadBalancer | None) -> None:
        """Take note of how a load balancer is; None when it is gone."""
        if found is None:
            self._left(name)
        asked = self._asked.get(name)
        if asked is None:
            return
        if found is None or is_answered(found):
            self._answered(name)
        elif is_tried_again(found) and not asked.tried_again:
            self._ask_for(name, RETRY_PATIENCE, tried_again=True)

    def looked_at(self, key: str) -> None:
        """Take note that the look at a Service is over: its turn is, and who did not ask for one waits for none."""
        if key in self._looked:
            self._looked.discard(key)
        else:
            self._leave(key)
        self._granted.discard(key)
        self._call_next()

    @property
    def _busy(self) -> int:
        return len(self._granted) + len(self._asked) + len(self._leaving)

    def _left(self, name: str) -> None:
        if name in self._leaving:
            self._leaving.pop(name).cancel()
            self._call_next()

    def _ask_for(self, name: str, patience: float, *, tried_again: bool = False) -> None:
        """Give a load balancer so many seconds from now. One that was known may appear anew, with a backup."""
        loop, before = asyncio.get_running_loop(), self._asked.get(name)
        if before is not None:
            before.given_up.cancel()
        since = before.at if before is not None else loop.time()
        self._asked[name] = _Asked(since, loop.call_later(patience, self._answered, name), tried_again)

    def _answered(self, name: str) -> None:
        asked = self._asked.pop(name)
        asked.given_up.cancel()
        self.pace = after_answer(self.pace, asked.at, asyncio.get_running_loop().time())
        self._call_next()

    def _next(self) -> tuple[str, ...]:
        return next_turns((key for _, key in self._line), self._busy, self.pace)

    def _leave(self, key: str) -> None:
        if key in self._since:
            self._line.remove((self._since.pop(key), key))

    def _call_next(self) -> None:
        for key in self._next():
            self._call(key)
