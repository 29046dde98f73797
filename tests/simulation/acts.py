"""What a story is made of."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

SERVICES: Final = ("a", "b", "c", "d")
LAN, LATE = "lan", "late"
"""The pool that there is at first, and one that is made later or never."""


@dataclass(frozen=True)
class Act:
    """One thing that happens."""

    pause: float
    """Seconds after the one before it."""
    verb: str
    """Name of the method of ``Stagehand`` that does it."""
    more: Mapping[str, Any]

    def __str__(self) -> str:
        said = ", ".join(f"{key} {value}" for key, value in self.more.items())
        return f"{self.verb.replace('_', ' ')}{': ' if said else ''}{said}"


@dataclass(frozen=True)
class Story:
    """A seed, and what happens."""

    seed: str
    pool: int
    """Addresses that there are."""
    nodes: int
    """Nodes that there are at first."""
    acts: tuple[Act, ...]


def ports_of(dice: random.Random, name: str) -> list[dict[str, Any]]:
    """Return the ports of a Service, which now and then are those of others too."""
    number = 80 + SERVICES.index(name) if dice.random() < 0.8 else 80
    node_port = 30000 + 10 * SERVICES.index(name)
    found = [{"name": "main", "port": number, "protocol": "TCP", "nodePort": node_port}]
    if dice.random() < 0.2:
        found.append({"name": "more", "port": 443, "protocol": "TCP", "nodePort": node_port + 1})
    return found
