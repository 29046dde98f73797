"""The Service side: read from caches, ask ``plan_service``, take the steps it returned.

Woken by every change of a Service, of a Service that shares its address, of a load balancer that carries its labels,
and of the nodes behind a VM load balancer. Services that share an address are looked at one after the other, which is a
matter of the queue; nothing here waits. Answers to writes go into the caches at once, so that the next plan is made on
what is, not on what was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from harvester_ccm.controllers.lb_writes import BalancerWrites
from harvester_ccm.controllers.recollection import Memory, Recollection
from harvester_ccm.controllers.runner import Runner
from harvester_ccm.errors import CCMError, Conflict, Forbidden, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.events import EventRecorder, ObjectReference
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES, ConfigMap, Node, Service
from harvester_ccm.model.harvester import Capabilities, LoadBalancer, VirtualMachine, capabilities_of
from harvester_ccm.model.outcome import Done, EventMessage, Outcome
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, SERVICE_FINALIZER
from harvester_ccm.plan.service.decision import concerns_us, plan_service
from harvester_ccm.plan.service.kube_vip import same_but_for_notes
from harvester_ccm.plan.service.load_balancer import backend_addresses, backend_names
from harvester_ccm.plan.service.ownership import claim, given_addresses, name_for, service_key, service_uuid
from harvester_ccm.plan.service.patch import ServiceChange, service_patch
from harvester_ccm.plan.service.pending import failure_note, is_permanent
from harvester_ccm.plan.service.request import network_devices, primary_reference
from harvester_ccm.plan.service.selection import labelled_primary
from harvester_ccm.plan.service.situation import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    Situation,
    Step,
)

COMPONENT: Final = "service-controller"
"""Source of our Events on Services; the name that users of every cloud provider know."""
TELL_AFTER_FAILURES: Final = 2
"""Failures in a row after which a fault that may pass by itself is told to the user."""
SHARERS: Final = "sharers"
"""Index of Services by the primary they name, and by the one whose address they were last served with."""
OF_SERVICE: Final = "service"
"""Index of load balancers by the key of the Service that their labels name, and by the UID of an earlier provider."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ServiceCaches:
    """What the Service side reads."""

    services: Informer[Service]
    """With the index SHARERS."""
    load_balancers: Informer[LoadBalancer]
    """With the index OF_SERVICE."""
    nodes: Informer[Node]
    machines: Informer[VirtualMachine]
    config_maps: Informer[ConfigMap]
    """Holds the network mapping only."""


def sharer_index(service: Service) -> Iterable[str]:
    """Return the keys of the primaries that the Service names and was last served with, for the index SHARERS."""
    return {key for key in (primary_reference(service), labelled_primary(service)) if key is not None}


