"""The plan for a Service: the desired state of the Service and of its load balancer, and the next write towards it.

The other functions of this package return a ``Desired``. ``next_write`` compares it with the Service: the Service is
patched first, then the load balancer is written, then a condition that has to change alone. The controller plans again
after each write, so a plan has at most one.

Annotations, labels, finalizers and status of a Service go through its ``status`` subresource in one patch, which the
API server permits and every installed RBAC rule grants.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.model.core import Ingress, Service, ServiceCondition
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, REQUESTED_ADDRESS, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.ownership import allocated_addresses
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.redaction import sanitize

Document = dict[str, object]

REPLACEMENT_WRITES: Final = 10
"""Writes that must be left before a load balancer is replaced: a replacement takes five, and users repeat it."""
WITHDRAWAL_WRITES: Final = 3
"""Writes that must be left before an address is withdrawn: that one, the next announcement, and the touch after it."""

_ANNOUNCING: Final = frozenset({WaitReason.ENDPOINTS, WaitReason.DHCP})
"""Reasons to wait of a Service with an allocated address that kube-vip does not announce yet."""
_CLUSTER_WIDE: Final = frozenset({Reason.HARVESTER_UNAVAILABLE, Reason.HARVESTER_MISMATCH})
"""Causes that hold for all Services at once; a Service that has its address is not affected."""


class ServiceChange(Struct, frozen=True):
    """Desired fields of the Service. None as a value of a map removes the key."""

    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    finalizer: bool | None = None
    """True: the Service has this controller's finalizer; False: it does not; None: unchanged."""
    ingress: tuple[Ingress, ...] | None = None
    """The whole ``status.loadBalancer.ingress``; None: unchanged."""
    condition: ServiceCondition | None = None
    """The condition of this controller; ``REMOVED``: the Service has none; None: unchanged."""


REMOVED: Final = ServiceCondition(type=LOAD_BALANCER_READY)


class ChangeService(Struct, frozen=True):
    """Patch the Service in the guest cluster."""

    change: ServiceChange
    touch: bool = False
    """Whether an EndpointSlice of the Service has to be touched afterwards, so that kube-vip announces the address."""


class CreateLoadBalancer(Struct, frozen=True):
    """Create the load balancer in Harvester, as soon as the creation gate admits it."""

    name: str
    body: Document


