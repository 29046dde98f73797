"""Sends the steps of a Service plan to the guest cluster and to Harvester, within the rate limit of the Service."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import structlog

from harvester_ccm.controllers.field_conflict import SERVICE_CONFLICT
from harvester_ccm.controllers.lb_api import BalancerWrites
from harvester_ccm.errors import AdmissionDenied, CCMError, Conflict, Forbidden, Invalid, NotFound
from harvester_ccm.kube.client import STRATEGIC_PATCH, ApiClient
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.rate_limiter import WriteRateLimiter
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES, Service
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, slice_to_touch, touch
from harvester_ccm.plan.service.load_balancer import Document, changed_document, described
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeLoadBalancer,
    ChangeService,
    CheckCreation,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    LoadBalancerStep,
    ServiceChange,
    ServicePlan,
    service_patch,
    strategic,
)

COMPONENT: Final = "service-controller"
"""Source of our Events on Services; the name that users of every cloud provider know."""
REPLACEMENT_WRITES: Final = 10
"""Writes that must be left before a load balancer is replaced; a replacement takes five, and people try it twice."""
WITHDRAWAL_WRITES: Final = 3
"""Writes that must be left before an address is withdrawn: that one, the next announcement, and the touch after it."""
log = structlog.get_logger(__name__)


class ServiceWrites:
    """Sends what steps come to; the answers are in the caches at once."""

    def __init__(
        self,
        guest: ApiClient,
        balancers: BalancerWrites,
        services: Informer[Service],
        recorder: EventRecorder,
    ) -> None:
        self._guest = guest
        self._balancers = balancers
        self._services = services
        self._recorder = recorder
        self._limiter = WriteRateLimiter()

    def delay(self, plan: ServicePlan, situation: Situation) -> float:
        """Return the seconds until the writes of a plan can be sent; emit the Event for the limit if it is reached.

        A replacement starts, and an address is withdrawn to be announced again, only if all of its writes are allowed.
        """
        service = situation.service
        steps = [step for step in plan.steps if not isinstance(step, EmitEvent | CheckCreation)]
        if not steps:
            return 0.0
        first, writes, meta = steps[0], 1, service.metadata
        if isinstance(first, ChangeService) and not situation.scope.leaving:
            if any(isinstance(step, DeleteLoadBalancer) for step in steps):
                writes = REPLACEMENT_WRITES
            elif WITHDRAWN.items() <= first.change.annotations.items():
                writes = WITHDRAWAL_WRITES
        delay = self._limiter.delay(meta.uid, writes=writes, terminating=meta.deleting)
        if delay:
            self._recorder.emit(SERVICES, service, SERVICE_CONFLICT, component=COMPONENT)
        return delay

    async def send(self, step: ChangeService | LoadBalancerStep, situation: Situation) -> bool:
        """Send the request of a step; return False if the object already is as the step wants it."""
        key, uid = situation.service.metadata.key, situation.service.metadata.uid
        service = self._services.get(key)
        match step:
            case ChangeService(change=change) if service is not None and (patch := service_patch(service, change)):
                await self._patch(service, patch)
            case CheckCreation(body=body):
                await self._balancers.check(described(body, situation))
                return False
            case CreateLoadBalancer(name=name, body=body):
                await self._balancers.create(name, described(body, situation))
                log.info("load balancer created", service=key, lb=name)
            case ChangeLoadBalancer(name=name, change=difference) if load_balancer := self._balancers.get(name):
                document = described(changed_document(load_balancer, difference), situation)
                written = await self._balancers.replace(name, document)
                log.info("load balancer updated", service=key, lb=name, address=written.address)
            case DeleteLoadBalancer(name=name, uid=lb_uid, version=version):
                await self._balancers.delete(name, lb_uid, version)
                log.info("load balancer deleted", service=key, lb=name)
            case _:
                return False
        self._limiter.record(uid)
        return True

    async def say(self, change: ServiceChange, situation: Situation) -> None:
        """Update the condition of a Service on a best-effort basis; errors are ignored."""
        meta = situation.service.metadata
        if not self._limiter.delay(meta.uid, terminating=meta.deleting):
            with suppress(CCMError):
                await self.send(ChangeService(change), situation)

    async def touch(self, situation: Situation) -> bool:
        """Patch an EndpointSlice of a Service, if one has endpoints; return False where that is not granted."""
        service = self._services.get(situation.service.metadata.key)
        if service is None:
            return False
        meta, body = service.metadata, {"metadata": {"annotations": touch(service)}}
        namespace, selector = meta.namespace, {"labelSelector": f"{SERVICE_LABEL}={meta.name}"}
        try:
            found = await self._guest.list(ENDPOINT_SLICES, namespace=namespace, params=selector)
            name = slice_to_touch(found.items)
            if name:
                await self._guest.merge_patch(ENDPOINT_SLICES, name, body, namespace=namespace)
        except (AdmissionDenied, Forbidden, Invalid):
            return False
        except NotFound as error:
            raise Conflict(error.answer) from error
        self._limiter.record(situation.service.metadata.uid)
        log.info("endpoints touched for kube-vip", service=meta.key, slice=name or None)
        return True

    async def _patch(self, service: Service, patch: Document) -> None:
        try:
            written = await self._guest.merge_patch(
                SERVICES,
                service.metadata.name,
                strategic(service, patch),
                namespace=service.metadata.namespace,
                subresource="status",
                content_type=STRATEGIC_PATCH,
            )
        except NotFound as error:
            # That it is gone is for the watch to say.
            raise Conflict(error.answer) from error
        self._services.observe(written)
