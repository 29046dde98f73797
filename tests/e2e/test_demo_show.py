"""The demo on a terminal and as a recording: Ctrl-C restores the terminal and leaves nothing; all acts succeed."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from devenv.demo import show
from devenv.demo.recording import Recording
from devenv.demo.scenario import open_stage
from devenv.logfile import logs_to
from devenv.stage import Scene
from tests.e2e.conftest import clear
from tests.e2e.test_demo import END_SECONDS, ROOT, left_behind
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.apiserver

SHORT_LEASE = {
    "leader-elect-lease-duration": "8s",
    "leader-elect-renew-deadline": "6s",
    "leader-elect-retry-period": "1s",
}


def test_interrupted_show_leaves_nothing_and_restores_the_terminal(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    with on_terminal([sys.executable, "-m", "devenv.demo"], environment, size=(30, 100), cwd=ROOT) as terminal:
        if terminal.shows("Services get their addresses"):
            terminal.process.send_signal(signal.SIGINT)
        written = terminal.text(within=END_SECONDS)
    assert terminal.process.returncode == 130, written
    assert written.index("\x1b[?1049h") < written.index("\x1b[?1049l")
    assert "Interrupted; everything is stopped" in written[written.index("\x1b[?1049l") :]
    assert left_behind(tmp_path) == []


@pytest.mark.thorough
async def test_recording_has_all_acts(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer Services in the crowd and a shorter Lease than in ``make recording``."""
    monkeypatch.setattr(show, "CROWD_SIZE", 10)
    monkeypatch.setattr(show, "READING", 2.0)
    recording = Recording()
    with logs_to(tmp_path / "emulators.log"):
        try:
            async with open_stage(scene, tmp_path) as stage:
                summary = await show.play(show.Show(stage, recording, partial(stage.run, flags=SHORT_LEASE)))
        finally:
            clear(scene)
    for number, words in enumerate(("A typo was reported", "10 addresses after", "Leader killed", "requests answered")):
        assert words in summary[number]
    assert any("0 load balancers, 0 addresses left" in line for line in summary)
    assert summary[-1].startswith("Next: make dev")
    svg = recording.svg("all acts")
    for words in (
        "127.77.0.",
        "InvalidAnnotation",
        "harvester-ccm explain svc/store",
        "Stopwatch",
        "The standby leads",
    ):
        assert words in svg
