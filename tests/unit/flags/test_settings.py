"""From a command line to settings: defaults, every rule, and all problems at once."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import fields, replace

from harvester_ccm.config import GuestSettings, Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import FLAGS, Group, build_settings, parse_command_line
from harvester_ccm.model.harvester import ClusterIdentity

NEEDED = ("--cloud-config=/etc/cloud-config", "--cluster-name=demo")
ALL_CONTROLLERS = frozenset({"cloud-node-controller", "cloud-node-lifecycle-controller", "service-lb-controller"})
SETTINGS = """
# Setting                        | default                  | with another value of every flag
guest.context                    |                          | admin
guest.kubeconfigs                |                          | /guest
guest.master                     |                          | https://guest:6443
harvester.cloud_config           | /etc/cloud-config        | /etc/cloud-config
harvester.cluster_name           | demo                     | demo
harvester.context                |                          | vms
harvester.former_names           |                          | old older
leader_election.enabled          | True                     | False
leader_election.lease_duration   | 15.0                     | 60.0
leader_election.name             | cloud-controller-manager | lock
leader_election.namespace        | kube-system              | infra
leader_election.renew_deadline   | 10.0                     | 40.0
leader_election.retry_period     | 2.0                      | 5.0
logging.format                   | text                     | json
logging.verbosity                | 0                        | 5
nodes.concurrent_syncs           | 32                       | 3
nodes.deletion_confirmations     | 3                        | 5
nodes.exclude_ranges             |                          | 10.9.0.0/16
nodes.hostname_lookup            | True                     | False
nodes.management_network         | None                     | default/vlan10
nodes.monitor_period             | 5.0                      | 1.0
nodes.node_ip_cidrs              |                          | 10.0.0.0/8
nodes.status_period              | 300.0                    | 60.0
nodes.use_provided_node_ip       | True                     | False
nodes.vmi_controller             | True                     | False
server.bind_address              | 0.0.0.0                  | ::
server.certificate               | None                     | /crt
server.key                       | None                     | /key
server.min_tls                   | 1.2                      | 1.3
server.open_paths                | /healthz /livez /readyz  | /metrics
server.port                      | 10258                    | 0
services.allow_harvester_change  | False                    | True
services.announcer               | auto                     | other
services.class_only              | False                    | True
services.concurrent_syncs        | 16                       | 2
services.orphan_period           | 600.0                    | 3600.0
services.orphan_policy           | delete                   | report
services.shared_address_scope    | cluster                  | namespace
"""


def settings(*words: str, environment: Mapping[str, str] | None = None) -> Settings:
    return build_settings(parse_command_line([*NEEDED, *words]), environment or {})


def problems(*words: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        settings(*words)
    return raised.value.problems


def test_flags_that_do_not_depend_on_the_machine_are_noted() -> None:
    here = ("--kubeconfig=/guest", "--cloud-config-context=vms", "--v=5", "--secure-port=0", "--leader-elect=false")
    noted = ("--former-cluster-names=a,b", "--management-network=vlan10", "--controllers=*")
    assert settings(*here, *noted).flags == ("--cluster-name=demo", *noted)


EVERY_FLAG = (
    "--kubeconfig=/guest --context=admin --master=https://guest:6443 --cloud-config-context=vms "
    "--concurrent-service-syncs=2 --orphaned-load-balancer-policy=report "
    "--orphaned-load-balancer-resync-period=1h --require-load-balancer-class --allow-harvester-change "
    "--shared-address-scope=namespace --announcer=other "
    "--management-network=vlan10 --node-ip-cidr=10.1.2.3/8 "
    "--node-exclude-ip-ranges=10.9.0.0/16 --disable-annotation-alpha-provided-ip-addr --concurrent-node-syncs=3 "
    "--node-monitor-period=1s --node-status-update-frequency=1m --node-deletion-confirmations=5 "
    "--disable-vmi-controller --disable-hostname-lookup --leader-elect=false "
    "--leader-elect-lease-duration=60s "
    "--leader-elect-renew-deadline=40s --leader-elect-retry-period=5s --leader-elect-resource-name=lock "
    "--leader-elect-resource-namespace=infra --bind-address=:: --secure-port=0 --tls-cert-file=/crt "
    "--tls-private-key-file=/key --tls-min-version=VersionTLS13 "
    "--authorization-always-allow-paths=/metrics "
    "--logging-format=json -v=5 --controllers=service-lb-controller --former-cluster-names=old,'older' "
    "--former-cluster-names=demo,old"
)
"""Each flag with an effect, with another value than its default."""
NOT_A_SETTING = {"cloud-provider", "leader-elect-resource-lock", "help", "version", "show-full-help-on-error"}
"""The first two have one valid value, and the others concern the output of the command line."""


def test_every_flag_with_an_effect_changes_a_setting() -> None:
    words = {name_of(word): word for word in EVERY_FLAG.split()}
    effective = {flag.name for flag in FLAGS if flag.group is not Group.ACCEPTED}
    assert {*words, *map(name_of, NEEDED)} == effective - NOT_A_SETTING
    whole = settings(*words.values())
    for name in words:
        with suppress(ConfigurationError):
            assert settings(*(word for other, word in words.items() if other != name)) != whole, name


def test_times_about_nodes_are_multiples_of_the_monitor_period() -> None:
    nodes = settings("--node-monitor-period=10s").nodes
    assert (nodes.confirmation_spacing, nodes.address_grace_seconds) == (20, 120)


def test_guest_agents_are_not_asked_without_the_vmi_controller() -> None:
    flags = ("--disable-vmi-controller", "--disable-hostname-lookup")
    assert [settings(*words).nodes.asks_guests for words in ((), flags[:1], flags[1:])] == [True, False, False]


def name_of(word: str) -> str:
    """Return the name of the flag in a word of a command line."""
    return word.lstrip("-").partition("=")[0]


def test_every_field_of_the_identity_of_the_cluster_follows_its_flag() -> None:
    usual, changed = (ClusterIdentity.of(settings(*words), "vms") for words in ([], EVERY_FLAG.split()))
    unchanged = {one.name for one in fields(usual) if getattr(usual, one.name) == getattr(changed, one.name)}
    assert unchanged == {"name", "namespace", "uid"}


def texts_of(built: Settings) -> dict[str, str]:
    """Return the values of all settings in groups, as text."""
    groups = msgspec.to_builtins(built, enc_hook=str, order="sorted")
    return {
        f"{group}.{name}": " ".join(value) if isinstance(value, list | tuple) else str(value)
        for group, values in groups.items()
        if isinstance(values, dict)
        for name, value in values.items()
    }


def test_every_flag_reaches_its_setting() -> None:
    rows = [[cell.strip() for cell in row.split("|")] for row in SETTINGS.strip().splitlines()[1:]]
    usual, changed = settings(), settings(*EVERY_FLAG.split())
    assert texts_of(usual) == {name: default for name, default, _ in rows}
    assert texts_of(changed) == {name: value for name, _, value in rows}
    assert (usual.controllers, usual.flags, usual.warnings) == (ALL_CONTROLLERS, ("--cluster-name=demo",), ())
    assert changed.controllers == {"service-lb-controller"}
    assert changed.warnings == ()


LISTS = {
    "former-cluster-names": ("old", "older"),
    "node-exclude-ip-ranges": ("10.9.0.0/16", "10.8.0.1"),
    "controllers": ("cloud-node-controller", "service-lb-controller"),
    "authorization-always-allow-paths": ("/metrics", "/readyz"),
}
"""The flags with an effect whose values are joined if they are repeated, with two values."""


def test_values_of_a_repeated_list_are_joined_but_for_node_ip_cidr() -> None:
    for name, values in LISTS.items():
        repeated = settings(*(f"--{name}={value}" for value in values))
        assert repeated == settings(f"--{name}={','.join(values)}"), name
        assert repeated != settings(f"--{name}={values[-1]}"), name
    assert settings("--node-ip-cidr=10.0.0.0/8", "--node-ip-cidr=10.1.0.0/16") == settings("--node-ip-cidr=10.1.0.0/16")


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
    guest = GuestSettings(tuple(map(Path, expected)), "")
    assert settings(*words, environment=environment) == replace(settings(), guest=guest)


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


@pytest.mark.parametrize(
    ("given", "name", "warning"),
    [
        ("atlas-1", "atlas-1", ""),
        ("8080-lab", "8080-lab", ""),
        ("\"demo'\n", "demo", ""),
        ("kubernetes", "kubernetes", "--cluster-name is 'kubernetes', the name of every cluster without one: "),
        (" ", "", "--cluster-name is '', the name of every cluster without one: "),
        ("lab.example", "lab.example", "Harvester will reject VM load balancers, because"),
        *[
            (name, name, f"--cluster-name is {name!r}: Harvester will reject every load balancer, because ")
            for name in ("My.Cluster", "atlas_1", "-atlas", "atlas-", "a..b", "atlas.", "a" * 64)
        ],
    ],
)
def test_cluster_name_is_trimmed_and_checked(given: str, name: str, warning: str) -> None:
    built = settings(f"--cluster-name={given}")
    assert built.harvester.cluster_name == name
    assert warning in "".join(built.warnings)
    assert bool(built.warnings) == bool(warning)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--cloud-config="], "--cloud-config is required: the kubeconfig file of the Harvester cluster"),
        (["--context=prod"], "--context is set without a kubeconfig; set --kubeconfig or KUBECONFIG, too"),
        (["--cloud-provider=external"], "--cloud-provider is 'external'; expected harvester"),
        (["--concurrent-service-syncs=0"], "--concurrent-service-syncs is '0'; expected a number from 1 to 2147483647"),
        (["--concurrent-node-syncs=0"], "--concurrent-node-syncs is '0'; expected a number from 1 to 2147483647"),
        (
            ["--concurrent-node-syncs=99999999999999999999"],
            "--concurrent-node-syncs is '99999999999999999999'; expected a number from 1 to 2147483647",
        ),
        (["--node-deletion-confirmations=1"], "--node-deletion-confirmations is '1'; expected a number from 2 to 100"),
        (
            ["--node-deletion-confirmations=101"],
            "--node-deletion-confirmations is '101'; expected a number from 2 to 100",
        ),
        (
            ["--orphaned-load-balancer-resync-period=1ns"],
            "--orphaned-load-balancer-resync-period is '1ns'; expected a duration of at least 1s",
        ),
        (["--v=2147483648"], "--v is '2147483648'; expected a number from 0 to 2147483647"),
        (
            ["--leader-elect-lease-duration=600000h"],
            "--leader-elect-lease-duration is '600000h'; expected a duration of at most 2147483647s",
        ),
        (
            ["--orphaned-load-balancer-policy=keep"],
            "--orphaned-load-balancer-policy is 'keep'; expected delete or report or off",
        ),
        (["--logging-format=xml"], "--logging-format is 'xml'; expected text or json"),
        (
            ["--former-cluster-names=old,"],
            "--former-cluster-names has an empty entry; expected previous names of this cluster",
        ),
        (
            ["--leader-elect-lease-duration=10s"],
            "--leader-elect-lease-duration (10s) must be greater than --leader-elect-renew-deadline (10s)",
        ),
        (
            ["--leader-elect-renew-deadline=2.4s"],
            "--leader-elect-renew-deadline (2.4s) must be greater than 1.2 times --leader-elect-retry-period (2s)",
        ),
        (["--leader-elect-retry-period=0"], "--leader-elect-retry-period must be above zero"),
        (
            [f"--leader-elect-{name}" for name in ("lease-duration=900ms", "renew-deadline=.5s", "retry-period=.1s")],
            "--leader-elect-lease-duration must be at least 1s",
        ),
        (["--leader-elect-resource-lock=endpoints"], "--leader-elect-resource-lock is 'endpoints'; expected leases"),
        (["--leader-elect-resource-name="], "--leader-elect-resource-name is empty; expected the name of a Lease"),
        (
            ["--leader-elect-resource-namespace="],
            "--leader-elect-resource-namespace is empty; expected a namespace",
        ),
        (["--tls-cert-file=/crt"], "--tls-cert-file and --tls-private-key-file need each other"),
    ],
)
def test_invalid_settings(words: list[str], expected: str) -> None:
    assert problems(*words) == (expected,)


def test_leader_election_is_not_checked_when_it_is_off() -> None:
    words = ("--leader-elect=false", "--leader-elect-lease-duration=0", "--leader-elect-resource-lock=endpoints")
    usual = settings()
    election = replace(usual.leader_election, enabled=False, lease_duration=0.0)
    assert settings(*words) == replace(usual, leader_election=election)


def test_all_problems_are_reported_together() -> None:
    assert problems("--nope", "--cloud-config=", "--node-ip-cidr=junk", "--tls-cert-file=/crt") == (
        "unknown flag --nope",
        "--node-ip-cidr is 'junk'; expected CIDRs or IP addresses, 'junk' is neither",
        "--cloud-config is required: the kubeconfig file of the Harvester cluster",
        "--tls-cert-file and --tls-private-key-file need each other",
    )