class ChangeLoadBalancer(Struct, frozen=True):
    """Replace the load balancer in Harvester by one with these changes; None as a value of a map removes the key."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    status: Mapping[str, object] = field(default_factory=dict)


class DeleteLoadBalancer(Struct, frozen=True):
    """Delete the load balancer in Harvester if it has this UID and version; not found counts as deleted."""

    lb: LoadBalancer


class TouchEndpoints(Struct, frozen=True):
    """Patch an EndpointSlice of the Service, after which kube-vip reads the Service again."""


LoadBalancerWrite = CreateLoadBalancer | ChangeLoadBalancer | DeleteLoadBalancer
Write = ChangeService | LoadBalancerWrite | TouchEndpoints


class Desired(Struct, frozen=True):
    """The desired state of one Service and its load balancer."""

    outcome: Outcome = field(default_factory=Done)
    """The outcome of the reconcile when the objects have this state."""
    cause: EventMessage | None = None
    """The Warning that says why the Service is not ready; its text is that of the condition."""
    events: tuple[EventMessage | None, ...] = ()
    """Further Events; None is no Event."""
    service: ServiceChange = field(default_factory=ServiceChange)
    then: LoadBalancerWrite | TouchEndpoints | None = None
    """The write that follows when the Service has its desired state."""
    check: Document | None = None
    """A load balancer that Harvester must accept in a dry run before anything is written."""
    touch: bool = False
    """As in ``ChangeService``."""

    def plus(self, *events: EventMessage | None) -> "Desired":
        """Return the same state with these Events in front."""
        return replace(self, events=(*events, *self.events))


def wait_for(reason: WaitReason, snapshot: ServiceSnapshot, patience: float, cause: EventMessage | None) -> Desired:
    """Return the state of a Service that waits; the Warning ``cause`` is due after ``patience`` seconds of waiting."""
    left = patience - snapshot.waited
    return Desired(Wait(reason, left)) if left > 0 else Desired(Wait(reason), cause)


class ServicePlan(Struct, frozen=True):
    """The next write for a Service. The Service is planned again after it."""

    outcome: Outcome = field(default_factory=Done)
    condition: ServiceCondition | None = None
    """The condition of the Service when the plan is carried out; None: it has none."""
    events: tuple[EventMessage, ...] = ()
    """A Normal Event is emitted with the write, a Warning in any case."""
    write: Write | None = None
    then: Write | None = None
    """The write that probably follows, for people."""
    check: Document | None = None
    """As in ``Desired``."""
    writes_needed: int = 1
    """Writes that the rate limiter must have left for the Service."""


def next_write(desired: Desired, snapshot: ServiceSnapshot) -> ServicePlan:
    """Return the plan for the desired state."""
    service, condition, check, needed = snapshot.service, condition_of(desired, snapshot), desired.check, 1
    write: Write | None = desired.then
    annotations = {**kept_request(snapshot), **desired.service.annotations}
    stated = replace(desired.service, annotations=annotations, condition=condition or REMOVED)
    # With a load balancer of this controller, kube-vip's annotation does not count as a request any more.
    keeps_request = isinstance(write, CreateLoadBalancer) and bool(kept_request(snapshot))
    if keeps_request or service_patch(service, desired.service):
        withdrawn = kube_vip.WITHDRAWN.items() <= desired.service.annotations.items()
        withdraws = withdrawn and bool(Announcement.of(service).read_address)
        write = ChangeService(stated, touch=desired.touch or withdraws)
        if not snapshot.scope.leaving:
            needed = WITHDRAWAL_WRITES if withdraws else needed
            needed = REPLACEMENT_WRITES if isinstance(desired.then, DeleteLoadBalancer) else needed
    elif write is None:
        check = None
        # Any change of a Service can make kube-vip announce its address again, so a Service that the Go provider served
        # gets its first condition with the next patch that it needs.
        due = condition is None or condition.status == "False" or snapshot.request.had_condition
        alone = ServiceChange(condition=stated.condition)
        write = ChangeService(stated) if due and service_patch(service, alone) else None
    events = tuple(one for one in dict.fromkeys((*desired.events, desired.cause)) if one is not None)
    then = desired.then if write is not desired.then else None
    return ServicePlan(desired.outcome, condition, events, write, then, check, needed)


def kept_request(snapshot: ServiceSnapshot) -> dict[str, str]:
    """Return the annotation that keeps an address which is requested only in kube-vip's annotation.

    With the first patch, which brings the condition, kube-vip's annotation becomes this controller's.
    """
    found, address = Announcement.of(snapshot.service), snapshot.request.address
    has_address = snapshot.primary_allocated or allocated_addresses(snapshot.match.own)
    if snapshot.scope.leaving or has_address or address in {"", found.specified, found.requested}:
        return {}
    return {REQUESTED_ADDRESS: address}


def service_patch(service: Service, change: ServiceChange) -> dict[str, object]:
    """Return the strategic merge patch that makes the change; empty if nothing differs.

    For maps it means the same as a JSON merge patch. Lists that belong to several controllers, conditions and
    finalizers, are merged: the patch names only the entry of this controller.
    A change of finalizers carries the resource version, because a merge patch replaces the whole list and another
    controller may have changed it since. So does a patch after which kube-vip ignores the Service: kube-vip would not
    withdraw an address that another client has written since.
    """
    metadata: dict[str, object] = {}
    annotations = _differing(service.metadata.annotations, change.annotations)
    if kube_vip.IGNORED.items() <= annotations.items():
        metadata["resourceVersion"] = service.metadata.resource_version
    labels = _differing(service.metadata.labels, change.labels)
    metadata |= {key: found for key, found in (("annotations", annotations), ("labels", labels)) if found}
    finalizers = service.metadata.finalizers or ()
    if change.finalizer is not None and change.finalizer != (SERVICE_FINALIZER in finalizers):
        others = [name for name in finalizers if name != SERVICE_FINALIZER]
        metadata["finalizers"] = [*others, SERVICE_FINALIZER] if change.finalizer else others
        metadata["resourceVersion"] = service.metadata.resource_version
    status: dict[str, object] = {}
    if change.ingress is not None:
        current, wanted = map(_ingress_documents, (service.status.load_balancer.ingress, change.ingress))
        status |= {"loadBalancer": {"ingress": wanted or None}} if wanted != current else {}
    condition = _condition_patch(service.ready_condition, change.condition)
    if condition is not None:
        status["conditions"] = [condition]
    return {part: content for part, content in (("metadata", metadata), ("status", status)) if content}


def strategic(service: Service, patch: Mapping[str, object]) -> dict[str, object]:
    """Return the patch as it is sent: only for the Service with this UID, and without the finalizers of others.

    The Service of this name may be another one by now, or that of another cluster.
    """
    metadata = {"uid": service.metadata.uid, **cast("Document", patch.get("metadata") or {})}
    if SERVICE_FINALIZER not in cast("list[str]", metadata.get("finalizers", [SERVICE_FINALIZER])):
        # A strategic merge patch only adds the entries of the list.
        metadata["$deleteFromPrimitiveList/finalizers"] = [SERVICE_FINALIZER]
    return {**patch, "metadata": metadata}


def _condition_patch(current: ServiceCondition | None, wanted: ServiceCondition | None) -> dict[str, object] | None:
    """Return the entry of the list of conditions that makes the change; None if nothing differs."""
    if wanted is None or wanted == REMOVED:
        return {"$patch": "delete", "type": REMOVED.type} if wanted is not None and current is not None else None
    if current is not None and current.status == wanted.status:
        wanted = replace(wanted, last_transition_time=current.last_transition_time)
    if current == wanted:
        return None
    document: dict[str, object] = msgspec.to_builtins(wanted)
    return {key: value for key, value in document.items() if value != 0}


def _differing(current: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if (current or {}).get(key) != value}


def _ingress_documents(ingress: Iterable[Ingress]) -> list[dict[str, object]]:
    """Return the entries of a status; an API server older than 1.29 does not store ``ipMode``."""
    return [
        {
            "ip": one.ip,
            "ipMode": one.ip_mode or "VIP",
            **({"hostname": one.hostname} if one.hostname else {}),
            **({"ports": [{"port": p.port, "protocol": p.protocol} for p in one.ports]} if one.ports else {}),
        }
        for one in ingress
    ]


def condition_of(desired: Desired, snapshot: ServiceSnapshot) -> ServiceCondition | None:
    """Return the condition that the Service has in its desired state; None if it has none."""
    service, outcome, present = snapshot.service, desired.outcome, snapshot.service.ready_condition
    if not snapshot.scope.ours or desired.service.finalizer is False:
        return None
    reason = "" if isinstance(outcome, Done) or outcome.reason == WaitReason.BACKENDS else outcome.reason
    if desired.cause is not None:
        return condition_for(desired.cause, snapshot, reason)
    ingress = desired.service.ingress
    addresses = service.addresses if ingress is None else tuple(one.ip for one in ingress if one.ip)
    if not reason:
        lb, was_unhealthy = snapshot.match.lb, present is not None and present.reason == Reason.BACKENDS_UNHEALTHY
        is_ready = lb is not None and lb.ready is not None and lb.ready.status == "True"
        if not addresses or (was_unhealthy and not is_ready):
            # While Harvester reports another problem, the last known state of the backends stays.
            return present
        return _condition(snapshot, "True", Reason.ENSURED, f"The load balancer has address {', '.join(addresses)}")
    # kube-vip may announce the requested address of a new Service. Without the condition, a restarted process would
    # take that for the address of a Service that another provider served.
    announced = Announcement.of(service).read_address and not service.metadata.has_finalizer(SERVICE_FINALIZER)
    was_ready = present is not None and present.status == "True"
    if isinstance(outcome, Wait) and (reason in _ANNOUNCING or announced or (was_ready and not addresses)):
        return _condition(snapshot, "False", reason, f"The Service waits for {WaitReason(reason).meaning}")
    return present


def condition_for(cause: EventMessage, snapshot: ServiceSnapshot, reason: str = "") -> ServiceCondition | None:
    """Return the condition of a Service that is not ready for this cause, with its ``reason`` to wait if it has one."""
    if cause.reason in _CLUSTER_WIDE and snapshot.service.addresses and not snapshot.scope.leaving:
        return snapshot.service.ready_condition
    return _condition(snapshot, "False", reason or cause.reason, cause.message)


def _condition(snapshot: ServiceSnapshot, status: str, reason: str, message: str) -> ServiceCondition:
    """Return the condition; a reason to wait becomes one in the form of the API conventions."""
    return ServiceCondition(
        type=LOAD_BALANCER_READY,
        status=status,
        reason=str(reason if reason[:1].isupper() else reason.title().replace("_", "")),
        message=sanitize(message),
        observed_generation=snapshot.service.metadata.generation,
        last_transition_time=snapshot.wall_time,
    )
