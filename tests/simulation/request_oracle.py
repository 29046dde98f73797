"""Requested addresses: of a pool, which is Harvester's, only one entry of the history is written."""

from typing import Final

from devenv.harvester.pools import Pool
from devenv.harvester.records import POOLS
from tests.simulation.world import World
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, placed

_POOLS: Final = f"{POOLS.api_version}/{POOLS.plural}"


def wrong_about_pool(world: World, call: Call) -> str:
    """Return what is wrong about a patch of a pool that is about to be carried out; empty for nothing."""
    if call.verb != "PATCH" or placed(call.path).collection != _POOLS:
        return ""
    stored = world.harvester.of(POOLS).get(placed(call.path).key)
    metadata, status = call.body.get("metadata"), call.body.get("status")
    if call.body.keys() != {"metadata", "status"} or metadata.keys() != {"resourceVersion"}:
        return f"{call.by} changes more of a pool than its history: {call.body}"
    if status.keys() != {"allocatedHistory"} or len(status["allocatedHistory"]) != 1:
        return f"{call.by} changes more of a pool than one entry of its history: {call.body}"
    if stored is None or stored["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
        return ""
    ((address, owner),) = status["allocatedHistory"].items()
    pool = Pool.of(stored)
    allocated, history = pool.allocated or {}, pool.history or {}
    entry = pool.range_of(address)
    if entry is None or str(entry.gateway) == address or address in allocated:
        return f"{call.by} requests {address}, which Harvester cannot allocate"
    if owner in allocated.values() or owner in history.values():
        return f"{call.by} requests {address} for {owner}, which has or had another one"
    if not owner.startswith(f"{CLUSTER.namespace}/{world.guest_of(call.by).cluster}-"):
        return f"{call.by} requests {address} for {owner} of another cluster"
    world.met["address requested in the pool"] += 1
    return ""
