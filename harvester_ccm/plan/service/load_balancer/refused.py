"""Listeners that Harvester rejects although it would take the others: they are left out, and written later.

Up to 1.5.0, it takes no two listeners with one port number, such as TCP and UDP of a DNS server.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import WORKLOAD_TYPE, Reason

SENT_AGAIN_SECONDS: Final = 3600.0
"""Time after which what was rejected is sent again: Harvester may have been updated."""
SAME_NUMBER: Final = ("has duplicate port", "has duplicate backend port")
"""Words of Harvester about a listener whose number another one has."""

Listeners = Collection[Mapping[str, Any]]
"""Listeners as they are sent."""
Ports = frozenset[tuple[str, int]]
"""Protocols and port numbers."""


class Refused(Struct, frozen=True):
    """What Harvester rejected of the load balancer of a Service."""

    listeners: Listeners = ()
    """All listeners that were sent."""
    ports: Ports = frozenset()
    """Those that are left out."""
    at: float = -math.inf
    """When they were sent, in seconds of the monotonic clock."""

    def left_out_of(self, listeners: Listeners, now: float) -> Ports:
        """Return which of the listeners are not to be sent at the monotonic time ``now``."""
        is_rejected = listeners == self.listeners and now < self.at + SENT_AGAIN_SECONDS
        return self.ports if is_rejected else frozenset()

    def without(self, accepted: Collection[tuple[str, int]]) -> "Refused":
        """Return what is left after Harvester has taken these listeners."""
        return Refused(self.listeners, self.ports.difference(accepted), self.at)


def refused_by(message: str, listeners: Listeners, *, checked_port: int, now: float) -> Refused | None:
    """Return what to leave out of the listeners that Harvester rejected with a message; None if nothing helps.

    ``checked_port`` is the backend port of the health check.
    """
    if not any(words in message for words in SAME_NUMBER):
        return None
    ports = _same_numbers(listeners, checked_port)
    return Refused(listeners, ports, now) if ports else None


def _same_numbers(listeners: Listeners, checked_port: int) -> Ports:
    """Return the listeners whose number an earlier listener has; the listener of the health check is the first."""
    checked = ("TCP", checked_port)
    in_order = sorted(listeners, key=lambda listener: (listener["protocol"], listener["backendPort"]) != checked)
    numbers: set[int] = set()
    backend_ports: set[int] = set()
    left_out: set[tuple[str, int]] = set()
    for listener in in_order:
        if listener["port"] in numbers or listener["backendPort"] in backend_ports:
            left_out.add(port_of(listener))
            continue
        numbers.add(listener["port"])
        backend_ports.add(listener["backendPort"])
    return frozenset(left_out)


def port_of(listener: Mapping[str, Any]) -> tuple[str, int]:
    """Return protocol and port number of a listener."""
    return listener["protocol"], listener["port"]


SAME_NUMBER_REMEDY: Final = (
    f"Use other port numbers, or a cluster load balancer (annotation {WORKLOAD_TYPE}: cluster), or update Harvester to "
    "1.5.1"
)
"""Remedy for listeners with one number."""


def refused_ports_warning(service: Service, refused: Ports) -> EventMessage | None:
    """Return the Warning about ports of a Service for which Harvester takes no listener, or None."""
    ports = [f"{port.port}/{port.protocol}" for port in service.spec.ports if (port.protocol, port.port) in refused]
    if not ports:
        return None
    cause = (
        f"Ports {abbreviate(ports)} are not served, because another listener of the load balancer has the same number, "
        "which Harvester before 1.5.1 rejects. The others are served"
    )
    return EventMessage("Warning", Reason.SYNC_FAILED, cause, SAME_NUMBER_REMEDY)
