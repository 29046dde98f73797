"""The benchmarks themselves: each brings the arena into a state, measures, and returns a section of the report.

They build on one another in the order of ``run_all``: the Services of ``serve_bulk`` are those that the restart, the
rename and the deletion find.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.arena import CLUSTER, PATIENCE, Arena, Traffic, Usage
from benchmarks.audit import count_of, tally
from benchmarks.hopeless import serve_among_hopeless
from benchmarks.joins import join_nodes
from benchmarks.load import NAMESPACE, Body, Span, names_of, service_body
from benchmarks.machine import resident_bytes
from benchmarks.nodes import create_nodes
from benchmarks.result import Measurement, Section, percentile
from harvester_ccm.names import LB_CLUSTER, LB_SERVICE_NAME, PRIMARY_SERVICE, WORKLOAD_TYPE

MIB: Final = 2**20
WARM_UP: Final = 3
"""Services served before anything is measured: first connections, first imports."""
LATENCY_MS: Final = 100.0
BULK_SECONDS: Final = 5.0
"""Load balancers are created one at a time."""
RESTART_REQUESTS: Final = 14
MEMORY_MIB: Final = 60.0

GO_LATENCY_MS: Final = 1020.0
"""Recorded, as all of these are; docs/benchmarks.md says what is known of the record."""
GO_BULK_SECONDS_EACH: Final = 1.03
"""One worker that sleeps a second for each Service: 103 s for 100."""
GO_MEMORY_MIB: Final = 80.0
GO_GETS: Final = 3
"""At least, for the first of the two rounds that a new Service costs it."""
GO_RESTART_REQUESTS_EACH: Final = 4
"""To Harvester, for every Service that is served already."""

VM: Final[Mapping[str, str]] = {WORKLOAD_TYPE: "vm"}
ROUNDS: Final = 3
"""Bulks of Services that are served, because other work on the machine disturbs any one of them."""
SECONDARIES_EACH: Final = 10


async def run_all(arena: Arena, count: int, singles: int) -> AsyncIterator[Section]:
    """Run every benchmark with ``count`` Services in bulk and ``singles`` one after the other."""
    await create_nodes(arena.guest, arena.harvester, cluster=CLUSTER)
    alone = await time_creates_alone(arena, count)
    yield await start_cold(arena)
    yield await serve_singles(arena, singles)
    bulk = names_of("bulk", count)
    yield await serve_bulk(arena, bulk, alone)
    yield await restart(arena, bulk)
    yield await rename(arena, bulk)
    yield await delete_bulk(arena, bulk, f"Deletion of {count} served Services at once")
    yield await serve_vm(arena, names_of("vm", count))
    yield await share_addresses(arena, count)
    yield await serve_among_hopeless(arena, count)
    for section in await join_nodes(arena, count // 2):
        yield section


async def run_joins(arena: Arena) -> AsyncIterator[Section]:
    """Run only what is about Nodes."""
    await create_nodes(arena.guest, arena.harvester, cluster=CLUSTER)
    await arena.start_program()
    for section in await join_nodes(arena):
        yield section


async def time_creates_alone(arena: Arena, count: int) -> float:
    """Return the seconds that the guest's API server needs to create the Services while the program does not run."""
    names = names_of("alone", count)
    span = await arena.load.create([service_body(name) for name in names])
    await arena.load.delete(names)
    await _gone(arena, names)
    return span.seconds


async def start_cold(arena: Arena) -> Section:
    """Start the program on clusters without Services and serve the first ones."""
    mark = arena.mark()
    leading = await arena.start_program()
    traffic = await arena.settled(mark)
    usage, memory = arena.usage(), resident_bytes(arena.program.pid) / MIB
    names = names_of("warm", WARM_UP)
    for name in names:
        await _serve_one(arena, name)
    await arena.settled(mark)
    await _delete(arena, names)
    return Section(
        "Start without Services",
        [
            Measurement("from start to leading", leading, "s"),
            Measurement("processor time until idle", usage.program, "s"),
            Measurement("resident memory when idle", memory, "MiB"),
            Measurement("requests, without Lease and watches", traffic.total, target=RESTART_REQUESTS),
        ],
        _requests(traffic),
    )


async def serve_singles(arena: Arena, count: int) -> Section:
    """Serve Services one after the other; each is timed from its create request to the address in its status."""
    names = names_of("single", count)
    times = [await _serve_one(arena, name) * 1000 for name in names]
    await _delete(arena, names)
    return Section(
        f"One Service, from create to VIP in its status ({count} one after the other)",
        [
            Measurement("fastest", min(times), "ms"),
            Measurement("p50", percentile(times, 0.5), "ms", LATENCY_MS, GO_LATENCY_MS),
            Measurement("p95", percentile(times, 0.95), "ms"),
            Measurement("slowest", max(times), "ms"),
        ],
    )


