"""Ready or not: what is said about a published address, by the receipt of kube-vip.

A receipt is a hint and no proof: in some modes kube-vip writes none, and other programs never do. So nothing is
withdrawn because of a missing one, and the condition becomes False only where one is expected (``sequence``).
"""

from typing import Final, Literal

from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.core import endpoint_slice_selector
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import LOAD_BALANCER_CLASS, Reason
from harvester_ccm.plan.service.announcing.endpoints import Reading, is_local
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.announcing.seen import IGNORE_ANNOTATION, RECEIPT_ANNOTATION
from harvester_ccm.plan.service.announcing.sequence import Goal, Next, Progress
from harvester_ccm.plan.service.desired import Desired, waits_for
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotReady, Ready

RECEIPT_SECONDS: Final = 60.0
"""Time that kube-vip gets for a receipt, from its publication or from its last progress with any Service: it works
through its queue one after the other."""
MAX_PROGRESS_SECONDS: Final = 3600.0
"""Time for which progress with other Services counts: a tenant can write receipts as well."""
FIRST_READING_SECONDS: Final = 10.0
"""Time after which the endpoints of a Service without a receipt are read first."""
_UNNOTED: Final = f"No node has noted that it announces the address (annotation {RECEIPT_ANNOTATION})"


def judged(desired: Desired, step: Next, snapshot: ServiceSnapshot) -> Desired:
    """Return a state with the verdict on the announcement of its address, if it has one."""
    verdict = desired.verdict
    if desired.wish.goal is not Goal.ANNOUNCE:
        return desired
    if step.progress is Progress.IGNORED:
        return _ignored(desired, step, snapshot)
    if not isinstance(verdict, Ready):
        return desired
    is_published = step.progress is Progress.SHOWN or (step.progress is Progress.WAITING and not step.holds_status)
    is_silence_expected = step.has_receipt or snapshot.cluster.announcer is Announcer.OTHER
    if is_published and not is_silence_expected:
        return _without_receipt(desired, verdict, step, snapshot)
    if step.progress is not Progress.SHOWN:
        return replace(desired, verdict=waits_for(Reason.ANNOUNCING))
    if snapshot.remembered.is_touch_refused and _is_touched(snapshot):
        return _explained(desired, verdict, touch_not_permitted(snapshot, "Normal"))
    return desired


def _is_touched(snapshot: ServiceSnapshot) -> bool:
    """Return whether the address is announced, and touches follow because another field has changed."""
    return snapshot.record is not None and snapshot.record.step is Step.ANNOUNCED


def _without_receipt(desired: Desired, verdict: Ready, step: Next, snapshot: ServiceSnapshot) -> Desired:
    """Return the state of a published address without a receipt: after a time, the endpoints decide."""
    is_waiting = step.progress is Progress.WAITING
    until_then = replace(desired, verdict=waits_for(Reason.ANNOUNCING)) if is_waiting else desired
    endpoints = snapshot.remembered.endpoints
    seconds_to_judgement = _seconds_to_judgement(snapshot)
    is_read_early = is_waiting and step.is_receipt_expected
    seconds_to_reading = FIRST_READING_SECONDS - snapshot.timers.since if is_read_early else seconds_to_judgement
    if seconds_to_reading > 0:
        return replace(until_then, look_again_after=seconds_to_reading)
    if not endpoints.is_current(snapshot.now):
        return replace(until_then, reads_endpoints=True)
    if endpoints.reading is Reading.MISSING:
        return _explained(desired, verdict, _no_endpoints(snapshot))
    if seconds_to_judgement > 0:
        return replace(until_then, look_again_after=seconds_to_judgement)
    if step.is_receipt_expected and endpoints.reading is Reading.EXIST:
        # A Service that the Go provider served gets no condition for it.
        changes_condition = snapshot.record is None or snapshot.record.step is not Step.ADOPTED
        verdict_of_missing = NotReady(Reason.NOT_ANNOUNCED, _not_announced(snapshot), changes_condition)
        return replace(desired, verdict=verdict_of_missing)
    return _explained(desired, verdict, _unknown(snapshot))


def _seconds_to_judgement(snapshot: ServiceSnapshot) -> float:
    published_at = snapshot.now - snapshot.timers.since
    progress_at = min(snapshot.last_announced_at, published_at + MAX_PROGRESS_SECONDS)
    return max(published_at, progress_at) + RECEIPT_SECONDS - snapshot.now


def _explained(desired: Desired, verdict: Ready, event: EventMessage) -> Desired:
    """Return the state with a Normal Event, which the condition repeats."""
    explained = Ready(verdict.addresses, f"{verdict.message}. {event.message}")
    return replace(desired, verdict=explained, events=(*desired.events, event))


