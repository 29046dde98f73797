"""Requested addresses: one that is permitted and free is honored, or the Service says why not."""

import json
from typing import Final

from devenv.harvester.pools import Pool
from devenv.harvester.records import LOAD_BALANCERS, POOLS
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.names import ANNOUNCED_AS, IP_POOL, IPAM, REQUESTED_ADDRESS, Reason
from tests.simulation.facts import annotation, condition_reasons, made_for, name_of, served, shown
from tests.simulation.guest import SIGHT, Guest
from tests.simulation.world import EVENTS, World
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, Document, placed

_POOLS: Final = f"{POOLS.api_version}/{POOLS.plural}"
_BALANCERS: Final = f"{LOAD_BALANCERS.api_version}/{LOAD_BALANCERS.plural}"
MISLEADING: Final = ("403s", "guest restored")
"""Faults after which the controller can believe that it has no permission, or decide about an earlier Service."""
PERMITTED_SECONDS: Final = 650.0
"""Seconds within which the controller finds a new permission."""
EXPLAINED: Final = frozenset({Reason.ADDRESS_NOT_AS_REQUESTED, Reason.INVALID_ANNOTATION, Reason.IGNORED})
"""Reasons of the Events with which a Service says that it has another address than the requested one."""


def _had_address(service: Document) -> bool:
    """Return whether a Service had an address: the record of the controller names the last one."""
    record = annotation(service, ANNOUNCED_AS)
    return record.startswith("{") and bool(json.loads(record).get("address"))


class RequestOracle:
    """Checks every request in a pool, and what has become of it at the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._events_lost: set[str] = set()
        """Clusters of which an Event may not have been written."""
        self._requests: set[tuple[str, str]] = set()
        """Addresses that were requested in a pool, each with its load balancer."""

    def answered(self, call: Call, error: KubeError | None) -> None:
        """Record that an Event was not written."""
        if EVENTS in call.path and error is not None:
            self._events_lost.add(self._world.guest_of(call.by).cluster)

    def sent(self, call: Call) -> None:
        """Record that an Event may not arrive: faults of the network keep a request from the server."""
        if EVENTS in call.path and self._world.loop.time() < self._world.disturbed_until:
            self._events_lost.add(self._world.guest_of(call.by).cluster)

    def check_arrival(self, call: Call) -> str:
        """Return what is wrong about a patch of a pool that is about to be carried out; empty for nothing."""
        if call.verb != "PATCH" or placed(call.path).collection != _POOLS:
            return ""
        stored = self._world.harvester.of(POOLS).get(placed(call.path).key)
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
        if not owner.startswith(f"{CLUSTER.namespace}/{self._world.guest_of(call.by).cluster}-"):
            return f"{call.by} requests {address} for {owner} of another cluster"
        self._world.met["address requested in the pool"] += 1
        self._requests.add((address, owner))
        return ""

    def check_creation(self, call: Call) -> str:
        """Return what is wrong about the creation of a load balancer; empty for nothing.

        Its Service must have requested its address before, if that is permitted and free. A permission of which the
        controller cannot know yet does not count, nor does a Service that was changed just now.
        """
        if call.verb != "POST" or placed(call.path).collection != _BALANCERS or "dryRun" in call.path:
            return ""
        guest, now = self._world.guest_of(call.by), self._world.loop.time()
        name = made_for(call.body)
        service = guest.service(name)
        is_changing = now - guest.last_action.get(name, 0.0) < SIGHT
        if service is None or is_changing or any(self._world.met[fault] for fault in MISLEADING):
            return ""
        address, owner = service["spec"].get("loadBalancerIP"), f"{CLUSTER.namespace}/{name_of(call.body)}"
        is_known = now - self._world.permitted_since(guest) > PERMITTED_SECONDS
        if not address or not is_known or not self._may_request(guest, service) or _had_address(service):
            return ""
        if shown(service) and name in guest.condition_removed:
            # Without the condition, it looks like a Service to which another provider has given the address.
            return ""
        document = self._world.harvester.of(POOLS).get(annotation(service, IP_POOL))
        if document is None:
            return ""
        pool = Pool.of(document)
        had_others = owner in (pool.allocated or {}).values() or owner in (pool.history or {}).values()
        if had_others or address in (pool.allocated or {}):
            return ""
        if (address, owner) in self._requests:
            # Another cluster has requested the address since, for a Service of its own.
            return ""
        return f"{call.by} creates {owner} without the request of {address}"

    def waits_rightly(self, guest: Guest, service: Document) -> bool:
        """Return whether a Service without a load balancer requests an address that Harvester cannot allocate to it."""
        if not self._may_request(guest, service):
            return False
        reasons = condition_reasons(service)
        kept = annotation(service, REQUESTED_ADDRESS).partition(" ")[0]
        address = str(service["spec"].get("loadBalancerIP") or kept)
        document = self._world.harvester.of(POOLS).get(annotation(service, IP_POOL))
        if not address:
            return False
        if document is None:
            return "NoMatchingPool" in reasons
        pool = Pool.of(document)
        entry = pool.range_of(address)
        if entry is None or str(entry.gateway) == address:
            return "InvalidAnnotation" in reasons
        self._world.met["waits for a requested address in use"] += "AddressInUse" in reasons
        return "AddressInUse" in reasons and self._is_in_use(guest, service, address, pool)

    def _is_in_use(self, guest: Guest, service: Document, address: str, pool: Pool) -> bool:
        if address in (pool.allocated or {}):
            return True
        if any(served(balancer) == address for balancer in self._world.balancers()):
            return True
        if any(address in shown(other) for other in guest.services() if other is not service):
            return True
        return self._is_next_for_another(address, pool)

    def _is_next_for_another(self, address: str, pool: Pool) -> bool:
        """Return whether a load balancer without an address gets this one again, as soon as Harvester allocates."""
        owner = (pool.history or {}).get(address, "")
        waiting = [balancer for balancer in self._world.balancers() if not served(balancer)]
        return any(owner == f"{CLUSTER.namespace}/{name_of(balancer)}" for balancer in waiting)

    def unexplained(self, guest: Guest, service: Document, address: str) -> str:
        """Return what is wrong about a Service with this address that requests another one; empty for nothing."""
        requested = service["spec"].get("loadBalancerIP")
        if not requested or not address:
            return ""
        if requested == address:
            self._world.met["requested address allocated"] = 1
            return ""
        self._world.met["another address than the requested one"] = 1
        if guest.cluster in self._events_lost:
            return ""
        name, uid = name_of(service), service["metadata"]["uid"]
        about = [event for event in guest.server.events() if event["involvedObject"].get("uid") == uid]
        if any(event["reason"] in EXPLAINED for event in about):
            return ""
        return f"{name} requests {requested}, has {address} and does not say why"

    def _may_request(self, guest: Guest, service: Document) -> bool:
        pool = annotation(service, IP_POOL)
        return pool in self._world.permitted_pools(guest) and annotation(service, IPAM) in {"", "pool"}
