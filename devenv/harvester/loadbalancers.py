"""The load balancer controller: addresses, conditions and the finalizer of LoadBalancer objects.

One reconcile writes in the order of the real controller: the allocation in the pool, the status of the load balancer,
and then the finalizer in a separate write. If a load balancer is deleted before it has the finalizer, its address stays
allocated permanently, like in the real one.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from devenv.announcement import DHCP_ADDRESS
from devenv.harvester.admission import is_cluster
from devenv.harvester.pools import (
    DuplicateAllocation,
    Pool,
    PoolProblem,
    RangeProblem,
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
    is_ready,
    with_condition,
    with_finalizer,
    without_finalizer,
)
from devenv.watch import Document, annotations_of, key_of
from harvester_ccm.kube.errors import ApiError, KubeError, NotFound

FINALIZER: Final = "wrangler.cattle.io/harvester-lb-controller"

log = structlog.get_logger(__name__)


class DataPath(Protocol):
    """The endpoints and probes of VM load balancers."""

    async def ensure(self, balancer: Document, status: Document) -> None:
        """Reconcile Service, endpoints and probes, and set their state in ``status``. Raises Problem."""

    async def blank(self, balancer: Document) -> None:
        """Remove the address from the Service. Raises Problem."""

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

    def __init__(
        self,
        balancers: Records,
        pools: Records,
        data_path: DataPath,
        *,
        now: Callable[[], str] = now_text,
    ) -> None:
        self._balancers = balancers
        self._pools = pools
        self._data_path = data_path
        self._now = now

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
                balancer = await self._balancers.put({**balancer, "status": status})
        except KubeError as error:
            failure = error
        # Another handler adds the finalizer, with the result of this one and also after an error.
        owned = with_finalizer(balancer, FINALIZER)
        if owned is not balancer:
            await self._balancers.put(owned)
        if failure is not None:
            raise failure
        if problem is None or problem.then is Then.EVENT:
            return None
        if problem.then is Then.SECOND:
            return 1.0
        raise Retry(problem.message)

    async def _serve(self, balancer: Document, status: Document) -> Problem | None:
        try:
            if await self._give_back_other_pool(balancer, status):
                # The next reconcile, which this write triggers, allocates from the new pool.
                return None
            await self._allocate(balancer, status)
            if not is_cluster(balancer):
                await self._data_path.ensure(balancer, status)
        except Problem as problem:
            return problem
        return None

    async def _give_back_other_pool(self, balancer: Document, status: Document) -> bool:
        """Return whether the address was released because the specification names another pool."""
        wished = balancer["spec"].get("ipPool")
        current = status["allocatedAddress"].get("ipPool")
        if not wished or not current or wished == current:
            return False
        await self._release(key_of(balancer), status["allocatedAddress"])
        status["allocatedAddress"] = {}
        if not is_cluster(balancer):
            await self._data_path.blank(balancer)
        return True

    async def _allocate(self, balancer: Document, status: Document) -> None:
        if balancer["spec"].get("ipam") == "dhcp":
            status["allocatedAddress"] = {"ip": DHCP_ADDRESS}
        elif not status["allocatedAddress"].get("ipPool"):
            name = balancer["spec"].get("ipPool") or self._select(balancer)
            status["allocatedAddress"] = await self._book(name, key_of(balancer))

    def _select(self, balancer: Document) -> str:
        candidates = []
        for document in self._pools.all():
            try:
                candidates.append(Pool.of(document))
            except RangeProblem as problem:
                log.warning("pool unusable", pool=key_of(document), error=str(problem))
        requirement = requirement_of(balancer)
        pool = select_pool(candidates, requirement, loose=is_cluster(balancer))
        if pool is None:
            raise Problem(f"no matched IPPool with requirement {requirement}", Then.SECOND)
        return pool.name

    def _allocator(self, name: str) -> Document:
        document = self._pools.get(name)
        if document is None or is_deleting(document) or not is_ready(document):
            raise Problem(f"fail to get allocator {name}")
        return document

    async def _book(self, name: str, owner: str) -> Document:
        document = self._allocator(name)
        pool = Pool.of(document)
        try:
            address = choose_address(pool, owner)
        except DuplicateAllocation as duplicate:
            await self._release_duplicate(document, owner)
            raise Problem(f"fail to get ip from pool {name}, error: {duplicate}") from duplicate
        except PoolProblem as problem:
            raise Problem(f"fail to get ip from pool {name}, error: {problem}") from problem
        try:
            if (pool.allocated or {}).get(address) != owner:
                await self._pools.put(booked(document, address, owner))
        except ApiError as error:
            text = f"fail to get ip from pool {name}, error: fail to reserve {address} into {name}"
            raise Problem(text) from error
        return allocated_address(pool, address)

    async def _release_duplicate(self, document: Document, owner: str) -> None:
        """Release the existing allocation of the owner: with a stale copy, it is rarely the one in its status."""
        try:
            await self._pools.put(given_back(document, owner))
        except KubeError as error:
            log.info("duplicate booking not released", pool=key_of(document), owner=owner, error=str(error))
        else:
            log.info("duplicate booking released", pool=key_of(document), owner=owner)

    async def _release(self, owner: str, allocated: Document) -> None:
        name, address = allocated["ipPool"], allocated.get("ip") or ""
        try:
            document = self._allocator(name)
            free = given_back(document, owner)
            if free is not document:
                await self._pools.put(free)
        except (Problem, KubeError) as error:
            raise Problem(f"fail to release ip {address} to pool {name}, error: {error}") from error

    async def _remove(self, key: str, balancer: Document) -> None:
        bare = without_finalizer(balancer, FINALIZER)
        if bare is balancer:
            return
        allocated = (balancer.get("status") or {}).get("allocatedAddress") or {}
        if balancer["spec"].get("ipam") == "pool" and allocated.get("ipPool"):
            try:
                await self._release(key, allocated)
            except Problem as problem:
                # Only the log of the controller contains it, not the object.
                log.debug("load balancer cannot be released", key=key, error=problem.message)
                raise Retry(problem.message) from problem
        self._data_path.forget(key)
        try:
            await self._balancers.put(bare)
        except NotFound:
            log.debug("load balancer already gone", key=key)
