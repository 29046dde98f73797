"""The frame of every command: the flags of the controller in its container, and errors in a command line."""

import re
from pathlib import Path

import pytest
import structlog

from harvester_ccm.cli import main
from harvester_ccm.commands import runner
from harvester_ccm.commands.runner import container_flags
from harvester_ccm.names import LB_CLUSTER
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Runner

PROGRAM = ("/opt/harvester-ccm/bin/python3", "/usr/bin/harvester-cloud-provider")
DEMO = ["--cluster-name=demo"]
LINES: dict[str, tuple[tuple[str, ...], list[str] | None]] = {
    "image": ((*PROGRAM, "--cluster-name=demo"), DEMO),
    "module": (("python3", "-m", "harvester_ccm", "--cluster-name", "demo"), DEMO),
    "flags of the process": (("harvester-ccm", "--v=5", "--logging-format=json", "--cluster-name=demo"), DEMO),
    "init process": (("tini", "--", "harvester-cloud-provider", "--cluster-name=demo"), DEMO),
    "no flags": (PROGRAM, []),
    "lists": (
        ("harvester-ccm", "--former-cluster-names=a", "--former-cluster-names=b"),
        ["--former-cluster-names=a,b"],
    ),
    "no command line": ((), None),
    "pause": (("/pause",), None),
    "shell": (("/bin/sh", "-c", "harvester-cloud-provider --cluster-name=demo"), None),
    "other program": (("harvester-cloud-controller-manager", "--cluster-name=demo"), None),
    "command": ((*PROGRAM, "preflight", "--cluster-name=demo"), None),
    "unknown flag": ((*PROGRAM, "--no-such-flag", "--cluster-name=demo"), None),
}


def process_1(directory: Path, words: tuple[str, ...]) -> Path:
    """Return a directory like /proc, in which process 1 has this command line."""
    (directory / "proc" / "1").mkdir(parents=True)
    (directory / "proc" / "1" / "cmdline").write_bytes(b"".join(f"{word}\0".encode() for word in words))
    return directory / "proc"


@pytest.mark.parametrize(("words", "flags"), LINES.values(), ids=LINES.keys())
def test_container_flags(tmp_path: Path, words: tuple[str, ...], flags: list[str] | None) -> None:
    assert container_flags(process_1(tmp_path, words)) == flags
    assert container_flags(tmp_path / "none") is None


def test_command_in_the_pod_needs_no_flags(run: Runner, tmp_path: Path, serve: ClusterServer) -> None:
    proc = process_1(tmp_path, (*PROGRAM, *serve(objects.service(), objects.home())))
    result = run("explain", "svc/web", "-n", "shop", proc=proc)
    assert result.err == ""
    assert load_balancer_name("demo", "shop", "web", objects.UID) in result.out
    result = run("explain", "svc/web", "-n", "shop", "--cluster-name=other", proc=proc)
    assert load_balancer_name("other", "shop", "web", objects.UID) in result.out


