"""The demo on a terminal: that Ctrl-C gives the terminal back and leaves nothing, and that all acts end well."""

from __future__ import annotations

import os
import signal
import sys
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
from tests.worlds.terminal import on_terminal

pytestmark = pytest.mark.apiserver

SHORT_LEASE = {
    "leader-elect-lease-duration": "8s",
    "leader-elect-renew-deadline": "6s",
    "leader-elect-retry-period": "1s",
}


def test_interrupted_show_leaves_nothing_and_gives_the_terminal_back(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    with on_terminal([sys.executable, "-m", "devenv.demo"], environment, size=(30, 100), cwd=ROOT) as terminal:
        if terminal.shows("Services get their addresses"):
            terminal.process.send_signal(signal.SIGINT)
        written = terminal.text(within=END_SECONDS)
    assert terminal.process.returncode == 130, written
    assert written.index("\x1b[?1049h") < written.index("\x1b[?1049l")
    assert "Interrupted; everything is stopped" in written[written.index("\x1b[?1049l") :]
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
