"""Sequences of actions that some scenarios contain in addition: rare faults, and earlier failures.

Their random numbers are separate: the other actions of a scenario do not depend on them.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from harvester_ccm.names import IP_POOL, IPAM, PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.actions import LAN, LATE, SERVICES, Action, Fragment, pause, ports_of
from tests.simulation.announcing import OF_ANNOUNCING
from tests.simulation.interruptions import OF_INTERRUPTIONS
from tests.simulation.other_clients import OF_OTHER_CLIENTS
from tests.simulation.requesting import OF_REQUESTING
from tests.simulation.reshaping import OF_RESHAPING


def with_fragments(seed: str, actions: Sequence[Action], names: Sequence[str]) -> list[Action]:
    """Return the actions of a scenario with its fragments. ``names`` are the Services that it may have."""
    found = list(actions)
    for title, family in FAMILIES.items():
        dice = random.Random(f"{seed} {title}")
        for _ in range(dice.choice(NUMBERS[title])):
            at = dice.randint(1, len(found))
            found[at:at] = dice.choice(family)(dice, names)
    return found


def _network_fault(side: str, kind: str, seconds: float, share: float, of: str = "", *, after: float = 0.0) -> Action:
    return Action(after, "network_fault", {"side": side, "kind": kind, "seconds": seconds, "share": share, "of": of})


# Faults.


def _lease_away(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """The Lease cannot be renewed, while all else works."""
    kind = dice.choice(("connections refused", "503s", "409s", "slow", "lost answers"))
    seconds = dice.choice((15.0, 40.0, 70.0, 150.0))
    bad = _network_fault("guest", kind, seconds, dice.choice((0.7, 1.0)), "lease")
    return [Action(pause(dice), "rival", {}), bad, Action(seconds * dice.choice((0.1, 0.7)), "wait", {})]


def _suspended(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """The leader is suspended for longer than its lease duration, with a standby."""
    return [
        Action(pause(dice), "rival", {}),
        Action(dice.choice((0.5, 5.0)), "halt", {"seconds": dice.choice((70, 100, 130))}),
        Action(dice.choice((30.0, 80.0)), "wait", {}),
    ]


def _dropped_events(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """Some changes are not delivered to watches."""
    side = dice.choice(("guest", "harvester"))
    return [_network_fault(side, "dropped events", dice.choice((0.2, 2.0, 15.0)), dice.choice((0.2, 0.5, 1.0)))]


def _restored(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """An older backup of one side is restored, once or twice, with something done in between."""
    actions = [_restore(dice)]
    if dice.random() < 0.5:
        name = dice.choice(names)
        actions.append(Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}))
        actions.append(Action(pause(dice), "delete", {"name": dice.choice(names)}))
    if dice.random() < 0.3:
        actions.append(_restore(dice))
    return actions


def _restore(dice: random.Random) -> Action:
    back, away = dice.choice((1.0, 5.0, 20.0, 60.0, 300.0)), dice.choice((1.0, 5.0, 60.0))
    return Action(pause(dice), "restore", {"side": dice.choice(("guest", "harvester")), "back": back, "away": away})


def _cloned(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A clone of the guest cluster starts; its users create and delete Services."""
    name = dice.choice(SERVICES)
    more = {"name": name, "ports": ports_of(dice, name), "annotations": {}}
    return [
        Action(pause(dice), "clone", {}),
        *([Action(dice.choice((0.5, 30.0, 90.0)), "wait", {})]),
        *([Action(pause(dice), "in_clone", {"verb": "delete", "name": dice.choice(names)})] * dice.randint(0, 1)),
        *([Action(pause(dice), "in_clone", {"verb": "create", **more})] * dice.randint(0, 1)),
        *([Action(pause(dice), "in_clone", {"verb": "clear_status", "name": dice.choice(names)})] * dice.randint(0, 1)),
        *([Action(pause(dice), "in_clone", {"verb": "delete", "name": name})] if dice.random() < 0.3 else []),
    ]


