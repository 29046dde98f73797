"""The metrics of one process, as prometheus-client objects.

Names, labels and buckets of the Go framework for cloud controller managers and of client-go are kept, so that existing
dashboards work. Names of this project begin with ``harvester_ccm_``.

There are two kinds. What happens is counted and timed when it happens, in prometheus-client's own objects. What another
object knows, such as the length of a queue or the state of a Service, is a ``ReadMetric``: a collector reads it from
that object at each scrape. All calls belong to the event loop's thread.
"""

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import prometheus_client
from msgspec import Struct
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import CredentialError
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.kube.tokens import certificate_end, token_claims
from harvester_ccm.kube.workqueue import WorkQueue

Labels = tuple[str, ...]
"""Values of a metric's labels."""
Samples = Mapping[Labels, float]
_NODE_BUCKETS: Final = tuple(float(4**power) for power in range(6))
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_PENDING_BUCKETS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)
_QUEUE_BUCKETS: Final = tuple(10.0**power for power in range(-8, 2))


class ReadMetric(Struct, frozen=True):
    """A metric whose values are read from another object at each scrape."""

    name: str
    help: str
    labels: Labels = ()

    @property
    def type(self) -> str:
        """``counter``, by its name, or ``gauge``."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def family(self, samples: Samples) -> Metric:
        """Return the metric with these values; one without labels always has a value."""
        family_type: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily
        if self.type == "counter":
            family_type = CounterMetricFamily
        family = family_type(self.name, self.help, labels=self.labels)
        if not self.labels and not samples:
            samples = {(): 0.0}
        for labels, value in samples.items():
            family.add_metric(labels, value)
        return family


Reading = tuple[ReadMetric, Samples]
Reader = Callable[[], Iterable[Reading]]
"""Reads plain state: it must be quick."""


class ReadCollector(Collector):
    """Collects the values of all metrics that are read at each scrape."""

    def __init__(self, metrics: Sequence[ReadMetric]) -> None:
        self._metrics = metrics
        self._readers: list[Reader] = []

    def add(self, reader: Reader) -> None:
        """Call ``reader`` at each scrape. Several can have values of one metric, with different labels."""
        self._readers.append(reader)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values of their own, for the registry."""
        for metric in self._metrics:
            yield metric.family({})

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their present values."""
        values: dict[str, dict[Labels, float]] = {metric.name: {} for metric in self._metrics}
        for read in self._readers:
            for metric, samples in read():
                values[metric.name].update(samples)
        for metric in self._metrics:
            yield metric.family(values[metric.name])


class Metrics:
    """The metrics by subject."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """``registry`` collects all of them."""
        counter = partial(prometheus_client.Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)

        self.load_balancers = ReadMetric(
            "harvester_ccm_load_balancers",
            "Load balancers of this cluster in Harvester. State is ready, pending (no address yet), unhealthy (an "
            "address, but not ready), deleting, or orphaned (no Service uses it).",
            ("state", "ipam", "workload_type"),
        )
        self.services = ReadMetric("harvester_ccm_services", "Services that this controller manages.")
        self.services_pending = ReadMetric(
            "harvester_ccm_services_pending",
            "Services that are not ready, with or without an address.",
            ("reason",),
        )
        self.oldest_pending = ReadMetric(
            "harvester_ccm_oldest_pending_service_age_seconds", "Longest wait for an address, by reason.", ("reason",)
        )
        self.provisioning_seconds = histogram(
            "harvester_ccm_service_provisioning_duration_seconds",
            "Time until a Service had an address.",
            buckets=_PENDING_BUCKETS,
        )
        self.orphans_deleted = ReadMetric(
            "harvester_ccm_orphaned_load_balancers_deleted_total",
            "Deletions of orphaned load balancers.",
        )
        self.nodes_pending = ReadMetric(
            "harvester_ccm_nodes_pending", "Nodes that are not initialized, by reason.", ("reason",)
        )
        self.nodes_shut_down = ReadMetric(
            "harvester_ccm_nodes_shut_down",
            "Nodes with the shutdown taint: their VM is stopped in Harvester, or cannot be started.",
        )
        self.taint_seconds = histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Age of a new Node when its uninitialized taint was removed.",
            buckets=_NODE_BUCKETS,
        )

        self.last_contact = ReadMetric(
            "harvester_ccm_harvester_last_contact_timestamp_seconds",
            "When Harvester last responded to a list or sent data on a watch; NaN before.",
        )
        self.credential_expiry = ReadMetric(
            "harvester_ccm_credential_expiry_timestamp_seconds",
            "When the bearer token or client certificate in use expires. Infinity if that is not known.",
            ("cluster",),
        )
        self.events_dropped = ReadMetric(
            "harvester_ccm_events_dropped_total",
            "Events not written: queue full, too many for one object, rejected, no response.",
        )
        self.requests = counter(
            "rest_client_requests_total",
            "Requests to an API server. Method is WATCH for a watch, code is <error> without a response.",
            ("code", "method", "host"),
        )
        self.request_seconds = histogram(
            "rest_client_request_duration_seconds",
            "Time until an API server began to respond.",
            ("verb", "host"),
            buckets=_REQUEST_BUCKETS,
        )

        name = ("name",)
        self.queue_depth = ReadMetric("workqueue_depth", "Keys that wait for a worker.", name)
        self.queue_adds = ReadMetric("workqueue_adds_total", "Keys that were queued.", name)
        self.queue_retries = ReadMetric("workqueue_retries_total", "Keys that were retried after a failure.", name)
        self.queue_seconds = histogram(
            "workqueue_queue_duration_seconds", "Time that a key waited for a worker.", name, buckets=_QUEUE_BUCKETS
        )
        self.work_seconds = histogram(
            "workqueue_work_duration_seconds", "Time of a reconcile.", name, buckets=_QUEUE_BUCKETS
        )

        self.build_info = ReadMetric("harvester_ccm_build_info", "Always 1.", ("version", "python", "cluster"))
        self.master = ReadMetric(
            "leader_election_master_status",
            "1 on the process that holds the Lease of this name, 0 on others. Absent without leader election.",
            name,
        )
        self.healthcheck = ReadMetric(
            "kubernetes_healthcheck", "1 if a check of livez or readyz passes, else 0.", ("name", "type")
        )
        self.collector = ReadCollector([metric for metric in vars(self).values() if isinstance(metric, ReadMetric)])
        registry.register(self.collector)


class Telemetry:
    """Everything that is measured in this process."""

    def __init__(self, version: str, cluster: str = "") -> None:
        """``cluster`` is the name of the guest cluster."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # without annotations in the library
        self.registry = CollectorRegistry()
        """Not the library's global one: a test runs several programs in one process."""
        ProcessCollector(registry=self.registry)
        self.metrics = Metrics(self.registry)
        self._queues: dict[str, WorkQueue] = {}
        self._elector: LeaderElector | None = None
        build = (version, platform.python_version(), cluster)
        self.add_reader(lambda: [(self.metrics.build_info, {build: 1.0})])
        self.add_reader(self._read_queues)

    @property
    def leading(self) -> bool:
        """Whether this process is the leader; it always is without an election."""
        return self._elector is None or self._elector.leading

    def add_reader(self, reader: Reader) -> None:
        """Call ``reader`` at each scrape for the values of metrics; it must be quick."""
        self.metrics.collector.add(reader)

    def add_leader_reader(self, reader: Reader) -> None:
        """Call ``reader`` at each scrape while this process is the leader."""

        def read() -> Iterable[Reading]:
            if self.leading:
                yield from reader()

        self.add_reader(read)

    def show_count(self, metric: ReadMetric, count: Callable[[], float]) -> None:
        """Show a count that another object keeps."""
        self.add_reader(lambda: [(metric, {(): count()})])

    def follow_clients(self, *clients: ApiClient) -> None:
        """Show when the credentials in use expire."""
        self.add_reader(
            lambda: [(self.metrics.credential_expiry, {(client.cluster,): _expiry(client) for client in clients})]
        )

    def follow_harvester(self, caches: Sequence[Informer[Any]]) -> None:
        """Show when Harvester last responded to one of these caches."""
        self.add_reader(lambda: [(self.metrics.last_contact, {(): _last_contact(caches)})])

    def follow_lease(self, name: str, elector: LeaderElector) -> None:
        """Show whether this process holds the Lease of this name."""
        self._elector = elector
        self.add_reader(lambda: [(self.metrics.master, {(name,): float(elector.leading)})])

    def follow_queue(self, queue: WorkQueue) -> None:
        """Show and measure the keys of a queue."""
        name = queue.name
        self._queues[name] = queue
        queue.waited = self.metrics.queue_seconds.labels(name).observe
        queue.worked = self.metrics.work_seconds.labels(name).observe

    def _read_queues(self) -> Iterator[Reading]:
        queues = self._queues
        yield self.metrics.queue_depth, {(name,): queue.depth for name, queue in queues.items()}
        yield self.metrics.queue_adds, {(name,): queue.adds for name, queue in queues.items()}
        yield self.metrics.queue_retries, {(name,): queue.retries for name, queue in queues.items()}

    def reason(self, queue: str, key: str) -> str:
        """Return the reason of the condition or Event of a key, or the class of its error; empty if it is ready."""
        if queue not in self._queues:
            return ""
        return self._queues[queue].reasons.get(key, "")

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type, in the best format that the ``Accept`` header names."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def request_done(self, cluster: str, verb: str, _path: str, status: int, seconds: float) -> None:
        """Count one request to an API server; ``status`` 0 means no response."""
        code = "<error>"
        if status:
            code = str(status)
        self.metrics.requests.labels(code, verb, cluster).inc()
        self.metrics.request_seconds.labels(verb, cluster).observe(seconds)


def _last_contact(caches: Sequence[Informer[Any]]) -> float:
    """Return when one of the caches was last in contact, in seconds since the epoch; NaN if none ever was."""
    last = max(cache.last_contact for cache in caches)
    if last == -math.inf:
        return math.nan
    return time.time() - loop_time() + last


def _expiry(client: ApiClient) -> float:
    """Return when the token or the certificate in use expires, in seconds since the epoch; infinity if unknown."""
    credentials = client.credentials
    try:
        end, _account = token_claims(credentials.token.get())
    except CredentialError:
        return math.inf
    end = end or certificate_end(credentials.certificate)
    return math.inf if end is None else end.timestamp()
