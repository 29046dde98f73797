"""The demo on a terminal: that Ctrl-C gives the terminal back and leaves nothing, and that all acts end well."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
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
from tests.e2e.test_demo import END_SECONDS, ROOT, left_behind

pytestmark = pytest.mark.apiserver

SHORT_LEASE = {
    "leader-elect-lease-duration": "8s",
    "leader-elect-renew-deadline": "6s",
    "leader-elect-retry-period": "1s",
}


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
                if b"Services get their addresses" in written:
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
