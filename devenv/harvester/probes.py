"""Health checks of VM load balancers: real TCP connections, counted like in Harvester."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from devenv.harvester.routes import loopback_of

ABORT: Final = struct.pack("ii", 1, 0)
"""Linger option that makes a close reset the connection, so that the server has nothing to read."""
FALLBACKS: Final[Mapping[str, int]] = {
    "successThreshold": 1,
    "failureThreshold": 3,
    "periodSeconds": 5,
    "timeoutSeconds": 3,
}
"""Defaults of the controller if the mutator was skipped."""


@dataclass(frozen=True)
class Check:
    """``spec.healthCheck``. Times in seconds."""

    port: int
    success: int
    failure: int
    period: float
    timeout: float

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "Check | None":
        """Return the check of a load balancer's specification, or None if it has none."""
        source = spec.get("healthCheck") or {}
        if not source.get("port"):
            return None
        success, failure, period, timeout = (source.get(key) or FALLBACKS[key] for key in FALLBACKS)
        return cls(source["port"], success, failure, period, timeout)


@dataclass
class _Streak:
    """Counts the results of one backend that are the same without a break."""

    success: int
    failure: int
    healthy: bool = True
    """Whether the backend is healthy at first."""
    _good: int = field(default=0, init=False)
    _bad: int = field(default=0, init=False)

    def _add(self, *, good: bool) -> None:
        if good:
            self._good, self._bad = self._good + 1, 0
        else:
            self._good, self._bad = 0, self._bad + 1


class Tally(_Streak):
    """Each verdict restarts the count, so it is repeated one threshold later; the first state changes nothing."""

    def count(self, *, good: bool) -> bool | None:
        """Count one result; return whether the backend is healthy if a threshold is reached, else None."""
        self._add(good=good)
        if self._good >= self.success:
            self._good = 0
            return True
        if self._bad >= self.failure:
            self._bad = 0
            return False
        return None


class LastingTally(_Streak):
    """The count goes on after a verdict, and one that is the same as the last one is not repeated."""

    def count(self, *, good: bool) -> bool | None:
        """Count one result; return whether the backend is healthy if that is new, else None."""
        self._add(good=good)
        is_reached = self._good == self.success if good else self._bad == self.failure
        if not is_reached or good == self.healthy:
            return None
        self.healthy = good
        return good


class Counter(Protocol):
    """Counts the results of one backend."""

    def count(self, *, good: bool) -> bool | None:
        """Count one result; return a verdict, or None."""


Report = Callable[[str, str, bool], Awaitable[None]]
"""Called with (load balancer, address, healthy) each time a threshold is reached."""


Connects = Callable[[str, Check], Awaitable[bool]]
"""Returns whether a backend accepts a connection."""


async def connects(address: str, check: Check) -> bool:
    """Return whether the server that runs instead of a VM accepts a connection."""
    target = loopback_of(address)
    if target is None:
        await asyncio.sleep(check.timeout)
        return False
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    probe.setblocking(False)
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
    try:
        async with asyncio.timeout(check.timeout):
            await asyncio.get_running_loop().sock_connect(probe, (target, check.port))
    except (OSError, OverflowError, TimeoutError):
        # A port above 65535 raises OverflowError.
        return False
    else:
        return True
    finally:
        probe.close()


class Probes:
    """The workers of all load balancers: one per backend."""

    def __init__(
        self,
        report: Report,
        connects: Connects = connects,
        counter: Callable[[int, int, bool], Counter] = Tally,
    ) -> None:
        """``counter`` gets both thresholds, and whether the backend is healthy at first."""
        self._counter = counter
        self._report = report
        self._connects = connects
        self._workers: dict[tuple[str, str], tuple[Check, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run workers until cancelled. Must be running before the first ``want``."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await asyncio.Event().wait()

    def want(self, key: str, check: Check | None, backends: Mapping[str, bool]) -> None:
        """Probe exactly these backends of a load balancer; a changed check restarts the workers.

        ``backends``: addresses, each with whether its endpoint is ready.
        """
        for place in [place for place in self._workers if place[0] == key]:
            known, task = self._workers[place]
            if place[1] not in backends or known != check:
                task.cancel()
                del self._workers[place]
        if check is None:
            return
        assert self._group is not None, "probes are not running"
        for address, healthy in backends.items():
            if (key, address) not in self._workers:
                work = self._probe(key, address, check, self._counter(check.success, check.failure, healthy))
                task = self._group.create_task(work, name=f"probe-{key}-{address}")
                self._workers[key, address] = (check, task)

    async def _probe(self, key: str, address: str, check: Check, tally: Counter) -> None:
        loop = asyncio.get_running_loop()
        tick = loop.time()
        while True:
            # Like a Go ticker: ticks missed during a slow probe count once.
            tick = max(tick + check.period, loop.time() - check.period)
            await asyncio.sleep(tick - loop.time())
            verdict = tally.count(good=await self._connects(address, check))
            if verdict is not None:
                await self._report(key, address, verdict)
