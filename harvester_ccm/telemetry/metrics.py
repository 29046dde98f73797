"""The metrics of one process, as prometheus-client objects, and what they measure.

Names, labels and buckets of the Go framework for cloud controller managers and of client-go are kept, so that existing
dashboards work. Names of this project begin with ``harvester_ccm_``. Only what happens is counted; what another object
knows is read at each scrape. All calls belong to the event loop's thread.

Metrics of Services, load balancers and Nodes are computed from the caches while this process is the leader. Gauges by
reason always have the reason ``queued``, and load balancers every state, so that no query is empty.
"""

import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import CredentialError
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.lease import LeaderElector
from harvester_ccm.kube.tokens import token_claims
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import Node, Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.plan.service.orphans import is_orphan, service_of
from harvester_ccm.plan.service.ownership import has_cluster_name
from harvester_ccm.plan.service.scope import is_served_by_us

Labels = tuple[str, ...]
"""Values of a metric's labels."""
_NODE_BUCKETS: Final = tuple(float(4**power) for power in range(6))
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_PENDING_BUCKETS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)
_QUEUE_BUCKETS: Final = tuple(10.0**power for power in range(-8, 2))


class Metrics:
    """The metrics by subject."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(prometheus_client.Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)

        self.load_balancers = gauge(
            "harvester_ccm_load_balancers",
            "Load balancers of this cluster in Harvester. State is ready, pending (no address yet), unhealthy (an "
            "address, but not ready), deleting, or orphan (its Service does not exist).",
            ("state", "ipam", "workload_type"),
        )
        self.services = gauge("harvester_ccm_services", "Services that this controller manages.")
        self.services_pending = gauge(
            "harvester_ccm_services_pending",
            "Services that wait, by reason. Besides Services without an address, these can be Services with one, such "
            "as one whose load balancer belongs to another cluster (LoadBalancerOwnershipConflict).",
            ("reason",),
        )
        self.oldest_pending = gauge(
            "harvester_ccm_oldest_pending_service_age_seconds", "Longest wait for an address, by reason.", ("reason",)
        )
        self.provisioning_seconds = histogram(
            "harvester_ccm_service_provisioning_duration_seconds",
            "Time until a Service had an address.",
            buckets=_PENDING_BUCKETS,
        )
        self.orphans_deleted = counter(
            "harvester_ccm_orphaned_load_balancers_deleted_total",
            "Deletions of load balancers whose Service no longer existed.",
        )
        self.nodes_pending = gauge(
            "harvester_ccm_nodes_pending", "Nodes that are not initialized, by reason.", ("reason",)
        )
        self.taint_seconds = histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Age of a new Node when its uninitialized taint was removed.",
            buckets=_NODE_BUCKETS,
        )

        self.last_contact = gauge(
            "harvester_ccm_harvester_last_contact_timestamp_seconds",
            "When Harvester last responded to a list or sent data on a watch; NaN before.",
        )
        self.credential_expiry = gauge(
            "harvester_ccm_credential_expiry_timestamp_seconds",
            "When the bearer token in use expires. Infinity for tokens without this time, such as Rancher's, and for "
            "credential plugins, which renew their tokens.",
            ("cluster",),
        )
        self.events_dropped = counter(
            "harvester_ccm_events_dropped_total", "Events not written: queue full, too many for one object, rejected."
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
        self.queue_depth = gauge("workqueue_depth", "Keys that wait for a worker.", name)
        self.queue_adds = counter("workqueue_adds_total", "Keys that were queued.", name)
        self.queue_retries = counter("workqueue_retries_total", "Keys that were retried after a failure.", name)
        self.queue_seconds = histogram(
            "workqueue_queue_duration_seconds", "Time that a key waited for a worker.", name, buckets=_QUEUE_BUCKETS
        )
        self.work_seconds = histogram(
            "workqueue_work_duration_seconds", "Time of a reconcile.", name, buckets=_QUEUE_BUCKETS
        )

        self.build_info = gauge("harvester_ccm_build_info", "Always 1.", ("version", "python"))
        self.master = gauge(
            "leader_election_master_status",
            "1 on the process that holds the Lease of this name, 0 on others. Absent without leader election.",
            name,
        )
        self.healthcheck = gauge(
            "kubernetes_healthcheck", "1 if a check of livez or readyz passes, else 0.", ("name", "type")
        )


class Telemetry:
    """Everything that is measured in this process."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # without annotations in the library
        self.registry = CollectorRegistry()
        """Not the library's global one: a test runs several programs in one process."""
        ProcessCollector(registry=self.registry)
        self.metrics = Metrics(self.registry)
        self.metrics.build_info.labels(version, platform.python_version()).set(1)
        self._readers: list[Callable[[], None]] = []
        self._queues: dict[str, WorkQueue] = {}
        self._elector: LeaderElector | None = None

    @property
    def leading(self) -> bool:
        """Whether this process is the leader; it always is without an election."""
        return self._elector is None or self._elector.leading

    def before_scrape(self, read: Callable[[], None]) -> None:
        """Call a function that sets metrics before each scrape; it must be quick."""
        self._readers.append(read)

    def follow_clients(self, *clients: ApiClient) -> None:
        """Show when the credentials in use expire."""
        for client in clients:
            self.metrics.credential_expiry.labels(client.cluster).set_function(partial(_expiry, client))

    def follow_harvester(self, caches: Sequence[Informer[Any]]) -> None:
        """Show when Harvester last responded to one of these caches."""

        def last_contact() -> float:
            last = max(cache.last_contact for cache in caches)
            return time.time() - loop_time() + last if last > -math.inf else math.nan

        self.metrics.last_contact.set_function(last_contact)

    def show(self, gauge: Gauge, samples: Mapping[Labels, float]) -> None:
        """Replace all values of a gauge; only the leader shows any."""
        gauge.clear()
        for labels, value in samples.items() if self.leading else ():
            gauge.labels(*labels).set(value)

    def follow_count(self, counter: prometheus_client.Counter, read: Callable[[], float]) -> None:
        """Show a count that another object keeps."""

        def set_counter() -> None:
            counter.reset()
            counter.inc(read())

        self.before_scrape(set_counter)

    def follow_lease(self, name: str, elector: LeaderElector) -> None:
        """Show whether this process holds the Lease of this name."""
        self._elector = elector
        self.metrics.master.labels(name).set_function(lambda: elector.leading)

    def follow_queue(self, queue: WorkQueue) -> None:
        """Show and measure the keys of a queue."""
        metrics, name = self.metrics, queue.name
        self._queues[name] = queue
        queue.waited = metrics.queue_seconds.labels(name).observe
        queue.worked = metrics.work_seconds.labels(name).observe
        metrics.queue_depth.labels(name).set_function(lambda: queue.depth)
        self.follow_count(metrics.queue_adds.labels(name), lambda: queue.adds)
        self.follow_count(metrics.queue_retries.labels(name), lambda: queue.retries)

    def reason(self, queue: str, key: str) -> str:
        """Return the reason of the condition or Event of a key, or the class of its error; empty if it is ready."""
        return self._queues[queue].reasons.get(key, "") if queue in self._queues else ""

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type, in the best format that the ``Accept`` header names."""
        for read in self._readers:
            read()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def request_done(self, cluster: str, verb: str, _path: str, status: int, seconds: float) -> None:
        """Count one request to an API server; ``status`` 0 means no response."""
        self.metrics.requests.labels(str(status) if status else "<error>", verb, cluster).inc()
        self.metrics.request_seconds.labels(verb, cluster).observe(seconds)


def _expiry(client: ApiClient) -> float:
    """Return the time at which a client's token expires, in seconds since the epoch; infinity if it is not known."""
    try:
        end, _account = token_claims(client.credentials.token.get())
    except CredentialError:
        end = None
    return end.timestamp() if end else math.inf


