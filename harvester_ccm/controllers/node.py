"""The Node controller: initializes Nodes, and keeps them like their VMs.

``plan_node`` decides on the caches. Harvester is queried live only for host names of guests, on behalf of a Node that
nothing else identifies. Warnings are emitted after they have held for ``--node-monitor-period``, so that a regular join
has one Event.
"""

from collections.abc import Iterable

import structlog
from msgspec import Struct, field

from harvester_ccm.config import NODE_CONTROLLER, NodeSettings
from harvester_ccm.controllers.concerned import all_nodes
from harvester_ccm.controllers.guest_hostnames import HOSTNAME_SECONDS, GuestHostnames
from harvester_ccm.controllers.held_events import HeldEvents
from harvester_ccm.controllers.node_writes import node_conflict
from harvester_ccm.controllers.reconciler import LimitedWrite, QueueName, Reconciler, Shared
from harvester_ccm.controllers.virtual_addresses import VirtualAddresses
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import AdmissionDenied, Forbidden, Invalid, WebhookFailed
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.written_fields import fields_of_patch
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.decision import NodePlan, NodeSnapshot, observe, plan_node
from harvester_ccm.plan.node.match import needs_hostname
from harvester_ccm.plan.node.messages import write_failed
from harvester_ccm.plan.node.patch import NodePatch, uninitialized_taints

log = structlog.get_logger(__name__)


class NodeState(Struct):
    """In-memory state of a Node; a restart resets the timers."""

    missing_since: dict[IPAddress, float] = field(default_factory=dict)
    """Loop time since when the VM does not report an address."""
    warnings: HeldEvents = field(default_factory=HeldEvents)


class NodeController(Reconciler[NodeSnapshot, NodePlan]):
    """Keeps every Node like its VM."""

    def __init__(
        self,
        shared: Shared,
        virtual_addresses: VirtualAddresses,
        *,
        settings: NodeSettings,
        hostnames: GuestHostnames,
    ) -> None:
        super().__init__(
            QueueName.NODE,
            shared,
            resource=NODES,
            component=NODE_CONTROLLER,
            workers=settings.concurrent_syncs,
            resync_seconds=settings.status_period,
        )
        self._virtual_addresses = virtual_addresses
        self._settings = settings
        self._hostnames = hostnames
        self._blocked: dict[str, set[str]] = {}
        """Name of a Node to the Nodes that wait for it, because they have the same InternalIP or VM."""
        self._states = ObjectStates(NodeState)

    async def wait_synced(self) -> None:
        """Return when Nodes are listed: Harvester may be unavailable."""
        await self.caches.nodes.wait_synced()

    def keys(self) -> list[str]:
        return all_nodes(self.caches)

    def wake(self, keys: Iterable[str]) -> None:
        """Enqueue Nodes that have changed, and those that wait for one of them."""
        for name in keys:
            self.queue.enqueue(name)
            for blocked in self._blocked.pop(name, ()):
                self.queue.enqueue(blocked)

    async def observe(self, key: str) -> NodeSnapshot | None:
        """Return the snapshot; guests are queried for their host names if nothing else identifies the VM."""
        unidentified = self.caches.unidentified
        unidentified.discard(key)
        node = self.caches.nodes.get(key)
        if node is None or node.metadata.deleting:
            self._states.forget(key)
            return None
        snapshot = self._observe(node)
        if not self._settings.asks_guests or not needs_hostname(node, snapshot.match):
            return snapshot
        await self._hostnames.query()
        snapshot = self._observe(node)
        if snapshot.match.vm is None:
            unidentified.add(key)
        return snapshot

    def _observe(self, node: Node) -> NodeSnapshot:
        now = loop_time()
        state = self._states.of(node)
        return observe(
            self.caches,
            node,
            virtual_ips=self._virtual_addresses,
            settings=self._settings,
            missing_for={address: now - since for address, since in state.missing_since.items()},
        )

    def plan(self, snapshot: NodeSnapshot) -> NodePlan:
        """Return the plan of a Node, and remember which addresses are missing and which Nodes it waits for."""
        plan = plan_node(snapshot)
        node = snapshot.node
        state = self._states.of(node)
        # The time of a missing address counts while the report of the VM is current.
        missing: frozenset[IPAddress] = frozenset()
        if not snapshot.unreadable:
            missing = plan.addresses.missing
        now = loop_time()
        state.missing_since = {address: state.missing_since.get(address, now) for address in missing}
        state.warnings.hold(plan.events)
        for conflict in plan.conflicts:
            self._blocked.setdefault(conflict.other, set()).add(node.metadata.name)
        return plan

    def emit_planned(self, plan: NodePlan, snapshot: NodeSnapshot, *, is_sent_now: bool) -> None:
        """Emit the Events that have held for long enough, those about another Node also on that one."""
        if self._due_after(snapshot) > 0:
            return
        self.emit(snapshot.node, *plan.events)
        for conflict in plan.conflicts:
            other = self.caches.nodes.get(conflict.other)
            if other is not None:
                self.emit(other, conflict.event)

    def _due_after(self, snapshot: NodeSnapshot) -> float:
        """Return the seconds until the Events are emitted; 0 if they are emitted now, or if there are none."""
        return self._states.of(snapshot.node).warnings.due_after(self._settings.monitor_period)

    async def settle(self, plan: NodePlan, snapshot: NodeSnapshot) -> Outcome:
        delays = []
        if plan.requeue_after is not None:
            delays.append(plan.requeue_after)
        due_after = self._due_after(snapshot)
        if due_after > 0:
            delays.append(due_after)
        if snapshot.node.metadata.name in self.caches.unidentified:
            delays.append(HOSTNAME_SECONDS)
        reason = ""
        if plan.waiting is not None:
            reason = str(plan.waiting.reason)
        elif plan.skip_reason:
            reason = "caches"
        return Outcome(reason, min(delays, default=None))

    def limited(self, write: NodePatch, snapshot: NodeSnapshot) -> LimitedWrite:
        return LimitedWrite(snapshot.node.metadata.uid, fields_of_patch(write.body))

    def report_conflict(self, fields: list[str], snapshot: NodeSnapshot) -> None:
        self.emit(snapshot.node, node_conflict(fields, snapshot.node))

    async def send(self, write: NodePatch, plan: NodePlan, snapshot: NodeSnapshot) -> Outcome | None:
        node = snapshot.node
        try:
            written = await self.caches.nodes.patch(node, write.body, subresource=write.subresource)
        except (Invalid, Forbidden, AdmissionDenied, WebhookFailed) as error:
            self.emit(node, write_failed(node, error))
            raise
        addresses = [f"{entry.type} {entry.address}" for entry in written.status.addresses]
        # The initialization of a Node takes two writes, and the second one completes it.
        log_update = log.debug if uninitialized_taints(written) else log.info
        log_update("node updated", node=node.metadata.name, provider_id=written.spec.provider_id, addresses=addresses)
        log.debug("node addresses selected", node=node.metadata.name, reasons=plan.addresses.reasons)
        self.emit(node, *plan.events_after_write)
        return None
