"""Every metric of this program: its name, type, labels and meaning. Reference page and registry are made from it.

Names out of the framework of Go cloud controller managers and of client-go are kept, with their labels and buckets, so
that dashboards made for those show this program too. Names of our own start with ``harvester_ccm_``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class MetricType(StrEnum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricGroup(StrEnum):
    """Section of the reference page."""

    SERVICES = "Load balancers"
    NODES = "Nodes"
    CLUSTERS = "Harvester and this cluster"
    QUEUES = "Work queues"
    PROCESS = "This process"


class Metric(Struct, frozen=True):
    """One metric."""

    name: str
    type: MetricType
    group: MetricGroup
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds, for histograms."""


_PASS_BUCKETS: Final = tuple(float(2**power) for power in range(15))
_NODE_BUCKETS: Final = tuple(float(4**power) for power in range(6))
_QUEUE_BUCKETS: Final = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_PENDING_BUCKETS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0)

LOAD_BALANCERS: Final = Metric(
    "harvester_ccm_load_balancers", MetricType.GAUGE, MetricGroup.SERVICES, labels=("state", "ipam", "workload_type"),
    help="Load balancers in Harvester that carry the name of this cluster. State is ready, pending (no address yet), "
    "unhealthy (an address, and not ready), deleting, or orphan (the Service it was made for does not exist).",
)  # fmt: skip
SERVICES_PENDING: Final = Metric(
    "harvester_ccm_services_pending", MetricType.GAUGE, MetricGroup.SERVICES, labels=("reason",),
    help="Services that ask for a load balancer and have no address, by what they wait for.",
)  # fmt: skip
PENDING_LONGEST: Final = Metric(
    "harvester_ccm_service_pending_longest_seconds", MetricType.GAUGE, MetricGroup.SERVICES, labels=("reason",),
    help="Time for which the Service that waits longest has been without an address, by what it waits for.",
)  # fmt: skip
PENDING_SECONDS: Final = Metric(
    "harvester_ccm_service_pending_seconds", MetricType.HISTOGRAM, MetricGroup.SERVICES, buckets=_PENDING_BUCKETS,
    help="Time from when a Service asked for a load balancer until it had an address.",
)  # fmt: skip
SERVICES_DISPUTED: Final = Metric(
    "harvester_ccm_services_disputed", MetricType.GAUGE, MetricGroup.SERVICES, labels=("reason",),
    help="Services that are left as they are because the label or the mark on their load balancer is not this "
    "cluster's, or Harvester has nothing of this cluster. Reason is other_cluster_name (renamed, copied, or somebody "
    "has written another name), foreign_load_balancer (another cluster's mark) or new_harvester.",
)  # fmt: skip
ORPHANS_DELETED: Final = Metric(
    "harvester_ccm_orphans_deleted_total", MetricType.COUNTER, MetricGroup.SERVICES,
    help="Load balancers that were deleted because their Service no longer existed.",
)  # fmt: skip
UPDATES: Final = Metric(
    "service_controller_loadbalancer_sync_total", MetricType.COUNTER, MetricGroup.SERVICES,
    help="Updates of existing load balancers that were sent to Harvester.",
)  # fmt: skip
UPDATE_SECONDS: Final = Metric(
    "service_controller_update_loadbalancer_host_latency_seconds", MetricType.HISTOGRAM, MetricGroup.SERVICES,
    buckets=_PASS_BUCKETS, help="Time that Harvester took for an update of a load balancer.",
)  # fmt: skip
NODE_SYNC_ERRORS: Final = Metric(
    "service_controller_nodesync_error_total", MetricType.COUNTER, MetricGroup.SERVICES,
    help="Updates of load balancers that Harvester did not take.",
)  # fmt: skip

TAINT_SECONDS: Final = Metric(
    "node_controller_cloud_provider_taint_removal_delay_seconds", MetricType.HISTOGRAM, MetricGroup.NODES,
    buckets=_NODE_BUCKETS, help="Age of a new Node when its uninitialized taint was removed.",
)  # fmt: skip
NODE_INIT_SECONDS: Final = Metric(
    "node_controller_initial_node_sync_delay_seconds", MetricType.HISTOGRAM, MetricGroup.NODES, buckets=_NODE_BUCKETS,
    help="Age of a new Node when it was first looked at.",
)  # fmt: skip

