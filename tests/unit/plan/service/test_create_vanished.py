"""A load balancer that somebody deleted in Harvester: the next one gets its name, pool and network where known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    IP_POOL,
    IPAM,
    LB_REQUESTED_NETWORK,
    MOVING,
    NETWORK,
    Reason,
)
from harvester_ccm.plan.service.decision import GONE_PATIENCE
from harvester_ccm.plan.service.load_balancer import Former, former_of
from harvester_ccm.plan.service.steps import CreateLoadBalancer, DeleteLoadBalancer
from tests.unit.plan.service.plans import outline, plan, said, told
from tests.worlds.builders import LB_NAME, allocated, marked, served, service
from tests.worlds.service_plan_world import POOL, ServicePlanWorld

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


@pytest.mark.parametrize("asked", [served(), service(ours=True)], ids=["served", "not yet"])
@pytest.mark.parametrize("going", [*itertools.product([True, False], repeat=2)])
def test_nothing_comes_after_a_creation_that_waits_for_its_turn(asked: Any, going: tuple[bool, bool]) -> None:
    """What the plan has instead takes the place of the rest: the deletion of a second one would never be its turn."""
    names = (OLD_NAME, "oldest-shop-web-00000000")
    found = [allocated(asked, name, deleting=gone) for name, gone in zip(names, going, strict=True)]
    made = plan(asked, *found, waited=GONE_PATIENCE)
    kinds = [type(step) for step in made.steps if isinstance(step, CreateLoadBalancer | DeleteLoadBalancer)]
    assert kinds == ([CreateLoadBalancer] if all(going) else [] if any(going) else [DeleteLoadBalancer])


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
        {"write": OLD_NAME, "closing_pool": "vlan100"}
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


KEY = "shop/web"


def world_with_adopted() -> ServicePlanWorld:
    """Return a world in which a load balancer of another name has served the Service for long."""
    world = ServicePlanWorld()
    world.guest.put(SERVICES, served(address=POOL[0], annotations={KUBE_VIP_ADDRESSES: POOL[0]}))
    world.harvester.put(LOAD_BALANCERS, again(ip=POOL[0], pool="vlan100", address=POOL[0]))
    world.booked[POOL[0]] = OLD_NAME
    for _ in range(3):
        world.reconcile(KEY)
        world.now += 100.0
    return world


def test_adopted_one_that_somebody_deletes_keeps_its_name_and_address() -> None:
    world = world_with_adopted()
    world.delete_balancer(OLD_NAME)
    world.now += 0.1
    made = world.plan(KEY)
    assert (told(made), made.outcome) == ([], Wait("old_load_balancer", 30.0))
    world.now += 29.0
    assert told(world.plan(KEY)) == []
    world.harvest(OLD_NAME)
    world.reconcile(KEY)
    assert list(world.load_balancers) == [OLD_NAME]
    for _ in range(4):
        world.harvest(OLD_NAME)
    world.reconcile(KEY)
    assert world.service(KEY).addresses == (POOL[0],)


def test_one_that_does_not_go_is_told_of_after_a_while() -> None:
    world = world_with_adopted()
    world.guest.change(SERVICES, KEY, {"metadata": {"annotations": {MOVING: f'{{"name": "{OLD_NAME}"}}'}}})
    world.delete_balancer(OLD_NAME)
    world.plan(KEY)
    world.now += 30.0
    assert "not gone after 30 s" in said(world.plan(KEY), Reason.ADDRESS_PENDING)


def test_address_that_harvester_moves_to_another_pool_is_not_late_at_once() -> None:
    world = world_with_adopted()
    document = world.load_balancers[OLD_NAME]
    world.harvester.put(LOAD_BALANCERS, {**document, "status": {**document["status"], "allocatedAddress": {}}})
    made = world.plan(KEY)
    assert (told(made), made.outcome) == ([], Wait("allocating", 30.0))