async def serve_bulk(arena: Arena, names: Sequence[str], alone: float) -> Section:
    """Create Services as fast as the API server takes them, ROUNDS times, and count what serving them costs."""
    rounds = await _serve_rounds(arena, names, {})
    middle = _middle(rounds)
    count = len(names)
    return Section(
        f"{count} Services at once ({ROUNDS} rounds, numbers of the middle one)",
        [
            Measurement("first create to last VIP", middle.seconds, "s", BULK_SECONDS, GO_BULK_SECONDS_EACH * count),
            Measurement("the same, fastest round", min(one.seconds for one in rounds), "s"),
            Measurement("the same, slowest round", max(one.seconds for one in rounds), "s"),
            Measurement("last create answered to last VIP", max(0.0, middle.last - middle.creates.ended), "s"),
            Measurement("creates, program running", middle.creates.seconds, "s"),
            Measurement("creates, API server alone", alone, "s"),
            *_per_service(middle.traffic, count, posts=1, puts=1),
            Measurement("processor time of the program, until the last VIP", middle.until_served.program, "s"),
            Measurement("processor time of the program, until idle", middle.until_idle.program, "s"),
            Measurement(
                "processor time of the API servers and etcds, until the last VIP", middle.until_served.servers, "s"
            ),
            Measurement("processor time of others on the machine, until the last VIP", middle.until_served.others, "s"),
            _peak(arena),
        ],
        _requests(middle.traffic),
    )


@dataclass(frozen=True)
class _Round:
    """One bulk of Services, from the first request until the program was idle again."""

    creates: Span
    last: float
    """Loop time at which the last Service got its address."""
    until_served: Usage
    until_idle: Usage
    traffic: Traffic

    @property
    def seconds(self) -> float:
        """From the first create request to the last address."""
        return self.last - self.creates.began


async def _serve_rounds(arena: Arena, names: Sequence[str], annotations: Mapping[str, str]) -> list[_Round]:
    """Serve the Services ROUNDS times; those of the last round stay."""
    bodies = [service_body(name, annotations) for name in names]
    rounds = [await _serve(arena, bodies, names)]
    while len(rounds) < ROUNDS:
        await _delete(arena, names)
        rounds.append(await _serve(arena, bodies, names))
    return rounds


