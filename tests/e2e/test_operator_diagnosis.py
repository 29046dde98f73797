"""``make dev`` for a new user: printed commands are run as they are, and ``status`` names the cause of every fault."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from devenv.demo.faults import FAULTS
from devenv.stage import until
from tests.e2e.test_demo import demo, left_behind

pytestmark = pytest.mark.apiserver

SECONDS = 120
PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "testing.md"
CAUSES = {
    name: words.split("…")
    for name, words in re.findall(r"^\| `([\w-]+)` \| [^|]+ \| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
}
"""Texts of the page that ``status`` prints for each fault under ``PROBLEMS``."""


class User:
    """Two terminals: one for ``make dev``, one for commands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._env = ""

    async def read_until(self, text: str) -> list[str]:
        """Return the lines up to the one that contains the text."""
        assert self._process.stdout is not None
        lines: list[str] = []
        async with asyncio.timeout(SECONDS):
            async for line in self._process.stdout:
                lines.append(line.decode().strip())
                if text in lines[-1]:
                    return lines
        raise AssertionError(f"{text!r} was not printed: {lines}")

    async def type(self, word: str) -> None:
        """Type a word in the terminal of ``make dev``."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()

    async def paste(self, line: str) -> str:
        """Return the output of a command in the other terminal."""
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            f"{self._env}\n{line}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", "HOME": "/nowhere"},
        )
        async with asyncio.timeout(SECONDS):
            output, _ = await shell.communicate()
        return output.decode()

    def enter(self, line: str) -> None:
        """Run this line first in the other terminal."""
        self._env = line


def commands_in(lines: list[str], *beginnings: str) -> list[str]:
    """Return the lines that are commands, without comments."""
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(beginnings)]


async def test_status_names_the_cause_of_every_fault(tmp_path: Path) -> None:
    async with demo(tmp_path, "--keep", "--fault", "no-pool") as process:
        user = User(process)
        printed = await user.read_until("Ctrl-C stops everything")
        user.enter(*commands_in(printed, ". "))
        for line in commands_in(printed, "kubectl get", "kubectl --context", "curl", "harvester-ccm explain"):
            output = await user.paste(f"{line} && echo WORKED")
            assert "WORKED" in output, f"{line}: {output}"
        first = await user.read_until("harvester-ccm explain")
        for fault in FAULTS:
            if fault != "no-pool":
                await user.type(fault)
                first = await user.read_until("harvester-ccm explain")
            status, explain = commands_in(first, "harvester-ccm")
            seen = (await user.paste(status)).partition("PROBLEMS")[2].partition("\n\n")[0]
            problems = " ".join(seen.split())
            assert all(words.strip() in problems for words in CAUSES[fault]), f"{fault}: {problems}"
            assert status.split()[1:] == ["status"]
            assert explain.split()[1] == "explain"
        await user.type("none")
        await user.read_until("Fixed")

        async def is_well() -> bool:
            return "All is well." in await user.paste("harvester-ccm status")

        await until(is_well, within=SECONDS, what="a status without faults")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            ended, _ = await process.communicate()
    assert process.returncode == 0, ended.decode()
    assert left_behind(tmp_path) == []
