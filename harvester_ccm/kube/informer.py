"""A live copy of a collection: list, watch, and list again when the watch cannot go on.

Guarantees: objects are delivered to the callbacks in the order of the server's versions; a callback never sees a
half-filled store: a list is taken in whole before anything is told (``synced`` is set then). A watch that is silent for
longer than ``SILENCE`` is given up and the collection is listed. Where watching is forbidden the
collection is listed every minute, and that is logged once.

A watch that worked and was cut is opened again at once and goes on where it was. An outage is another matter: a server
that could not be reached, or failed by its own fault, may have been restored from a backup, accepts a version of its
future and sends nothing. So the collection is listed after it, and every 30 to 60 minutes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.errors import (
    ApiError,
    CCMError,
    Forbidden,
    Gone,
    ServerError,
    UnexpectedAnswer,
    Unreachable,
    WatchSilent,
)
from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.kube.client import SLICE, ApiClient
from harvester_ccm.kube.collection import Page, WatchEvent
from harvester_ccm.kube.store import Store
from harvester_ccm.model.meta import ObjectT, Resource

SILENCE: Final = 150.0
"""Seconds without a line after which a watch is dead; servers send a bookmark about every minute."""
WATCH_MINUTES: Final = (5.0, 10.0)
"""A watch asks the server to end it after a random time in this range."""
RECONNECT_SECONDS: Final = 0.2
"""Pause between a watch that ended and the next one."""
WORKED_SECONDS: Final = 0.5
"""A watch that was accepted and lasted so long has worked, as has one that gave a line before."""
RELIST_MINUTES: Final = (30.0, 60.0)
"""A collection is listed anew after a random time in this range, whatever its watches say."""
PAUSE_GROWTH: Final = 1.08
"""Factor from one pause to the next: it grows by less than a tenth of the time that the server has been away."""
POLL_SECONDS: Final = 60.0
"""Pause between two lists where watching is forbidden; a watch that lasted as long was no failure."""
REFUSALS: Final = 3
"""So many refused watches in a row lead to a new list: the server may not know the version any more."""

_PAUSE: Final = partial(pause_after, growth=PAUSE_GROWTH)

log = structlog.get_logger(__name__)


class InformerTiming(Struct, frozen=True):
    """How long an informer waits, in seconds."""

    silence: float = SILENCE
    reconnect: float = RECONNECT_SECONDS
    poll: float = POLL_SECONDS
    worked: float = WORKED_SECONDS
    relist: tuple[float, float] = (60 * RELIST_MINUTES[0], 60 * RELIST_MINUTES[1])
    pause_after: Callable[[CCMError | None, int], float] = _PAUSE
    """What is waited after a failure, the n-th in a row."""


USUAL_TIMING: Final = InformerTiming()


class Selection(Struct, frozen=True):
    """Which part of a collection an informer holds."""

    namespace: str | None = None
    field_selector: str = ""

    def params(self) -> dict[str, str]:
        """Return the query parameters of the selection."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


