"""The Service controller: one Harvester load balancer for each Service of type LoadBalancer.

``observe`` in ``plan.service.snapshot`` reads the caches, ``plan_service`` decides, and ``ServiceWrites`` sends the one
write of the plan. A reconcile never waits for Harvester: what has to happen there wakes the Service again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import structlog
from msgspec.structs import replace

from harvester_ccm.controllers.address_pools import AddressPools
from harvester_ccm.controllers.concerned import decidable_services, managed_services, services_without_address
from harvester_ccm.controllers.creation_gate import CreationGate
from harvester_ccm.controllers.reconciler import LimitedWrite, QueueName, Reconciler, Shared
from harvester_ccm.controllers.service_writes import (
    COMPONENT,
    BalancerWrites,
    ServiceWrites,
    service_conflict,
    written_fields,
)
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time, wall_time
from harvester_ccm.kube.errors import AdmissionDenied, AnswerTooLarge, Forbidden, Invalid, KubeError, WriteReverted
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.address_pools import ObservedPool, RefusedSeed, addresses_of_servers
from harvester_ccm.plan.service.allocation.pending import is_left_unprocessed
from harvester_ccm.plan.service.announcing.address_events import not_allocated
from harvester_ccm.plan.service.announcing.endpoints import Endpoints
from harvester_ccm.plan.service.desired import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    PatchService,
    SeedPool,
    ServicePlan,
    TouchEndpoints,
    Write,
    not_ready,
)
from harvester_ccm.plan.service.load_balancer.refused import Listeners, Ports, port_of, refused_by
from harvester_ccm.plan.service.messages import failure_event, write_reverted
from harvester_ccm.plan.service.ownership.claims import claim_events, shows_address_of_others
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import failed_condition, plan_service, plan_waiting_for_creation
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState, observe

log = structlog.get_logger(__name__)


class ServiceController(Reconciler[ServiceSnapshot, ServicePlan]):
    """Keeps one Harvester load balancer per Service."""

    def __init__(self, shared: Shared, guest: ApiClient, harvester: ApiClient, *, workers: int) -> None:
        super().__init__(QueueName.SERVICE, shared, resource=SERVICES, component=COMPONENT, workers=workers)
        caches = shared.caches
        self.cluster = caches.cluster
        """This cluster, with its mark where that could be read."""
        self._balancers = BalancerWrites(harvester, caches.load_balancers, self.cluster.namespace)
        self._writes = ServiceWrites(guest, self._balancers, caches.services, self.limiter)
        self._pools = AddressPools(harvester, caches)
        self._read_pools: dict[str, ObservedPool] = {}
        """The IP pool that each reconcile in progress has read, by the key of the Service."""
        caches.api_servers = addresses_of_servers(guest.credentials.server, harvester.credentials.server)
        self._states = ObjectStates(ServiceState)
        self._last_sent: dict[str, Write] = {}
        """The last write of each reconcile in progress, by the key of the Service."""
        self._gate = CreationGate(self.queue.enqueue, self.cluster)
        for load_balancer in caches.load_balancers.all():
            # The informer read it before this controller registered its callback.
            self._gate.observe(None, load_balancer)
        caches.load_balancers.on_change(self._gate.observe)

    async def wait_synced(self) -> None:
        """Return when Services and Nodes are listed: Harvester may be unavailable."""
        await self.caches.services.wait_synced()
        await self.caches.nodes.wait_synced()

    async def run(self) -> None:
        """Work until cancelled, and follow which permissions there are on IP pools."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pools.run(), name="address-pools")
            group.create_task(super().run(), name=self.name)

    def keys(self) -> list[str]:
        return managed_services(self.caches)

    def enqueue_all(self) -> None:
        """Enqueue all Services at the start, those without an address first."""
        log.info("service controller started", services=len(self.caches.services))
        self.caches.refresh_backends()
        self.wake(services_without_address(self.caches))
        self.queue.enqueue_background(decidable_services(self.caches))

    async def reconcile(self, key: str) -> Outcome:
        """Bring one Service to its desired state, one write after another. Raises WriteReverted and KubeError."""
        outcome: Outcome | None = None
        try:
            outcome = await super().reconcile(key)
        finally:
            self._last_sent.pop(key, None)
            self._read_pools.pop(key, None)
            is_queued = outcome is not None and outcome.reason == Reason.CREATION_QUEUED
            self._gate.reconciled(key, queued=is_queued)
        return outcome

    async def observe(self, key: str) -> ServiceSnapshot | None:
        """Return the snapshot of a Service; None if nothing of it concerns this controller."""
        snapshot = self._observe(key)
        if snapshot is None or not is_left_unprocessed(snapshot):
            return snapshot
        # A watch that has become silent looks the same: the load balancer itself decides.
        await self.caches.load_balancers.refresh(snapshot.load_balancer)
        return self._observe(key)

    def _observe(self, key: str) -> ServiceSnapshot | None:
        """Return what the caches and the memory of this process contain about a Service."""
        service = self.caches.services.get(key)
        if service is None:
            self._states.forget(key)
            return None
        snapshot = observe(self.caches, service, self.cluster)
        if not (snapshot.scope.is_managed or snapshot.scope.event or service.ready_condition):
            return None
        state = self._states.of(service)
        now = loop_time()
        state.see_record(service, now)
        return replace(
            snapshot,
            remembered=state,
            pool=self._read_pools.get(key),
            now=now,
            wall_time=wall_time(),
            secondary_in_progress=self._is_secondary_in_progress(snapshot),
            refused_of_primary=self._refused_of(snapshot.primary),
        )

    def _refused_of(self, primary: Service | None) -> Ports:
        """Return the listeners that Harvester rejected of the load balancer of a primary."""
        return frozenset() if primary is None else self._states.of(primary).refused.ports

    def _is_secondary_in_progress(self, snapshot: ServiceSnapshot) -> bool:
        """Return whether a Service that may share the address is being reconciled now."""
        return any(self.queue.is_active(secondary.metadata.key) for secondary in snapshot.own_secondaries)

    def plan(self, snapshot: ServiceSnapshot) -> ServicePlan:
        """Return the plan of a Service, once the creation gate admits it. Raises WriteReverted."""
        key = snapshot.service.metadata.key
        plan = plan_service(snapshot)
        if plan.write is not None and plan.write == self._last_sent.get(key):
            self._record_without_effect(plan.write, snapshot)
            plan = plan_service(snapshot)
        if plan.is_next_creation and not self._gate.admit(key):
            plan = plan_waiting_for_creation(snapshot, plan)
        snapshot.remembered.enter(plan.phase, snapshot.now)
        return plan

    def _record_without_effect(self, write: Write, snapshot: ServiceSnapshot) -> None:
        """Record that a write had no effect: the API server accepted it, and the same write is planned again.

        A field of the load balancer that this version of Harvester does not know is not sent again. Raises
        WriteReverted for everything else, for example if an admission webhook reverts the write.
        """
        if isinstance(write, ChangeLoadBalancer) and write.spec:
            snapshot.remembered.not_stored.update(write.spec)
            log.warning("fields not stored by Harvester", lb=write.name, fields=sorted(write.spec))
            return
        self.emit(snapshot.service, write_reverted(written_fields(write), in_guest=isinstance(write, PatchService)))
        raise WriteReverted(f"the last write to Service {snapshot.service.metadata.key} had no effect")

    def emit_planned(self, plan: ServicePlan, snapshot: ServiceSnapshot, *, is_sent_now: bool) -> None:
        """Emit the Warnings of a plan, and with its write also the Normal Events: these report the write."""
        if plan.write is None and plan.reads_pool:
            # The plan after the pool is read decides.
            return
        self._report_claims(snapshot)
        reports_write = is_sent_now and plan.dry_run is None
        for event in plan.events:
            if event.type == "Warning" or reports_write:
                self.emit(snapshot.service, event)

    def _report_claims(self, snapshot: ServiceSnapshot) -> None:
        """Emit the Warnings for the Services whose addresses were written to this one."""
        for key, event in claim_events(snapshot).items():
            owner = self.caches.services.get(key)
            if owner is not None:
                self.emit(owner, event)

    async def settle(self, plan: ServicePlan, snapshot: ServiceSnapshot) -> Outcome | None:
        """Return the outcome of a plan without a write; None after what it needs was read."""
        if plan.reads_pool:
            await self._read_pool(snapshot)
        elif plan.reads_endpoints:
            reading = await self._writes.read_endpoints(snapshot.service)
            snapshot.remembered.endpoints = Endpoints(reading, loop_time())
        else:
            return Outcome(plan.waiting_reason, plan.look_again_after)
        self._last_sent.pop(snapshot.service.metadata.key, None)
        return None

    def limited(self, write: Write, snapshot: ServiceSnapshot) -> LimitedWrite:
        """Return what the rate limit has to know: one limit covers a Service and its load balancer.

        Touches have a limit of their own. They are sent in intervals, and no other client changes what they write.
        """
        meta = snapshot.service.metadata
        fields = written_fields(write)
        if isinstance(write, TouchEndpoints):
            return LimitedWrite(f"endpoints of {meta.uid}", fields, is_urgent=meta.deleting)
        is_urgent = meta.deleting
        if isinstance(write, PatchService):
            # The user who wrote the address of something else here could do it again while the correction waits.
            is_urgent = is_urgent or shows_address_of_others(snapshot)
        return LimitedWrite(meta.uid, fields, is_urgent=is_urgent)

    def report_conflict(self, fields: list[str], snapshot: ServiceSnapshot) -> None:
        self.emit(snapshot.service, service_conflict(fields, snapshot.service))

    async def send(self, write: Write, plan: ServicePlan, snapshot: ServiceSnapshot) -> Outcome | None:
        """Send the write of a plan, after its dry run. Raises KubeError after its Event was emitted."""
        if isinstance(write, TouchEndpoints):
            is_permitted = await self._writes.touch_endpoints(snapshot)
            snapshot.remembered.count_touch(loop_time(), is_permitted=is_permitted)
        elif isinstance(write, SeedPool):
            await self._request_address(write, snapshot)
        else:
            await self._check_dry_run(plan, snapshot)
            await self._send_write(write, snapshot)
            if plan.phase is Phase.PENDING and not isinstance(write, PatchService):
                snapshot.remembered.wait_again(loop_time())
        self._last_sent[snapshot.service.metadata.key] = write
        return None

    async def _send_write(self, write: Write, snapshot: ServiceSnapshot) -> None:
        try:
            await self._writes.send(write, snapshot)
        except KubeError as error:
            if self._leaves_out_listeners(error, write, snapshot):
                return
            event = self._report(error, write, snapshot)
            if event is not None:
                await self._report_in_condition(event, write, snapshot)
            raise
        self._record_accepted_listeners(write, snapshot)

    def _leaves_out_listeners(self, error: KubeError, write: Write, snapshot: ServiceSnapshot) -> bool:
        """Return whether Harvester rejected only some listeners, which the next plan leaves out."""
        if not isinstance(error, AdmissionDenied):
            return False
        checked_port = snapshot.request.health_check.get("port", 0)
        refused = refused_by(str(error), _listeners_of(write), checked_port=checked_port, now=snapshot.now)
        if refused is None:
            return False
        log.warning("listeners rejected by Harvester", service=snapshot.service.metadata.key, error=str(error))
        snapshot.remembered.refused = refused
        self._wake_secondaries(snapshot)
        return True

    def _record_accepted_listeners(self, write: Write, snapshot: ServiceSnapshot) -> None:
        state = snapshot.remembered
        accepted = frozenset(map(port_of, _listeners_of(write)))
        if state.refused.ports.isdisjoint(accepted):
            return
        state.refused = state.refused.without(accepted)
        self._wake_secondaries(snapshot)

    def _wake_secondaries(self, snapshot: ServiceSnapshot) -> None:
        self.wake(secondary.metadata.key for secondary in snapshot.own_secondaries)

    async def _read_pool(self, snapshot: ServiceSnapshot) -> None:
        pool = snapshot.request.ip_pool
        try:
            self._read_pools[snapshot.service.metadata.key] = await self._pools.read(pool)
        except (AnswerTooLarge, Forbidden) as error:
            _give_up_request(snapshot, error)
        except KubeError as error:
            self._report(error, None, snapshot)
            raise

    async def _request_address(self, write: SeedPool, snapshot: ServiceSnapshot) -> None:
        try:
            self._read_pools[snapshot.service.metadata.key] = await self._pools.request(write)
        except (AdmissionDenied, Forbidden, Invalid) as error:
            _give_up_request(snapshot, error)
        except KubeError as error:
            self._report(error, write, snapshot)
            raise

    async def _check_dry_run(self, plan: ServicePlan, snapshot: ServiceSnapshot) -> None:
        """Check that Harvester would accept the next load balancer, before the present one is given up."""
        if plan.dry_run is None:
            return
        try:
            await self._balancers.check(plan.dry_run)
        except KubeError as error:
            # The Service keeps the load balancer that it has: Harvester would reject the creation of the next one.
            self._report(error, CreateLoadBalancer(snapshot.match.expected_name, plan.dry_run), snapshot)
            raise
        self._writes.require_unchanged(snapshot.service)
        self.emit(snapshot.service, *plan.events)

    def _report(self, error: KubeError, write: Write | None, snapshot: ServiceSnapshot) -> EventMessage | None:
        """Emit and return the Event about a request that failed; None if it is too early for one.

        ``write`` is None if something could not be read in Harvester.
        """
        service = snapshot.service
        failures = self.queue.failures(service.metadata.key) + 1
        event = failure_event(error, failures, snapshot, in_guest=isinstance(write, PatchService))
        if event is None:
            return None
        self.emit(service, event)
        if isinstance(write, CreateLoadBalancer):
            lost = not_allocated(snapshot)
            if lost is not None:
                self.emit(service, lost)
        return event

    async def _report_in_condition(self, event: EventMessage, write: Write, snapshot: ServiceSnapshot) -> None:
        verdict = not_ready(event, snapshot)
        if verdict.changes_condition or _is_missing_in_harvester(write):
            await self._writes.report(failed_condition(verdict, snapshot), snapshot)


def _listeners_of(write: Write) -> Listeners:
    """Return the listeners in a write; empty for one without any."""
    match write:
        case CreateLoadBalancer(body=body):
            spec = cast("Mapping[str, Any]", body["spec"])
        case ChangeLoadBalancer(spec=spec):
            pass
        case _:
            return ()
    return cast("Listeners", spec.get("listeners") or ())


def _give_up_request(snapshot: ServiceSnapshot, error: KubeError) -> None:
    """Record that Harvester does not permit the request of an address: the Service gets any."""
    request = snapshot.request
    log.warning("requested address not permitted", service=snapshot.service.metadata.key, error=str(error))
    snapshot.remembered.refused_seed = RefusedSeed(request.ip_pool, request.address, str(error))


def _is_missing_in_harvester(write: Write) -> bool:
    """Return whether Harvester lacks the load balancer of a Service, or forwards other ports or to other nodes.

    Then an outage concerns the Service also if it keeps its address. The status and the marks that this controller
    writes to a load balancer change nothing for clients.
    """
    if isinstance(write, ChangeLoadBalancer):
        return bool(write.spec)
    return isinstance(write, CreateLoadBalancer)
