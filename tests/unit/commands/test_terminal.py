"""Every command on a terminal, wide and narrow, with colors and without, and into a pipe that is closed early."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.loopback_api import two_clusters
from tests.support.terminal import on_terminal
from tests.unit.commands import clusters, objects

SECONDS = 120.0
"""Time for a process that needs one or two."""
ORDERS: dict[str, int] = {
    "status": 1,
    "preflight": 0,
    "explain svc/web -n shop": 1,
    "explain node/w1": 1,
    "explain svc/none -n shop": 1,
    "cleanup --cluster-name=demo": 1,
    "completion bash": 0,
    "help": 0,
    "help explain": 0,
    "version": 0,
}
"""Words of a command, and its exit code on these clusters."""
DRIVER = """
import json, sys, termios
from harvester_ccm.cli import main

flags, orders, columns = map(json.loads, sys.argv[1:])
termios.tcsetwinsize(1, (40, columns))
for words in orders:
    print(f"=== {words}", flush=True)
    code = main(["harvester-ccm", *words.split(), *([] if words.startswith(("help", "version")) else flags)])
    print(f"\\n=== exit {code}", flush=True)
"""
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    directory = tmp_path_factory.mktemp("terminal")
    with two_clusters(clusters.guest(), clusters.harvester(), directory, objects.VMS) as given:
        yield given


@pytest.mark.parametrize(("columns", "terminal_type"), [(80, "xterm-256color"), (120, "dumb")])
def test_every_command_on_a_terminal(flags: list[str], columns: int, terminal_type: str) -> None:
    order = [sys.executable, "-c", DRIVER, *map(json.dumps, (flags, list(ORDERS), columns))]
    environment = {"PATH": os.environ["PATH"], "TERM": terminal_type}
    colors = terminal_type != "dumb"
    with on_terminal(order, environment) as terminal:
        text = terminal.text(within=SECONDS)
    plain = ESCAPE.sub("", text)
    assert "\x1b" not in plain
    parts = re.findall(r"=== ((?!exit)[^\n]+)\n(.*?)\n=== exit (\d+)", plain, re.DOTALL)
    assert {words: int(code) for words, _, code in parts} == ORDERS, plain
    assert "Traceback" not in plain
    assert ("\x1b[" in text) is colors
    if colors:
        assert "\x1b[1mService:        \x1b[0m" in text
        assert "\x1b[1;31mPROBLEMS (4)\x1b[0m" in text
        assert "\x1b[33mPending\x1b[0m" in text
    lines = [line for words, part, _ in parts if words != "completion bash" for line in part.splitlines()]
    # A word that is longer than a line stays whole, so that it can be copied. Each error is one line.
    wide = [line for line in lines if len(line) > columns and not line.startswith("harvester-ccm: ")]
    assert [line for line in wide if max(map(len, line.split())) < columns // 2] == []


@pytest.mark.thorough
@pytest.mark.parametrize("words", ["status", "completion bash"])
def test_closed_pipe_causes_no_error(flags: list[str], words: str) -> None:
    order = [sys.executable, "-m", "harvester_ccm", *words.split(), *flags]
    with subprocess.Popen(order, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read().decode()
        code = process.wait(SECONDS)
    assert ("error" in errors, "Traceback" in errors, code in (141, 0, 1)) == (False, False, True)


def test_program_without_arguments_shows_its_help_on_a_terminal() -> None:
    """A person typed it; a container without arguments has no terminal, or is process 1."""
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb"}
    with on_terminal([sys.executable, "-m", "harvester_ccm"], environment) as terminal:
        text = terminal.text(within=SECONDS)
    assert terminal.process.returncode == 0
    assert text.startswith("usage: harvester-ccm")
    assert "\x1b" not in text
