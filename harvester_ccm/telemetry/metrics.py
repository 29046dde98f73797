"""The metrics of one process. Counted is only what cannot be computed when somebody asks; the rest is read then.

There is no global state: each ``Telemetry`` has a registry of its own. All calls belong to the event loop's thread.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from harvester_ccm.config import CONTROLLER_ALIASES
from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.kube.tokens import TokenSource, token_end
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.telemetry import catalogue
from harvester_ccm.telemetry.catalogue import Metric, MetricType
from harvester_ccm.telemetry.health import Aspect, HealthRegistry
from harvester_ccm.telemetry.queues import Queue, QueueMetrics

MANAGER: Final = "cloud-controller-manager"
_LOAD_BALANCERS: Final = f"/apis/{LOAD_BALANCERS.group}/"
"""Where load balancers are, in any version."""
NEVER: Final = float("-inf")
_SHORT_NAMES: Final[Mapping[str, str]] = {name: alias for alias, name in CONTROLLER_ALIASES.items()}
"""The framework's metrics call controllers by other names than its flags."""

Samples = Mapping[tuple[str, ...], float]
"""Label values, in the order of the metric's labels, to the value."""
Read = Callable[[], Samples]
N = TypeVar("N", Informer[Any], Queue)


class _Scraped(Collector):
    """Metrics that are read when they are asked for."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[Metric, Read]] = {}

    def collect(self) -> Iterator[Family]:
        for metric, read in self.sources.values():
            new = CounterMetricFamily if metric.type is MetricType.COUNTER else GaugeMetricFamily
            family = new(metric.name, metric.help, labels=metric.labels)
            for labels, value in read().items():
                family.add_metric(labels, value)
            yield family


class Telemetry:
    """Everything that is measured in this process."""

    def __init__(
        self, version: str, *, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        """``clock`` has to be the one of the event loop; ``wall_clock`` counts from the epoch."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # without annotations in the library
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._clock = clock
        self.wall_clock = wall_clock
        self._scraped = _Scraped()
        self.registry.register(self._scraped)
        self._queues: dict[str, Queue] = {}
        self._contacts: dict[str, float] = {}
        self._controllers: list[str] = []
        self._candidate: LeaderElector | None = None
        self._requests = self._counter(catalogue.REQUESTS)
        self._request_seconds = self._histogram(catalogue.REQUEST_SECONDS)
        self._updates = self._counter(catalogue.UPDATES)
        self._update_errors = self._counter(catalogue.NODE_SYNC_ERRORS)
        self._update_seconds = self._histogram(catalogue.UPDATE_SECONDS)
        self._queue_metrics = QueueMetrics(
            adds=self._counter(catalogue.QUEUE_ADDS),
            retries=self._counter(catalogue.QUEUE_RETRIES),
            queue_seconds=self._histogram(catalogue.QUEUE_SECONDS),
            work_seconds=self._histogram(catalogue.WORK_SECONDS),
        )
        self.pending_seconds = self._histogram(catalogue.PENDING_SECONDS)
        """To be given the seconds from when a Service asked until it had an address."""
        self.node_init_seconds = self._histogram(catalogue.NODE_INIT_SECONDS)
        """To be given the age in seconds of a new Node that is looked at first."""
        self.taint_seconds = self._histogram(catalogue.TAINT_SECONDS)
        """To be given the age in seconds of a Node whose uninitialized taint was just removed."""
        self.read_at_scrape(catalogue.BUILD_INFO, lambda: {(version, platform.python_version()): 1.0})
        self.read_at_scrape(
            catalogue.RUNNING, lambda: {(_SHORT_NAMES.get(name, name), MANAGER): 1.0 for name in self._controllers}
        )
        for metric, of_queue in _QUEUE_VALUES.items():
            self.read_at_scrape(metric, _reader(self._queues.values(), of_queue))

    @property
    def leading(self) -> bool:
        """Whether this process works: without an election it always does."""
        return self._candidate is None or self._candidate.leading

    def read_at_scrape(self, metric: Metric, read: Read, *, only_leading: bool = False) -> None:
        """Have the values of a gauge or counter read whenever metrics are asked for; ``read`` must be quick.

        ``only_leading`` is for what a process that does not lead knows nothing of.
        """
        self._scraped.sources[metric.name] = (
            metric,
            (lambda: read() if self.leading else {}) if only_leading else read,
        )

    def follow_clients(self, *clients: ApiClient) -> None:
        """Show when the credentials in use expire."""

        def read() -> Samples:
            expiries = {(client.cluster,): _expiry(client.credentials.token) for client in clients}
            return {labels: expiry for labels, expiry in expiries.items() if expiry is not None}

        self.read_at_scrape(catalogue.CREDENTIAL_EXPIRY, read)

    def follow_caches(self, *, guest: Sequence[Informer[Any]], harvester: Sequence[Informer[Any]]) -> None:
        """Show how caches follow their collections."""
        for metric, value in _CACHE_VALUES.items():
            self.read_at_scrape(metric, _reader((*guest, *harvester), value))

        def last_contact() -> Samples:
            last = max((self._contacts.get("harvester", NEVER), *(cache.last_contact for cache in harvester)))
            return {} if last == NEVER else {(): self.wall_clock() - (self._clock() - last)}

        self.read_at_scrape(catalogue.LAST_CONTACT, last_contact)

    def follow_lease(self, name: str, candidate: LeaderElector) -> None:
        """Show whether this process holds the Lease of this name."""
        self._candidate = candidate
        self.read_at_scrape(catalogue.MASTER, lambda: {(name,): float(candidate.leading)})

    def follow_health(self, health: HealthRegistry) -> None:
        """Show what the checks say."""

        def read() -> Samples:
            return {
                (one.name, aspect.value): float(one.problem is None)
                for aspect in Aspect
                for one in health.results(aspect)
            }

        self.read_at_scrape(catalogue.HEALTHCHECK, read)

    def follow_controller(self, name: str) -> None:
        """Show that a controller runs, named as in ``--controllers``."""
        self._controllers.append(name)

    def follow_queue(self, queue: WorkQueue) -> Queue:
        """Measure a queue from now on, and return what is measured."""
        queue.observer = metrics = self.queue(queue.name)
        return metrics

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type, in the best format that the ``Accept`` header names."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def request_done(self, cluster: str, verb: str, path: str, status: int, seconds: float) -> None:
        """Count one request to an API server; ``status`` 0 means no answer."""
        taken = 200 <= status < 300
        if taken:
            self._contacts[cluster] = self._clock()
        self._requests.labels(str(status) if status else "<error>", verb, cluster).inc()
        self._request_seconds.labels(verb, cluster).observe(seconds)
        if verb == "PUT" and path.startswith(_LOAD_BALANCERS):
            self._updates.inc()
            self._update_seconds.observe(seconds)
            if not taken:
                self._update_errors.inc()

    def queue(self, name: str) -> Queue:
        """Return the observer of the queue with this name."""
        if name not in self._queues:
            self._queues[name] = Queue(name, self._queue_metrics, self._clock)
        return self._queues[name]

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry)


_CACHE_VALUES: Final[Mapping[Metric, Callable[[Informer[Any]], float]]] = {
    catalogue.CACHE_SYNCED: lambda cache: float(cache.synced),
    catalogue.CACHE_OBJECTS: lambda cache: float(len(cache)),
    catalogue.WATCH_RESTARTS: lambda cache: float(cache.restarts),
}
_QUEUE_VALUES: Final[Mapping[Metric, Callable[[Queue], float]]] = {
    catalogue.QUEUE_DEPTH: lambda queue: queue.depth,
    catalogue.QUEUE_OLDEST: lambda queue: queue.oldest_seconds,
    catalogue.UNFINISHED_SECONDS: lambda queue: queue.unfinished_seconds,
    catalogue.LONGEST_SECONDS: lambda queue: queue.longest_seconds,
}


def _reader(things: Iterable[N], value: Callable[[N], float]) -> Read:
    return lambda: {(one.name,): value(one) for one in things}


def _expiry(token: TokenSource) -> float | None:
    if token.renewed:
        return None
    try:
        end = token_end(token.get())
    except CredentialError:
        return None
    return end.timestamp() if end else None
