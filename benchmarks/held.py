"""Many Services: what it costs to serve thousands of them, to hold them, to start with them, and to let them go.

They grow in steps, and what each step costs is set beside the ones before: one more Service must not cost more where
there are many. The larger part has load balancers of the cluster and no node ports, of which a cluster has fewer than
Services; a fifth of them has load balancers that Harvester's VMs stand behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.arena import CLUSTER, PATIENCE, Arena, Traffic
from benchmarks.audit import tally
from benchmarks.load import Body, names_of, service_body
from benchmarks.machine import resident_bytes
from benchmarks.nodes import create_nodes
from benchmarks.observed import Step
from benchmarks.result import Measurement, Section, columns, number
from harvester_ccm.names import WORKLOAD_TYPE

SHARES: Final = (10, 5, 2, 1)
"""All Services are divided by these for the sizes that are measured."""
VM_SHARE: Final = 5
MIB: Final = 2**20
MINUTE: Final = 60.0
PATIENCE_EACH: Final = 0.2
"""Seconds more for each Service."""

IDLE_MIB: Final = 52.0
MEMORY_MIB: Final = 118.0
QUIET_SECONDS: Final = 0.5
STEP_MS: Final = 100.0
RESTART_REQUESTS: Final = 14
FRESH_SECONDS: Final = 3.0
GROWTH: Final = 1.25
"""What one Service costs among all of them, over what it costs among a tenth."""


@dataclass(frozen=True)
class Cost:
    """What something cost the program."""

    seconds: float
    processor: float
    """Seconds of processor time, until it was idle again."""
    traffic: Traffic
    memory: float
    """Resident MiB at the end."""
    step: Step
    """The longest one of the event loop."""


@dataclass(frozen=True)
class Start:
    """What a start cost the program that found all Services served."""

    leading: float
    """Seconds until it led."""
    cost: Cost
    peak: float
    """MiB."""
    fresh: float
    """Seconds from another start until a Service was served that was made at that moment."""
    fresher: float
    """The same of one that was made as soon as the program led."""
    fresh_processor: float
    """Seconds of processor time that the program had used until both were served."""
    led: float
    """Seconds until it led then."""


@dataclass(frozen=True)
class Held:
    """What so many Services cost."""

    count: int
    added: int
    """So many of them were made in this step."""
    served: Cost
    quiet: Cost
    start: Start


class Holding:
    """The Services, and what is done with them."""

    def __init__(self, arena: Arena, prefix: str, body: Callable[[str], Body]) -> None:
        self._arena = arena
        self._prefix = prefix
        self._body = body
        self._others = len(arena.services.all())
        """Services that are there anyway."""
        self.names: list[str] = []
        self.leading = 0.0
        """Seconds until the program led that was started together with a new Service."""

    async def grow(self, count: int) -> Held:
        """Have so many in all, and measure what that costs."""
        names = names_of(self._prefix, count)[len(self.names) :]

        async def serve() -> None:
            await self._arena.load.create([self._body(name) for name in names])
            await self._served([*self.names, *names])

        served = await self.cost(serve)
        self.names += names
        quiet = await self.cost(lambda: asyncio.sleep(MINUTE))
        return Held(count, len(names), served, quiet, await self._start())

    async def remove(self) -> Cost:
        """Delete all, and measure what that costs."""

        async def remove() -> None:
            await self._arena.load.delete(self.names)
            await self._gone()

        cost = await self.cost(remove)
        self.names.clear()
        return cost

    async def cost(self, work: Callable[[], Awaitable[None]]) -> Cost:
        """Return what some work cost the program."""
        arena, loop = self._arena, asyncio.get_running_loop()
        mark = await arena.idle_mark()
        await arena.longest_step()
        before, began = arena.usage().program, loop.time()
        await work()
        seconds = loop.time() - began
        traffic = await arena.settled(mark, within=self._patience)
        processor = arena.usage().program - before
        return Cost(seconds, processor, traffic, resident_bytes(arena.program.pid) / MIB, await arena.longest_step())

    async def _start(self) -> Start:
        fresh, fresher, fresh_processor = await self._start_with_others()
        arena = self._arena
        await arena.stop_program()
        mark = arena.mark()
        leading = await arena.start_program(observed=True)
        traffic = await arena.settled(mark, within=self._patience)
        memory, processor = resident_bytes(arena.program.pid) / MIB, arena.usage().program
        cost = Cost(leading, processor, traffic, memory, await arena.longest_step())
        return Start(leading, cost, arena.program.peak_memory() / MIB, fresh, fresher, fresh_processor, self.leading)

    async def _start_with_others(self) -> tuple[float, float, float]:
        """Return how long after a start two Services were served, one made at the start and one when it leads, and the
        processor time until then.
        """
        arena, loop = self._arena, asyncio.get_running_loop()
        early, late = names_of(f"{self._prefix}-new", 2)
        await arena.stop_program()
        await arena.lease_free()
        began = loop.time()
        starting = asyncio.ensure_future(arena.start_program(observed=True))
        await arena.load.create([self._body(early)])
        self.leading = await starting
        await arena.load.create([self._body(late)])
        times = [await arena.services.all_served([name], within=self._patience) - began for name in (early, late)]
        processor = arena.usage().program
        await arena.idle_mark()
        await arena.load.delete([early, late])
        await self._served(self.names)
        await arena.services.until(
            lambda: len(arena.services.informer) == self._others + len(self.names),
            within=self._patience,
            what="the deletion of two Services",
        )
        await arena.idle_mark()
        return times[0], times[1], processor

    async def _served(self, names: Sequence[str]) -> None:
        # A look at each of them after every change would be the most expensive part of the benchmark.
        served = self._arena.services.served_at
        await self._arena.services.until(
            lambda: len(served) >= len(names) and all(name in served for name in names),
            within=self._patience,
            what=f"an address for each of {len(names)} Services",
        )

    async def _gone(self) -> None:
        services, balancers = self._arena.services, self._arena.balancers
        within = self._patience
        await services.until(
            lambda: len(services.informer) <= self._others, within=within, what="the deletion of the Services"
        )
        await balancers.until(lambda: not len(balancers.informer), within=within, what="that of the load balancers")

    @property
    def _patience(self) -> float:
        return PATIENCE + PATIENCE_EACH * (len(self.names) or 5000)


async def run_held(arena: Arena, count: int) -> AsyncIterator[Section]:
    """Run all that is about many Services; the program is started in it."""
    await create_nodes(arena.guest, arena.harvester, cluster=CLUSTER)
    await arena.start_program(observed=True)
    await arena.idle_mark()
    idle = resident_bytes(arena.program.pid) / MIB
    holding = Holding(arena, "held", lambda name: service_body(name, node_ports=False))
    found: list[Held] = []
    for share in SHARES:
        found.append(await holding.grow(count // share))
        yield _held("Services", found[-1])
    yield _deletion(f"{count} Services are deleted at once", await holding.remove(), count)
    yield _side_by_side(found, idle)
    few = count // VM_SHARE
    holding = Holding(arena, "vm", lambda name: service_body(name, {WORKLOAD_TYPE: "vm"}))
    yield _held("Services on VM load balancers", await holding.grow(few))
    yield _deletion(f"{few} Services on VM load balancers are deleted at once", await holding.remove(), few)


def _held(what: str, held: Held) -> Section:
    served, quiet, start = held.served, held.quiet, held.start
    return Section(
        f"{held.count} {what}, {held.added} of them new",
        [
            Measurement("first create to last VIP of the new ones", served.seconds, "s"),
            Measurement("  requests for each", served.traffic.total / held.added),
            Measurement("  processor time of the program, until idle", served.processor, "s"),
            Measurement("  longest step of the event loop", 1000 * served.step.seconds, "ms", STEP_MS),
            Measurement("  resident memory", served.memory, "MiB", MEMORY_MIB),
            Measurement("a quiet minute: requests, without Lease and watches", quiet.traffic.total, target=0),
            Measurement("  processor time of the program", quiet.processor, "s", QUIET_SECONDS),
            Measurement("  longest step of the event loop", 1000 * quiet.step.seconds, "ms", STEP_MS),
            Measurement("  resident memory", quiet.memory, "MiB", MEMORY_MIB),
            Measurement("restart: from start to leading", start.leading, "s"),
            Measurement("  requests, without Lease and watches", start.cost.traffic.total, target=RESTART_REQUESTS),
            Measurement("  processor time of the program, until idle", start.cost.processor, "s"),
            Measurement("  longest step of the event loop", 1000 * start.cost.step.seconds, "ms", STEP_MS),
            Measurement("  peak memory", start.peak, "MiB", MEMORY_MIB),
            Measurement("  resident memory", start.cost.memory, "MiB", MEMORY_MIB),
            Measurement("with new Services: from start to leading", start.led, "s"),
            Measurement("  to the VIP of a Service made at the start", start.fresh, "s", FRESH_SECONDS),
            Measurement("  to the VIP of one made when the program leads", start.fresher, "s", FRESH_SECONDS),
            Measurement("  processor time of the program until then", start.fresh_processor, "s"),
        ],
        (
            *_steps({"served": served, "quiet": quiet, "restart": start.cost}),
            f"restart: Harvester: {tally(start.cost.traffic.harvester)}; guest: {tally(start.cost.traffic.guest)}",
        ),
    )


def _deletion(title: str, cost: Cost, count: int) -> Section:
    return Section(
        title,
        [
            Measurement("first delete to last one gone", cost.seconds, "s"),
            Measurement("requests for each", cost.traffic.total / count),
            Measurement("processor time of the program, until idle", cost.processor, "s"),
            Measurement("longest step of the event loop", 1000 * cost.step.seconds, "ms", STEP_MS),
            Measurement("resident memory when idle", cost.memory, "MiB", MEMORY_MIB),
        ],
        (
            *_steps({"deletion": cost}),
            f"Harvester: {tally(cost.traffic.harvester)}",
            f"guest: {tally(cost.traffic.guest)}",
        ),
    )


def _steps(costs: dict[str, Cost]) -> tuple[str, ...]:
    return tuple(
        f"longest step, {when}: {1000 * cost.step.seconds:.0f} ms, of which {1000 * cost.step.processor:.0f} ms of "
        f"processor time, in {cost.step.what}; most processor time of one {1000 * cost.step.most:.0f} ms"
        for when, cost in costs.items()
    )


def _side_by_side(found: Sequence[Held], idle: float) -> Section:
    """Return what one Service costs, by how many there are."""
    rows = {
        "serving: processor time for each, ms": [1000 * one.served.processor / one.added for one in found],
        "serving: requests for each": [one.served.traffic.total / one.added for one in found],
        "memory for each, KiB": [1024 * (one.served.memory - idle) / one.count for one in found],
        "memory for each after a restart, KiB": [1024 * (one.start.cost.memory - idle) / one.count for one in found],
        "restart: processor time for each, ms": [1000 * one.start.cost.processor / one.count for one in found],
        "resident memory, MiB": [one.served.memory for one in found],
        "quiet minute: processor time, s": [one.quiet.processor for one in found],
        "restart: processor time, s": [one.start.cost.processor for one in found],
        "restart: requests": [float(one.start.cost.traffic.total) for one in found],
        "restart: to the VIP of a new Service, s": [max(one.start.fresh, one.start.fresher) for one in found],
        "  processor time until then, s": [one.start.fresh_processor for one in found],
        "longest step of the event loop, ms": [
            1000 * max(cost.step.seconds for cost in (one.served, one.quiet, one.start.cost)) for one in found
        ],
        "  most processor time of one, ms": [
            1000 * max(cost.step.most for cost in (one.served, one.quiet, one.start.cost)) for one in found
        ],
    }
    table = columns(
        [("Services", *(str(one.count) for one in found))]
        + [(what, *map(number, values)) for what, values in rows.items()]
    )
    each = rows["serving: processor time for each, ms"]
    return Section(
        "What a Service costs among so many",
        [
            Measurement("resident memory without Services", idle, "MiB", IDLE_MIB),
            Measurement(
                f"processor time to serve one, among {found[-1].count} over among {found[0].count}",
                each[-1] / each[0],
                target=GROWTH,
            ),
        ],
        table,
    )