def _middle(rounds: Sequence[_Round]) -> _Round:
    return sorted(rounds, key=lambda one: one.seconds)[len(rounds) // 2]


async def _serve(arena: Arena, bodies: Sequence[Body], names: Sequence[str]) -> _Round:
    mark = await arena.idle_mark()
    before = arena.usage()
    creates = await arena.load.create(bodies)
    last = await arena.services.all_served(names, within=PATIENCE)
    until_served = arena.usage().since(before)
    traffic = await arena.settled(mark)
    return _Round(creates, last, until_served, arena.usage().since(before), traffic)


async def restart(arena: Arena, names: Sequence[str]) -> Section:
    """Restart the program while all Services are served: nothing may change, and little may be asked."""
    return await _start_again(arena, names, title=f"Restart with {len(names)} served Services")


async def rename(arena: Arena, names: Sequence[str]) -> Section:
    """Restart the program under another cluster name, with the former one: all is taken over with its address."""
    title = f"Restart under another cluster name with {len(names)} served Services"
    return await _start_again(arena, names, title=title, cluster="bench-renamed")


async def delete_bulk(arena: Arena, names: Sequence[str], title: str) -> Section:
    """Delete all Services at once; they and their load balancers must be gone."""
    mark = await arena.idle_mark()
    before = arena.usage()
    began = asyncio.get_running_loop().time()
    span = await _delete(arena, names)
    seconds = asyncio.get_running_loop().time() - began
    traffic = await arena.settled(mark)
    return Section(
        title,
        [
            Measurement("first delete to last one gone", seconds, "s"),
            Measurement("deletes answered after", span, "s"),
            Measurement("requests to Harvester for each", len(traffic.harvester) / len(names)),
            Measurement("requests to the guest for each", len(traffic.guest) / len(names)),
            Measurement("processor time of the program, until idle", arena.usage().since(before).program, "s"),
        ],
        _requests(traffic),
    )


async def serve_vm(arena: Arena, names: Sequence[str]) -> Section:
    """Serve Services by VM load balancers, then delete them."""
    served = _middle(await _serve_rounds(arena, names, VM))
    gone = await delete_bulk(arena, names, "")
    return Section(
        f"{len(names)} Services at once on VM load balancers (middle of {ROUNDS} rounds)",
        [
            Measurement("first create to last VIP", served.seconds, "s", BULK_SECONDS),
            *_per_service(served.traffic, len(names), posts=1, puts=0),
            Measurement("processor time of the program, until idle", served.until_idle.program, "s"),
            gone.measurements[0],
            _peak(arena),
        ],
        _requests(served.traffic),
    )


async def share_addresses(arena: Arena, count: int) -> Section:
    """Serve primaries, then let many Services share their addresses; deletion in one go ends it."""
    primaries = names_of("primary", max(1, count // SECONDARIES_EACH))
    await _serve(arena, [service_body(name) for name in primaries], primaries)
    names = names_of("secondary", count)
    bodies = [
        service_body(name, {PRIMARY_SERVICE: f"{NAMESPACE}/{primaries[number % len(primaries)]}"}, port=8000 + number)
        for number, name in enumerate(names)
    ]
    served = await _serve(arena, bodies, names)
    addresses = set(arena.services.addresses(names).values())
    gone = await delete_bulk(arena, [*names, *primaries], "")
    return Section(
        f"{count} secondary Services on {len(primaries)} primaries",
        [
            Measurement("first create to last VIP", served.seconds, "s", BULK_SECONDS),
            Measurement("addresses more than primaries", max(0, len(addresses) - len(primaries)), target=0),
            Measurement("requests to Harvester", len(served.traffic.harvester), target=0),
            Measurement("requests to the guest for each", len(served.traffic.guest) / count),
            Measurement("processor time of the program, until idle", served.until_idle.program, "s"),
            gone.measurements[0],
            _peak(arena),
        ],
        _requests(served.traffic),
    )


async def _serve_one(arena: Arena, name: str) -> float:
    span = await arena.load.create([service_body(name)])
    return await arena.services.all_served([name], within=PATIENCE) - span.began


async def _start_again(arena: Arena, names: Sequence[str], *, title: str, cluster: str | None = None) -> Section:
    addresses = arena.services.addresses(names)
    await arena.stop_program()
    events, mark = await arena.events(), arena.mark()
    leading = await arena.start_program(renamed=cluster or "")
    if cluster is not None:
        await _labelled(arena, names, cluster)
    traffic = await arena.settled(mark)
    usage, told = arena.usage(), sum((await arena.events()).values()) - sum(events.values())
    moved = sum(1 for name, old in addresses.items() if arena.services.addresses([name]).get(name) != old)
    renamed = cluster is not None
    requests = Measurement(
        "requests, without Lease and watches",
        traffic.total,
        target=None if renamed else RESTART_REQUESTS,
        go=None if renamed else GO_RESTART_REQUESTS_EACH * len(names),
    )
    return Section(
        title,
        [
            Measurement("from start to leading", leading, "s"),
            requests,
            *(_per_service(traffic, len(names), posts=0, puts=1) if renamed else ()),
            Measurement("Events on Services", told, target=None if renamed else 0),
            Measurement("addresses changed", moved, target=0),
            Measurement("processor time until idle", usage.program, "s"),
            _peak(arena),
        ],
        _requests(traffic),
    )


async def _labelled(arena: Arena, names: Sequence[str], cluster: str) -> None:
    chosen = set(names)

    def done() -> bool:
        mine = [one.metadata for one in arena.balancers.all() if one.metadata.label(LB_SERVICE_NAME) in chosen]
        return len(mine) == len(chosen) and all(meta.label(LB_CLUSTER) == cluster for meta in mine)

    await arena.balancers.until(done, within=PATIENCE, what=f"every load balancer to be labelled {cluster}")


async def _delete(arena: Arena, names: Sequence[str]) -> float:
    """Delete Services and wait until they and their load balancers are gone; return the seconds the deletes took."""
    span = await arena.load.delete(names)
    await _gone(arena, names)
    return span.seconds


async def _gone(arena: Arena, names: Sequence[str]) -> None:
    chosen, seconds = set(names), PATIENCE
    await arena.services.until(
        lambda: not any(one.metadata.name in chosen for one in arena.services.all()),
        within=seconds,
        what="the deletion of the Services",
    )
    await arena.balancers.until(
        lambda: not any(one.metadata.label(LB_SERVICE_NAME) in chosen for one in arena.balancers.all()),
        within=seconds,
        what="the deletion of the load balancers",
    )


def _per_service(traffic: Traffic, count: int, *, posts: int, puts: int) -> list[Measurement]:
    harvester = traffic.harvester
    new = posts > 0
    return [
        Measurement("POST to Harvester for each", count_of(harvester, verb="create") / count, "", posts),
        Measurement("PUT to Harvester for each", count_of(harvester, verb="update") / count, "", puts),
        Measurement(
            "GET to Harvester for each", count_of(harvester, verb="get") / count, "", 0, GO_GETS if new else None
        ),
        Measurement("requests to the guest for each", len(traffic.guest) / count),
    ]


def _peak(arena: Arena) -> Measurement:
    return Measurement("peak memory", arena.program.peak_memory() / MIB, "MiB", MEMORY_MIB, GO_MEMORY_MIB)


def _requests(traffic: Traffic) -> tuple[str, ...]:
    return (f"Harvester: {tally(traffic.harvester)}", f"guest: {tally(traffic.guest)}")
