"""The page of commands names every command and flag, and its examples are real output."""

import re
from pathlib import Path

import pytest

from devenv.reference import rbac_page
from harvester_ccm.commands import COMMANDS, cleanup, completion, explain, preflight, status, version
from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import ClusterServer, Runner
from tests.unit.commands.test_status import balancer, ready_node, served

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
RBAC_PAGE = (ROOT / "docs" / "reference" / "rbac.md").read_text(encoding="utf-8")
TRANSCRIPT = (ROOT / "tests" / "apiserver" / "transcripts" / "preflight.txt").read_text(encoding="utf-8")
"""Real runs, by ``tests/apiserver/test_commands_preflight.py``."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_its_section_and_its_help(run: Runner, command: object) -> None:
    name = next(one.name for one in COMMANDS if one is command)
    assert f"\n## {name}" in PAGE
    result = run(name, "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"usage: harvester-ccm {name}")
    assert "Exit codes: 0 " in result.out


def test_every_flag_of_a_command_is_named() -> None:
    flags = {
        flag.name for module in (cleanup, completion, explain, preflight, status, version) for flag in module.SPEC.own
    }
    assert {name for name in flags if f"--{name}" not in PAGE} == set()


def test_examples_on_the_page_are_real_output(run: Runner, serve: ClusterServer, tmp_path: Path) -> None:
    known = clusters.guest()
    guest = LoopbackApi([*known.objects, objects.lease()], known.groups)
    with two_clusters(guest, clusters.harvester(), tmp_path, objects.VMS) as flags:
        commands = ("status", "explain svc/web -n shop", "explain node/w1")
        printed = "".join(run(*words.split(), *flags).out for words in commands)
    working = [served(), balancer(), ready_node(), objects.machine(), objects.on_host("host-2")]
    printed += run("status", *serve(objects.home(), objects.lease(), *working)).out
    printed = printed.replace(guest.url, "https://10.53.0.1:443")
    printed = re.sub(r"http://127\.0\.0\.1:\d+", "https://192.168.1.10:6443", printed)
    # The age of the objects differs.
    printed = " ".join(re.sub(r"\b\d+[dy]\b", "3d", printed).split())
    preflight, *others = sorted(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL), key=lambda text: "WHERE" not in text)
    assert [line for line in preflight.splitlines() if line not in TRANSCRIPT.splitlines()] == []
    assert [example for example in others if " ".join(example.split()) not in printed] == []


@pytest.mark.security(
    "The RBAC reference lists every permission of the service account `kube-system/harvester-cloud-provider`"
)
def test_page_of_permissions_is_current() -> None:
    assert rbac_page() == RBAC_PAGE, "run make generate"
