"""Controller of Nodes that are not Ready: shutdown taint, and deletion of a Node whose VM is gone.

Every change of a Node or of its VM enqueues the Node. ``plan_lifecycle`` decides on the caches. Harvester is queried
only for the VM of a Node that has none in the caches, and that again after the spacing of the confirmations.
"""

from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.config import LIFECYCLE_CONTROLLER, NodeSettings
from harvester_ccm.controllers.vms import NodeWrites, VMCache
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import Conflict, KubeError, NotFound
from harvester_ccm.kube.identity import ServerIdentity
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Done, Outcome, Wait
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import VIRTUAL_MACHINES
from harvester_ccm.plan.node.lifecycle import LifecyclePlan, LifecycleView, is_absent, observe_lifecycle, plan_lifecycle
from harvester_ccm.plan.node.messages import write_failed

DELETION_INTERVAL_SECONDS: Final = 60.0
"""Minimum time between two attempts to delete a Node."""

log = structlog.get_logger(__name__)


class _State(Struct):
    """In-memory state of a Node. Losing it at a restart delays a deletion or blocks it."""

    vm_name: str = ""
    """Name under which this process saw the VM of the Node."""
    absences: int = 0
    """Number of 404s for the VM in a row."""
    next_get: float = 0.0
    """Loop time of the next live GET."""
    cause: EventMessage | None = None
    """The cause of a Node that is not Ready."""
    cause_since: float = 0.0
    """Loop time since when this cause holds."""


class NodeLifecycleController:
    """Taints and deletes Nodes that are not Ready."""

    def __init__(
        self,
        guest: ServerIdentity,
        harvester: ApiClient,
        writes: NodeWrites,
        vms: VMCache,
        *,
        settings: NodeSettings,
    ) -> None:
        self._guest = guest
        self._harvester = harvester
        self._vms = vms
        self._nodes = vms.nodes
        self._writes = writes
        self._settings = settings
        self._next_deletion = 0.0
        """Loop time before which no Node is deleted."""
        self._states = ObjectStates(_State)
        self.queue = WorkQueue(
            "node_lifecycle", self.reconcile, workers=settings.concurrent_syncs, resync=self._node_names
        )
        vms.on_wake(self.queue.enqueue)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._nodes.wait_synced()
        self.queue.enqueue_background(self._node_names())
        await self.queue.run()

    def _node_names(self) -> list[str]:
        return [node.metadata.name for node in self._nodes.all()]

    async def reconcile(self, name: str) -> Outcome:
        """Reconcile one Node."""
        node = self._nodes.get(name)
        if node is None:
            self._states.forget(name)
            return Done()
        state = self._states.of(node)
        view = self._observe(node, state)
        if not view.has_lost_vm:
            state.absences = 0
        elif view.vm_name:
            delay = state.next_get - loop_time()
            if delay > 0:
                return Wait("spacing", delay)
            await self._query_vm(view.vm_name, state)
            # The requests took time: decide on what the caches contain now.
            current = self._nodes.get(name)
            if current is None or current.metadata.uid != node.metadata.uid:
                return Done()
            node, view = current, self._observe(current, state)
        return await self._act(node, plan_lifecycle(view), state)

    def _observe(self, node: Node, state: _State) -> LifecycleView:
        view = observe_lifecycle(self._vms, node, self._settings, seen_name=state.vm_name, absences=state.absences)
        if view.match.vm is not None:
            state.vm_name = view.match.vm.name
        return view

    async def _query_vm(self, name: str, state: _State) -> None:
        """Count another 404 for the VM, or start again from zero."""
        if state.absences + 1 >= self._settings.deletion_confirmations:
            # Before the GET, so that the deletion follows the response to the GET at once.
            await self._guest.confirm()
        error: KubeError | None = None
        try:
            await self._harvester.get(VIRTUAL_MACHINES, name, namespace=self._vms.cluster.namespace)
        except KubeError as caught:
            error = caught
            log.debug("VM not found", vm=name, error=str(error))
        state.absences = state.absences + 1 if is_absent(error, name) else 0

    async def _act(self, node: Node, plan: LifecyclePlan, state: _State) -> Outcome:
        if plan.deletes:
            delay = self._next_deletion - loop_time()
            if delay <= 0:
                state.next_get = loop_time() + DELETION_INTERVAL_SECONDS
                return await self._delete(node, plan)
            plan = replace(plan, event=None, requeue_after=delay)
        elif plan.request is not None:
            written = await self._writes.patch(node, plan.request, component=LIFECYCLE_CONTROLLER)
            if not isinstance(written, Node):
                return Wait("throttled", written)
            taints = [taint.key for taint in written.spec.taints]
            log.info("node taints changed", node=node.metadata.name, ready=node.ready, taints=taints)
            return Done()
        self._emit(node, plan.event)
        cause_delay = self._emit_cause(node, plan, state)
        if cause_delay is not None:
            return Wait("cause", cause_delay)
        if plan.requeue_after is None:
            return Done()
        state.next_get = loop_time() + plan.requeue_after
        return Wait("VM", plan.requeue_after)

    def _emit_cause(self, node: Node, plan: LifecyclePlan, state: _State) -> float | None:
        """Emit the cause of a Node that is not Ready; return the seconds until it has held for long enough."""
        if plan.cause != state.cause:
            state.cause = plan.cause
            state.cause_since = loop_time()
        if plan.cause is None:
            return None
        delay = state.cause_since + self._settings.monitor_period - loop_time()
        if delay > 0:
            return delay
        self._emit(node, plan.cause)
        return None

    async def _delete(self, node: Node, plan: LifecyclePlan) -> Outcome:
        # Before the request is sent: other Nodes are reconciled while it is in flight.
        self._next_deletion = loop_time() + DELETION_INTERVAL_SECONDS
        meta = node.metadata
        try:
            await self._guest.client.delete(NODES, meta.name, uid=meta.uid, version=meta.resource_version)
        except NotFound as error:
            self._nodes.not_found(node, error)
            return Wait("deletion", DELETION_INTERVAL_SECONDS)
        except Conflict:
            # A Node that has changed is enqueued by that.
            await self._nodes.refresh(node)
            return Wait("deletion", DELETION_INTERVAL_SECONDS)
        except KubeError as error:
            self._emit(node, write_failed(node, error, deletion=True))
            return Wait("deletion", DELETION_INTERVAL_SECONDS)
        log.warning("node deleted", node=meta.name, provider_id=node.spec.provider_id)
        self._emit(node, plan.event)
        return Done()

    def _emit(self, node: Node, event: EventMessage | None) -> None:
        if event is not None:
            self._writes.emit(node, event, component=LIFECYCLE_CONTROLLER)
