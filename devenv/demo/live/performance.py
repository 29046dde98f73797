"""The live demo from the first server started to the last one stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from devenv.demo.live.acts import ACTS
from devenv.demo.live.film import Film
from devenv.demo.live.screen import SMALLEST
from devenv.demo.live.show import Camera, Screen, Show, Terminal
from devenv.demo.setting import FAILURES, open_stage
from devenv.logfile import logs_to
from devenv.process import run_directory
from devenv.stage import Scene

TITLE: Final = "harvester-ccm serving Services of a guest cluster from Harvester, surviving its leader, leaving nothing"
STARTING: Final = "Starting a guest cluster and a Harvester cluster: etcd and kube-apiserver, each twice"


def fits(console: Console) -> bool:
    """Return whether people look at a terminal that the live demo can be shown on."""
    columns, lines = SMALLEST
    return console.is_terminal and not console.is_dumb_terminal and console.width >= columns and console.height >= lines


def perform_live(console: Console, film: Path | None = None) -> int:
    """Show all acts on the terminal and return the exit code; with ``film``, write them into that file instead."""
    started = time.monotonic()

    def clock() -> float:
        return time.monotonic() - started

    try:
        with run_directory("demo") as directory:
            summary = _on_servers(directory, clock, console, film)
    except FAILURES as error:
        console.print(f"FAILED: {error}", markup=False)
        return 1
    if summary is None:
        console.print("Interrupted; everything is stopped")
        return 130
    for sentence in summary:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    return 0


def _on_servers(directory: Path, clock: Callable[[], float], console: Console, film: Path | None) -> list[str] | None:
    """Return what was measured; None when somebody has seen enough, after which nothing has to be kept."""
    try:
        with logs_to(directory / "emulators.log"):
            with console.status(STARTING):
                scene = Scene.start(directory)
            try:
                return _film(scene, directory, clock, film) if film else _show(scene, directory, clock, console)
            finally:
                scene.stop()
    except KeyboardInterrupt:
        return None


def _show(scene: Scene, directory: Path, clock: Callable[[], float], console: Console) -> list[str]:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        return asyncio.run(_play(scene, directory, clock, Terminal(live)))


def _film(scene: Scene, directory: Path, clock: Callable[[], float], file: Path) -> list[str]:
    film = Film()
    summary = asyncio.run(_play(scene, directory, clock, Camera(film)))
    file.write_text(film.svg(TITLE))
    return summary


async def _play(scene: Scene, directory: Path, clock: Callable[[], float], screen: Screen) -> list[str]:
    async with open_stage(scene, directory) as stage:
        return await play(Show(stage, screen, clock, stage.run))


async def play(show: Show) -> list[str]:
    """Show all acts and return what was measured."""
    async with show:
        for act in ACTS:
            await act(show)
    return show.summary
