"""The actions of a scenario: user actions, faults and changes of VMs."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SERVICES: Final = ("a", "b", "c", "d")
LAN, LATE = "lan", "late"
"""The first pool, and one that is created later or never."""


@dataclass(frozen=True)
class Action:
    """One user action or fault."""

    pause: float
    """Seconds after the one before it."""
    verb: str
    """Name of the method of ``ActionRunner`` that runs it."""
    more: Mapping[str, Any]

    def __str__(self) -> str:
        said = ", ".join(f"{key} {value}" for key, value in self.more.items())
        return f"{self.verb.replace('_', ' ')}{': ' if said else ''}{said}"


Fragment = Callable[[random.Random, Sequence[str]], list[Action]]
"""Makes a sequence of actions; it gets the names of the Services that a scenario may have."""


@dataclass(frozen=True)
class Scenario:
    """A seed and its actions."""

    seed: str
    pool: int
    """Number of addresses."""
    nodes: int
    """Number of Nodes at the start."""
    actions: tuple[Action, ...]


def ports_of(dice: random.Random, name: str) -> list[dict[str, Any]]:
    """Return the ports of a Service, some of which other Services have, too."""
    number = 80 + SERVICES.index(name) if dice.random() < 0.8 else 80
    node_port = 30000 + 10 * SERVICES.index(name)
    found = [{"name": "main", "port": number, "protocol": "TCP", "nodePort": node_port}]
    if dice.random() < 0.2:
        found.append({"name": "more", "port": 443, "protocol": "TCP", "nodePort": node_port + 1})
    return found


def pause(dice: random.Random) -> float:
    """Return the seconds before an action of a fragment."""
    return round(dice.uniform(0, dice.choice((0.0, 0.5, 5.0, 40.0))), 3)
