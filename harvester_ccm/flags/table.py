"""All flags: flags with an effect, and flags of the Go provider that are accepted without effect.

The Go provider's flags come from its own code and from the framework of cloud controller managers, 0.33 to 0.36.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from harvester_ccm.config import Announcer, LogFormat, OrphanPolicy, SharedAddressScope
from harvester_ccm.flags import types
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, DEFAULT_CLUSTER_NAME, LOAD_BALANCER_CLASS, PROVIDED_NODE_IP


class Group(StrEnum):
    """Section of the help and of the reference page, in the order in which they are shown."""

    HARVESTER = "Harvester"
    SERVICES = "Load balancers"
    NODES = "Nodes"
    GUEST = "Guest cluster"
    CONTROLLERS = "Controllers"
    LEADER = "Leader election"
    SERVER = "Health and metrics server"
    LOGGING = "Logging"
    GENERAL = "General"
    ACCEPTED = "Accepted without effect"


class Flag(Struct, frozen=True):
    """A flag of the command line."""

    name: str
    kind: types.Kind
    default: str
    """As on the command line; empty for an empty text or list."""
    group: Group
    meaning: str
    """One or two sentences for the help; for a flag without effect, the reason."""
    shorthand: str = ""


# fmt: off
_EFFECTIVE: Final[tuple[Flag, ...]] = (
    Flag("cloud-config", types.FILE, "", Group.HARVESTER,
         "Kubeconfig file of the Harvester cluster. The namespace of its current context contains the VMs and the load "
         "balancers of this cluster. Required."),
    Flag("cloud-config-context", types.TEXT, "", Group.HARVESTER,
         "Context of --cloud-config to use instead of its current one."),
    Flag("cluster-name", types.TEXT, DEFAULT_CLUSTER_NAME, Group.HARVESTER,
         "Name of this cluster in Harvester, part of the names and labels of its load balancers. Set it to a DNS label "
         "that no other cluster uses. Change it only with --former-cluster-names."),
    Flag("former-cluster-names", types.LIST, "", Group.HARVESTER,
         "Previous names of a renamed cluster, whose load balancers are adopted. Never set it for a clone, which would "
         "adopt those of the original."),
    Flag("cloud-provider", types.one_of({"harvester": "harvester"}), "harvester", Group.HARVESTER,
         "Name of the cloud provider. The only valid value is harvester."),
    Flag("management-network", types.NETWORK, "", Group.HARVESTER,
         "Harvester network that selects Node addresses and, from Harvester 1.9 on, IP pools, as namespace/name or as "
         "a name in the namespace default. Without it, the interface with the kubelet's address, the InternalIP or an "
         "address in --node-ip-cidr counts, or else the first one of a new Node."),
    Flag("concurrent-service-syncs", types.WORKERS, "16", Group.SERVICES,
         "Number of Services that are reconciled at the same time."),
    Flag("require-load-balancer-class", types.SWITCH, "false", Group.SERVICES,
         f"Manage only Services whose spec.loadBalancerClass is {LOAD_BALANCER_CLASS}, and those that this controller "
         "has managed before. kube-vip needs this class as lb_class_name; kube-vip.harvesterClass=required in the "
         "chart sets both."),
    Flag("allow-harvester-change", types.SWITCH, "false", Group.SERVICES,
         "Create load balancers although Services have addresses and Harvester has no load balancer or VM of this "
         "cluster. Services can get new addresses. Set it once, after a move to another Harvester or namespace."),
    Flag("shared-address-scope", types.one_of({scope: scope for scope in SharedAddressScope}), "cluster",
         Group.SERVICES,
         "Where the Services that share one address can be: in the whole cluster, as with the Go provider, or in one "
         "namespace."),
    Flag("announcer", types.one_of({announcer: announcer for announcer in Announcer}), "auto", Group.SERVICES,
         "Program that announces addresses in this cluster. With kube-vip, a Service on which kube-vip has not noted "
         "its node is reported. With other, no note is expected. auto is kube-vip for a Service on which kube-vip has "
         "written such a note again."),
    Flag("orphaned-load-balancer-policy", types.one_of({policy: policy for policy in OrphanPolicy}), "delete",
         Group.SERVICES,
         "Action for load balancers of this cluster that no Service uses: delete, report in the log, or off."),
    Flag("orphaned-load-balancer-resync-period",
         types.seconds_between(1, types.MAX_SECONDS, "a duration of at least 1s"), "10m", Group.SERVICES,
         "Maximum time between two checks for orphaned load balancers, at least 1s."),
    Flag("concurrent-node-syncs", types.WORKERS, "32", Group.NODES,
         "Number of Nodes that are reconciled at the same time."),
    Flag("disable-annotation-alpha-provided-ip-addr", types.SWITCH, "false", Group.NODES,
         f"Ignore the Node annotations {PROVIDED_NODE_IP} and {ADDITIONAL_INTERNAL_IPS}."),
    Flag("disable-hostname-lookup", types.SWITCH, "false", Group.NODES,
         "Do not query guest agents for host names. New Nodes are then found by name or system UUID."),
    Flag("node-deletion-confirmations", types.between(2, 100), "3", Group.NODES,
         "Number of consecutive responses of Harvester that the VM does not exist before its Node is deleted, from 2 "
         "to 100."),
    Flag("node-exclude-ip-ranges", types.RANGES, "", Group.NODES,
         "Addresses and CIDRs that are never an ExternalIP of a Node and, without --node-ip-cidr, avoided as "
         "InternalIP."),
    Flag("node-ip-cidr", types.NODE_RANGES, "", Group.NODES,
         "CIDRs or IP addresses, at most one for each IP family. The first address inside is the InternalIP of a new "
         "Node whose kubelet names none."),
    Flag("node-monitor-period", types.PERIOD, "5s", Group.NODES,
         "Time until most problems of a Node cause an Event. Twice this time is between the requests that confirm a "
         "missing VM. An InternalIP that the VM does not report can be replaced after twelve times this time."),
    Flag("node-status-update-frequency", types.PERIOD, "5m", Group.NODES,
         "Maximum time between two comparisons of a Node's addresses with its VM. A change of the VM "
         "triggers one."),
    Flag("kubeconfig", types.FILE, "", Group.GUEST,
         "Kubeconfig file of this cluster. Default: the files in the environment variable KUBECONFIG, merged as by "
         "kubectl, or else the service account of the pod."),
    Flag("context", types.TEXT, "", Group.GUEST, "Context of --kubeconfig to use instead of its current one."),
    Flag("master", types.TEXT, "", Group.GUEST, "URL of this cluster's API server. Default: the one in --kubeconfig."),
    Flag("controllers", types.CONTROLLER_LIST, "*", Group.CONTROLLERS,
         "Controllers to run: cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller. '*' "
         "enables all that are not named, a name enables one, -name disables one. The first match counts."),
    Flag("disable-vmi-controller", types.SWITCH, "false", Group.CONTROLLERS,
         "No topology updates of existing Nodes, no network-to-device ConfigMap, no queries of guest agents for host "
         "names."),
    Flag("leader-elect", types.SWITCH, "true", Group.LEADER,
         "Reconcile only while this process holds the Lease, so that one of several replicas is active."),
    Flag("leader-elect-lease-duration", types.LEASE_DURATION, "15s", Group.LEADER,
         "Time after which another process can acquire a Lease that was not renewed, at least 1s."),
    Flag("leader-elect-renew-deadline", types.DURATION, "10s", Group.LEADER,
         "Time for which the leader retries a renewal before it exits, less than the lease duration."),
    Flag("leader-elect-retry-period", types.DURATION, "2s", Group.LEADER,
         "Interval between two attempts to acquire or renew the Lease."),
    Flag("leader-elect-resource-lock", types.TEXT, "leases", Group.LEADER,
         "Kind of the lock object. The only valid value is leases."),
    Flag("leader-elect-resource-name", types.TEXT, "cloud-controller-manager", Group.LEADER,
         "Name of the Lease. The default prevents this controller and the Go provider from being active together."),
    Flag("leader-elect-resource-namespace", types.TEXT, "kube-system", Group.LEADER, "Namespace of the Lease."),
    Flag("authorization-always-allow-paths", types.LIST, "/healthz,/readyz,/livez", Group.SERVER,
         "Paths that are served without authorization. A trailing * matches any suffix."),
    Flag("bind-address", types.IP, "0.0.0.0", Group.SERVER,  # noqa: S104 - the Go provider's default; kubelet probes the host's address
         "Address to listen on; :: means all addresses of both families."),
    Flag("secure-port", types.PORT, "10258", Group.SERVER, "HTTPS port to listen on; 0 disables the server."),
    Flag("tls-cert-file", types.FILE, "", Group.SERVER,
         "PEM file with the serving certificate. Default: a self-signed certificate, created in memory at each start."),
    Flag("tls-min-version", types.TLS_VERSION, "", Group.SERVER,
         "Minimum TLS version: VersionTLS12 (default) or VersionTLS13. Lower versions mean VersionTLS12."),
    Flag("tls-private-key-file", types.FILE, "", Group.SERVER, "PEM file with the private key of --tls-cert-file."),
    Flag("logging-format", types.one_of({form: form for form in LogFormat}), "text", Group.LOGGING,
         "Format of log lines: text or json."),
    Flag("v", types.between(0, types.MAX_INT32), "0", Group.LOGGING,
         "Log verbosity. 4 and above add debug lines.", shorthand="v"),
    Flag("help", types.SWITCH, "false", Group.GENERAL, "Print the help and exit.", shorthand="h"),
    Flag("show-full-help-on-error", types.SWITCH, "false", Group.GENERAL, "Print the help after errors in the flags."),
    Flag("version", types.VERSION, "false", Group.GENERAL, "Print the version and exit."),
)
# fmt: on

_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "Harvester has no cloud routes and allocates no pod CIDRs": "allocate-node-cidrs=false cluster-cidr= "
    "cidr-allocator-type=RangeAllocator configure-cloud-routes=true route-reconciliation-period=10s",
    "no cluster ID is required": "allow-untagged-cloud=false",
    "clients authenticate with a bearer token that this cluster's API server reviews": "client-ca-file= "
    "authentication-skip-lookup=false authentication-tolerate-lookup-failure=false requestheader-allowed-names= "
    "requestheader-client-ca-file= requestheader-extra-headers-prefix=x-remote-extra- "
    "requestheader-group-headers=x-remote-group requestheader-username-headers=x-remote-user "
    "requestheader-uid-headers=",
    "reviews use the controller's own credentials and are cached for ten seconds": "authentication-kubeconfig= "
    "authorization-kubeconfig= authentication-token-webhook-cache-ttl=10s "
    "authorization-webhook-cache-authorized-ttl=10s authorization-webhook-cache-unauthorized-ttl=10s",
    "the serving certificate is --tls-cert-file or self-signed": "cert-dir= tls-sni-cert-key=",
    "--concurrent-node-syncs also limits address updates": "concurrent-node-status-updates=0",
    "harvester-ccm is not written in Go and has no pprof endpoints": "contention-profiling=false profiling=true",
    "all controllers start together": "controller-start-interval=0s",
    "the server supports only HTTP/1.1": "disable-http2-serving=false http2-max-streams-per-connection=0",
    "all controllers share one Lease": "enable-leader-migration=false leader-migration-config=",
    "the Harvester CSI driver provides volumes": "external-cloud-volume-plugin=",
    "there are no feature gates": "feature-gates=",
    "--concurrent-service-syncs and --concurrent-node-syncs limit the requests": "kube-api-burst=30 kube-api-qps=20",
    "requests and responses are JSON": "kube-api-content-type=application/vnd.kubernetes.protobuf",
    "log lines are written unbuffered to standard error": "log-flush-frequency=5s log-json-info-buffer-size=0 "
    "log-json-split-stream=false log-text-info-buffer-size=0 log-text-split-stream=false",
    "both clusters are watched, and listed again every 30 to 60 minutes": "min-resync-period=12h",
    "it has no effect in the Go provider either": "node-sync-period=0s",
    "a second process on the port would hide the health of the first": "permit-address-sharing=false "
    "permit-port-sharing=false",
    "cipher suites and curves are fixed": "tls-cipher-suites= tls-curve-preferences=",
    "all controllers use one service account": "use-service-account-credentials=false",
    "--v applies to the whole program": "vmodule=",
    "there are no admission webhooks": "webhook-bind-address=0.0.0.0 webhook-cert-dir= "
    "webhook-disable-http2-serving=false webhook-secure-port=10260 webhook-tls-cert-file= webhook-tls-cipher-suites= "
    "webhook-tls-curve-preferences= webhook-tls-min-version= webhook-tls-private-key-file= webhook-tls-sni-cert-key= "
    "webhooks=",
}
"""Reasons, each with its flags and their defaults."""


def _accepted(assignment: str, reason: str) -> Flag:
    name, _, default = assignment.partition("=")
    kind = types.TEXT
    if default in ("true", "false"):
        kind = types.SWITCH
    return Flag(name, kind, default, Group.ACCEPTED, reason)


FLAGS: Final[tuple[Flag, ...]] = (
    *_EFFECTIVE,
    *(_accepted(assignment, reason) for reason, flags in _WITHOUT_EFFECT.items() for assignment in flags.split()),
)
