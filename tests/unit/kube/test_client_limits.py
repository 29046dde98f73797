"""Answers that are too large or compressed: the client reads no more than its limits and names the request."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

import pytest

from harvester_ccm.kube import client as client_module
from harvester_ccm.kube.client import (
    ANSWER_LIMIT,
    LINE_LIMIT,
    MAX_EMPTY_PAGES,
    MAX_OBJECTS,
    ApiClient,
)
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import (
    AnswerTooLarge,
    KubeError,
    ServerError,
    Unauthorized,
    UnexpectedAnswer,
    WatchSilent,
)
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.core import CONFIG_MAPS, SERVICES
from tests.support.hostile_server import MIB, HostileServer, Reply, hostile_server, padded, whole

BUFFERS = 16 * MIB
"""What the operating system can hold between both ends."""
SERVICE = b'{"kind":"Service","metadata":{"name":"web","namespace":"shop","annotations":{"a":"'
END = b'"}}}'
PAGE = b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"web","annotations":{"a":"'
PAGE_END = b'"}}}]}'


def client_of(server: HostileServer) -> ApiClient:
    """Return a client of a hostile server."""
    return ApiClient(Credentials(server.url, "", None, TokenSource(None)), cluster="harvester")


def page(*items: dict[str, Any], token: str = "") -> bytes:
    """Return a page of a list."""
    return json.dumps({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}).encode()


async def watched(client: ApiClient, *, silence: float = 60.0) -> list[Any]:
    """Return the events of a watch until it ends."""
    watch = client.watch(SERVICES, params={"resourceVersion": "1"}, silence=silence)
    async with aclosing(watch) as events:
        return [event async for event in events]


@pytest.mark.parametrize(
    ("start", "size", "end"),
    [(SERVICE, 7 * MIB, END), (b"", 8 * MIB + 64 * 1024, b""), (b"", 300 * MIB, b"")],
    ids=["7 MiB", "8.1 MiB", "300 MiB"],
)
@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.security("Responses are limited: 8 MiB for a page of a list and every other response")
@pytest.mark.kube("A response, a line of a watch and a list are read up to a limit, whoever is at the other end")
async def test_response_of_more_than_8_mib_is_not_read(start: bytes, size: int, end: bytes, *, announced: bool) -> None:
    length = len(start) + size + len(end)
    headers = (f"Content-Length: {length}",) if announced else ()
    async with hostile_server(lambda _path: Reply(padded(start, size, end), headers=headers)) as server:
        async with client_of(server) as client:
            if length <= ANSWER_LIMIT:
                found = await client.get(SERVICES, "web", namespace="shop")
                assert found.metadata.name == "web"
                return
            with pytest.raises(AnswerTooLarge) as caught:
                await client.get(SERVICES, "web", namespace="shop")
        assert "the answer is larger than 8 MiB (GET /api/v1/namespaces/shop/services/web)" in str(caught.value)
        assert server.sent < ANSWER_LIMIT + BUFFERS


@pytest.mark.security("Responses are limited: 8 MiB for a page of a list and every other response")
async def test_page_of_more_than_8_mib_is_requested_with_fewer_objects_and_then_refused() -> None:
    async with hostile_server(lambda _path: Reply(padded(PAGE, 300 * MIB, PAGE_END))) as server:
        async with client_of(server) as client:
            with pytest.raises(AnswerTooLarge, match=r"larger than 8 MiB \(GET /api/v1/services\)"):
                await client.list(SERVICES)
        assert server.requests == [f"/api/v1/services?limit={number}" for number in (500, 50, 5, 1)]
        assert server.sent < 4 * (ANSWER_LIMIT + BUFFERS)


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


@pytest.mark.parametrize("token", ["same", "alternating", "new", "long"])
@pytest.mark.security("20 pages without an object")
@pytest.mark.kube("A response, a line of a watch and a list are read up to a limit, whoever is at the other end")
async def test_list_that_never_ends_is_refused(token: str) -> None:
    numbers = itertools.count()
    tokens: dict[str, Callable[[], str]] = {
        "same": lambda: "again",
        "alternating": lambda: str(next(numbers) % 2),
        "new": lambda: str(next(numbers)),
        "long": lambda: "x" * 9000,
    }
    expected = {"same": 2, "alternating": 3, "new": MAX_EMPTY_PAGES + 1, "long": 1}
    async with hostile_server(lambda _path: Reply(whole(page(token=tokens[token]())))) as server:
        async with client_of(server) as client:
            with pytest.raises(UnexpectedAnswer, match=r"\(GET /api/v1/services\)") as caught:
                await client.list(SERVICES)
        assert len(server.requests) == expected[token]
    if token == "new":
        assert "a list without an end" in str(caught.value)


@pytest.mark.security("300,000 objects for the lists that are read at a time")
async def test_lists_in_progress_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_OBJECTS == 300_000
    monkeypatch.setattr(client_module, "MAX_OBJECTS", 100)
    numbers = itertools.count()

    def answer(_path: str) -> Reply:
        items = [{"metadata": {"name": f"web-{next(numbers)}"}} for _ in range(10)]
        return Reply(whole(page(*items, token=str(next(numbers)))))

    async with hostile_server(answer) as server, client_of(server) as client:
        results = await asyncio.gather(client.list(SERVICES), client.list(CONFIG_MAPS), return_exceptions=True)
        assert [type(result) for result in results] == [UnexpectedAnswer, UnexpectedAnswer]
        assert "a list without an end" in str(results[0])
        assert len(server.requests) < 22
        # Nothing of them counts for the next list.
        items = [{"metadata": {"name": f"web-{number}"}} for number in range(90)]
        server.answer = lambda _path: Reply(whole(page(*items)))
        assert len((await client.list(SERVICES)).items) == 90


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


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
@pytest.mark.security("Compressed responses are rejected")
async def test_compressed_response_is_refused_and_not_inflated(encoding: str) -> None:
    body = gzip.compress(b" " * 50 * MIB)

    def answer(_path: str) -> Reply:
        return Reply(whole(body), headers=(f"Content-Encoding: {encoding}",))

    async with hostile_server(answer) as server, client_of(server) as client:
        for request in (client.get(SERVICES, "web", namespace="shop"), client.list(SERVICES), watched(client)):
            with pytest.raises(UnexpectedAnswer, match="compressed answer"):
                await request
        assert all("Accept-Encoding: identity" in head for head in server.heads)


async def test_compressed_error_has_the_class_of_its_status() -> None:
    def answer(_path: str) -> Reply:
        return Reply(whole(gzip.compress(b"no")), "401 Unauthorized", ("Content-Encoding: gzip",))

    async with hostile_server(answer) as server, client_of(server) as client:
        with pytest.raises(Unauthorized, match="HTTP status 401"):
            await client.get(SERVICES, "web", namespace="shop")


@pytest.mark.security("256 KiB for an error")
async def test_of_an_error_only_the_start_is_read() -> None:
    reply = b'{"kind":"Status","message":"'
    status = "503 Service Unavailable"
    async with hostile_server(lambda _path: Reply(padded(reply, 300 * MIB), status)) as server:
        async with client_of(server) as client:
            with pytest.raises(ServerError, match="HTTP status 503"):
                await client.get(SERVICES, "web", namespace="shop")
        assert server.sent < 256 * 1024 + BUFFERS


@pytest.mark.security("4 MiB for a watch event")
@pytest.mark.kube("A response, a line of a watch and a list are read up to a limit, whoever is at the other end")
async def test_line_of_a_watch_without_an_end_is_refused() -> None:
    async with hostile_server(lambda _path: Reply(padded(b'{"type":"', 300 * MIB))) as server:
        async with client_of(server) as client:
            with pytest.raises(AnswerTooLarge, match=r"a line of the watch is larger than 4 MiB \(WATCH /api/v1/serv"):
                await watched(client)
        assert server.sent < LINE_LIMIT + BUFFERS


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


async def test_watch_that_sends_bytes_but_no_line_is_silent() -> None:
    async def dripping() -> AsyncGenerator[bytes, None]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    async with hostile_server(lambda _path: Reply(dripping())) as server, client_of(server) as client:
        with pytest.raises(WatchSilent):
            await watched(client, silence=0.1)


@pytest.mark.parametrize("status", ["200 OK", "429 Too Many Requests", "410 Gone"])
@pytest.mark.parametrize("digits", ["9" * 25, "9" * 5000, "٣" * 5000, "-" + "9" * 5000, "9e" + "9" * 400])
async def test_numbers_of_any_length_raise_no_other_error(digits: str, status: str) -> None:
    """A resource version is text, and the others are numbers."""
    version = json.dumps(digits).encode()
    number = digits.encode() if digits.isascii() else b"1"
    bodies = [
        b'{"kind":"Status","code":' + number + b',"details":{"retryAfterSeconds":' + number + b"}}",
        b'{"metadata":{"resourceVersion":' + version + b',"generation":' + number + b'},"items":[]}',
        b'{"type":"ERROR","object":{"kind":"Status","code":' + number + b"}}\n",
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":' + version + b',"generation":' + number + b"}}}\n",
    ]
    headers = (f"Retry-After: {digits}",) if digits.isascii() else ()
    remaining = iter([body for body in bodies for _ in range(3)])

    def answer(_path: str) -> Reply:
        return Reply(whole(next(remaining)), status, headers)

    async with hostile_server(answer) as server, client_of(server) as client:
        for _ in bodies:
            requests = (client.get(SERVICES, "web"), client.list(SERVICES), watched(client))
            # Any other exception fails the test.
            results = [await ask(request) for request in requests]
            delays = [result.retry_after for result in results if isinstance(result, KubeError)]
            assert all(delay is None or 0 < delay <= 300 for delay in delays)


async def ask(request: Awaitable[Any]) -> Any:
    """Return the answer to a request, or its error."""
    try:
        return await request
    except KubeError as error:
        return error
