"""A load balancer that somebody deleted in Harvester: the next one gets its name, pool and network where known."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    LB_REQUESTED_NETWORK,
    NETWORK,
    Reason,
)
from harvester_ccm.plan.service.load_balancer import Former, former_of
from harvester_ccm.plan.service.steps import CreateLoadBalancer
from tests.unit.plan.service.plans import outline, plan, said, told
from tests.worlds.builders import LB_NAME, allocated, marked, served, service

OLD_NAME = "older-shop-web-00000000"
ADOPTED = Former(OLD_NAME, "vlan100", "pool", "")
CREATE = {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"}
AGAIN = {**CREATE, "create": OLD_NAME, "ipPool": "vlan100"}
HELD = {KUBE_VIP_ADDRESSES: ""}
EXHAUSTED = "fail to get ip from pool vlan100, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"

CREATED: dict[str, tuple[Any, Former | None, list[object]]] = {
    "seen before": (served(), ADOPTED, [AGAIN, "Warning RecreatingLoadBalancer"]),
    "not seen, after a restart": (served(), None, [CREATE, "Warning RecreatingLoadBalancer"]),
    "an address from DHCP": (
        served(),
        Former(OLD_NAME, "", "dhcp", ""),
        [{**CREATE, "create": OLD_NAME, "ipam": "dhcp"}, "Warning RecreatingLoadBalancer"],
    ),
    "wishes that were refused are refused again": (
        served(annotations={IPAM: "dhcp", IP_POOL: "other"}),
        ADOPTED,
        ["Warning SettingsIgnored", AGAIN, "Warning RecreatingLoadBalancer"],
    ),
    "the Service has given its address up since": (
        service(annotations=HELD, ours=True),
        ADOPTED,
        [CREATE, "Normal EnsuringLoadBalancer"],
    ),
}


@pytest.mark.parametrize(("asked", "former", "steps"), CREATED.values(), ids=CREATED.keys())
def test_what_is_created(asked: Any, former: Former | None, steps: list[object]) -> None:
    assert outline(asked, former=former) == (steps, Wait("not_processed", 30.0))


def test_the_name_cannot_be_had_while_the_old_one_does_not_go() -> None:
    going = allocated(None, OLD_NAME, deleting=True)
    steps, _ = outline(served(), going, former=ADOPTED, waited=31.0)
    assert steps == [CREATE, "Warning RecreatingLoadBalancer"]


@pytest.mark.parametrize(
    ("former", "text"),
    [
        pytest.param(ADOPTED, "under the same name", id="seen before"),
        pytest.param(None, f"as {LB_NAME}. If that was its name", id="not seen"),
    ],
)
def test_the_same_name_is_promised_only_where_it_is_known(former: Former | None, text: str) -> None:
    assert text in said(plan(served(), former=former), Reason.RECREATING)


def test_it_keeps_the_network_of_the_address() -> None:
    asked = served(annotations={NETWORK: "infra/new"})
    former = former_of(allocated(annotations={LB_REQUESTED_NETWORK: "infra/old"}))
    (body,) = [step.body for step in plan(asked, former=former).steps if isinstance(step, CreateLoadBalancer)]
    metadata: Any = body["metadata"]
    assert metadata["annotations"][LB_REQUESTED_NETWORK] == "infra/old"


def again(**more: Any) -> Any:
    return marked(None, OLD_NAME, spec={"ipPool": "vlan100"}, **more)


def test_its_pool_stays_until_harvester_refuses_it() -> None:
    adopted = "Normal AdoptedLoadBalancer"
    wrong_network = served(annotations={NETWORK: "infra/new"})
    for asked in (served(), wrong_network):
        assert [step for step in outline(asked, again(), former=ADOPTED)[0] if step != adopted] == []
    steps, outcome = outline(served(), again(message=EXHAUSTED), former=ADOPTED)
    assert [step for step in steps if isinstance(step, dict) and "write" in step] == [
        {"write": OLD_NAME, "spec": {"ipPool": None}}
    ]
    assert outcome == Wait("pool_exhausted")


def test_a_hosted_one_keeps_its_pool_too() -> None:
    asked = served(annotations={"cloudprovider.harvesterhci.io/workload-type": "vm"})
    steps, _ = outline(asked, former=Former(LB_NAME, "vlan100", "pool", ""), waited=5.0)
    (create,) = [step for step in steps if isinstance(step, dict) and "create" in step]
    assert (create["create"], create["ipPool"]) == (LB_NAME, "vlan100")
    made = marked(spec={**{key: value for key, value in create.items() if key != "create"}})
    steps, _ = outline(asked, made, former=Former(LB_NAME, "vlan100", "pool", ""))
    assert [step for step in steps if isinstance(step, dict) and "write" in step] == []


def test_one_that_serves_again_is_left_alone() -> None:
    assert outline(served(), allocated(spec={"ipPool": "vlan100"}), former=ADOPTED) == ([], Done())
    assert told(plan(served(), allocated(), former=ADOPTED)) == []
