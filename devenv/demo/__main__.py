"""``python -m devenv.demo``: a show on a terminal, lines in a pipe; with ``--keep`` a running scene for work by hand.

Exit code 0 when everything was as expected, 1 when it was not (logs and data are kept then), 130 after Ctrl-C, SIGTERM
or the end of the terminal, which may come at any moment and leave no process and no file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path


def main() -> int:
    """Read the arguments, perform, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.demo", description="Show the program at work.")
    parser.add_argument("--keep", action="store_true", help="start everything and keep it running until Ctrl-C")
    parser.add_argument("--fault", metavar="NAME", help="with --keep: what is broken from the beginning")
    parser.add_argument(
        "--film", type=Path, metavar="FILE", help="write the show into FILE, an SVG that plays by itself"
    )
    arguments = parser.parse_args()
    keep: bool = arguments.keep
    fault: str | None = arguments.fault
    if fault and not keep:
        parser.error("--fault goes with --keep")
    film: Path | None = arguments.film
    # Nothing runs yet: until the imports are done, Ctrl-C may simply end this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rich.console import Console  # noqa: PLC0415 - see above

    from devenv.demo.live.performance import fits, perform_live  # noqa: PLC0415
    from devenv.demo.performance import perform  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Whoever said nohup wants it to go on.
        signal.signal(signal.SIGHUP, partial(_hang_up, [one for one in (1, 2) if os.isatty(one)]))
    console = Console()
    if film or (fits(console) and not keep):
        return perform_live(console, film)
    return perform(keep=keep, fault=fault)


def _interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _hang_up(terminals: Sequence[int], *_: object) -> None:
    """End as after Ctrl-C; what is still said goes nowhere, because writing to a terminal that is gone is an error."""
    # The kernel and the shell may both say it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in terminals:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    _interrupt()


if __name__ == "__main__":
    sys.exit(main())