def measure_services(telemetry: Telemetry, services: Informer[Service], cluster: ClusterIdentity) -> None:
    """Show Services that wait, by reason, and measure how long each waits for its address."""
    metrics = telemetry.metrics
    pending_since: dict[str, float] = {}

    def changed(old: Service | None, new: Service | None) -> None:
        item, now = new or old, time.time()
        key = item.metadata.key if item is not None else ""
        if new is not None and not new.addresses and is_served_by_us(new, cluster):
            # A Service that this process did not see before has waited since its creation.
            pending_since.setdefault(key, now if old is not None else min(now, new.metadata.created or now))
        elif (since := pending_since.pop(key, None)) is not None and new and new.addresses and telemetry.leading:
            metrics.provisioning_seconds.observe(now - since)

    def read() -> None:
        managed = [service.metadata.key for service in services.all() if is_served_by_us(service, cluster)]
        # A Service with an address can wait, too.
        found = {key: telemetry.reason("service", key) for key in managed}
        reasons = {key: reason for key, reason in found.items() if reason}
        longest: dict[Labels, float] = {(Reason.QUEUED,): 0.0}
        for key, since in pending_since.items():
            labels = (reasons.setdefault(key, Reason.QUEUED),)
            longest[labels] = max(longest.get(labels, 0.0), time.time() - since)
        metrics.services.set(len(managed) if telemetry.leading else 0)
        telemetry.show(metrics.services_pending, _count(reasons))
        telemetry.show(metrics.oldest_pending, longest)

    services.on_change(changed)
    telemetry.before_scrape(read)


