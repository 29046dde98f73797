"""The load balancer controller: addresses, conditions and the finalizer of LoadBalancers, with the rules of a version.

One reconcile writes in the order of the real controller: the allocation in the pool, the status of the load balancer,
and then the finalizer in a separate write. If a load balancer is deleted before it has the finalizer, its address stays
allocated permanently, like in the real one.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from devenv.announcement import DHCP_ADDRESS
from devenv.harvester.admission import is_cluster
from devenv.harvester.allocators import Allocators
from devenv.harvester.pools import (
    DuplicateAllocation,
    Pick,
    Pool,
    PoolProblem,
    Requirement,
    allocated_address,
    booked,
    choose_address,
    given_back,
    select_pool,
)
from devenv.harvester.problems import Problem, Then
from devenv.harvester.queue import Retry
from devenv.harvester.records import (
    Records,
    is_deleting,
    with_condition,
    with_finalizer,
    without_finalizer,
)
from devenv.harvester.versions import V1_9, Duplicate, Version
from devenv.watch import Document, annotations_of, key_of
from harvester_ccm.kube.errors import ApiError, KubeError, NotFound

FINALIZER: Final = "wrangler.cattle.io/harvester-lb-controller"

log = structlog.get_logger(__name__)


class DataPath(Protocol):
    """The endpoints and probes of VM load balancers."""

    async def ensure(self, balancer: Document, status: Document) -> None:
        """Reconcile Service, endpoints and probes, and set their state in ``status``. Raises Problem."""

    def forget(self, key: str) -> None:
        """Stop the probes of a load balancer."""


def now_text() -> str:
    """Return the current time in the format of conditions."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def requirement_of(balancer: Document) -> Requirement:
    """Return the requirements for the pool, from the annotations of client and webhook."""
    annotations = annotations_of(balancer)
    prefix = "loadbalancer.harvesterhci.io"
    return Requirement(
        network=annotations.get(f"{prefix}/network", ""),
        project=annotations.get(f"{prefix}/project", ""),
        namespace=annotations.get(f"{prefix}/namespace") or balancer["metadata"]["namespace"],
        cluster=annotations.get(f"{prefix}/cluster", ""),
    )


