"""What holds at rest: each published address is announced, or a Warning says why not; and nothing is left behind."""

from typing import Final

from devenv.harvester.records import is_deleting
from harvester_ccm.names import IP_POOL, LOAD_BALANCER_READY, PRIMARY_SERVICE
from tests.simulation.facts import (
    annotation,
    given,
    has_finalizer,
    has_other_class,
    made_for,
    name_of,
    served,
    shown,
    wants_one,
)
from tests.simulation.guest import NAMESPACE, Guest
from tests.simulation.world import World
from tests.support.memory_server import Document

RIGHT: Final = "Services that are announced at rest"
EXPLAINED: Final = "Services that are explained at rest"


class AtRest:
    """Compares Services and load balancers of a cluster."""

    def __init__(self, world: World, guest: Guest) -> None:
        self._world = world
        self._guest = guest

    def differences(self) -> list[str]:
        found = [] if self._guest.leader() else ["there is no leader"]
        for service in self._guest.services():
            if wants_one(service) and not service["metadata"].get("deletionTimestamp"):
                found += self._wrong_about(service)
            else:
                found += self._left_of(service)
        services = {name_of(service) for service in self._guest.services()}
        found += [f"{name_of(one)} has no Service" for one in self._balancers() if made_for(one) not in services]
        return found

    def _balancers(self) -> list[Document]:
        """Return the load balancers without those that Harvester cannot finish to delete, because it lost the pool."""
        gone = self._world.pools.is_gone
        return [balancer for balancer in self._guest.balancers() if not (is_deleting(balancer) and gone(balancer))]

    def _left_of(self, service: Document) -> list[str]:
        """Return what is left of a Service that is deleted, or that asks for no load balancer of this controller."""
        if any(_shares(other, service) for other in self._guest.services()):
            return []
        own = [balancer for balancer in self._balancers() if made_for(balancer) == name_of(service)]
        # The status of a Service of another class is that of its other controller.
        shows = bool(shown(service)) and not has_other_class(service)
        is_left = own or shows or has_finalizer(service) or service["metadata"].get("deletionTimestamp")
        return [f"{name_of(service)} is not cleaned up"] if is_left else []

    def _wrong_about(self, service: Document) -> list[str]:
        """Return what is wrong about a Service that asks for an address, and why that is not said."""
        problem = self._problem_of(service)
        if not problem:
            self._world.met[RIGHT] += 1
            return []
        if self._is_explained(service):
            self._world.met[EXPLAINED] += 1
            return self._unjustified(service)
        return [f"{name_of(service)} {problem}"]

    def _problem_of(self, service: Document) -> str:
        primary = annotation(service, PRIMARY_SERVICE).removeprefix(f"{NAMESPACE}/")
        balancers = self._guest.balancers_of(name_of(service)) or self._guest.balancers_of(primary)
        if not balancers:
            keeps = bool(shown(service)) and self.is_warned_about(service)
            return "" if keeps else "has no load balancer"
        address, kind = served(balancers[0]), balancers[0]["spec"].get("workloadType")
        if not address or shown(service) != (address,):
            return f"shows {shown(service)} and has {address or 'no address'}"
        # A Service that another provider has published gets no condition.
        if _condition(service).get("status", "True") != "True":
            return f"shows {address}, and its condition is not True"
        is_up = address in self._guest.kube_vip.announced_for(f"{NAMESPACE}/{name_of(service)}")
        is_due = kind == "cluster" and self._guest.kube_vip.has_endpoint(service)
        if (is_up and kind != "cluster") or (is_due and not is_up):
            return f"shows {address}, {kind}, which is {'' if is_up else 'not '}announced by kube-vip"
        return ""

    def _is_explained(self, service: Document) -> bool:
        """Return whether the condition repeats an Event about the Service."""
        said = _condition(service).get("message", "")
        uid = service["metadata"]["uid"]
        return any(about == uid and message in said for about, message in self._guest.told)

    def is_warned_about(self, service: Document) -> bool:
        """Return whether the last Event about a Service is a Warning."""
        events = sorted(self._events_of(service), key=_version)
        return bool(events) and events[-1]["type"] == "Warning"

    def _events_of(self, service: Document) -> list[Document]:
        uid = service["metadata"]["uid"]
        return [event for event in self._guest.server.events() if event["involvedObject"].get("uid") == uid]

    def _unjustified(self, service: Document) -> list[str]:
        """Return whether a load balancer waits for an address although its pool has one."""
        can_serve = self._world.pools.can_serve
        waiting = [
            balancer
            for balancer in self._guest.balancers_of(name_of(service))
            if not given(balancer) and not is_deleting(balancer) and can_serve(balancer, annotation(service, IP_POOL))
        ]
        return [f"{name_of(service)} has no address, and there are free ones"] if waiting else []


def _condition(service: Document) -> Document:
    """Return the condition of the controller; an empty one without it."""
    conditions = (service.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == LOAD_BALANCER_READY), {})


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _shares(service: Document, primary: Document) -> bool:
    is_named = annotation(service, PRIMARY_SERVICE) == f"{NAMESPACE}/{name_of(primary)}"
    return is_named and service is not primary and bool(shown(service))
