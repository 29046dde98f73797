"""Controller that initializes Nodes and keeps them like their VMs.

Every change of a Node, its VM or a load balancer's address enqueues the Node, and a resync enqueues all. ``plan_node``
decides on the caches; Harvester is queried only for host names of guests. The plan has at most one write. Its response
is in the cache when the next reconcile starts, which is enqueued by that change.

Warnings are emitted after they have held for ``--node-monitor-period``, so a regular join has one Event.
"""

import structlog
from msgspec import Struct, field

from harvester_ccm.config import NODE_CONTROLLER, NodeSettings
from harvester_ccm.controllers.virtual_addresses import VirtualAddresses
from harvester_ccm.controllers.vms import HOSTNAME_SECONDS, GuestHostnames, NodeWrites, VMCache
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import AdmissionDenied, Forbidden, Invalid, WebhookFailed
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Done, Outcome, Wait
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NodeReason, Reason
from harvester_ccm.netip import IPAddress
from harvester_ccm.plan.node.decision import NodePlan, NodeView, observe, plan_node
from harvester_ccm.plan.node.match import needs_hostname
from harvester_ccm.plan.node.messages import write_failed

log = structlog.get_logger(__name__)


class _State(Struct):
    """In-memory state of a Node; a restart resets the timers."""

    missing_since: dict[IPAddress, float] = field(default_factory=dict)
    """Loop time since when the VM does not report an address."""
    events: set[tuple[NodeReason | Reason, str]] = field(default_factory=set)
    """Reasons and subjects of the Events that hold."""
    events_since: float = 0.0
    """Loop time since when these Events hold."""


class NodeController:
    """Keeps every Node like its VM."""

    def __init__(
        self,
        writes: NodeWrites,
        vms: VMCache,
        virtual_addresses: VirtualAddresses,
        *,
        settings: NodeSettings,
        hostnames: GuestHostnames,
    ) -> None:
        self._vms = vms
        self._nodes = vms.nodes
        self._virtual_addresses = virtual_addresses
        self._writes = writes
        self._settings = settings
        self._hostnames = hostnames
        self._unmatched: set[str] = set()
        """Names of the Nodes that only the host name of a guest can identify."""
        self._blocked: dict[str, set[str]] = {}
        """Name of a Node to those that wait for it, because they claim the same InternalIP or VM."""
        self._states = ObjectStates(_State)
        self.queue = WorkQueue(
            "node",
            self.reconcile,
            workers=settings.concurrent_syncs,
            resync=lambda: [node.metadata.name for node in self._nodes.all()],
            resync_seconds=settings.status_period,
        )
        vms.on_wake(self._enqueue)
        vms.vmis.on_change(self._vmi_changed)
        virtual_addresses.on_state(vms.enqueue_all)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._nodes.wait_synced()
        self._vms.enqueue_all()
        await self.queue.run()

    def _enqueue(self, name: str) -> None:
        """Enqueue a Node, and those that wait for it."""
        self.queue.enqueue(name)
        for blocked in self._blocked.pop(name, ()):
            self.queue.enqueue(blocked)

    async def reconcile(self, name: str) -> Outcome:
        """Reconcile one Node."""
        self._unmatched.discard(name)
        node = self._nodes.get(name)
        if node is None or node.metadata.deleting:
            self._states.forget(name)
            return Done()
        state = self._states.of(node)
        view = await self._observe_with_hostname(node, state)
        plan = plan_node(view)
        self._remember_missing(state, view, plan)
        for conflict in plan.conflicts:
            self._blocked.setdefault(conflict.other, set()).add(name)
        delays = [plan.requeue_after, self._emit_due(node, plan, state)]
        if name in self._unmatched:
            delays.append(HOSTNAME_SECONDS)
        delays.append(await self._write(node, plan))
        return _outcome(plan, [seconds for seconds in delays if seconds is not None])

    async def _observe_with_hostname(self, node: Node, state: _State) -> NodeView:
        """Return the snapshot; guests are queried for their host names if nothing else identifies the VM."""
        view = self._observe(node, state)
        if not self._settings.asks_guests or not needs_hostname(node, view.match):
            return view
        await self._hostnames.query()
        view = self._observe(node, state)
        if view.match.vm is None:
            self._unmatched.add(node.metadata.name)
        return view

    def _observe(self, node: Node, state: _State) -> NodeView:
        now = loop_time()
        return observe(
            self._vms,
            node,
            virtual_ips=self._virtual_addresses,
            settings=self._settings,
            missing_for={address: now - since for address, since in state.missing_since.items()},
        )

    def _remember_missing(self, state: _State, view: NodeView, plan: NodePlan) -> None:
        """Start or stop the time of addresses that the VM does not report; it counts while the report is current."""
        now = loop_time()
        missing = frozenset() if view.unreadable else plan.addresses.missing
        state.missing_since = {address: state.missing_since.get(address, now) for address in missing}

    def _emit_due(self, node: Node, plan: NodePlan, state: _State) -> float | None:
        """Emit the Events that hold if they are the same for long enough; return the seconds until then."""
        now = loop_time()
        keys = {(event.reason, event.subject) for event in plan.events}
        if keys != state.events:
            state.events = keys
            state.events_since = now
        delay = state.events_since + self._settings.monitor_period - now
        if keys and delay > 0:
            return delay
        self._writes.emit(node, *plan.events, component=NODE_CONTROLLER)
        for conflict in plan.conflicts:
            other = self._nodes.get(conflict.other)
            if other is not None:
                self._writes.emit(other, conflict.event, component=NODE_CONTROLLER)
        return None

    async def _write(self, node: Node, plan: NodePlan) -> float | None:
        """Send the write of a plan; return the seconds until the rate limit permits it."""
        if plan.request is None:
            return None
        try:
            written = await self._writes.patch(node, plan.request, component=NODE_CONTROLLER)
        except (Invalid, Forbidden, AdmissionDenied, WebhookFailed) as error:
            self._writes.emit(node, write_failed(node, error), component=NODE_CONTROLLER)
            raise
        if not isinstance(written, Node):
            return written
        addresses = [f"{entry.type} {entry.address}" for entry in written.status.addresses]
        log.info("node updated", node=node.metadata.name, provider_id=written.spec.provider_id, addresses=addresses)
        log.debug("node addresses selected", node=node.metadata.name, reasons=plan.addresses.reasons)
        self._writes.emit(node, *plan.emitted, component=NODE_CONTROLLER)
        return 0.0

    def _vmi_changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        had_agent = old is not None and old.has_agent
        if new is None or not new.has_agent or had_agent:
            return
        for name in self._unmatched:
            self.queue.enqueue(name)


def _outcome(plan: NodePlan, delays: list[float]) -> Outcome:
    """Return the outcome of a reconcile that is repeated after the shortest of the delays in seconds."""
    reason = "caches" if plan.skip_reason else ""
    if plan.waiting is not None:
        reason = str(plan.waiting.reason)
    delay = min(delays, default=None)
    if not reason and delay is None:
        return Done()
    return Wait(reason, delay)
