"""How long a Service has waited for the address of another one: since that one could have had it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import PRIMARY_SERVICE, Reason
from harvester_ccm.plan.service.shared_address import PRIMARY_PATIENCE
from harvester_ccm.plan.service.steps import CreateLoadBalancer, EmitEvent
from tests.worlds.service_plan_world import ServicePlanWorld

API, WEB, OTHER = "shop/api", "shop/web", "shop/other"
LONG = 2 * PRIMARY_PATIENCE


def put(
    world: ServicePlanWorld, key: str, port: int, *, kind: str = "LoadBalancer", primary: str | None = None
) -> None:
    namespace, name = key.split("/")
    annotations = {} if primary is None else {PRIMARY_SERVICE: primary}
    world.guest.put(
        SERVICES,
        {
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"type": kind, "ports": [{"port": port, "nodePort": 30000 + port}]},
        },
    )


def pass_time(world: ServicePlanWorld, seconds: float = LONG) -> None:
    for _ in range(4):
        world.reconcile(API)
        world.now += seconds / 4


def told(world: ServicePlanWorld) -> list[EventMessage]:
    events = (step.event for step in world.plan(API).steps if isinstance(step, EmitEvent))
    return [one for one in events if one.reason is Reason.ADDRESS_PENDING]


def created(world: ServicePlanWorld) -> None:
    put(world, WEB, 80)


def created_as_something_else(world: ServicePlanWorld) -> None:
    put(world, WEB, 80, kind="ClusterIP")


def made_a_load_balancer(world: ServicePlanWorld) -> None:
    world.guest.change(SERVICES, WEB, {"spec": {"type": "LoadBalancer"}})


def created_as_a_secondary(world: ServicePlanWorld) -> None:
    put(world, WEB, 80, primary=OTHER)


def made_a_primary(world: ServicePlanWorld) -> None:
    world.guest.change(SERVICES, WEB, {"metadata": {"annotations": {PRIMARY_SERVICE: None}}})


def created_anew(world: ServicePlanWorld) -> None:
    world.delete_service(WEB)
    put(world, WEB, 80)


def another_one_named(world: ServicePlanWorld) -> None:
    put(world, OTHER, 81)
    world.guest.change(SERVICES, API, {"metadata": {"annotations": {PRIMARY_SERVICE: OTHER}}})


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (None, created),
        (created_as_something_else, made_a_load_balancer),
        (created_as_a_secondary, made_a_primary),
        (created, created_anew),
        (created, another_one_named),
    ],
)
def test_the_time_begins_with_the_one_that_can_have_an_address(
    before: Callable[[ServicePlanWorld], None] | None, change: Callable[[ServicePlanWorld], None]
) -> None:
    """In GitOps the secondary is often applied first."""
    world = ServicePlanWorld()
    if before is not None:
        before(world)
    put(world, API, 443, primary=WEB)
    pass_time(world)
    change(world)
    assert told(world) == []
    pass_time(world)
    assert told(world)


def test_what_the_primary_is_told_meanwhile_begins_no_time_anew() -> None:
    world = ServicePlanWorld()
    put(world, WEB, 80)
    put(world, API, 443, primary=WEB)
    pass_time(world)
    world.reconcile(WEB)
    world.guest.change(SERVICES, WEB, {"metadata": {"annotations": {"example.org/note": "x"}}})
    assert told(world)


def test_one_that_had_the_address_waits_from_its_loss() -> None:
    world = ServicePlanWorld()
    put(world, WEB, 80)
    put(world, API, 443, primary=WEB)
    serve(world)
    pass_time(world)
    lost = {"status": {"loadBalancer": {"ingress": None}}}
    for key in (WEB, API):
        world.guest.change(SERVICES, key, lost)
    world.delete_balancer(next(iter(world.load_balancers)))
    assert told(world) == []


def test_the_turn_of_one_that_shares_no_more_is_waited_for_from_then_on() -> None:
    world = ServicePlanWorld()
    put(world, WEB, 80)
    put(world, API, 443, primary=WEB)
    serve(world)
    pass_time(world)
    world.guest.change(SERVICES, API, {"metadata": {"annotations": {PRIMARY_SERVICE: None}}})
    world.reconcile(API)
    creations = [step for step in world.plan(API).steps if isinstance(step, CreateLoadBalancer)]
    assert [step.otherwise.steps for step in creations] == [()]


def serve(world: ServicePlanWorld) -> None:
    """Let both have the address."""
    for _ in range(8):
        for key in (WEB, API):
            world.reconcile(key)
        for name in list(world.load_balancers):
            world.harvest(name)
        world.now += 1.0
    assert world.service(API).addresses == world.service(WEB).addresses != ()
