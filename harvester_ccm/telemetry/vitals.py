"""Everything that is told about this process, tied to the objects that it is told of.

The assembly hands over what it makes; nothing here changes how any of it works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from harvester_ccm.config import CONTROLLER_ALIASES, LeaderElectionSettings, ServerSettings
from harvester_ccm.controllers.runner import Runner
from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.jwt import token_expiry
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.telemetry import Aspect, HealthRegistry, Queue, Samples, Telemetry, catalogue, checks
from harvester_ccm.telemetry.checks import Cache, Candidate
from harvester_ccm.telemetry.nodes import NodeReport, NodeTimes
from harvester_ccm.telemetry.services import Reporting, ServiceReport

MANAGER: Final = "cloud-controller-manager"
SERVICE_QUEUE: Final = "service"
"""Name of the queue of Services, in the framework too."""
_SHORT_NAMES: Final[Mapping[str, str]] = {name: alias for alias, name in CONTROLLER_ALIASES.items()}
"""The framework's metrics call controllers by other names than its flags."""


class Vitals:
    """Metrics and health of one process."""

    def __init__(self, version: str) -> None:
        self.telemetry = Telemetry(version)
        self.health = HealthRegistry()
        self._controllers: list[str] = []
        self._candidate: Candidate | None = None
        self.telemetry.read_at_scrape(
            catalogue.RUNNING, lambda: {(_SHORT_NAMES.get(name, name), MANAGER): 1.0 for name in self._controllers}
        )
        self.telemetry.read_at_scrape(catalogue.HEALTHCHECK, self._read_health)

    def follow_clients(self, *clients: ApiClient) -> None:
        """Tell when the credentials in use expire."""

        def read() -> Samples:
            expiries = {(client.cluster,): _expiry(client) for client in clients}
            return {labels: expiry for labels, expiry in expiries.items() if expiry is not None}

        self.telemetry.read_at_scrape(catalogue.CREDENTIAL_EXPIRY, read)

    def follow_caches(
        self, *, guest: Sequence[Cache], harvester: Sequence[Cache], optional: Sequence[Cache] = ()
    ) -> None:
        """Tell about caches. This process is not ready while one cannot be read, the optional ones excepted."""
        needed = (*guest, *harvester)
        ready: dict[str, Callable[[], str | None]] = {
            "caches-synced": lambda: checks.caches_synced(needed),
            "watches-alive": lambda: checks.watches_alive(needed, _now()),
            "guest-reachable": lambda: checks.server_reachable(guest),
            "guest-credential": lambda: checks.credential_accepted(guest),
            "harvester-reachable": lambda: checks.server_reachable(harvester),
            "harvester-credential": lambda: checks.credential_accepted(harvester),
        }
        for name, check in ready.items():
            self.health.add(name, check, Aspect.READY)
        for metric, value in _CACHE_VALUES.items():
            self.telemetry.read_at_scrape(metric, _cache_reader((*needed, *optional), value))
        self.telemetry.read_at_scrape(catalogue.LAST_CONTACT, lambda: self._last_contact(harvester))

    def follow_election(self, candidate: Candidate, settings: LeaderElectionSettings) -> None:
        """Tell who leads; a holder that cannot renew and does not stop is neither live nor ready.

        Without an election this process always leads.
        """
        self._candidate = candidate
        self.health.add(
            "leaderElection",
            lambda: checks.lease_renewed(candidate, settings.lease_duration, _now()),
            *Aspect,
        )
        self.telemetry.read_at_scrape(catalogue.MASTER, lambda: {(settings.name,): float(candidate.leading)})

    def follow_events(self, recorder: EventRecorder) -> None:
        """Tell how many Events were lost."""
        self.telemetry.read_at_scrape(catalogue.EVENTS_DROPPED, lambda: {(): float(recorder.dropped)})

    def follow_services(
        self,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        cluster: ClusterIdentity,
    ) -> None:
        """Tell about Services and load balancers; the queue of Services knows what each waits for."""
        reporting = Reporting(
            cluster=cluster,
            leading=self._leads,
            served=self.telemetry.pending_seconds.observe,
            clock=time.time,
        )
        report = ServiceReport(services, load_balancers, reporting)
        reason_of = self.telemetry.queue(SERVICE_QUEUE).reason
        self.telemetry.read_at_scrape(catalogue.LOAD_BALANCERS, report.load_balancers)
        self.telemetry.read_at_scrape(catalogue.SERVICES_PENDING, lambda: report.pending(reason_of))
        self.telemetry.read_at_scrape(catalogue.PENDING_LONGEST, lambda: report.longest(reason_of))

    def follow_orphans(self, deleted: Callable[[], int]) -> None:
        """Tell how many load balancers without a Service were deleted."""
        self.telemetry.read_at_scrape(catalogue.ORPHANS_DELETED, lambda: {(): float(deleted())})

    def follow_nodes(self, nodes: Informer[Node]) -> None:
        """Tell how long new Nodes wait to be initialised."""
        times = NodeTimes(self.telemetry.node_init_seconds.observe, self.telemetry.taint_seconds.observe)
        NodeReport(nodes, times, leading=self._leads, clock=time.time)

    def follow_queue(self, runner: Runner) -> Queue:
        """Measure a queue, from now on."""
        queue = self.telemetry.queue(runner.name)
        runner.observer = queue
        return queue

    def controller_started(self, name: str, *runners: Runner) -> None:
        """Tell that a controller runs, named as in ``--controllers``; it is not live when it is stuck in a queue."""
        followed = [self.follow_queue(runner) for runner in runners]
        self._controllers.append(name)
        self.health.add(
            name,
            lambda: checks.not_stuck(max((queue.longest_seconds for queue in followed), default=0.0)),
            Aspect.LIVE,
        )

    @asynccontextmanager
    async def served(self, settings: ServerSettings, guest: ApiClient) -> AsyncIterator[None]:
        """Serve all of it over HTTPS for the time of a block. Raises ConfigurationError."""
        if settings.port == 0:
            yield
            return
        # Loaded here only: without a server its libraries would take memory for nothing.
        from harvester_ccm.telemetry.auth import AccessReviewer  # noqa: PLC0415
        from harvester_ccm.telemetry.server import HttpsServer  # noqa: PLC0415

        async with HttpsServer(settings, self.health, telemetry=self.telemetry, reviewer=AccessReviewer(guest)):
            yield

    def _leads(self) -> bool:
        return self._candidate is None or self._candidate.leading

    def _read_health(self) -> Samples:
        return {
            (one.name, aspect.value): float(one.problem is None)
            for aspect in Aspect
            for one in self.health.results(aspect)
        }

    def _last_contact(self, harvester: Sequence[Cache]) -> Samples:
        last = max((cache.last_contact for cache in harvester), default=float("-inf"))
        last = max(last, self.telemetry.last_success("harvester"))
        return {} if last == float("-inf") else {(): time.time() - (_now() - last)}


_CACHE_VALUES: Final[Mapping[catalogue.Metric, Callable[[Cache], float]]] = {
    catalogue.CACHE_SYNCED: lambda cache: float(cache.synced),
    catalogue.CACHE_OBJECTS: lambda cache: float(len(cache)),
    catalogue.WATCH_RESTARTS: lambda cache: float(cache.restarts),
}


def _cache_reader(caches: Sequence[Cache], value: Callable[[Cache], float]) -> Callable[[], Samples]:
    return lambda: {(cache.name,): value(cache) for cache in caches}


def _now() -> float:
    return asyncio.get_running_loop().time()


def _expiry(client: ApiClient) -> float | None:
    token = client.credentials.token
    if token.blocking:
        return None
    try:
        return token_expiry(token.get())
    except CredentialError:
        return None
