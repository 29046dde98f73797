"""The flags of the Go provider that have no meaning here: accepted, so that no set-up breaks, and reported once.

They come from the framework of cloud controller managers in its versions 0.33 to 0.36, hidden ones included.
"""

from __future__ import annotations

from typing import Final

from harvester_ccm.flags.definition import Flag, Group, Kind

_ROUTES: Final = "Harvester has no cloud routes and hands out no pod ranges"
_ONE_LEASE: Final = "all controllers run under one Lease"
_NO_WEBHOOKS: Final = "this program serves no admission webhooks"
_NO_GO: Final = "the program is not written in Go and serves no pprof pages"
_PACE: Final = "the --concurrent-... flags bound the requests, and the API server paces them"
_DIRECT: Final = "every log line goes unbuffered to standard error"
_HTTP1: Final = "the server speaks HTTP/1.1 only"
_SOCKETS: Final = "a second process on the same port would hide the health of the first"
_TLS: Final = "the TLS library's own list is served; --tls-min-version is respected"
_CERTIFICATE: Final = "there is one serving certificate: --tls-cert-file, or one made in memory at each start"
_BEARER: Final = "callers prove who they are by a bearer token that this cluster's API server reviews"
_OWN_ACCESS: Final = "reviews are made with the program's own access to this cluster"
_REVIEWS: Final = "the answer of a review is kept for ten seconds"

_ROWS: Final[tuple[tuple[str, Kind, str, str], ...]] = (
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
    ("tls-cipher-suites", Kind.WORDS, "", _TLS),
    ("tls-curve-preferences", Kind.WORDS, "", _TLS),
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
    for name, kind, default, reason in _ROWS
)
