"""Addresses of Services that this controller releases: each is withdrawn first, whoever has the load balancer."""

import asyncio
from typing import Any

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
)
from tests.support.builders import ADDRESS, CLUSTER, LB_NAME, allocated, served, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Document, document_of
from tests.support.program_world import Harvester, Program, guest_server

KUBE_VIP_CLASS = "kube-vip.io/kube-vip-class"
SHARED: dict[str, Any] = {"annotations": {PRIMARY_SERVICE: "shop/web"}, "ports": [{"port": 9}]}


class World(Program):
    """A Service with an address, and unless told otherwise one that shares it."""

    def __init__(self, *, shared: bool = True) -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name)
        self.put(served())
        self.harvester.put(LOAD_BALANCERS, document_of(allocated()))
        if shared:
            self.put(service("api", uid="2", **SHARED))
        self.seen: list[tuple[str | None, str | None]] = []
        """Address and ``ignore`` of the secondary, after each change."""

    def observe(self, *_change: object) -> None:
        """Record the annotations of the secondary that kube-vip reads."""
        found = self.service("api") if "shop/api" in self.guest.of(SERVICES) else {"metadata": {}}
        noted = found["metadata"].get("annotations") or {}
        state = noted.get(KUBE_VIP_ADDRESSES), noted.get(KUBE_VIP_IGNORE)
        if state not in self.seen[-1:]:
            self.seen.append(state)


def changed_class(name: str) -> list[tuple[str, Document]]:
    """Return the changes by which a Service gets another class: the API server empties the status in between."""
    return [
        (name, {"spec": {"type": "ClusterIP"}, "status": {"loadBalancer": None}}),
        (name, {"spec": {"type": "LoadBalancer", "loadBalancerClass": KUBE_VIP_CLASS}}),
    ]


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@jumping_time
@pytest.mark.guarantee("An announced address is never released")
async def test_secondary_that_gets_another_class_withdraws_the_shared_address(*, running: bool) -> None:
    world = World()
    async with world.live():
        await asyncio.sleep(5)
        assert world.address("api") == ADDRESS
        if running:
            for name, patch in changed_class("api"):
                world.change(name, **patch)
            world.guest.on_change.append(world.observe)
            await asyncio.sleep(5)
    if not running:
        for name, patch in changed_class("api"):
            world.change(name, **patch)
        world.guest.on_change.append(world.observe)
        async with world.live():
            await asyncio.sleep(5)
    assert world.seen == [("", None), (None, None)]
    found = world.service("api")["metadata"]
    assert SERVICE_FINALIZER not in found["finalizers"]
    assert PRIMARY_SERVICE_LABEL not in (found["labels"] or {})


@jumping_time
@pytest.mark.guarantee("An announced address is never released")
async def test_service_that_gets_another_class_after_its_load_balancer_was_deleted_withdraws_its_address() -> None:
    world = World(shared=False)
    async with world.live():
        await asyncio.sleep(5)
    world.harvester.remove(LOAD_BALANCERS, f"vms/{LB_NAME}")
    for name, patch in changed_class("web"):
        world.change(name, **patch)
    async with world.live():
        await asyncio.sleep(60)
    found = world.service("web")
    assert KUBE_VIP_ADDRESSES not in found["metadata"]["annotations"]
    assert SERVICE_FINALIZER not in found["metadata"]["finalizers"]


@pytest.mark.parametrize("change", ["deleted", "another class"])
@jumping_time
@pytest.mark.guarantee("An announced address is never released")
async def test_secondary_that_kube_vip_ignores_is_withdrawn_before_it_is_released(change: str) -> None:
    """A tenant sets the annotation, and kube-vip skips the deletion of a Service that it ignores."""
    world = World()
    async with world.live():
        await asyncio.sleep(5)
        world.change("api", metadata={"annotations": {KUBE_VIP_IGNORE: "true"}})
        await asyncio.sleep(5)
        world.guest.on_change.append(world.observe)
        if change == "deleted":
            world.guest.delete(SERVICES, "shop/api")
        else:
            for name, patch in changed_class("api"):
                world.change(name, **patch)
        await asyncio.sleep(5)
    assert world.seen[:2] == [(ADDRESS, "true"), ("", None)]
    assert world.seen[-1] == (None, None)
