"""Harvester's controllers on a server in memory: the code of the emulator, run from write to write.

Their rules are coroutines that wait for their writes only. Each write is a step of its own, at a time of the schedule:
after Harvester's rate limit and the latency of the server, on objects from its caches.
"""

import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Final

from devenv.announcement import DHCP_ADDRESS
from devenv.harvester.allocators import Allocators
from devenv.harvester.emulator import WORKERS
from devenv.harvester.ippools import PoolController
from devenv.harvester.loadbalancers import LoadBalancerController
from devenv.harvester.problems import Problem, Then
from devenv.harvester.queue import STOCK, Retry, TokenBucket, retry_seconds
from devenv.harvester.records import LOAD_BALANCERS, POOLS, Records, is_deleting
from devenv.harvester.versions import NEWEST, version
from devenv.watch import key_of
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.objects import Resource
from tests.simulation.loop import SeededLoop
from tests.support.memory_server import Document, MemoryServer, name_of
from tests.support.offline import offline_client

CACHE_LAGS: Final = (0.01, 0.01, 0.3)
"""Longest time in seconds until a change is in Harvester's own caches: one of these in a schedule."""
WRITE_SECONDS: Final = (0.005, 0.05)
LEASED: Final = "10.8.0."
"""First part of the addresses that the host network's DHCP server leases."""


@dataclass
class _Write:
    """The write that a rule waits for."""

    resource: Resource[Document]
    document: Document

    def __await__(self) -> Generator["_Write", Document, Document]:
        return (yield self)


class _Cache(Records):
    """A collection as old as its last event; writes are steps."""

    def __init__(self, resource: Resource[Document]) -> None:
        super().__init__(offline_client("harvester"), resource, bucket=TokenBucket(None, 1))

    async def put(self, document: Document) -> Document:
        return await _Write(self.resource, document)

    def take(self, kind: str, document: Document) -> None:
        """Apply an event."""
        if kind == "DELETED":
            self._remove(key_of(document))
        else:
            self._store(document)

    def refill(self, documents: list[Document]) -> None:
        self._objects = {key_of(one): one for one in documents}