def service_index(load_balancer: LoadBalancer) -> Iterable[str]:
    """Return by what the Service of a load balancer is told, for the index OF_SERVICE."""
    return {service_key(load_balancer), service_uuid(load_balancer)} - {""}


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
        self._guest = guest
        self._writes = BalancerWrites(harvester, caches.load_balancers, cluster.namespace)
        self._caches = caches
        self._services = caches.services
        self._load_balancers = caches.load_balancers
        self._recorder = recorder
        self._cluster = cluster
        self._memories = Recollection()
        self._backends: tuple[str, ...] = ()
        self._backend_addresses: tuple[str, ...] = ()
        self._backends_were_known = False
        self.runner = Runner("service", self.reconcile, workers=workers, serial=self._shared_address)
        caches.services.on_change(self._service_changed)
        caches.load_balancers.on_change(self._load_balancer_changed)
        caches.load_balancers.on_state(self._refresh_backends)
        caches.load_balancers.on_state(self._enqueue_all)
        caches.nodes.on_change(self._machine_changed)
        caches.machines.on_change(self._machine_changed)
        caches.machines.on_state(self._refresh_backends)
        caches.config_maps.on_change(self._mapping_changed)
        caches.config_maps.on_state(self._enqueue_all)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._services.wait_synced()
        await self._caches.nodes.wait_synced()
        services = self._services.all()
        self._memories.start(services)
        log.info("service controller started", services=len(services))
        self._refresh_backends()
        self._enqueue_all()
        await self.runner.run()

    async def reconcile(self, key: str) -> Outcome:
        """Bring one Service nearer to what it should be."""
        service = self._services.get(key)
        if service is None:
            self._memories.forget(key)
            return Done()
        if not self._concerns_us(service):
            return Done()
        situation = self.situation(service)
        memory = self._memories.remember(situation)
        plan = plan_service(memory.complete(situation))
        emitted: set[EventMessage] = set()
        await self._take(key, plan.steps, memory, emitted)
        memory.emitted &= emitted
        return plan.outcome

    def _shared_address(self, key: str) -> str:
        """Return the primary whose address the Service wants: what one takes of it, the next one has to see."""
        service = self._services.get(key)
        return (primary_reference(service) if service is not None else None) or key

    def _concerns_us(self, service: Service) -> bool:
        found = claim(self._candidates(service), service, self._cluster)
        return concerns_us(service, found, self._cluster)

    def situation(self, service: Service) -> Situation:
        """Return what is known about a Service now."""
        own_key, primary = service.metadata.key, primary_reference(service)
        sharers = self._services.by_index(SHARERS, primary or own_key)
        dependants = self._services.by_index(SHARERS, own_key)
        mapping = self._caches.config_maps.get(f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}")
        named = self._services.get(primary) if primary else None
        return Situation(
            service=service,
            cluster=self._cluster,
            load_balancers=self._candidates(service),
            primary=named,
            primary_given=self._given(named) if named is not None else None,
            sharers=tuple(
                one for one in sharers if one.metadata.key != own_key and primary_reference(one) == (primary or own_key)
            ),
            dependants=tuple(one for one in dependants if one.metadata.key != own_key),
            backends=self._backends,
            backends_known=self._backends_known,
            backend_addresses=self._backend_addresses,
            capabilities=self._capabilities,
            network_devices=network_devices(mapping),
            mapping_known=self._caches.config_maps.synced or self._caches.config_maps.problem is not None,
            harvester_known=self._load_balancers.synced,
            harvester_problem=self._load_balancers.problem,
        )

    def _given(self, service: Service) -> frozenset[str] | None:
        """Return the addresses that Harvester has given for a Service, or None while that is not known."""
        return given_addresses(self._candidates(service)) if self._load_balancers.synced else None

    def _candidates(self, service: Service) -> tuple[LoadBalancer, ...]:
        labelled = self._load_balancers.by_index(OF_SERVICE, service.metadata.key)
        labelled += tuple(
            one
            for one in self._load_balancers.by_index(OF_SERVICE, service.metadata.uid)
            if service_key(one) != service.metadata.key
        )
        named = self._load_balancers.get(f"{self._cluster.namespace}/{name_for(service, self._cluster)}")
        if named is None or any(one.metadata.uid == named.metadata.uid for one in labelled):
            return labelled
        return (*labelled, named)

    async def _take(self, key: str, steps: tuple[Step, ...], memory: Memory, emitted: set[EventMessage]) -> None:
        for step in steps:
            match step:
                case EmitEvent(event=event):
                    emitted.add(event)
                    self._emit(key, event, memory)
                case ChangeService(change=change):
                    await self._change_service(key, change)
                case _:
                    await self._write_load_balancer(key, step, memory)

    async def _change_service(self, key: str, change: ServiceChange) -> None:
        service = self._services.get(key)
        patch = service_patch(service, change) if service is not None else {}
        if service is None or not patch:
            return
        meta = service.metadata
        try:
            written = await self._guest.merge_patch(
                SERVICES, meta.name, patch, namespace=meta.namespace, subresource="status"
            )
        except NotFound:
            self._services.forget(service)
            return
        if written.metadata.deleting and not written.metadata.finalizers:
            self._services.forget(written)
        else:
            self._services.observe(written)

    async def _write_load_balancer(
        self, key: str, step: CreateLoadBalancer | ChangeLoadBalancer | DeleteLoadBalancer, memory: Memory
    ) -> None:
        try:
            match step:
                case CreateLoadBalancer():
                    if self._is_held(key, memory.uid):
                        await self._create(key, step)
                case ChangeLoadBalancer():
                    await self._change(key, step)
                case DeleteLoadBalancer():
                    await self._delete(key, step)
        except Conflict:
            raise
        except CCMError as error:
            if is_permanent(error) or self.runner.failures(key) + 1 >= TELL_AFTER_FAILURES:
                self._emit(key, failure_note(error), memory)
            raise

    def _is_held(self, key: str, uid: str) -> bool:
        """Return whether the Service still exists and cannot go without us; what is made for another one would leak.

        The change that let it go has it looked at again.
        """
        service = self._services.get(key)
        return service is not None and service.metadata.uid == uid and service.metadata.has_finalizer(SERVICE_FINALIZER)

    async def _create(self, key: str, step: CreateLoadBalancer) -> None:
        await self._writes.create(step.name, step.body)
        log.info("load balancer created", service=key, lb=step.name)

    async def _change(self, key: str, step: ChangeLoadBalancer) -> None:
        written = await self._writes.change(step.name, step.change)
        if written is not None:
            log.info("load balancer updated", service=key, lb=step.name, address=written.address)

    async def _delete(self, key: str, step: DeleteLoadBalancer) -> None:
        if await self._writes.delete(step.name, step.uid):
            log.info("load balancer deleted", service=key, lb=step.name)
        else:
            log.info("load balancer was gone already", service=key, lb=step.name)

    def _emit(self, key: str, event: EventMessage, memory: Memory) -> None:
        if event in memory.emitted:
            return
        memory.emitted.add(event)
        service = self._services.get(key)
        if service is None:
            return
        reference = ObjectReference.of(SERVICES, service)
        self._recorder.record(reference, event.type, event.reason, event.message, component=COMPONENT)
        level = log.warning if event.type == "Warning" else log.debug
        level("told the user", service=key, reason=str(event.reason), message=event.message)

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is not None and new is not None and same_but_for_notes(old, new):
            return
        for item in (old, new):
            if item is None:
                continue
            if self._concerns_us(item) or new is None:
                self.runner.enqueue(item.metadata.key)
            self._enqueue_relatives(item)

    def _enqueue_relatives(self, service: Service) -> None:
        """Wake the primaries that the Service names or has named, and the Services that share with any of them."""
        primaries = set(sharer_index(service))
        relatives = {key for key in primaries if self._services.get(key) is not None}
        for primary in (*primaries, service.metadata.key):
            relatives.update(one.metadata.key for one in self._services.by_index(SHARERS, primary))
        for key in relatives - {service.metadata.key}:
            self.runner.enqueue(key)

    def _load_balancer_changed(self, old: LoadBalancer | None, new: LoadBalancer | None) -> None:
        for item in (old, new):
            if item is None:
                continue
            self._memories.note(item)
            if self._services.get(service_key(item)) is not None:
                self.runner.enqueue(service_key(item))
        if new is not None and given_addresses((new,)) != given_addresses(() if old is None else (old,)):
            for secondary in self._services.by_index(SHARERS, service_key(new)):
                self.runner.enqueue(secondary.metadata.key)

    def _current_backends(self) -> tuple[str, ...]:
        return backend_names(self._caches.nodes.all(), self._caches.machines.all())

    def _machine_changed(self, _old: object, _new: object) -> None:
        self._refresh_backends()

    @property
    def _backends_known(self) -> bool:
        """Whether nodes can be told by their VMs; where VMs may not be listed, names of nodes have to do."""
        machines = self._caches.machines
        return machines.synced or isinstance(machines.problem, Forbidden)

    @property
    def _capabilities(self) -> Capabilities:
        return capabilities_of(self._load_balancers.resource.api_version)

    def _refresh_addresses(self) -> None:
        """Follow the addresses of the nodes, where they are what load balancers send traffic to."""
        if not self._capabilities.selects_backends_by_label and self._caches.nodes.synced:
            before, self._backend_addresses = self._backend_addresses, backend_addresses(self._caches.nodes.all())
            if before != self._backend_addresses:
                self._enqueue_hosted()

    def _refresh_backends(self) -> None:
        self._refresh_addresses()
        if not self._caches.nodes.synced or not self._backends_known:
            return
        first, before = not self._backends_were_known, self._backends
        self._backends, self._backends_were_known = self._current_backends(), True
        if first:
            self._enqueue_all()
        elif self._backends != before:
            self._enqueue_hosted()

    def _enqueue_hosted(self) -> None:
        """Wake the Services that Harvester balances."""
        for load_balancer in self._load_balancers.all():
            if load_balancer.spec.workload_type == "vm":
                self._load_balancer_changed(None, load_balancer)

    def _mapping_changed(self, _old: object, _new: object) -> None:
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for service in self._services.all():
            if self._concerns_us(service):
                self.runner.enqueue(service.metadata.key)
