"""While Harvester cannot be read nothing is decided, and kube-vip is not kept waiting."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.errors import Answer, Unauthorized, Unreachable
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.outcome import Wait
from harvester_ccm.names import IPAM, PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL, WORKLOAD_TYPE, Reason
from tests.unit.plan.service.plans import outline, plan, said, writes
from tests.worlds.builders import ADDRESS, allocated, marked, served, service

HELD = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}

SHOWN = {"ingress": [{"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}]}
CHANGED = served(ports=[{"port": 81, "protocol": "TCP"}], address=None, status=SHOWN)

HARVESTER_AWAY = {
    "just started": (None, 1.0, [], Wait("harvester_unavailable", 4.0)),
    "no answer for a while": (None, 5.0, ["Warning HarvesterUnavailable"], Wait("harvester_unavailable")),
    "unreachable": (Unreachable("no route"), 0.0, ["Warning HarvesterUnavailable"], Wait("harvester_unavailable")),
    "credential expired": (
        Unauthorized(Answer(401, "Unauthorized", "Unauthorized", "GET /x")),
        0.0,
        ["Warning HarvesterUnavailable"],
        Wait("harvester_unavailable"),
    ),
}


@pytest.mark.parametrize(("problem", "waited", "steps", "outcome"), HARVESTER_AWAY.values(), ids=HARVESTER_AWAY.keys())
@pytest.mark.parametrize("asked", [CHANGED, served(deleting=True), served(kind="ClusterIP")], ids=str)
def test_nothing_is_done_while_harvester_is_unknown(
    asked: Any, problem: Any, waited: float, steps: list[object], outcome: Wait
) -> None:
    assert outline(asked, harvester_known=False, harvester_problem=problem, waited=waited) == (steps, outcome)


@pytest.mark.parametrize("problem", [problem for problem, *_ in HARVESTER_AWAY.values()], ids=HARVESTER_AWAY.keys())
def test_who_is_served_is_not_told_that_harvester_is_away(problem: Any) -> None:
    portless = served(status={"ingress": [{"ip": ADDRESS}]}, address=None)
    for asked in (served(), portless):
        steps, outcome = outline(asked, harvester_known=False, harvester_problem=problem, waited=60.0)
        assert (steps, outcome) == ([], Wait("harvester_unavailable"))


def test_a_new_service_does_not_stall_kube_vip_while_harvester_is_away() -> None:
    made = plan(service(), harvester_known=False, harvester_problem=Unreachable("no route"))
    assert outline(service(), harvester_known=False)[0] == [{"service": {"annotations": HELD}}]
    assert "no route" in said(made, Reason.HARVESTER_UNAVAILABLE)


def test_a_lease_of_kube_vip_is_not_parked_while_harvester_is_away() -> None:
    leasing = service(annotations={KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}, ours=True)
    assert writes(plan(leasing, harvester_known=False)) == []


OTHER = "192.168.100.99"
ELSEWHERE = allocated(ip=OTHER, address=OTHER)
SHARED: dict[str, Any] = {"annotations": {PRIMARY_SERVICE: "shop/edge"}, "labels": {PRIMARY_SERVICE_LABEL: "shop.edge"}}
NEEDS_LIST: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "served": (served(), (allocated(),), False),
    "waits for an address": (service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True), (marked(),), False),
    "shows an address that another one may have": (served(), (ELSEWHERE,), True),
    "has none": (service(annotations=HELD), (), True),
    "can have none": (service(spec={"ipFamilyPolicy": "RequireDualStack"}), (), True),
    "names a primary": (served(annotations={PRIMARY_SERVICE: "shop/edge"}), (allocated(),), True),
    "was a secondary": (served(labels=SHARED["labels"]), (allocated(),), True),
    "is to have the other kind": (served(annotations={WORKLOAD_TYPE: "vm"}), (allocated(),), True),
    "is let go": (served(deleting=True), (allocated(),), False),
    "is let go, and another one may have its address": (served(deleting=True), (ELSEWHERE,), True),
    "a secondary is let go": (served(deleting=True, **SHARED), (), False),
    "a former secondary is let go": (served(deleting=True, labels=SHARED["labels"]), (), False),
}


@pytest.mark.parametrize(("asked", "found", "waits"), NEEDS_LIST.values(), ids=NEEDS_LIST.keys())
def test_what_is_not_decided_by_the_load_balancer_of_its_name_alone(
    asked: Any, found: tuple[Any, ...], waits: bool
) -> None:
    """Where the list of all is refused, as one object in it spoils it."""
    _, outcome = outline(asked, *found, listed=False)
    assert (outcome == Wait("harvester_unavailable", 5.0)) is waits
