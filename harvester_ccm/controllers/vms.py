"""The caches of Nodes and VMs, which Nodes a change enqueues, queries of guest agents, and writes to Nodes.

A change of a Node enqueues that Node. A change of a VM or its VMI enqueues the Nodes that have an identity in common
with it. Changes that no plan reads (versions, heartbeats) enqueue nothing.

Guest agents are queried for host names on behalf of new Nodes whose VM no other identity reveals. All of them are
queried at once, because two VMs with one host name must be seen as two. Results are cached for a minute, also failures.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import Conflict, Forbidden, KubeError, NotFound
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.write_limit import WRITE_LIMIT, WriteRateLimiter
from harvester_ccm.kube.written_fields import fields_of_patch
from harvester_ccm.model.core import NODES, Node, parse_provider_id
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.model.harvester import GUEST_OS_INFO, ClusterIdentity, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.patch import NodeRequest
from harvester_ccm.plan.node.vms import IDENTITY, identity, queryable_guests, vm_identities, vmi_identities, vms_of

HOSTNAME_SECONDS: Final = 60.0
"""Time for which the host name of a guest, or the failure to get it, is cached."""
MAX_PARALLEL: Final = 16
"""Maximum number of queries in flight: KubeVirt passes each on to a guest."""
NodeWake = Callable[[str], None]
"""Called with the name of a Node that must be reconciled."""

log = structlog.get_logger(__name__)


def node_conflict(fields: Sequence[str]) -> EventMessage:
    """Return the Warning about a Node whose writes are delayed; ``fields`` are those that were written repeatedly."""
    cause = (
        f"Changes of this Node are delayed: {WRITE_LIMIT}. Another controller probably overwrites or deletes "
        f"{abbreviate(fields)}"
    )
    remedy = (
        "Typical causes: a second cloud controller manager (start K3s with --disable-cloud-controller and RKE2 with "
        "disable-cloud-controller: true; uninstall that of Talos), a kubelet without --cloud-provider=external, or a "
        "tool that manages labels or taints of Nodes"
    )
    return EventMessage("Warning", NodeReason.FIELD_CONFLICT, cause, remedy, subject="rate limit")


class VMCache:
    """Nodes with their VMs: the ``NodeStore`` of the controllers."""

    def __init__(
        self,
        nodes: Informer[Node],
        vms: Informer[VirtualMachine],
        vmis: Informer[VirtualMachineInstance],
        cluster: ClusterIdentity,
    ) -> None:
        """The informers have NODE_INDEXES, VM_INDEXES and VMI_INDEXES."""
        self.nodes = nodes
        self.vms = vms
        self.vmis = vmis
        self.cluster = cluster
        self.hostnames: dict[str, str] = {}
        """VM name to the host name that its guest agent reported. ``GuestHostnames`` updates it."""
        self._on_wake: list[NodeWake] = []
        nodes.on_change(self._node_changed)
        vms.on_change(self._vm_changed)
        vmis.on_change(self._vmi_changed)
        vms.on_state(self.enqueue_all)
        vmis.on_state(self.enqueue_all)

    def on_wake(self, callback: NodeWake) -> None:
        """Call ``callback`` with the name of every Node, also a deleted one, that must be reconciled."""
        self._on_wake.append(callback)

    def enqueue_all(self) -> None:
        """Enqueue every Node."""
        self._wake(node.metadata.name for node in self.nodes.all())

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if _is_equal(old, new):
            return
        names = {one.metadata.name for one in (old, new) if one is not None}
        uids = {parse_provider_id(one.spec.provider_id) if one is not None else None for one in (old, new)}
        # Another Node can be waiting for the VM of a provider ID that was set or removed.
        for uid in uids - {None} if len(uids) > 1 else ():
            for vm in vms_of(self, identity("uid", uid or "")):
                names |= self._nodes_of(vm.object, vm.vmi)
        self._wake(names)

    def _vm_changed(self, old: VirtualMachine | None, new: VirtualMachine | None) -> None:
        if not _is_equal(old, new):
            vms = [one for one in (old, new) if one is not None]
            self._wake(set().union(*(self._nodes_of(vm, self.vmis.get(vm.metadata.key)) for vm in vms)))

    def _vmi_changed(self, old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        vm = self.vms.get(next(one.metadata.key for one in (old, new) if one is not None))
        # A VMI without a VM is no Node.
        if vm is not None and not _is_equal(old, new):
            self._wake(self._nodes_of(vm, old, new))

    def _nodes_of(self, vm: VirtualMachine, *vmis: VirtualMachineInstance | None) -> set[str]:
        """Return the names of the Nodes that can be this VM."""
        values = {*vm_identities(vm), *(value for vmi in vmis if vmi is not None for value in vmi_identities(vmi))}
        values.add(identity("host", self.hostnames.get(vm.metadata.name, "").lower().partition(".")[0]))
        return {node.metadata.name for value in values for node in self.nodes.by_index(IDENTITY, value)}

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for callback in self._on_wake:
                callback(name)


class GuestHostnames:
    """Queries guest agents on behalf of Nodes."""

    def __init__(self, harvester: ApiClient, vms: VMCache) -> None:
        self._harvester = harvester
        self._vms = vms
        self._queried_at: dict[str, float] = {}
        """Loop time of the last query by UID of the VMI."""
        self._limit = asyncio.Semaphore(MAX_PARALLEL)
        self._query_lock = asyncio.Lock()
        self._forbidden = False

    async def query(self) -> None:
        """Query the guests whose result is not cached. Concurrent calls share the queries."""
        async with self._query_lock:
            now = loop_time()
            self._queried_at = {uid: at for uid, at in self._queried_at.items() if now - at < HOSTNAME_SECONDS}
            vmis = [vmi for vmi in queryable_guests(self._vms) if vmi.metadata.uid not in self._queried_at]
            found = dict(self._vms.hostnames)
            for vmi, hostname in zip(vmis, await asyncio.gather(*map(self._query, vmis)), strict=True):
                self._queried_at[vmi.metadata.uid] = loop_time()
                found[vmi.metadata.name] = hostname
            # A VM that was restarted meanwhile can have another host name.
            known = {vmi.metadata.name for vmi in self._vms.vmis.all() if vmi.metadata.uid in self._queried_at}
            self._vms.hostnames = {name: hostname for name, hostname in found.items() if hostname and name in known}

    async def _query(self, vmi: VirtualMachineInstance) -> str:
        """Return the host name of a guest; empty if its agent returned none."""
        name, namespace = vmi.metadata.name, vmi.metadata.namespace
        try:
            async with self._limit:
                info = await self._harvester.get(GUEST_OS_INFO, name, namespace=namespace, subresource="guestosinfo")
        except KubeError as error:
            if isinstance(error, Forbidden) and not self._forbidden:
                self._forbidden = True
                log.warning(
                    "guest host names not readable",
                    effect="a VM must have the name or system UUID of its Node",
                    remedy="bind ClusterRole harvesterhci.io:cloudprovider to the service account of the cloud-config",
                    error=str(error),
                )
            log.debug("guest agent returned no host name", vm=name, error=str(error))
            return ""
        return info.hostname


class NodeWrites:
    """Patches Nodes for all controllers within the rate limit of each Node, and emits their Events.

    The responses are stored in the cache.
    """

    def __init__(self, guest: ApiClient, nodes: Informer[Node], recorder: EventRecorder) -> None:
        self._guest = guest
        self._nodes = nodes
        self._limiter = WriteRateLimiter()
        self._recorder = recorder

    async def patch(self, node: Node, request: NodeRequest, *, component: str) -> Node | float:
        """Patch a Node and return the response, or the seconds until its rate limit permits the patch."""
        uid, fields = node.metadata.uid, fields_of_patch(request.body)
        if delay := self._limiter.delay(uid, fields, terminating=node.metadata.deleting):
            self.emit(node, node_conflict(self._limiter.repeated(uid, fields)), component=component)
            return delay
        try:
            answer = await self._guest.merge_patch(
                NODES, node.metadata.name, request.body, subresource=request.subresource
            )
        except NotFound as error:
            self._nodes.not_found(node, error)
            raise Conflict(error.answer) from error
        except Conflict:
            await self._nodes.refresh(node)
            raise
        self._limiter.record(uid, fields)
        self._nodes.observe(answer)
        return answer

    def emit(self, node: Node, *events: EventMessage, component: str) -> None:
        """Emit Events about a Node; ``component`` is their source."""
        for event in events:
            self._recorder.emit(NODES, node, event, component=component)


def _is_equal(
    old: Node | VirtualMachine | VirtualMachineInstance | None,
    new: Node | VirtualMachine | VirtualMachineInstance | None,
) -> bool:
    """Return whether everything that a plan reads is equal."""
    if old is None or new is None:
        return False
    before, after = (
        (one.spec, one.status, meta.uid, meta.deleting, meta.labels, meta.annotations)
        for one, meta in ((old, old.metadata), (new, new.metadata))
    )
    return before == after
