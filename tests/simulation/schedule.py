"""One schedule: a scenario in its own world, up to the final state and to the deletion of everything."""

import asyncio
import gc
import traceback
from collections import Counter
from collections.abc import Iterator, MutableMapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from harvester_ccm.kube.informer import RELIST_SECONDS, SILENCE_SECONDS
from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from harvester_ccm.names import ANNOUNCED_AS, DHCP_ADDRESS, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, PRIMARY_SERVICE, Reason
from tests.simulation.actions import Scenario
from tests.simulation.clocks import of_schedule
from tests.simulation.facts import annotation, condition_reasons, name_of
from tests.simulation.guest import NAMESPACE
from tests.simulation.kubevip import DHCP_TIMEOUT
from tests.simulation.loop import SeededLoop, Stuck
from tests.simulation.oracles import GRACE, Oracles
from tests.simulation.runner import ActionRunner
from tests.simulation.world import World

SETTLED_WITHIN: Final = 2400.0
"""Seconds after the last fault within which all has to be as it is asked for."""
QUIET: Final = 700.0
"""Seconds for which nothing may be written then."""
REPEATED_TOUCH: Final = 660.0
"""Seconds within which the controller repeats a touch of the endpoints that was rejected."""
LOOK_SECONDS: Final = 5.0
START: Final = 15.0
"""Seconds between the start of the controller and that of the scenario."""


UNANNOUNCED: Final = frozenset({Reason.NOT_ANNOUNCED, Reason.NO_ENDPOINTS, Reason.ANNOUNCEMENT_UNKNOWN})
"""Reasons of the Events that explain why no node announces an address."""


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
        if world.may_be_blind:
            await self._pass(RELIST_SECONDS[1] + 60.0)
        await self._settle("the final state")
        await self._quiet()
        self._actions.append(f"{self._loop.time():9.3f} === every Service is deleted")
        for guest in world.guests:
            for service in guest.services():
                guest.delete_service(service["metadata"]["name"])
        await self._settle("an empty cluster", empty=True)

    async def _pass(self, seconds: float) -> None:
        """Let time pass."""
        loop = self._loop
        until = loop.time() + seconds
        while True:
            # An oracle is heard at once, and not at the end of a long pause.
            await asyncio.sleep(min(LOOK_SECONDS, max(until - loop.time(), 0.0)))
            late = self._oracles.addresses.late()
            if problems := [*self._world.wrong, *late]:
                raise Wrong(problems[0])
            if loop.time() >= until:
                return

    async def _settle(self, what: str, *, empty: bool = False) -> None:
        until, found = self._loop.time() + SETTLED_WITHIN, ["not looked yet"]
        pause = LOOK_SECONDS
        while found and self._loop.time() < until:
            await self._pass(pause)
            pause = min(pause * 1.5, 120.0)
            found = self._oracles.differences()
            if late := self._oracles.unheld(GRACE):
                raise Wrong("; ".join(late))
            if empty:
                left = [
                    service
                    for guest in self._world.guests
                    for service in guest.services()
                    if not guest.has_lost_its_mark(service)
                ]
                found += [f"{one['metadata']['name']} is still there" for one in left]
        if found:
            raise Wrong(f"{what} was not reached: {'; '.join(found)}")

    async def _quiet(self) -> None:
        # A watch that has fallen silent is given up after a while only.
        await self._pass(SILENCE_SECONDS + 60.0)
        # The controller reads its permissions for IP pools again with the next resync. An Event about an address that
        # is not as requested names a missing one.
        known_at = self._world.requests_changed_at + RESYNC_SECONDS + LOOK_SECONDS
        await self._pass(max(known_at - self._loop.time(), 0.0))
        services = [service for guest in self._world.guests for service in guest.services()]
        await self._pass(REPEATED_TOUCH)
        # When the endpoints are touched, kube-vip requests a lease again, or announces an address that the controller
        # is not permitted to have announced, or whose withdrawal nothing shows it.
        self._world.touch_everything("guest")
        await self._pass(DHCP_TIMEOUT)
        before = len(self._world.writes())
        unnoted = {name_of(service) for service in services if not annotation(service, KUBE_VIP_HOST)}
        services = [service for guest in self._world.guests for service in guest.services()]
        leasing = {name_of(one) for one in services if Reason.DHCP_LEASE_PENDING in condition_reasons(one)}
        with_dhcp = {name_of(one) for one in services if annotation(one, KUBE_VIP_ADDRESSES) == DHCP_ADDRESS}
        leasing |= self._waiting_for_another_lease()
        for side in self._world.servers:
            self._world.touch_everything(side)
        await self._pass(QUIET)
        written = sorted(self._world.writes(), key=_at)[before:]
        touched = Counter(call.path for call in written if is_touch_of(call, unnoted))
        late = [
            call
            for call in written
            if not _is_about_lost_machines(call)
            and not is_about_announcement(call, unnoted)
            # The endpoints of a Service without a note are touched more and more rarely.
            and touched[call.path] != 1
            # After kube-vip was made to get a lease again, they are touched some times more, also if the first touch
            # was enough.
            and not is_touch_of(call, with_dhcp)
            and not any(_concerns(call, name) for name in leasing)
        ]
        if late:
            raise Wrong(f"writes at rest: {[f'{call.verb} {call.path}' for call in late][:3]}")
        if found := self._oracles.differences():
            raise Wrong(f"the final state changed: {'; '.join(found)}")

    def _waiting_for_another_lease(self) -> set[str]:
        """Return the Services whose address kube-vip leases anew at the next touch, and those that share it.

        kube-vip announces none for them, and may get another one than the Service shows.
        """
        waiting = set()
        for guest in self._world.guests:
            announced = {key for keys in guest.kube_vip.announced().values() for key in keys}
            for service in guest.services():
                has_dhcp = annotation(service, KUBE_VIP_ADDRESSES) == DHCP_ADDRESS
                if has_dhcp and f"{NAMESPACE}/{name_of(service)}" not in announced:
                    waiting.add(name_of(service))
        sharing = {
            name_of(service)
            for guest in self._world.guests
            for service in guest.services()
            if annotation(service, PRIMARY_SERVICE).removeprefix(f"{NAMESPACE}/") in waiting
        }
        return waiting | sharing

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


