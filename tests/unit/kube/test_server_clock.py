"""Time that went by on a server and not here, told by the header Date of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from harvester_ccm.kube import fence as fence_module
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.server_clock import GAIN_SECONDS, ServerClock
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.model.core import NODES

NOON = 1_800_000_000.0


def date(seconds: float) -> str:
    """What a server shows so long after noon."""
    return formatdate(NOON + seconds, usegmt=True)


@pytest.mark.parametrize(
    ("first", "second", "least", "most"),
    [
        # (time of the server, time asked, time answered) of two answers
        pytest.param((0.0, 10.0, 10.1), (5.0, 15.0, 15.1), 0, 0, id="both run"),
        pytest.param((0.9, 10.0, 10.1), (2.0, 11.1, 11.2), 0, 0, id="full seconds only"),
        pytest.param((0.0, 10.0, 10.0), (60.0, 12.0, 12.0), 56, 58, id="ours stood still"),
        pytest.param((0.0, 10.0, 10.0), (60.0, 12.0, 70.0), 0, 0, id="the answer was long under way"),
        pytest.param((0.0, 10.0, 15.0), (0.0, 15.0, 15.0), 0, 0, id="so was the one before"),
        pytest.param((60.0, 10.0, 10.0), (0.0, 12.0, 12.0), 0, 0, id="the server's was put back"),
    ],
)
def test_gain(first: tuple[float, float, float], second: tuple[float, float, float], least: float, most: float) -> None:
    clock = ServerClock()
    assert clock.gained(date(first[0]), *first[1:]) == 0
    gained = clock.gained(date(second[0]), *second[1:])
    assert least <= gained <= most
    assert (gained > GAIN_SECONDS) == (least > 0)


@pytest.mark.parametrize("header", ["", "tomorrow", "Mon, 99 Xxx 9999 99:99:99 GMT", "\x00"])
def test_header_that_is_no_date_says_nothing(header: str) -> None:
    clock = ServerClock()
    assert clock.gained(header, 0, 0) == 0
    assert clock.gained(date(0), 0, 0) == 0
    assert clock.gained(header, 1, 1) == 0
    assert clock.gained(date(60), 1, 1) > GAIN_SECONDS


@asynccontextmanager
async def telling_time(dates: list[float]) -> AsyncIterator[str]:
    """A server whose answers have these times, one after the other, and then the last of them."""

    async def answer(_request: web.Request) -> web.Response:
        seconds = dates.pop(0) if len(dates) > 1 else dates[0]
        return web.json_response({"metadata": {"name": "w1"}}, headers={"Date": date(seconds)})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("cluster", ["guest", "harvester"])
async def test_no_write_follows_on_an_answer_that_shows_lost_time(
    cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_module, "FRESH_SECONDS", 600)
    loop, fence = asyncio.get_running_loop(), WriteFence(shut=True)
    async with (
        telling_time([0.0, 0.0, 60.0]) as url,
        ApiClient(Credentials(url, "", None, FixedToken(None)), cluster=cluster, fence=fence) as client,
    ):
        fence.open_until(loop.time() + 600, renewed_at=loop.time())
        await client.get(NODES, "w1")
        await client.merge_patch(NODES, "w1", {})
        with capture_logs() as logs:
            await client.get(NODES, "w1")
        assert [line["cluster"] for line in logs if line["log_level"] == "info"] == [cluster]
        writing = asyncio.create_task(client.merge_patch(NODES, "w1", {}), name="writing")
        await fence.renewal_asked(60)
        assert not writing.done()
        fence.open_until(loop.time() + 600, renewed_at=loop.time())
        await writing
