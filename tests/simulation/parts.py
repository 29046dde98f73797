"""Sequences of acts that some stories contain in addition: rare faults, and earlier failures.

Their random numbers are separate: the other acts of a story do not depend on them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from harvester_ccm.names import IP_POOL, IPAM, PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.acts import LAN, LATE, SERVICES, Act, ports_of

Part = Callable[[random.Random, Sequence[str]], list[Act]]
NUMBERS: Final = (0, 0, 1, 1, 2, 3)
"""How many parts a story has."""


def with_parts(seed: str, acts: Sequence[Act], names: Sequence[str]) -> list[Act]:
    """Return the acts of a story with its parts among them. ``names`` are the Services that it may have."""
    dice, found = random.Random(f"{seed} parts"), list(acts)
    for _ in range(dice.choice(NUMBERS)):
        at = dice.randint(1, len(found))
        found[at:at] = dice.choice(PARTS)(dice, names)
    return found


def _pause(dice: random.Random) -> float:
    return round(dice.uniform(0, dice.choice((0.0, 0.5, 5.0, 40.0))), 3)


def _weather(side: str, kind: str, seconds: float, share: float, of: str = "", *, pause: float = 0.0) -> Act:
    return Act(pause, "weather", {"side": side, "kind": kind, "seconds": seconds, "share": share, "of": of})


# Faults.


def _lease_away(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """The Lease cannot be renewed, while all else works."""
    kind = dice.choice(("connections refused", "503s", "409s", "slow", "lost answers"))
    seconds = dice.choice((15.0, 40.0, 70.0, 150.0))
    bad = _weather("guest", kind, seconds, dice.choice((0.7, 1.0)), "lease")
    return [Act(_pause(dice), "rival", {}), bad, Act(seconds * dice.choice((0.1, 0.7)), "wait", {})]


def _suspended(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """The leader is suspended for longer than its lease duration, with a standby."""
    return [
        Act(_pause(dice), "rival", {}),
        Act(dice.choice((0.5, 5.0)), "halt", {"seconds": dice.choice((70, 100, 130))}),
        Act(dice.choice((30.0, 80.0)), "wait", {}),
    ]


def _dropped_events(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """Some changes are not delivered to watches."""
    side = dice.choice(("guest", "harvester"))
    return [_weather(side, "dropped events", dice.choice((0.2, 2.0, 15.0)), dice.choice((0.2, 0.5, 1.0)))]


def _restored(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """An older backup of one side is restored, once or twice, with something done in between."""
    acts = [_restore(dice)]
    if dice.random() < 0.5:
        name = dice.choice(names)
        acts.append(Act(_pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}))
        acts.append(Act(_pause(dice), "delete", {"name": dice.choice(names)}))
    if dice.random() < 0.3:
        acts.append(_restore(dice))
    return acts


def _restore(dice: random.Random) -> Act:
    back, away = dice.choice((1.0, 5.0, 20.0, 60.0, 300.0)), dice.choice((1.0, 5.0, 60.0))
    return Act(_pause(dice), "restore", {"side": dice.choice(("guest", "harvester")), "back": back, "away": away})


def _cloned(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """A clone of the guest cluster starts; its users create and delete Services."""
    name = dice.choice(SERVICES)
    more = {"name": name, "ports": ports_of(dice, name), "annotations": {}}
    return [
        Act(_pause(dice), "clone", {}),
        *([Act(dice.choice((0.5, 30.0, 90.0)), "wait", {})]),
        *([Act(_pause(dice), "in_clone", {"verb": "delete", "name": dice.choice(names)})] * dice.randint(0, 1)),
        *([Act(_pause(dice), "in_clone", {"verb": "create", **more})] * dice.randint(0, 1)),
        *([Act(_pause(dice), "in_clone", {"verb": "clear_status", "name": dice.choice(names)})] * dice.randint(0, 1)),
        *([Act(_pause(dice), "in_clone", {"verb": "delete", "name": name})] if dice.random() < 0.3 else []),
    ]


def _kube_vip_restarts(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """kube-vip restarts."""
    return [Act(_pause(dice), "restart_kube_vip", {})]


# User actions.


def _from_dhcp(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """A Service gets its address from DHCP, which takes its time, and may be moved to Harvester and back."""
    name, kind = dice.choice(names), dice.choice(("vm", "cluster"))
    annotations = {IPAM: "dhcp"} | ({WORKLOAD_TYPE: kind} if dice.random() < 0.4 else {})
    return [
        *([Act(_pause(dice), "stop_dhcp", {"seconds": dice.choice((5.0, 20.0, 60.0))})] if dice.random() < 0.4 else []),
        *([Act(_pause(dice), "delete", {"name": name})] if dice.random() < 0.6 else []),
        Act(_pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": annotations}),
        Act(_pause(dice), "annotate", {"name": name, "annotations": dict(annotations)}),
        *([Act(_pause(dice), "annotate", {"name": name, "annotations": {WORKLOAD_TYPE: kind}})] * dice.randint(0, 1)),
    ]


# Changes of pools.


def _pool_shrinks(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """The pool gets fewer addresses."""
    name = dice.choice(names)
    return [
        Act(_pause(dice), "resize_pool", {"by": -dice.randint(1, 3)}),
        Act(_pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        Act(_pause(dice), "resize_pool", {"by": dice.randint(-1, 2)}),
    ]


def _pool_is_closed(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """The pool serves others for a while, or from now on."""
    name = dice.choice(names)
    return [
        Act(_pause(dice), "open_pool", {"to_everybody": False}),
        Act(_pause(dice), "delete", {"name": name}),
        Act(_pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        *([Act(_pause(dice), "open_pool", {"to_everybody": True})] if dice.random() < 0.7 else []),
    ]


def _pool_comes_late(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """A Service asks for a pool that is made later, and that may go again."""
    name = dice.choice(names)
    annotations = {IP_POOL: LATE}
    return [
        Act(_pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": annotations}),
        Act(_pause(dice), "annotate", {"name": name, "annotations": annotations}),
        Act(_pause(dice), "make_pool", {"name": LATE}),
        *([Act(_pause(dice), "delete", {"name": name})] if dice.random() < 0.5 else []),
        *([Act(_pause(dice), "delete_pool", {"name": LATE})] if dice.random() < 0.5 else []),
    ]


def _pool_is_replaced(dice: random.Random, names: Sequence[str]) -> list[Act]:
    """When no Service has an address, the pool is deleted or gets other addresses."""
    name = names[0]
    gone = [Act(_pause(dice), "delete", {"name": one}) for one in names]
    change = Act(10.0, "move_pool", {}) if dice.random() < 0.5 else Act(10.0, "delete_pool", {"name": LAN})
    return [
        *gone,
        change,
        Act(_pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        *([Act(_pause(dice), "make_pool", {"name": LAN})] if dice.random() < 0.8 else []),
    ]


# Earlier failures.


def _bad_pages(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """A proxy answers with pages while a served Service is changed."""
    return [
        Act(0.0, "create", {"name": "a", "ports": ports_of(dice, "a"), "annotations": {}}),
        _weather("guest", "404 pages", 0.3, 0.5, pause=20.0),
        Act(0.0, "change_ports", {"name": "a", "ports": ports_of(dice, "b")}),
    ]


def _primary_retyped(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """The primary becomes internal, and its load balancer is deleted."""
    return [
        Act(0.0, "create", {"name": "a", "ports": ports_of(dice, "a"), "annotations": {}}),
        Act(1.0, "create", {"name": "b", "ports": ports_of(dice, "b"), "annotations": {PRIMARY_SERVICE: "shop/a"}}),
        Act(20.0, "retype", {"name": "a", "type": "ClusterIP"}),
        Act(10.0, "delete_balancer", {"name": "a"}),
    ]


def _primary_leaves(dice: random.Random, _names: Sequence[str]) -> list[Act]:
    """The primary becomes internal while another Service begins to share its address."""
    return [
        Act(0.0, "create", {"name": "a", "ports": ports_of(dice, "a"), "annotations": {}}),
        Act(1.0, "create", {"name": "b", "ports": ports_of(dice, "b"), "annotations": {}}),
        _weather("guest", "slow", 15.0, 0.5, "writes", pause=15.0),
        Act(0.0, "annotate", {"name": "b", "annotations": {PRIMARY_SERVICE: "shop/a"}}),
        Act(round(dice.uniform(0, 2.0), 3), "retype", {"name": "a", "type": "ClusterIP"}),
    ]


PARTS: Final[Sequence[Part]] = (
    _lease_away, _suspended, _dropped_events, _restored, _restored, _cloned, _cloned, _kube_vip_restarts,
    _from_dhcp, _from_dhcp, _pool_shrinks, _pool_is_closed, _pool_comes_late, _pool_is_replaced,
    _bad_pages, _primary_retyped, _primary_leaves,
)  # fmt: skip
