"""One schedule: a scenario in its own world, up to the final state and to the deletion of everything."""

import asyncio
import gc
import traceback
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from harvester_ccm.kube.informer import RELIST_SECONDS, SILENCE_SECONDS
from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from tests.simulation.actions import Scenario
from tests.simulation.budget import is_within_budget
from tests.simulation.clocks import of_schedule
from tests.simulation.facts import name_of
from tests.simulation.kubevip import DHCP_TIMEOUT
from tests.simulation.loop import SeededLoop, Stuck
from tests.simulation.oracles import GRACE, Oracles
from tests.simulation.runner import ActionRunner
from tests.simulation.world import World

SETTLED_WITHIN: Final = 2400.0
"""Seconds after the last fault within which all has to be as it is asked for."""
QUIET: Final = 700.0
"""Seconds for which nothing may be written then."""
UNJUDGED: Final = 600.0
"""Seconds for which a schedule outside of the budget goes on."""
REPEATED_TOUCH: Final = 660.0
"""Seconds within which the controller repeats a touch of the endpoints that was rejected."""
LOOK_SECONDS: Final = 5.0
START: Final = 15.0
"""Seconds between the start of the controller and that of the scenario."""


class Wrong(Exception):
    """Raised if an oracle fails."""


@dataclass
class Result:
    """The result of a schedule."""

    scenario: Scenario
    wrong: str = ""
    """Message of the first oracle that failed; empty if none failed."""
    digest: str = ""
    """Hash of all requests."""
    met: Counter[str] = field(default_factory=Counter)
    """Faults, and how often they occurred."""
    steps: int = 0
    trace: list[str] = field(default_factory=list)
    """All actions, requests and log lines."""


