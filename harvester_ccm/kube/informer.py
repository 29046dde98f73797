"""Informer: a store that follows one collection by list and watch, as in client-go.

* A watch that worked and then ended is opened again at once, from its last resource version.
* After any other end of a watch the collection is listed again, with backoff: an API server that was away might have
  been restored from a backup, and would then accept a future version and send nothing.
* The collection is also listed every 30 to 60 minutes, because a proxy can lose watch events without an error.
* If watching is forbidden, the collection is listed every minute.

Errors never end an informer. ``problem`` is the current error, and the store keeps its objects meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.errors import CCMError, Forbidden, Gone, Throttled, UnexpectedAnswer, Unreachable, WatchSilent
from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.collection import WatchEvent
from harvester_ccm.kube.store import Store
from harvester_ccm.model.meta import ObjectT, Resource

SILENCE_SECONDS: Final = 150.0
"""Time without any line after which a watch counts as dead; API servers send a bookmark about every minute."""
WATCH_SECONDS: Final = (300.0, 600.0)
"""Range of the duration that a watch requests."""
RECONNECT_SECONDS: Final = 0.2
"""Delay between the end of a working watch and the next one."""
WORKED_SECONDS: Final = 0.5
"""Time after which an accepted watch counts as working; a watch that delivered a line counts before."""
RELIST_SECONDS: Final = (1800.0, 3600.0)
"""Range of the interval between two lists."""
POLL_SECONDS: Final = 60.0
"""Interval between two lists if watching is forbidden."""
_BACKOFF: Final = partial(pause_after, growth=1.08)
"""Grows by less than a tenth of the time that the API server has been unavailable."""

log = structlog.get_logger(__name__)


class InformerTiming(Struct, frozen=True):
    """Durations of an informer in seconds. Tests shorten them."""

    silence: float = SILENCE_SECONDS
    reconnect: float = RECONNECT_SECONDS
    poll: float = POLL_SECONDS
    worked: float = WORKED_SECONDS
    relist: tuple[float, float] = RELIST_SECONDS
    pause_after: Callable[[CCMError | None, int], float] = _BACKOFF
    """Returns the delay after an error that was the n-th in a row."""


USUAL_TIMING: Final = InformerTiming()


class Selection(Struct, frozen=True):
    """The part of a collection that an informer follows."""

    namespace: str | None = None
    field_selector: str = ""

    def params(self) -> dict[str, str]:
        """Return the query parameters of the selection."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}


class _Watch(Struct):
    """Progress of one watch request."""

    version: str
    """Resource version from which the next watch continues."""
    accepted_at: float | None = None
    received: bool = False

    def record(self, version: str) -> None:
        """Record a line. The first one has no version: the API server accepted the watch."""
        if version:
            self.version, self.received = version, True
        elif self.accepted_at is None:
            self.accepted_at = loop_time()

    def lasted(self, seconds: float) -> bool:
        """Return whether the watch lasted at least this long."""
        return self.accepted_at is not None and loop_time() - self.accepted_at >= seconds


class Informer(Store[ObjectT]):
    """A store that follows one collection while ``run`` is running."""

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
        self._selection = selection or Selection()
        self._state_callbacks: list[Callable[[], None]] = []
        self._timing = timing
        self._failures = 0
        """Errors in a row since the last working watch."""
        self._watch_forbidden = False
        self._synced = asyncio.Event()
        self.problem: CCMError | None = None
        """Why the collection cannot be read now; None if it can."""
        self.restarts = 0
        """Number of watches that ended."""
        self.last_contact = float("-inf")
        """Loop time of the last list or watch event."""

    @property
    def name(self) -> str:
        """``cluster/resource``, for logs and metrics."""
        return f"{self._client.cluster}/{self.resource.plural}"

    @property
    def synced(self) -> bool:
        """Whether the collection was listed at least once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return when the collection was listed for the first time."""
        await self._synced.wait()

    def on_state(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when ``synced`` or the kind of ``problem`` changes."""
        self._state_callbacks.append(callback)

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        while True:
            try:
                version = await self._list()
                with suppress(TimeoutError):
                    async with asyncio.timeout(random.uniform(*self._timing.relist)):
                        await self._follow(version)
            except Gone as error:
                # Expired versions are normal: list at once, and back off only if they expire again and again.
                log.debug("watch version too old", collection=self.name)
                delay = self._next_delay(error)
                await asyncio.sleep(delay if self._failures > 1 else 0)
            except CCMError as error:
                self._set_problem(error)
                await asyncio.sleep(self._next_delay(error))

    def _next_delay(self, error: CCMError | None) -> float:
        self._failures += 1
        return self._timing.pause_after(error, self._failures)

    async def _list(self) -> str:
        """Replace the store; return the resource version of the list."""
        page = await self._client.list(
            self.resource, namespace=self._selection.namespace, params=self._selection.params()
        )
        self.last_contact = loop_time()
        self._replace_all(page)
        self._set_problem(None)
        if not self.synced:
            self._synced.set()
            log.debug("collection synced", collection=self.name, objects=len(self))
            self._state_changed()
        return page.resource_version

    async def _follow(self, version: str) -> None:
        """Watch from this version, over disconnects, until a new list is needed. Raises Gone."""
        while True:
            watch, error = _Watch(version), None
            try:
                await self._watch(watch)
            except Gone:
                raise
            except Forbidden:
                await self._wait_for_poll()
                return
            except CCMError as caught:
                error = caught
            version = watch.version
            self.restarts += 1
            if _is_disconnect(error) and (watch.received or watch.lasted(self._timing.worked)):
                self._failures = 0
                await asyncio.sleep(self._timing.reconnect)
                continue
            if error is not None:
                self._set_problem(error)
            await asyncio.sleep(self._next_delay(error))
            if not isinstance(error, Throttled):
                return

    async def _wait_for_poll(self) -> None:
        """Wait until the next list if watching is forbidden; not the first time, as listing might be forbidden too."""
        self._failures = 0
        if self._watch_forbidden:
            await asyncio.sleep(self._timing.poll)
        else:
            self._watch_forbidden = True
            log.warning("watch forbidden, listing instead", collection=self.name, seconds=self._timing.poll)

    async def _watch(self, watch: _Watch) -> None:
        try:
            async with aclosing(self._open_watch(watch.version)) as events:
                async for event in events:
                    watch.record(event.resource_version)
                    self.last_contact = loop_time()
                    self._watch_forbidden = False
                    self._set_problem(None)
                    self._apply(event)
        finally:
            # Whatever ended it: a list after a watch of this duration costs no more than polling.
            if watch.lasted(self._timing.poll):
                self._failures = 0

    def _open_watch(self, version: str) -> AsyncGenerator[WatchEvent[ObjectT], None]:
        seconds = str(int(random.uniform(*WATCH_SECONDS)))
        params = {**self._selection.params(), "resourceVersion": version, "timeoutSeconds": seconds}
        return self._client.watch(
            self.resource, namespace=self._selection.namespace, params=params, silence=self._timing.silence
        )

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
        self._state_changed()

    def _state_changed(self) -> None:
        for callback in self._state_callbacks:
            callback()


def _is_disconnect(error: CCMError | None) -> bool:
    """Return whether a watch ended normally or its connection was lost.

    A silent watch and an event that cannot be read are failures: the next watch would meet them again.
    """
    return error is None or (isinstance(error, Unreachable) and not isinstance(error, (WatchSilent, UnexpectedAnswer)))
