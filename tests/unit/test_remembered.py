"""Addresses that are read again and again are kept, and what is kept stays small, whoever wrote them."""

from __future__ import annotations

import tracemalloc

from harvester_ccm.netip import plain_address

LONG = 20_000
TEXTS = 40


def test_long_texts_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(TEXTS):
            plain_address("fe80::1%" + f"{number:x}".rjust(LONG, "a"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < LONG * TEXTS / 4


def test_others_are_read_once() -> None:
    text = "fd00:1111:2222:3333:4444:5555:192.168.100.123%enp123s0f1npx1"
    assert plain_address(text) is plain_address("".join(list(text)))
