"""The load balancer controller with caches that are older than its own writes."""

from typing import Any, cast

import pytest

from devenv.harvester.allocators import Allocators
from devenv.harvester.loadbalancers import FINALIZER, LoadBalancerController
from devenv.harvester.records import Records
from devenv.watch import Document
from harvester_ccm.kube.errors import Conflict
from tests.devenv.emulated import balancer
from tests.devenv.shelf import Shelf

KEY, ADDRESS = "default/web", "127.77.0.10"
RANGE = {"subnet": "127.77.0.0/24", "rangeStart": ADDRESS, "rangeEnd": "127.77.0.50"}


class Scene:
    """A new load balancer and a pool for it."""

    def __init__(self, *finalizers: str) -> None:
        document = balancer("web", ipPool="lan")
        document["metadata"]["finalizers"] = list(finalizers)
        self.balancers = Shelf(document)
        self.pools = Shelf({"metadata": {"name": "lan"}, "spec": {"ranges": [RANGE]}, "status": {}})
        allocators = Allocators()
        allocators.build(self.pools.stored)
        self.controller = LoadBalancerController(
            cast("Records", self.balancers),
            cast("Records", self.pools),
            allocators,
            cast("Any", None),
            now=lambda: "now",
        )

    @property
    def booked(self) -> Document:
        """Allocations in the pool."""
        found: Document = self.pools.stored["status"].get("allocated") or {}
        return found

    @property
    def address(self) -> str | None:
        """Address in the status of the load balancer."""
        found: str | None = self.balancers.stored["status"]["allocatedAddress"].get("ip")
        return found


async def test_stale_cache_releases_the_address_in_use() -> None:
    scene = Scene(FINALIZER)
    await scene.controller.reconcile(KEY)
    assert (scene.booked, scene.address) == ({ADDRESS: KEY}, ADDRESS)
    scene.pools.catch_up()
    # Enqueued again before the watch event of its own write.
    with pytest.raises(Conflict):
        await scene.controller.reconcile(KEY)
    assert (scene.booked, scene.address) == ({}, ADDRESS), "announced, but free in the pool"


async def test_stale_cache_of_the_pool_causes_a_conflict() -> None:
    scene = Scene(FINALIZER)
    await scene.pools.put({**scene.pools.stored, "spec": {"ranges": [RANGE], "description": "changed meanwhile"}})
    with pytest.raises(Exception, match="fail to reserve"):
        await scene.controller.reconcile(KEY)
    (condition,) = scene.balancers.stored["status"]["conditions"]
    assert condition["message"] == f"fail to get ip from pool lan, error: fail to reserve {ADDRESS} into lan"


async def test_finalizer_is_written_although_the_status_was_not() -> None:
    scene = Scene()
    await scene.balancers.put(scene.balancers.stored)
    with pytest.raises(Conflict):
        await scene.controller.reconcile(KEY)
    assert [one["metadata"]["finalizers"] for one in scene.balancers.tried[1:]] == [[], [FINALIZER]]
    assert scene.booked == {ADDRESS: KEY}
