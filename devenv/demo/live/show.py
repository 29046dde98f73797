"""Keeps the screen going while acts make things happen: on a terminal all the time, on film where there is a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.demo.live.board import Board
from devenv.demo.live.film import SIZE, Film
from devenv.demo.live.screen import View, draw
from devenv.harvester.records import LOAD_BALANCERS, POOLS, SERVICES
from devenv.stage import POLL_SECONDS, Stage
from devenv.watch import Document, Mirror

REFRESH_SECONDS: Final = 0.1
DRAWING_COSTS: Final = 5.0
"""The pause between two pictures is at least so many times as long as one takes to draw."""
START_SECONDS: Final = 60.0
SECONDS: Final = 120.0
"""How long anything may take that is waited for."""

PORT: Final = 18080
"""Of every Service."""

T = TypeVar("T")


class Terminal:
    """A terminal: it always shows what is there, with pauses in which people read."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return (self._live.console.width, self._live.console.height)

    def refresh(self, picture: RenderableType) -> None:
        """Show what is there now."""
        self._live.update(picture, refresh=True)

    async def hold(self, picture: RenderableType, seconds: float) -> None:
        """Let people read for so many seconds; what changes meanwhile is shown."""
        self.refresh(picture)
        await asyncio.sleep(seconds)


class Camera:
    """Takes a frame where a terminal would pause, and does not wait itself."""

    size = SIZE

    def __init__(self, film: Film) -> None:
        self._film = film

    async def hold(self, picture: RenderableType, seconds: float) -> None:
        """Take a frame that is shown for so many seconds."""
        self._film.take(picture, seconds)


Screen = Terminal | Camera


class Show:
    """The running scene and its screen. Use as an async context manager."""

    def __init__(
        self, stage: Stage, screen: Screen, clock: Callable[[], float], start: Callable[[], CcmProcess]
    ) -> None:
        """``clock`` returns the seconds since the start of the demo, ``start`` starts the program on the stage."""
        self.stage = stage
        self.start = start
        self.leader = start()
        self.board = Board()
        self.summary: list[str] = []
        """What was measured, one sentence each."""
        self.crowd = ""
        self._clock = clock
        self._screen = screen
        self._title = self._caption = self._foot_title = ""
        self._foot: Sequence[Text] = ()
        mirrors = [
            _followed(Mirror(stage.guest, SERVICES), self._see_service),
            _followed(Mirror(stage.host, LOAD_BALANCERS), self.board.see_balancer),
            _followed(Mirror(stage.host, POOLS), self.board.see_pool),
        ]
        self._ready = [mirror.wait_synced for mirror in mirrors]
        drawing = [partial(self._refresh, screen)] if isinstance(screen, Terminal) else []
        self._background = Background("show", [*(mirror.run for mirror in mirrors), *drawing])

    async def __aenter__(self) -> Self:
        await self._background.start(self._ready, within=START_SECONDS)
        await self.stage.logged(self.leader, "became leader", within=START_SECONDS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._background.stop()

    @property
    def now(self) -> float:
        """Seconds since the start of the demo."""
        return self._clock()

    def begin(self, title: str, caption: str) -> None:
        """Begin something new, and say what is to be seen."""
        self._title, self._caption = title, caption
        self.tell("")

    def tell(self, title: str, *lines: Text | str) -> None:
        """Put lines below both clusters, instead of those there are."""
        self._foot_title = title
        self._foot = [Text(line) if isinstance(line, str) else line for line in lines]

    async def create(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Create a Service as a user would; its time starts now."""
        self.board.ask(name, self.now)
        await self.stage.create_service(name, ports=[{"name": "http", "port": PORT}], annotations=annotations)

    async def hold(self, seconds: float) -> None:
        """Let people look for so many seconds."""
        await self._screen.hold(self._picture(), seconds)

    async def see(self, condition: Callable[[], T | None], what: str) -> T:
        """Return the condition's value once it is true. Raises TimeoutError that says ``what`` was waited for."""
        try:
            async with asyncio.timeout(SECONDS):
                # Always at the same pace, because how long it took is shown.
                while not (value := condition()):  # noqa: ASYNC110 - seen by mirrors, or in a file
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not within {SECONDS:g} s: {what}") from None
        return value

    @asynccontextmanager
    async def glimpses(self, most: int, *, shown: float) -> AsyncIterator[None]:
        """Have a film see what happens while the block runs: so many frames, each for ``shown`` seconds."""
        if isinstance(self._screen, Terminal):
            yield
            return
        seen: list[RenderableType] = []

        async def look() -> None:
            while True:
                await self._pause_after(lambda: seen.append(self._picture()))

        looking = Background("glimpses", [look])
        await looking.start([], within=START_SECONDS)
        try:
            yield
        finally:
            await looking.stop()
        for number in range(min(most, len(seen))):
            await self._screen.hold(seen[len(seen) * number // most], shown)

    def _see_service(self, before: Document | None, after: Document | None) -> None:
        self.board.see_service(before, after, self.now)

    def _picture(self) -> RenderableType:
        width, height = self._screen.size
        view = View(
            self._title, self._caption, self.now, self.board,
            crowd=self.crowd, foot_title=self._foot_title, foot=self._foot,
        )  # fmt: skip
        return draw(view, width=width, height=height)

    async def _refresh(self, terminal: Terminal) -> None:
        while True:
            await self._pause_after(lambda: terminal.refresh(self._picture()))

    async def _pause_after(self, drawing: Callable[[], None]) -> None:
        """Draw, and leave the machine to what is shown for some times as long as that took."""
        began = self.now
        drawing()
        await asyncio.sleep(max(REFRESH_SECONDS, DRAWING_COSTS * (self.now - began)))


def _followed(mirror: Mirror, subscriber: Callable[[Document | None, Document | None], None]) -> Mirror:
    mirror.subscribe(subscriber)
    return mirror
