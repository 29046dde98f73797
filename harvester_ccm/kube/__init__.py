"""The Kubernetes protocol: credentials, requests, watches, Events and the Lease. Knows nothing of Harvester."""

import os
import sys
from typing import Final

_ENVIRONMENT: Final = {
    # Two TLS contexts with the authorities of the system: ours name their own, or load them when they need them.
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    # A list in C++ for what nobody here uses, with all of its standard library.
    "FROZENLIST_NO_EXTENSIONS": "1",
}


def _import_aiohttp_alone() -> None:
    """Import aiohttp without what it loads for others: 3 MiB that every process would hold for nothing."""
    if "aiohttp" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        import aiohttp  # noqa: F401, PLC0415
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_import_aiohttp_alone()
