"""docs/reference/commands.md names every command, flag and field that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harvester_ccm.commands import COMMANDS, adopt, cleanup, explain, preflight
from tests.unit.commands import objects
from tests.unit.commands.conftest import Runner, Writer

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_its_section_and_its_help(run: Runner, command: object) -> None:
    name = next(one.name for one in COMMANDS if one is command)
    assert f"\n## {name}" in PAGE
    result = run(name, "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Usage:\n  harvester-ccm {name}")
    assert "Exit codes: 0 " in result.out


def test_every_flag_of_a_command_is_named() -> None:
    flags = {flag.name for module in (adopt, cleanup, explain, preflight) for flag in module.MANUAL.own}
    assert {name for name in flags if f"--{name}" not in PAGE and name != "filename"} == set()


def test_every_field_is_named(run: Runner, case: Writer) -> None:
    vm = objects.instance("w1", ("eth0", "default/lan", ["10.0.0.5"]))
    file = case(objects.service(), objects.balancer(workloadType="vm"), objects.node(), objects.machine(), vm)
    for words in (("service",), ("node", "--output=json"), ("nad-mapping", "--output=json")):
        document = run("explain", *words, "-f", file, "--cluster-name=demo").document
        values = [value for key, value in document.items() if key != "mapping"]
        nested = [one for value in values for one in (value if isinstance(value, list) else [value])]
        fields = {*document, *(key for one in nested if isinstance(one, dict) for key in one)}
        assert {field for field in fields if f"`{field}`" not in PAGE and f'"{field}"' not in PAGE} == set()
