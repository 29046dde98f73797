"""Command lines: names and defaults, forms of flags, errors, help."""

import re
from pathlib import Path

import pytest

from devenv.reference import CHART_FLAGS, chart_flags, flags_page
from harvester_ccm.cli import main
from harvester_ccm.flags import FLAGS, Group, parse_command_line

DOCS = Path(__file__).parents[3] / "docs"
GO_FLAGS = """
    allocate-node-cidrs=false allow-untagged-cloud=false authentication-kubeconfig= authentication-skip-lookup=false
    authentication-token-webhook-cache-ttl=10s authentication-tolerate-lookup-failure=false
    authorization-always-allow-paths=/healthz,/readyz,/livez authorization-kubeconfig=
    authorization-webhook-cache-authorized-ttl=10s authorization-webhook-cache-unauthorized-ttl=10s bind-address=0.0.0.0
    cert-dir= cidr-allocator-type=RangeAllocator client-ca-file= cloud-config= cloud-provider=harvester cluster-cidr=
    cluster-name=kubernetes concurrent-node-status-updates=0 configure-cloud-routes=true contention-profiling=false
    controller-start-interval=0s controllers=* disable-annotation-alpha-provided-ip-addr=false
    disable-hostname-lookup=false disable-http2-serving=false disable-vmi-controller=false enable-leader-migration=false
    external-cloud-volume-plugin= feature-gates= help=false http2-max-streams-per-connection=0 kube-api-burst=30
    kube-api-content-type=application/vnd.kubernetes.protobuf kube-api-qps=20 kubeconfig= leader-elect=true
    leader-elect-lease-duration=15s leader-elect-renew-deadline=10s leader-elect-resource-lock=leases
    leader-elect-resource-name=cloud-controller-manager leader-elect-resource-namespace=kube-system
    leader-elect-retry-period=2s leader-migration-config= log-flush-frequency=5s log-json-info-buffer-size=0
    log-json-split-stream=false log-text-info-buffer-size=0 log-text-split-stream=false logging-format=text
    management-network= master= min-resync-period=12h node-exclude-ip-ranges= node-ip-cidr= node-monitor-period=5s
    node-status-update-frequency=5m node-sync-period=0s permit-address-sharing=false permit-port-sharing=false
    profiling=true requestheader-allowed-names= requestheader-client-ca-file=
    requestheader-extra-headers-prefix=x-remote-extra- requestheader-group-headers=x-remote-group
    requestheader-uid-headers= requestheader-username-headers=x-remote-user route-reconciliation-period=10s
    secure-port=10258 show-full-help-on-error=false tls-cert-file= tls-cipher-suites= tls-curve-preferences=
    tls-min-version= tls-private-key-file= tls-sni-cert-key= use-service-account-credentials=false v=0 version=false
    vmodule= webhook-bind-address=0.0.0.0 webhook-cert-dir= webhook-disable-http2-serving=false
    webhook-secure-port=10260 webhook-tls-cert-file= webhook-tls-cipher-suites= webhook-tls-curve-preferences=
    webhook-tls-min-version= webhook-tls-private-key-file= webhook-tls-sni-cert-key= webhooks=
"""
"""Flags and defaults of the framework, 0.33.7 and 0.36, and of the Go provider."""
OTHER_DEFAULTS = "concurrent-node-syncs=32 concurrent-service-syncs=16"
"""Flags of the Go provider with another default here."""
OWN_FLAGS = """
    allow-harvester-change=false announcer=auto cloud-config-context= context= former-cluster-names=
    node-deletion-confirmations=3 orphaned-load-balancer-policy=delete orphaned-load-balancer-resync-period=10m
    require-load-balancer-class=false shared-address-scope=cluster
"""
"""Flags that the Go provider does not accept."""


def test_names_and_defaults() -> None:
    expected = [*GO_FLAGS.split(), *OTHER_DEFAULTS.split(), *OWN_FLAGS.split()]
    assert sorted(f"{flag.name}={flag.default}" for flag in FLAGS) == sorted(expected)
    line = parse_command_line([])
    assert (line.given, line.ignored, line.arguments, line.problems) == ({}, (), (), ())