def _ignored(desired: Desired, step: Next, snapshot: ServiceSnapshot) -> Desired:
    """A user has made kube-vip ignore the Service: after the announcement, kube-vip goes on until it restarts.

    Without one, it requests no lease from DHCP either. Where another program announces, nothing of this matters.
    """
    verdict = desired.verdict
    if snapshot.cluster.announcer is Announcer.OTHER:
        return desired
    if isinstance(verdict, NotReady) and (step.has_receipt or verdict.reason is not Reason.DHCP_LEASE_PENDING):
        return desired
    meta = snapshot.service.metadata
    place = f"Annotation {IGNORE_ANNOTATION}"
    command = f"kubectl --namespace {meta.namespace} annotate service {meta.name} {IGNORE_ANNOTATION}-"
    if isinstance(verdict, Ready) and step.has_receipt:
        cause = (
            "makes kube-vip ignore the Service. It goes on announcing the address until it restarts, since version 1.2 "
            "only while the Service has an endpoint"
        )
        remedy = "To keep the address announced, remove the annotation"
        event = EventMessage("Normal", Reason.ANNOUNCEMENT_UNKNOWN, cause, remedy, command, place=place)
        return _explained(desired, verdict, event)
    cause = "with value 'true' makes kube-vip ignore the Service, so no node announces the address"
    event = EventMessage("Warning", Reason.NOT_ANNOUNCED, cause, "Remove the annotation", command, place=place)
    ingress = () if desired.ingress and snapshot.record is None else desired.ingress
    # A Normal Event would say that the address is in use.
    warnings = tuple(other for other in desired.events if other is not None and other.type == "Warning")
    return replace(desired, verdict=NotReady(Reason.NOT_ANNOUNCED, event), ingress=ingress, events=warnings)


def _no_endpoints(snapshot: ServiceSnapshot) -> EventMessage:
    cause = "The Service has no endpoint, and since version 1.2 kube-vip announces an address only with one"
    if is_local(snapshot.service):
        cause = (
            "No endpoint of the Service takes traffic, and with externalTrafficPolicy Local, kube-vip announces an "
            "address only with one"
        )
    remedy = (
        "The address is announced as soon as the Service has one: a ready Pod that its selector matches, or without a "
        "selector an EndpointSlice that you create"
    )
    return EventMessage("Normal", Reason.NO_ENDPOINTS, cause, remedy)


def _unknown(snapshot: ServiceSnapshot) -> EventMessage:
    if snapshot.remembered.is_touch_refused:
        return touch_not_permitted(snapshot, "Normal")
    if snapshot.remembered.endpoints.reading is Reading.UNREADABLE:
        cause = f"{_UNNOTED}. Whether kube-vip should is not known, because this controller cannot read EndpointSlices"
        remedy = f"Grant list on endpointslices (chart: rbac.endpointSlices), or check {_checks(snapshot)}"
        return EventMessage("Normal", Reason.ANNOUNCEMENT_UNKNOWN, cause, remedy)
    cause = (
        f"{_UNNOTED}. That is right if another program than kube-vip announces addresses, and for kube-vip in BGP mode "
        "before version 1.0.3, in routing-table or WireGuard mode, and with disable_service_updates"
    )
    remedy = f"In these cases, set --announcer=other. In any other case, check {_checks(snapshot)}"
    return EventMessage("Normal", Reason.ANNOUNCEMENT_UNKNOWN, cause, remedy)


def _not_announced(snapshot: ServiceSnapshot) -> EventMessage:
    if snapshot.remembered.is_touch_refused:
        return touch_not_permitted(snapshot, "Warning")
    remedy = f"Check {_checks(snapshot)}. If another program announces addresses, set --announcer=other"
    return EventMessage("Warning", Reason.NOT_ANNOUNCED, _UNNOTED, remedy)


def _checks(snapshot: ServiceSnapshot) -> str:
    """Return what is worth a look, the most likely cause first. Nothing of it is asserted."""
    service = snapshot.service
    checks = ["that the kube-vip Pods run"]
    if service.spec.load_balancer_class is None:
        checks.append("that its settings svc_namespace and lb_class_only do not exclude the Service")
    else:
        # Of a Service with a class, kube-vip serves only that of its settings, by default none.
        settings = "lb_class_name; chart: kube-vip.harvesterClass"
        checks.insert(0, f"that kube-vip serves class {LOAD_BALANCER_CLASS} ({settings})")
    if is_local(service):
        checks.append(
            "that it runs on a node with a Pod of the Service and elects a node for each Service (chart: "
            'kube-vip.runOn all, kube-vip.env.svc_election "true"; not with v1.2.0 to v1.2.3)'
        )
    if snapshot.remembered.endpoints.reading is Reading.UNREADABLE:
        checks.append("that a Pod of the Service is ready")
    checks.append("its log: until a DHCP server answers for one Service, the others wait")
    checks.append("and last restart it: kube-vip before 1.1.2 can stay silent about an address that was withdrawn once")
    return "; ".join(checks)


def touch_not_permitted(snapshot: ServiceSnapshot, event_type: Literal["Normal", "Warning"]) -> EventMessage:
    """Return the Event for a Service that has changed, and whose EndpointSlices must not be patched."""
    service = snapshot.service
    reason = Reason.NOT_ANNOUNCED if event_type == "Warning" else Reason.ANNOUNCEMENT_UNKNOWN
    cause = (
        "kube-vip 1.2 up to 1.2.3 announces the address of a changed Service only after a change of one of its "
        "EndpointSlices, which this controller is not permitted to make"
    )
    remedy = "Grant list and patch on endpointslices (chart: rbac.endpointSlices), or change an EndpointSlice yourself"
    command = (
        f"kubectl --namespace {service.metadata.namespace} annotate endpointslices --selector "
        f"{endpoint_slice_selector(service)} --overwrite touched=$(date +%s)"
    )
    return EventMessage(event_type, reason, cause, remedy, command)
