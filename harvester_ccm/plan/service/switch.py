"""Recreating a load balancer with the other workload type, because the user said so, with the same address if possible.

What has to be remembered while there is no load balancer is kept in an annotation of the Service, so that a restart in
the middle goes on where it was.
"""

from __future__ import annotations

import msgspec

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Wait, WaitReason
from harvester_ccm.names import MOVING, Reason
from harvester_ccm.plan.service.cleanup import plan_removal
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.load_balancer import Former, former_of
from harvester_ccm.plan.service.patch import ServiceChange
from harvester_ccm.plan.service.situation import ChangeService, EmitEvent, ServicePlan, Situation, Step, change_service

SWITCH_PAUSE = 5.0
"""Seconds between the end of the old load balancer and the new one: Harvester collects the old one's parts then."""


def plan_switch(situation: Situation, load_balancer: LoadBalancer, wanted: str) -> ServicePlan:
    """Return what to do for an existing load balancer whose workload type must become ``wanted``."""
    service = situation.service
    spec = load_balancer.spec
    note = msgspec.json.encode(former_of(load_balancer)).decode()
    steps: list[Step] = [*change_service(service, ServiceChange(annotations={MOVING: note}, finalizer=True))]
    removal, wait = plan_removal(situation, (load_balancer,), withdrawing=True)
    if wait is not None:
        return ServicePlan((*steps, *removal), wait)
    if _announced_by_secondaries(situation, load_balancer):
        # They withdraw as soon as they see that this Service has.
        withdrawal = (step for step in removal if isinstance(step, ChangeService))
        return ServicePlan((*steps, *withdrawal), Wait(WaitReason.SECONDARIES, 5.0))
    if spec.ipam == "dhcp":
        # Another machine asks for the next lease, so the address is another one.
        removal += change_service(service, ServiceChange(ingress=()))
    text = (
        f"The load balancer becomes one of workload type {wanted}: it is deleted now and created again within about "
        f"{SWITCH_PAUSE:.0f} s. Its address is kept where Harvester allows it"
    )
    steps.append(EmitEvent(EventMessage("Normal", Reason.SWITCHING, text)))
    kept = [step for step in removal if not (isinstance(step, EmitEvent) and step.event.reason is Reason.DELETING)]
    return ServicePlan((*steps, *kept), Wait(WaitReason.SWITCHING, SWITCH_PAUSE))


def _announced_by_secondaries(situation: Situation, load_balancer: LoadBalancer) -> bool:
    held = {*situation.service.addresses, load_balancer.allocated_ip, load_balancer.address}
    announced = (one for one in map(Announcement.of, situation.dependants) if one.shown and not one.ignored)
    return any(held.intersection(one.status) for one in announced)


def read_move(service: Service) -> Former | None:
    """Return what the load balancer was whose move is under way, or None."""
    text = service.metadata.annotation(MOVING)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Former)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
