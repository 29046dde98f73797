"""What Harvester rejects of a VM load balancer although it would take the rest: that is left out, and written later.

Up to 1.5.0, it takes no two listeners with one port number, such as TCP and UDP of a DNS server. Up to 1.3, it takes no
selector of backends that matches no running VM; this controller writes such a selector if there is no backend.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from msgspec import Struct, field

from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import VM_NAME, WORKLOAD_TYPE, Reason

SENT_AGAIN_SECONDS: Final = 3600.0
"""Time after which what was rejected is sent again: Harvester may have been updated."""
NO_BACKEND: Final = "no-node-of-this-cluster"
"""Stands for an empty backend list: Harvester keeps the old backends when the list itself is empty."""
NO_BACKEND_SELECTOR: Final = {VM_NAME: [NO_BACKEND]}
"""The selector of backends of a load balancer without any."""
_SAME_NUMBER: Final = ("has duplicate port", "has duplicate backend port")
"""Words about a listener whose number another one has."""
NO_RUNNING_VM: Final = "no virtual machine instance matched"
"""Words about a selector of backends that matches no running VM."""

Ports = frozenset[tuple[str, int]]
"""Protocols and port numbers."""


class Refused(Struct, frozen=True):
    """What Harvester rejected of the load balancer of a Service."""

    fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of the specification, with the value that was sent."""
    ports: Ports = frozenset()
    """Listeners that are left out."""
    at: float = -math.inf
    """When it was sent, in seconds of the monotonic clock."""

    def holds_for(self, name: str, value: object, now: float) -> bool:
        """Return whether a field is not to be sent with this value at the monotonic time ``now``."""
        return self.fields.get(name) == value and now < self.at + SENT_AGAIN_SECONDS

    def without(self, accepted: Collection[tuple[str, int]]) -> "Refused":
        """Return what is left after Harvester has taken these listeners."""
        return Refused(self.fields, self.ports.difference(accepted), self.at)


def refused_part(
    message: str, spec: Mapping[str, object], known: Refused, *, checked_port: int, now: float
) -> Refused | None:
    """Return what to leave out of a specification that Harvester rejected with a message; None if nothing helps.

    ``checked_port`` is the backend port of the health check. A new load balancer is not created without its selector:
    it would select all VMs of the namespace.
    """
    if any(words in message for words in _SAME_NUMBER):
        sent = spec.get("listeners") or []
        ports = _same_numbers(cast("list[dict[str, Any]]", sent), checked_port)
        return Refused({**known.fields, "listeners": sent}, ports, now) if ports else None
    selector = spec.get("backendServerSelector")
    is_change = "workloadType" not in spec
    if is_change and NO_RUNNING_VM in message and selector == NO_BACKEND_SELECTOR:
        return Refused({**known.fields, "backendServerSelector": selector}, known.ports, now)
    return None


def _same_numbers(listeners: Collection[Mapping[str, Any]], checked_port: int) -> Ports:
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
