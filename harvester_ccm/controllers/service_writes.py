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
from harvester_ccm.plan.service.kube_vip import slice_to_touch
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    ServiceRequest,
    TouchEndpoints,
    request_for,
    strategic,
)

COMPONENT: Final = "service-controller"
"""Source of our Events on Services; the name that users of every cloud provider know."""
REPLACEMENT_WRITES: Final = 10
"""Writes that must be left before a load balancer is replaced; a replacement takes seven."""
BalancerStep = CreateLoadBalancer | ChangeLoadBalancer | DeleteLoadBalancer
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

        A replacement starts only if there is room for all of its writes: the Service would have no address in between.
        """
        service = situation.service
        if all(isinstance(step, EmitEvent) for step in plan.steps):
            return 0.0
        deletes = any(isinstance(step, DeleteLoadBalancer) for step in plan.steps)
        replaces = deletes and bool(service.addresses) and not situation.scope.leaving
        writes, meta = REPLACEMENT_WRITES if replaces else 1, service.metadata
        delay = self._limiter.delay(meta.uid, writes=writes, terminating=meta.deleting)
        if delay:
            self._recorder.emit(SERVICES, service, SERVICE_CONFLICT, component=COMPONENT)
        return delay

    async def send(self, step: ChangeService | BalancerStep, situation: Situation) -> bool:
        """Send the request of a step; return False if the object already is as the step wants it."""
        service = self._services.get(situation.service.metadata.key)
        load_balancer = None if isinstance(step, ChangeService) else self._balancers.get(step.name)
        request = request_for(step, situation, service, load_balancer)
        if request is None:
            return False
        if isinstance(step, ChangeService):
            await self._patch(request)
        else:
            await self._write(step, situation, request)
        self._limiter.record(situation.service.metadata.uid)
        return True

    async def say(self, change: ServiceChange, situation: Situation) -> None:
        """Update the condition of a Service on a best-effort basis; errors are ignored."""
        meta = situation.service.metadata
        if not self._limiter.delay(meta.uid, terminating=meta.deleting):
            with suppress(CCMError):
                await self.send(ChangeService(change), situation)

    async def touch(self, step: TouchEndpoints, situation: Situation) -> bool:
        """Patch an EndpointSlice of a Service, if one has endpoints; return False where that is not granted."""
        request = request_for(step, situation, self._services.get(situation.service.metadata.key), None)
        if request is None:
            return False
        namespace, selector = request.namespace, {"labelSelector": f"{SERVICE_LABEL}={request.name}"}
        try:
            found = await self._guest.list(ENDPOINT_SLICES, namespace=namespace, params=selector)
            name = slice_to_touch(found.items)
            if name:
                await self._guest.merge_patch(ENDPOINT_SLICES, name, request.body, namespace=namespace)
        except (AdmissionDenied, Forbidden, Invalid):
            return False
        except NotFound as error:
            raise Conflict(error.answer) from error
        self._limiter.record(situation.service.metadata.uid)
        log.info("endpoints touched for kube-vip", service=f"{namespace}/{request.name}", slice=name or None)
        return True

    async def _patch(self, request: ServiceRequest) -> None:
        try:
            written = await self._guest.merge_patch(
                SERVICES,
                request.name,
                strategic(request.body),
                namespace=request.namespace,
                subresource="status",
                content_type=STRATEGIC_PATCH,
            )
        except NotFound as error:
            # That it is gone is for the watch to say.
            raise Conflict(error.answer) from error
        self._services.observe(written)

    async def _write(self, step: BalancerStep, situation: Situation, request: ServiceRequest) -> None:
        key, name = situation.service.metadata.key, request.name
        match step:
            case CreateLoadBalancer():
                await self._balancers.create(name, request.body)
                log.info("load balancer created", service=key, lb=name)
            case ChangeLoadBalancer():
                written = await self._balancers.replace(name, request.body)
                log.info("load balancer updated", service=key, lb=name, address=written.address)
            case DeleteLoadBalancer(uid=uid, version=version):
                deleted = await self._balancers.delete(name, uid, version)
                log.info("load balancer deleted" if deleted else "load balancer was gone already", service=key, lb=name)