def measure_load_balancers(
    telemetry: Telemetry,
    load_balancers: Informer[LoadBalancer],
    services: Informer[Service],
    cluster: ClusterIdentity,
) -> None:
    """Show the load balancers of this cluster by state."""

    def read() -> None:
        states: Counter[Labels] = Counter(
            {(state, "pool", "cluster"): 0 for state in ("ready", "pending", "unhealthy", "deleting", "orphaned")}
        )
        for one in load_balancers.all():
            if not has_cluster_name(one, cluster):
                continue
            orphaned = services.synced and is_orphan(one, service_of(one, services), cluster)
            state = "orphaned" if orphaned else _state_of(one)
            states[state, one.spec.ipam or "pool", one.spec.workload_type or "vm"] += 1
        telemetry.show(telemetry.metrics.load_balancers, states)

    telemetry.before_scrape(read)


def _state_of(load_balancer: LoadBalancer) -> str:
    """Return the state of a load balancer whose Service exists."""
    if load_balancer.metadata.deleting:
        return "deleting"
    condition = load_balancer.ready
    if condition is not None and condition.status == "True":
        return "ready"
    return "unhealthy" if load_balancer.allocated_ip else "pending"


def measure_nodes(telemetry: Telemetry, nodes: Informer[Node]) -> None:
    """Show Nodes that are not initialized, by reason, and measure the age of each when it is initialized."""
    metrics = telemetry.metrics

    def changed(old: Node | None, new: Node | None) -> None:
        created = new.metadata.created if new is not None and not uninitialized_taints(new) else None
        if created is not None and old is not None and uninitialized_taints(old) and telemetry.leading:
            metrics.taint_seconds.observe(max(0.0, time.time() - created))

    def read() -> None:
        waiting = [one.metadata.name for one in nodes.all() if uninitialized_taints(one) and not one.metadata.deleting]
        reasons = {name: telemetry.reason("node", name) or Reason.QUEUED for name in waiting}
        telemetry.show(metrics.nodes_pending, _count(reasons))

    nodes.on_change(changed)
    telemetry.before_scrape(read)


def _count(reasons: dict[str, str]) -> Counter[Labels]:
    """Return the number of objects by reason."""
    found: Counter[Labels] = Counter({(Reason.QUEUED,): 0})
    found.update((reason,) for reason in reasons.values())
    return found
