"""From a command line to settings: defaults, every rule, and all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from msgspec.structs import replace

from harvester_ccm.config import (
    GuestSettings,
    HarvesterSettings,
    LeaderElectionSettings,
    LogFormat,
    LoggingSettings,
    NodeSettings,
    OrphanPolicy,
    ServerSettings,
    ServiceSettings,
    Settings,
)
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import build_settings, parse_command_line

NEEDED = ("--cloud-config=/etc/cloud-config", "--cluster-name=demo")
ALL_CONTROLLERS = frozenset({"cloud-node-controller", "cloud-node-lifecycle-controller", "service-lb-controller"})
ANY_ADDRESS = "0.0.0.0"
DEFAULTS = Settings(
    harvester=HarvesterSettings(cloud_config=Path("/etc/cloud-config"), cluster_name="demo"),
    guest=GuestSettings(kubeconfigs=(), master=""),
    services=ServiceSettings(
        concurrent_syncs=16, orphan_lbs=OrphanPolicy.DELETE, orphan_period=600.0, class_only=False
    ),
    nodes=NodeSettings(
        management_network=None,
        node_ip_cidrs=(),
        exclude_ranges=(),
        use_provided_node_ip=True,
        concurrent_syncs=32,
        monitor_period=5.0,
        status_period=300.0,
        deletion_confirmations=3,
        vmi_controller=True,
        hostname_lookup=True,
    ),
    leader_election=LeaderElectionSettings(
        enabled=True,
        lease_duration=15.0,
        renew_deadline=10.0,
        retry_period=2.0,
        name="cloud-controller-manager",
        namespace="kube-system",
    ),
    server=ServerSettings(
        bind_address=ANY_ADDRESS,
        port=10258,
        certificate=None,
        key=None,
        min_tls="1.2",
        open_paths=frozenset({"/healthz", "/readyz", "/livez"}),
    ),
    logging=LoggingSettings(format=LogFormat.TEXT, verbosity=0),
    controllers=ALL_CONTROLLERS,
)


def settings(*words: str, environment: Mapping[str, str] | None = None) -> Settings:
    return build_settings(parse_command_line([*NEEDED, *words]), environment or {})


def problems(*words: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        settings(*words)
    return raised.value.problems


def test_defaults() -> None:
    assert settings() == DEFAULTS


def test_every_flag_reaches_its_setting() -> None:
    words = (
        "--kubeconfig=/guest --context=admin --master=https://guest:6443 --cloud-config-context=vms "
        "--concurrent-service-syncs=2 --orphan-lbs=report "
        "--orphan-lbs-period=1h --load-balancer-class-only --accept-new-harvester "
        "--management-network=vlan10 --node-ip-cidr=10.1.2.3/8 "
        "--node-exclude-ip-ranges=10.9.0.0/16 --disable-annotation-alpha-provided-ip-addr --concurrent-node-syncs=3 "
        "--node-monitor-period=1s --node-status-update-frequency=1m --node-deletion-confirmations=5 "
        "--disable-vmi-controller --disable-hostname-lookup --leader-elect=false "
        "--leader-elect-lease-duration=60s "
        "--leader-elect-renew-deadline=40s --leader-elect-retry-period=5s --leader-elect-resource-name=lock "
        "--leader-elect-resource-namespace=infra --bind-address=:: --secure-port=0 --tls-cert-file=/crt "
        "--tls-private-key-file=/key --tls-min-version=VersionTLS13 "
        "--authorization-always-allow-paths=/metrics "
        "--logging-format=json -v=5 --controllers=service-lb-controller --former-cluster-name=old,'older' "
        "--former-cluster-name=demo,old"
    )
    assert settings(*words.split()) == Settings(
        harvester=replace(DEFAULTS.harvester, former_names=("old", "older"), context="vms"),
        guest=GuestSettings(kubeconfigs=(Path("/guest"),), master="https://guest:6443", context="admin"),
        services=ServiceSettings(
            concurrent_syncs=2,
            orphan_lbs=OrphanPolicy.REPORT,
            orphan_period=3600.0,
            class_only=True,
            accept_new_harvester=True,
        ),
        nodes=NodeSettings(
            management_network="default/vlan10",
            node_ip_cidrs=(IPv4Network("10.0.0.0/8"),),
            exclude_ranges=(IPv4Network("10.9.0.0/16"),),
            use_provided_node_ip=False,
            concurrent_syncs=3,
            monitor_period=1.0,
            status_period=60.0,
            deletion_confirmations=5,
            vmi_controller=False,
            hostname_lookup=False,
        ),
        leader_election=LeaderElectionSettings(
            enabled=False, lease_duration=60.0, renew_deadline=40.0, retry_period=5.0, name="lock", namespace="infra"
        ),
        server=ServerSettings(
            bind_address="::",
            port=0,
            certificate=Path("/crt"),
            key=Path("/key"),
            min_tls="1.3",
            open_paths=frozenset({"/metrics"}),
        ),
        logging=LoggingSettings(format=LogFormat.JSON, verbosity=5),
        controllers=frozenset({"service-lb-controller"}),
    )


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        pytest.param([], {}, [], id="service account"),
        pytest.param([], {"KUBECONFIG": ""}, [], id="empty variable"),
        pytest.param([], {"KUBECONFIG": "/env"}, ["/env"], id="variable"),
        pytest.param([], {"KUBECONFIG": ":/a:/b::/a"}, ["/a", "/b"], id="list in the variable"),
        pytest.param(["--kubeconfig=/a:b"], {}, ["/a:b"], id="flag is one file"),
        pytest.param(["--kubeconfig=/flag"], {"KUBECONFIG": "/env"}, ["/flag"], id="flag before variable"),
        pytest.param(["--kubeconfig="], {"KUBECONFIG": "/env"}, ["/env"], id="empty flag"),
    ],
)
def test_where_the_guest_kubeconfig_comes_from(
    words: list[str], environment: dict[str, str], expected: list[str]
) -> None:
    assert settings(*words, environment=environment) == replace(
        DEFAULTS, guest=GuestSettings(tuple(map(Path, expected)), "")
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("*", ALL_CONTROLLERS),
        ("*,-service-lb-controller", ALL_CONTROLLERS - {"service-lb-controller"}),
        ("-service-lb-controller,*,service-lb-controller", ALL_CONTROLLERS - {"service-lb-controller"}),
        ("cloud-node-controller,-cloud-node-controller", {"cloud-node-controller"}),
        ("-cloud-node-controller", set()),
        ("", set()),
    ],
)
def test_controllers(value: str, expected: set[str]) -> None:
    assert settings(f"--controllers={value}").controllers == expected


def test_cluster_name_is_trimmed_with_a_warning() -> None:
    built = settings("--cluster-name= demo ")
    assert built.harvester.cluster_name == "demo"
    assert built.warnings == ('--cluster-name " demo " was trimmed of white space and quotes; "demo" is used',)


def test_route_controller_is_known_and_never_runs() -> None:
    assert settings("--controllers=node-route-controller,*") == replace(
        DEFAULTS,
        ignored=("--controllers names node-route-controller, which never runs: Harvester has no cloud routes",),
    )


def test_flags_without_effect_are_passed_on() -> None:
    assert settings("--cluster-cidr=10.42.0.0/16").ignored == (
        "--cluster-cidr has no effect here: Harvester has no cloud routes and hands out no pod ranges",
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ["--management-network=infra/"],
            'invalid configuration for --management-network: invalid network type managementNetwork format "infra/", '
            "expected 'namespace/name'",
            id="half a network",
        ),
        pytest.param(
            ["--management-network=a/b/c"],
            'invalid configuration for --management-network: network type managementNetwork name "a/b/c" has too '
            "many slashes",
            id="too many slashes",
        ),
        pytest.param(
            ["--node-ip-cidr=10.0.0.0/8,fd00::1,10.1.0.0/16"],
            'invalid configuration for --node-ip-cidr: multiple IPv4 entries in "10.0.0.0/8,fd00::1,10.1.0.0/16"',
            id="two IPv4 ranges",
        ),
        pytest.param(
            ["--node-ip-cidr=::ffff:10.0.0.1,10.1.0.0/16"],
            'invalid configuration for --node-ip-cidr: multiple IPv4 entries in "::ffff:10.0.0.1,10.1.0.0/16"',
            id="mapped counts as IPv4",
        ),
        pytest.param(
            ["--cloud-config="],
            "--cloud-config is required: name the kubeconfig file of the Harvester cluster",
            id="no cloud-config",
        ),
        pytest.param(
            ["--context=prod"],
            '--context is "prod", and there is no kubeconfig; set --kubeconfig or KUBECONFIG, too',
            id="context of a pod",
        ),
        pytest.param(
            ["--cloud-provider=external"],
            '--cloud-provider is "external"; this program serves only harvester: leave the flag out',
            id="other provider",
        ),
        *[
            pytest.param(
                [f"--concurrent-{kind}-syncs={count}"],
                f"--concurrent-{kind}-syncs is {count}; expected a number of at least 1",
                id=f"{count} {kind} workers",
            )
            for kind, count in (("service", 0), ("node", -3))
        ],
        pytest.param(
            ["--node-deletion-confirmations=1"],
            "--node-deletion-confirmations is 1; expected a number of at least 2",
            id="deletion without confirmation",
        ),
        pytest.param(
            ["--orphan-lbs=keep"], '--orphan-lbs is "keep"; expected one of: delete, report, off', id="orphan policy"
        ),
        pytest.param(
            ["--former-cluster-name=old,"],
            "--former-cluster-name has an empty entry; expected names that this cluster had before",
            id="no former name",
        ),
        pytest.param(
            ["--orphan-lbs-period=0"], "--orphan-lbs-period is 0s; expected a duration above zero", id="no period"
        ),
        pytest.param(
            ["--logging-format=xml"], '--logging-format is "xml"; expected one of: text, json', id="log format"
        ),
        pytest.param(
            ["--controllers=*,-service"],
            'invalid configuration for --controllers: "service" is not in the list of known controllers; '
            'write "service-lb-controller"',
            id="alias",
        ),
        pytest.param(
            ["--controllers=loadbalancer"],
            'invalid configuration for --controllers: "loadbalancer" is not in the list of known controllers; '
            "known are: cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, "
            "node-route-controller",
            id="unknown controller",
        ),
        pytest.param(
            ["--leader-elect-lease-duration=10s"],
            "--leader-elect-lease-duration (10s) must be greater than --leader-elect-renew-deadline (10s)",
            id="lease not longer than deadline",
        ),
        pytest.param(
            ["--leader-elect-renew-deadline=2.4s"],
            "--leader-elect-renew-deadline (2.4s) must be greater than 1.2 times --leader-elect-retry-period (2s)",
            id="no time to retry",
        ),
        pytest.param(
            ["--leader-elect-retry-period=0"],
            "--leader-elect-retry-period is 0s; expected a duration above zero",
            id="no retry period",
        ),
        pytest.param(
            [f"--leader-elect-{name}" for name in ("lease-duration=900ms", "renew-deadline=.5s", "retry-period=.1s")],
            "--leader-elect-lease-duration is 0.9s; expected at least 1s",
            id="lease below a second",
        ),
        pytest.param(["--leader-elect-resource-lock=endpoints"], 'resourceLock value must be "leases"', id="lock kind"),
        pytest.param(
            ["--leader-elect-resource-name="],
            "--leader-elect-resource-name is empty; expected the name of a Lease",
            id="lock name",
        ),
        pytest.param(
            ["--leader-elect-resource-namespace="],
            "--leader-elect-resource-namespace is empty; expected a namespace",
            id="lock namespace",
        ),
        pytest.param(
            ["--secure-port=65536"],
            "--secure-port is 65536; expected a port up to 65535, or 0 for no server",
            id="port",
        ),
        pytest.param(
            ["--tls-cert-file=/crt"],
            "--tls-cert-file and --tls-private-key-file go together; give both or neither",
            id="half a certificate",
        ),
        pytest.param(
            ["--tls-min-version=1.3"],
            '--tls-min-version is "1.3"; expected one of: VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13',
            id="TLS version",
        ),
    ],
)
def test_refused_settings(words: list[str], expected: str) -> None:
    assert problems(*words) == (expected,)


def test_leader_election_is_not_checked_when_it_is_off() -> None:
    words = ("--leader-elect=false", "--leader-elect-lease-duration=0", "--leader-elect-resource-lock=endpoints")
    assert settings(*words) == replace(
        DEFAULTS, leader_election=replace(DEFAULTS.leader_election, enabled=False, lease_duration=0.0)
    )


def test_all_problems_are_reported_together() -> None:
    assert problems(
        "--cloud-config=",
        "--management-network=//",
        "--node-ip-cidr=junk,127.0.0.1,10.0.0.1",
        "--node-exclude-ip-ranges=a,b",
        "--secure-port=-1",
    ) == (
        "--cloud-config is required: name the kubeconfig file of the Harvester cluster",
        'invalid configuration for --management-network: network type managementNetwork name "//" has too many slashes',
        'invalid configuration for --node-ip-cidr: invalid CIDR or IP format "junk"',
        'invalid configuration for --node-ip-cidr ("127.0.0.1"): loopback addresses not allowed',
        'invalid configuration for --node-ip-cidr: multiple IPv4 entries in "junk,127.0.0.1,10.0.0.1"',
        'invalid entry in --node-exclude-ip-ranges ("a"): invalid IP or CIDR format: "a"',
        'invalid entry in --node-exclude-ip-ranges ("b"): invalid IP or CIDR format: "b"',
        "--secure-port is -1; expected a port up to 65535, or 0 for no server",
    )
