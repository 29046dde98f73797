"""Commands go by the flags of the program in whose container they are called."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from harvester_ccm.commands.local_process import running_flags, with_defaults
from harvester_ccm.flags import parse_command_line
from harvester_ccm.plan.service.ownership import load_balancer_name
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Runner

PROGRAM = ("/opt/harvester-ccm/bin/python3", "/usr/bin/harvester-cloud-provider")
parse_words = partial(parse_command_line, takes_arguments=True)


class Proc:
    """A directory like /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def process(self, name: str, *words: str) -> None:
        """Add a process."""
        directory = self.root / name
        directory.mkdir(parents=True)
        (directory / "cmdline").write_bytes(b"".join(f"{word}\0".encode() for word in words))

    def cluster(self) -> str | None:
        """Return the --cluster-name of process 1; None if that is another program."""
        found = running_flags(self.root)
        return found["cluster-name"] if found else None


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """A directory like /proc."""
    return Proc(tmp_path / "proc")


@pytest.mark.parametrize(
    "line",
    [
        (*PROGRAM, "--cluster-name=demo"),
        ("python3", "-m", "harvester_ccm", "--cluster-name", "demo"),
        ("python3.13", "-u", "/usr/local/bin/harvester-ccm", "--v=5", "--cluster-name=demo"),
        ("harvester-cloud-provider", "--cluster-name=demo", "--former-cluster-name="),
        ("tini", "--", "harvester-cloud-provider", "--cluster-name=demo"),
    ],
)
def test_process_1_is_the_program(proc: Proc, line: tuple[str, ...]) -> None:
    proc.process("1", *line)
    assert proc.cluster() == "demo"


@pytest.mark.parametrize(
    "line",
    [
        ("",),
        (),
        ("/pause",),
        ("/bin/sh", "-c", "harvester-cloud-provider --cluster-name=demo"),
        ("harvester-cloud-controller-manager", "--cluster-name=demo"),
        ("python3", "-m", "harvester_ccm.telemetry.issuer"),
        (*PROGRAM, "preflight", "--cluster-name=demo"),
        (*PROGRAM, "--no-such-flag", "--cluster-name=demo"),
    ],
)
def test_process_1_is_something_else(proc: Proc, line: tuple[str, ...]) -> None:
    proc.process("1", *line)
    assert proc.cluster() is None


def test_a_process_1_that_cannot_be_read_is_none(proc: Proc) -> None:
    assert proc.cluster() is None


def test_the_command_line_comes_first_and_the_log_is_the_commands_own(proc: Proc, tmp_path: Path) -> None:
    given = ("--cluster-name=demo", "--former-cluster-name=old", "--management-network=default/lan", "--v=5")
    proc.process("1", *PROGRAM, *given, "--cloud-config=/from/the/program", "--logging-format=json")
    flags = parse_words(("service", "--cluster-name=other", "--former-cluster-name=older"))
    taken = with_defaults(flags, running_flags(proc.root), tmp_path / "cloud-config")
    assert taken.arguments == ("service",)
    assert (taken["cluster-name"], taken["former-cluster-name"]) == ("other", ("older",))
    assert (taken["management-network"], taken["cloud-config"]) == ("default/lan", Path("/from/the/program"))
    assert (taken["v"], taken["logging-format"]) == (flags["v"], "text")


def test_the_context_of_another_file_is_not_taken(proc: Proc, tmp_path: Path) -> None:
    proc.process("1", *PROGRAM, "--cloud-config=/all", "--cloud-config-context=host", "--context=guest")
    given = running_flags(proc.root)

    def contexts(*words: str) -> tuple[str, str]:
        taken = with_defaults(parse_words(words), given, tmp_path / "cloud-config")
        return taken["cloud-config-context"], taken["context"]

    assert contexts() == ("host", "guest")
    assert contexts("--cloud-config=/mine") == ("", "guest")
    assert contexts("--kubeconfig=/mine", "--cloud-config-context=vms") == ("vms", "")


def test_what_belongs_to_another_cluster_is_not_taken(proc: Proc, tmp_path: Path) -> None:
    proc.process("1", *PROGRAM, "--cluster-name=demo", "--former-cluster-name=old", "--master=https://guest:6443")
    given = running_flags(proc.root)

    def taken(*words: str) -> tuple[str, tuple[str, ...], str]:
        flags = with_defaults(parse_words(words), given, tmp_path / "cloud-config")
        return flags["cluster-name"], flags["former-cluster-name"], flags["master"]

    assert taken() == ("demo", ("old",), "https://guest:6443")
    assert taken("--cluster-name=other") == ("other", (), "https://guest:6443")
    assert taken("--kubeconfig=/mine") == ("demo", ("old",), "")
    assert taken("--kubeconfig=/mine", "--master=https://mine:6443")[2] == "https://mine:6443"


def test_the_usual_cloud_config_is_taken_where_nothing_names_one(tmp_path: Path) -> None:
    usual, flags = tmp_path / "cloud-config", parse_words(("service",))
    assert with_defaults(flags, None, usual)["cloud-config"] is None
    usual.write_text("")
    assert with_defaults(flags, None, usual)["cloud-config"] == usual
    named = parse_words(("--cloud-config=/mine",))
    assert with_defaults(named, None, usual)["cloud-config"] == Path("/mine")


def test_a_command_needs_no_flags_in_the_pod(run: Runner, proc: Proc, serve: ClusterServer) -> None:
    proc.process("1", *PROGRAM, *serve(objects.service(), objects.home()))
    result = run("explain", "svc/web", "-n", "shop", proc=proc.root)
    assert (result.code, result.err) == (0, "")
    assert load_balancer_name("demo", "shop", "web", objects.UID) in result.out
