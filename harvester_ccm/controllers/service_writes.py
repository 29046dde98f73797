"""Sends the writes of a Service plan to the guest cluster and to Harvester."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from harvester_ccm.kube import errors
from harvester_ccm.kube.client import STRATEGIC_PATCH, ApiClient
from harvester_ccm.kube.documents import Page
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.write_limit import WRITE_LIMIT, WriteRateLimiter
from harvester_ccm.kube.written_fields import fields_of_patch
from harvester_ccm.model.core import (
    ENDPOINT_SLICES,
    SERVICES,
    EndpointSlice,
    Service,
    ServiceCondition,
    endpoint_slice_selector,
)
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.model.harvester import LOAD_BALANCERS, WHOLE_LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import ANNOUNCED_AS, LOAD_BALANCER_READY, RESYNC_TRIGGER, Reason
from harvester_ccm.plan.service.announcing.endpoints import Reading, reading_of, slice_to_touch
from harvester_ccm.plan.service.desired import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    Document,
    PatchService,
    SeedPool,
    TouchEndpoints,
    Write,
)
from harvester_ccm.plan.service.load_balancer.specification import changed_document
from harvester_ccm.plan.service.patch import sent_patch, with_condition
from harvester_ccm.plan.service.scope import was_secondary
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

COMPONENT: Final = "service-controller"
"""Source of our Events on Services; the name that users of every cloud provider know."""
_CONDITION: Final = f"condition {LOAD_BALANCER_READY}"
_TRIGGER: Final = f"annotation {RESYNC_TRIGGER} of an EndpointSlice"
_RECORD: Final = f"annotation {ANNOUNCED_AS}"
_CONSEQUENCES: Final = frozenset({_CONDITION, _TRIGGER, _RECORD})
"""Fields that are written after a change of others."""

log = structlog.get_logger(__name__)


def service_conflict(fields: Sequence[str], service: Service) -> EventMessage:
    """Return the Warning about a Service for which a write of these fields is delayed."""
    meta = service.metadata
    causes = [field for field in fields if field not in _CONSEQUENCES]
    cause = (
        f"Changes of this Service and its load balancer are delayed: {WRITE_LIMIT}. Another controller probably "
        f"overwrites or deletes {abbreviate(causes or fields)}"
    )
    remedy = (
        "Find it in the managed fields, of the Service or of the load balancer in Harvester, and stop it. Typical "
        "causes: a GitOps tool (let it ignore these fields), K3s ServiceLB (--disable=servicelb), MetalLB (let it "
        "serve a class of its own), an admission webhook, two clusters with one --cluster-name, or a type or policy "
        "that changes again and again"
    )
    command = f"kubectl get service -n {meta.namespace} {meta.name} -o yaml --show-managed-fields"
    return EventMessage("Warning", Reason.FIELD_CONFLICT, cause, remedy, command, subject="rate limit")


def written_fields(write: Write) -> list[str]:
    """Return the fields of a write, as messages name them."""
    match write:
        case PatchService(patch=patch):
            return [_CONDITION if field == "status.conditions" else field for field in fields_of_patch(patch)]
        case ChangeLoadBalancer(name=name):
            document = {"metadata": {"labels": write.labels, "annotations": write.annotations}}
            fields = fields_of_patch({**document, "spec": write.spec, "status": write.status})
            return [f"{field} of load balancer {name}" for field in fields]
        case CreateLoadBalancer(name=name):
            return [f"load balancer {name}"]
        case DeleteLoadBalancer(load_balancer=load_balancer):
            return [f"load balancer {load_balancer.metadata.name}"]
        case SeedPool(pool=pool, address=address):
            return [f"address {address} in the history of IP pool {pool}"]
        case TouchEndpoints():
            return [_TRIGGER]


class BalancerWrites:
    """Writes to the load balancers of one namespace, with the answers in the cache at once."""

    def __init__(self, harvester: ApiClient, cache: Informer[LoadBalancer], namespace: str) -> None:
        self._harvester = harvester
        self.cache = cache
        self._namespace = namespace

    def get(self, name: str) -> LoadBalancer | None:
        """Return the load balancer of a name as it is known."""
        return self.cache.get(f"{self._namespace}/{name}")

    async def check(self, body: Document) -> None:
        """Ask Harvester whether it would accept a load balancer. Raises AdmissionDenied, Invalid and others if not."""
        try:
            await self._harvester.check_creation(LOAD_BALANCERS, body, namespace=self._namespace)
        except errors.BadRequest as error:
            if "dry run" not in str(error):
                raise

    async def confirm_absence(self, name: str) -> None:
        """Check that no load balancer of this name exists that the cache lacks. Raises StaleCache if one does."""
        if self.get(name) is not None:
            return
        with suppress(errors.NotFound):
            await self._refresh(name)
            raise errors.StaleCache(name)

    async def create(self, name: str, body: Document) -> None:
        """Create a load balancer. Raises Conflict when it exists: the cache is behind, and what exists decides."""
        seen = self.cache.version
        try:
            created = await self._harvester.create(LOAD_BALANCERS, body, namespace=self._namespace)
        except errors.AlreadyExists as error:
            await self._refresh(name)
            raise errors.Conflict(error.answer) from error
        self.cache.observe_missing(created, seen)

    async def change(self, load_balancer: LoadBalancer, change: ChangeLoadBalancer) -> LoadBalancer:
        """Apply a change to the whole load balancer, and return what is kept of it.

        Raises Conflict when it is gone or not the cached one any more.
        """
        try:
            written = await self._replace(load_balancer, change)
        except errors.NotFound as error:
            self.cache.not_found(load_balancer, error)
            raise errors.Conflict(error.answer) from error
        except errors.Conflict:
            await self.cache.refresh(load_balancer)
            raise
        self.cache.observe(written)
        return written

    async def _replace(self, load_balancer: LoadBalancer, change: ChangeLoadBalancer) -> LoadBalancer:
        """Read the whole load balancer, and write it back with the change. Raises NotFound and Conflict.

        The cache has only what is read of it, and Harvester permits no patch.
        """
        meta = load_balancer.metadata
        live = await self._harvester.get(WHOLE_LOAD_BALANCERS, meta.name, namespace=self._namespace)
        if live.metadata.resource_version != meta.resource_version:
            raise errors.StaleCache(meta.key)
        document = changed_document(live, change)
        return await self._harvester.replace(LOAD_BALANCERS, meta.name, document, namespace=self._namespace)

    async def _refresh(self, name: str) -> None:
        known = self.get(name)
        seen = self.cache.version
        live = await self._harvester.get(LOAD_BALANCERS, name, namespace=self._namespace)
        if known is None:
            self.cache.observe_missing(live, seen)
        else:
            self.cache.observe_current(known, live)


class ServiceWrites:
    """Sends writes; their responses are in the caches when a method returns."""

    def __init__(
        self, guest: ApiClient, balancers: BalancerWrites, services: Informer[Service], limiter: WriteRateLimiter
    ) -> None:
        """``limiter`` has counted the writes of all plans."""
        self._guest = guest
        self._balancers = balancers
        self._services = services
        self._limiter = limiter

    async def send(self, write: Write, snapshot: ServiceSnapshot) -> None:
        """Send the request of a write. Raises KubeError."""
        service = snapshot.service
        key = service.metadata.key
        match write:
            case PatchService(patch=patch, releases=releases):
                if releases and not (snapshot.match.own_load_balancers or was_secondary(service)):
                    # The list may lack a load balancer whose creation got no response.
                    await self._balancers.confirm_absence(snapshot.match.expected_name)
                await self._services.patch(
                    service, sent_patch(service, patch), subresource="status", content_type=STRATEGIC_PATCH
                )
            case CreateLoadBalancer(name=name, body=body):
                await self._balancers.create(name, body)
                log.info("load balancer created", service=key, lb=name)
            case ChangeLoadBalancer(name=name) if load_balancer := self._balancers.get(name):
                written = await self._balancers.change(load_balancer, write)
                log.info("load balancer updated", service=key, lb=name, address=written.address)
            case DeleteLoadBalancer(load_balancer=load_balancer):
                await self._confirm(service)
                await self._balancers.cache.delete(load_balancer)
                log.info("load balancer deleted", service=key, lb=load_balancer.metadata.name)

    async def report(self, condition: ServiceCondition, snapshot: ServiceSnapshot) -> None:
        """Update the condition of a Service on a best-effort basis; errors are ignored."""
        meta = snapshot.service.metadata
        patch = with_condition({}, snapshot.service, condition)
        if not patch or self._limiter.delay(meta.uid, is_urgent=meta.deleting):
            return
        with suppress(errors.KubeError):
            await self.send(PatchService(patch), snapshot)
            self._limiter.record(meta.uid)

    async def touch_endpoints(self, snapshot: ServiceSnapshot) -> bool:
        """Patch an EndpointSlice of a Service that kube-vip counts, if it has one; return False if that is denied.

        The value is always new.
        """
        meta = snapshot.service.metadata
        record = snapshot.record
        node = snapshot.seen.node or ("" if record is None else record.node)
        try:
            page = await self._list_endpoint_slices(snapshot.service)
            touched = slice_to_touch(page.items, snapshot.service, node)
            if touched is not None:
                body = {"metadata": {"annotations": {RESYNC_TRIGGER: touched.metadata.resource_version}}}
                await self._guest.merge_patch(ENDPOINT_SLICES, touched.metadata.name, body, namespace=meta.namespace)
        except (errors.AdmissionDenied, errors.AnswerTooLarge, errors.Forbidden, errors.Invalid):
            return False
        except errors.NotFound as error:
            raise errors.Conflict(error.answer) from error
        log.info("endpoints touched for kube-vip", service=meta.key, slice=touched.metadata.name if touched else None)
        return True

    async def read_endpoints(self, service: Service) -> Reading:
        """Return what the EndpointSlices of a Service show. Raises KubeError if they cannot be reached."""
        try:
            page = await self._list_endpoint_slices(service)
        except (errors.AnswerTooLarge, errors.Forbidden) as error:
            log.info("endpoints not readable", service=service.metadata.key, error=str(error))
            return Reading.UNREADABLE
        return reading_of(page.items, service, are_complete=not page.unread)

    async def _list_endpoint_slices(self, service: Service) -> Page[EndpointSlice]:
        selector = {"labelSelector": endpoint_slice_selector(service)}
        return await self._guest.list(ENDPOINT_SLICES, namespace=service.metadata.namespace, params=selector)

    async def _confirm(self, service: Service) -> None:
        """Check that the cached Service is current, before its load balancer is deleted. Raises Conflict if not.

        Its type or its class may have been changed back since, or the annotation that withdraws the address. A guest
        cluster that was restored from a backup has another version of it.
        """
        meta = service.metadata
        try:
            live = await self._guest.get(SERVICES, meta.name, namespace=meta.namespace)
        except errors.NotFound as error:
            self._services.not_found(service, error)
            raise errors.Conflict(error.answer) from error
        if live.metadata.resource_version != meta.resource_version:
            self._services.observe_current(service, live)
            raise errors.StaleCache(meta.key)
        self.require_unchanged(service)

    def require_unchanged(self, service: Service) -> None:
        """Raise StaleCache if the watch has delivered a change of a Service since it was observed.

        To be called after a request that a deletion waits for: the response can take seconds.
        """
        meta = service.metadata
        cached = self._services.get(meta.key)
        if cached is None or cached.metadata.resource_version != meta.resource_version:
            raise errors.StaleCache(meta.key)