def test_migration_page_lists_the_flags_that_the_go_provider_does_not_accept() -> None:
    listed = re.search(
        r"^The Go provider does not accept these flags:\n(.+?)\n\n",
        (DOCS / "installation" / "migrate.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert listed is not None
    # Old releases of the Go provider do not have --show-full-help-on-error.
    expected = {f"--{own.partition('=')[0]}" for own in OWN_FLAGS.split()} | {"--show-full-help-on-error"}
    assert set(re.findall(r"`(--[a-z-]+)`", listed[1])) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--cluster-name=demo"], {"cluster-name": "demo"}),
        (["--cluster-name", "demo"], {"cluster-name": "demo"}),
        (["--cluster-name", "--v=2"], {"cluster-name": "--v=2"}),
        (["--cluster-name="], {"cluster-name": ""}),
        (["--master=a=b c"], {"master": "a=b c"}),
        (["--cluster-name=a", "--cluster-name=b"], {"cluster-name": "b"}),
        (["--leader-elect"], {"leader-elect": True}),
        (["--leader-elect=f", "-h"], {"leader-elect": False, "help": True}),
        *[(words.split(), {"v": 5}) for words in ("-v 5", "-v=5", "-v5", "--v=5", "--v 5")],
        (["--controllers", "-service-lb-controller,*"], {"controllers": ("-service-lb-controller", "*")}),
        (["--former-cluster-names=a,b", "--former-cluster-names=c"], {"former-cluster-names": ("a", "b", "c")}),
        (["--former-cluster-names=a", "--former-cluster-names="], {"former-cluster-names": ("a",)}),
        (["", "--leader-elect", "", "--"], {"leader-elect": True}),
    ],
)
def test_forms_of_flags(words: list[str], expected: dict[str, object]) -> None:
    line = parse_command_line(words)
    assert (line.problems, {name: line[name] for name in line.given}) == ((), expected)


def test_arguments_and_flags_can_be_mixed() -> None:
    line = parse_command_line(["explain", "--leader-elect", "svc/web", "--v=1", "--", "-x"], takes_arguments=True)
    assert (line.arguments, line.problems) == (("explain", "svc/web", "-x"), ())
    assert line.given == {"leader-elect": "true", "v": "1"}


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (["--cluster-nam=x"], ["unknown flag --cluster-nam; did you mean --cluster-name?"]),
        (["--cluster_name", "x"], ["unknown flag --cluster_name; did you mean --cluster-name?"]),
        (["-cluster-name=x"], ["unknown flag -cluster-name; did you mean --cluster-name?"]),
        (
            ["--nope=a b", "-z", "--xyzzy=1", "--="],
            [f"unknown flag {name}" for name in ("--nope", "-z", "--xyzzy", "--")],
        ),
        (["--nope", "--v=x", "--secure-port=70000"], ["unknown flag --nope", "--secure-port is '70000'", "--v is 'x'"]),
        (["--management-network"], ["--management-network needs a value"]),
        (
            ["--former-cluster-names=a", '--former-cluster-names="b'],
            ["--former-cluster-names is '\"b'; expected a comma"],
        ),
        (
            ["--leader-elect", "false", "--", "-x"],
            ["unexpected arguments 'false' '-x'; commands come first, and bool flags are written --flag=value"],
        ),
    ],
)
def test_all_problems_are_reported(words: list[str], problems: list[str]) -> None:
    found = parse_command_line(words).problems
    assert len(found) == len(problems)
    assert all(one.startswith(expected) for one, expected in zip(found, problems, strict=True))


def test_flags_without_effect_are_reported_if_they_differ_from_the_default() -> None:
    line = parse_command_line(["--profiling=false", "--profiling=F", "--kube-api-qps=20", "--webhooks=a", "--v=2"])
    assert line.ignored == (
        "--profiling has no effect: harvester-ccm is not written in Go and has no pprof endpoints",
        "--webhooks has no effect: there are no admission webhooks",
    )


def test_help_lists_the_flags_with_an_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert main(["harvester-ccm", "--help"], {}) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: harvester-ccm [command] [flags]\n")
    assert "\n  version               Show the version.\n" in text
    assert "\nLeader election:\n  --leader-elect        Reconcile only" in text
    assert {flag.name for flag in FLAGS if f"  --{flag.name} " in text or f"--{flag.name}\n" in text} >= {
        flag.name for flag in FLAGS if flag.group is not Group.ACCEPTED and not flag.shorthand
    }
    assert "--profiling" not in text
    assert text.endswith(
        "59 more flags of the Go provider are accepted without effect. The log\nnames those that are set.\n"
    )


def test_reference_page_is_up_to_date() -> None:
    page = (DOCS / "reference" / "flags.md").read_text()
    assert page == flags_page(), "run make generate"
    assert CHART_FLAGS.read_text(encoding="utf-8") == chart_flags(), "run make generate"
    assert [flag.name for flag in FLAGS if not re.search(rf"`--{flag.name}[=`]", page)] == []