class Schedule:
    """A scenario, its world and its oracles."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._loop = SeededLoop(scenario.seed)
        self._actions: list[str] = []
        self._logs: list[str] = []

    def run(self, *, trace: bool = False) -> Result:
        """Run the schedule; ``trace`` keeps the log of the controller."""
        result, loop = Result(self._scenario), self._loop
        with of_schedule(loop, self._scenario.seed), self._logging(trace=trace), _without_collector():
            asyncio.set_event_loop(loop)
            self._world = World(loop, self._scenario.seed, pool=self._scenario.pool, nodes=self._scenario.nodes)
            self._oracles = Oracles(self._world)
            loop.set_exception_handler(self._unhandled)
            try:
                loop.run_until_complete(self._play())
            except (Wrong, Stuck) as error:
                result.wrong = str(error)
            finally:
                self._end()
        result.digest, result.steps = self._world.digest(), loop.steps
        result.met = +(self._world.met + Counter({"leases given": self._world.kube_vip.leases}))
        result.trace = self._trace() if trace else []
        return result

    async def _play(self) -> None:
        world, runner = self._world, ActionRunner(self._world)
        world.processes["p"].start()
        await self._pass(START)
        for action in self._scenario.actions:
            await self._pass(action.pause)
            self._actions.append(f"{self._loop.time():9.3f} === {action}")
            runner.do(action)
        await self._pass(1.0)
        runner.calm()
        self._actions.append(f"{self._loop.time():9.3f} === all faults end")
        if is_within_budget(self._scenario.actions):
            await self._rest()
        self._actions.append(f"{self._loop.time():9.3f} === every Service is deleted")
        for guest in world.guests:
            for service in guest.services():
                guest.delete_service(service["metadata"]["name"])
        if is_within_budget(self._scenario.actions):
            await self._settle("an empty cluster", empty=True)
        else:
            await self._pass(UNJUDGED)

    async def _rest(self) -> None:
        """Wait until all is well, and see that it stays so."""
        if self._world.may_be_blind:
            await self._pass(RELIST_SECONDS[1] + 60.0)
        await self._settle("the final state")
        await self._quiet()

    async def _pass(self, seconds: float) -> None:
        loop = self._loop
        until = loop.time() + seconds
        while True:
            # An oracle is heard at once, and not at the end of a long pause.
            await asyncio.sleep(min(LOOK_SECONDS, max(until - loop.time(), 0.0)))
            if self._world.wrong:
                raise Wrong(self._world.wrong[0])
            if loop.time() >= until:
                return

    async def _settle(self, what: str, *, empty: bool = False) -> None:
        until, found = self._loop.time() + SETTLED_WITHIN, ["not looked yet"]
        pause = LOOK_SECONDS
        while found and self._loop.time() < until:
            await self._pass(pause)
            pause = min(pause * 1.5, 120.0)
            found = self._oracles.differences()
            if late := [*self._oracles.unheld(GRACE), *self._oracles.addresses.late()]:
                raise Wrong("; ".join(late))
            if empty:
                left = [service for guest in self._world.guests for service in guest.services()]
                found += [f"{name_of(service)} is still there" for service in left]
        if found:
            raise Wrong(f"{what} was not reached: {'; '.join(found)}")

    async def _quiet(self) -> None:
        """See that nothing but the endpoints is written at rest, also not when other clients write all objects."""
        # A watch that has fallen silent is given up after a while only.
        await self._pass(max(SILENCE_SECONDS + 60.0, REPEATED_TOUCH))
        # The controller reads its permissions for IP pools again with the next resync. An Event about an address that
        # is not as requested names a missing one.
        known_at = self._world.requests_changed_at + RESYNC_SECONDS + LOOK_SECONDS
        await self._pass(max(known_at - self._loop.time(), 0.0))
        # kube-vip announces an address that it was silent about when the endpoints are touched.
        self._world.touch_everything("guest")
        await self._pass(DHCP_TIMEOUT)
        before = len(self._world.writes())
        for side in self._world.servers:
            self._world.touch_everything(side)
        await self._pass(QUIET)
        written = sorted(self._world.writes(), key=_at)[before:]
        late = [call for call in written if call.verb != "POST" and "/endpointslices/" not in call.path]
        if late:
            raise Wrong(f"writes at rest: {[f'{call.verb} {call.path}' for call in late][:3]}")
        if found := self._oracles.differences():
            raise Wrong(f"the final state changed: {'; '.join(found)}")

    def _end(self) -> None:
        """End all processes and tasks."""
        loop, world = self._loop, self._world
        loop.after_step = lambda: None
        for process in world.processes.values():
            process.kill()
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=60))
        loop.close()
        asyncio.set_event_loop(None)

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._world.wrong.append(f"unhandled: {context.get('message')} {context.get('exception')!r}")

    @contextmanager
    def _logging(self, *, trace: bool) -> Iterator[None]:
        before = structlog.get_config()
        level = 10 if trace else 40
        wrapper = structlog.make_filtering_bound_logger(level)
        structlog.configure(wrapper_class=wrapper, processors=[self._log], cache_logger_on_first_use=False)
        try:
            yield
        finally:
            structlog.configure(**before)

    def _log(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> str:
        if event.get("exc_info") or event["event"] == "unexpected error in reconcile":
            self._world.wrong.append(f"exception in a reconcile: {event} {traceback.format_exc()}")
        more = " ".join(f"{key}={value}" for key, value in event.items() if key not in {"event", "exc_info"})
        if level == "debug" and "reason" not in event:
            raise structlog.DropEvent
        self._logs.append(f"{self._loop.time():9.3f} [{level}] {event['event']} {more}")
        raise structlog.DropEvent

    def _trace(self) -> list[str]:
        calls = [
            f"{call.at:9.3f} {call.by} {call.verb} {call.path} {call.body or ''}"
            for server in self._world.servers.values()
            for call in server.calls
            if "/leases" not in call.path and call.verb != "WATCH" and "/events" not in call.path
        ]
        lines = [
            *self._actions,
            *self._logs,
            *calls,
            *(line for guest in self._world.guests for line in guest.kube_vip.changes),
            *self._oracles.noted,
        ]
        return sorted(lines, key=lambda line: float(line[:9]))


def _at(call: Any) -> float:
    return float(call.at)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the garbage collector, whose times depend on memory."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
