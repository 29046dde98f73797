"""``python -m benchmarks.prober URL``: request a URL every half second and print the seconds of each response.

It is a process of its own, because the load of a benchmark would delay it. A failed request counts until its timeout.
"""

import contextlib
import http.client
import ssl
import sys
import time
from typing import Final
from urllib.parse import urlsplit

INTERVAL: Final = 0.5
TIMEOUT: Final = 10.0


def probe(url: str) -> float:
    """Return the seconds of one response, ``TIMEOUT`` for any but 200."""
    parts, started, status = urlsplit(url), time.monotonic(), 0
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT, context=context)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", parts.path)
        status = connection.getresponse().status
    return time.monotonic() - started if status == http.client.OK else TIMEOUT


if __name__ == "__main__":
    while True:
        print(f"{probe(sys.argv[1]):.4f}", flush=True)
        time.sleep(INTERVAL)
