"""A load balancer that was deleted in Harvester is created again under its name."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.model.outcome import Wait
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.decision import GONE_PATIENCE
from harvester_ccm.plan.service.steps import CreateLoadBalancer, DeleteLoadBalancer
from tests.unit.plan.service.plans import outline, plan, said, told
from tests.worlds.builders import LB_NAME, allocated, marked, served, service
from tests.worlds.service_plan_world import POOL, ServicePlanWorld

OLD_NAME = "older-shop-web-00000000"
CREATE = {"create": LB_NAME, "workloadType": "cluster", "ipam": "pool"}
HELD = {KUBE_VIP_ADDRESSES: ""}

CREATED: dict[str, tuple[Any, list[object]]] = {
    "the Service shows the address": (served(), [CREATE, "Warning RecreatingLoadBalancer"]),
    "the address was withdrawn": (service(annotations=HELD, ours=True), [CREATE, "Normal EnsuringLoadBalancer"]),
}


@pytest.mark.parametrize(("asked", "steps"), CREATED.values(), ids=CREATED.keys())
def test_what_is_created(asked: Any, steps: list[object]) -> None:
    assert outline(asked) == (steps, Wait("not_processed", 30.0))


@pytest.mark.parametrize("asked", [served(), service(ours=True)], ids=["served", "not yet"])
@pytest.mark.parametrize("going", [*itertools.product([True, False], repeat=2)])
def test_nothing_comes_after_a_creation_that_waits_for_its_turn(asked: Any, going: tuple[bool, bool]) -> None:
    """What the plan has instead takes the place of the rest: the deletion of a second one would never be its turn."""
    names = (OLD_NAME, "oldest-shop-web-00000000")
    found = [allocated(asked, name, deleting=gone) for name, gone in zip(names, going, strict=True)]
    made = plan(asked, *found, waited=GONE_PATIENCE)
    kinds = [type(step) for step in made.steps if isinstance(step, CreateLoadBalancer | DeleteLoadBalancer)]
    assert kinds == ([CreateLoadBalancer] if all(going) else [] if any(going) else [DeleteLoadBalancer])


def test_a_load_balancer_of_another_name_that_is_not_deleted_in_time_does_not_block_the_creation() -> None:
    going = allocated(None, OLD_NAME, deleting=True)
    steps, _ = outline(served(), going, waited=31.0)
    assert steps == [CREATE, "Warning RecreatingLoadBalancer"]


def test_the_same_address_is_promised_only_for_the_same_name() -> None:
    assert f"as {LB_NAME}. If that was its name" in said(plan(served()), Reason.RECREATING)


KEY = "shop/web"


def world_with_balancer() -> ServicePlanWorld:
    """Return a world in which a load balancer has served the Service for a long time."""
    world = ServicePlanWorld()
    world.guest.put(SERVICES, served(address=POOL[0], annotations={KUBE_VIP_ADDRESSES: POOL[0]}))
    world.harvester.put(LOAD_BALANCERS, marked(ip=POOL[0], pool="vlan100", address=POOL[0]))
    world.booked[POOL[0]] = LB_NAME
    for _ in range(3):
        world.reconcile(KEY)
        world.now += 100.0
    return world


def test_load_balancer_deleted_in_harvester_is_created_again_with_its_address() -> None:
    world = world_with_balancer()
    world.delete_balancer(LB_NAME)
    world.now += 0.1
    made = world.plan(KEY)
    assert (told(made), made.outcome) == ([], Wait("old_load_balancer", 30.0))
    world.now += 29.0
    assert told(world.plan(KEY)) == []
    world.harvest(LB_NAME)
    world.reconcile(KEY)
    assert list(world.load_balancers) == [LB_NAME]
    for _ in range(4):
        world.harvest(LB_NAME)
    world.reconcile(KEY)
    assert world.service(KEY).addresses == (POOL[0],)


def test_one_that_does_not_go_is_told_of_after_a_while() -> None:
    world = world_with_balancer()
    world.delete_balancer(LB_NAME)
    world.plan(KEY)
    world.now += 30.0
    assert "not gone after 30 s" in said(world.plan(KEY), Reason.ADDRESS_PENDING)


def test_address_that_harvester_moves_to_another_pool_is_not_late_at_once() -> None:
    world = world_with_balancer()
    document = world.load_balancers[LB_NAME]
    world.harvester.put(LOAD_BALANCERS, {**document, "status": {**document["status"], "allocatedAddress": {}}})
    made = world.plan(KEY)
    assert (told(made), made.outcome) == ([], Wait("allocating", 30.0))
