"""What the steps of a Service come to, as it is sent: to the guest and to Harvester, each with its brakes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from harvester_ccm.controllers.fights import service_event
from harvester_ccm.controllers.lb_api import BalancerWrites
from harvester_ccm.errors import AdmissionDenied, CCMError, Conflict, Forbidden, Invalid, NotFound
from harvester_ccm.kube.brakes import Brakes, Hold, WriteGroup, soonest
from harvester_ccm.kube.client import STRATEGIC_PATCH, ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.managed_fields import ask_writers
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICE_LABEL, SERVICES, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Outcome, Wait, WaitReason
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import slice_to_touch
from harvester_ccm.plan.service.load_balancer import Document
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    ServiceChange,
    ServicePlan,
    ServiceRequest,
    TouchEndpoints,
    request_for,
    strategic,
)

COMPONENT: Final = "service-controller"
"""Source of our Events on Services; the name that users of every cloud provider know."""
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
        self.brakes = ObjectStates(Brakes)

    async def send(
        self, step: ChangeService | BalancerStep, situation: Situation, *, last: bool
    ) -> tuple[bool, tuple[Hold, ...]]:
        """Send what a step comes to; return whether anything was, and what its brakes hold back.

        ``last``: whether the Service is let go with it.
        """
        service = self._services.get(situation.service.metadata.key)
        load_balancer = None if isinstance(step, ChangeService) else self._balancers.get(step.name)
        request = request_for(step, situation, service, load_balancer)
        if request is None:
            return False, ()
        brakes = self.brakes.of(situation.service)
        target = service if isinstance(step, ChangeService) else load_balancer
        present, what = target.document() if target else {}, _named(request.name)
        last = last and isinstance(step, ChangeService)
        release = brakes.release(request.method, what, request.body, present, loop_time(), last=last)
        if not release.empty:
            sent = self._patch if isinstance(step, ChangeService) else partial(self._write, step, situation)
            answer = await sent(request, dict(release.body))
            brakes.sent(release, answer.document() if answer else {}, loop_time())
        return not release.empty, release.holds

    async def say(self, change: ServiceChange, situation: Situation) -> None:
        """Say something in the status of a Service; that it fails is no news."""
        service = self._services.get(situation.service.metadata.key)
        request = request_for(ChangeService(change), situation, service, None)
        if request is not None:
            with suppress(CCMError):
                await self._patch(request, request.body)

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
        log.info("endpoints touched for kube-vip", service=f"{namespace}/{request.name}", slice=name or None)
        return True

    def lets_go(self, plan: ServicePlan, service: Service) -> bool:
        """Return whether the Service is let go with a plan of which no deletion has to wait."""
        brakes, now = self.brakes.of(service), loop_time()
        going = [step.name for step in plan.steps if isinstance(step, DeleteLoadBalancer)]
        lets_go = any(isinstance(step, ChangeService) and step.change.finalizer is False for step in plan.steps)
        return lets_go and not any(brakes.release("DELETE", _named(name), {}, {}, now).holds for name in going)

    def keep_serving(self, plan: ServicePlan, situation: Situation) -> tuple[ServicePlan, Hold | None]:
        """Return the plan that lets serve what serves, and what holds it back, where another one may not be made yet.

        Withdrawn first, the address would be silent until its load balancer may be deleted.
        """
        held = self.brakes.of(situation.service).replacement_hold(loop_time())
        kept = plan_service(replace(situation, may_replace=False)) if held else plan
        return (plan, None) if kept == plan else (kept, held)

    async def wait_for(self, holds: Sequence[Hold], outcome: Outcome, situation: Situation) -> Wait:
        """Return what is waited for by a plan of which something is held back; say once who keeps undoing what."""
        service = situation.service
        brakes = self.brakes.of(service)
        for hold in (one for one in holds if not brakes.is_told(one)):
            event = service_event(hold, await self._writers(situation, hold))
            if not self._recorder.emit(SERVICES, service, event, component=COMPONENT):
                brakes.set_told(hold)
        due = outcome.at_most if isinstance(outcome, Wait) else None
        return Wait(WaitReason.BRAKED, soonest((due, *(hold.seconds for hold in holds))))

    async def _writers(self, situation: Situation, hold: Hold) -> tuple[str, ...]:
        """Return who writes what is undone, where that can be known: not of what is gone."""
        own = situation.match.lb
        if hold.group is WriteGroup.OBJECT and own is not None:
            return await self._balancers.writers(own, hold.path)
        if hold.group in (WriteGroup.STATUS, WriteGroup.METADATA):
            return await ask_writers(self._guest, SERVICES, situation.service.metadata, hold.path)
        return ()

    async def _patch(self, request: ServiceRequest, body: Document) -> Service:
        try:
            written = await self._guest.merge_patch(
                SERVICES,
                request.name,
                strategic(body),
                namespace=request.namespace,
                subresource="status",
                content_type=STRATEGIC_PATCH,
            )
        except NotFound as error:
            # That it is gone is for the watch to say.
            raise Conflict(error.answer) from error
        self._services.observe(written)
        return written

    async def _write(
        self, step: BalancerStep, situation: Situation, request: ServiceRequest, body: Document
    ) -> LoadBalancer | None:
        key, name = situation.service.metadata.key, request.name
        match step:
            case CreateLoadBalancer():
                await self._balancers.create(name, body)
                log.info("load balancer created", service=key, lb=name)
            case ChangeLoadBalancer():
                written = await self._balancers.replace(name, body)
                log.info("load balancer updated", service=key, lb=name, address=written.address)
                return written
            case DeleteLoadBalancer(uid=uid, version=version):
                deleted = await self._balancers.delete(name, uid, version)
                log.info("load balancer deleted" if deleted else "load balancer was gone already", service=key, lb=name)
        return None


def _named(load_balancer: str) -> str:
    """Return what a load balancer is called where the brakes know of it."""
    return f"load balancer {load_balancer}"
