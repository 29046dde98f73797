"""Completion in real shells: typed keys, and the arguments that a command then gets."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harvester_ccm.commands import COMMANDS
from harvester_ccm.commands.completion import SHELLS, script
from harvester_ccm.flags import FLAGS, Group
from tests.support.terminal import on_terminal
from tests.unit.commands.conftest import Runner

SECONDS = 60
TYPED = {
    "sta\t": "<status>",
    "status --outp\tjs\t": "<status><--output><json>",
    "status -o y\t": "<status><-o><yaml>",
    "preflight -o js\t": "<preflight><-o><json>",
    "expl\tnod\tw1": "<explain><node><w1>",
    "--cloud-config clo\t": "<--cloud-config><cloud.yaml>",
    "help clea\t": "<help><cleanup>",
    "completion fi\t": "<completion><fish>",
    "--secure-p\t": "<--secure-port>",
}
"""Typed keys, and the arguments of the command."""
FOUND = [
    pytest.param(["sta"], ["status"], marks=pytest.mark.thorough),
    (["status", "-o", ""], ["text", "json", "yaml"]),
    pytest.param(["status", "--output=j"], ["--output=json"], marks=pytest.mark.thorough),
    pytest.param(["explain", "s"], ["svc", "service"], marks=pytest.mark.thorough),
    (["explain", "--name"], ["--namespace"]),
]
"""Arguments of which the last is completed, and all completions."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all scripts, and files to name."""
    directory = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (directory / f"script.{shell}").write_text(script(shell))
    (directory / "_harvester-ccm").write_text(script("zsh"))
    (directory / "cloud.yaml").touch()
    return directory


def type_into(order: Sequence[str], directory: Path, keys: str) -> str:
    """Return all that a shell on a terminal writes when these keys are pressed."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "dumb"}
    with on_terminal(order, environment, cwd=directory) as terminal:
        terminal.press(keys)
        return terminal.text(within=SECONDS).replace("\r", "")


SET_UP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source script.bash"),
    "zsh": (["zsh", "-f", "-i"], "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D"),
}


@pytest.mark.parametrize("shell", SET_UP)
def test_a_shell_completes_what_is_typed(scripts: Path, shell: str) -> None:
    order, set_up = SET_UP[shell]
    if shutil.which(order[0]) is None:
        pytest.skip(f"there is no {shell}")
    show = 'harvester-ccm() { printf "got "; printf "<%s>" "$@"; echo; }'
    lines = [set_up, show, *(f"harvester-ccm {typed}" for typed in TYPED), "exit", ""]
    text = type_into(order, scripts, "\n".join(lines))
    # A value stands behind "=" in one shell, and is the next word in another.
    got = [line[4:].replace("=", "><") for line in text.splitlines() if line.startswith("got <")]
    assert got == [words.replace("=", "><") for words in TYPED.values()], text


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("words", "found"), FOUND)
def test_fish_completes_what_is_typed(scripts: Path, words: list[str], found: list[str]) -> None:
    order = [
        "fish",
        "--no-config",
        "-c",
        "source script.fish; complete -C $argv[1]",
        " ".join(["harvester-ccm", *words]),
    ]
    done = subprocess.run(order, cwd=scripts, capture_output=True, text=True, check=True)
    assert sorted(line.partition("\t")[0] for line in done.stdout.splitlines()) == sorted(found)


def test_every_command_and_every_flag_is_completed() -> None:
    names = set(re.findall(r"[\w-]+", script("bash")))
    assert {command.name for command in COMMANDS} <= names
    assert {flag.name for flag in FLAGS if f"--{flag.name}" in names} == {
        flag.name for flag in FLAGS if flag.group is not Group.ACCEPTED
    }


def test_a_script_is_printed_as_it_is(run: Runner) -> None:
    for shell in SHELLS:
        result = run("completion", shell)
        assert (result.code, result.out, result.err) == (0, f"{script(shell)}\n", "")
