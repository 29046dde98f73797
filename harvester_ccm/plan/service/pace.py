"""How many load balancers Harvester is asked for at once: as many as it takes best, which is found while running.

Harvester's controller books an address in the pool and then records it on the load balancer. As it is installed it may
write five times a second, ten times at once after a pause, and its two workers collide on the pool as soon as there
are two load balancers to do: each collision costs more of its few writes, and now and then the booking itself. Asked
for one after the other it loses nothing and is done in less than half of the time. One that is not held down like that
takes many at once.

So there is one in flight until more answers have come than such a controller can give, with one write at least for
each. From then on each prompt answer allows one more, and a late one halves what is allowed, as often as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from msgspec import Struct

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, WaitReason
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.pending import pending_cause

PROMPT_SECONDS: Final = 0.1
"""An answer that takes longer is late."""
STOCK_RATE: Final = 5
"""Writes a second of a controller as it is installed."""
STOCK_BURST: Final = 10
"""So many it writes at once after a pause."""
PROOF: Final = -2
"""More than these writes must have been needed for the answers; the first of them may be older than its answer."""
MOST: Final = 64
"""More at once make no Harvester faster."""
ANSWER_PATIENCE: Final = 10.0
"""Seconds after which a load balancer without an answer holds up no other one any longer."""
RETRY_PATIENCE: Final = 3.0
"""Seconds that Harvester gets for one that it tries again by itself: several tries, as each may meet another writer."""
TURN_PATIENCE: Final = 60.0
"""Seconds that a Service waits for its turn before we tell; Harvester gives more than a hundred addresses in them."""

WAITS_FOR_TURN: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "The load balancer is created when Harvester has answered for those that were asked for before it; it is asked for "
    "as many at once as it answers promptly. If this stays, check that the deployment harvester-load-balancer in "
    "namespace harvester-system is running",
)


class Pace(Struct, frozen=True):
    """What Harvester's answers so far allow. Times are of one clock."""

    limit: int = 1
    """So many load balancers may be without an answer at once."""
    spare: float = STOCK_BURST
    """So many writes a controller as it is installed would have left after the answers, if each took one."""
    answered: float = float("-inf")
    """When the last answer came."""
    slowed: float = float("-inf")
    """When the limit was lowered last."""


def after_answer(pace: Pace, asked: float, now: float) -> Pace:
    """Return the pace after an answer; ``asked`` is when the load balancer was created.

    What was asked for before the limit was lowered is late for the same reason, and lowers it no further.
    """
    spare = max(min(pace.spare + (now - pace.answered) * STOCK_RATE, STOCK_BURST) - 1, PROOF)
    if now - asked <= PROMPT_SECONDS:
        grows = spare <= PROOF or pace.limit > 1
        return Pace(min(pace.limit + 1, MOST) if grows else 1, spare, now, pace.slowed)
    if asked < pace.slowed:
        return Pace(pace.limit, spare, now, pace.slowed)
    return Pace(max(pace.limit // 2, 1), spare, now, now)


def next_turns(waiting: Iterable[str], busy: int, pace: Pace) -> tuple[str, ...]:
    """Return who of those that wait may go on while ``busy`` others are not answered: the first, in their order."""
    return tuple(islice(waiting, max(pace.limit - busy, 0)))


def is_answered(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester has done what it can for a load balancer for now: given an address, or said why not."""
    given = load_balancer.allocated_ip or load_balancer.address or load_balancer.metadata.deleting
    return bool(given) or (load_balancer.ready is not None and not is_tried_again(load_balancer))


def is_tried_again(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester says that it met another writer, or itself, and tries again at once.

    One that is asked for meanwhile would be the next to be met, and so on: a pool is written by one at a time. Under
    load Harvester then gives back what it has just booked for a load balancer that goes on with that address.
    """
    return load_balancer.ready is not None and pending_cause(load_balancer).reason is WaitReason.ALLOCATING
