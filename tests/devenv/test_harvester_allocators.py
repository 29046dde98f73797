"""Pools before their controller has looked at them, and those that it cannot count."""

from typing import Any, cast

import pytest

from devenv.harvester.allocators import Allocators
from devenv.harvester.ippools import FINALIZER, PoolController
from devenv.harvester.loadbalancers import LoadBalancerController
from devenv.harvester.queue import Retry
from devenv.harvester.records import Records, is_ready
from tests.devenv.emulated import balancer
from tests.devenv.shelf import Shelf

KEY = "default/web"
RANGE = {"subnet": "127.77.0.0/24", "rangeStart": "127.77.0.1", "rangeEnd": "127.77.0.50"}


class Scene:
    """A load balancer without an address, and a pool that its controller knows."""

    def __init__(self, **status: Any) -> None:
        self.balancers = Shelf(balancer("web", ipPool="lan"))
        metadata = {"name": "lan", "finalizers": [FINALIZER]}
        self.pools = Shelf({"metadata": metadata, "spec": {"ranges": [RANGE]}, "status": status})
        allocators = Allocators()
        balancers, pools = cast("Records", self.balancers), cast("Records", self.pools)
        self._rules = LoadBalancerController(balancers, pools, allocators, cast("Any", None), now=lambda: "now")
        self._pool_rules = PoolController(pools, balancers, allocators, now=lambda: "now")

    async def look_at_pool(self) -> None:
        """Let the pool controller handle an event of the pool."""
        self.pools.catch_up()
        await self._pool_rules.reconcile("lan")
        self.pools.catch_up()

    async def message(self) -> str:
        """Let the controller handle the load balancer, and return its message."""
        self.balancers.catch_up()
        try:
            await self._rules.reconcile(KEY)
        except Retry as retry:
            return str(retry)
        return ""

    @property
    def address(self) -> str | None:
        """Address in the status of the load balancer."""
        found: str | None = self.balancers.stored["status"]["allocatedAddress"].get("ip")
        return found


async def test_pool_with_a_history_of_nothing_is_used_without_a_status() -> None:
    scene = Scene(allocatedHistory={"nonsense": "default/other"})
    with pytest.raises(Retry, match="invalid ip nonsense"):
        await scene.look_at_pool()
    await scene.look_at_pool()
    assert not is_ready(scene.pools.stored)
    assert await scene.message() == ""
    assert scene.address == "127.77.0.2"


async def test_allocator_is_missing_until_the_pool_was_looked_at() -> None:
    scene = Scene(conditions=[{"type": "Ready", "status": "True"}])
    assert await scene.message() == "fail to get allocator lan"
    await scene.look_at_pool()
    assert await scene.message() == ""
