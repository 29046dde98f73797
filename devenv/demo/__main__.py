"""``python -m devenv.demo``: the demo, animated on a terminal and as text elsewhere; ``--keep`` is ``make dev``.

Exits with 0 if everything was as expected, and with 1 if not; then logs and data are kept. After Ctrl-C, SIGTERM or the
end of the terminal, it leaves no process and no file, and exits with 130; with ``--keep``, which ends in no other way,
with 0.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

EXIT_INTERRUPTED = 130
"""Exit code that shells report after Ctrl-C."""
STARTING = "Starting a guest cluster and a Harvester cluster: etcd and kube-apiserver, each twice"


def main() -> int:
    """Parse the arguments, run the demo, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devenv.demo", description="Show harvester-ccm at work.")
    parser.add_argument("--keep", action="store_true", help="start everything and keep it running until Ctrl-C")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="write the demo to FILE as an animated SVG")
    options = parser.parse_args()
    # No process runs yet: until the imports are done, Ctrl-C can simply end this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from devenv.demo import dev, scenario, show  # noqa: PLC0415 - see above
    from devenv.logfile import logs_to  # noqa: PLC0415
    from devenv.process import run_directory  # noqa: PLC0415
    from devenv.stage import Scene  # noqa: PLC0415

    _handle_signals()
    try:
        with run_directory("demo") as directory, logs_to(directory / "emulators.log"):
            try:
                print(STARTING, flush=True)
                scene = Scene.start(directory)
                try:
                    if options.keep:
                        asyncio.run(dev.keep(scenario.Text(), scene, directory))
                    asyncio.run(show.perform(scene, directory, options.recording))
                finally:
                    scene.stop()
            except KeyboardInterrupt:
                print("\nInterrupted; everything is stopped")
                return 0 if options.keep else EXIT_INTERRUPTED
    except scenario.FAILURES as error:
        print(f"\nFAILED: {error}")
        return 1
    return 0


def _handle_signals() -> None:
    """Handle SIGTERM and the end of the terminal like Ctrl-C."""

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def hang_up(*_: object) -> None:
        # The kernel and the shell might both send it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # Writing to a closed terminal is an error.
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor in terminals:
            os.dup2(null, descriptor)
        interrupt()

    terminals = [one for one in (1, 2) if os.isatty(one)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    # Under nohup it is ignored, and remains so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)


if __name__ == "__main__":
    sys.exit(main())
