"""What has been seen of Services and load balancers so far, told from documents of both API servers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from devenv.announcement import DHCP_ADDRESS
from devenv.watch import Document, key_of, labels_of
from harvester_ccm.names import LB_SERVICE_NAME, LOAD_BALANCER_READY


class Mark(Enum):
    """How a Service, or a load balancer, is."""

    ASKED = "asked"
    """It exists, and nothing has been said of it."""
    WAITING = "waiting"
    """It was told why it has no address."""
    SERVED = "served"
    LEAVING = "leaving"


@dataclass
class Line:
    """A Service."""

    name: str
    asked: float
    """When its creation was asked for, in seconds of any clock."""
    mark: Mark = Mark.ASKED
    reason: str = ""
    """Why it waits."""
    address: str = ""
    took: float | None = None
    """Seconds until it had its first address."""


@dataclass
class Balancer:
    """A load balancer in Harvester."""

    name: str
    service: str
    """Name of the Service it is for."""
    mark: Mark = Mark.ASKED
    address: str = ""
    pool: str = ""


@dataclass
class Board:
    """Everything seen, oldest first."""

    services: dict[str, Line] = field(default_factory=dict)
    """By name; all are in one namespace."""
    balancers: dict[str, Balancer] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)
    """How many addresses are booked in each."""

    @property
    def booked(self) -> int:
        """Addresses that are booked in all pools."""
        return sum(self.pools.values())

    def ask(self, name: str, at: float) -> None:
        """Note that a Service is about to be created, at a point in time."""
        self.services[name] = Line(name, at)

    def see_service(self, before: Document | None, after: Document | None, at: float) -> None:
        """Take in a change of a Service that was seen at a point in time."""
        document = after or before
        if document is None or document["spec"].get("type") != "LoadBalancer":
            return
        name: str = document["metadata"]["name"]
        if after is None:
            self.services.pop(name, None)
            return
        line = self.services.setdefault(name, Line(name, at))
        line.address = _address(after)
        condition = _condition(after)
        line.mark, line.reason = Mark.ASKED, ""
        if after["metadata"].get("deletionTimestamp"):
            line.mark = Mark.LEAVING
        elif line.address:
            line.mark = Mark.SERVED
            line.took = at - line.asked if line.took is None else line.took
        elif condition.get("status") == "False":
            line.mark, line.reason = Mark.WAITING, condition.get("message", "")

    def see_balancer(self, before: Document | None, after: Document | None) -> None:
        """Take in a change of a load balancer."""
        if after is None:
            self.balancers.pop(key_of(before) if before else "", None)
            return
        status, spec = after.get("status") or {}, after.get("spec") or {}
        allocated = status.get("allocatedAddress") or {}
        given = (status.get("address"), allocated.get("ip"))
        address = next((one for one in given if one and one != DHCP_ADDRESS), "")
        leaving = after["metadata"].get("deletionTimestamp")
        self.balancers[key_of(after)] = Balancer(
            name=after["metadata"]["name"],
            service=labels_of(after).get(LB_SERVICE_NAME, ""),
            mark=Mark.LEAVING if leaving else Mark.SERVED if address else Mark.ASKED,
            address=address,
            pool="dhcp" if spec.get("ipam") == "dhcp" else allocated.get("ipPool") or "",
        )

    def see_pool(self, before: Document | None, after: Document | None) -> None:
        """Take in a change of an IP pool."""
        if after is not None:
            self.pools[key_of(after)] = len((after.get("status") or {}).get("allocated") or {})
        elif before is not None:
            self.pools.pop(key_of(before), None)


def _address(service: Document) -> str:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return next((entry["ip"] for entry in ingress if entry.get("ip")), "")


def _condition(service: Document) -> dict[str, str]:
    conditions = (service.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == LOAD_BALANCER_READY), {})