class LoadBalancerController:
    """Reconciles load balancers."""

    def __init__(  # noqa: PLR0913 - what the process consists of
        self,
        balancers: Records,
        pools: Records,
        allocators: Allocators,
        data_path: DataPath,
        *,
        now: Callable[[], str] = now_text,
        pick: Pick = random.choice,
        version: Version = V1_9,
    ) -> None:
        self._balancers = balancers
        self._pools = pools
        self._allocators = allocators
        self._data_path = data_path
        self._now = now
        self._pick = pick
        self._version = version
        self._words = version.words

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one load balancer. Raises Retry for a backoff."""
        balancer = self._balancers.get(key)
        if balancer is None:
            self._data_path.forget(key)
            return None
        if is_deleting(balancer):
            await self._remove(key, balancer)
            return None
        status = {"allocatedAddress": {}, **(balancer.get("status") or {})}
        problem = await self._serve(balancer, status)
        message = problem.message if problem else ""
        status = with_condition(status, ready=problem is None, message=message, now=self._now())
        failure: KubeError | None = None
        try:
            if status != balancer.get("status"):
                balancer = await self._put({**balancer, "status": status})
        except KubeError as error:
            failure = error
        # Another handler adds the finalizer, with the result of this one and also after an error.
        owned = with_finalizer(balancer, FINALIZER)
        if owned is not balancer:
            await self._put(owned)
        if failure is not None:
            raise failure
        if problem is None or problem.then is Then.EVENT:
            return None
        if problem.then is Then.SECOND:
            return 1.0
        raise Retry(problem.message)

    async def _put(self, balancer: Document) -> Document:
        """Write a load balancer as Go does: zeros in the health check are left out."""
        check = balancer["spec"].get("healthCheck")
        if check:
            kept = {field: value for field, value in check.items() if value}
            balancer = {**balancer, "spec": {**balancer["spec"], "healthCheck": kept}}
        return await self._balancers.put(balancer)

    async def _serve(self, balancer: Document, status: Document) -> Problem | None:
        try:
            await self._find_address(balancer, status)
            if not is_cluster(balancer):
                await self._data_path.ensure(balancer, status)
        except Problem as problem:
            return problem
        return None

    async def _find_address(self, balancer: Document, status: Document) -> None:
        """Allocate the address of a load balancer, or release it. Raises Problem."""
        try:
            if self._version.selects_again:
                await self._allocate_again(balancer, status)
            # After a release, the next reconcile, which this write triggers, allocates from the new pool.
            elif not await self._give_back_other_pool(balancer, status):
                await self._allocate(balancer, status)
        except Problem as problem:
            text = self._words.failed.format(key=key_of(balancer), problem=problem.message)
            raise Problem(text, problem.then) from problem

    async def _allocate_again(self, balancer: Document, status: Document) -> None:
        """Select the pool as if the load balancer had no address, and move the address if it is in another one."""
        current = status["allocatedAddress"].get("ipPool")
        if balancer["spec"].get("ipam") == "dhcp":
            await self._leave(current, balancer)
            status["allocatedAddress"] = {"ip": DHCP_ADDRESS}
            return
        name = balancer["spec"].get("ipPool") or self._select(balancer)
        if name != current:
            await self._leave(current, balancer)
            status["allocatedAddress"] = await self._book(name, balancer)

    async def _leave(self, pool: str | None, balancer: Document) -> None:
        """Release the address in a pool, if there is one. Raises Problem."""
        if not pool:
            return
        try:
            await self._release(key_of(balancer), pool)
        except (PoolProblem, KubeError) as error:
            raise Problem(str(error)) from error

    async def _give_back_other_pool(self, balancer: Document, status: Document) -> bool:
        """Return whether the address was released because the specification names another pool."""
        wished = balancer["spec"].get("ipPool")
        current = status["allocatedAddress"].get("ipPool")
        if not wished or not current or wished == current:
            return False
        try:
            await self._release(key_of(balancer), current)
        except (Problem, PoolProblem, KubeError) as error:
            # Harvester's message names the new pool.
            address = status["allocatedAddress"].get("ip") or ""
            raise Problem(f"fail to release ip {address} to pool {wished}, error: {error}") from error
        status["allocatedAddress"] = {}
        return True

    async def _allocate(self, balancer: Document, status: Document) -> None:
        if balancer["spec"].get("ipam") == "dhcp":
            status["allocatedAddress"] = {"ip": DHCP_ADDRESS}
        elif not status["allocatedAddress"].get("ipPool"):
            name = balancer["spec"].get("ipPool") or self._select(balancer)
            status["allocatedAddress"] = await self._book(name, balancer)

    def _select(self, balancer: Document) -> str:
        candidates = [Pool.of(document, ranges=()) for document in self._pools.all()]
        requirement = requirement_of(balancer)
        loose = is_cluster(balancer) and self._version.loose_scopes
        pool = select_pool(candidates, requirement, loose=loose)
        if pool is None:
            then = Then.SECOND if self._version.retries_each_second else Then.BACK_OFF
            raise Problem(self._words.no_pool.format(key=key_of(balancer), requirement=requirement), then)
        return pool.name

    def _pool(self, name: str) -> tuple[Document, Pool]:
        """Return a pool from the cache, and with the ranges of its allocator. Raises Problem, PoolProblem."""
        ranges = self._allocators.ranges_of(name)
        if ranges is None:
            raise Problem(self._words.no_allocator.format(pool=name))
        document = self._pools.get(name)
        if document is None:
            raise PoolProblem(f'ippools.loadbalancer.harvesterhci.io "{name}" not found')
        return document, Pool.of(document, ranges)

    async def _book(self, name: str, balancer: Document) -> Document:
        try:
            return await self._try_to_book(name, balancer)
        except PoolProblem as problem:
            raise Problem(self._words.from_pool.format(pool=name, problem=problem)) from problem

    async def _try_to_book(self, name: str, balancer: Document) -> Document:
        """Return the address as it is noted in the status. Raises Problem, PoolProblem."""
        owner = key_of(balancer)
        document, pool = self._pool(name)
        try:
            address = choose_address(pool, owner, self._pick, self._version)
        except DuplicateAllocation:
            if self._releases_duplicate(balancer):
                await self._release_duplicate(document, owner)
            raise
        try:
            if (pool.allocated or {}).get(address) != owner:
                await self._pools.put(booked(document, address, owner))
        except ApiError as error:
            raise PoolProblem(self._words.not_reserved.format(address=address, pool=name)) from error
        return allocated_address(pool, address)

    def _releases_duplicate(self, balancer: Document) -> bool:
        match self._version.duplicate:
            case Duplicate.RELEASED:
                return True
            case Duplicate.NAMED_POOL:
                return bool(balancer["spec"].get("ipPool"))
            case Duplicate.STAYS:
                return False

    async def _release_duplicate(self, document: Document, owner: str) -> None:
        """Release the existing allocation of the owner: with a stale copy, it is rarely the one in its status."""
        try:
            await self._pools.put(given_back(document, owner, self._pick, self._version))
        except KubeError as error:
            log.info("duplicate booking not released", pool=key_of(document), owner=owner, error=str(error))
        else:
            log.info("duplicate booking released", pool=key_of(document), owner=owner)

    async def _release(self, owner: str, name: str) -> None:
        """Release the allocation of the owner in a pool. Raises Problem, PoolProblem, KubeError."""
        document, _ = self._pool(name)
        free = given_back(document, owner, self._pick, self._version)
        if free is not document:
            await self._pools.put(free)

    async def _remove(self, key: str, balancer: Document) -> None:
        bare = without_finalizer(balancer, FINALIZER)
        if bare is balancer:
            return
        allocated = (balancer.get("status") or {}).get("allocatedAddress") or {}
        if balancer["spec"].get("ipam") == "pool" and allocated.get("ipPool"):
            try:
                await self._release(key, allocated["ipPool"])
            except (Problem, PoolProblem, KubeError) as error:
                # Only the log of the controller contains it, not the object.
                log.debug("load balancer cannot be released", key=key, error=str(error))
                raise Retry(str(error)) from error
        self._data_path.forget(key)
        try:
            await self._put(bare)
        except NotFound:
            log.debug("load balancer already gone", key=key)
