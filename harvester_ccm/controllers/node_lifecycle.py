"""The lifecycle controller of Nodes that are not Ready: shutdown taint, and deletion of a Node whose VM is gone.

``plan_lifecycle`` decides on the caches. Harvester is queried live only for the VM of a Node that has none in the
caches, and that again after the spacing of the confirmations.
"""

from typing import Final

import structlog
from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.config import LIFECYCLE_CONTROLLER, NodeSettings
from harvester_ccm.controllers.concerned import all_nodes
from harvester_ccm.controllers.held_events import HeldEvents
from harvester_ccm.controllers.node_writes import node_conflict
from harvester_ccm.controllers.reconciler import LimitedWrite, QueueName, Reconciler, Shared
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import Conflict, KubeError
from harvester_ccm.kube.identity import ServerIdentity
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.written_fields import fields_of_patch
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.model.harvester import VIRTUAL_MACHINES
from harvester_ccm.plan.node.lifecycle import (
    DeleteNode,
    LifecyclePlan,
    LifecycleSnapshot,
    is_absent,
    observe_lifecycle,
    plan_lifecycle,
)
from harvester_ccm.plan.node.messages import write_failed
from harvester_ccm.plan.node.patch import NodePatch

DELETION_INTERVAL_SECONDS: Final = 60.0
"""Minimum time between two attempts to delete a Node."""

log = structlog.get_logger(__name__)


class LifecycleState(Struct):
    """In-memory state of a Node. Losing it at a restart delays a deletion or blocks it."""

    vm_name: str = ""
    """Name under which this process saw the VM of the Node."""
    absences: int = 0
    """Number of 404s for the VM in a row."""
    next_get: float = 0.0
    """Loop time of the next live GET."""
    cause: HeldEvents = field(default_factory=HeldEvents)
    """The cause of a Node that is not Ready."""


