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


def process_1(directory: Path, *words: str) -> Path:
    """Return a directory like /proc, in which process 1 has this command line."""
    (directory / "proc" / "1").mkdir(parents=True)
    (directory / "proc" / "1" / "cmdline").write_bytes(b"".join(f"{word}\0".encode() for word in words))
    return directory / "proc"


@pytest.mark.parametrize(
    ("line", "cluster"),
    [
        ((*PROGRAM, "--cluster-name=demo"), "demo"),
        (("python3", "-m", "harvester_ccm", "--cluster-name", "demo"), "demo"),
        (("python3.13", "-u", "/usr/local/bin/harvester-ccm", "--v=5", "--cluster-name=demo"), "demo"),
        (("harvester-cloud-provider", "--cluster-name=demo", "--former-cluster-name="), "demo"),
        (("tini", "--", "harvester-cloud-provider", "--cluster-name=demo"), "demo"),
        (("",), None),
        ((), None),
        (("/pause",), None),
        (("/bin/sh", "-c", "harvester-cloud-provider --cluster-name=demo"), None),
        (("harvester-cloud-controller-manager", "--cluster-name=demo"), None),
        (("python3", "-m", "harvester_ccm.telemetry.issuer"), None),
        ((*PROGRAM, "preflight", "--cluster-name=demo"), None),
        ((*PROGRAM, "--no-such-flag", "--cluster-name=demo"), None),
    ],
)
def test_flags_of_process_1(tmp_path: Path, line: tuple[str, ...], cluster: str | None) -> None:
    found = running_flags(process_1(tmp_path, *line))
    assert (found["cluster-name"] if found else None) == cluster


def test_process_1_that_cannot_be_read(tmp_path: Path) -> None:
    assert running_flags(tmp_path) is None


RUNNING = (
    "--cluster-name=demo",
    "--former-cluster-name=old",
    "--management-network=default/lan",
    "--v=5",
    "--logging-format=json",
    "--cloud-config=/all",
    "--cloud-config-context=host",
    "--context=guest",
    "--master=https://guest:6443",
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"cluster-name": "demo", "former-cluster-name": ("old",), "management-network": "default/lan"}),
        ("", {"cloud-config": Path("/all"), "cloud-config-context": "host", "context": "guest"}),
        # Flags of the process itself are not inherited.
        ("", {"v": parse_words(()).values["v"], "logging-format": "text"}),
        # Neither are flags that depend on another one that is given.
        ("--cluster-name=other", {"cluster-name": "other", "former-cluster-name": (), "master": "https://guest:6443"}),
        ("--former-cluster-name=older", {"cluster-name": "demo", "former-cluster-name": ("older",)}),
        ("--cloud-config=/mine", {"cloud-config-context": "", "context": "guest"}),
        ("--kubeconfig=/mine", {"master": "", "context": "", "cloud-config-context": "host"}),
        ("--kubeconfig=/mine --master=https://mine:6443", {"master": "https://mine:6443"}),
    ],
)
def test_inherited_flags(tmp_path: Path, words: str, expected: dict[str, object]) -> None:
    running = running_flags(process_1(tmp_path, *PROGRAM, *RUNNING))
    flags = with_defaults(parse_words(tuple(words.split())), running, tmp_path / "cloud-config")
    assert {name: flags[name] for name in expected} == expected


def test_usual_cloud_config_is_the_default(tmp_path: Path) -> None:
    usual, flags = tmp_path / "cloud-config", parse_words(("service",))
    assert with_defaults(flags, None, usual)["cloud-config"] is None
    usual.write_text("")
    assert with_defaults(flags, None, usual)["cloud-config"] == usual
    named = parse_words(("--cloud-config=/mine",))
    assert with_defaults(named, None, usual)["cloud-config"] == Path("/mine")


def test_command_in_the_pod_needs_no_flags(run: Runner, tmp_path: Path, serve: ClusterServer) -> None:
    flags = serve(objects.service(), objects.home())
    result = run("explain", "svc/web", "-n", "shop", proc=process_1(tmp_path, *PROGRAM, *flags))
    assert (result.code, result.err) == (0, "")
    assert load_balancer_name("demo", "shop", "web", objects.UID) in result.out
