"""What a plan asks for: steps in order, and the smallest requests that they come to.

Changes of a Service are said as intentions; only fields that differ are in the patch. Annotations, labels, finalizers
and status go through the ``status`` subresource in one request, which the API server permits and every installed RBAC
rule grants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from msgspec import Struct, field

from harvester_ccm.model.core import Ingress, Service, ServiceCondition
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.load_balancer import Document, LoadBalancerChange
from harvester_ccm.plan.service.situation import Situation

TOUCH_ENDPOINTS_AFTER: Final = 1.0
"""Seconds that kube-vip gets to see an address before the endpoints are touched; a touch before that is lost."""
TOUCH_RETRY: Final = 600.0
"""Seconds after which endpoints are touched that were not permitted to be."""


class ServiceChange(Struct, frozen=True):
    """What should be different. None in a map means: remove the key."""

    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    finalizer: bool | None = None
    """True: ours must be there; False: it must not; None: leave it."""
    ingress: tuple[Ingress, ...] | None = None
    """The whole ``status.loadBalancer.ingress``; None: leave it."""
    condition: ServiceCondition | None = None
    """What our condition should say; ``REMOVED``: it must not be there; None: leave it."""


REMOVED: Final = ServiceCondition(type=LOAD_BALANCER_READY)


class ChangeService(Struct, frozen=True):
    """Patch the Service in the guest."""

    change: ServiceChange
    touch: bool = False
    """Whether its endpoints are to be touched after that."""


class CheckCreation(Struct, frozen=True):
    """Ask Harvester, by a dry run, whether it would accept this load balancer; a refusal ends the plan."""

    body: Document


class CreateLoadBalancer(Struct, frozen=True):
    """Create the object in Harvester, when it is the turn of this Service."""

    name: str
    body: Document
    otherwise: ServicePlan
    """What replaces this step and the following ones until it is the turn of this Service."""


class ChangeLoadBalancer(Struct, frozen=True):
    """Write the changed object in Harvester."""

    name: str
    change: LoadBalancerChange


class DeleteLoadBalancer(Struct, frozen=True):
    """Delete that very object in Harvester, unless it has changed since; not found is success."""

    name: str
    uid: str
    version: str

    @classmethod
    def of(cls, load_balancer: LoadBalancer) -> DeleteLoadBalancer:
        """Return the step for a load balancer as it is."""
        meta = load_balancer.metadata
        return cls(meta.name, meta.uid, meta.resource_version)


class TouchEndpoints(Struct, frozen=True):
    """Patch an EndpointSlice of the Service in the guest; that has kube-vip look at the Service again."""


class EmitEvent(Struct, frozen=True):
    """Emit an Event on the Service."""

    event: EventMessage


LoadBalancerStep = CheckCreation | CreateLoadBalancer | ChangeLoadBalancer | DeleteLoadBalancer
WriteStep = ChangeService | LoadBalancerStep | TouchEndpoints
Step = WriteStep | EmitEvent


class ServicePlan(Struct, frozen=True):
    """Steps in order, and the answer once all of them worked."""

    steps: tuple[Step, ...] = ()
    outcome: Outcome = field(default_factory=Done)

    def after(self, *steps: Step) -> ServicePlan:
        """Return the plan with these steps before its own."""
        return ServicePlan((*steps, *self.steps), self.outcome)


def change_service(service: Service, change: ServiceChange) -> tuple[ChangeService, ...]:
    """Return the step for a change, or nothing if the Service is that way already."""
    return (ChangeService(change),) if service_patch(service, change) else ()


def change_load_balancer(load_balancer: LoadBalancer, change: LoadBalancerChange) -> tuple[ChangeLoadBalancer, ...]:
    """Return the step for a change, or nothing if it is empty."""
    return () if change.empty else (ChangeLoadBalancer(load_balancer.metadata.name, change),)


def hold(service: Service) -> tuple[ChangeService, ...]:
    """Return the step that keeps kube-vip from a Service while it waits for an address."""
    return change_service(service, ServiceChange(annotations=kube_vip.hold(service)))


def hand_to_harvester(service: Service) -> tuple[ChangeService, ...]:
    """Return the step after which kube-vip leaves the Service, which then has our finalizer, to Harvester."""
    return change_service(service, ServiceChange(annotations=kube_vip.hand_to_harvester(service), finalizer=True))


def announced_again(plan: ServicePlan, situation: Situation, address: str) -> ServicePlan:
    """Return a plan that announces an address, with the touch of the endpoints where kube-vip would stay silent."""
    service, touch_at = situation.service, situation.remembered.touch_at
    told = kube_vip.Announcement.of(service).told
    if kube_vip.stays_silent(service, address) or (touch_at is not None and told != address):
        if told not in {"", address}:
            # kube-vip does not announce an address that it met in the event that made it withdraw another one.
            warnings = (one for one in plan.steps if isinstance(one, EmitEvent) and one.event.type == "Warning")
            withdrawn = change_service(service, ServiceChange(annotations=kube_vip.withdraw(service)))
            return ServicePlan((*warnings, *withdrawn), Wait(WaitReason.ENDPOINTS))
        steps = (ChangeService(one.change, touch=True) if isinstance(one, ChangeService) else one for one in plan.steps)
        return ServicePlan(tuple(steps), Wait(WaitReason.ENDPOINTS, TOUCH_ENDPOINTS_AFTER))
    if touch_at is None:
        return plan
    if touch_at > situation.now:
        return ServicePlan(plan.steps, Wait(WaitReason.ENDPOINTS, touch_at - situation.now))
    return ServicePlan((*plan.steps, TouchEndpoints()), plan.outcome)


def emit(*events: EventMessage | None) -> tuple[EmitEvent, ...]:
    """Return a step for each Event that there is."""
    return tuple(EmitEvent(event) for event in events if event is not None)


def service_patch(service: Service, change: ServiceChange) -> dict[str, object]:
    """Return the strategic merge patch that makes the change; empty when nothing differs.

    In the older form of a merge patch it means the same, but for lists that belong to many, conditions and finalizers:
    of those it names ours.
    A change of finalizers carries the resource version, because a merge patch replaces the whole list and another
    controller may have changed it since. So does one by which kube-vip ignores the Service: it would not take down an
    address that somebody has written since.
    """
    metadata: dict[str, object] = {}
    annotations = _differing(service.metadata.annotations, change.annotations)
    if kube_vip.has_ignored(annotations):
        metadata["resourceVersion"] = service.metadata.resource_version
    labels = _differing(service.metadata.labels, change.labels)
    if annotations:
        metadata["annotations"] = annotations
    if labels:
        metadata["labels"] = labels
    finalizers = service.metadata.finalizers or ()
    if change.finalizer is not None and change.finalizer != (SERVICE_FINALIZER in finalizers):
        others = [name for name in finalizers if name != SERVICE_FINALIZER]
        metadata["finalizers"] = [*others, SERVICE_FINALIZER] if change.finalizer else others
        metadata["resourceVersion"] = service.metadata.resource_version
    status: dict[str, object] = {}
    if change.ingress is not None and not same_ingress(service.status.load_balancer.ingress, change.ingress):
        status["loadBalancer"] = {"ingress": [_ingress_document(i) for i in change.ingress] or None}
    condition = _condition_patch(service.ready_condition, change.condition)
    if condition is not None:
        status["conditions"] = [condition]
    return {part: content for part, content in (("metadata", metadata), ("status", status)) if content}


def strategic(service: Service, patch: Mapping[str, object]) -> dict[str, object]:
    """Return the patch as it is sent: only for the Service with this UID, and without finalizers of others.

    A Service of this name may be another one by now, or another cluster's where a name leads elsewhere.
    """
    metadata = {"uid": service.metadata.uid, **cast("Document", patch.get("metadata") or {})}
    if SERVICE_FINALIZER not in cast("list[str]", metadata.get("finalizers", [SERVICE_FINALIZER])):
        # The list that a strategic merge patch has is only added.
        metadata["$deleteFromPrimitiveList/finalizers"] = [SERVICE_FINALIZER]
    return {**patch, "metadata": metadata}


def _condition_patch(current: ServiceCondition | None, wanted: ServiceCondition | None) -> dict[str, object] | None:
    """Return the entry of the list of conditions that changes ours; None when it is that way already."""
    if wanted is None or wanted == REMOVED:
        return {"$patch": "delete", "type": REMOVED.type} if wanted is not None and current is not None else None
    if current is not None and current.status == wanted.status:
        wanted = msgspec.structs.replace(wanted, last_transition_time=current.last_transition_time)
    if current == wanted:
        return None
    document: dict[str, object] = msgspec.to_builtins(wanted)
    return {key: value for key, value in document.items() if value != 0}


def same_ingress(current: tuple[Ingress, ...], wanted: tuple[Ingress, ...]) -> bool:
    """Return whether two statuses say the same; a server older than 1.29 does not store ``ipMode``."""
    return len(current) == len(wanted) and all(
        (a.ip, a.hostname, a.ports) == (b.ip, b.hostname, b.ports) and (a.ip_mode or "VIP") == (b.ip_mode or "VIP")
        for a, b in zip(current, wanted, strict=True)
    )


def _differing(current: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if (current or {}).get(key) != value}


def _ingress_document(ingress: Ingress) -> dict[str, object]:
    document: dict[str, object] = {"ip": ingress.ip, "ipMode": ingress.ip_mode}
    if ingress.ports:
        document["ports"] = [{"port": port.port, "protocol": port.protocol} for port in ingress.ports]
    return document
