"""The fault-injecting proxy leaves nothing open."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from urllib.parse import urlsplit

import pytest

from devenv.apiserver import ControlPlane
from devenv.proxy import FaultProxy
from tests.worlds.waiting import wait_for

pytestmark = pytest.mark.apiserver


def test_a_client_that_goes_in_its_handshake_leaves_nothing_open(guest: ControlPlane) -> None:
    async def leave() -> None:
        async with FaultProxy(guest) as proxy:
            place = urlsplit(proxy.url)
            client = socket.create_connection((place.hostname, place.port))
            await wait_for(lambda: accepted(proxy))
            client.close()

    # A loop that looks at nothing more once the proxy has ended, as the one of a test.
    loop = asyncio.new_event_loop()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(leave())
        loop.close()
        gc.collect()
    assert [str(one.message) for one in caught if one.category is ResourceWarning] == []


def accepted(proxy: FaultProxy) -> bool:
    """Return whether the proxy has taken a connection; before Python 3.12 a server only tells how many there are."""
    server = proxy._server
    return bool(getattr(server, "_active_count", 0) or getattr(server, "_clients", ()))
