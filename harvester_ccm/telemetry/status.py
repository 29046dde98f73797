"""``/status``: the whole at one look, as this process sees it. Only the leader looks after Services and Nodes.

Thousands of Services take the time of some hundred reconciles: that is spent in slices, between which everything else
gets its turn, and who asks meanwhile gets the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from harvester_ccm import __version__
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, Forbidden, NotServed
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.kube.tokens import fixed_account, fixed_end
from harvester_ccm.model.harvester import IP_POOLS
from harvester_ccm.redaction import inert
from harvester_ccm.status.document import Leader, Pool, Program, Server, Status, encode
from harvester_ccm.status.report import (
    Known,
    Line,
    left_alone,
    look,
    pools_of,
    problems_of_servers,
    report,
    server_line,
    time_text,
)
from harvester_ccm.telemetry.health import Aspect, HealthRegistry

SLICE_SECONDS: Final = 0.002
"""So long the event loop belongs to the status at a time."""
KEPT_SECONDS: Final = 1.0
"""An answer is given again for so long."""
POOLS_SECONDS: Final = 10.0
"""So long what was read of IP pools holds."""
REFUSED_SECONDS: Final = 600.0
"""So long they are not asked for where that is refused."""
POOLS_TIMEOUT: Final = 2.0
"""Seconds that Harvester has to tell of them: without its pools a status is complete enough."""
_OF_SERVERS: Final = frozenset({"guest-reachable", "guest-credential", "harvester-reachable", "harvester-credential"})
"""Checks of which the status says more."""


class StatusPage:
    """Answers what there is to see."""

    def __init__(
        self,
        settings: Settings,
        health: HealthRegistry,
        elector: LeaderElector,
        servers: Sequence[tuple[ApiClient, Sequence[Informer[Any]]]],
    ) -> None:
        """``servers`` are the guest and Harvester, each with its caches."""
        self._settings = settings
        self._health = health
        self._elector = elector
        self._servers = servers
        self._started = datetime.now(UTC)
        self._known: Callable[[], Known] | None = None
        self._building = asyncio.Lock()
        self._pools = _Pools(servers[-1][0])
        self._answer = b""
        self._answered_at = float("-inf")

    def show(self, known: Callable[[], Known]) -> None:
        """Have shown, from now on and while this process leads, what ``known`` returns."""
        self._known = known

    async def answer(self) -> bytes:
        """Return the document."""
        async with self._building:
            loop = asyncio.get_running_loop()
            if loop.time() - self._answered_at >= KEPT_SECONDS:
                self._answer = encode(await self._status())
                self._answered_at = loop.time()
            return self._answer

    @property
    def _leading(self) -> bool:
        return self._elector.leading or not self._settings.leader_election.enabled

    async def _status(self) -> Status:
        known = self._known() if self._known is not None and self._leading else None
        if known is None:
            return self._frame()
        lines: list[Line] = []
        began = time.perf_counter()
        for line in look(known):
            lines.append(line)
            if time.perf_counter() - began >= SLICE_SECONDS:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return report(self._frame(), lines, await self._pools.read())

    def _frame(self) -> Status:
        """Return the status without what the leader looks after."""
        now, servers = datetime.now(UTC), tuple(_server(*one) for one in self._servers)
        harvester = self._servers[-1]
        elected = self._settings.leader_election.enabled
        return Status(
            observed=time_text(now),
            cluster=self._settings.harvester.cluster_name,
            namespace=harvester[0].namespace,
            program=Program(
                version=__version__,
                identity=self._elector.identity,
                leading=self._leading,
                started=time_text(self._started),
            ),
            leader=Leader(identity=inert(self._elector.holder), since=self._elector.held_since) if elected else None,
            servers=servers,
            problems=(*problems_of_servers(_first_problem(harvester[1]), servers, now), *self._failing()),
            assumptions=tuple(map(inert, (*self._settings.warnings, *left_alone(self._settings)))),
        )

    def _failing(self) -> Iterator[str]:
        """Yield what else keeps this process from being ready."""
        for one in self._health.results(Aspect.READY):
            if one.problem is not None and one.name not in _OF_SERVERS:
                yield inert(f"{one.name}: {one.problem}")


class _Pools:
    """The IP pools, where the cloud-config may read them: with the usual one it may not, and is seldom asked."""

    def __init__(self, harvester: ApiClient) -> None:
        self._harvester = harvester
        self._found: tuple[Pool, ...] = ()
        self._due = float("-inf")

    async def read(self) -> tuple[Pool, ...]:
        """Return the pools; none where they cannot be read."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            return self._found
        self._found, pause = (), POOLS_SECONDS
        try:
            async with asyncio.timeout(POOLS_TIMEOUT):
                self._found = pools_of((await self._harvester.list(IP_POOLS)).items)
        except (Forbidden, NotServed):
            pause = REFUSED_SECONDS
        except (CCMError, TimeoutError):
            # A fault of the moment; that Harvester is away is told elsewhere.
            pass
        self._due = loop.time() + pause
        return self._found


def _server(client: ApiClient, caches: Sequence[Informer[Any]]) -> Server:
    server, token = client.credentials.server, client.credentials.token
    return server_line(client.cluster, server, _first_problem(caches), fixed_end(token), fixed_account(token))


def _first_problem(caches: Sequence[Informer[Any]]) -> CCMError | None:
    return next((one.problem for one in caches if one.problem is not None), None)
