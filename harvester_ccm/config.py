"""Settings of one run: frozen values in groups.

``harvester_ccm.flags.build_settings`` creates them from the command line and rejects invalid values. Durations are in
seconds. Flags named "disable" are positive fields here. Pass only the group that a function needs.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from harvester_ccm.netip import IPNetwork

SERVICE_CONTROLLER: Final = "service-lb-controller"
NODE_CONTROLLER: Final = "cloud-node-controller"
LIFECYCLE_CONTROLLER: Final = "cloud-node-lifecycle-controller"
ROUTE_CONTROLLER: Final = "node-route-controller"
"""Known to ``--controllers``, never on: Harvester has no cloud routes."""
CONTROLLERS: Final = (NODE_CONTROLLER, LIFECYCLE_CONTROLLER, SERVICE_CONTROLLER, ROUTE_CONTROLLER)


class OrphanPolicy(StrEnum):
    """Policy for load balancers of this cluster whose Service no longer exists."""

    DELETE = "delete"
    REPORT = "report"
    OFF = "off"


class SharedAddressScope(StrEnum):
    """Services that can share the address of another Service."""

    CLUSTER = "cluster"
    """Those of all namespaces, as with the Go provider."""
    NAMESPACE = "namespace"
    """Only those in the namespace of that Service."""


class Announcer(StrEnum):
    """The program that announces the addresses of cluster load balancers in the guest cluster."""

    AUTO = "auto"
    """kube-vip, as soon as it has noted its node on a Service of this controller; unknown before."""
    KUBE_VIP = "kube-vip"
    """A kube-vip that notes its node on each Service that it announces."""
    OTHER = "other"
    """Another program, or a kube-vip that notes nothing."""


class LogFormat(StrEnum):
    """Shape of a log line."""

    TEXT = "text"
    JSON = "json"


class HarvesterSettings(Struct, frozen=True):
    """The Harvester cluster, and the name of the guest cluster in it."""

    cloud_config: Path | None
    """Kubeconfig for Harvester; the namespace of its context contains the VMs and load balancers of this cluster. None
    only for commands that ask no cluster."""
    cluster_name: str
    """Name of this cluster, trimmed; part of load balancer names and labels."""
    former_names: tuple[str, ...] = ()
    """Former names of this cluster; load balancers with such a name are adopted."""
    context: str = ""
    """Context of the kubeconfig; empty means its current one."""


class GuestSettings(Struct, frozen=True):
    """The guest cluster."""

    kubeconfigs: tuple[Path, ...]
    """The file of ``--kubeconfig``, else the files of ``$KUBECONFIG``; none means the service account of the pod."""
    master: str
    """API server URL that replaces the one of the kubeconfig; empty leaves it."""
    context: str = ""
    """Context of the kubeconfig; empty means its current one."""


class ServiceSettings(Struct, frozen=True):
    """Load balancers."""

    concurrent_syncs: int
    """Number of workers for Services."""
    orphan_policy: OrphanPolicy
    orphan_period: float
    """Interval between two checks for orphans."""
    class_only: bool
    """Manage only Services with this controller's load balancer class."""
    allow_harvester_change: bool = False
    """Create load balancers in a Harvester that has no load balancer and no VM of this cluster."""
    shared_address_scope: SharedAddressScope = SharedAddressScope.CLUSTER
    announcer: Announcer = Announcer.AUTO


class NodeSettings(Struct, frozen=True):
    """Addresses and lifecycle of Nodes."""

    management_network: str | None
    """``namespace/name`` of the Harvester network that carries node addresses; None means that
    ``plan/node/interface.py`` chooses the interface of each VM."""
    node_ip_cidrs: tuple[IPNetwork, ...]
    """Ranges that choose the internal address, at most one per family; empty means no choice by range."""
    exclude_ranges: tuple[IPNetwork, ...]
    """Ranges that are never shown as external address, however the internal one is chosen."""
    use_provided_node_ip: bool
    """Respect the node annotations for a provided node IP and for additional internal IPs."""
    concurrent_syncs: int
    """Number of workers for Nodes."""
    monitor_period: float
    """Seconds until a problem of a Node causes an Event; other times about Nodes are multiples of it."""
    status_period: float
    """Longest time in seconds between two comparisons of a node's addresses with its VM."""
    deletion_confirmations: int
    """Number of live requests in a row that must confirm the deletion of the VM before its Node is deleted."""
    vmi_controller: bool
    """Follow VM instances: topology labels and the network to device ConfigMap."""
    hostname_lookup: bool
    """Find the VM of a Node by the host name of its guest if nothing else identifies it."""

    @property
    def asks_guests(self) -> bool:
        """Whether guest agents may be asked for host names."""
        return self.vmi_controller and self.hostname_lookup

    @property
    def address_grace_seconds(self) -> float:
        """Seconds until an InternalIP that the VM does not report is replaced, or a kubelet's address that the VM does
        not report is used. KubeVirt queries guest agents every ten seconds, and renewing a lease takes time."""
        return 12 * self.monitor_period

    @property
    def confirmation_spacing(self) -> float:
        """Seconds between two confirmations that a VM was deleted: two checks, so that Harvester's state can settle."""
        return 2 * self.monitor_period


class LeaderElectionSettings(Struct, frozen=True):
    """The Lease that lets one process work at a time. Always holds: lease > renew deadline > 1.2 x retry > 0."""

    enabled: bool
    lease_duration: float
    """Seconds after which others may take a Lease that was not renewed; at least 1."""
    renew_deadline: float
    """Seconds for which the holder retries to renew."""
    retry_period: float
    """Seconds between two attempts."""
    name: str
    namespace: str


class ServerSettings(Struct, frozen=True):
    """The HTTPS server for health and metrics."""

    bind_address: str
    port: int
    """0 turns the server off."""
    certificate: Path | None
    """PEM file; None, together with ``key``, means a self-signed certificate made in memory."""
    key: Path | None
    min_tls: str
    """``1.2`` or ``1.3``."""
    open_paths: frozenset[str]
    """Paths without authorization; a trailing ``*`` matches any suffix."""


class LoggingSettings(Struct, frozen=True):
    """Log output."""

    format: LogFormat
    verbosity: int
    """klog level: 4 and above turn debug lines on."""


class Settings(Struct, frozen=True):
    """Everything that can be configured."""

    harvester: HarvesterSettings
    guest: GuestSettings
    services: ServiceSettings
    nodes: NodeSettings
    leader_election: LeaderElectionSettings
    server: ServerSettings
    logging: LoggingSettings
    controllers: frozenset[str]
    """Names out of ``CONTROLLERS`` that are on, without the route controller."""
    flags: tuple[str, ...] = ()
    """The flags that were given and that do not depend on the machine, as on a command line."""
    warnings: tuple[str, ...] = ()
    """Messages about questionable values."""
