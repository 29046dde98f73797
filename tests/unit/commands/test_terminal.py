"""Every command on a terminal, wide and narrow, with colours and without, and into a pipe that is closed early."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from harvester_ccm.cli import main
from harvester_ccm.commands import COMMANDS, HELP, VERSION, call
from tests.unit.commands import clusters, objects
from tests.worlds.loopback_api import two_clusters
from tests.worlds.terminal import on_terminal

SECONDS = 120.0
"""Time for a process that needs one or two."""
ORDERS: dict[str, int] = {
    "status": 1,
    "preflight": 0,
    "explain svc/web -n shop": 1,
    "explain node/w1": 0,
    "explain svc/none -n shop": 1,
    "cleanup --cluster=demo": 1,
    "completion bash": 0,
    "help": 0,
    "help explain": 0,
    "version": 0,
}
"""Words of a command, and its exit code on these clusters."""
AS_WIDE_AS_IT_IS = ("completion bash",)
"""Those whose lines are not broken."""
PIPED = (
    "status",
    "preflight",
    "explain svc/web -n shop",
    "explain node/w1",
    "cleanup --cluster=demo",
    "completion bash",
)
"""Those that write much into a pipe."""
LOOKS = {
    "narrow, colours": (80, True),
    "wide, none": (120, False),
    "narrow, none": (80, False),
    "wide, colours": (120, True),
}
"""Columns of the terminal, and whether colours are wanted."""
OFTEN = ("narrow, colours",)
DRIVER = """
import importlib, json, os, sys, termios
from harvester_ccm.cli import main
from harvester_ccm.commands import COMMANDS
import rich.console

flags, orders, looks = map(json.loads, sys.argv[1:])
for command in COMMANDS:
    importlib.import_module(f"harvester_ccm.commands.{command.name}")
for name, (columns, colours) in looks.items():
    if os.fork():
        os.wait()
        continue
    print(f"=== look {name}", flush=True)
    termios.tcsetwinsize(1, (40, columns))
    if not colours:
        os.environ["NO_COLOR"] = "1"
    for words in orders:
        print(f"\\n=== {words}", flush=True)
        code = main(["harvester-ccm", *words.split(), *([] if words.startswith(("help", "version")) else flags)])
        print(f"\\n=== exit {code}", flush=True)
    break
"""
"""One process loads the program, and one for each look runs all commands."""
UNWANTED = ("COLUMNS", "LINES", "NO_COLOR", "KUBECONFIG")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    directory = tmp_path_factory.mktemp("terminal")
    with two_clusters(clusters.guest(), clusters.harvester(), directory, objects.VMS) as given:
        yield given


@pytest.fixture(scope="module")
def shown(flags: list[str], *, thorough: bool) -> dict[str, str]:
    """What all commands write on a terminal, by how it looks."""
    looks = {name: look for name, look in LOOKS.items() if thorough or name in OFTEN}
    order = [sys.executable, "-c", DRIVER, *map(json.dumps, (flags, list(ORDERS), looks))]
    kept = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    with on_terminal(order, {**kept, "TERM": "xterm-256color"}) as terminal:
        text = terminal.text(within=SECONDS)
    parts = re.split(r"^=== look (.+)\n", text, flags=re.MULTILINE)
    assert parts[0] == "", text
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(
    "look", [one if one in OFTEN else pytest.param(one, marks=pytest.mark.thorough) for one in LOOKS]
)
def test_every_command_on_a_terminal(shown: dict[str, str], look: str) -> None:
    text, (columns, colours) = shown[look], LOOKS[look]
    assert "Traceback" not in text
    plain = ESCAPE.sub("", text)
    assert "\x1b" not in plain
    parts = dict(re.findall(r"=== ((?!exit)[^\n]+)\n(.*?)\n=== exit", plain, re.DOTALL))
    codes = [int(code) for code in re.findall(r"=== exit (\d+)", plain)]
    assert codes == list(ORDERS.values()), plain
    assert list(parts) == list(ORDERS)
    assert ("\x1b[" in text) is colours
    if colours:
        assert "\x1b[1mService:        \x1b[0m" in text
        assert "\x1b[1;31mPROBLEMS (4)\x1b[0m" in text
        assert "\x1b[33mPending\x1b[0m" in text
    fitted = [part for words, part in parts.items() if words not in AS_WIDE_AS_IT_IS]
    wide = [line for part in fitted for line in part.splitlines() if len(line) > columns]
    # A word that is longer than a line stays whole: it may be copied. Faults are one line each.
    broken = [line for line in wide if not line.startswith("harvester-ccm: ")]
    assert [line for line in broken if max(map(len, line.split())) < columns // 2] == []


def test_no_command_is_left_out() -> None:
    names = {command.name for command in COMMANDS}
    assert {words.split()[0] for words in ORDERS} - {HELP[0], VERSION[0]} == names
    assert {words.split()[0] for words in PIPED} == names


@pytest.mark.thorough
@pytest.mark.parametrize("words", PIPED)
def test_whoever_reads_one_line_gets_no_traceback(flags: list[str], words: str) -> None:
    order = [sys.executable, "-m", "harvester_ccm", *words.split(), *flags]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        told = process.stderr.read().decode()
        code = process.wait(SECONDS)
    assert "Traceback" not in told
    assert "error" not in told
    assert code in (141, 0, 1)


def test_an_error_before_the_log_is_set_up_shows_no_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "value-of-a-variable"

    def fail(*_words: object) -> None:
        local = secret
        raise KeyError(len(local))

    structlog.reset_defaults()
    monkeypatch.setattr(call, "running_flags", fail)
    assert main(["harvester-ccm", "preflight"], {}) == 1
    told = capsys.readouterr().err
    assert "stopped by an unexpected error" in told
    assert secret not in told
