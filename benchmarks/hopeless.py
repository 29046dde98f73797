"""Services among some that can never be served: they must not wait for those."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from benchmarks.allocator import MISSING_POOL
from benchmarks.arena import PATIENCE, Arena
from benchmarks.audit import tally
from benchmarks.load import Body, names_of, service_body
from benchmarks.result import Measurement, Section
from harvester_ccm.names import IP_POOL

ROUNDS: Final = 3
"""Of each kind, in turn, because other work on the machine disturbs any one of them."""
HOPELESS_SHARE: Final = 10
"""One of so many Services is hopeless."""
RATIO: Final = 1.25
"""There are more Services to create, too: with a share of one in ten, 1.11 is the API server's."""


async def serve_among_hopeless(arena: Arena, count: int) -> Section:
    """Serve Services with and without hopeless ones between them; all are gone at the end."""
    hopeless = names_of("hopeless", count // HOPELESS_SHARE)
    good = names_of("good", count - len(hopeless))
    plain = [service_body(name) for name in good]
    # Early ones, and some between the others.
    mixed = _interleaved(plain, [service_body(name, {IP_POOL: MISSING_POOL}) for name in hopeless])
    without, among, requests = [], [], 0
    remarks: tuple[str, ...] = ()
    for _ in range(ROUNDS):
        without.append(await _serve(arena, plain, good))
        await _remove(arena, good)
        mark = await arena.idle_mark()
        among.append(await _serve(arena, mixed, good))
        traffic = await arena.settled(mark)
        requests = max(requests, len(traffic.harvester) - 2 * len(good))
        remarks = (f"Harvester: {tally(traffic.harvester)}",)
        await _remove(arena, [*good, *hopeless])
    return Section(
        f"{len(good)} Services among {len(hopeless)} that can never be served (middle of {ROUNDS} rounds each)",
        [
            Measurement("first create to last VIP, without them", median(without), "s"),
            Measurement("first create to last VIP, among them", median(among), "s"),
            Measurement("the latter over the former", median(among) / median(without), target=RATIO),
            Measurement("requests to Harvester for each of them", requests / len(hopeless), target=1),
        ],
        remarks,
    )


def _interleaved(many: Sequence[Body], few: Sequence[Body]) -> list[Body]:
    """Return all of both, with one of the few before each group of the many."""
    size = -(-len(many) // len(few))
    return [one for number, odd in enumerate(few) for one in (odd, *many[number * size : (number + 1) * size])]


async def _serve(arena: Arena, bodies: Sequence[Body], names: Sequence[str]) -> float:
    span = await arena.load.create(bodies)
    return await arena.services.all_served(names, within=PATIENCE) - span.began


async def _remove(arena: Arena, names: Sequence[str]) -> None:
    chosen = set(names)
    await arena.load.delete(names)
    await arena.services.until(
        lambda: not any(one.metadata.name in chosen for one in arena.services.all()),
        within=PATIENCE,
        what="the deletion of the Services",
    )
    await arena.balancers.until(
        lambda: not arena.balancers.all(), within=PATIENCE, what="the deletion of the load balancers"
    )
