"""The demo as people start it: what it shows, and that Ctrl-C ends it with all that it started."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from devenv.demo.live import acts
from devenv.demo.live.film import Film
from devenv.demo.live.performance import play
from devenv.demo.live.show import Camera, Show
from devenv.demo.setting import open_stage
from devenv.logfile import logs_to
from devenv.stage import Scene
from tests.e2e.conftest import clear

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
WHOLE_SECONDS = 250
END_SECONDS = 60
SHORT_LEASE = {
    "leader-elect-lease-duration": "4s",
    "leader-elect-renew-deadline": "3s",
    "leader-elect-retry-period": "1s",
}


@asynccontextmanager
async def demo(directory: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the demo with its files below ``directory``, by which all of its processes can be told."""
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
    """Return what is in the directory, and the command lines of running programs that name it."""
    found = [entry.name for entry in directory.iterdir()]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(directory) in line:
            found.append(line)
    return found


async def output_until(process: asyncio.subprocess.Process, text: str) -> None:
    """Return once a line of the output holds the text."""
    assert process.stdout is not None
    async with asyncio.timeout(WHOLE_SECONDS):
        async for line in process.stdout:
            if text in line.decode():
                return
    raise AssertionError(f"the demo ended without saying {text!r}")


async def test_demo_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    async with demo(tmp_path) as process, asyncio.timeout(WHOLE_SECONDS):
        output, _ = await process.communicate()

    text = output.decode()
    assert process.returncode == 0, text
    for words in (
        "NAME         TYPE           CLUSTER-IP",
        "curl http://127.77.0.",
        "default/syslog",
        "EnsuredLoadBalancer",
        "no ready IP pool 'dmz'",
        "0 LBs, 0 addresses left",
        "All three nodes have passed their checks",
        "node-1 is left out, the others answer",
        "node-1 is back",
        "nothing of it is left in Harvester",
        "exit code 0",
    ):
        assert words in text
    assert "\x1b" not in text
    assert left_behind(tmp_path) == []


async def test_interrupt_leaves_nothing(tmp_path: Path) -> None:
    async with demo(tmp_path) as process:
        await output_until(process, "Starting a guest cluster")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(END_SECONDS):
            output, _ = await process.communicate()

    assert process.returncode == 130, output.decode()
    assert left_behind(tmp_path) == []


def test_interrupted_show_leaves_nothing_and_gives_the_terminal_back(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    order = [sys.executable, "-m", "devenv.demo"]
    written = bytearray()
    with subprocess.Popen(order, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=ROOT) as process:
        os.close(slave)
        try:
            while piece := os.read(master, 65536):
                written += piece
                if b"of 4 Services served" in written and b"127.77.0." in written:
                    process.send_signal(signal.SIGINT)
                    break
            while piece := os.read(master, 65536):
                written += piece
        except OSError:
            pass  # the other end is closed: Linux's way of saying so
        process.wait(END_SECONDS)
    os.close(master)
    assert process.returncode == 130, written.decode()
    assert written.index(b"\x1b[?1049h") < written.index(b"\x1b[?1049l")
    assert b"Interrupted; everything is stopped" in written[written.index(b"\x1b[?1049l") :]
    assert left_behind(tmp_path) == []


async def test_show_is_filmed_to_its_end(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All acts, with fewer Services in the crowd and a Lease that runs out sooner."""
    monkeypatch.setattr(acts, "HOW_MANY", 10)
    film, started = Film(), time.monotonic()
    with logs_to(tmp_path / "emulators.log"):
        try:
            async with open_stage(scene, tmp_path) as stage:
                start = partial(stage.run, flags=SHORT_LEASE)
                summary = await play(Show(stage, Camera(film), lambda: time.monotonic() - started, start))
        finally:
            clear(scene)
    for number, words in enumerate(("A typo was told", "10 Services served", "Leader killed", "requests answered")):
        assert words in summary[number]
    assert "0 load balancers, 0 addresses left" in summary[-1]
    svg = film.svg("all acts")
    for words in (
        "127.77.0.",
        "InvalidAnnotation",
        "harvester-ccm explain svc/store",
        "Go provider",
        "The standby leads",
    ):
        assert words in svg
