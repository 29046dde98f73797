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
from harvester_ccm.kube.server_clock import GAIN_SECONDS, MEMORY_SECONDS, ServerClock
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


@pytest.mark.parametrize("apart", [4.0, 30.0])
def test_servers_behind_one_address_whose_clocks_differ_are_no_lost_time(apart: float) -> None:
    clock = ServerClock()
    gains = [
        clock.gained(date(at + (apart if number % 2 else 0.0)), at, at + 0.01)
        for number, at in enumerate(number * 0.35 for number in range(600))
    ]
    assert [number for number, gained in enumerate(gains) if gained > GAIN_SECONDS] == [1]


def test_time_lost_beside_servers_whose_clocks_differ_is_told_once() -> None:
    clock = ServerClock()
    lost = 0.0
    told = []
    for number in range(200):
        at = number * 0.35
        lost = 60.0 if number >= 100 else 0.0
        if clock.gained(date(at + lost + (4.0 if number % 2 else 0.0)), at, at + 0.01) > GAIN_SECONDS:
            told.append(number)
    # From the slower server at once, and once more from the one that is ahead of it.
    assert told == [1, 100, 101]


def test_slow_answer_hides_lost_time_from_no_answer_but_the_next() -> None:
    clock = ServerClock()
    assert clock.gained(date(0), 0, 0) == 0
    assert clock.gained(date(10), 0, 10) == 0
    assert clock.gained(date(11), 11, 11) == 0
    assert clock.gained(date(20), 12, 12) > GAIN_SECONDS


def test_clock_that_was_put_back_hides_lost_time_for_a_minute_only() -> None:
    clock = ServerClock()
    assert clock.gained(date(3600), 0, 0) == 0
    assert clock.gained(date(1), 1, 1) == 0
    assert clock.gained(date(30), 2, 2) == 0
    assert clock.gained(date(MEMORY_SECONDS + 29), MEMORY_SECONDS + 1, MEMORY_SECONDS + 1) == 0
    assert clock.gained(date(MEMORY_SECONDS + 60), MEMORY_SECONDS + 2, MEMORY_SECONDS + 2) > GAIN_SECONDS


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


async def test_lost_time_is_logged_once_a_minute_and_counts_each_time() -> None:
    loop, doubts = asyncio.get_running_loop(), 0

    class Counting(WriteFence):
        def doubt(self) -> None:
            nonlocal doubts
            doubts += 1

    fence = Counting(shut=True)
    async with (
        telling_time([0.0, 60.0, 120.0, 180.0]) as url,
        ApiClient(Credentials(url, "", None, FixedToken(None)), cluster="guest", fence=fence) as client,
    ):
        fence.open_until(loop.time() + 600, renewed_at=loop.time())
        with capture_logs() as logs:
            for _ in range(4):
                await client.get(NODES, "w1")
    assert doubts == 3
    assert len([line for line in logs if line["log_level"] == "info"]) == 1