LAST_CONTACT: Final = Metric(
    "harvester_ccm_harvester_last_contact_timestamp_seconds", MetricType.GAUGE, MetricGroup.CLUSTERS,
    help="When Harvester last answered a request with success or sent something on a watch. Absent before that.",
)  # fmt: skip
CREDENTIAL_EXPIRY: Final = Metric(
    "harvester_ccm_credential_expiry_timestamp_seconds", MetricType.GAUGE, MetricGroup.CLUSTERS, labels=("cluster",),
    help="When the bearer token in use expires. Absent for tokens that do not say so, such as Rancher's, and for "
    "credential plugins, which renew theirs.",
)  # fmt: skip
CACHE_SYNCED: Final = Metric(
    "harvester_ccm_cache_synced", MetricType.GAUGE, MetricGroup.CLUSTERS, labels=("collection",),
    help="1 when the copy of a collection was filled, 0 before. Collections are named cluster/resource.",
)  # fmt: skip
CACHE_OBJECTS: Final = Metric(
    "harvester_ccm_cache_objects", MetricType.GAUGE, MetricGroup.CLUSTERS, labels=("collection",),
    help="Objects in the copy of a collection.",
)  # fmt: skip
WATCH_RESTARTS: Final = Metric(
    "harvester_ccm_watch_restarts_total", MetricType.COUNTER, MetricGroup.CLUSTERS, labels=("collection",),
    help="Watches that ended or were lost. A watch ends by itself every 5 to 10 minutes.",
)  # fmt: skip
EVENTS_DROPPED: Final = Metric(
    "harvester_ccm_events_dropped_total", MetricType.COUNTER, MetricGroup.CLUSTERS,
    help="Events that were not written: queue full, too many for one object, or refused.",
)  # fmt: skip
REQUESTS: Final = Metric(
    "rest_client_requests_total", MetricType.COUNTER, MetricGroup.CLUSTERS, labels=("code", "method", "host"),
    help="Requests to an API server. Host is guest or harvester; code is <error> where no answer came; method is WATCH "
    "for watches.",
)  # fmt: skip
REQUEST_SECONDS: Final = Metric(
    "rest_client_request_duration_seconds", MetricType.HISTOGRAM, MetricGroup.CLUSTERS, labels=("verb", "host"),
    buckets=_REQUEST_BUCKETS, help="Time until an API server began to answer.",
)  # fmt: skip

QUEUE_DEPTH: Final = Metric(
    "workqueue_depth", MetricType.GAUGE, MetricGroup.QUEUES, labels=("name",), help="Objects that wait for a worker."
)
QUEUE_OLDEST: Final = Metric(
    "harvester_ccm_queue_oldest_seconds", MetricType.GAUGE, MetricGroup.QUEUES, labels=("name",),
    help="Time for which the object at the head of the queue has waited for a worker.",
)  # fmt: skip
QUEUE_ADDS: Final = Metric(
    "workqueue_adds_total", MetricType.COUNTER, MetricGroup.QUEUES, labels=("name",), help="Objects put into the queue."
)
QUEUE_RETRIES: Final = Metric(
    "workqueue_retries_total",
    MetricType.COUNTER,
    MetricGroup.QUEUES,
    labels=("name",),
    help="Objects tried again after a failure.",
)
QUEUE_SECONDS: Final = Metric(
    "workqueue_queue_duration_seconds", MetricType.HISTOGRAM, MetricGroup.QUEUES, labels=("name",),
    buckets=_QUEUE_BUCKETS, help="Time that objects waited for a worker.",
)  # fmt: skip
WORK_SECONDS: Final = Metric(
    "workqueue_work_duration_seconds", MetricType.HISTOGRAM, MetricGroup.QUEUES, labels=("name",),
    buckets=_QUEUE_BUCKETS, help="Time that a worker took for an object.",
)  # fmt: skip
UNFINISHED_SECONDS: Final = Metric(
    "workqueue_unfinished_work_seconds", MetricType.GAUGE, MetricGroup.QUEUES, labels=("name",),
    help="Time spent so far on the objects that are being worked on, added up.",
)  # fmt: skip
LONGEST_SECONDS: Final = Metric(
    "workqueue_longest_running_processor_seconds", MetricType.GAUGE, MetricGroup.QUEUES, labels=("name",),
    help="Time spent so far on the object that takes longest.",
)  # fmt: skip

BUILD_INFO: Final = Metric(
    "harvester_ccm_build_info", MetricType.GAUGE, MetricGroup.PROCESS, labels=("version", "python"), help="Always 1."
)
MASTER: Final = Metric(
    "leader_election_master_status", MetricType.GAUGE, MetricGroup.PROCESS, labels=("name",),
    help="1 on the process that holds the Lease of this name, 0 on others. Absent without leader election.",
)  # fmt: skip
RUNNING: Final = Metric(
    "running_managed_controllers", MetricType.GAUGE, MetricGroup.PROCESS, labels=("name", "manager"),
    help="1 for each controller that runs.",
)  # fmt: skip
HEALTHCHECK: Final = Metric(
    "kubernetes_healthcheck", MetricType.GAUGE, MetricGroup.PROCESS, labels=("name", "type"),
    help="1 while a health check succeeds, 0 while it fails. Type is livez or readyz.",
)  # fmt: skip

CATALOGUE: Final = tuple(one for one in tuple(globals().values()) if isinstance(one, Metric))
