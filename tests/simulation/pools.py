"""The address pools of a Harvester in memory, and what administrators do to them as far as its webhook lets them."""

from typing import Any, Final

from devenv.harvester.admission import is_cluster
from devenv.harvester.emulator import EVERYBODY
from devenv.harvester.ippools import FINALIZER
from devenv.harvester.loadbalancers import requirement_of
from devenv.harvester.pool_admission import labelled, validate_pool, validate_pool_deletion
from devenv.harvester.pools import DuplicateAllocation, Pick, Pool, PoolProblem, choose_address, counted, select_pool
from devenv.harvester.records import POOLS, is_deleting, with_condition
from devenv.watch import key_of
from tests.simulation.actions import LAN, LATE
from tests.support.builders import CLUSTER
from tests.support.memory_server import Document, MemoryServer

NETWORKS: Final = {LAN: "10.0.0", LATE: "10.0.1"}
"""First three numbers of the addresses of each pool."""
MOVED: Final = "10.0.2"
"""Those of pool ``lan`` when it was given other ones."""
ELSEWHERE: Final[Document] = {"scope": [{"project": "*", "namespace": "elsewhere", "guestCluster": "*"}]}
OURS: Final[Document] = {"scope": [{"project": "*", "namespace": "vms", "guestCluster": "*"}]}


class Pools:
    """The pools."""

    def __init__(self, server: MemoryServer, size: int) -> None:
        """``size`` is the number of addresses of the pool that there is at first."""
        self._server = server
        self._size = size
        self._network = NETWORKS[LAN]
        self._put(LAN, EVERYBODY)

    def make(self, name: str) -> None:
        """Make a pool. Raises Refusal."""
        if name not in self._server.of(POOLS):
            self._put(name, EVERYBODY if name == LAN else OURS)

    def delete(self, name: str) -> None:
        """Delete a pool. Raises Refusal, KubeError if there is no pool."""
        validate_pool_deletion(self._server.get(POOLS, name))
        self._server.delete(POOLS, name)

    def resize(self, by: int) -> None:
        """Give pool ``lan`` more addresses or fewer. Raises Refusal, KubeError if there is no pool."""
        size = max(self._size + by, 1)
        self._change({"spec": {"ranges": _ranges(self._network, size)}})
        self._size = size

    def move(self) -> None:
        """Give pool ``lan`` other addresses. Raises Refusal, KubeError if there is no pool."""
        network = MOVED if self._network != MOVED else NETWORKS[LAN]
        self._change({"spec": {"ranges": _ranges(network, self._size)}})
        self._network = network

    def open(self, *, to_everybody: bool) -> None:
        """Open pool ``lan`` for every namespace, or for another one. Raises Refusal, KubeError."""
        self._change({"spec": {"selector": EVERYBODY if to_everybody else ELSEWHERE}})

    def can_serve(self, balancer: Document, asked: str) -> bool:
        """Return whether there is an address for a load balancer; ``asked`` is the pool that its Service names."""
        if balancer["spec"].get("ipam") == "dhcp":
            return True
        documents = [one for one in self._server.of(POOLS).values() if not is_deleting(one)]
        pools = {key_of(one): Pool.of(one) for one in documents}
        named = asked or balancer["spec"].get("ipPool") or ""
        found = select_pool(list(pools.values()), requirement_of(balancer), loose=is_cluster(balancer))
        pool = pools.get(named) if named else found
        if pool is None:
            return False
        # If the entry of the history cannot be used, Harvester tries again, perhaps with another entry.
        return any(_has_address(pool, key_of(balancer), pick) for pick in (min, max))

    def is_gone(self, balancer: Document) -> bool:
        """Return whether the pool of a load balancer's address is deleted: Harvester cannot finish its deletion.

        A pool can be deleted if Harvester has lost the allocation.
        """
        pool = ((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ipPool")
        return bool(pool) and pool not in self._server.of(POOLS)

    def allocations(self) -> dict[str, str]:
        """Return the addresses that load balancers of the guest clusters have, each with the name of its own."""
        books: dict[str, str] = {}
        for pool in self._server.of(POOLS).values():
            books |= pool["status"].get("allocated") or {}
        owners = {address: owner.partition("/") for address, owner in books.items()}
        return {address: name for address, (namespace, _, name) in owners.items() if namespace == CLUSTER.namespace}

    def _put(self, name: str, selector: Document) -> None:
        network = MOVED if name == LAN and self._network == MOVED else NETWORKS[name]
        document = _pool(name, _ranges(network, self._size), selector)
        self._check(document, create=True)
        self._server.put(POOLS, document)

    def _change(self, patch: Document) -> None:
        stored = self._server.get(POOLS, LAN)
        changed = labelled({**stored, "spec": {**stored["spec"], **patch["spec"]}})
        self._check(changed, create=False)
        self._server.change(POOLS, LAN, {**patch, "metadata": {"labels": changed["metadata"]["labels"]}})

    def _check(self, document: Document, *, create: bool) -> None:
        others = [one for one in self._server.of(POOLS).values() if key_of(one) != key_of(document)]
        validate_pool(document, others, create=create)


def _has_address(pool: Pool, owner: str, pick: Pick) -> bool:
    """Return whether a pool has an address for a load balancer, if its entry of the history is selected so."""
    try:
        choose_address(pool, owner, pick)
    except DuplicateAllocation:
        return True
    except PoolProblem:
        return False
    return True


def _ranges(network: str, size: int) -> list[Document]:
    return [{"subnet": f"{network}.0/24", "rangeStart": f"{network}.10", "rangeEnd": f"{network}.{9 + size}"}]


def _pool(name: str, ranges: list[Document], selector: Document) -> Document:
    """Return a pool that is ready to be used."""
    document: dict[str, Any] = {
        "apiVersion": POOLS.api_version,
        "kind": POOLS.kind,
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {"ranges": ranges, "selector": selector},
    }
    document = labelled(counted(document))
    status = with_condition(document["status"], ready=True, message="", now="2026-11-21T08:00:00Z")
    return {**document, "status": status}
