"""``python -m devenv.demo``: the whole of it in half a minute; with ``--keep`` a running scene for work by hand.

Exit code 0 when everything was as expected, 1 when it was not (logs and data are kept then), 130 after Ctrl-C, which
may come at any moment and leaves no process.
"""

from __future__ import annotations

import argparse
import signal
import sys


def main() -> int:
    """Read the arguments, perform, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.demo", description="Show the program at work.")
    parser.add_argument("--keep", action="store_true", help="start everything and keep it running until Ctrl-C")
    parser.add_argument("--fault", metavar="NAME", help="with --keep: what is broken from the beginning")
    arguments = parser.parse_args()
    keep: bool = arguments.keep
    fault: str | None = arguments.fault
    if fault and not keep:
        parser.error("--fault goes with --keep")
    # Nothing runs yet: until the imports are done, Ctrl-C may simply end this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from devenv.demo.performance import perform  # noqa: PLC0415 - see above

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return perform(keep=keep, fault=fault)


if __name__ == "__main__":
    sys.exit(main())
