"""Invariants that are checked after every step, and the final state."""

from typing import Final

from devenv.announcement import is_ignored, wanted_addresses
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import (
    DHCP_ADDRESS,
    LB_RECONCILE,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    WORKLOAD_TYPE,
)
from tests.simulation.address_oracle import AddressOracle
from tests.simulation.amount_oracle import AmountOracle
from tests.simulation.facts import (
    annotation,
    given,
    has_finalizer,
    made_for,
    name_of,
    served,
    shown,
    wants_one,
)
from tests.simulation.guest import LEASES, SIGHT, Guest, cluster_of
from tests.simulation.node_oracles import NodeOracles
from tests.simulation.request_oracle import wrong_about_pool
from tests.simulation.rest import AtRest
from tests.simulation.world import EVENTS, LEASE, World
from tests.support.builders import CLUSTER
from tests.support.memory_server import Call, Document, placed

BALANCERS: Final = "loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
RENEW_DEADLINE: Final = 45.0
"""Seconds after its last renewal in which a process writes: ``--leader-elect-renew-deadline``."""
GRACE: Final = 400.0
"""Seconds within which the controller must withdraw an address that its load balancer lost."""
UNSEEN: Final = "allocated during the deletion, visible in the pool only"
FORGOTTEN: Final = "allocated and lost by Harvester"
"""Names of the counters of schedules in which an address stays allocated."""
NO_POOL: Final = ("no matched IPPool", "fail to get allocator")
"""Messages of Harvester if no pool fits."""
AFTER_HALT: Final = 0.01
"""Seconds after a suspension in which a write may leave that was on its way into the network before it."""


