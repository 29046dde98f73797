"""The flag table, the parser and the texts made from the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devenv.reference import flags_page
from harvester_ccm.flags import FLAGS, Group, UsageError, help_text, parse_command_line
from harvester_ccm.flags.definition import FlagValue, FlagValues
from harvester_ccm.flags.parser import wants_full_help

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "reference" / "flags.md"
MIGRATION = DOCS / "migration.md"

ANY_ADDRESS = "0.0.0.0"
# Names and defaults of the framework's flags at 0.33.7 and 0.36, and of the Go provider's own.
GO_DEFAULTS: dict[str, FlagValue] = {
    "allocate-node-cidrs": False,
    "allow-untagged-cloud": False,
    "authentication-kubeconfig": "",
    "authentication-skip-lookup": False,
    "authentication-token-webhook-cache-ttl": 10.0,
    "authentication-tolerate-lookup-failure": False,
    "authorization-always-allow-paths": ("/healthz", "/readyz", "/livez"),
    "authorization-kubeconfig": "",
    "authorization-webhook-cache-authorized-ttl": 10.0,
    "authorization-webhook-cache-unauthorized-ttl": 10.0,
    "bind-address": ANY_ADDRESS,
    "cert-dir": "",
    "cidr-allocator-type": "RangeAllocator",
    "client-ca-file": "",
    "cloud-config": "",
    "cloud-provider": "harvester",
    "cluster-cidr": "",
    "cluster-name": "kubernetes",
    "concurrent-node-status-updates": 0,
    "configure-cloud-routes": True,
    "contention-profiling": False,
    "controller-start-interval": 0.0,
    "controllers": ("*",),
    "disable-annotation-alpha-provided-ip-addr": False,
    "disable-hostname-lookup": False,
    "disable-http2-serving": False,
    "disable-vmi-controller": False,
    "enable-leader-migration": False,
    "external-cloud-volume-plugin": "",
    "feature-gates": "",
    "help": False,
    "http2-max-streams-per-connection": 0,
    "kube-api-burst": 30,
    "kube-api-content-type": "application/vnd.kubernetes.protobuf",
    "kube-api-qps": 20.0,
    "kubeconfig": "",
    "leader-elect": True,
    "leader-elect-lease-duration": 15.0,
    "leader-elect-renew-deadline": 10.0,
    "leader-elect-resource-lock": "leases",
    "leader-elect-resource-name": "cloud-controller-manager",
    "leader-elect-resource-namespace": "kube-system",
    "leader-elect-retry-period": 2.0,
    "leader-migration-config": "",
    "log-flush-frequency": 5.0,
    "log-json-info-buffer-size": "0",
    "log-json-split-stream": False,
    "log-text-info-buffer-size": "0",
    "log-text-split-stream": False,
    "logging-format": "text",
    "management-network": "",
    "master": "",
    "min-resync-period": 43200.0,
    "node-exclude-ip-ranges": (),
    "node-ip-cidr": "",
    "node-monitor-period": 5.0,
    "node-status-update-frequency": 300.0,
    "node-sync-period": 0.0,
    "permit-address-sharing": False,
    "permit-port-sharing": False,
    "profiling": True,
    "requestheader-allowed-names": (),
    "requestheader-client-ca-file": "",
    "requestheader-extra-headers-prefix": ("x-remote-extra-",),
    "requestheader-group-headers": ("x-remote-group",),
    "requestheader-uid-headers": (),
    "requestheader-username-headers": ("x-remote-user",),
    "route-reconciliation-period": 10.0,
    "secure-port": 10258,
    "show-full-help-on-error": False,
    "tls-cert-file": "",
    "tls-cipher-suites": (),
    "tls-curve-preferences": (),
    "tls-min-version": "",
    "tls-private-key-file": "",
    "tls-sni-cert-key": (),
    "use-service-account-credentials": False,
    "v": 0,
    "version": False,
    "vmodule": "",
    "webhook-bind-address": ANY_ADDRESS,
    "webhook-cert-dir": "",
    "webhook-disable-http2-serving": False,
    "webhook-secure-port": 10260,
    "webhook-tls-cert-file": "",
    "webhook-tls-cipher-suites": (),
    "webhook-tls-curve-preferences": (),
    "webhook-tls-min-version": "",
    "webhook-tls-private-key-file": "",
    "webhook-tls-sni-cert-key": (),
    "webhooks": (),
}
OTHER_DEFAULTS: dict[str, FlagValue] = {"concurrent-node-syncs": 32, "concurrent-service-syncs": 16}
"""Flags of the Go provider that are something else here where nobody sets them."""
OWN_DEFAULTS: dict[str, FlagValue] = {
    "accept-new-harvester": False,
    "cloud-config-context": "",
    "context": "",
    "former-cluster-name": (),
    "load-balancer-class-only": False,
    "node-deletion-confirmations": 3,
    "orphan-lbs": "delete",
    "orphan-lbs-period": 600.0,
}
"""Flags that the Go provider does not have: it does not start with one of them."""


def given(*words: str) -> dict[str, FlagValue]:
    flags = parse_command_line(words)
    return {name: flags.values[name] for name in sorted(flags.explicit)}


def problems(*words: str) -> tuple[str, ...]:
    with pytest.raises(UsageError) as raised:
        parse_command_line(words)
    return raised.value.problems


def test_every_flag_of_the_go_provider_is_there_with_its_default() -> None:
    line = parse_command_line([])
    own = {name: value for name, value in line.values.items() if name not in GO_DEFAULTS | OTHER_DEFAULTS}
    assert own == OWN_DEFAULTS, "a flag of our own goes into OWN_DEFAULTS, with its default"
    assert dict(line.values) == {**GO_DEFAULTS, **OTHER_DEFAULTS, **OWN_DEFAULTS}
    assert (line.explicit, line.ignored) == (frozenset(), ())


def test_who_goes_back_is_told_each_flag_that_the_go_provider_does_not_take() -> None:
    listed = re.search(r"^Only here: (.+?)\n\n", MIGRATION.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    # Old releases of the Go provider lack the last one.
    expected = {f"--{name}" for name in OWN_DEFAULTS} | {"--show-full-help-on-error"}
    told = "docs/migration.md, 'Only here', lists the flags that have to go before a roll-back"
    assert set(re.findall(r"`(--[a-z-]+)`", listed[1])) == expected, told


def test_names_are_unique() -> None:
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["--cluster-name=demo"], {"cluster-name": "demo"}, id="equals"),
        pytest.param(["--cluster-name", "demo"], {"cluster-name": "demo"}, id="next word"),
        pytest.param(["--cluster-name", "--v=2"], {"cluster-name": "--v=2"}, id="next word may be a flag"),
        pytest.param(["--cluster-name="], {"cluster-name": ""}, id="empty text"),
        pytest.param(["--master=a=b"], {"master": "a=b"}, id="second equals is part of the value"),
        pytest.param(["--cluster-name=a", "--cluster-name=b"], {"cluster-name": "b"}, id="last one wins"),
        pytest.param(["--leader-elect"], {"leader-elect": True}, id="bare boolean"),
        pytest.param(["--leader-elect=f"], {"leader-elect": False}, id="boolean value"),
        pytest.param(["-v", "4"], {"v": 4}, id="-v N"),
        pytest.param(["-v=4"], {"v": 4}, id="-v=N"),
        pytest.param(["-v4"], {"v": 4}, id="-vN"),
        pytest.param(["--v=4"], {"v": 4}, id="--v=N"),
        pytest.param(["--v", "4"], {"v": 4}, id="--v N"),
        pytest.param(["-hv4"], {"help": True, "v": 4}, id="letters together"),
        pytest.param(["--version=raw"], {"version": True}, id="raw version"),
        pytest.param(["--version=v9"], {"version": True}, id="named version"),
        pytest.param(["--controllers=a,-b", "--controllers=c"], {"controllers": ("a", "-b", "c")}, id="lists append"),
        pytest.param(["--controllers="], {"controllers": ()}, id="empty list"),
        pytest.param(["--webhooks=a", "--webhooks="], {"webhooks": ("a",)}, id="empty list appends nothing"),
        pytest.param(["", "--v=1", ""], {"v": 1}, id="empty words pass"),
        pytest.param(["--v=1", "--"], {"v": 1}, id="end of flags"),
    ],
)
def test_command_lines(words: list[str], expected: dict[str, FlagValue]) -> None:
    assert given(*words) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ["--disable-vmi-controller=yes"],
            'invalid argument "yes" for "--disable-vmi-controller" flag: '
            'strconv.ParseBool: parsing "yes": invalid syntax',
            id="boolean",
        ),
        pytest.param(
            ["--disable-vmi-controller="],
            'invalid argument "" for "--disable-vmi-controller" flag: strconv.ParseBool: parsing "": invalid syntax',
            id="empty boolean",
        ),
        pytest.param(
            ["--leader-elect-lease-duration=x"],
            'invalid argument "x" for "--leader-elect-lease-duration" flag: time: invalid duration "x"',
            id="duration",
        ),
        pytest.param(
            ["-v=-1"],
            'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": invalid syntax',
            id="level",
        ),
        pytest.param(
            ["-v="],
            'invalid argument "=" for "-v, --v" flag: strconv.ParseUint: parsing "=": invalid syntax',
            id="empty level",
        ),
        pytest.param(
            ['--node-exclude-ip-ranges=10.0.0.0/8,a"b'],
            'invalid argument "10.0.0.0/8,a\\"b" for "--node-exclude-ip-ranges" flag: '
            'parse error on line 1, column 13: bare " in non-quoted-field',
            id="list",
        ),
        pytest.param(["--management-network"], "flag needs an argument: --management-network", id="missing value"),
        pytest.param(["-v"], "flag needs an argument: 'v' in -v", id="missing short value"),
        pytest.param(
            ["--managment-network=x"],
            "unknown flag: --managment-network; did you mean --management-network?",
            id="slip of the pen",
        ),
        pytest.param(
            ["--management_network=x"],
            "unknown flag: --management_network; did you mean --management-network?",
            id="underscore",
        ),
        pytest.param(["--xyzzy", "value"], "unknown flag: --xyzzy", id="unknown with a value behind it"),
        pytest.param(["-z"], "unknown shorthand flag: 'z' in -z", id="unknown letter"),
        pytest.param(
            ["-cluster-name=x"],
            "unknown shorthand flag: 'c' in -cluster-name=x; did you mean --cluster-name?",
            id="one dash",
        ),
        pytest.param(["--=x"], "bad flag syntax: --=x", id="no name"),
        pytest.param(["---v"], "bad flag syntax: ---v", id="three dashes"),
        pytest.param(
            ["x", "--", "y"], '"cloud-controller-manager" does not take any arguments, got ["x" "y"]', id="words"
        ),
        pytest.param(
            ["--leader-elect", "false"],
            '"cloud-controller-manager" does not take any arguments, got ["false"]; '
            "a boolean flag takes its value after '=': --flag=false",
            id="boolean in the next word",
        ),
        pytest.param(
            ["--leader-elect", "True"],
            '"cloud-controller-manager" does not take any arguments, got ["True"]; '
            "a boolean flag takes its value after '=': --flag=false",
            id="boolean with a capital in the next word",
        ),
    ],
)
def test_refused_command_lines(words: list[str], expected: str) -> None:
    assert problems(*words) == (expected,)


def test_all_faults_are_reported() -> None:
    assert problems("--nope=1", "word", "--v=x", "-z") == (
        "unknown flag: --nope",
        'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax',
        "unknown shorthand flag: 'z' in -z",
        '"cloud-controller-manager" does not take any arguments, got ["word"]',
    )


@pytest.mark.parametrize(
    ("word", "unknown"),
    [("--nope", True), ("-z", True), ("--=", True), ("--v=x", False), ("--master", False), ("word", False)],
)
def test_unknown_flags_are_told_from_bad_values(word: str, unknown: bool) -> None:
    with pytest.raises(UsageError) as raised:
        parse_command_line([word])
    assert raised.value.unknown_flag is unknown


def test_flags_without_effect_are_reported_when_set_to_something() -> None:
    line = parse_command_line(["--configure-cloud-routes=false", "--kube-api-qps=20", "--webhooks=a", "--v=2"])
    assert line.ignored == (
        "--configure-cloud-routes has no effect here: Harvester has no cloud routes and hands out no pod ranges",
        "--webhooks has no effect here: this program serves no admission webhooks",
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], False),
        (["--show-full-help-on-error"], True),
        (["--nope", "--show-full-help-on-error=T"], True),
        (["--show-full-help-on-error", "--show-full-help-on-error=false"], False),
        (["--show-full-help-on-error=maybe"], False),
    ],
)
def test_full_help_is_asked_for_even_when_flags_are_wrong(words: list[str], expected: bool) -> None:
    assert wants_full_help(words) is expected


def test_reading_a_flag_as_another_kind_is_a_programming_error() -> None:
    flags = FlagValues({"v": 2, "controllers": ("*",)})
    with pytest.raises(TypeError, match="--v is a int, not a str"):
        flags.text("v")
    with pytest.raises(TypeError, match="--v is a int, not a list"):
        flags.words("v")


def test_help_shows_every_flag_and_group_within_the_width() -> None:
    text = help_text(program="harvester-ccm", width=72, commands=[("explain", "Say why.")])
    assert text.startswith("Usage: harvester-ccm [command] [flags]\n")
    assert "Commands:\n  explain\n        Say why.\n" in text
    assert "  -v, --v=level\n" in text
    assert "No effect" not in text
    for flag in FLAGS:
        assert f"--{flag.name}" in text
    for group in Group:
        assert f"\n{group}:\n" in text
    assert max(len(line) for line in text.splitlines()) <= 72


def test_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == flags_page(), "docs/reference/flags.md is old: run make generate"


def test_reference_page_has_a_row_for_every_flag() -> None:
    rows = [row for row in flags_page().splitlines() if row.startswith("| `")]
    assert len(rows) == len(FLAGS)
    assert "| `--orphan-lbs` | string | `delete` |" in flags_page()
