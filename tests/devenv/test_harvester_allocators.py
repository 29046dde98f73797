"""Entries that other clients write to the history of a pool, and the allocators of the controller."""

from typing import Any, cast

import pytest

from devenv.harvester.allocators import Allocators
from devenv.harvester.ippools import FINALIZER, RELEASE, PoolController
from devenv.harvester.loadbalancers import LoadBalancerController
from devenv.harvester.queue import Retry
from devenv.harvester.records import Records, is_ready
from devenv.watch import Document
from harvester_ccm.kube.errors import Conflict
from tests.devenv.emulated import balancer
from tests.devenv.shelf import Shelf

KEY = "default/web"
RANGE = {"subnet": "127.77.0.0/24", "rangeStart": "127.77.0.1", "rangeEnd": "127.77.0.50"}
TEXT = "127.77.0.1-127.77.0.50"


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

    async def seed(self, history: Document) -> None:
        """Write the history, as another client does, and let the pool controller see it."""
        status = {**self.pools.stored["status"], "allocatedHistory": history}
        await self.pools.put({**self.pools.stored, "status": status})
        await self.look_at_pool()

    async def message(self) -> str:
        """Let the controller handle the load balancer, and return its message."""
        self.balancers.catch_up()
        try:
            await self._rules.reconcile(KEY)
        except Retry as retry:
            return str(retry)
        return ""

    @property
    def status(self) -> Document:
        """The status of the pool."""
        found: Document = self.pools.stored["status"]
        return found

    @property
    def address(self) -> str | None:
        """Address in the status of the load balancer."""
        found: str | None = self.balancers.stored["status"]["allocatedAddress"].get("ip")
        return found


async def test_seed_is_kept_without_a_check_and_gives_the_address() -> None:
    scene = Scene()
    await scene.look_at_pool()
    seeds = {"127.77.0.33": KEY, "10.0.0.5": "default/other", "nonsense": "default/third"}
    await scene.seed(seeds)
    assert scene.status["allocatedHistory"] == seeds
    assert await scene.message() == ""
    assert scene.address == "127.77.0.33"
    assert scene.status["allocated"] == {"127.77.0.33": KEY}
    assert "127.77.0.33" not in scene.status["allocatedHistory"]


@pytest.mark.parametrize(
    ("seed", "problem"),
    [
        ("10.0.0.5", f"10.0.0.5 not in range set {TEXT}"),
        ("127.77.0.1", "requested ip 127.77.0.1 is subnet's gateway"),
        ("127.77.0.9", f"requested IP address 127.77.0.9 is not available in range set {TEXT}"),
    ],
    ids=["outside of the ranges", "the gateway", "in use"],
)
async def test_seed_that_cannot_be_allocated(seed: str, problem: str) -> None:
    scene = Scene(allocated={"127.77.0.9": "default/other"})
    await scene.look_at_pool()
    await scene.seed({seed: KEY})
    assert await scene.message() == f"fail to get ip from pool lan, error: {problem}"
    assert scene.address is None
    assert scene.status["allocatedHistory"] == {seed: KEY}


async def test_new_ranges_drop_history_outside_of_them() -> None:
    scene = Scene()
    await scene.look_at_pool()
    await scene.seed({"127.77.0.50": "default/a", "127.77.0.20": "default/b"})
    smaller = {**RANGE, "rangeEnd": "127.77.0.30"}
    await scene.pools.put({**scene.pools.stored, "spec": {"ranges": [smaller]}})
    await scene.look_at_pool()
    assert scene.status["allocatedHistory"] == {"127.77.0.20": "default/b"}
    assert scene.status["total"] == 29


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


@pytest.mark.parametrize(
    ("order", "left"),
    [
        ("127.77.0.9: default/gone", {"127.77.0.8": KEY}),
        ("127.77.0.9: default/other", {"127.77.0.8": KEY, "127.77.0.9": "default/gone"}),
        ("127.77.0.8: default/web", {"127.77.0.8": KEY, "127.77.0.9": "default/gone"}),
        ("nonsense", {"127.77.0.8": KEY, "127.77.0.9": "default/gone"}),
    ],
    ids=["released", "another owner", "the load balancer exists", "no order"],
)
async def test_release_by_hand(order: str, left: Document) -> None:
    scene = Scene(allocated={"127.77.0.8": KEY, "127.77.0.9": "default/gone"})
    await scene.look_at_pool()
    metadata = {**scene.pools.stored["metadata"], "annotations": {RELEASE: order}}
    await scene.pools.put({**scene.pools.stored, "metadata": metadata})
    if len(left) == 1:
        # The annotation is removed from a copy that is older than the release.
        with pytest.raises(Conflict):
            await scene.look_at_pool()
    await scene.look_at_pool()
    assert scene.status["allocated"] == left
    assert scene.pools.stored["metadata"]["annotations"] == {}
