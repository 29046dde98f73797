"""The flags that do something here: those of the Go provider, with its defaults, and a few of our own."""

from __future__ import annotations

from typing import Final

from harvester_ccm.flags.definition import Flag, Group, Kind
from harvester_ccm.names import ADDITIONAL_INTERNAL_IPS, LOAD_BALANCER_CLASS, PROVIDED_NODE_IP

EFFECTIVE: Final[tuple[Flag, ...]] = (
    Flag(
        "cloud-config",
        Kind.TEXT,
        "",
        Group.HARVESTER,
        "Kubeconfig file for the Harvester cluster. The namespace of its current context holds the VMs and the load "
        "balancers of this cluster. Required.",
    ),
    Flag(
        "cluster-name",
        Kind.TEXT,
        "kubernetes",
        Group.HARVESTER,
        "Name of this cluster in Harvester, part of the name and the labels of every load balancer. White space and "
        "quotes around it are removed. Set it to the cluster's own name, a DNS label, and never change it.",
    ),
    Flag(
        "cloud-provider",
        Kind.TEXT,
        "harvester",
        Group.HARVESTER,
        "Name of the cloud provider; nothing but harvester is accepted.",
    ),
    Flag(
        "management-network",
        Kind.TEXT,
        "",
        Group.HARVESTER,
        "Harvester network, as namespace/name or as a name in the namespace default, that node addresses are read "
        "from and that the IP pool of a load balancer is chosen by. Empty: the first network interface of each VM.",
    ),
    Flag(
        "concurrent-service-syncs",
        Kind.INT32,
        "16",
        Group.SERVICES,
        "Services that are worked on at the same time. The Go provider's default is 1; here a Service that waits holds "
        "no place, and one slow request must not hold up the others. At least 1.",
    ),
    Flag(
        "load-balancer-class-only",
        Kind.BOOL,
        "false",
        Group.SERVICES,
        f"Serve only Services whose spec.loadBalancerClass is {LOAD_BALANCER_CLASS}, for clusters with a second load "
        "balancer implementation.",
    ),
    Flag(
        "orphan-lbs",
        Kind.TEXT,
        "delete",
        Group.SERVICES,
        "What to do with load balancers that this cluster owns and whose Service no longer exists: delete them, "
        "report them in the log, or off.",
    ),
    Flag(
        "orphan-lbs-period",
        Kind.DURATION,
        "10m",
        Group.SERVICES,
        "Time between two looks for such load balancers; the first look is at start.",
    ),
    Flag(
        "concurrent-node-syncs",
        Kind.INT32,
        "32",
        Group.NODES,
        "Nodes that are worked on at the same time. The Go provider's default is 1; here one slow request must not "
        "hold up the other nodes. At least 1.",
    ),
    Flag(
        "disable-annotation-alpha-provided-ip-addr",
        Kind.BOOL,
        "false",
        Group.NODES,
        f"Ignore the node annotations {PROVIDED_NODE_IP} and {ADDITIONAL_INTERNAL_IPS}.",
    ),
    Flag(
        "node-deletion-confirmations",
        Kind.INT,
        "3",
        Group.NODES,
        "How many times in a row Harvester must say that a VM does not exist before its Node is deleted. At least 2.",
    ),
    Flag(
        "node-deletion-max-share",
        Kind.SHARE,
        "0.34",
        Group.NODES,
        "Largest share of the nodes, as a percentage or a fraction, whose VMs may be missing at the same time; above "
        "it no Node is deleted, because a wrong namespace or credential is more likely. One missing VM is always "
        "allowed.",
    ),
    Flag(
        "node-exclude-ip-ranges",
        Kind.WORDS,
        "",
        Group.NODES,
        "CIDRs and addresses that are never shown as external address of a node, with and without --node-ip-cidr.",
    ),
    Flag(
        "node-ip-cidr",
        Kind.TEXT,
        "",
        Group.NODES,
        "CIDRs or addresses, comma separated, at most one per IP family: the first address inside becomes the "
        "internal address of the node.",
    ),
    Flag(
        "node-monitor-period",
        Kind.DURATION,
        "5s",
        Group.NODES,
        "Time between two looks at the VM of a node that is not ready, and time for which a node must miss something "
        "before an Event says so.",
    ),
    Flag(
        "node-status-update-frequency",
        Kind.DURATION,
        "5m",
        Group.NODES,
        "Longest time between two comparisons of a node's addresses with its VM; a change of the VM is seen at once.",
    ),
    Flag(
        "kubeconfig",
        Kind.TEXT,
        "",
        Group.GUEST,
        "Kubeconfig file for this cluster. Empty: the file in the environment variable KUBECONFIG, else the service "
        "account of the pod.",
    ),
    Flag(
        "master",
        Kind.TEXT,
        "",
        Group.GUEST,
        "URL of this cluster's API server, in place of the one in the kubeconfig.",
    ),
    Flag(
        "controllers",
        Kind.WORDS,
        "*",
        Group.CONTROLLERS,
        "Controllers that run: cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller. "
        "'*' stands for all that are not named, a name turns one on, -name turns one off; the first mention counts.",
    ),
    Flag(
        "disable-vmi-controller",
        Kind.BOOL,
        "false",
        Group.CONTROLLERS,
        "Do not follow VM instances: no topology updates of existing nodes and no network to device ConfigMap.",
    ),
    Flag(
        "leader-elect",
        Kind.BOOL,
        "true",
        Group.LEADER,
        "Work only while holding the Lease, so that of several processes one is active.",
    ),
    Flag(
        "leader-elect-lease-duration",
        Kind.DURATION,
        "15s",
        Group.LEADER,
        "Time after which another process may take a Lease that is not renewed.",
    ),
    Flag(
        "leader-elect-renew-deadline",
        Kind.DURATION,
        "10s",
        Group.LEADER,
        "Time for which the holder tries to renew before it gives up and exits. Less than the lease duration.",
    ),
    Flag(
        "leader-elect-retry-period",
        Kind.DURATION,
        "2s",
        Group.LEADER,
        "Time between two tries to take or renew the Lease.",
    ),
    Flag(
        "leader-elect-resource-lock",
        Kind.TEXT,
        "leases",
        Group.LEADER,
        "Kind of the lock object; nothing but leases is accepted.",
    ),
    Flag(
        "leader-elect-resource-name",
        Kind.TEXT,
        "cloud-controller-manager",
        Group.LEADER,
        "Name of the Lease. With the default, this program and the Go provider are never active together.",
    ),
    Flag(
        "leader-elect-resource-namespace",
        Kind.TEXT,
        "kube-system",
        Group.LEADER,
        "Namespace of the Lease.",
    ),
    Flag(
        "authorization-always-allow-paths",
        Kind.WORDS,
        "/healthz,/readyz,/livez",
        Group.SERVER,
        "Paths that are answered without asking who is calling; a trailing * matches any rest.",
    ),
    Flag(
        "bind-address",
        Kind.IP,
        "0.0.0.0",  # noqa: S104 - the default of the Go provider; probes come to the host's address
        Group.SERVER,
        "Address to listen on; :: means all addresses of both families.",
    ),
    Flag("secure-port", Kind.INT, "10258", Group.SERVER, "HTTPS port to listen on; 0 means no server."),
    Flag(
        "tls-cert-file",
        Kind.TEXT,
        "",
        Group.SERVER,
        "PEM file with the serving certificate. Empty, together with --tls-private-key-file: a self-signed "
        "certificate is made in memory at each start.",
    ),
    Flag(
        "tls-min-version",
        Kind.TEXT,
        "",
        Group.SERVER,
        "Lowest TLS version: VersionTLS12 or VersionTLS13. VersionTLS10 and VersionTLS11 are accepted and mean "
        "VersionTLS12, which is the default.",
    ),
    Flag("tls-private-key-file", Kind.TEXT, "", Group.SERVER, "PEM file with the key of --tls-cert-file."),
    Flag("logging-format", Kind.TEXT, "text", Group.LOGGING, "Format of log lines: text or json."),
    Flag(
        "v",
        Kind.LEVEL,
        "0",
        Group.LOGGING,
        "Verbosity: 0 to 3 log what an operator needs, 4 and above add debug lines.",
        shorthand="v",
    ),
    Flag("help", Kind.BOOL, "false", Group.GENERAL, "Print this text and exit.", shorthand="h"),
    Flag(
        "show-full-help-on-error",
        Kind.BOOL,
        "false",
        Group.GENERAL,
        "Print the help after the errors when the flags cannot be used.",
    ),
    Flag("version", Kind.VERSION, "false", Group.GENERAL, "Print the version and exit."),
)
