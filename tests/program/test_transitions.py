"""Every transition of a Service, with a kill of the controller between any two of its writes."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from harvester_ccm.names import IPAM, KUBE_VIP_ADDRESSES, PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.actions import Action, Scenario
from tests.simulation.known import ONE_PORT, OTHER_PORT
from tests.simulation.reshaping import FOREIGN_CLASS
from tests.simulation.schedule import Schedule

WRITES: Final = 10
"""More than any of these transitions takes."""
QUICK_STEP: Final = 3
"""Of the numbers of writes, without ``--thorough``."""
RESTART_SECONDS: Final = (0.0, 5.0)
"""Time until the next start, for odd and even numbers of writes."""
SETTLED: Final = 30.0
"""Seconds after which a Service has its address and the touch of the endpoints is done."""


def _created(
    name: str = "a", annotations: Mapping[str, str] | None = None, *, number: int = 80, after: float = 0.0
) -> Action:
    ports = ONE_PORT if number == 80 else OTHER_PORT
    return Action(after, "create", {"name": name, "ports": ports, "annotations": dict(annotations or {})})


def _annotated(name: str, key: str, value: str | None, *, after: float = 0.0) -> Action:
    return Action(after, "annotate", {"name": name, "annotations": {key: value}})


def _retyped(type: str, load_balancer_class: str | None = None, *, after: float = 0.0, name: str = "a") -> Action:
    more = {"name": name, "type": type, "load_balancer_class": load_balancer_class}
    return Action(after, "change_type_and_class", more)


SECONDARY: Final = _created("b", {PRIMARY_SERVICE: "shop/a"}, number=81)
TO_VM: Final = _annotated("a", WORKLOAD_TYPE, "vm")
# kube-vip does not write the lease of a Service that it announced before with another address.
KUBE_VIP_RESTARTS: Final = Action(100.0, "restart_kube_vip", {})
TO_DHCP: Final = (
    _annotated("a", IPAM, "dhcp"),
    Action(0.0, "delete_balancer", {"name": "a"}),
    KUBE_VIP_RESTARTS,
)
TRANSITIONS: Final[Mapping[str, tuple[Sequence[Action], Sequence[Action]]]] = {
    "created": ((), (_created(),)),
    "created for vm": ((), (_created("a", {WORKLOAD_TYPE: "vm"}),)),
    "created with dhcp": ((), (_created("a", {IPAM: "dhcp"}),)),
    "to vm": ((_created(),), (TO_VM,)),
    "to vm and back": (
        (_created(),),
        (TO_VM, _annotated("a", WORKLOAD_TYPE, "cluster", after=SETTLED)),
    ),
    "to cluster": ((_created("a", {WORKLOAD_TYPE: "vm"}),), (_annotated("a", WORKLOAD_TYPE, "cluster"),)),
    "primary to vm": ((_created(), SECONDARY), (TO_VM,)),
    "deleted": ((_created(),), (Action(0.0, "delete", {"name": "a"}),)),
    "created again": ((_created(),), (Action(0.0, "delete", {"name": "a"}), _created(after=2.0))),
    "begins to share": (
        (_created(), _created("b", number=81)),
        (_annotated("b", PRIMARY_SERVICE, "shop/a"),),
    ),
    "ends to share": ((_created(), SECONDARY), (_annotated("b", PRIMARY_SERVICE, None),)),
    "shares with another": (
        (_created(), SECONDARY, _created("c", number=81)),
        (_annotated("b", PRIMARY_SERVICE, "shop/c"),),
    ),
    "internal": ((_created(),), (_retyped("ClusterIP"),)),
    "internal and external": ((_created(),), (_retyped("ClusterIP"), _retyped("LoadBalancer", after=0.5))),
    "of another class": ((_created(),), (_retyped("ClusterIP"), _retyped("LoadBalancer", FOREIGN_CLASS))),
    "secondary of another class": (
        (_created(), SECONDARY),
        (_retyped("ClusterIP", name="b"), _retyped("LoadBalancer", FOREIGN_CLASS, name="b")),
    ),
    "load balancer deleted": ((_created(),), (Action(0.0, "delete_balancer", {"name": "a"}),)),
    "to dhcp by a lost load balancer": ((_created(), SECONDARY), TO_DHCP),
    "to dhcp while the DHCP server does not answer": (
        (_created(), SECONDARY),
        (Action(0.0, "stop_dhcp", {"seconds": 40.0}), *TO_DHCP),
    ),
    "with dhcp, another client wrote the status": (
        (_created("b", number=81),),
        (_created("a", {IPAM: "dhcp"}), Action(0.0, "write_status", {"name": "a", "of": "b"}), KUBE_VIP_RESTARTS),
    ),
    "with dhcp, annotation changed": (
        (_created("a", {IPAM: "dhcp"}), SECONDARY),
        (
            Action(0.0, "stop_dhcp", {"seconds": 20.0}),
            _annotated("a", KUBE_VIP_ADDRESSES, "192.168.1.50"),
            KUBE_VIP_RESTARTS,
        ),
    ),
    "annotation removed": ((_created(),), (_annotated("a", KUBE_VIP_ADDRESSES, None),)),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_transition_is_finished_after_a_kill_between_any_two_writes(name: str, *, thorough: bool) -> None:
    before, transition = TRANSITIONS[name]
    for number in range(1, WRITES + 1, 1 if thorough else QUICK_STEP):
        seconds = RESTART_SECONDS[number % 2]
        kill = Action(SETTLED if before else 0.0, "kill_after_writes", {"number": number, "seconds": seconds})
        scenario = Scenario(f"{name} {number}", 5, 1, (*before, kill, *transition))
        assert Schedule(scenario).run().wrong == "", f"killed after write {number} for {seconds} s"
