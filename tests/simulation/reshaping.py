"""Users who change what a Service is: its primary, its class and type, its families, its ports, its endpoints."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harvester_ccm.names import IPAM, LOAD_BALANCER_CLASS, PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.actions import Action, Fragment, pause, ports_of
from tests.simulation.actor import Actor
from tests.simulation.guest import NAMESPACE

FOREIGN_CLASS: Final = "example.com/other"
RECREATED_AS: Final[Sequence[Mapping[str, Any]]] = (
    {"type": "ClusterIP"},
    {"type": "NodePort"},
    {"type": "ExternalName", "externalName": "example.com", "ports": []},
    {"type": "LoadBalancer", "loadBalancerClass": FOREIGN_CLASS},
    {"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS},
    {"type": "LoadBalancer", "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"},
    {"type": "LoadBalancer", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"},
)
"""Specifications of a Service that is created again as another kind."""
FAMILIES: Final[Sequence[Mapping[str, Any]]] = (
    {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"},
    {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"},
    {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
)
"""Families that a Service with IPv4 can get: its first family is immutable."""
DELETED_WITHIN: Final = 120.0
"""Seconds for which a user waits for the deletion of a Service in order to create it again."""
LOOK_SECONDS: Final = 0.02


class Reshaping(Actor):
    """Runs their actions."""

    def change_type_and_class(self, name: str, type: str, load_balancer_class: str | None) -> None:
        """Change the type and the class in one request, as an API server from 1.29 on does it.

        With another type, it removes the class and the status. A class is never changed while the type stays.
        """
        service = self._guest.service(name)
        if service is None or (type == service["spec"]["type"] == "LoadBalancer"):
            return
        if type == "LoadBalancer":
            self._guest.change_service(name, {"spec": {"type": type, "loadBalancerClass": load_balancer_class}})
            self._world.met["class and type changed"] += 1
            return
        status = {"loadBalancer": None}
        self._guest.change_service(name, {"spec": {"type": type, "loadBalancerClass": None}, "status": status})

    def change_families(self, name: str, families: Mapping[str, Any]) -> None:
        """Change the IP families of a Service whose first one is IPv4."""
        service = self._guest.service(name)
        if service is not None and service["spec"].get("ipFamilies", ["IPv4"])[0] == "IPv4":
            self._guest.change_service(name, {"spec": dict(families)})
            self._world.met["IP families changed"] += 1

    def request_address(self, name: str, of: str) -> None:
        """Request the address that another Service has in ``spec.loadBalancerIP``; none if ``of`` is empty."""
        address = self._guest.address_of(of) or None
        self._guest.change_service(name, {"spec": {"loadBalancerIP": address}})
        self._world.met["address of another Service requested"] += address is not None

    def remove_endpoints(self, name: str) -> None:
        self._world.met["endpoints vanished"] += self._guest.remove_endpoints(name)

    def restore_endpoints(self, name: str) -> None:
        """Let the endpoints of a Service come back."""
        self._guest.restore_endpoints(name)

    def recreate(self, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> None:
        """Delete a Service, and create another one of its name as soon as it is gone."""
        self._guest.delete_service(name)
        until = self._world.loop.time() + DELETED_WITHIN
        self._create_when_gone(name, spec, annotations, until)

    def _create_when_gone(
        self, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str], until: float
    ) -> None:
        loop = self._world.loop
        if self._guest.service(name) is None:
            self._guest.create_service(name, dict(spec), annotations)
            self._guest.last_action[name] = loop.time()
            self._world.met["recreated as another kind"] += 1
        elif loop.time() < until:
            loop.call_later(LOOK_SECONDS, self._create_when_gone, name, spec, annotations, until)


def _cycle_of_primaries(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Services name each other as primary, in a circle, which may be broken later."""
    circle = dice.sample(names, len(names))
    primaries = [*circle[1:], circle[0]]
    named = [
        Action(pause(dice), "annotate", {"name": name, "annotations": {PRIMARY_SERVICE: f"{NAMESPACE}/{primary}"}})
        for name, primary in zip(circle, primaries, strict=True)
    ]
    broken = Action(pause(dice), "annotate", {"name": circle[0], "annotations": {PRIMARY_SERVICE: None}})
    return [*named, broken] if dice.random() < 0.7 else named


def _endpoints_vanish(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The endpoints of a Service vanish, around a change of its workload type or not."""
    name = dice.choice(names)
    gone = Action(pause(dice), "remove_endpoints", {"name": name})
    switch = Action(pause(dice), "annotate", {"name": name, "annotations": {WORKLOAD_TYPE: _workload(dice)}})
    back = Action(pause(dice), "restore_endpoints", {"name": name})
    return [
        gone,
        *([switch] if dice.random() < 0.5 else []),
        *([back] if dice.random() < 0.7 else []),
    ]


def _workload(dice: random.Random) -> str:
    return dice.choice(("vm", "cluster"))


def _other_class(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The type and the class of a Service are changed, and maybe changed back, maybe while no controller runs."""
    name = dice.choice(names)
    classes = (FOREIGN_CLASS, FOREIGN_CLASS, LOAD_BALANCER_CLASS, None)
    away = Action(pause(dice), "kill_for", {"seconds": dice.choice((0.5, 5.0, 100.0))})
    internal = {"name": name, "type": dice.choice(("ClusterIP", "NodePort")), "load_balancer_class": None}
    external = {"name": name, "type": "LoadBalancer", "load_balancer_class": dice.choice(classes)}
    return [
        *([away] if dice.random() < 0.5 else []),
        Action(pause(dice), "change_type_and_class", internal),
        Action(pause(dice), "change_type_and_class", external),
        *([Action(pause(dice), "change_type_and_class", internal)] if dice.random() < 0.3 else []),
        *([Action(pause(dice), "change_type_and_class", {**external, "load_balancer_class": None})]),
    ][: dice.choice((3, 4, 5))]


def _other_families(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The IP families of a Service are changed once or twice."""
    name = dice.choice(names)
    return [
        Action(pause(dice), "change_families", {"name": name, "families": dict(dice.choice(FAMILIES))})
        for _ in range(dice.choice((1, 2)))
    ]


def _address_of_another(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service requests the address of another one in its specification."""
    more = {"name": dice.choice(names), "of": dice.choice(("", *names))}
    return [Action(pause(dice), "request_address", more)]


def _another_kind(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service is deleted and created as another kind."""
    name = dice.choice(names)
    spec = {"ports": ports_of(dice, name), **dice.choice(RECREATED_AS)}
    annotations = dict(dice.choice(({}, {WORKLOAD_TYPE: "vm"}, {IPAM: "dhcp"})))
    return [Action(pause(dice), "recreate", {"name": name, "spec": spec, "annotations": annotations})]


OF_RESHAPING: Final[Sequence[Fragment]] = (
    _cycle_of_primaries, _cycle_of_primaries, _endpoints_vanish, _other_class, _other_class, _other_class,
    _other_families, _address_of_another, _address_of_another, _another_kind, _another_kind,
)  # fmt: skip
