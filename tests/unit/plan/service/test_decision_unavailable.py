"""While Harvester cannot be read nothing is decided, and kube-vip is not kept waiting."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.errors import Answer, Unauthorized, Unreachable
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.outcome import Wait
from harvester_ccm.names import IPAM, Reason
from tests.unit.plan.service.plans import outline, plan, said, writes
from tests.worlds.builders import ADDRESS, served, service

HELD = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}

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
@pytest.mark.parametrize("asked", [served(deleting=True), served(kind="ClusterIP")], ids=["deleted", "ClusterIP"])
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