def test_cleanup_never_takes_the_cluster_of_the_controller(run: Runner, tmp_path: Path, serve: ClusterServer) -> None:
    proc = process_1(tmp_path, (*PROGRAM, *serve(objects.balancer(name="ours", labels={LB_CLUSTER: "demo"}))))
    result = run("cleanup", "--yes", proc=proc)
    assert (result.code, result.out) == (2, "")
    assert "--cluster-name is required" in result.err
    result = run("cleanup", "--cluster-name=gone", "--harvester-namespace=vms", proc=proc)
    assert (result.code, result.err) == (0, "")
    assert "Nothing to delete" in result.out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("status extra", "unexpected arguments 'extra'"),
        ("status --output=xml", "--output is 'xml'; expected text or json or yaml"),
        ("preflight --secure-port=-1", "--secure-port is '-1'"),
        ("preflight --nope", "unknown flag --nope"),
        ("explain", "expected svc/NAME -n NAMESPACE, node/NAME or lb/NAME, got nothing"),
        ("explain pod/x", "expected svc/NAME -n NAMESPACE, node/NAME or lb/NAME, got pod/x"),
        ("explain shop/web", "expected svc/NAME -n NAMESPACE, node/NAME or lb/NAME, got shop/web"),
        ("explain svc shop web", "expected svc/NAME -n NAMESPACE, node/NAME or lb/NAME, got svc shop web"),
        ("explain svc a/b/c", "'a/b/c' is not the name of one Service"),
        ("explain svc shop/web -n x", "'shop/web' is not the name of one Service"),
        ("explain node/a/b", "'a/b' is not the name of one Node"),
        ("explain lb/a/b", "'a/b' is not the name of one LoadBalancer"),
        ("explain -A svc/web", "unknown flag -A; did you mean --namespace?"),
        ("explain service --namespac=x", "unknown flag --namespac; did you mean --namespace?"),
        ("cleanup", "--cluster-name is required"),
        ("cleanup --cluster-name=gone -n vms", "unknown flag -n; did you mean --harvester-namespace?"),
        (
            "cleanup --cluster-name=gone --namespace=vms",
            "unknown flag --namespace; did you mean --harvester-namespace?",
        ),
        ("completion", "no completion for ''; expected one of: bash, zsh, fish"),
        ("completion tcsh", "no completion for 'tcsh'; expected one of: bash, zsh, fish"),
        ("version 1", "unexpected arguments '1'"),
    ],
)
def test_usage(run: Runner, words: str, problem: str) -> None:
    result = run(*words.split(), "--v=x")
    assert (result.code, result.out) == (2, "")
    command = words.split(maxsplit=1)[0]
    is_of_both = command in ("status", "preflight", "explain")
    needs_cloud_config = is_of_both or command == "cleanup"
    *errors, hint = result.err.splitlines()
    assert [problem in error for error in errors].count(True) == 1
    assert "harvester-ccm: error: --v is 'x'; expected a whole number" in errors
    assert ("--cloud-config is required: " in result.err) is needs_cloud_config, "all errors at once"
    assert hint.startswith("harvester-ccm: hint: --help shows the command line")
    assert ("In the pod of the controller, no flags are needed: kubectl" in hint) is is_of_both


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("status", ["cloud-config", "cloud-config-context", "cluster-name", "kubeconfig", "context"]),
        ("cleanup", ["cloud-config", "cloud-config-context"]),
        ("completion", []),
    ],
)
def test_help_of_a_command_has_the_flags_that_lead_to_the_clusters(run: Runner, command: str, flags: list[str]) -> None:
    text = run(command, "--help").out
    assert text.startswith(f"usage: harvester-ccm {command} ")
    section = text.partition("\nConnection:\n")[2]
    assert re.findall(r"^  --([\w-]+)", section, re.MULTILINE) == flags
    assert ("balancers of this cluster. Required." in " ".join(section.split())) is bool(flags)


def test_help_breaks_no_name(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in range(40, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        assert not re.search(r"[a-z]-\n", run("cleanup", "--help").out)


def test_cloud_config_is_required(run: Runner) -> None:
    result = run("status")
    assert (result.code, "error: --cloud-config is required" in result.err) == (2, True)
    result = run("status", "--cloud-config=/none")
    assert (result.code, "error: cannot use --cloud-config: /none: No such file" in result.err) == (1, True)


def test_interrupted_command_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_words: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "container_flags", interrupt)
    assert main(["harvester-ccm", "preflight"], {}) == 130
    assert capsys.readouterr().err == ""


def test_unexpected_error_before_the_log_is_configured_shows_no_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "value-of-a-variable"

    def fail(*_words: object) -> None:
        local = secret
        raise KeyError(len(local))

    structlog.reset_defaults()
    monkeypatch.setattr(runner, "container_flags", fail)
    assert main(["harvester-ccm", "preflight"], {}) == 1
    error = capsys.readouterr().err
    assert "stopped by an unexpected error" in error
    assert secret not in error