class _NoBackends:
    """VM load balancers without traffic: Harvester announces their address at once."""

    async def ensure(self, balancer: Document, status: Document) -> None:
        """Fill in the status. Raises Problem."""
        # The address that the status had before: the Service is written before the status.
        address = ((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ip", "")
        if balancer["spec"].get("ipam") == "dhcp":
            address = DHCP_ADDRESS
        if not address:
            status.pop("address", None)
            raise Problem("service is waiting for external IP", Then.SECOND)
        number = sum(map(ord, balancer["metadata"]["name"])) % 250 + 1
        status["address"] = f"{LEASED}{number}" if address == DHCP_ADDRESS else address

    def forget(self, key: str) -> None:
        """Nothing runs."""


@dataclass
class _Limit:
    """Harvester's limit of writes."""

    whole_at: float = float("-inf")

    def turn(self, now: float) -> float:
        """Reserve a write and return its time."""
        qps = STOCK.qps or 1.0
        self.whole_at = max(self.whole_at, now - STOCK.burst / qps) + 1 / qps
        return max(self.whole_at, now)


@dataclass
class _Queue:
    """Keys to reconcile, with client-go's rules."""

    reconcile: Callable[[str], Coroutine[_Write, Document, float | None]]
    due: deque[str] = field(default_factory=deque)
    dirty: set[str] = field(default_factory=set)
    busy: dict[str, Coroutine[_Write, Document, float | None]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, key: str) -> None:
        if key not in self.dirty:
            self.dirty.add(key)
            if key not in self.busy:
                self.due.append(key)


def _search_of(balancer: Document) -> Document:
    """Return the fields of a load balancer that decide in which pool Harvester allocates an address."""
    annotations, status = balancer["metadata"].get("annotations") or {}, balancer.get("status") or {}
    return {
        "spec": {key: balancer["spec"].get(key) for key in ("ipam", "ipPool")},
        "annotations": {key: value for key, value in annotations.items() if "loadbalancer.harvesterhci.io/" in key},
        "allocated": status.get("allocatedAddress") or {},
        "conditions": status.get("conditions") or [],
    }


@dataclass
class _Allocation:
    """An allocation that is in the pool and not yet in the status of its load balancer."""

    uid: str
    """UID of the load balancer."""
    pool: str
    is_overtaken: bool
    """Whether the attempt began on a copy of the load balancer that is older than Harvester's own last write."""
    is_outdated: bool
    """Whether another client had written the load balancer since the copy on which it began."""
    search: Document
    """The search fields of the load balancer then, see ``_search_of``."""
    is_interrupted: bool = False
    """Whether Harvester's controllers stopped before they wrote the status, and the search is unchanged."""


class HarvesterControllers:
    """The load-balancer and the pool controller."""

    def __init__(
        self, server: MemoryServer, loop: SeededLoop, seed: str, now: Callable[[], str], number: str = NEWEST
    ) -> None:
        self._server = server
        self._loop = loop
        self._dice = random.Random(f"{seed} harvester")
        self._limit = _Limit()
        self._lag = self._dice.choice(CACHE_LAGS)
        self._run = 0
        self._told_until = 0.0
        self._under_way: deque[tuple[str, str, Document]] = deque()
        self.running = True
        """Whether the controllers run."""
        self.let_go: set[str] = set()
        """Load balancers whose own allocation the controller has released, as the real one does on a stale cache."""
        self.allocated_since: dict[str, float] = {}
        """Load balancers with an allocation, and the time at which the last attempt that allocated began."""
        self.forgotten: set[tuple[str, str]] = set()
        """Addresses that the controller has allocated and lost by itself, each with its load balancer."""
        self._began: dict[str, float] = {}
        """When the last attempt on each load balancer began."""
        self._copies: dict[str, tuple[bool, int]] = {}
        """Whether that attempt began on an overtaken copy, see ``_Allocation``, and the version of the copy."""
        self._unrecorded: dict[tuple[str, str], _Allocation] = {}
        """By address and load balancer."""
        self._is_writing = False
        self._own: dict[str, int] = {}
        """The version of each load balancer that the controller has written last."""
        self._caches = {name_of(one): _Cache(one) for one in (LOAD_BALANCERS, POOLS)}
        balancers, pools = self._caches.values()
        self._allocators = Allocators()
        pick = random.Random(f"{seed} maps of harvester").choice
        rules = version(number)
        lb_rules = LoadBalancerController(
            balancers, pools, self._allocators, _NoBackends(), now=now, pick=pick, version=rules
        )
        pool_rules = PoolController(pools, balancers, self._allocators, now=now, pick=pick, version=rules)
        self._queues = {
            name_of(LOAD_BALANCERS): _Queue(lb_rules.reconcile),
            name_of(POOLS): _Queue(pool_rules.reconcile),
        }
        server.on_change.append(self._changed)

    def stop(self) -> None:
        """Stop the controllers between two writes."""
        self.running = False
        self._run += 1
        self._under_way.clear()
        self._own.clear()
        for (_, owner), allocation in self._unrecorded.items():
            allocation.is_interrupted |= owner in self._queues[name_of(LOAD_BALANCERS)].busy
        for queue in self._queues.values():
            for attempt in queue.busy.values():
                attempt.close()
            queue.busy.clear()
            queue.due.clear()
            queue.dirty.clear()
            queue.failures.clear()

    def start(self) -> None:
        """Start them again: everything is listed and reconciled."""
        if self.running:
            return
        self.running = True
        self._allocators.clear()
        for name, cache in self._caches.items():
            cache.refill(list(self._server.of(name).values()))
            for key in self._server.of(name):
                self._queues[name].add(key)
        self._go_on()

    def _changed(self, collection: str, kind: str, document: Document) -> None:
        if collection == name_of(LOAD_BALANCERS) and not self._is_writing:
            self._note_other_writer(document)
        if collection == name_of(POOLS) and not self._is_writing:
            self._note_pool_change(key_of(document))
        if collection == name_of(LOAD_BALANCERS) and kind == "DELETED":
            self._note_second_pools(document)
        if collection in self._caches and self.running:
            self._told_until = max(self._told_until, self._loop.time() + self._dice.uniform(0.001, self._lag))
            self._under_way.append((collection, kind, document))
            self._loop.call_at(self._told_until, self._see, self._run)

    def _see(self, run: int) -> None:
        if run == self._run and self.running:
            collection, kind, document = self._under_way.popleft()
            self._caches[collection].take(kind, document)
            self._queues[collection].add(key_of(document))
            self._go_on()

    def _go_on(self) -> None:
        for queue in self._queues.values():
            while queue.due and len(queue.busy) < WORKERS:
                key = queue.due.popleft()
                queue.dirty.discard(key)
                queue.busy[key] = queue.reconcile(key)
                if queue is self._queues[name_of(LOAD_BALANCERS)]:
                    self._begin(key)
                self._step(queue, key, None)

    def _begin(self, key: str) -> None:
        """Record when an attempt on a load balancer begins, and on which copy."""
        self._began[key] = self._loop.time()
        version = _version(self._caches[name_of(LOAD_BALANCERS)].get(key))
        self._copies[key] = 0 < version < self._own.get(key, 0), version

    def _step(self, queue: _Queue, key: str, answer: Document | KubeError | None) -> None:
        """Let an attempt go on to its next write."""
        attempt = queue.busy[key]
        try:
            write = attempt.throw(answer) if isinstance(answer, KubeError) else attempt.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            queue.failures.pop(key, None)
            self._ended(queue, key, end.value)
        except (Retry, KubeError):
            queue.failures[key] = queue.failures.get(key, 0) + 1
            self._ended(queue, key, retry_seconds(queue.failures[key]))
        else:
            at = self._limit.turn(self._loop.time()) + self._dice.uniform(*WRITE_SECONDS)
            self._loop.call_at(at, self._write, self._run, queue, key, write)

    def _write(self, run: int, queue: _Queue, key: str, write: _Write) -> None:
        if run != self._run:
            return
        answer: Document | KubeError
        before = self._allocations(write)
        self._note_release(write, before)
        self._is_writing = True
        try:
            answer = self._server.replace(write.resource, key_of(write.document), write.document)
        except KubeError as error:
            answer = error
        else:
            self._note_allocations(write, answer, before)
        finally:
            self._is_writing = False
        self._loop.call_later(self._dice.uniform(*WRITE_SECONDS), self._answer, run, queue, key, answer)

    def _allocations(self, write: _Write) -> Document:
        """Return the allocations of the pool that is written; nothing for another object."""
        stored = self._server.of(POOLS).get(key_of(write.document)) if write.resource is POOLS else None
        return ((stored or {}).get("status") or {}).get("allocated") or {}

    def _note_release(self, write: _Write, before: Document) -> None:
        """Record allocations that are released although the load balancer is not being deleted."""
        after = ((write.document.get("status") or {}).get("allocated") or {}) if write.resource is POOLS else before
        for owner in set(before.values()) - set(after.values()):
            balancer = self._server.of(LOAD_BALANCERS).get(owner)
            if balancer is not None and not balancer["metadata"].get("deletionTimestamp"):
                self.let_go.add(owner)

    def _note_allocations(self, write: _Write, written: Document, before: Document) -> None:
        """Record new allocations, and those that are lost."""
        if write.resource is LOAD_BALANCERS:
            self._own[key_of(written)] = _version(written)
        for address, owner in self._allocations(write).items():
            if before.get(address) != owner:
                self.allocated_since[owner] = self._began[owner]
                balancer = self._server.of(LOAD_BALANCERS).get(owner)
                uid = balancer["metadata"]["uid"] if balancer else ""
                is_overtaken, version = self._copies[owner]
                is_outdated = 0 < version < _version(balancer)
                pool = written["metadata"]["name"]
                search = _search_of(balancer) if balancer else {}
                self._unrecorded[address, owner] = _Allocation(uid, pool, is_overtaken, is_outdated, search)
        self._note_forgotten(key_of(written) if write.resource is LOAD_BALANCERS else "")

    def _note_forgotten(self, written: str) -> None:
        """Record allocations that Harvester has lost by itself, as the real one does.

        Either the attempt began on a copy that did not know its own last write, and the load balancer has another
        address; or Harvester stopped before it recorded the address, and its next word is another one. ``written`` is
        the key of the load balancer whose status Harvester has just written.
        """
        for (address, owner), allocation in list(self._unrecorded.items()):
            balancer = self._server.of(LOAD_BALANCERS).get(owner)
            if balancer is None or balancer["metadata"]["uid"] != allocation.uid or is_deleting(balancer):
                continue
            recorded = ((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ip")
            if recorded == address:
                del self._unrecorded[address, owner]
                self.forgotten.discard((address, owner))
            elif (recorded and allocation.is_overtaken) or (owner == written and allocation.is_interrupted):
                self.forgotten.add((address, owner))

    def _note_other_writer(self, balancer: Document) -> None:
        """Record that another client has written a load balancer: the next allocation can depend on it.

        A write of listeners or health checks has no influence on it.
        """
        for (_, owner), allocation in self._unrecorded.items():
            allocation.is_interrupted &= owner != key_of(balancer) or _search_of(balancer) == allocation.search

    def note_administrator(self, owner: str) -> None:
        """Record that an administrator has edited a load balancer (its key), whose allocation can get lost by that."""
        self.forgotten |= {allocation for allocation in self._unrecorded if allocation[1] == owner}

    def _note_pool_change(self, pool: str) -> None:
        """Record that an administrator has changed a pool: it may not fit the load balancers any more that it serves.

        Harvester then does not find an allocation again that it has not recorded, and no client can know it.
        """
        self.forgotten |= {lost for lost, allocation in self._unrecorded.items() if allocation.pool == pool}

    def _note_second_pools(self, deleted: Document) -> None:
        """Record allocations on an outdated copy, in another pool than the deleted load balancer names.

        Its deletion waits until nothing can be allocated in the pool that it names. No client can know the other.
        """
        status = (deleted.get("status") or {}).get("allocatedAddress") or {}
        named = {status.get("ipPool"), deleted["spec"].get("ipPool")} - {None, ""}
        for (address, owner), allocation in self._unrecorded.items():
            if (
                allocation.uid == deleted["metadata"]["uid"]
                and allocation.is_outdated
                and named
                and allocation.pool not in named
            ):
                self.forgotten.add((address, owner))

    def _answer(self, run: int, queue: _Queue, key: str, answer: Document | KubeError) -> None:
        if run == self._run:
            self._step(queue, key, answer)
            self._go_on()

    def _ended(self, queue: _Queue, key: str, pause: float | None) -> None:
        del queue.busy[key]
        if key in queue.dirty:
            queue.due.append(key)
        elif pause is not None:
            self._loop.call_later(pause, self._again, self._run, queue, key)

    def _again(self, run: int, queue: _Queue, key: str) -> None:
        if run == self._run and self.running:
            queue.add(key)
            self._go_on()


def _version(document: Document | None) -> int:
    return int(document["metadata"]["resourceVersion"]) if document else 0
