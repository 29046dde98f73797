"""The actions of a schedule, from its seed: actions of users and administrators, and faults.

Half of the scenarios are within the budget (``budget``).

A scenario is data: any action can be left out to shorten one that fails.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harvester_ccm.names import HEALTH_CHECK_PORT, IP_POOL, IPAM, KUBE_VIP_ADDRESSES, PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.actions import LAN, LATE, SERVICES, Action, Scenario, ports_of
from tests.simulation.budget import within_budget
from tests.simulation.fragments import with_fragments
from tests.simulation.machines import MACHINES
from tests.simulation.network import ERRORS

ANNOTATIONS: Final[Sequence[Mapping[str, str | None]]] = (
    {WORKLOAD_TYPE: "vm"},
    {WORKLOAD_TYPE: "cluster"},
    {WORKLOAD_TYPE: None},
    {WORKLOAD_TYPE: "clutser"},
    {HEALTH_CHECK_PORT: "80"},
    {HEALTH_CHECK_PORT: "nonsense"},
    {HEALTH_CHECK_PORT: None},
    {IPAM: "mark"},
    {IPAM: "pool"},
    {IPAM: None},
    {IP_POOL: LATE},
    {IP_POOL: LAN},
    {IP_POOL: None},
    {PRIMARY_SERVICE: None},
    {KUBE_VIP_ADDRESSES: None},
    {"cloudprovider.harvesterhci.io/ipaam": "dhcp"},
)
"""Annotations that users set, including mistakes; None removes one."""
PAUSES: Final = (0.0, 0.0, 0.05, 0.5, 5.0, 40.0)
"""Longest pauses between two actions, in seconds."""


def scenario_of(seed: str) -> Scenario:
    dice = random.Random(f"{seed} story")
    names = SERVICES[: dice.randint(1, len(SERVICES))]
    actions = [Action(0.0, "create", {"name": names[0], **_new(dice, names, names[0])})]
    faults = dice.random() < 0.85
    nodes = dice.choice((0, 0, 1, 3))
    for _ in range(dice.randint(3, 22)):
        pause = round(dice.uniform(0, dice.choice(PAUSES)), 3)
        if actions[-1].verb == "network_fault" and dice.random() < 0.7:
            # A network fault has an effect only while other actions follow.
            pause = round(dice.uniform(0, min(actions[-1].more["seconds"], 0.5)), 3)
        make = dice.choice(FAULTS) if faults and dice.random() < 0.4 else dice.choice(USER_ACTIONS)
        if nodes and dice.random() < 0.3:
            make = dice.choice(OF_MACHINES)
        verb, more = make(dice, names)
        actions.append(Action(pause, verb, more))
    pool = dice.choice((1, 2, 3, 5, 5))
    whole = with_fragments(seed, actions, names)
    has_budget = random.Random(f"{seed} budget").random() < 0.5
    return Scenario(seed, pool, nodes, within_budget(whole) if has_budget else tuple(whole))


def _new(dice: random.Random, names: Sequence[str], name: str) -> dict[str, Any]:
    annotations = {key: value for key, value in dice.choice(ANNOTATIONS).items() if value is not None}
    if name != names[0] and dice.random() < 0.3:
        annotations[PRIMARY_SERVICE] = f"shop/{names[0]}"
    return {"ports": ports_of(dice, name), "annotations": annotations}


Made = tuple[str, dict[str, Any]]
Maker = Callable[[random.Random, Sequence[str]], Made]


def _create(dice: random.Random, names: Sequence[str]) -> Made:
    name = dice.choice(names)
    return "create", {"name": name, **_new(dice, names, name)}


def _delete(dice: random.Random, names: Sequence[str]) -> Made:
    return "delete", {"name": dice.choice(names)}


def _annotate(dice: random.Random, names: Sequence[str]) -> Made:
    return "annotate", {"name": dice.choice(names), "annotations": dict(dice.choice(ANNOTATIONS))}


def _share(dice: random.Random, names: Sequence[str]) -> Made:
    name, primary = dice.choice(names), dice.choice(names)
    named = f"shop/{primary}" if primary != name else "shop/nobody"
    return "annotate", {"name": name, "annotations": {PRIMARY_SERVICE: named}}


def _retype(dice: random.Random, names: Sequence[str]) -> Made:
    return "retype", {"name": dice.choice(names), "type": dice.choice(("ClusterIP", "LoadBalancer", "NodePort"))}


def _change_ports(dice: random.Random, names: Sequence[str]) -> Made:
    name = dice.choice(names)
    return "change_ports", {"name": name, "ports": ports_of(dice, name)}


def _clear(dice: random.Random, names: Sequence[str]) -> Made:
    return "clear_status", {"name": dice.choice(names)}


def _delete_balancer(dice: random.Random, names: Sequence[str]) -> Made:
    return "delete_balancer", {"name": dice.choice(names)}


def _grow_pool(dice: random.Random, _names: Sequence[str]) -> Made:
    return "resize_pool", {"by": dice.randint(1, 2)}


USER_ACTIONS: Final[Sequence[Maker]] = (
    _create, _create, _create, _delete, _delete, _annotate, _annotate, _share, _retype, _change_ports, _change_ports,
    _clear, _delete_balancer, _grow_pool,
)  # fmt: skip


def _machine(dice: random.Random, _names: Sequence[str]) -> Made:
    verb = dice.choice(
        ("boot", "boot_without_agent", "halt_machine", "move", "agent_away", "agent_back", "kubelet_away")
    )
    return verb, {"name": dice.choice(MACHINES)}


def _destroy(_dice: random.Random, _names: Sequence[str]) -> Made:
    # One and the same in a scenario: many that go at once are held back by design.
    return "destroy", {"name": MACHINES[-1]}


OF_MACHINES: Final[Sequence[Maker]] = (_machine, _machine, _machine, _destroy)
"""Changes of VMs."""


def _side(dice: random.Random) -> str:
    return dice.choice(("guest", "guest", "harvester"))


def _kill(dice: random.Random, _names: Sequence[str]) -> Made:
    return "kill", {"after_steps": dice.choice((0, dice.randint(1, 60)))}


def _stop(_dice: random.Random, _names: Sequence[str]) -> Made:
    return "stop", {}


def _halt(dice: random.Random, _names: Sequence[str]) -> Made:
    return "halt", {"seconds": dice.choice((1, 20, 100))}


def _rival(dice: random.Random, _names: Sequence[str]) -> Made:
    return "rival", {}


def _network_fault(dice: random.Random, _names: Sequence[str]) -> Made:
    kinds = ("404 pages", "404 pages", "lost answers", "lost answers", "slow", "late events", *sorted(ERRORS))
    return "network_fault", {
        "side": _side(dice),
        "kind": dice.choice(kinds),
        "seconds": dice.choice((0.02, 0.2, 2.0, 15.0, 90.0)),
        "share": dice.choice((0.2, 0.5, 0.5, 1.0)),
        "of": dice.choice(("", "", "reads", "writes")),
    }


def _cut(dice: random.Random, _names: Sequence[str]) -> Made:
    return "cut_watches", {"side": _side(dice), "how": dice.choice(("ended", "broken", "silent"))}


def _compact(dice: random.Random, _names: Sequence[str]) -> Made:
    return "compact", {"side": _side(dice)}


def _controllers(dice: random.Random, _names: Sequence[str]) -> Made:
    return "stop_controllers", {"seconds": dice.choice((1, 10, 60))}


FAULTS: Final[Sequence[Maker]] = (
    _kill, _kill, _kill, _stop, _halt, _rival, _network_fault, _network_fault, _network_fault, _network_fault,
    _cut, _cut, _compact, _controllers,
)  # fmt: skip
