"""Large answers: the client reads no more than its limit and names the request; what tenants write is read."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

import pytest

from harvester_ccm.kube.client import ANSWER_LIMIT, ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import (
    AnswerTooLarge,
    ConnectionRefused,
    Forbidden,
    Gone,
    KubeError,
    ServerError,
    Throttled,
    UnexpectedAnswer,
    WatchSilent,
)
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.core import SERVICES
from tests.support.hostile_server import MIB, HostileServer, Reply, hostile_server, padded, whole

BUFFERS = 16 * MIB
"""What the operating system can hold between both ends."""
SERVICE = b'{"kind":"Service","metadata":{"name":"web","namespace":"shop","annotations":{"a":"'
END = b'"}}}'
PAGE = b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"web","annotations":{"a":"'
PAGE_END = b'"}}]}'


def client_of(server: HostileServer) -> ApiClient:
    return ApiClient(Credentials(server.url, "", None, TokenSource(None)), cluster="harvester")


def page(*items: dict[str, Any], token: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}).encode()


async def watched(client: ApiClient, *, silence: float = 60.0) -> list[Any]:
    """Return the events of a watch until it ends."""
    watch = client.watch(SERVICES, params={"resourceVersion": "1"}, silence=silence)
    async with aclosing(watch) as events:
        return [event async for event in events]


async def get(client: ApiClient) -> object:
    return await client.get(SERVICES, "web", namespace="shop")


async def list_all(client: ApiClient) -> object:
    return await client.list(SERVICES)


Call = Callable[[ApiClient], Awaitable[object]]


async def test_object_of_7_mib_is_read() -> None:
    async with (
        hostile_server(lambda _path: Reply(padded(SERVICE, 7 * MIB, END))) as server,
        client_of(server) as client,
    ):
        assert (await client.get(SERVICES, "web", namespace="shop")).metadata.name == "web"


@pytest.mark.parametrize("size", [ANSWER_LIMIT + 1, 300 * MIB])
@pytest.mark.parametrize(
    ("call", "start", "text", "requests"),
    [
        (get, SERVICE, "the answer is larger than 8 MiB (GET /api/v1/namespaces/shop/services/web)", 1),
        # With 500, 50, 5 objects on a page, and one.
        (list_all, PAGE, "the answer is larger than 8 MiB (GET /api/v1/services)", 4),
        (watched, b'{"type":"', "a line of the watch is larger than 8 MiB (WATCH /api/v1/services)", 1),
    ],
)
@pytest.mark.security("Responses are limited to 8 MiB: a page of a list, every other response, and a watch event")
@pytest.mark.kube("A response, and a line of a watch, is read up to a limit")
async def test_no_more_than_8_mib_are_read(call: Call, start: bytes, text: str, requests: int, size: int) -> None:
    async with hostile_server(lambda _path: Reply(padded(start, size))) as server:
        async with client_of(server) as client:
            with pytest.raises(AnswerTooLarge) as caught:
                await call(client)
        assert text in str(caught.value)
        assert len(server.requests) == requests
        assert server.sent < requests * (ANSWER_LIMIT + BUFFERS)


async def test_response_that_announces_its_size_is_not_read() -> None:
    headers = (f"Content-Length: {300 * MIB}",)
    async with hostile_server(lambda _path: Reply(padded(SERVICE, 300 * MIB), headers=headers)) as server:
        async with client_of(server) as client:
            with pytest.raises(AnswerTooLarge):
                await get(client)
        assert server.sent < BUFFERS


async def test_error_with_a_large_body_has_the_class_of_its_status() -> None:
    status = "503 Service Unavailable"
    async with hostile_server(lambda _path: Reply(padded(b"{", 300 * MIB), status)) as server:
        async with client_of(server) as client:
            with pytest.raises(ServerError, match="HTTP status 503"):
                await get(client)
        assert server.sent < ANSWER_LIMIT + BUFFERS


async def test_checked_creation_may_have_the_name_of_an_object() -> None:
    body = b'{"kind":"Status","code":409,"reason":"AlreadyExists","message":"exists"}'
    async with hostile_server(lambda _path: Reply(whole(body), "409 Conflict")) as server, client_of(server) as client:
        await client.check_creation(SERVICES, {}, namespace="shop")
    assert server.requests == ["/api/v1/namespaces/shop/services?dryRun=All"]


async def test_write_that_was_never_sent_lacks_no_response() -> None:
    async with ApiClient(Credentials("http://127.0.0.1:9", "", None, TokenSource(None)), cluster="guest") as client:
        with pytest.raises(ConnectionRefused):
            await client.create(SERVICES, {}, namespace="shop")


SIZES: dict[str, tuple[list[int], list[int]]] = {
    "small": ([1] * 2000, [500, 500, 500, 500]),
    "large": ([255] * 60, [500, 50, 5, 10, 16, 16, 16]),
    "large ones behind small ones": ([1] * 500 + [255] * 60, [500, 500, 50, 5, 10, 16, 16, 16]),
    "small ones behind large ones": ([1400] * 8 + [1] * 1000, [500, 50, 5, 2, 2, 4, 8, 16, 32, 64, 128, 256, 500]),
}
"""KiB of the objects of a list, and the limits of the requests."""


@pytest.mark.parametrize(("sizes", "limits"), SIZES.values(), ids=SIZES.keys())
async def test_pages_have_as_many_objects_as_fill_half_of_the_limit(sizes: list[int], limits: list[int]) -> None:
    """A tenant can create Services of 256 KiB each. A page above the limit is read twice."""

    def answer(path: str) -> Reply:
        query = parse_qs(path.partition("?")[2])
        first = int(query.get("continue", ["0"])[0])
        last = min(first + int(query["limit"][0]), len(sizes))
        items = [
            {"metadata": {"name": f"web-{number}", "annotations": {"a": "x" * 1024 * sizes[number]}}}
            for number in range(first, last)
        ]
        return Reply(whole(page(*items, token=str(last) if last < len(sizes) else "")))

    async with hostile_server(answer) as server, client_of(server) as client:
        found = await client.list(SERVICES)
        assert [item.metadata.name for item in found.items] == [f"web-{number}" for number in range(len(sizes))]
        requested = [int(parse_qs(path.partition("?")[2])["limit"][0]) for path in server.requests]
    assert requested == limits


@pytest.mark.security("So the memory grows with the number of objects, whatever their users write into them")
async def test_list_of_large_objects_that_a_tenant_wrote_is_read() -> None:
    """420 Services of 255 KiB were more than the client kept, and nobody was served any more."""
    numbers = iter(range(1000))

    def answer(path: str) -> Reply:
        limit = int(path.partition("limit=")[2].partition("&")[0])
        if limit > 20:
            return Reply(padded(PAGE, 40 * MIB, PAGE_END))
        items = [
            {"metadata": {"name": f"web-{number}", "annotations": {"a": "x" * 255 * 1024}}}
            for number in itertools.islice(numbers, limit)
        ]
        return Reply(whole(page(*items, token=str(items[-1]["metadata"]["name"]) if len(items) == limit else "")))

    async with hostile_server(answer) as server, client_of(server) as client:
        found = await client.list(SERVICES)
    assert len(found.items) == 1000
    assert sum(len(json.dumps(item.metadata.annotations)) for item in found.items) < 10_000


@pytest.mark.parametrize("call", [get, list_all, watched])
@pytest.mark.security("Compressed responses are rejected")
async def test_compressed_response_is_refused_and_not_inflated(call: Call) -> None:
    body = gzip.compress(b" " * 50 * MIB) + b"\n"

    def answer(_path: str) -> Reply:
        return Reply(whole(body), headers=("Content-Encoding: gzip",))

    async with hostile_server(answer) as server, client_of(server) as client:
        with pytest.raises(UnexpectedAnswer, match="is not what a Kubernetes API server sends") as raised:
            await call(client)
        assert raised.value.cluster == "harvester"
        assert "Accept-Encoding: identity" in server.heads[0]


async def test_cookies_of_a_proxy_are_not_sent() -> None:
    """With twelve of them, a proxy that limits headers to 8 KB refused every later request."""
    cookies = tuple(f"Set-Cookie: c{number}={'x' * 600}" for number in range(12))
    async with hostile_server(lambda _path: Reply(whole(SERVICE + END), headers=cookies)) as server:
        # A session keeps no cookies of a server that is an IP address.
        server.url = server.url.replace("127.0.0.1", "localhost")
        async with client_of(server) as client:
            await get(client)
            await get(client)
    assert len(server.heads) == 2
    assert not any("Cookie" in head for head in server.heads)


async def test_lines_of_a_watch_are_found_in_pieces_of_any_size() -> None:
    def line(number: int) -> bytes:
        item = {
            "metadata": {"name": f"web-{number}", "resourceVersion": str(number), "annotations": {"a": "ä" * number}}
        }
        return json.dumps({"type": "ADDED", "object": item}, ensure_ascii=False).encode() + b"\n"

    sent = b"\n".join(line(number) for number in (1, 40, 2000)) + b"\n \n" + line(3)
    for size in (1, 7, 4096, len(sent)):
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]

        def answer(_path: str, pieces: list[bytes] = pieces) -> Reply:
            return Reply(whole(*pieces))

        async with hostile_server(answer) as server, client_of(server) as client:
            _accepted, *events = await watched(client)
        assert [event.resource_version for event in events] == ["1", "40", "2000", "3"]


@pytest.mark.parametrize(("code", "error"), [(403, Forbidden), (410, Gone), (429, Throttled)])
async def test_error_in_a_watch_has_the_class_of_its_code(code: int, error: type[KubeError]) -> None:
    event = {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "no"}}
    body = json.dumps(event).encode() + b"\n"
    async with hostile_server(lambda _path: Reply(whole(body))) as server, client_of(server) as client:
        with pytest.raises(error):
            await watched(client)


async def test_watch_that_sends_bytes_but_no_line_is_silent() -> None:
    async def dripping() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    async with hostile_server(lambda _path: Reply(dripping())) as server, client_of(server) as client:
        with pytest.raises(WatchSilent):
            await watched(client, silence=0.1)
