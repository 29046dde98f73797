"""Other clients that write what the controller writes: to Services, and to load balancers in Harvester.

Each kind of write has a verb of ``OtherClients`` and a fragment with the same words.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from devenv.watch import key_of
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_OWNER,
    LB_SERVICE_UID,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
)
from tests.simulation.actions import SERVICES as NAMES
from tests.simulation.actions import Action, Fragment, pause
from tests.simulation.actor import Actor
from tests.simulation.facts import has_other_class, wants_one
from tests.simulation.guest import NAMESPACE
from tests.support.memory_server import Document

FOREIGN_FINALIZER: Final = "example.com/hold"
BALANCER_EDITS: Final[Mapping[str, Document]] = {
    "description": {"spec": {"description": "edited"}},
    "listeners": {"spec": {"listeners": []}},
    "health check": {"spec": {"healthCheck": {"port": 1, "successThreshold": 9}}},
    "backends": {"spec": {"backendServerSelector": {"harvesterhci.io/vmName": ["nobody"]}}},
    "owner": {"metadata": {"annotations": {LB_OWNER: None}}},
    "service UID": {"metadata": {"annotations": {LB_SERVICE_UID: None}}},
    "address in the status": {"status": {"address": None}},
    "conditions": {"status": {"conditions": None}},
}
"""Changes of a load balancer that administrators of Harvester can make."""


class OtherClients(Actor):
    """Runs their writes. ``of`` is the name of a Service whose address is written; empty for no address."""

    def write_status(self, name: str, of: str) -> None:
        """Write an address to the status of a Service of type LoadBalancer; the API server accepts no other type."""
        service = self._guest.service(name)
        if service is None or not wants_one(service):
            return
        address = self._guest.address_of(of)
        ingress = [{"ip": address}] if address else None
        self._guest.change_service(name, {"status": {"loadBalancer": {"ingress": ingress}}})
        self._world.met["status written by another client"] += 1

    def write_address(self, name: str, of: str) -> None:
        """Write an address to kube-vip's annotation; an empty one if there is none."""
        address = self._guest.address_of(of)
        self._guest.change_service(name, {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: address}}})
        self._world.met["kube-vip's address written by another client"] += 1

    def write_ignore(self, name: str, value: str | None) -> None:
        """Write the annotation with which kube-vip ignores a Service; None removes it."""
        self._guest.change_service(name, {"metadata": {"annotations": {KUBE_VIP_IGNORE: value}}})
        self._world.met["kube-vip's ignore written by another client"] += 1

    def write_label(self, name: str, of: str) -> None:
        """Write the label of Services that share an address; no label if ``of`` is empty."""
        value = f"{NAMESPACE}.{of}" if of else None
        self._guest.change_service(name, {"metadata": {"labels": {PRIMARY_SERVICE_LABEL: value}}})
        self._world.met["label of secondaries written by another client"] += 1

    def write_condition(self, name: str, status: str | None) -> None:
        """Write the controller's condition; None removes it."""
        service = self._guest.service(name)
        if service is None:
            return
        conditions = (service.get("status") or {}).get("conditions") or []
        others = [condition for condition in conditions if condition["type"] != LOAD_BALANCER_READY]
        if status is not None:
            others.append({"type": LOAD_BALANCER_READY, "status": status, "reason": "Written", "message": "written"})
        self._guest.change_service(name, {"status": {"conditions": others}})
        self._world.met["condition written by another client"] += 1

    def write_finalizer(self, name: str, finalizer: str, present: bool) -> None:
        """Add or remove a finalizer; none can be added to an object that is being deleted.

        The controller's finalizer on a Service of another class is that of the other controller, which removes it.
        """
        service = self._guest.service(name)
        if service is None or (present and service["metadata"].get("deletionTimestamp")):
            return
        if present and finalizer == SERVICE_FINALIZER and has_other_class(service):
            return
        present_before = service["metadata"].get("finalizers") or ()
        others = [one for one in present_before if one != finalizer]
        finalizers = [*others, finalizer] if present else others
        self._guest.change_service(name, {"metadata": {"finalizers": finalizers}})
        self._world.met["finalizer written by another client"] += 1

    def touch_everything(self, side: str) -> None:
        """Write all objects of a side without a change of anything that is read."""
        self._world.touch_everything(side)

    def edit_balancer(self, name: str, part: str) -> None:
        """Change a part of the load balancer of a Service in Harvester."""
        for balancer in self._guest.balancers_of(name):
            self._guest.change_balancer(balancer["metadata"]["name"], BALANCER_EDITS[part])
            self._world.controllers.note_administrator(key_of(balancer))
            self._world.met["load balancer edited"] += 1


def _status(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Another client writes the status of a Service: the address of another one, or none."""
    more = {"name": dice.choice(names), "of": dice.choice(("", *names))}
    return [Action(pause(dice), "write_status", more)] * dice.choice((1, 1, 2))


def _address(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Another client writes the address that kube-vip announces."""
    more = {"name": dice.choice(names), "of": dice.choice(("", *names))}
    return [Action(pause(dice), "write_address", more)] * dice.choice((1, 1, 2))


def _ignore(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Another client has kube-vip ignore a Service, or not."""
    more = {"name": dice.choice(names), "value": dice.choice(("true", "true", "false", None))}
    return [Action(pause(dice), "write_ignore", more)]


def _label(dice: random.Random, names: Sequence[str]) -> list[Action]:
    return [Action(pause(dice), "write_label", {"name": dice.choice(names), "of": dice.choice(("", *NAMES))})]


def _condition(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Another client writes or removes the condition."""
    more = {"name": dice.choice(names), "status": dice.choice((None, None, "True", "False"))}
    return [Action(pause(dice), "write_condition", more)]


def _finalizer(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Another client adds or removes a finalizer: the controller's, or one of its own."""
    finalizer = dice.choice((SERVICE_FINALIZER, SERVICE_FINALIZER, FOREIGN_FINALIZER))
    more = {"name": dice.choice(names), "finalizer": finalizer, "present": dice.random() < 0.5}
    return [Action(pause(dice), "write_finalizer", more)]


def _touch(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """All objects of a side are written without a change."""
    return [Action(pause(dice), "touch_everything", {"side": dice.choice(("guest", "harvester"))})]


def _balancer(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """An administrator of Harvester edits a load balancer."""
    more = {"name": dice.choice(names), "part": dice.choice(tuple(BALANCER_EDITS))}
    return [Action(pause(dice), "edit_balancer", more)]


OF_OTHER_CLIENTS: Final[Sequence[Fragment]] = (
    _status, _status, _address, _address, _ignore, _label, _condition, _condition, _finalizer, _touch, _balancer,
    _balancer,
)  # fmt: skip
