"""``make dev`` as a stranger meets it: only what is printed is pasted, and every fault has to be understood from that.

The first command names the cause. It has no flags, and neither has the second.
"""

from __future__ import annotations

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
"""What the page promises that the first command says of each fault, under ``PROBLEMS``."""


class Stranger:
    """Somebody with two terminals: at one runs ``make dev``, at the other commands are pasted."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._env = ""

    async def read_until(self, text: str) -> list[str]:
        """Return the lines up to the one that holds the text."""
        assert self._process.stdout is not None
        lines: list[str] = []
        async with asyncio.timeout(SECONDS):
            async for line in self._process.stdout:
                lines.append(line.decode().strip())
                if text in lines[-1]:
                    return lines
        raise AssertionError(f"{text!r} was never said; instead: {lines}")

    async def type(self, word: str) -> None:
        """Type a word where ``make dev`` runs."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()

    async def paste(self, line: str) -> str:
        """Return what a line prints at the other terminal."""
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
        """Paste this line first from now on."""
        self._env = line


def commands_in(lines: list[str], *beginnings: str) -> list[str]:
    """Return the lines that are commands, without the remarks behind them."""
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(beginnings)]


async def test_stranger_finds_five_faults(tmp_path: Path) -> None:
    async with demo(tmp_path, "--keep", "--fault", "no-pool") as process:
        stranger = Stranger(process)
        said = await stranger.read_until("Ctrl-C stops everything")
        stranger.enter(*commands_in(said, ". "))
        for line in commands_in(said, "kubectl get", "kubectl --context", "curl", "harvester-ccm explain"):
            output = await stranger.paste(f"{line} && echo WORKED")
            assert "WORKED" in output, f"{line}: {output}"
        first = await stranger.read_until("harvester-ccm explain")
        for fault in FAULTS:
            if fault != "no-pool":
                await stranger.type(fault)
                first = await stranger.read_until("harvester-ccm explain")
            look, closer = commands_in(first, "harvester-ccm")
            seen = (await stranger.paste(look)).partition("PROBLEMS")[2].partition("\n\n")[0]
            said_of_it = " ".join(seen.split())
            assert all(words.strip() in said_of_it for words in CAUSES[fault]), f"{fault}: {said_of_it}"
            assert look.split()[1:] == ["status"]
            assert closer.split()[1] == "explain"
        await stranger.type("none")
        await stranger.read_until("Fixed")

        async def is_well() -> bool:
            return "All is well." in await stranger.paste("harvester-ccm status")

        await until(is_well, within=SECONDS, what="a status without faults")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            ended, _ = await process.communicate()
    assert process.returncode == 130, ended.decode()
    assert left_behind(tmp_path) == []
