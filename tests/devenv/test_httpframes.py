"""Where the body of an HTTP message ends, however it is cut into pieces."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devenv.httpframes import CHUNK_END, ChunkedBody, Head, SizedBody, body_of, read_head


@given(chunks=st.lists(st.binary(min_size=1, max_size=40)), cuts=st.lists(st.integers(1, 20), min_size=1))
def test_end_of_a_chunked_body_is_found(chunks: list[bytes], cuts: list[int]) -> None:
    data = b"".join(b"%x;ext\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + CHUNK_END
    body, position, number = ChunkedBody(), 0, 0
    while position < len(data):
        assert not body.done
        step = cuts[number % len(cuts)]
        body.feed(data[position : position + step])
        position, number = position + step, number + 1

    assert body.done


def test_body_that_is_no_chunks_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        ChunkedBody().feed(b"<html>\r\n")


@pytest.mark.parametrize(
    ("start", "headers", "method", "kind", "done"),
    [
        ("HTTP/1.1 200 OK", {"content-length": "3"}, "GET", SizedBody, False),
        ("HTTP/1.1 200 OK", {"content-length": "3"}, "HEAD", SizedBody, True),
        ("HTTP/1.1 200 OK", {"transfer-encoding": "Chunked"}, "GET", ChunkedBody, False),
        ("HTTP/1.1 204 No Content", {}, "DELETE", SizedBody, True),
        ("HTTP/1.1 200 OK", {}, "GET", type(None), False),
    ],
)
def test_frame_of_a_body_follows_from_the_head(
    start: str, headers: dict[str, str], method: str, kind: type[object], done: bool
) -> None:
    body = body_of(Head(start, headers, b""), method=method)

    assert type(body) is kind
    assert bool(body and body.done) == done


async def test_head_is_read_and_the_end_told() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"GET /a?b HTTP/1.1\r\nHost: x:1\r\nContent-Length: 2\r\n\r\n{}")
    head = await read_head(reader)
    assert head is not None
    assert (head.start, dict(head.headers)) == ("GET /a?b HTTP/1.1", {"host": "x:1", "content-length": "2"})
    assert await reader.readexactly(head.content_length) == b"{}"

    reader.feed_eof()
    assert await read_head(reader) is None


async def test_head_that_is_cut_off_is_an_error() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"GET /a")
    reader.feed_eof()

    with pytest.raises(asyncio.IncompleteReadError):
        await read_head(reader)
