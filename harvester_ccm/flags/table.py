"""Every flag. Those that do something here: the Go provider's, with its defaults, and a few of our own.

And those of the Go provider that have no meaning here: accepted, so that no set-up breaks, and reported once with the
reason. They come from the framework of cloud controller managers in its versions 0.33 to 0.36, hidden ones included.
"""

from __future__ import annotations

from typing import Final

from harvester_ccm.flags.definition import Flag, Group, Kind
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, LOAD_BALANCER_CLASS, PROVIDED_NODE_IP

# fmt: off
EFFECTIVE: Final[tuple[Flag, ...]] = (
    Flag(
        "cloud-config", Kind.TEXT, "", Group.HARVESTER,
        "Kubeconfig file for the Harvester cluster. The namespace of its current context holds the VMs and the load "
        "balancers of this cluster. Required.",
    ),
    Flag(
        "cloud-config-context", Kind.TEXT, "", Group.HARVESTER,
        "Context of --cloud-config to use in place of its current one.",
    ),
    Flag(
        "cluster-name", Kind.TEXT, "kubernetes", Group.HARVESTER,
        "Name of this cluster in Harvester, part of the name and the labels of every load balancer. White space and "
        "quotes around it are removed. Set it to the cluster's own name, a DNS label, and never change it.",
    ),
    Flag(
        "former-cluster-name", Kind.WORDS, "", Group.HARVESTER,
        "Names that this cluster had before, for a cluster that was renamed: its load balancers of these names are "
        "taken over with their addresses. Without it they are left alone, because a copy of this cluster may own them. "
        "Never for a copy.",
    ),
    Flag(
        "cloud-provider", Kind.TEXT, "harvester", Group.HARVESTER,
        "Name of the cloud provider; nothing but harvester is accepted.",
    ),
    Flag(
        "management-network", Kind.TEXT, "", Group.HARVESTER,
        "Harvester network, as namespace/name or as a name in the namespace default, that node addresses are read "
        "from and that the IP pool of a load balancer is chosen by. Empty: the first network interface of each VM.",
    ),
    Flag(
        "concurrent-service-syncs", Kind.INT32, "16", Group.SERVICES,
        "Services that are worked on at the same time. The Go provider's default is 1; here a Service that waits holds "
        "no place, and one slow request must not hold up the others. At least 1.",
    ),
    Flag(
        "load-balancer-class-only", Kind.BOOL, "false", Group.SERVICES,
        f"Serve only Services whose spec.loadBalancerClass is {LOAD_BALANCER_CLASS}, for clusters with a second load "
        "balancer implementation.",
    ),
    Flag(
        "accept-new-harvester", Kind.BOOL, "false", Group.SERVICES,
        "Create load balancers although Services have addresses and Harvester has no load balancer and no VM of this "
        "cluster: the cluster was moved to another Harvester or namespace, and Services get other addresses. Without "
        "the flag, no load balancer is created then, because the cloud-config is probably wrong. Remove it afterwards.",
    ),
    Flag(
        "orphan-lbs", Kind.TEXT, "delete", Group.SERVICES,
        "What to do with load balancers that this cluster owns and whose Service no longer exists: delete them, "
        "report them in the log, or off.",
    ),
    Flag(
        "orphan-lbs-period", Kind.DURATION, "10m", Group.SERVICES,
        "Interval between two checks of all load balancers; the first check is at start.",
    ),
    Flag(
        "concurrent-node-syncs", Kind.INT32, "32", Group.NODES,
        "Nodes that are worked on at the same time. The Go provider's default is 1; here one slow request must not "
        "hold up the other nodes. At least 1.",
    ),
    Flag(
        "disable-annotation-alpha-provided-ip-addr", Kind.BOOL, "false", Group.NODES,
        f"Ignore the node annotations {PROVIDED_NODE_IP} and {ADDITIONAL_INTERNAL_IPS}.",
    ),
    Flag(
        "disable-hostname-lookup", Kind.BOOL, "false", Group.NODES,
        "Never ask guest agents for host names: a new Node's VM must have its name or its system UUID.",
    ),
    Flag(
        "node-deletion-confirmations", Kind.INT, "3", Group.NODES,
        "How many times in a row Harvester must say that a VM does not exist before its Node is deleted. At least 2.",
    ),
    Flag(
        "node-exclude-ip-ranges", Kind.WORDS, "", Group.NODES,
        "CIDRs and addresses that are never shown as external address of a node, with and without --node-ip-cidr.",
    ),
    Flag(
        "node-ip-cidr", Kind.TEXT, "", Group.NODES,
        "CIDRs or addresses, comma separated, at most one per IP family: the first address inside becomes the "
        "internal address of the node.",
    ),
    Flag(
        "node-monitor-period", Kind.DURATION, "5s", Group.NODES,
        "Time between two looks at the VM of a node that is not ready, and time for which a node must miss something "
        "before an Event says so. An InternalIP that a VM no longer reports is replaced after twelve times as long.",
    ),
    Flag(
        "node-status-update-frequency", Kind.DURATION, "5m", Group.NODES,
        "Longest time between two comparisons of a node's addresses with its VM; a change of the VM is seen at once.",
    ),
    Flag(
        "kubeconfig", Kind.TEXT, "", Group.GUEST,
        "Kubeconfig file for this cluster. Empty: the files in the environment variable KUBECONFIG, read as one as "
        "kubectl does, else the service account of the pod.",
    ),
    Flag(
        "context", Kind.TEXT, "", Group.GUEST,
        "Context of this cluster's kubeconfig to use in place of its current one.",
    ),
    Flag(
        "master", Kind.TEXT, "", Group.GUEST,
        "URL of this cluster's API server, in place of the one in the kubeconfig.",
    ),
    Flag(
        "controllers", Kind.WORDS, "*", Group.CONTROLLERS,
        "Controllers that run: cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller. "
        "'*' stands for all that are not named, a name turns one on, -name turns one off; the first mention counts.",
    ),
    Flag(
        "disable-vmi-controller", Kind.BOOL, "false", Group.CONTROLLERS,
        "Do not follow VM instances: no topology updates of existing nodes and no network to device ConfigMap.",
    ),
    Flag(
        "leader-elect", Kind.BOOL, "true", Group.LEADER,
        "Work only while holding the Lease, so that of several processes one is active.",
    ),
    Flag(
        "leader-elect-lease-duration", Kind.DURATION, "15s", Group.LEADER,
        "Time after which another process may take a Lease that is not renewed.",
    ),
    Flag(
        "leader-elect-renew-deadline", Kind.DURATION, "10s", Group.LEADER,
        "Time for which the holder tries to renew before it gives up and exits. Less than the lease duration.",
    ),
    Flag(
        "leader-elect-retry-period", Kind.DURATION, "2s", Group.LEADER,
        "Time between two tries to take or renew the Lease.",
    ),
    Flag(
        "leader-elect-resource-lock", Kind.TEXT, "leases", Group.LEADER,
        "Kind of the lock object; nothing but leases is accepted.",
    ),
    Flag(
        "leader-elect-resource-name", Kind.TEXT, "cloud-controller-manager", Group.LEADER,
        "Name of the Lease. With the default, this program and the Go provider are never active together.",
    ),
    Flag(
        "leader-elect-resource-namespace", Kind.TEXT, "kube-system", Group.LEADER,
        "Namespace of the Lease.",
    ),
    Flag(
        "authorization-always-allow-paths", Kind.WORDS, "/healthz,/readyz,/livez", Group.SERVER,
        "Paths that are answered without asking who is calling; a trailing * matches any rest.",
    ),
    Flag(
        "bind-address", Kind.IP, "0.0.0.0", Group.SERVER,  # noqa: S104 - the default of the Go provider; probes come to the host's address
        "Address to listen on; :: means all addresses of both families.",
    ),
    Flag("secure-port", Kind.INT, "10258", Group.SERVER, "HTTPS port to listen on; 0 means no server."),
    Flag(
        "tls-cert-file", Kind.TEXT, "", Group.SERVER,
        "PEM file with the serving certificate. Empty, together with --tls-private-key-file: a self-signed "
        "certificate is made in memory at each start.",
    ),
    Flag(
        "tls-min-version", Kind.TEXT, "", Group.SERVER,
        "Lowest TLS version: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 are accepted and mean "
        "VersionTLS12, which is the default.",
    ),
    Flag("tls-private-key-file", Kind.TEXT, "", Group.SERVER, "PEM file with the key of --tls-cert-file."),
    Flag("logging-format", Kind.TEXT, "text", Group.LOGGING, "Format of log lines: text or json."),
    Flag(
        "v", Kind.LEVEL, "0", Group.LOGGING,
        "Verbosity: 0 to 3 log what an operator needs, 4 and above add debug lines.",
        shorthand="v",
    ),
    Flag("help", Kind.BOOL, "false", Group.GENERAL, "Print this text and exit.", shorthand="h"),
    Flag(
        "show-full-help-on-error", Kind.BOOL, "false", Group.GENERAL,
        "Print the help after the errors when the flags cannot be used.",
    ),
    Flag("version", Kind.VERSION, "false", Group.GENERAL, "Print the version and exit."),
)
# fmt: on

