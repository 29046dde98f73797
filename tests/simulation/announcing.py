"""What keeps kube-vip from an announcement, and this controller from seeing why: endpoints, policies, settings."""

import random
from collections.abc import Sequence
from typing import Final

from harvester_ccm.config import Announcer
from harvester_ccm.names import IPAM, KUBE_VIP_IGNORE, LOAD_BALANCER_CLASS
from tests.simulation.actions import Action, Fragment, pause, ports_of
from tests.simulation.actor import Actor
from tests.simulation.kubevip import NODE

OTHER_NODE: Final = "node-2"
"""A node without kube-vip."""
LONG_PAUSES: Final = (2.0, 70.0, 140.0, 700.0)
"""Seconds after which a Service is not yet judged, just judged, or looked at again."""


class Announcing(Actor):
    """Runs their actions."""

    def place_endpoint(self, name: str, node: str, is_ready: bool) -> None:
        """Let a Service have one Pod, on this node."""
        self._guest.place_endpoint(name, node, is_ready=is_ready)

    def change_policy(self, name: str, policy: str) -> None:
        """Change the externalTrafficPolicy of a Service of type LoadBalancer."""
        service = self._guest.service(name)
        if service is not None and service["spec"]["type"] == "LoadBalancer":
            self._guest.change_service(name, {"spec": {"externalTrafficPolicy": policy}})
            self._world.met[f"externalTrafficPolicy {policy}"] += 1

    def forbid_slices(self, is_forbidden: bool) -> None:
        """Install the controller without the permission for EndpointSlices, or grant it."""
        for guest in self._world.guests:
            self._world.network_of(guest).permits_slices = not is_forbidden

    def set_announcer(self, announcer: str) -> None:
        """Install the controller with another ``--announcer``, which restarts it."""
        self._world.set_announcer(Announcer(announcer))
        self._world.disturb()
        self._world.met[f"--announcer={announcer}"] += 1
        for process in self._world.processes.values():
            process.stop()

    def stop_noting(self) -> None:
        """Install kube-vip in a mode in which it notes nothing."""
        self._world.kube_vip.stop_noting()
        self._world.met["kube-vip notes nothing"] += 1


def _installed_for_kube_vip(dice: random.Random) -> list[Action]:
    """Without that, a missing note means something only after kube-vip has noted a node on another Service."""
    return [Action(0.0, "set_announcer", {"announcer": "kube-vip"})] if dice.random() < 0.5 else []


def _of_our_class(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service is created again with the class of this controller, and others without one."""
    name = dice.choice(names)
    spec = {"type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS, "ports": ports_of(dice, name)}
    recreated = Action(pause(dice), "recreate", {"name": name, "spec": spec, "annotations": {}})
    return [*_installed_for_kube_vip(dice), recreated, Action(dice.choice(LONG_PAUSES), "wait", {})]


def _scaled_to_zero(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The Deployment of a Service is scaled to 0, perhaps before the Service has an address, and back."""
    name = dice.choice(names)
    created = Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}})
    return [
        *_installed_for_kube_vip(dice),
        *([created] if dice.random() < 0.7 else []),
        Action(dice.choice((0.0, 0.0, 20.0)), "remove_endpoints", {"name": name}),
        Action(dice.choice(LONG_PAUSES), "wait", {}),
        *([Action(0.0, "restore_endpoints", {"name": name})] if dice.random() < 0.6 else []),
    ]


def _local_policy(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service gets externalTrafficPolicy Local, with its Pod on a node with kube-vip, or without, ready or not."""
    name = dice.choice(names)
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": ports_of(dice, name)}
    recreated = Action(pause(dice), "recreate", {"name": name, "spec": local, "annotations": {}})
    changed = Action(pause(dice), "change_policy", {"name": name, "policy": "Local"})
    placed = {"name": name, "node": dice.choice((NODE, OTHER_NODE, OTHER_NODE)), "is_ready": dice.random() < 0.8}
    moved = {"name": name, "node": dice.choice((NODE, OTHER_NODE)), "is_ready": True}
    return [
        *_installed_for_kube_vip(dice),
        dice.choice((recreated, recreated, changed)),
        Action(dice.choice((0.0, 0.2, 10.0)), "place_endpoint", placed),
        Action(dice.choice(LONG_PAUSES), "wait", {}),
        *([Action(0.0, "place_endpoint", moved)] if dice.random() < 0.5 else []),
        *([Action(pause(dice), "change_policy", {"name": name, "policy": "Cluster"})] if dice.random() < 0.3 else []),
    ]


def _queue_blocked(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """No DHCP server responds for minutes, and other Services wait behind the one that requests a lease."""
    name, other = dice.choice(names), dice.choice(names)
    leasing = {"name": name, "ports": ports_of(dice, name), "annotations": {IPAM: "dhcp"}}
    waiting = {"name": other, "ports": ports_of(dice, other), "annotations": {}}
    return [
        Action(pause(dice), "stop_dhcp", {"seconds": dice.choice((100.0, 300.0, 1000.0))}),
        *([Action(0.0, "delete", {"name": name})] if dice.random() < 0.6 else []),
        Action(dice.choice((0.5, 5.0)), "create", leasing),
        Action(pause(dice), "create", waiting),
        Action(dice.choice(LONG_PAUSES), "wait", {}),
    ]


def _no_permission(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The controller has no permission for EndpointSlices, for a while or for good."""
    name = dice.choice(names)
    return [
        *_installed_for_kube_vip(dice),
        Action(pause(dice), "forbid_slices", {"is_forbidden": True}),
        Action(pause(dice), "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}}),
        *([Action(0.0, "remove_endpoints", {"name": name})] if dice.random() < 0.6 else []),
        Action(dice.choice(LONG_PAUSES), "wait", {}),
        *([Action(0.0, "forbid_slices", {"is_forbidden": False})] if dice.random() < 0.5 else []),
    ]


def _other_announcer(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """The controller is installed for kube-vip, or kube-vip in a mode in which it notes nothing."""
    announcer = Action(pause(dice), "set_announcer", {"announcer": "kube-vip"})
    silent = Action(pause(dice), "stop_noting", {})
    return [dice.choice((announcer, announcer, silent)), Action(dice.choice(LONG_PAUSES), "wait", {})]


def _ignored(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A user lets kube-vip ignore a Service, from its creation or later, and reconsiders it or not."""
    name = dice.choice(names)
    ignored = {KUBE_VIP_IGNORE: "true"}
    spec = {"type": "LoadBalancer", "ports": ports_of(dice, name)}
    recreated = Action(pause(dice), "recreate", {"name": name, "spec": spec, "annotations": ignored})
    written = Action(dice.choice((0.5, 20.0)), "write_ignore", {"name": name, "value": "true"})
    return [
        *_installed_for_kube_vip(dice),
        dice.choice((recreated, written)),
        Action(dice.choice(LONG_PAUSES), "wait", {}),
        *([Action(0.0, "write_ignore", {"name": name, "value": None})] if dice.random() < 0.5 else []),
    ]


OF_ANNOUNCING: Final[Sequence[Fragment]] = (
    _of_our_class, _of_our_class, _scaled_to_zero, _scaled_to_zero, _local_policy, _local_policy,
    _queue_blocked, _no_permission, _other_announcer, _ignored,
)  # fmt: skip
