"""The demo as text: all acts, and Ctrl-C, which stops everything that it started."""

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
WHOLE_SECONDS = 250
END_SECONDS = 60
AT_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
os.execv(sys.executable, [sys.executable, "-m", "devenv.demo", "--keep"])
"""
"""``make dev`` on a terminal that is closed."""


@asynccontextmanager
async def demo(directory: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the demo with its files below ``directory``, which the command lines of all its processes contain."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "devenv.demo",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(directory)},
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def left_behind(directory: Path) -> list[str]:
    """Return the files in the directory, and the command lines of running processes that contain its path."""
    found = [entry.name for entry in directory.iterdir()]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory) in line:
            found.append(line)
    return found


@pytest.mark.thorough
async def test_demo_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    async with demo(tmp_path) as process, asyncio.timeout(WHOLE_SECONDS):
        output, _ = await process.communicate()

    text = output.decode()
    assert process.returncode == 0, text
    for words in (
        "curl http://127.77.0.",
        "default/wiki",
        "InvalidAnnotation",
        "harvester-ccm explain svc/store",
        "100 addresses after",
        "Leader killed: the standby led after",
        "requests answered",
        "0 load balancers, 0 addresses left",
        "Before the Services were deleted:",
        "harvester-ccm status",
        "All is well.",
    ):
        assert words in text
    assert text.rstrip().endswith("Next: make dev starts the same clusters for your own Services. Ctrl-C ends it.")
    assert "\x1b" not in text
    assert left_behind(tmp_path) == []


def test_end_of_the_terminal_leaves_nothing(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    order, written = [sys.executable, "-c", AT_A_TERMINAL], bytearray()
    with subprocess.Popen(
        order, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=ROOT, start_new_session=True
    ) as process:
        os.close(slave)
        while b"Starting a guest cluster" not in written:
            written += os.read(master, 65536)
        os.close(master)
        assert process.wait(END_SECONDS) == 0
    assert left_behind(tmp_path) == []
