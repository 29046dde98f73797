"""How many load balancers Harvester is asked for at once: as many as it takes best, which is found while running.

Harvester's controller books an address in the pool and then records it on the load balancer. As it is installed it may
write five times a second, ten times at once after a pause, and its two workers collide on the pool as soon as there
are two load balancers to do: each collision costs more of its few writes, and now and then the booking itself. Asked
for one after the other it loses nothing and is done in less than half of the time. One that is not held down like that
takes many at once.

So there is one in flight until answers have come faster than such a controller can give them. From then on each prompt
answer allows one more, and a late one halves what is allowed, as often as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import Reason

PROMPT_SECONDS: Final = 0.1
"""An answer that takes longer is late."""
PROOF_SECONDS: Final = 1.0
PROOF_ANSWERS: Final = 16
"""So many prompt answers within that time are more than ten writes at once and five a second can give."""
MOST: Final = 64
"""More at once make no Harvester faster."""
ANSWER_PATIENCE: Final = 10.0
"""Seconds after which a load balancer without an answer holds up no other one any longer."""
TURN_PATIENCE: Final = 60.0
"""Seconds that a Service waits for its turn before we tell; Harvester gives more than a hundred addresses in them."""

WAITS_FOR_TURN: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "The load balancer is created when Harvester has answered for those that were asked for before it; it is asked for "
    "as many at once as it answers promptly. If this stays, check that the deployment harvester-load-balancer in "
    "namespace harvester-system is running",
)


@dataclass(frozen=True)
class Pace:
    """What Harvester's answers so far allow. Times are of one clock."""

    limit: int = 1
    """So many load balancers may be without an answer at once."""
    prompt: tuple[float, ...] = ()
    """When the latest prompt answers came; a late one begins anew."""
    slowed: float = float("-inf")
    """When the limit was lowered last."""


def after_answer(pace: Pace, asked: float, now: float) -> Pace:
    """Return the pace after an answer; ``asked`` is when the load balancer was created.

    What was asked for before the limit was lowered is late for the same reason, and lowers it no further.
    """
    if now - asked <= PROMPT_SECONDS:
        prompt = (*pace.prompt, now)[-PROOF_ANSWERS:]
        proven = len(prompt) == PROOF_ANSWERS and now - prompt[0] <= PROOF_SECONDS
        limit = min(pace.limit + 1, MOST) if proven or pace.limit > 1 else 1
        return Pace(limit, prompt, pace.slowed)
    if asked < pace.slowed:
        return Pace(pace.limit, (), pace.slowed)
    return Pace(max(pace.limit // 2, 1), (), now)


def next_turns(waiting: Iterable[str], busy: int, pace: Pace) -> tuple[str, ...]:
    """Return who of those that wait may go on while ``busy`` others are not answered: the first, in their order."""
    return tuple(islice(waiting, max(pace.limit - busy, 0)))


def is_answered(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester has done what it can for a load balancer for now: given an address, or said why not."""
    given = load_balancer.allocated_ip or load_balancer.address
    return bool(given) or load_balancer.ready is not None or load_balancer.metadata.deleting
