"""The shape of a status, as ``harvester-ccm status -o json`` prints it.

``apiVersion`` changes when a field changes its meaning or goes; readers pass over fields that they do not know. Times
are RFC 3339. No field holds a credential, and what others wrote is in one line.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

API_VERSION: Final = "harvester-ccm/v1"
KIND: Final = "Status"


class State(StrEnum):
    """How an object is."""

    WARNING = "warning"
    """It works, and not as asked; or somebody has to see to it."""
    PENDING = "pending"
    """It does not work yet; ``reason`` and ``message`` say what it waits for."""
    LEAVING = "leaving"
    """It is being let go."""
    READY = "ready"
    OTHER = "other"
    """It is left to somebody else; ``message`` says why."""


ORDER: Final = tuple(State)
"""What is wrong comes first."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parts of a status."""


class Notice(Part, frozen=True, kw_only=True):
    """What an Event says."""

    reason: str
    message: str


class ServiceLine(Part, frozen=True, kw_only=True):
    """A Service of type LoadBalancer, or one that is being let go."""

    namespace: str
    name: str
    state: State
    reason: str = ""
    """As in the condition ``LoadBalancerReady`` of the Service."""
    message: str = ""
    since: str = ""
    """When the condition came to say so."""
    warnings: tuple[Notice, ...] = ()
    """What its Warning Events say now."""
    addresses: tuple[str, ...] = ()
    kind: str = ""
    """``cluster``, ``vm``, or ``shared`` for the address of another Service."""
    ipam: str = ""
    """``pool`` or ``dhcp``; empty with a shared address."""
    pool: str = ""
    """Pool that the address was booked in, or that is asked for."""
    network: str = ""
    shares: str = ""
    """The Service whose address it has."""
    load_balancer: str = ""
    """Its name in Harvester."""
    announced_by: str = ""
    """The node that kube-vip announces it on, or ``Harvester``."""
    created: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class NodeLine(Part, frozen=True, kw_only=True):
    """A Node and its VM."""

    name: str
    state: State
    reason: str = ""
    message: str = ""
    warnings: tuple[Notice, ...] = ()
    vm: str = ""
    """``namespace/name`` in Harvester; empty where none is found."""
    addresses: tuple[str, ...] = ()
    """Its InternalIPs."""
    ready: str = ""
    """Of the condition Ready: ``True``, ``False`` or ``Unknown``."""


def is_wrong(line: ServiceLine | NodeLine) -> bool:
    """Return whether somebody has to know of it."""
    return line.state in (State.PENDING, State.WARNING) or bool(line.warnings)


class LeftOver(Part, frozen=True, kw_only=True):
    """A load balancer in Harvester without a Service."""

    name: str
    service: str
    """``namespace/name`` of the Service that it was made for, or the UID of that."""
    address: str = ""
    pool: str = ""
    message: str = ""
    """What becomes of it."""


class Pool(Part, frozen=True, kw_only=True):
    """An IP pool in Harvester."""

    name: str
    addresses: int
    """Of this cluster."""
    available: int | None = None
    """Free addresses; null where the pool may not be read."""
    total: int | None = None


class Server(Part, frozen=True, kw_only=True):
    """One of the two API servers."""

    cluster: str
    """``guest`` or ``harvester``."""
    url: str
    problem: str = ""
    """Why it cannot be read at the moment."""
    token_expires: str = ""
    """Empty for a token that does not say, or is renewed by itself."""
    account: str = ""
    """``namespace/name`` of the ServiceAccount whose token it is; empty for the same tokens."""


class Leader(Part, frozen=True, kw_only=True):
    """Who holds the Lease."""

    identity: str = ""
    """Empty while nobody does."""
    since: str = ""


class Status(Part, frozen=True, kw_only=True):
    """The whole at one look. What is wrong comes first in each list."""

    api_version: str = API_VERSION
    kind: str = KIND
    observed: str
    """When."""
    cluster: str
    """Value of --cluster-name."""
    namespace: str
    """In Harvester."""
    leader: Leader | None = None
    """Null where that is not known, or nobody is elected."""
    servers: tuple[Server, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with the whole."""
    services: tuple[ServiceLine, ...] = ()
    nodes: tuple[NodeLine, ...] | None = None
    """Null if only Services of one namespace are shown."""
    left_over: tuple[LeftOver, ...] | None = None
    pools: tuple[Pool, ...] = ()
    assumptions: tuple[str, ...] = ()
    """What could not be read, and what that means."""

    @property
    def wrong(self) -> bool:
        """Whether anything is."""
        lines: tuple[ServiceLine | NodeLine, ...] = (*self.services, *(self.nodes or ()))
        return any(map(is_wrong, lines)) or bool(self.problems or self.left_over)
