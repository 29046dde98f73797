"""What is kept of texts that are asked for again and again stays small, whoever wrote them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from harvester_ccm.netip import plain_address
from harvester_ccm.redaction import LONGEST_TEXT, inert

LONG = 20_000
TEXTS = 40


@pytest.mark.parametrize(
    ("read", "start"),
    [
        pytest.param(plain_address, "fe80::1%", id="an address with a zone, from a guest agent"),
        pytest.param(inert, "a primary of ", id="a text of a status, from an annotation"),
    ],
)
def test_long_texts_are_not_kept(read: Callable[[str], object], start: str) -> None:
    tracemalloc.start()
    try:
        for number in range(TEXTS):
            read(start + f"{number:x}".rjust(LONG, "a"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < LONG * TEXTS / 4


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (plain_address, "fd00:1111:2222:3333:4444:5555:192.168.100.123%enp123s0f1npx1"),
        (inert, "x" * LONGEST_TEXT),
    ],
)
def test_others_are_read_once(read: Callable[[str], object], text: str) -> None:
    assert read(text) is read("".join(list(text)))
