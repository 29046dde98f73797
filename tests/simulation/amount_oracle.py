"""Numbers of writes and Events: bounded for each object, whatever happens to it."""

from collections import Counter
from typing import Final

from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.kube.events import REPEAT_SECONDS
from tests.simulation.world import EVENTS, LEASE, World
from tests.support.memory_server import Call

WRITES: Final = 20
"""Writes of one object in a schedule, besides one for each action of the scenario."""
EVENTS_OF_RUN: Final = 20
"""Events about one object from one process, besides one for each action of the scenario."""
WRITES_AFTER_DELETION: Final = 5
"""Writes of an object that does not exist any more: the watch reports the deletion soon, or the response does."""
CLOCK_SECONDS: Final = 60.0
"""Part of an hour for which an Event can be on its way."""


class AmountOracle:
    """Counts the writes of each object, and the Events about it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._writes: Counter[str] = Counter()
        """Writes by path, without the subresource."""
        self._lost: Counter[tuple[str, str]] = Counter()
        """Writes by process and path that were answered with 404, since the last one that was not."""
        self._events: Counter[tuple[str, str]] = Counter()
        """Events by process and UID."""
        self._event_names: set[str] = set()
        """Names of the Events: one whose response was lost is sent again, to a guest that may have been restored."""
        self._emitted: dict[tuple[str, str, str, str], float] = {}
        """When an Event (process, UID, reason, message) was written last."""

    def answered(self, call: Call, error: KubeError | None) -> None:
        """Count a request that a server has processed."""
        if not call.is_write or call.path.startswith(LEASE):
            return
        if EVENTS in call.path:
            self._count_event(call, error)
        elif call.verb != "POST":
            # The name of a new load balancer is not in the path; its deletion is.
            self._count_write(call, error)

    def _count_write(self, call: Call, error: KubeError | None) -> None:
        path = call.path.removesuffix("/status")
        self._writes[path] += 1
        if self._writes[path] > WRITES + self._world.actions:
            self._world.wrong.append(f"{call.by} writes {path} too often: {self._writes[path]} times")
        if isinstance(error, NotFound):
            self._lost[call.by, path] += 1
        else:
            self._lost.pop((call.by, path), None)
        if self._lost[call.by, path] > WRITES_AFTER_DELETION:
            self._world.wrong.append(f"{call.by} writes {path} again and again, which does not exist")

    def _count_event(self, call: Call, error: KubeError | None) -> None:
        if error is not None or call.body["metadata"]["name"] in self._event_names:
            return
        self._event_names.add(call.body["metadata"]["name"])
        uid, reason, message = call.body["involvedObject"]["uid"], call.body["reason"], call.body["message"]
        self._events[call.by, uid] += 1
        if self._events[call.by, uid] > EVENTS_OF_RUN + self._world.actions:
            self._world.wrong.append(f"{call.by} emits too many Events about {uid}, the last one is {reason}")
        before = self._emitted.get((call.by, uid, reason, message), float("-inf"))
        self._emitted[call.by, uid, reason, message] = call.at
        if call.at - before < REPEAT_SECONDS - CLOCK_SECONDS:
            self._world.wrong.append(f"{call.by} repeats Event {reason} about {uid} within an hour: {message}")
