"""The life of Nodes that are not ready: shutdown taint, and deletion when the VM is certainly gone.

Woken by every change of a Node and of its VM, and by a timer per Node that is not ready. All is decided by
``plan_lifecycle`` on the caches; only for a Node whose VM is on no list Harvester is asked, once per spacing, for that
very VM. A Node is deleted with its UID and version as precondition.
"""

from __future__ import annotations

from typing import Final

import structlog

from harvester_ccm.config import LIFECYCLE_CONTROLLER, NodeSettings
from harvester_ccm.controllers.node_writes import NodeWrites
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.errors import AdmissionDenied, CCMError, Conflict, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.identity import GuestIdentity
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import NODES, Node, parse_provider_id
from harvester_ccm.model.harvester import VIRTUAL_MACHINES
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Wait
from harvester_ccm.plan.node.existence import LiveGet, vm_existence
from harvester_ccm.plan.node.lifecycle import (
    DELETION_WINDOW,
    LifecycleMemory,
    LifecyclePlan,
    deletion_refused,
    observe_lifecycle,
    plan_lifecycle,
)
from harvester_ccm.plan.node.patch import NodeRequest

HELD_PAUSE: Final = 60.0
"""Seconds between two looks at a Node whose VM is gone and that is not deleted for a reason."""
log = structlog.get_logger(__name__)


class _Memory(LifecycleMemory):
    """What is remembered of a Node between two looks."""

    live_get_due: float = 0.0
    """Loop time before which Harvester is not asked again."""
    deletion_due: float = 0.0
    """Loop time before which a deletion that was refused is not tried again."""


class NodeLifecycleController:
    """Follows the VMs of Nodes that are not ready."""

    def __init__(
        self,
        guest: GuestIdentity,
        harvester: ApiClient,
        writes: NodeWrites,
        vms: VMCache,
        *,
        recorder: EventRecorder,
        settings: NodeSettings,
    ) -> None:
        self._guest = guest
        self._harvester = harvester
        self._vms = vms
        self._nodes = vms.nodes
        self._recorder = recorder
        self._writes = writes
        self._settings = settings
        self._deletions: dict[str, float] = {}
        """Loop times of the last deletions and of those under way, by UIDs of Nodes; in the memory of every Node."""
        self._memories = ObjectStates(lambda: _Memory(deletions=self._deletions))
        self.queue = WorkQueue(
            "node lifecycle", self.reconcile, workers=settings.concurrent_syncs, resync=self._node_names
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
        """Look after one Node."""
        node = self._nodes.get(name)
        if node is None:
            self._memories.forget(name)
            return Done()
        memory = self._memories.of(node)
        existence = vm_existence(self._vms, node, seen_name=memory.vm_name)
        if existence.vm is not None:
            memory.vm_name = existence.vm.name
            if parse_provider_id(node.spec.provider_id) == existence.vm.uid:
                memory.seen_provider_id = node.spec.provider_id
        live_get = None
        if existence.vm_to_get is not None:
            now = loop_time()
            if now < memory.live_get_due:
                return Wait("spacing", memory.live_get_due - now)
            if memory.absences is not None and memory.absences.count + 1 >= self._settings.deletion_confirmations:
                # Before the last live request, so that the deletion follows its response at once.
                await self._guest.confirm()
            live_get = await self._get_vm(existence.vm_to_get)
            memory.live_get_due = loop_time() + self._settings.confirmation_spacing
            # The answer took time; what the caches say now decides together with it.
            current = self._nodes.get(name)
            if current is None or current.metadata.uid != node.metadata.uid:
                return Done()
            node = current
        view = observe_lifecycle(self._vms, node, self._settings, memory, live_get=live_get, now=loop_time())
        return await self._act(node, plan_lifecycle(view), memory)

    async def _get_vm(self, name: str) -> LiveGet:
        try:
            vm = await self._harvester.get(VIRTUAL_MACHINES, name, namespace=self._vms.cluster.namespace)
        except CCMError as error:
            log.debug("VM not found by a live request", vm=name, error=str(error))
            return LiveGet(name, error=error)
        return LiveGet(name, vm=vm)

    async def _act(self, node: Node, plan: LifecyclePlan, memory: _Memory) -> Outcome:
        memory.absences = plan.absences
        if plan.request is not None and plan.done is not None:
            return await self._delete(node, plan.request, plan.done, memory)
        delay = await self._write_taints(node, plan.request) if plan.request is not None else 0.0
        self._emit(node, plan.note)
        if plan.note is not None:
            # Held for a reason that lasts; a VM that comes back is an event.
            memory.live_get_due = loop_time() + HELD_PAUSE
            return Wait("held", HELD_PAUSE)
        if delay:
            return Wait("taint", delay)
        if plan.recheck_after is not None:
            return Wait("VM", plan.recheck_after)
        return (
            Done() if node.ready == "True" or node.metadata.deleting else Wait("ready", self._settings.monitor_period)
        )

    async def _write_taints(self, node: Node, request: NodeRequest) -> float:
        """Patch the taints of a Node; return the seconds until that is possible if the rate limit delays it."""
        delay = self._writes.delay(node, component=LIFECYCLE_CONTROLLER)
        if delay:
            return delay
        written = await self._writes.patch(node, request)
        taints = [taint.key for taint in written.spec.taints]
        log.info("node taints changed", node=node.metadata.name, ready=node.ready, taints=taints)
        return 0.0

    async def _delete(self, node: Node, request: NodeRequest, done: EventMessage, memory: _Memory) -> Outcome:
        now = loop_time()
        if now < memory.deletion_due:
            return Wait("grant", memory.deletion_due - now)
        uid, version = str(request.body["uid"]), str(request.body["resourceVersion"])
        # Before the request is sent: other Nodes are decided on while it is in flight.
        self._deletions[uid] = now
        try:
            await self._guest.client.delete(NODES, request.name, uid=uid, version=version)
        except CCMError as error:
            if isinstance(error, Conflict | Forbidden | AdmissionDenied):
                # Certainly not done; after anything else it may be.
                self._deletions.pop(uid, None)
            note, pause = deletion_refused(node, error)
            self._emit(node, note)
            if note is not None and pause is None:
                raise
            memory.deletion_due = now + (pause or 0.0)
            return Wait("node", pause or self._settings.monitor_period)
        for old in [one for one, at in self._deletions.items() if now - at >= DELETION_WINDOW]:
            del self._deletions[old]
        log.warning("node deleted, its VM is gone", node=request.name, provider_id=node.spec.provider_id)
        self._emit(node, done)
        return Done()

    def _emit(self, node: Node, event: EventMessage | None) -> None:
        if event is not None:
            self._recorder.emit(NODES, node, event, component=LIFECYCLE_CONTROLLER)
