"""Fixtures of all tests that need no server."""

import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_authorities_of_the_machine() -> Iterator[None]:
    """Trust no authority of the machine: reading them takes 20 ms each time, and no test needs one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        patch.setenv("SSL_CERT_DIR", os.devnull)
        yield


@pytest.fixture(autouse=True)
def handlers_of_logging() -> Iterator[None]:
    """Restore the handlers and the level of logging, which the controller sets."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
