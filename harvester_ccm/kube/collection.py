"""What reading a collection gives: pages of a list, lines of a watch, and objects that could not be decoded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final, Generic, Literal, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from harvester_ccm.errors import AnswerTooLarge, WatchSilent

T = TypeVar("T")

READ_LIMIT: Final = 4 * 1024 * 1024
"""Largest watch event that is accepted, in bytes."""


class Page(Struct, Generic[T], frozen=True):
    """Result of a list: the objects that could be decoded, and the version to watch from."""

    items: tuple[T, ...]
    resource_version: str
    unread: frozenset[str] = frozenset()
    """Keys of the objects that could not."""


class WatchEvent(Struct, Generic[T], frozen=True):
    """One line of a watch. ``BOOKMARK`` carries a version and no object."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str
    unread: str = ""
    """Key of the object when it could not be decoded; there is none then."""


class Unread(Struct, frozen=True):
    """An object that could not be decoded."""

    key: str


class _ListMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _ListMeta


class _Typed(msgspec.Struct):
    kind: str = ""


NESTING: Final = 10_000
"""API servers keep objects that are nested so deep, ten times as deep as Python 3.11 goes."""


def nested(decode: Callable[[bytes], T], body: bytes) -> T:
    """Decode an answer, however deep its objects are nested: one of somebody else's must not hide the others.

    Raises RecursionError where it is nested deeper than any object can be, and what ``decode`` does.
    """
    try:
        return decode(body)
    except RecursionError:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(usual + NESTING)
        try:
            return decode(body)
        finally:
            sys.setrecursionlimit(usual)


decode_list: Final = msgspec.json.Decoder(_List).decode
"""Reads a page of a list; objects stay bytes."""
decode_event: Final = msgspec.json.Decoder(_Event).decode
"""Reads a line of a watch; the object stays bytes."""
decode_version: Final = msgspec.json.Decoder(_Versioned).decode
"""Reads only the metadata of an object or of a bookmark."""
decode_kind: Final = msgspec.json.Decoder(_Typed).decode
"""Reads only the kind of an object."""


async def watch_lines(stream: aiohttp.StreamReader, silence: float) -> AsyncIterator[bytes]:
    """Yield the documents of a watch, one on a line; raise WatchSilent after ``silence`` seconds without any byte."""
    pending = bytearray()
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await stream.readany()
        except TimeoutError:
            raise WatchSilent(f"watch silent for {silence:g} s") from None
        if not chunk:
            return
        pending += chunk
        if len(pending) > READ_LIMIT:
            raise AnswerTooLarge(f"watch event larger than {READ_LIMIT // 2**20} MiB")
        while (end := pending.find(b"\n")) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            if line.strip():
                yield line
