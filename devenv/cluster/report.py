"""The table of a run: one row for each step and each spec, printed as soon as it is known."""

import time
from typing import Final

HEAD: Final = "| Step | Result | Seconds | Detail |\n|---|---|---|---|"
PASSED: Final = "ok"
FAILED: Final = "**failed**"
EXPLAINED: Final = "failed, explained"
INTERRUPTED: Final = 130
"""The exit code of a program that Ctrl-C ended."""
_PASSED: Final = "Passed after"
_FAILED: Final = "Failed after"


class Report:
    """Prints rows and remembers whether one failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self._began = time.monotonic()

    def head(self, text: str) -> None:
        """Print text and the head of the table."""
        print(f"{text}\n\n{HEAD}", flush=True)

    def row(self, name: str, result: str, seconds: float, detail: str) -> None:
        """Print a row. A detail of several lines becomes one line."""
        if result == FAILED:
            self.failed.append(name)
        text = " ".join(detail.replace("|", "/").split())
        print(f"| {name} | {result} | {seconds:.1f} | {text} |", flush=True)

    def end(self) -> None:
        """Print the result of everything."""
        total = f"{time.monotonic() - self._began:.0f} s"
        if self.failed:
            print(f"\n{_FAILED} {total}: {'; '.join(self.failed)}", flush=True)
        else:
            print(f"\n{_PASSED} {total}", flush=True)


def exit_code_of(report: str) -> int:
    """Return the exit code of a run that was interrupted: that of its result if it had one."""
    if f"\n{_PASSED} " in report:
        return 0
    return 1 if f"\n{_FAILED} " in report else INTERRUPTED
