"""Initialisation of Nodes and their refresh: read from caches, ask ``plan_node``, write what it returned.

Woken by every change of a Node and of what belongs to its VM (see ``vms``), so a new address, zone or host is on the
Node within moments. Nothing is asked of Harvester for a Node: all is in the caches. Once per period every Node is
looked at anyway, spread over time, as a safety net.

What a Node waits for is emitted as an Event after it has held for some seconds, and again only when it changed: a Node
that joins in good order gets one Event in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import structlog
from msgspec import Struct, field

from harvester_ccm.config import NODE_CONTROLLER, NodeSettings
from harvester_ccm.controllers.guest_hostnames import GuestHostnames
from harvester_ccm.controllers.node_writes import NodeWrites
from harvester_ccm.controllers.virtual_addresses import VirtualAddresses
from harvester_ccm.controllers.vms import HOSTNAME_SECONDS, VMCache
from harvester_ccm.errors import AdmissionDenied, Forbidden, Invalid
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Wait
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.decision import NodePlan, observe, plan_node
from harvester_ccm.plan.node.match import needs_hostname
from harvester_ccm.plan.node.messages import write_failed
from harvester_ccm.plan.node.patch import patch_request

log = structlog.get_logger(__name__)


class _Memory(Struct):
    """What is remembered of a Node between two looks; lost at a restart without harm."""

    since: dict[str, float] = field(default_factory=dict)
    """When each note began to hold, by its key."""
    refused: tuple[EventMessage, ...] = ()
    """Why the last write failed."""
    logged: object = None
    """What the last look found odd, for the debug log."""
    awaited: dict[IPAddress, float] = field(default_factory=dict)
    """Since when, in loop time, each address is awaited."""


class NodeController:
    """Keeps every Node as its VM is."""

    def __init__(
        self,
        writes: NodeWrites,
        vms: VMCache,
        virtual_addresses: VirtualAddresses,
        *,
        recorder: EventRecorder,
        settings: NodeSettings,
        hostnames: GuestHostnames | None,
    ) -> None:
        """Without ``hostnames``, guest agents are not queried."""
        self._vms = vms
        self._nodes = vms.nodes
        self._virtual_addresses = virtual_addresses
        self._recorder = recorder
        self._writes = writes
        self._settings = settings
        self._hostnames = hostnames
        self._unmatched: set[str] = set()
        """Names of the Nodes whose VM only the host name of a guest can reveal."""
        self._memories = ObjectStates(_Memory)
        self.queue = WorkQueue(
            "node",
            self.reconcile,
            workers=settings.concurrent_syncs,
            resync=lambda: [node.metadata.name for node in self._nodes.all()],
            resync_seconds=settings.status_period,
        )
        vms.on_wake(self.queue.enqueue)
        vms.vmis.on_change(self._vmi_changed)
        virtual_addresses.on_change(self._virtual_ips_changed)
        virtual_addresses.on_state(vms.wake_all)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._nodes.wait_synced()
        self._vms.wake_all()
        await self.queue.run()

    async def reconcile(self, name: str) -> Outcome:
        """Bring one Node nearer to what its VM is."""
        node = self._nodes.get(name)
        if node is None or node.metadata.deleting:
            self._memories.forget(name)
            self._unmatched.discard(name)
            return Done()
        known, now = self._virtual_addresses.current(), loop_time()
        memory = self._memories.of(node)
        waited = {address: now - since for address, since in memory.awaited.items()}
        view = observe(self._vms, node, virtual_ips=known, settings=self._settings, waited=waited)
        self._unmatched.discard(name)
        if self._hostnames is not None and needs_hostname(node, view.match):
            self._unmatched.add(name)
            if await self._hostnames.query():
                for other in self._unmatched - {name}:
                    self.queue.enqueue(other)
            view = observe(self._vms, node, virtual_ips=known, settings=self._settings, waited=waited)
        plan = plan_node(view)
        memory.awaited = {address: now - seconds for address, seconds in plan.awaited.items()}
        due = self._emit_due(node, (*plan.notes, *memory.refused), memory)
        if plan.left_alone:
            return Wait("load balancers", due)
        self._log_oddities(node, plan, memory)
        delayed = await self._apply(node, plan, memory)
        requery = HOSTNAME_SECONDS if name in self._unmatched else None
        due = min((s for s in (due, delayed, plan.recheck_after, requery) if s is not None), default=None)
        reason = str(plan.waiting.reason) if plan.waiting else "note"
        return Wait(reason, due) if plan.waiting or due is not None else Done()

    def _emit_due(self, node: Node, notes: Iterable[EventMessage], memory: _Memory) -> float | None:
        """Emit the Events that have held for long enough; return the seconds until the next one has."""
        now = loop_time()
        current = {note.key: note for note in notes}
        memory.since = {key: memory.since.get(key, now) for key in current}
        left = {key: max(0.0, memory.since[key] + self._settings.monitor_period - now) for key in current}
        self._emit(node, *(note for key, note in current.items() if not left[key]))
        return min((seconds for seconds in left.values() if seconds), default=None)

    def _log_oddities(self, node: Node, plan: NodePlan, memory: _Memory) -> None:
        found = (plan.remarks, plan.dropped)
        if found == memory.logged:
            return
        memory.logged = found
        for remark in plan.remarks:
            log.debug("node remark", node=node.metadata.name, reason=str(remark.reason), message=remark.message)
        if plan.dropped:
            dropped = {entry.address: str(entry.reason) for entry in plan.dropped}
            log.debug("addresses not published", node=node.metadata.name, dropped=dropped)

    async def _apply(self, node: Node, plan: NodePlan, memory: _Memory) -> float | None:
        """Send the patches of a plan in order, up to the first one that fails.

        Return the seconds until they can be sent if the rate limit of the Node delays them.
        """
        memory.refused = ()
        requests = [patch for patch in plan.patches if patch_request(node, patch) is not None]
        if requests and (delay := self._writes.delay(node, component=NODE_CONTROLLER)):
            return delay
        written: Node | None = None
        try:
            for patch in plan.patches:
                request = patch_request(written or node, patch)
                if request is not None:
                    written = await self._writes.patch(written or node, request)
                    self._emit(node, *patch.told)
        except (Invalid, Forbidden, AdmissionDenied) as error:
            memory.refused = (write_failed(error),)
            raise
        if written is not None:
            log.info(
                "node initialised" if plan.done else "node updated",
                node=written.metadata.name,
                provider_id=written.spec.provider_id,
                addresses=[f"{address.type} {address.address}" for address in written.status.addresses],
            )
        if plan.done:
            self._emit(node, plan.done)
        return None

    def _emit(self, node: Node, *events: EventMessage) -> None:
        for event in events:
            self._recorder.emit(NODES, node, event, component=NODE_CONTROLLER)

    def _virtual_ips_changed(self, addresses: Set[IPAddress]) -> None:
        """Wake the Nodes that show one of the addresses, or whose VM reports it."""
        if not self._virtual_addresses.complete:
            # All Nodes are looked at when they are.
            return
        texts = {str(address) for address in addresses}
        for node in self._nodes.all():
            if any(shown.address in texts for shown in node.status.addresses):
                self.queue.enqueue(node.metadata.name)
        for vmi in self._vms.vmis.all():
            vm = self._vms.vms.get(vmi.metadata.key)
            if vm and any(not texts.isdisjoint(nic.addresses) for nic in vmi.interfaces):
                for name in self._vms.nodes_of(vm, vmi):
                    self.queue.enqueue(name)

    def _vmi_changed(self, _old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        if self._unmatched and self._hostnames is not None and new is not None and self._hostnames.is_candidate(new):
            for name in self._unmatched:
                self.queue.enqueue(name)
