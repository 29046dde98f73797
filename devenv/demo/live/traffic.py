"""A loop of requests through one address, and how long it ever went without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from devenv.demo.live.screen import command
from devenv.demo.requests import ask_once

PAUSE_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 30.0
"""For one answer. An address that is not announced refuses at once; a machine with much else to do is only slow."""


@dataclass
class Traffic:
    """Requests through an address, one after the other."""

    address: str
    port: int
    sent: int = 0
    answered: int = 0
    longest: float = 0.0
    """Most seconds between two answers."""
    story: Sequence[str] = ()
    """What happens meanwhile."""

    async def run(self) -> None:
        """Send requests until cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            answer = await ask_once("TCP", self.address, self.port, within=PATIENCE_SECONDS)
            self.sent += 1
            if answer is not None:
                now = loop.time()
                self.answered, self.longest, last = self.answered + 1, max(self.longest, now - last), now
            await asyncio.sleep(PAUSE_SECONDS)

    def lines(self) -> list[Text]:
        """Return what is shown of it."""
        loop = command(f"while true; do curl http://{self.address}:{self.port}/; done")
        return [loop, Text(self.sentence()), Text(), *map(Text, self.story)]

    def sentence(self) -> str:
        """Return how it went, for people."""
        return (
            f"{self.answered:,} of {self.sent:,} requests answered, longest pause between two answers "
            f"{self.longest * 1000:.0f} ms"
        )
