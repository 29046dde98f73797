"""Steps that take a while: a line at the start, and one with the seconds at the end. Uses only the standard library.

``python -m devenv.progress TEXT COMMAND...`` runs a command as such a step. Its output is shown only if it fails:
warnings of tools about themselves are of no use to those who set up the checkout.
"""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def step(text: str) -> Iterator[None]:
    """Report the start and the end of the body."""
    started = time.monotonic()
    print(f"{text} ...", file=sys.stderr, flush=True)
    outcome = "failed after"
    try:
        yield
        outcome = "done in"
    finally:
        print(f"{text}: {outcome} {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def run(text: str, command: Sequence[str]) -> int:
    """Run a command as a step and return its exit code. Its output is written to stderr if it fails."""
    try:
        with step(text):
            subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.CalledProcessError as failure:
        sys.stderr.write(failure.output.decode(errors="replace"))
        return failure.returncode
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
