"""``python -m devenv.demo``: a show on a terminal, lines in a pipe; with ``--keep`` a running scene for work by hand.

Exits with 0 if everything was as expected and with 1 if not; then logs and data are kept. Exits with 130 after Ctrl-C,
SIGTERM or the end of the terminal, which can come at any moment and leave no process and no file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

STARTING = "Starting a guest cluster and a Harvester cluster: etcd and kube-apiserver, each twice"


def main() -> int:
    """Read the arguments, perform, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.demo", description="Show the program at work.")
    parser.add_argument("--keep", action="store_true", help="start everything and keep it running until Ctrl-C")
    parser.add_argument("--fault", metavar="NAME", help="with --keep: what is broken from the beginning")
    parser.add_argument(
        "--film", type=Path, metavar="FILE", help="write the show into FILE, an SVG that plays by itself"
    )
    options = parser.parse_args()
    if options.fault and not options.keep:
        parser.error("--fault goes with --keep")
    # Nothing runs yet: until the imports are done, Ctrl-C may simply end this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from devenv.demo import play  # noqa: PLC0415 - see above
    from devenv.logfile import logs_to  # noqa: PLC0415
    from devenv.process import run_directory  # noqa: PLC0415

    _handle_signals()
    try:
        with run_directory("demo") as directory, logs_to(directory / "emulators.log"):
            return _run(directory, options)
    except play.FAILURES as error:
        print(f"\nFAILED: {error}")
        return 1


def _run(directory: Path, options: argparse.Namespace) -> int:
    """Start both clusters, perform in the requested form, and return the exit code."""
    from rich.console import Console  # noqa: PLC0415 - after the signal handlers

    from devenv.demo import show, tour  # noqa: PLC0415
    from devenv.demo.film import Film  # noqa: PLC0415
    from devenv.demo.play import Voice  # noqa: PLC0415
    from devenv.stage import Scene  # noqa: PLC0415

    console, voice, film = Console(), Voice(), Film() if options.film else None
    is_show = film is not None or (show.fits(console) and not options.keep)
    try:
        if is_show:
            with console.status(STARTING):
                scene = Scene.start(directory)
        else:
            voice.headline(STARTING)
            scene = Scene.start(directory, controller_manager=options.keep)
        try:
            if not is_show:
                asyncio.run(tour.perform(voice, scene, directory, keep=options.keep, fault=options.fault))
                return 0
            summary = asyncio.run(show.perform(scene, directory, console, film))
        finally:
            scene.stop()
    except KeyboardInterrupt:
        print("\nInterrupted; everything is stopped")
        return 130
    if film is not None:
        options.film.write_text(film.svg(show.TITLE))
    for sentence in summary:
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    return 0


def _handle_signals() -> None:
    """End after SIGTERM and after the end of the terminal as after Ctrl-C."""

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def hang_up(*_: object) -> None:
        # The kernel and the shell may both send it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # Writing to a terminal that is gone is an error.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in terminals:
            os.dup2(nowhere, descriptor)
        interrupt()

    terminals = [one for one in (1, 2) if os.isatty(one)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    # Under nohup it is ignored, and stays so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)


if __name__ == "__main__":
    sys.exit(main())
