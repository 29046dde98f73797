"""The Service controller: ``observe`` the caches, ``plan_service``, send the one write of the plan, and plan again.

Every change of a Service, of a Service that shares its address, of a load balancer with its labels and of the nodes
behind a VM load balancer enqueues the Service. A reconcile never waits. Responses to writes go into the caches at once,
so that the next plan is based on them.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.controllers.service_writes import COMPONENT, BalancerWrites, ServiceWrites
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time, wall_time
from harvester_ccm.kube.errors import AnswerTooLarge, Forbidden, KubeError, NotServed, WriteReverted
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Done, Outcome, Wait
from harvester_ccm.kube.turns import NamespaceTurns
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import SERVICES, ConfigMap, Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.node.match import vm_names
from harvester_ccm.plan.service.address import not_allocated
from harvester_ccm.plan.service.allocation import is_in_progress
from harvester_ccm.plan.service.desired import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    PatchService,
    ServicePlan,
    TriggerKubeVipResync,
    Write,
    not_ready,
)
from harvester_ccm.plan.service.endpoints import endpoints_in, unreadable_endpoints
from harvester_ccm.plan.service.kube_vip import compared_fields, read_state
from harvester_ccm.plan.service.messages import failure_event, harvester_unavailable
from harvester_ccm.plan.service.ownership import (
    Mark,
    allocated_addresses,
    has_cluster_name,
    mark_of,
    service_key,
)
from harvester_ccm.plan.service.plan import failed_condition, plan_service, plan_waiting_for_creation
from harvester_ccm.plan.service.ranking import Rankings
from harvester_ccm.plan.service.reannouncement import RESYNC_AFTER_SECONDS, resync_not_permitted
from harvester_ccm.plan.service.scope import BY_PRIMARY, may_be_ours
from harvester_ccm.plan.service.snapshot import (
    BY_ADDRESS,
    LOAD_BALANCER_INDEXES,
    Backends,
    ServiceSnapshot,
    ServiceState,
    observe,
)
from harvester_ccm.plan.service.vip_hosts import is_node_of_kube_vip, vip_host
from harvester_ccm.plan.service.vm_spec import backends_of

RESPONSE_SECONDS: Final = 10.0
"""Maximum time for which a load balancer that Harvester does not respond to delays the others."""
RESYNC_RETRY_SECONDS: Final = 600.0
"""Seconds after which a resync is triggered again if the patch was not permitted."""
COALESCE_SECONDS: Final = 0.2
"""Delay of a refresh of the backends after a change of a Node or VM."""
log = structlog.get_logger(__name__)


class CreationGate:
    """Admits one load balancer creation at a time: the namespaces in turn, and in the order of requests within each.

    Harvester's controller allocates addresses with two workers that collide on the pool. Each collision costs one of
    its five writes per second, and sometimes the allocation itself: 100 Services take 39 s with one creation in flight,
    and 78 s if all are created at once. The deletion of a load balancer writes to the same pool, so it counts as well,
    unless it began while the next creation was already waiting: somebody who deletes one load balancer after the other
    must not keep all others from getting theirs.
    """

    def __init__(self, enqueue: Callable[[str], None], cluster: ClusterIdentity) -> None:
        """``enqueue`` enqueues the Service that is next when the gate becomes free."""
        self._enqueue = enqueue
        self._cluster = cluster
        self._queue = NamespaceTurns()
        """Keys of the queued Services; the first one stays until the reconcile that creates its load balancer ends."""
        self._operations: dict[str, asyncio.TimerHandle] = {}
        """Operations in progress in Harvester that have not timed out."""
        self._delaying: set[str] = set()
        """Those of them that delay the next creation."""

    def admit(self, key: str) -> bool:
        """Return whether the Service can create its load balancer now; otherwise it is queued."""
        self._queue.add(key)
        return not self._delaying and self._queue.first() == key

    def reconciled(self, key: str, *, queued: bool) -> None:
        """Record that the reconcile of a Service ended, and whether it is still waiting for admission."""
        if queued or key not in self._queue:
            return
        if self._queue.first() == key:
            self._queue.take(key)
            # The next one waits for everything that is in progress now.
            self._delaying = set(self._operations)
        else:
            # It is not created any more, and its namespace keeps its turn.
            self._queue.remove(key)
        self._enqueue_next()

    def observe(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        """Record a change of a load balancer in the cache."""
        before, after = self._operation(old), self._operation(new)
        if before == after:
            return
        self._end(before)
        if after:
            self._begin(after, is_deletion=new is not None and new.metadata.deleting)
        self._enqueue_next()

    def _begin(self, operation: str, *, is_deletion: bool) -> None:
        loop = asyncio.get_running_loop()
        self._operations[operation] = loop.call_later(RESPONSE_SECONDS, self._timed_out, operation)
        if not is_deletion or not self._queue:
            self._delaying.add(operation)

    def _end(self, operation: str) -> None:
        """Forget an operation, if it is in progress."""
        timer = self._operations.pop(operation, None)
        if timer is not None:
            timer.cancel()
        self._delaying.discard(operation)

    def _operation(self, load_balancer: LoadBalancer | None) -> str:
        """Return the operation in progress for a load balancer of this cluster; empty if none exists."""
        if load_balancer is None:
            return ""
        # The text of a load balancer of another cluster is not even looked at.
        is_foreign = mark_of(load_balancer, self._cluster) is Mark.FOREIGN
        if is_foreign or not has_cluster_name(load_balancer, self._cluster):
            return ""
        if not is_in_progress(load_balancer):
            return ""
        return f"{'delete' if load_balancer.metadata.deleting else 'create'} {load_balancer.metadata.uid}"

    def _timed_out(self, operation: str) -> None:
        self._end(operation)
        self._enqueue_next()

    def _enqueue_next(self) -> None:
        key = self._queue.first()
        if key is not None and not self._delaying:
            self._enqueue(key)


def follow_load_balancers(client: ApiClient, namespace: str) -> Informer[LoadBalancer]:
    """Return the informer of Harvester's load balancers, which logs an error while Harvester does not serve them.

    Harvester before 1.2 does not serve this version of the API. The informer keeps listing, so that the controller
    continues after an upgrade.
    """
    informer = Informer(client, LOAD_BALANCERS, namespace=namespace, indexes=LOAD_BALANCER_INDEXES)

    def report() -> None:
        if isinstance(informer.problem, NotServed):
            log.error("load balancer API not served", detail=harvester_unavailable(informer.problem).message)

    informer.on_state(report)
    return informer


class ServiceCaches:
    """The caches of the Service controller: a ``ServiceStore`` that follows the clusters."""

    def __init__(
        self,
        services: Informer[Service],
        load_balancers: Informer[LoadBalancer],
        vms: VMCache,
        config_maps: Informer[ConfigMap],
    ) -> None:
        """The first two have the indexes of a ``ServiceStore``; ``config_maps`` holds the network mapping only."""
        self.services = services
        self.load_balancers = load_balancers
        self.vm_cache = vms
        self.nodes, self.vms = vms.nodes, vms.vms
        self.config_maps = config_maps
        self.rankings = Rankings(services, vms.cluster)
        self.backends: Backends = None
        """The nodes that may get traffic, as of the last ``refresh_backends``."""
        self.last_announced_at = -math.inf
        """When kube-vip last noted a node on a Service that had no note. A restart counts all of them again."""
        services.on_change(self._note_announcement)

    def _note_announcement(self, old: Service | None, new: Service | None) -> None:
        if vip_host(new) and not vip_host(old):
            self.last_announced_at = loop_time()

    def refresh_backends(self) -> tuple[bool, bool]:
        """Update the nodes that get traffic; return whether they are known for the first time, and if they changed."""
        if not self.nodes.synced:
            return False, False
        before, found = self.backends, backends_of(self.nodes.all(), vm_names(self.vm_cache))
        # The last known backends stay until the VMs are known again.
        self.backends = before if found is None else found
        return before is None and found is not None, before != self.backends


class _Step(Struct, frozen=True):
    """What a reconcile has observed and planned."""

    snapshot: ServiceSnapshot
    plan: ServicePlan
    state: ServiceState


def _addresses_of(load_balancer: LoadBalancer | None) -> frozenset[str]:
    """Return the addresses of a load balancer that the Services which share it read."""
    if load_balancer is None:
        return frozenset()
    return allocated_addresses((load_balancer,)) | {load_balancer.address}


def _outcome_of(plan: ServicePlan) -> Outcome:
    """Return the outcome of a plan without a write."""
    if not plan.waiting_reason and plan.look_again_after is None:
        return Done()
    return Wait(plan.waiting_reason, plan.look_again_after)


def _without_effect(step: _Step, write: Write) -> None:
    """Record that a write had no effect: the API server accepted it, and the same write is planned again.

    A field of the load balancer that this version of Harvester does not know is not sent again. Raises WriteReverted
    for everything else, for example if an admission webhook reverts the write.
    """
    if isinstance(write, ChangeLoadBalancer) and write.spec:
        step.state.not_stored.update(write.spec)
        log.warning("fields not stored by Harvester", lb=write.name, fields=sorted(write.spec))
        return
    raise WriteReverted(f"the last write to Service {step.snapshot.service.metadata.key} had no effect")


def _is_missing_in_harvester(write: Write) -> bool:
    """Return whether Harvester lacks the load balancer of a Service, or forwards other ports or to other nodes.

    Then an outage concerns the Service also if it keeps its address. The status and the marks that this controller
    writes to a load balancer change nothing for clients.
    """
    if isinstance(write, ChangeLoadBalancer):
        return bool(write.spec)
    return isinstance(write, CreateLoadBalancer)


class ServiceController:
    """Keeps one Harvester load balancer per Service."""

    def __init__(
        self,
        guest: ApiClient,
        harvester: ApiClient,
        caches: ServiceCaches,
        *,
        recorder: EventRecorder,
        cluster: ClusterIdentity,
        workers: int,
    ) -> None:
        self._balancers = BalancerWrites(harvester, caches.load_balancers, cluster.namespace)
        self._writes = ServiceWrites(guest, self._balancers, caches.services)
        self._caches = caches
        self._services = caches.services
        self._load_balancers = caches.load_balancers
        self._recorder = recorder
        self.cluster = cluster
        """This cluster, with its mark where that could be read."""
        self._states = ObjectStates(ServiceState)
        self._has_notes = False
        """Whether kube-vip has noted a node on any Service."""
        self._families_to_wake: set[str] = set()
        """Keys of the primaries whose families are enqueued in the next step of the event loop."""
        self.backends_timer: asyncio.TimerHandle | None = None
        """Set while a refresh of the backends is scheduled."""
        self.clock: Callable[[], str] = wall_time
        """Tells the time of day as the API writes it."""
        self.queue = WorkQueue("service", self.reconcile, workers=workers, resync=self._managed_keys)
        self._gate = CreationGate(self.queue.enqueue, cluster)
        for load_balancer in self._load_balancers.all():
            # The informer read it before this controller registered its callback.
            self._gate.observe(None, load_balancer)
        caches.services.on_change(self._service_changed)
        caches.load_balancers.on_change(self._load_balancer_changed)
        caches.load_balancers.on_state(self._refresh_backends)
        caches.load_balancers.on_state(self._enqueue_all)
        caches.vm_cache.on_wake(self._schedule_backends)
        for informer in (caches.vms, caches.vm_cache.vmis):
            informer.on_state(self._refresh_backends)
        caches.vms.on_state(self._enqueue_all)
        caches.config_maps.on_change(self._enqueue_all)
        caches.config_maps.on_state(self._enqueue_all)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._services.wait_synced()
        await self._caches.nodes.wait_synced()
        log.info("service controller started", services=len(self._services))
        self._refresh_backends()
        self._enqueue_all()
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Bring one Service to its desired state, one write after another. Raises WriteReverted and KubeError."""
        outcome: Outcome | None = None
        previous: Write | None = None
        try:
            while outcome is None:
                step = self._plan(key)
                if step is None:
                    outcome = Done()
                    break
                outcome = await self._carry_out(step, previous)
                previous = step.plan.write
        finally:
            is_queued = isinstance(outcome, Wait) and outcome.reason == Reason.CREATION_QUEUED
            self._gate.reconciled(key, queued=is_queued)
        return outcome

    def _plan(self, key: str) -> _Step | None:
        """Observe and plan a Service; None if nothing of it concerns this controller."""
        service = self._services.get(key)
        if service is None:
            self._states.forget(key)
            return None
        snapshot = observe(self._caches, service, self.cluster)
        if not (snapshot.scope.is_managed or snapshot.scope.note or service.ready_condition):
            return None
        state, now = self._states.of(service), loop_time()
        state.resume(snapshot, now)
        state.note_publication(snapshot.kube_vip, now)
        state.note_fields(snapshot.kube_vip)
        snapshot = replace(
            snapshot,
            remembered=state,
            now=now,
            wall_time=self.clock(),
            secondary_in_progress=self._is_secondary_in_progress(snapshot),
        )
        plan = plan_service(snapshot)
        if isinstance(plan.write, CreateLoadBalancer) and not self._gate.admit(key):
            plan = plan_waiting_for_creation(snapshot, plan)
        state.enter(plan.phase, now)
        state.note_lease_wait(snapshot, plan.waiting_reason, now)
        return _Step(snapshot, plan, state)

    def _is_secondary_in_progress(self, snapshot: ServiceSnapshot) -> bool:
        """Return whether a Service that may share the address is being reconciled now."""
        # Only before a deletion it matters, and there may be thousands of secondaries.
        if not snapshot.may_delete_load_balancer:
            return False
        return any(self.queue.is_active(secondary.metadata.key) for secondary in snapshot.own_secondaries)

    async def _carry_out(self, step: _Step, previous: Write | None) -> Outcome | None:
        """Emit the Events of a plan and send its write; return the outcome, or None to plan again.

        ``previous`` is the write of the plan before.
        """
        plan = step.plan
        delay = self._writes.delay(plan, step.snapshot)
        self._emit_planned(step, is_sent_now=not delay and plan.dry_run is None)
        if plan.write is None and plan.reads_endpoints:
            await self._read_endpoints(step)
            return None
        if plan.write is None:
            return _outcome_of(plan)
        if delay:
            self._emit(step.snapshot, self._writes.conflict(plan.write, step.snapshot))
            return Wait(Reason.FIELD_CONFLICT, delay)
        if plan.write == previous:
            _without_effect(step, plan.write)
            return None
        await self._send(step, plan.write)
        return None

    def _emit_planned(self, step: _Step, *, is_sent_now: bool) -> None:
        """Emit the Warnings of a plan, and with its write also the Normal Events: these report the write."""
        for event in step.plan.events:
            if event.type == "Warning" or is_sent_now:
                self._emit(step.snapshot, event)

    async def _send(self, step: _Step, write: Write) -> None:
        """Send the write of a plan, after its dry run. Raises KubeError after its Event was emitted."""
        if isinstance(write, TriggerKubeVipResync):
            await self._trigger_resync(step)
            return
        await self._check_dry_run(step)
        snapshot = step.snapshot
        try:
            await self._writes.send(write, snapshot)
        except KubeError as error:
            event = self._report(error, write, snapshot)
            if event is not None:
                await self._report_in_condition(event, write, snapshot)
            raise
        finally:
            # Also after an error: the patch may have been applied although its response was lost.
            if isinstance(write, PatchService) and write.triggers_resync:
                step.state.resync_at = loop_time() + RESYNC_AFTER_SECONDS
            if isinstance(write, PatchService) and write.requests_lease:
                step.state.note_lease_request(loop_time())

    async def _trigger_resync(self, step: _Step) -> None:
        is_permitted = await self._writes.trigger_resync(step.snapshot)
        step.state.note_touch()
        step.state.resync_at = None if is_permitted else loop_time() + RESYNC_RETRY_SECONDS
        if not is_permitted:
            self._emit(step.snapshot, resync_not_permitted(step.snapshot.service))

    async def _read_endpoints(self, step: _Step) -> None:
        """Read the EndpointSlices of the Service into its state. Raises KubeError if it cannot be reached."""
        service = step.snapshot.service
        try:
            page = await self._writes.list_endpoint_slices(service)
        except (AnswerTooLarge, Forbidden) as error:
            log.info("endpoints not readable", service=service.metadata.key, error=str(error))
            endpoints = unreadable_endpoints(service)
        else:
            endpoints = endpoints_in(page, service, partial(is_node_of_kube_vip, self._services))
        step.state.endpoints = step.state.endpoints.followed_by(endpoints, loop_time())

    async def _check_dry_run(self, step: _Step) -> None:
        """Check that Harvester would accept the next load balancer, before the present one is given up."""
        plan, snapshot = step.plan, step.snapshot
        if plan.dry_run is None:
            return
        try:
            await self._balancers.check(plan.dry_run)
        except KubeError as error:
            # The Service keeps the load balancer that it has: Harvester would reject the creation of the next one.
            self._report(error, CreateLoadBalancer(snapshot.match.expected_name, plan.dry_run), snapshot)
            raise
        self._emit_planned(step, is_sent_now=True)

    def _report(self, error: KubeError, write: Write, snapshot: ServiceSnapshot) -> EventMessage | None:
        """Emit and return the Event about a write that failed; None if it is too early for one."""
        service = snapshot.service
        failures = self.queue.failures(service.metadata.key) + 1
        event = failure_event(error, failures, service, in_guest=isinstance(write, PatchService))
        if event is None:
            return None
        self._emit(snapshot, event)
        if isinstance(write, CreateLoadBalancer) and (lost := not_allocated(snapshot)) is not None:
            self._emit(snapshot, lost)
        return event

    async def _report_in_condition(self, event: EventMessage, write: Write, snapshot: ServiceSnapshot) -> None:
        verdict = not_ready(event, snapshot)
        if verdict.changes_condition or _is_missing_in_harvester(write):
            await self._writes.report(failed_condition(verdict, snapshot), snapshot)

    def _managed_keys(self) -> list[str]:
        return [one.metadata.key for one in self._services.all() if may_be_ours(one, self.cluster)]

    def _emit(self, snapshot: ServiceSnapshot, event: EventMessage) -> None:
        self._recorder.emit(SERVICES, snapshot.service, event, component=COMPONENT)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if not self._services.synced:
            # All are enqueued when the list is complete, those without an address first.
            return
        for item in filter(None, (old, new)):
            if new is None or may_be_ours(item, self.cluster):
                self.queue.enqueue(item.metadata.key)
        self._note_changed_fields(old, new)
        self._wake_families(self._caches.rankings.concerned_by(old, new))
        self._wake_at_first_note(new)

    def _note_changed_fields(self, old: Service | None, new: Service | None) -> None:
        """Have the endpoints touched after a change for which kube-vip withdraws the address.

        The record on the Service shows the change as well, unless the user takes it back before the next reconcile:
        kube-vip has withdrawn the address by then.
        """
        if old is None or new is None or self.cluster.announcer is Announcer.OTHER:
            return
        if old.metadata.uid != new.metadata.uid or compared_fields(old) == compared_fields(new):
            return
        if may_be_ours(new, self.cluster):
            self._states.of(new).expect_resync(read_state(new), loop_time() + RESYNC_AFTER_SECONDS)

    def _wake_at_first_note(self, service: Service | None) -> None:
        """Enqueue all Services at the first note of kube-vip, with which a missing one begins to mean something."""
        if not self._has_notes and vip_host(service):
            self._has_notes = True
            self.queue.enqueue_background(self._managed_keys())

    def _wake_families(self, primary_keys: set[str]) -> None:
        """Wake these primaries and their secondaries soon: a list of Services can have thousands of changes at once."""
        if primary_keys and not self._families_to_wake:
            asyncio.get_running_loop().call_soon(self._enqueue_families)
        self._families_to_wake.update(primary_keys)

    def _enqueue_families(self) -> None:
        """Enqueue the families in the background, because one change can concern thousands of Services."""
        primary_keys = self._families_to_wake
        self._families_to_wake = set()
        for primary_key in primary_keys:
            if self._services.get(primary_key) is not None:
                self.queue.enqueue_background((primary_key,))
            secondaries = self._services.by_index(BY_PRIMARY, primary_key)
            self.queue.enqueue_background(secondary.metadata.key for secondary in secondaries)

    def _load_balancer_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        self._gate.observe(old, new)
        # The first list enqueues no single Service: all are enqueued when it is complete.
        if self._load_balancers.synced:
            self._enqueue_concerned(old, new)

    def _enqueue_concerned(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        """Enqueue the Services that a load balancer was created for, and those that share or have its address.

        The latter can be thousands, so they are enqueued in the background.
        """
        before, after = _addresses_of(old), _addresses_of(new)
        for load_balancer in filter(None, (old, new)):
            self._enqueue_service_of(load_balancer)
            if before == after:
                continue
            self._wake_families({service_key(load_balancer)})
            others = self._services.by_index(BY_ADDRESS, load_balancer.allocated_ip)
            self.queue.enqueue_background(other.metadata.key for other in others if may_be_ours(other, self.cluster))

    def _enqueue_service_of(self, load_balancer: LoadBalancer) -> None:
        """Enqueue the Service that a load balancer was created for."""
        key = service_key(load_balancer)
        if self._services.get(key) is not None:
            self.queue.enqueue(key)

    def _schedule_backends(self, _node: str) -> None:
        """Refresh the backends soon; hundreds of Nodes that join one after the other cause few refreshes."""
        if self.backends_timer is None:
            loop = asyncio.get_running_loop()
            self.backends_timer = loop.call_later(COALESCE_SECONDS, self._refresh_backends)

    def _refresh_backends(self) -> None:
        self.backends_timer = None
        first, changed = self._caches.refresh_backends()
        if first:
            self._enqueue_all()
        elif changed:
            for load_balancer in self._load_balancers.all():
                if load_balancer.spec.workload_type == "vm":
                    self._enqueue_service_of(load_balancer)

    def _enqueue_all(self, *_change: object) -> None:
        """Enqueue all Services; those without an address are urgent.

        The others are decided once Harvester has responded or failed, and each of these enqueues all again.
        """
        keys = self._managed_keys()
        for key in keys:
            service = self._services.get(key)
            if service is not None and service.spec.type == "LoadBalancer" and not service.addresses:
                self.queue.enqueue(key)
        if self._load_balancers.synced or self._load_balancers.problem is not None:
            self.queue.enqueue_background(keys)