def _is_about_lost_machines(call: Any) -> bool:
    """Return whether an Event reports that no VM of a Node is left, which wakes no Service by itself."""
    return bool(call.verb == "POST" and (call.body or {}).get("reason") == "HarvesterMismatch")


def is_touch_of(call: Any, services: Set[str]) -> bool:
    """Return whether a request touches the endpoints of one of the Services."""
    collection, _, name = call.path.rpartition("/")
    is_touch = call.verb == "PATCH" and collection.endswith("/endpointslices")
    return is_touch and any(name.startswith(f"{service}-") for service in services)


def _concerns(call: Any, name: str) -> bool:
    """Return whether a request is about a Service, its load balancer or an Event of it.

    kube-vip announces a lease that was pending with the touch of the endpoints.
    """
    body = call.body or {}
    is_event = (body.get("involvedObject") or {}).get("name") == name
    return is_event or f"/services/{name}" in call.path or f"-{NAMESPACE}-{name}-" in call.path


def is_about_announcement(call: Any, unnoted: Set[str]) -> bool:
    """Return whether condition and record follow the first announcement of a Service, or an Event explains its absence.

    kube-vip announces a Service about which it has stayed silent when the EndpointSlices are touched here. ``unnoted``
    are the Services on which it has noted no node before.
    """
    if call.verb == "POST":
        return (call.body or {}).get("reason") in UNANNOUNCED
    name = call.path.removesuffix("/status").rpartition("/")[2]
    if call.verb != "PATCH" or name not in unnoted:
        return False
    metadata = call.body.get("metadata") or {}
    is_record_at_most = set(metadata.get("annotations") or {}) <= {ANNOUNCED_AS}
    is_condition_at_most = set(call.body.get("status") or {}) <= {"conditions"}
    return set(metadata) <= {"uid", "annotations"} and is_record_at_most and is_condition_at_most


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the garbage collector, whose times depend on memory."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
