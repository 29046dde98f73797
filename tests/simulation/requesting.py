"""Requests of certain addresses, by the users of several clusters, with and without the permission for a pool."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from devenv.harvester.pools import Pool, booked, given_back
from devenv.harvester.records import POOLS
from harvester_ccm.names import IP_POOL, KUBE_VIP_ADDRESSES, REQUESTED_ADDRESS, WORKLOAD_TYPE
from tests.simulation.actions import LAN, Action, Fragment, pause, ports_of
from tests.simulation.actor import Actor

FIELD: Final = "spec.loadBalancerIP"
SETTINGS: Final = (FIELD, FIELD, REQUESTED_ADDRESS, KUBE_VIP_ADDRESSES)
"""Where users write a requested address."""
RIVAL: Final = "others/rival"
"""Load balancer in another namespace of Harvester that has got an address."""


class Requesting(Actor):
    """Runs the requests, and what administrators of Harvester and others do about the addresses."""

    def permit_requests(self, permitted: bool) -> None:
        """Permit the cluster to request addresses of pool ``lan``, or forbid it."""
        self._world.permit_requests(self._guest, permitted=permitted)
        self._world.met["requests permitted" if permitted else "requests forbidden"] += 1

    def request(
        self, name: str, ports: Sequence[Any], annotations: Mapping[str, str], address: str, setting: str
    ) -> None:
        """Create a Service that requests an address of pool ``lan``."""
        spec: dict[str, Any] = {"type": "LoadBalancer", "ports": list(ports)}
        written = {IP_POOL: LAN, **annotations}
        if setting == FIELD:
            spec["loadBalancerIP"] = address
        else:
            written[setting] = address
        self._guest.create_service(name, spec, written)
        self._world.met["address requested"] += 1

    def change_request(self, name: str, address: str | None) -> None:
        self._guest.change_service(name, {"spec": {"loadBalancerIP": address}})
        self._world.met["request changed"] += 1

    def take_address(self, address: str) -> None:
        """Let a load balancer of another namespace have an address, if it is free."""
        document = self._world.harvester.get(POOLS, LAN)
        pool = Pool.of(document)
        if address not in (pool.allocated or {}) and pool.range_of(address) is not None:
            self._world.harvester.put(POOLS, booked(document, address, f"{RIVAL}-{address}"))
            self._world.met["requested address taken by another namespace"] += 1

    def free_address(self, address: str) -> None:
        document = self._world.harvester.get(POOLS, LAN)
        self._world.harvester.put(POOLS, given_back(document, f"{RIVAL}-{address}"))


def _address(dice: random.Random) -> str:
    """Return an address, most often one of the pool."""
    return f"10.0.0.{dice.choice((10, 10, 11, 11, 12, 13, 14, 1, 99))}"


def _request(dice: random.Random, names: Sequence[str], address: str) -> Action:
    name = dice.choice(names)
    annotations = {WORKLOAD_TYPE: "vm"} if dice.random() < 0.2 else {}
    more = {"name": name, "ports": ports_of(dice, name), "annotations": annotations, "address": address}
    return Action(pause(dice), "request", {**more, "setting": dice.choice(SETTINGS)})


def _permitted(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Services request addresses, and one may change its mind."""
    actions = [Action(pause(dice), "permit_requests", {"permitted": True})]
    if dice.random() < 0.5:
        actions.append(Action(pause(dice), "delete", {"name": dice.choice(names)}))
    # Most schedules are shorter than the time until the controller asks again which permissions it has.
    actions.append(Action(dice.choice((0.0, 700.0)), "stop", {}))
    actions += [_request(dice, names, _address(dice)) for _ in range(dice.randint(1, 3))]
    if dice.random() < 0.3:
        more = {"name": dice.choice(names), "address": dice.choice((None, _address(dice)))}
        actions.append(Action(pause(dice), "change_request", more))
    if dice.random() < 0.2:
        actions.append(Action(pause(dice), "permit_requests", {"permitted": False}))
    return actions


def _without_permission(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service requests an address in vain."""
    return [_request(dice, names, _address(dice))]


def _in_use(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Two Services request one address, and the first one is changed or goes."""
    address = _address(dice)
    first, second = _request(dice, names, address), _request(dice, names, address)
    name = first.more["name"]
    actions = [
        Action(pause(dice), "permit_requests", {"permitted": True}),
        Action(dice.choice((0.0, 700.0)), "stop", {}),
        Action(0.0, "delete", {"name": name}),
        Action(0.0, "delete", {"name": second.more["name"]}),
        first,
        second,
    ]
    if dice.random() < 0.4:
        actions.append(Action(pause(dice), "annotate", {"name": name, "annotations": {WORKLOAD_TYPE: "vm"}}))
    if dice.random() < 0.6:
        actions.append(Action(pause(dice), "delete", {"name": name}))
    return actions


def _with_rivals(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Others have the address, get it just now, or release it."""
    address = _address(dice)
    take, free = (Action(pause(dice), verb, {"address": address}) for verb in ("take_address", "free_address"))
    request = _request(dice, names, address)
    order = dice.choice(([take, request], [take, request, free], [request, take], [take, request, free, take]))
    return [
        Action(pause(dice), "permit_requests", {"permitted": True}),
        Action(dice.choice((0.0, 700.0)), "stop", {}),
        *order,
    ]


def _of_two_clusters(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The guest cluster and its clone request the same addresses."""
    actions = [
        Action(pause(dice), "permit_requests", {"permitted": True}),
        Action(pause(dice), "stop", {}),
        _request(dice, names, _address(dice)),
        Action(dice.choice((0.5, 30.0)), "clone", {}),
        Action(0.0, "in_clone", {"verb": "permit_requests", "permitted": True}),
        Action(dice.choice((0.0, 700.0)), "wait", {}),
    ]
    for _ in range(dice.randint(1, 3)):
        request = _request(dice, names, _address(dice))
        is_of_clone = dice.random() < 0.6
        in_clone = Action(request.pause, "in_clone", {"verb": "request", **request.more})
        actions.append(in_clone if is_of_clone else request)
    return actions


OF_REQUESTING: Final[Sequence[Fragment]] = (
    _permitted, _permitted, _without_permission, _in_use, _in_use, _with_rivals, _of_two_clusters,
)  # fmt: skip
