"""The page of commands names every command, flag and field; the page of preflight shows real runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harvester_ccm.commands import COMMANDS, cleanup, completion, explain, preflight, status
from harvester_ccm.commands.clusters import GUEST, HARVESTER
from harvester_ccm.commands.permissions import permissions_of
from harvester_ccm.flags import build_settings, parse_command_line
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Runner

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
PREFLIGHT_PAGE = (ROOT / "docs" / "operations" / "preflight.md").read_text(encoding="utf-8")
RIGHTS_PAGE = (ROOT / "docs" / "reference" / "rbac.md").read_text(encoding="utf-8")
TRANSCRIPTS = {
    file.stem: file.read_text(encoding="utf-8") for file in (ROOT / "tests" / "apiserver" / "transcripts").iterdir()
}
"""What ``tests/apiserver/test_commands_preflight.py`` compares with real runs."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_its_section_and_its_help(run: Runner, command: object) -> None:
    name = next(one.name for one in COMMANDS if one is command)
    assert f"\n## {name}" in PAGE
    result = run(name, "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"usage: harvester-ccm {name}")
    assert "Exit codes: 0 " in result.out


def test_every_flag_of_a_command_is_named() -> None:
    flags = {flag.name for module in (cleanup, completion, explain, preflight, status) for flag in module.MANUAL.own}
    assert {name for name in flags if f"--{name}" not in PAGE} == set()


def test_every_field_is_named(run: Runner, serve: ClusterServer) -> None:
    vm = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
    flags = serve(objects.service(), objects.balancer(workloadType="vm"), objects.node(), objects.machine(), vm)
    for words in (("svc", "shop/web"), ("node", "w1")):
        document = run("explain", *words, *flags, "--output=json").document
        values = [value for key, value in document.items() if key != "mapping"]
        nested = [one for value in values for one in (value if isinstance(value, list) else [value])]
        fields = {*document, *(key for one in nested if isinstance(one, dict) for key in one)}
        assert {field for field in fields if f"`{field}`" not in PAGE and f'"{field}"' not in PAGE} == set()


def test_every_field_of_a_status_is_named(run: Runner, serve: ClusterServer) -> None:
    document = run("status", "-o", "json", *serve(objects.service(), objects.node(), objects.home())).document
    parts = [document, document["leader"], document["harvester"], document["problems"][0]]
    assert {field for part in parts for field in part if f"`{field}`" not in PAGE} == set()


def test_runs_on_the_page_of_preflight_are_real_ones() -> None:
    shown = re.findall(r"```text\n(.*?)```", PREFLIGHT_PAGE, re.DOTALL)
    assert len(shown) == 3
    assert [one for one in shown if not any(one in text for text in TRANSCRIPTS.values())] == []


def test_the_page_of_preflight_names_every_fault() -> None:
    titles = re.findall(r"^=== (.*)$", TRANSCRIPTS["broken_kubeconfigs"], re.MULTILINE)
    assert len(titles) > 20
    assert [one for one in titles if one not in PREFLIGHT_PAGE] == []


def test_the_page_of_rights_names_every_one() -> None:
    settings = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
    lines = []
    for cluster in (HARVESTER, GUEST):
        for one in permissions_of(cluster, settings):
            group = f" (`{one.resource.group}`)" if one.resource.group else ""
            name = one.name(settings)[1]
            thing = f"`{one.title}`{group}{f', only `{name}`' if name else ''}"
            lines.append(f"| {cluster} | {thing} | {one.verb} | {'yes' if one.required else ''} | {one.effect} |")
    assert [line for line in RIGHTS_PAGE.splitlines() if line.startswith(("| guest", "| harvester"))] == lines
