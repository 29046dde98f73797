"""Requests of a client, ten a second: ``python -I -S traffic.py URL RESULT`` until SIGTERM.

RESULT is the file for the result: the number of requests, of answers, and the longest time without an answer. Only the
standard library can be imported here.
"""

import json
import signal
import sys
import time
import urllib.request
from pathlib import Path

PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 2.0
"""A busy machine can need a second."""


def answers(url: str) -> bool:
    """Whether a request is answered."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ANSWER_SECONDS) as response:
            response.read()
    except OSError:
        return False
    return True


class Traffic:
    """Counts until it is ended."""

    def __init__(self) -> None:
        self.is_ended = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.is_ended = True

    def run(self, url: str) -> dict[str, float]:
        """Send requests until SIGTERM, and return the counts."""
        asked, answered, longest = 0, 0, 0.0
        last = time.monotonic()
        while not self.is_ended:
            asked += 1
            if answers(url):
                answered += 1
                longest = max(longest, time.monotonic() - last)
                last = time.monotonic()
            time.sleep(PAUSE_SECONDS)
        longest = max(longest, time.monotonic() - last)
        return {"asked": asked, "answered": answered, "longest": longest}


if __name__ == "__main__":
    result = Traffic().run(sys.argv[1])
    Path(sys.argv[2]).write_text(json.dumps(result))