class NodeLifecycleController(Reconciler[LifecycleSnapshot, LifecyclePlan]):
    """Taints and deletes Nodes that are not Ready."""

    def __init__(
        self,
        shared: Shared,
        guest: ServerIdentity,
        harvester: ApiClient,
        *,
        settings: NodeSettings,
    ) -> None:
        super().__init__(
            QueueName.NODE_LIFECYCLE,
            shared,
            resource=NODES,
            component=LIFECYCLE_CONTROLLER,
            workers=settings.concurrent_syncs,
        )
        self._guest = guest
        self._harvester = harvester
        self._settings = settings
        self._next_deletion = 0.0
        """Loop time before which no Node is deleted."""
        self._states = ObjectStates(LifecycleState)

    async def wait_synced(self) -> None:
        """Return when Nodes are listed: Harvester may be unavailable."""
        await self.caches.nodes.wait_synced()

    def keys(self) -> list[str]:
        return all_nodes(self.caches)

    async def observe(self, key: str) -> LifecycleSnapshot | None:
        """Return the snapshot of a Node, after a live GET of its VM if the caches lack it."""
        node = self.caches.nodes.get(key)
        if node is None:
            self._states.forget(key)
            return None
        state = self._states.of(node)
        snapshot = self._observe(node, state)
        if not snapshot.has_lost_vm:
            state.absences = 0
            return snapshot
        if not snapshot.vm_name:
            return snapshot
        delay = state.next_get - loop_time()
        if delay > 0:
            return replace(snapshot, next_get_after=delay)
        await self._query_vm(snapshot.vm_name, state)
        # The requests took time: decide on what the caches contain now.
        current = self.caches.nodes.get(key)
        if current is None or current.metadata.uid != node.metadata.uid:
            return None
        return self._observe(current, state)

    def _observe(self, node: Node, state: LifecycleState) -> LifecycleSnapshot:
        snapshot = observe_lifecycle(
            self.caches, node, self._settings, seen_name=state.vm_name, absences=state.absences
        )
        if snapshot.match.vm is not None:
            state.vm_name = snapshot.match.vm.name
        return snapshot

    async def _query_vm(self, name: str, state: LifecycleState) -> None:
        """Count another 404 for the VM, or start again from zero."""
        if state.absences + 1 >= self._settings.deletion_confirmations:
            # Before the GET, so that the deletion follows the response to the GET at once.
            await self._guest.confirm()
        error: KubeError | None = None
        try:
            await self._harvester.get(VIRTUAL_MACHINES, name, namespace=self.caches.cluster.namespace)
        except KubeError as caught:
            error = caught
            log.debug("VM not found", vm=name, error=str(error))
        if is_absent(error, name):
            state.absences += 1
        else:
            state.absences = 0

    def plan(self, snapshot: LifecycleSnapshot) -> LifecyclePlan:
        """Return the plan of a Node; at most one Node is deleted per minute."""
        plan = plan_lifecycle(snapshot)
        state = self._states.of(snapshot.node)
        causes = []
        if plan.cause is not None:
            causes.append(plan.cause)
        state.cause.hold(causes)
        now = loop_time()
        if plan.deletes and now < self._next_deletion:
            plan = LifecyclePlan(requeue_after=self._next_deletion - now)
        if plan.deletes:
            state.next_get = now + DELETION_INTERVAL_SECONDS
            # Before the request is sent: other Nodes are reconciled while it is in flight.
            self._next_deletion = now + DELETION_INTERVAL_SECONDS
        elif plan.requeue_after is not None:
            state.next_get = now + plan.requeue_after
        return plan

    def emit_planned(self, plan: LifecyclePlan, snapshot: LifecycleSnapshot, *, is_sent_now: bool) -> None:
        """Emit why a Node is not deleted, and the cause of a Node that is not Ready once it has held for a while."""
        if plan.event is not None:
            self.emit(snapshot.node, plan.event)
        if plan.cause is not None and self._due_after(snapshot) <= 0:
            self.emit(snapshot.node, plan.cause)

    def _due_after(self, snapshot: LifecycleSnapshot) -> float:
        """Return the seconds until the cause is emitted; 0 if it is emitted now, or if there is none."""
        return self._states.of(snapshot.node).cause.due_after(self._settings.monitor_period)

    async def settle(self, plan: LifecyclePlan, snapshot: LifecycleSnapshot) -> Outcome:
        due_after = self._due_after(snapshot)
        if due_after > 0:
            return Outcome("cause", due_after)
        if plan.requeue_after is not None:
            return Outcome("VM", plan.requeue_after)
        return Outcome()

    def limited(self, write: NodePatch | DeleteNode, snapshot: LifecycleSnapshot) -> LimitedWrite:
        """Return what the rate limit has to know. The deletions have a limit of their own."""
        uid = snapshot.node.metadata.uid
        if isinstance(write, DeleteNode):
            return LimitedWrite(uid, is_urgent=True)
        return LimitedWrite(uid, fields_of_patch(write.body))

    def report_conflict(self, fields: list[str], snapshot: LifecycleSnapshot) -> None:
        self.emit(snapshot.node, node_conflict(fields, snapshot.node))

    async def send(
        self, write: NodePatch | DeleteNode, _plan: LifecyclePlan, snapshot: LifecycleSnapshot
    ) -> Outcome | None:
        node = snapshot.node
        if isinstance(write, DeleteNode):
            return await self._delete(node, write)
        written = await self.caches.nodes.patch(node, write.body)
        taints = [taint.key for taint in written.spec.taints]
        log.info("node taints changed", node=node.metadata.name, ready=node.ready, taints=taints)
        return None

    async def _delete(self, node: Node, write: DeleteNode) -> Outcome:
        later = Outcome("deletion", DELETION_INTERVAL_SECONDS)
        try:
            is_deleted = await self.caches.nodes.delete(node)
        except Conflict:
            # A Node that has changed is enqueued by that.
            return later
        except KubeError as error:
            self.emit(node, write_failed(node, error, deletion=True))
            return later
        if not is_deleted:
            return later
        log.warning("node deleted", node=node.metadata.name, provider_id=node.spec.provider_id)
        self.emit(node, write.event)
        return Outcome()