_ROUTES: Final = "Harvester has no cloud routes and hands out no pod ranges"
_ONE_LEASE: Final = "all controllers run under one Lease"
_NO_WEBHOOKS: Final = "this program serves no admission webhooks"
_NO_GO: Final = "the program is not written in Go and serves no pprof pages"
_PACE: Final = "the --concurrent-... flags bound the requests, and the API server paces them"
_DIRECT: Final = "every log line goes unbuffered to standard error"
_HTTP1: Final = "the server speaks HTTP/1.1 only"
_SOCKETS: Final = "a second process on the same port would hide the health of the first"
_CURVES: Final = "the TLS library's own list of key exchanges is served"
_CERTIFICATE: Final = "there is one serving certificate: --tls-cert-file, or one made in memory at each start"
_BEARER: Final = "callers prove who they are by a bearer token that this cluster's API server reviews"
_OWN_ACCESS: Final = "reviews are made with the program's own access to this cluster"
_REVIEWS: Final = "the answer of a review is kept for ten seconds"

_ACCEPTED_ROWS: Final[tuple[tuple[str, Kind, str, str], ...]] = (
    ("allocate-node-cidrs", Kind.BOOL, "false", _ROUTES),
    ("allow-untagged-cloud", Kind.BOOL, "false", "no cluster tag is ever looked for"),
    ("authentication-kubeconfig", Kind.TEXT, "", _OWN_ACCESS),
    ("authentication-skip-lookup", Kind.BOOL, "false", "no client certificates are accepted, so none are looked up"),
    ("authentication-token-webhook-cache-ttl", Kind.DURATION, "10s", _REVIEWS),
    (
        "authentication-tolerate-lookup-failure",
        Kind.BOOL,
        "false",
        "no client certificates are accepted, so no lookup can fail",
    ),
    ("authorization-kubeconfig", Kind.TEXT, "", _OWN_ACCESS),
    ("authorization-webhook-cache-authorized-ttl", Kind.DURATION, "10s", _REVIEWS),
    ("authorization-webhook-cache-unauthorized-ttl", Kind.DURATION, "10s", _REVIEWS),
    ("cert-dir", Kind.TEXT, "", _CERTIFICATE),
    ("cidr-allocator-type", Kind.TEXT, "RangeAllocator", _ROUTES),
    ("client-ca-file", Kind.TEXT, "", _BEARER),
    ("cluster-cidr", Kind.TEXT, "", _ROUTES),
    (
        "concurrent-node-status-updates",
        Kind.INT32,
        "0",
        "address updates are part of the work that --concurrent-node-syncs bounds",
    ),
    ("configure-cloud-routes", Kind.BOOL, "true", _ROUTES),
    ("contention-profiling", Kind.BOOL, "false", _NO_GO),
    ("controller-start-interval", Kind.DURATION, "0s", "controllers start together, on caches that are already filled"),
    ("disable-http2-serving", Kind.BOOL, "false", _HTTP1),
    ("enable-leader-migration", Kind.BOOL, "false", _ONE_LEASE),
    ("external-cloud-volume-plugin", Kind.TEXT, "", "volumes are the work of the Harvester CSI driver"),
    ("feature-gates", Kind.TEXT, "", "there are no feature gates"),
    ("http2-max-streams-per-connection", Kind.INT, "0", _HTTP1),
    ("kube-api-burst", Kind.INT32, "30", _PACE),
    ("kube-api-content-type", Kind.TEXT, "application/vnd.kubernetes.protobuf", "requests and answers are JSON"),
    ("kube-api-qps", Kind.FLOAT, "20", _PACE),
    ("leader-migration-config", Kind.TEXT, "", _ONE_LEASE),
    ("log-flush-frequency", Kind.DURATION, "5s", _DIRECT),
    ("log-json-info-buffer-size", Kind.TEXT, "0", _DIRECT),
    ("log-json-split-stream", Kind.BOOL, "false", _DIRECT),
    ("log-text-info-buffer-size", Kind.TEXT, "0", _DIRECT),
    ("log-text-split-stream", Kind.BOOL, "false", _DIRECT),
    ("min-resync-period", Kind.DURATION, "12h", "both clusters are watched, and a watch that ends lists anew"),
    ("node-sync-period", Kind.DURATION, "0s", "it had no effect in the Go provider either"),
    ("permit-address-sharing", Kind.BOOL, "false", _SOCKETS),
    ("permit-port-sharing", Kind.BOOL, "false", _SOCKETS),
    ("profiling", Kind.BOOL, "true", _NO_GO),
    ("requestheader-allowed-names", Kind.WORDS, "", _BEARER),
    ("requestheader-client-ca-file", Kind.TEXT, "", _BEARER),
    ("requestheader-extra-headers-prefix", Kind.WORDS, "x-remote-extra-", _BEARER),
    ("requestheader-group-headers", Kind.WORDS, "x-remote-group", _BEARER),
    ("requestheader-uid-headers", Kind.WORDS, "", _BEARER),
    ("requestheader-username-headers", Kind.WORDS, "x-remote-user", _BEARER),
    ("route-reconciliation-period", Kind.DURATION, "10s", _ROUTES),
    ("tls-cipher-suites", Kind.WORDS, "", "TLS 1.2 always has the suites with ECDHE and AES-GCM or ChaCha20"),
    ("tls-curve-preferences", Kind.WORDS, "", _CURVES),
    ("tls-sni-cert-key", Kind.WORDS, "", _CERTIFICATE),
    (
        "use-service-account-credentials",
        Kind.BOOL,
        "false",
        "all controllers use one identity, whose permissions the chart lists",
    ),
    ("vmodule", Kind.TEXT, "", "one verbosity holds for the whole program: --v"),
    ("webhook-bind-address", Kind.IP, "0.0.0.0", _NO_WEBHOOKS),  # noqa: S104 - a default that nothing listens on
    ("webhook-cert-dir", Kind.TEXT, "", _NO_WEBHOOKS),
    ("webhook-disable-http2-serving", Kind.BOOL, "false", _NO_WEBHOOKS),
    ("webhook-secure-port", Kind.INT, "10260", _NO_WEBHOOKS),
    ("webhook-tls-cert-file", Kind.TEXT, "", _NO_WEBHOOKS),
    ("webhook-tls-cipher-suites", Kind.WORDS, "", _NO_WEBHOOKS),
    ("webhook-tls-curve-preferences", Kind.WORDS, "", _NO_WEBHOOKS),
    ("webhook-tls-min-version", Kind.TEXT, "", _NO_WEBHOOKS),
    ("webhook-tls-private-key-file", Kind.TEXT, "", _NO_WEBHOOKS),
    ("webhook-tls-sni-cert-key", Kind.WORDS, "", _NO_WEBHOOKS),
    ("webhooks", Kind.WORDS, "", _NO_WEBHOOKS),
)

ACCEPTED: Final[tuple[Flag, ...]] = tuple(
    Flag(name, kind, default, Group.ACCEPTED, "Accepted without effect.", effect=reason)
    for name, kind, default, reason in _ACCEPTED_ROWS
)

FLAGS: Final[tuple[Flag, ...]] = EFFECTIVE + ACCEPTED
