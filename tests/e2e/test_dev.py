"""``make dev`` for a new user: the printed commands work as they are, and Ctrl-C leaves nothing."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.e2e.test_demo import demo, left_behind

pytestmark = [pytest.mark.apiserver, pytest.mark.thorough]

SECONDS = 120
COMMANDS = ("kubectl get", "kubectl --context", "curl", "harvester-ccm explain", "harvester-ccm status")


async def read_until(process: asyncio.subprocess.Process, text: str) -> list[str]:
    """Return the lines that are printed up to the one that contains the text."""
    assert process.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(SECONDS):
        async for line in process.stdout:
            lines.append(line.decode().strip())
            if text in lines[-1]:
                return lines
    raise AssertionError(f"{text!r} was not printed: {lines}")


async def paste(*lines: str) -> str:
    """Return the output of commands in another terminal."""
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-c", "\n".join(lines)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", "HOME": "/nowhere"},
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await shell.communicate()
    return output.decode()


def commands_in(lines: list[str], *beginnings: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(beginnings)]


async def test_printed_commands_work(tmp_path: Path) -> None:
    async with demo(tmp_path, "--keep") as process:
        printed = await read_until(process, "Ctrl-C stops everything")
        (env,) = commands_in(printed, ". ")
        commands = commands_in(printed, *COMMANDS)
        assert len(commands) >= len(COMMANDS)
        for line in commands:
            output = await paste(env, f"{line} && echo WORKED")
            assert "WORKED" in output, f"{line}: {output}"
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            ended, _ = await process.communicate()
    assert process.returncode == 0, ended.decode()
    assert left_behind(tmp_path) == []