class Oracles:
    """Checks a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dirty = False
        self._changes = 0
        self._unheld: dict[tuple[str, str], float] = {}
        """Since when an address is announced for a Service although no load balancer has it."""
        self.noted: list[str] = []
        """Changes of addresses, for the trace."""
        self._given: dict[str, str] = {}
        self._holder = ""
        self._written: dict[str, float] = {}
        """When each load balancer was written last."""
        self._answered: dict[str, float] = {}
        """Load balancers whose deletion can overtake an allocation, and the time of Harvester's last write."""
        self._deposed: dict[str, float] = {}
        """Holders of the Lease before the guest cluster was restored, and until when they can count as leaders."""
        self.addresses = AddressOracle(world)
        self.amounts = AmountOracle(world)
        for server in world.servers.values():
            server.on_answered.append(self.amounts.answered)
            server.on_change.append(self._changed)
            server.on_sent.append(self._sent)
        world.harvester.on_arrived.append(self._arrived)
        world.on_clone.append(self._cloned)
        world.on_restore.append(self._restored)
        self._nodes = NodeOracles(world, world.guest)
        world.loop.after_step = self._look

    def _cloned(self, clone: Guest) -> None:
        clone.server.on_change.append(self._clone_changed)
        clone.server.on_sent.append(self._sent)
        clone.server.on_answered.append(self.amounts.answered)
        NodeOracles(self._world, clone.server)

    def _clone_changed(self, collection: str, _kind: str, _document: Document) -> None:
        self._dirty = True

    def _changed(self, collection: str, kind: str, document: Document) -> None:
        self._dirty = True
        if collection == LEASES and kind != "DELETED":
            self._note_holder(str(document["spec"].get("holderIdentity") or "").rpartition("_")[2])
        if collection == BALANCERS:
            self._written[name_of(document)] = self._world.loop.time()
            before, now = self._given.get(name_of(document), "none"), given(document) or "no address"
            leaving = ", deleting" if document["metadata"].get("deletionTimestamp") else ""
            now = "gone" if kind == "DELETED" else now + leaving
            if now != before:
                self.noted.append(f"{self._world.loop.time():9.3f} Harvester: {name_of(document)}: {before} -> {now}")
            self._given[name_of(document)] = now

    def _note_holder(self, holder: str) -> None:
        """Count that the Lease passes to another one although its holder did not release it."""
        before, self._holder = self._holder, holder
        if before and holder not in {"", before}:
            runs = before in {one.running for one in self._world.processes.values()}
            self._world.met["Lease expired while its holder ran" if runs else "Lease expired"] += 1

    def _restored(self, side: str) -> None:
        self._dirty = True
        self.noted.append(f"{self._world.loop.time():9.3f} the {side} has gone back to older data")
        if side == "guest":
            # It learns of another holder when it renews the Lease, or stops to write at its deadline.
            self._deposed[self._holder] = self._world.loop.time() + RENEW_DEADLINE
            self._holder = self._world.original.holder().rpartition("_")[2]
            self._world.original.note_action_on_all(self._world.restoring_until)

    def _say(self, text: str) -> None:
        self._world.wrong.append(text)

    # With every request.

    def _sent(self, call: Call) -> None:
        """No write without the Lease, and no address for kube-vip that no load balancer has."""
        if not call.is_write or call.path.startswith(LEASE) or EVENTS in call.path:
            return
        if call.at < self._deposed.get(call.by, 0.0):
            return
        holder = self._world.guest_of(call.by).holder() or "no process"
        process = self._world.processes[call.by.partition(".")[0]]
        if not holder.endswith(f"_{call.by}") and call.at - process.resumed_at > AFTER_HALT:
            self._say(f"{call.by} sends {call.verb} {call.path} while {holder} holds the Lease")
        if problem := self.addresses.check_write(call):
            self._say(problem)

    def _arrived(self, call: Call) -> None:
        """No load balancer in use is deleted, and none of another cluster changes."""
        world = self._world
        if problem := wrong_about_pool(world, call):
            self._say(problem)
        if call.verb not in {"PUT", "DELETE"} or "/loadbalancers/" not in call.path:
            return
        balancer = world.harvester.of(placed(call.path).collection).get(placed(call.path).key)
        decided_on = (call.body or {}).get("preconditions") or {}
        if balancer is None or (call.verb == "DELETE" and balancer["metadata"]["uid"] != decided_on.get("uid")):
            return
        guest = world.guest_of(call.by)
        if call.verb == "DELETE":
            self._note_deletion(balancer, decided_on.get("resourceVersion"))
        if cluster_of(balancer) != guest.cluster:
            self._say(f"{call.by} of {guest.cluster} sends {call.verb} for {name_of(balancer)} of another cluster")
        if call.verb != "DELETE" or guest.has_silent_watch():
            # The controller acts on what it has seen, for the time after which it gives up a silent connection.
            return
        for service in guest.services():
            if call.at - guest.last_action.get(name_of(service), float("-inf")) >= SIGHT:
                self._deleted_for(call.by, balancer, service, guest)

    def _deleted_for(self, by: str, balancer: Document, service: Document, guest: Guest) -> None:
        address, name = served(balancer), name_of(balancer)
        # Two load balancers with one address cannot be distinguished by it.
        announced = balancer["spec"].get("workloadType") == "cluster" and not self._world.controllers.let_go
        announced = announced and not is_ignored(service) and self._has_part(service, made_for(balancer))
        announced = announced and has_finalizer(service)
        if announced and address and address in wanted_addresses(service):
            self._say(f"{by} deletes {name} before {address} is withdrawn from {name_of(service)}")
        if self._serves(balancer, service, guest):
            self._say(f"{by} deletes {name}, which {name_of(service)} asks for")

    @staticmethod
    def _has_part(service: Document, name: str) -> bool:
        """Return whether a Service is the one of this name, or shares or has shared its address."""
        shared = (
            annotation(service, PRIMARY_SERVICE),
            (service["metadata"].get("labels") or {}).get(PRIMARY_SERVICE_LABEL),
        )
        return name_of(service) == name or shared[0] == f"shop/{name}" or shared[1] == f"shop.{name}"

    @staticmethod
    def _serves(balancer: Document, service: Document, guest: Guest) -> bool:
        """Return whether a Service asks for just this load balancer."""
        if made_for(balancer) != service["metadata"]["name"] or not wants_one(service):
            return False
        if annotation(service, PRIMARY_SERVICE) or service["metadata"].get("deletionTimestamp"):
            return False
        asked = annotation(service, WORKLOAD_TYPE)
        same_kind = asked not in {"vm", "cluster"} or asked == balancer["spec"].get("workloadType")
        others = [one for one in guest.balancers() if made_for(one) == made_for(balancer) and one is not balancer]
        of_this = annotation(balancer, "cloudprovider.harvesterhci.io/service-uid") == service["metadata"]["uid"]
        return same_kind and not others and of_this and served(balancer) in shown(service)

    # After every step.

    def _look(self) -> None:
        world = self._world
        changes = sum(len(guest.kube_vip.changes) for guest in world.guests)
        if not self._dirty and self._changes == changes:
            return
        self._dirty, self._changes = False, changes
        self._held_once()
        self._announced_is_held()
        self.addresses.look()

    def _held_once(self) -> None:
        seen: dict[str, str] = {}
        for balancer in self._world.balancers():
            address, name = given(balancer), balancer["metadata"]["name"]
            # Harvester releases an allocation before it deletes the load balancer.
            if not address or address == DHCP_ADDRESS or balancer["metadata"].get("deletionTimestamp"):
                continue
            if address in seen and not self._world.controllers.let_go:
                self._say(f"{address} is allocated to {seen[address]} and {name}")
            seen[address] = name

    def _announced_is_held(self) -> None:
        now = self._world.loop.time()
        held = {served(balancer) for balancer in self._world.balancers()}
        announced = self._world.kube_vip.announced()
        loose = {(address, key) for address, keys in announced.items() if address not in held for key in keys}
        for one in loose:
            self._unheld.setdefault(one, now)
        for one in [one for one in self._unheld if one not in loose]:
            del self._unheld[one]

    def unheld(self, seconds: float) -> list[str]:
        """Return addresses that have been announced for ``seconds`` although no load balancer has them."""
        now = self._world.loop.time()
        return [
            f"{address} is announced for {key}, and no load balancer has it"
            for (address, key), since in self._unheld.items()
            if now - since >= seconds and not self._is_kept(key)
        ]

    def _is_kept(self, key: str) -> bool:
        """Return whether a Service keeps its address without a load balancer, and a Warning says why."""
        guest = self._world.original
        service = guest.server.of(SERVICES).get(key)
        if service is None or service["metadata"].get("deletionTimestamp") or not wants_one(service):
            return False
        return AtRest(self._world, guest).is_warned_about(service)

    # The final state.

    def differences(self) -> list[str]:
        """Return the differences from the final state of Services and Nodes."""
        world = self._world
        found = [*self.unheld(0.0), *self._nodes.differences()]
        for guest in world.guests:
            found += AtRest(world, guest).differences()
        held = {given(one): name_of(one) for one in world.balancers() if given(one)}
        for address, owner in world.pools.allocations().items():
            lost = not world.controllers.let_go and held.get(address) != owner
            if lost and not (self._is_forgotten(address, owner) or self._was_allocated_unseen(owner)):
                found.append(f"{address} is allocated to {owner}, which does not have it")
        return found

    def _is_forgotten(self, address: str, owner: str) -> bool:
        """Return whether Harvester has lost an allocation by itself."""
        if (address, f"{CLUSTER.namespace}/{owner}") not in self._world.controllers.forgotten:
            return False
        self._world.met[FORGOTTEN] = 1
        return True

    def _note_deletion(self, balancer: Document, version: str | None) -> None:
        """Record Harvester's last write of a load balancer that is deleted in this version."""
        self._answered.pop(name_of(balancer), None)
        if version == balancer["metadata"]["resourceVersion"] and self._is_asked_again(balancer):
            self._answered[name_of(balancer)] = self._written[name_of(balancer)]

    @staticmethod
    def _is_asked_again(balancer: Document) -> bool:
        """Return whether Harvester has reconciled a load balancer before its deletion and found no pool.

        If no pool is known that could be blocked, the controller can do nothing else.
        """
        conditions = (balancer.get("status") or {}).get("conditions") or ()
        said = "".join(one.get("message") or "" for one in conditions if one["type"] == "Ready")
        found_none = any(words in said for words in NO_POOL) and not given(balancer)
        return found_none and bool(annotation(balancer, LB_RECONCILE))

    def _was_allocated_unseen(self, owner: str) -> bool:
        """Return whether Harvester allocated an address between its last write of a load balancer and the deletion.

        Harvester has reported that no pool fits, and retries at any time. If a pool fits then, the allocation is first
        written to the pool. The deletion, although it carries the version of the last write, overtakes the write of
        the load balancer. Only the pool shows the allocation, and the controller cannot read pools. An attempt that
        began before the last write is no excuse: Harvester reconciles a load balancer once at a time.
        """
        began = self._world.controllers.allocated_since.get(f"{CLUSTER.namespace}/{owner}", float("-inf"))
        if began < self._answered.get(owner, float("inf")):
            return False
        self._world.met[UNSEEN] = 1
        return True
