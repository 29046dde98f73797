"""The queue behind every reconciler: one worker per key, many keys at once.

A key is pending at most once and is never worked on twice at the same time; a key that is enqueued while it is being
worked on runs again afterwards. Keys of one serial group are worked on one at a time, in the order in which they came
to the head of the line. Those that wait for that hold no worker: the group goes back in line when it is free again, and
every other key goes on as if there were no group. Keys of a sweep, to which nothing has happened, are taken when there
is nothing else in line, and one of them after some others in any case.

A reconcile never sleeps: it returns one of the four answers below or raises, and this module alone turns that into
another try. Time is the event loop's, so tests may advance it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import structlog
from msgspec import Struct

from harvester_ccm.errors import CCMError, Conflict, gist
from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.model.meta import Object
from harvester_ccm.model.outcome import Done, Outcome, Refused, Retry, Wait

CONFLICT_RETRY: Final = 0.02
"""Pause after a conflict: the cache has usually caught up by then."""
QUICK_CONFLICTS: Final = 5
"""So many conflicts in a row are tried again quickly; more are a failure, because the cache does not catch up."""
SWEEP_SHARE: Final = 10
"""So many keys are worked on before one of a sweep in any case."""

T = TypeVar("T")

log = structlog.get_logger(__name__)

Reconcile = Callable[[str], Awaitable[Outcome]]
SerialGroup = Callable[[str], str | None]
"""Returns the group of a key, None for none. Asked when the key is at the head of the line: what it depends on may have
changed while the key waited. Never raises."""


def loop_time() -> float:
    """Return the time of the running event loop, in seconds; it only goes forward."""
    return asyncio.get_running_loop().time()


class Memories(Generic[T]):
    """What is remembered of each object between two looks; one that came anew under its name is another one."""

    def __init__(self, new: Callable[[], T]) -> None:
        """Build it; ``new`` makes what is remembered of an object at first."""
        self._new = new
        self._memories: dict[str, tuple[str, T]] = {}

    def of(self, item: Object) -> T:
        """Return what is remembered of an object."""
        key, uid = item.metadata.key, item.metadata.uid
        known = self._memories.get(key)
        if known is None or known[0] != uid:
            known = self._memories[key] = (uid, self._new())
        return known[1]

    def forget(self, key: str) -> None:
        """Drop what is remembered of an object that is gone, or has become ordinary."""
        self._memories.pop(key, None)


class QueueObserver:
    """Told what happens in a queue; this one does nothing. Every method returns at once and never raises."""

    def added(self, key: str) -> None:
        """The key waits for a worker."""

    def started(self, key: str) -> None:
        """A worker has taken the key."""

    def finished(self, key: str) -> None:
        """The worker is done with the key, whatever came of it."""

    def answered(self, key: str, waits_for: str) -> None:
        """The work on the key succeeded; ``waits_for`` is what it still needs, empty for nothing."""

    def failed(self, key: str, error: Exception) -> None:
        """The work on the key failed and will be tried again."""


class _Failures(Struct):
    count: int = 0
    message: str = ""
    conflicts: int = 0


class _Turn(Struct, frozen=True):
    """The place in line of a group: the first of its keys that wait is next."""

    group: str


class Runner:
    """Runs ``reconcile`` for every enqueued key."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int,
        serial: SerialGroup | None = None,
        is_worth_a_look: Callable[[str], bool] = lambda _key: True,
    ) -> None:
        """Build it; ``serial`` tells of which keys only one at a time is worked on.

        ``is_worth_a_look`` is asked about each key of a sweep when it is its turn.
        """
        self.name = name
        self._reconcile = reconcile
        self._serial: SerialGroup = serial or (lambda _key: None)
        self._workers = workers
        self.observer = QueueObserver()
        """To be told what happens; set it before there is work."""
        self.on_behind: tuple[Callable[[], None], ...] = ()
        """Called when a key meets conflicts again and again, as caches that are behind have it do."""
        self._line: deque[str | _Turn] = deque()
        self._is_worth_a_look = is_worth_a_look
        self._swept: OrderedDict[str, None] = OrderedDict()
        """Keys of the sweep that are not in line yet."""
        self._ahead: set[str] = set()
        """Keys that have passed others since nothing was left of the sweeps before."""
        self._since_swept = 0
        """So many keys were taken since one of the sweep was."""
        self._waiting: dict[str, deque[str]] = {}
        """By group that is being worked on or in line: its keys that wait for their turn."""
        self._pending: set[str] = set()
        self._active: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, _Failures] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        self._stopping = False

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._pending) + len(self._swept)

    @property
    def busy(self) -> int:
        """Keys that are being worked on."""
        return len(self._active)

    def failures(self, key: str) -> int:
        """Return how often in a row the key has failed."""
        return self._failures[key].count if key in self._failures else 0

    def enqueue(self, key: str) -> None:
        """Have the key worked on as soon as a worker is free."""
        if self._stopping or key in self._pending:
            return
        self._swept.pop(key, None)
        if key in self._active:
            self._again.add(key)
            return
        self._cancel_timer(key)
        self._pending.add(key)
        self._line.append(key)
        self.observer.added(key)
        self._call_worker()

    def sweep(self, keys: Iterable[str], *, first: Sequence[str] = ()) -> None:
        """Have keys worked on although nothing has happened to them: those to which something has go before.

        Those of them that are ``first`` go before the others. They also pass what is left of earlier sweeps, but each
        only once until nothing is left: a key that was worked on meanwhile goes behind what is left, so that sweeps may
        follow each other without end and every key gets its turn.
        """
        if not self._stopping:
            if not self._swept:
                self._ahead.clear()
            asked = dict.fromkeys(key for key in keys if key not in self._pending)
            early = [key for key in first if key in asked]
            self._swept.update(dict.fromkeys([*early, *asked]))
            ahead = [key for key in early if key not in self._ahead]
            for key in reversed(ahead):
                self._swept.move_to_end(key, last=False)
            self._ahead.update(ahead)
            for _ in range(min(len(self._swept), self._workers)):
                self._call_worker()

    def enqueue_after(self, key: str, seconds: float) -> None:
        """Have the key worked on in ``seconds``, or earlier if something else asks for it."""
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= at:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(at, self._due, key)

    async def run(self) -> None:
        """Work until cancelled; what is being worked on is cancelled too."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def drain(self, seconds: float) -> None:
        """Take no more keys and give those being worked on ``seconds`` to finish."""
        self._stopping = True
        self._line.clear()
        self._swept.clear()
        self._waiting.clear()
        self._pending.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._active and loop.time() < deadline:
            self._waiter = loop.create_future()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._waiter
            except TimeoutError:
                return

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.enqueue(key)

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _call_worker(self) -> None:
        while self._idle_workers:
            worker = self._idle_workers.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    async def _next(self) -> tuple[str, str | None]:
        """Return the next key to work on and its group, which is its own until ``_leave``."""
        while (taken := self._take()) is None:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_workers.append(idle)
            await idle
        return taken

    def _take(self) -> tuple[str, str | None] | None:
        """Return the first key in line whose turn it is; the ones before it wait for theirs."""
        self._since_swept += 1
        if self._since_swept > SWEEP_SHARE:
            self._put_swept_in_line()
        while self._line or self._put_swept_in_line():
            head = self._line.popleft()
            if isinstance(head, _Turn):
                key, called_by = self._waiting[head.group].popleft(), head.group
            else:
                key, called_by = head, None
            group = self._serial(key)
            if called_by is not None and called_by != group:
                self._leave(called_by)
            if group is not None and group != called_by:
                if group in self._waiting:
                    self._waiting[group].append(key)
                    continue
                self._waiting[group] = deque()
            self._pending.discard(key)
            return key, group
        return None

    def _put_swept_in_line(self) -> bool:
        """Put the next key of the sweep into the line; return whether there is one in line."""
        self._since_swept = 0
        while self._swept:
            key, _ = self._swept.popitem(last=False)
            if self._is_worth_a_look(key):
                self.enqueue(key)
                if self._line:
                    return True
        return bool(self._line)

    def _leave(self, group: str) -> None:
        """Let the next key of the group have its turn."""
        if self._waiting.get(group):
            self._line.append(_Turn(group))
            self._call_worker()
        else:
            self._waiting.pop(group, None)

    async def _work(self) -> None:
        while True:
            key, group = await self._next()
            self._active.add(key)
            self.observer.started(key)
            try:
                await self._work_on(key)
            finally:
                self._active.discard(key)
                self.observer.finished(key)
                if self._waiter is not None and not self._waiter.done():
                    self._waiter.set_result(None)
                if group is not None:
                    self._leave(group)
                if key in self._again:
                    self._again.discard(key)
                    self.enqueue(key)
            # Many keys that need no request must not keep the Lease and the watches from their turn.
            await asyncio.sleep(0)

    async def _work_on(self, key: str) -> None:
        try:
            outcome = await self._reconcile(key)
        except Conflict as error:
            self._conflicted(key, error)
        except CCMError as error:
            self._failed(key, error)
        except Exception as error:  # a fault of ours on one object must not stop the others
            log.exception("reconcile broke", controller=self.name, key=key)
            self._failed(key, error)
        else:
            self._finish(key, outcome)

    def _finish(self, key: str, outcome: Outcome) -> None:
        self.observer.answered(key, outcome.reason if isinstance(outcome, Wait | Refused) else "")
        match outcome:
            case Retry(after=seconds):
                if key in self._failures:
                    self._failures[key].conflicts = 0
                self.enqueue_after(key, seconds)
                return
            case Wait(at_most=seconds):
                if seconds is not None:
                    self.enqueue_after(key, seconds)
            case Done() | Refused():
                pass
        failures = self._failures.pop(key, None)
        if failures is not None and failures.count:
            log.info("reconcile works again", controller=self.name, key=key)

    def _conflicted(self, key: str, error: Conflict) -> None:
        state = self._failures.setdefault(key, _Failures())
        state.conflicts += 1
        if state.conflicts <= QUICK_CONFLICTS:
            self.observer.failed(key, error)
            self.enqueue_after(key, CONFLICT_RETRY)
        else:
            for catch_up in self.on_behind:
                catch_up()
            self._failed(key, error)

    def _failed(self, key: str, error: Exception) -> None:
        state = self._failures.setdefault(key, _Failures())
        state.count += 1
        self.observer.failed(key, error)
        pause = pause_after(error, state.count)
        if gist(str(error)) != state.message:
            state.message = gist(str(error))
            log.warning(
                "reconcile failed",
                controller=self.name,
                key=key,
                error=str(error),
                retry_in=round(pause, 1),
                request_id=getattr(error, "request_id", ""),
            )
        self.enqueue_after(key, pause)
