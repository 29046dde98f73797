"""The metrics of one process. Counted is only what cannot be computed when somebody asks; the rest is read then.

There is no global state: each ``Telemetry`` has a registry of its own. All calls belong to the event loop's thread.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from harvester_ccm.telemetry import catalogue
from harvester_ccm.telemetry.catalogue import Kind, Metric
from harvester_ccm.telemetry.queues import Queue, QueueMetrics

Samples = Mapping[tuple[str, ...], float]
"""Label values, in the order of the metric's labels, to the value."""
Read = Callable[[], Samples]


class _Scraped(Collector):
    """Metrics that are read when they are asked for."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[Metric, Read]] = {}

    def collect(self) -> Iterator[Family]:
        for metric, read in self.sources.values():
            new = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = new(metric.name, metric.help, labels=metric.labels)
            for labels, value in read().items():
                family.add_metric(labels, value)
            yield family


class Telemetry:
    """Everything that is measured in this process."""

    def __init__(self, version: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` has to be the one of the event loop."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # without annotations in the library
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._clock = clock
        self._scraped = _Scraped()
        self.registry.register(self._scraped)
        self._queues: dict[str, Queue] = {}
        self._contacts: dict[str, float] = {}
        self._requests = self._counter(catalogue.REQUESTS)
        self._request_seconds = self._histogram(catalogue.REQUEST_SECONDS)
        self._updates = self._counter(catalogue.UPDATES)
        self._update_errors = self._counter(catalogue.NODE_SYNC_ERRORS)
        self._update_seconds = tuple(map(self._histogram, (catalogue.UPDATE_SECONDS, catalogue.NODE_SYNC_SECONDS)))
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
        self._read_queues_at_scrape()

    def read_at_scrape(self, metric: Metric, read: Read) -> None:
        """Have the values of a gauge or counter read whenever metrics are asked for; ``read`` must be quick."""
        self._scraped.sources[metric.name] = (metric, read)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type, in the best format that the ``Accept`` header names."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def request_done(self, cluster: str, verb: str, status: int, seconds: float) -> None:
        """Count one request to an API server; ``status`` 0 means no answer."""
        taken = 200 <= status < 300
        if taken:
            self._contacts[cluster] = self._clock()
        self._requests.labels(str(status) if status else "<error>", verb, cluster).inc()
        self._request_seconds.labels(verb, cluster).observe(seconds)
        if cluster == "harvester" and verb == "PUT":
            # Nothing but load balancers is ever replaced in Harvester.
            self._updates.inc()
            for histogram in self._update_seconds:
                histogram.observe(seconds)
            if not taken:
                self._update_errors.inc()

    def last_success(self, cluster: str) -> float:
        """Return the clock's time of the last request that succeeded; minus infinity before the first."""
        return self._contacts.get(cluster, float("-inf"))

    def queue(self, name: str) -> Queue:
        """Return the observer of the queue with this name."""
        if name not in self._queues:
            metrics = self._queue_metrics
            self._queues[name] = Queue(
                QueueMetrics(
                    metrics.adds.labels(name),
                    metrics.retries.labels(name),
                    metrics.queue_seconds.labels(name),
                    metrics.work_seconds.labels(name),
                ),
                self._clock,
            )
        return self._queues[name]

    def _read_queues_at_scrape(self) -> None:
        values: Iterable[tuple[Metric, Callable[[Queue], float]]] = (
            (catalogue.QUEUE_DEPTH, lambda queue: queue.depth),
            (catalogue.QUEUE_OLDEST, lambda queue: queue.oldest_seconds),
            (catalogue.UNFINISHED_SECONDS, lambda queue: queue.unfinished_seconds),
            (catalogue.LONGEST_SECONDS, lambda queue: queue.longest_seconds),
        )
        for metric, value in values:
            self.read_at_scrape(metric, self._queue_reader(value))

    def _queue_reader(self, value: Callable[[Queue], float]) -> Read:
        return lambda: {(name,): value(queue) for name, queue in self._queues.items()}

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry)