class Informer(Store[ObjectT]):
    """A store that follows one collection."""

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[ObjectT],
        selection: Selection | None = None,
        *,
        indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]] | None = None,
        timing: InformerTiming = USUAL_TIMING,
    ) -> None:
        super().__init__(indexes)
        self._client = client
        self.resource = resource
        """What is read."""
        self._selection = selection or Selection()
        self._state_callbacks: list[Callable[[], None]] = []
        self._timing = timing
        self._failures = 0
        """Failures in a row; none any more once a watch has worked, or lasted whatever ended it."""
        self._watch_forbidden = False
        self._synced = asyncio.Event()
        self.problem: CCMError | None = None
        """Why the collection cannot be read at the moment; None while all is well."""
        self.restarts = 0
        """How often a watch was ended or lost since the start."""
        self.last_contact = float("-inf")
        """Loop time of the last sign of life of the server."""
        self.relisted_at = float("-inf")
        """Loop time of the last list, but for the first, that told of changes."""

    @property
    def name(self) -> str:
        """``cluster/resource``, for logs and metrics."""
        return f"{self._client.cluster}/{self.resource.plural}"

    @property
    def synced(self) -> bool:
        """Whether the store was filled at least once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the store is filled for the first time."""
        await self._synced.wait()

    def on_state(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called when ``synced`` or ``problem`` changes."""
        self._state_callbacks.append(callback)

    async def run(self) -> None:
        """Keep the store up to date until cancelled."""
        while True:
            try:
                await self._follow(await self._list())
            except Gone as error:
                log.debug("watch version too old", collection=self.name)
                pause = self._pause(error)
                # Once is in order; a server that loses every version at once must not be asked without pause.
                if self._failures > 1:
                    await asyncio.sleep(pause)
            except CCMError as error:
                self._set_problem(error)
                await asyncio.sleep(self._pause(error))

    def _pause(self, error: CCMError | None) -> float:
        """Count a failure and return the seconds to wait."""
        self._failures += 1
        return self._timing.pause_after(error, self._failures)

    async def _list(self) -> str:
        """Fill the store; return the version it has."""
        page = await self._client.list(
            self.resource, namespace=self._selection.namespace, params=self._selection.params()
        )
        self._replace_all(page)
        self._set_problem(None)
        while self._untold:
            # Nobody goes by a store that was never filled before, so this may take its time.
            self._tell(SLICE)
            await asyncio.sleep(0)
        if not self.synced:
            self._synced.set()
            log.debug("collection synced", collection=self.name, objects=len(self._objects))
            self._changed_state()
        return page.resource_version

    async def _follow(self, version: str) -> None:
        """Apply changes after ``version`` until a new list is needed."""
        try:
            async with asyncio.timeout(random.uniform(*self._timing.relist)):
                await self._watch_on(version)
        except TimeoutError:
            log.debug("collection is listed again", collection=self.name)

    async def _watch_on(self, version: str) -> None:
        """Apply changes after ``version``, over lost connections too; return when a new list is needed."""
        while True:
            watch, problem = _Watch(version), None
            try:
                await self._watch(watch)
            except Gone:
                raise
            except Forbidden:
                self._failures = 0
                if self._watch_forbidden:
                    await asyncio.sleep(self._timing.poll)
                else:
                    self._watch_forbidden = True
                    log.warning("watch forbidden, listing instead", collection=self.name, seconds=self._timing.poll)
                # At once the first time: listing may be forbidden as well.
                return
            except CCMError as error:
                problem = error
            version = watch.version
            if watch.has_worked(self._timing.worked) and _is_over(problem):
                self._failures = 0
                await asyncio.sleep(self._timing.reconnect)
            else:
                if problem is not None:
                    self._set_problem(problem)
                # A server that ends every watch at once must not be asked without pause.
                await asyncio.sleep(self._pause(problem))
                if self._must_list_after(problem):
                    return
            self.restarts += 1

    def _must_list_after(self, problem: CCMError | None) -> bool:
        """Return whether changes may have been lost: a server that is back may not be where it was."""
        if isinstance(problem, (Unreachable, ServerError)):
            return True
        # It may not know the version any more; one that is busy does.
        return isinstance(problem, ApiError) and problem.answer.status != 429 and self._failures >= REFUSALS

    async def _watch(self, watch: _Watch) -> None:
        """Apply the changes of one watch."""
        try:
            async with aclosing(self._open_watch(watch.version)) as events:
                async for event in events:
                    watch.gave(event.resource_version)
                    self._watch_forbidden = False
                    self._set_problem(None)
                    self._apply(event)
        finally:
            # Whatever ended it: lists so far apart cost no more than where watching is forbidden.
            if watch.has_lasted(self._timing.poll):
                self._failures = 0

    def _open_watch(self, version: str) -> AsyncGenerator[WatchEvent[ObjectT], None]:
        seconds = 60 * random.uniform(*WATCH_MINUTES)
        params = {**self._selection.params(), "resourceVersion": version, "timeoutSeconds": str(int(seconds))}
        silence = self._timing.silence
        return self._client.watch(self.resource, namespace=self._selection.namespace, params=params, silence=silence)

    def _apply(self, event: WatchEvent[ObjectT]) -> None:
        self.last_contact = asyncio.get_running_loop().time()
        super()._apply(event)

    def _replace_all(self, page: Page[ObjectT]) -> None:
        self.last_contact = asyncio.get_running_loop().time()
        self._take_in(page.items, page.resource_version, page.unread)
        if self.synced:
            self.relisted_at = self.last_contact if self._untold else self.relisted_at
            self._tell(len(self._untold))

    def _set_problem(self, problem: CCMError | None) -> None:
        before, self.problem = self.problem, problem
        if type(before) is type(problem):
            return
        if problem is None:
            log.info("collection readable again", collection=self.name)
        else:
            log.warning(
                "collection cannot be read", collection=self.name, error=str(problem), request_id=problem.request_id
            )
        self._changed_state()

    def _changed_state(self) -> None:
        for callback in self._state_callbacks:
            callback()


class _Watch(Struct):
    """One watch from its opening to its end."""

    version: str
    """Where the next one goes on."""
    spoke: bool = False
    accepted_at: float | None = None

    def gave(self, version: str) -> None:
        """Note a sign of life; the first has no version and says that the server has accepted the watch."""
        if version:
            self.version, self.spoke = version, True
        elif self.accepted_at is None:
            self.accepted_at = asyncio.get_running_loop().time()

    def has_lasted(self, seconds: float) -> bool:
        """Return whether that was so long, from its acceptance on."""
        return self.accepted_at is not None and asyncio.get_running_loop().time() - self.accepted_at >= seconds

    def has_worked(self, seconds: float) -> bool:
        """Return whether it gave a line, or lasted so long."""
        return self.spoke or self.has_lasted(seconds)


def _is_over(problem: CCMError | None) -> bool:
    """Return whether a watch just ended, or its connection was cut.

    What is said in it is another matter: an event that is too large comes again, a page is of something in between.
    """
    return problem is None or (
        isinstance(problem, Unreachable) and not isinstance(problem, (WatchSilent, UnexpectedAnswer))
    )
