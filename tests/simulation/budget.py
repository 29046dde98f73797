"""The budget of a schedule: at most two disturbances of a Service in any minute. Users act at any time.

A schedule within the budget is judged by its end. One outside of it is judged by what must never happen, only.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from harvester_ccm.names import KUBE_VIP_ADDRESSES
from tests.simulation.actions import Action

DISTURBANCES: Final = 2
MINUTE: Final = 60.0
KILLS: Final = frozenset({"kill", "kill_for", "kill_after_writes", "stop", "halt", "restart_kube_vip", "set_announcer"})
"""Ends of a process, and suspensions."""
FAULTS: Final = frozenset({
    "network_fault", "cut_watches", "compact", "restore", "stop_controllers", "stop_dhcp", "clone", "recreate_machines",
    "delete_pool_in_use",
})  # fmt: skip
"""Faults of servers, and what happens to them as a whole."""
WRITES: Final = frozenset({
    "write_status", "write_address", "write_ignore", "write_label", "write_condition", "write_finalizer",
    "touch_everything", "edit_balancer", "delete_balancer", "clear_status", "take_address", "free_address",
})  # fmt: skip
"""Writes of other programs, and of administrators to objects of the controller."""


class Disturbance(NamedTuple):
    """A disturbance: when it begins and ends, and the Service that it is of; empty for all of them."""

    begin: float
    end: float
    name: str


def disturbances_of(actions: Iterable[Action]) -> list[Disturbance]:
    """Return the disturbances of a scenario, in the order of their begin."""
    found, now = [], 0.0
    for action in actions:
        now += action.pause
        if is_disturbance(action):
            found.append(Disturbance(now, now + _seconds(action), action.more.get("name", "")))
    return found


def is_disturbance(action: Action) -> bool:
    """Return whether an action is none of a user, and not a change of the installation or of VMs."""
    if action.verb == "annotate":
        return KUBE_VIP_ADDRESSES in action.more["annotations"]
    if action.verb == "in_clone":
        return action.more["verb"] in WRITES
    return action.verb in KILLS | FAULTS | WRITES


def most_in_a_minute(actions: Iterable[Action]) -> int:
    """Return the largest number of disturbances of one Service within a minute."""
    found = disturbances_of(actions)
    names = {disturbance.name for disturbance in found}
    of_services = ([disturbance for disturbance in found if disturbance.name in {"", name}] for name in names)
    return max(map(_most_of, of_services), default=0)


def is_within_budget(actions: Iterable[Action]) -> bool:
    """Return whether a schedule with these actions is judged by its end."""
    return most_in_a_minute(actions) <= DISTURBANCES


def within_budget(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Return a scenario without each disturbance that is one too many. The pauses stay."""
    kept: list[Action] = []
    for action in actions:
        longer = [*kept, action]
        if is_disturbance(action) and not is_within_budget(longer):
            longer[-1] = Action(action.pause, "wait", {})
        kept = longer
    return tuple(kept)


def _most_of(disturbances: Sequence[Disturbance]) -> int:
    """Return the largest number of these that lie within the minute before one of them begins."""
    return max(sum(other.begin <= last.begin < other.end + MINUTE for other in disturbances) for last in disturbances)


def _seconds(action: Action) -> float:
    """Return how long a disturbance lasts."""
    if action.verb == "cut_watches":
        return MINUTE if action.more["how"] == "silent" else 0.0
    return float(action.more.get("seconds", action.more.get("away", 0.0)))