def _kube_vip_restarts(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    return [Action(pause(dice), "restart_kube_vip", {})]


# User actions.


def _from_dhcp(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service gets its address from DHCP, which takes its time, and may be moved to Harvester and back."""
    name, kind = dice.choice(names), dice.choice(("vm", "cluster"))
    annotations = {IPAM: "dhcp"} | ({WORKLOAD_TYPE: kind} if dice.random() < 0.4 else {})
    return [
        *(
            [Action(pause(dice), "stop_dhcp", {"seconds": dice.choice((5.0, 20.0, 60.0))})]
            if dice.random() < 0.4
            else []
        ),
        *([Action(pause(dice), "delete", {"name": name})] if dice.random() < 0.6 else []),
        Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": annotations}),
        Action(pause(dice), "annotate", {"name": name, "annotations": dict(annotations)}),
        *([Action(pause(dice), "annotate", {"name": name, "annotations": {WORKLOAD_TYPE: kind}})] * dice.randint(0, 1)),
    ]


# Changes of pools.


def _pool_shrinks(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The pool gets fewer addresses."""
    name = dice.choice(names)
    return [
        Action(pause(dice), "resize_pool", {"by": -dice.randint(1, 3)}),
        Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        Action(pause(dice), "resize_pool", {"by": dice.randint(-1, 2)}),
    ]


def _pool_is_closed(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The pool serves others for a while, or from now on."""
    name = dice.choice(names)
    return [
        Action(pause(dice), "open_pool", {"to_everybody": False}),
        Action(pause(dice), "delete", {"name": name}),
        Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        *([Action(pause(dice), "open_pool", {"to_everybody": True})] if dice.random() < 0.7 else []),
    ]


def _pool_comes_late(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service asks for a pool that is made later, and that may go again."""
    name = dice.choice(names)
    annotations = {IP_POOL: LATE}
    return [
        Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": annotations}),
        Action(pause(dice), "annotate", {"name": name, "annotations": annotations}),
        Action(pause(dice), "make_pool", {"name": LATE}),
        *([Action(pause(dice), "delete", {"name": name})] if dice.random() < 0.5 else []),
        *([Action(pause(dice), "delete_pool", {"name": LATE})] if dice.random() < 0.5 else []),
    ]


def _pool_is_replaced(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """When no Service has an address, the pool is deleted or gets other addresses."""
    name = names[0]
    gone = [Action(pause(dice), "delete", {"name": one}) for one in names]
    change = Action(10.0, "move_pool", {}) if dice.random() < 0.5 else Action(10.0, "delete_pool", {"name": LAN})
    return [
        *gone,
        change,
        Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        *([Action(pause(dice), "make_pool", {"name": LAN})] if dice.random() < 0.8 else []),
    ]


# Earlier failures.


def _bad_pages(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """A proxy answers with pages while a served Service is changed."""
    return [
        Action(0.0, "create", {"name": "a", "ports": ports_of(dice, "a"), "annotations": {}}),
        _network_fault("guest", "404 pages", 0.3, 0.5, after=20.0),
        Action(0.0, "change_ports", {"name": "a", "ports": ports_of(dice, "b")}),
    ]


def _primary_retyped(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """The primary becomes internal, and its load balancer is deleted."""
    return [
        Action(0.0, "create", {"name": "a", "ports": ports_of(dice, "a"), "annotations": {}}),
        Action(1.0, "create", {"name": "b", "ports": ports_of(dice, "b"), "annotations": {PRIMARY_SERVICE: "shop/a"}}),
        Action(20.0, "retype", {"name": "a", "type": "ClusterIP"}),
        Action(10.0, "delete_balancer", {"name": "a"}),
    ]


def _primary_leaves(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """The primary becomes internal while another Service begins to share its address."""
    return [
        Action(0.0, "create", {"name": "a", "ports": ports_of(dice, "a"), "annotations": {}}),
        Action(1.0, "create", {"name": "b", "ports": ports_of(dice, "b"), "annotations": {}}),
        _network_fault("guest", "slow", 15.0, 0.5, "writes", after=15.0),
        Action(0.0, "annotate", {"name": "b", "annotations": {PRIMARY_SERVICE: "shop/a"}}),
        Action(round(dice.uniform(0, 2.0), 3), "retype", {"name": "a", "type": "ClusterIP"}),
    ]


FRAGMENTS: Final[Sequence[Fragment]] = (
    _lease_away, _suspended, _dropped_events, _restored, _restored, _cloned, _cloned, _kube_vip_restarts,
    _from_dhcp, _from_dhcp, _pool_shrinks, _pool_is_closed, _pool_comes_late, _pool_is_replaced,
    _bad_pages, _primary_retyped, _primary_leaves,
)  # fmt: skip

FAMILIES: Final[Mapping[str, Sequence[Fragment]]] = {
    "parts": FRAGMENTS,
    "other clients": OF_OTHER_CLIENTS,
    "reshaping": OF_RESHAPING,
    "interruptions": OF_INTERRUPTIONS,
    "announcing": OF_ANNOUNCING,
    "requesting": OF_REQUESTING,
}
NUMBERS: Final[Mapping[str, Sequence[int]]] = {
    "parts": (0, 0, 1, 1, 2, 3),
    "other clients": (0, 0, 0, 1, 1, 2),
    "reshaping": (0, 0, 0, 1, 1, 2),
    "interruptions": (0, 0, 1, 1),
    "announcing": (0, 0, 1, 1, 2),
    "requesting": (0, 0, 0, 1, 1, 2),
}
"""How many fragments of each family a scenario has."""
