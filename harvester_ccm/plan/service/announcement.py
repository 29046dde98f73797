"""Announced or explained: what is said about a published address on whose Service no node is noted.

kube-vip notes its node on a Service when it announces the address (``vip_hosts``). A missing note is only a hint: in
some modes kube-vip writes none, and other programs never do. So a Service is judged after a time in which kube-vip
could have announced it, and its condition becomes False only if nothing shows that this is right. Nothing is withdrawn
because of it. A Service that had a note once is not judged again: a touch of the endpoints is what a further
announcement needs (``reannouncement``).
"""

from typing import Final

from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import DEFAULT_KUBEVIP_CLASS, LOAD_BALANCER_CLASS, Reason
from harvester_ccm.plan.service.desired import Desired, is_in_condition
from harvester_ccm.plan.service.endpoints import Endpoints, Reading, Use, is_local
from harvester_ccm.plan.service.kube_vip import IGNORE_ANNOTATION, NOTE_ANNOTATION, Announce
from harvester_ccm.plan.service.scope import may_share
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotReady, Ready, Verdict

NOTE_SECONDS: Final = 60.0
"""Time that kube-vip gets to announce an address, from the publication or from its last progress with any Service."""
MAX_PROGRESS_SECONDS: Final = 3600.0
"""Time after the publication for which progress with other Services counts: a tenant can write notes as well."""
_CLASS_REMEDY: Final = (
    f"Set lb_class_name of kube-vip to {LOAD_BALANCER_CLASS} (chart: kube-vip.harvesterClass optional); it then "
    f"serves no Services of class {DEFAULT_KUBEVIP_CLASS} any more"
)
"""What to do for a Service of this controller's class that kube-vip does not serve."""
_NO_NOTE: Final = f"No node has noted that it announces the address (annotation {NOTE_ANNOTATION})"


def with_announcement(desired: Desired, snapshot: ServiceSnapshot) -> Desired:
    """Return a state in which an address is published, with what is to be said about its announcement."""
    verdict = desired.verdict
    if not isinstance(verdict, Ready) or not isinstance(desired.kube_vip, Announce):
        return desired
    if not snapshot.remembered.published or snapshot.cluster.announcer is Announcer.OTHER:
        return desired
    if snapshot.kube_vip.node:
        return _with_event(desired, verdict, _ends_with_restart(snapshot), snapshot)
    seconds_left = _seconds_to_judgment(snapshot)
    if seconds_left > 0:
        return _as_before(desired, verdict, snapshot, seconds_left)
    event = _cause_on_service(snapshot)
    if event is not None:
        return _with_event(desired, verdict, event, snapshot)
    return _by_endpoints(desired, verdict, snapshot)


def _seconds_to_judgment(snapshot: ServiceSnapshot) -> float:
    """Return the seconds until a Service is judged.

    kube-vip works through its queue: while it announces other Services, this one waits for its turn.
    """
    published_at = snapshot.remembered.published_at
    progress_at = min(snapshot.announcements.last_at, published_at + MAX_PROGRESS_SECONDS)
    return max(published_at, progress_at) + NOTE_SECONDS - snapshot.now


def _by_endpoints(desired: Desired, verdict: Ready, snapshot: ServiceSnapshot) -> Desired:
    """Return the state of a Service whose endpoints decide what is said.

    A Warning needs two readings: if the first endpoint is only a moment old, kube-vip is about to announce the address.
    Between two readings, another cause can come and go (``ignore``, notes on other Services): what the condition does
    not say any more is read again.
    """
    endpoints = snapshot.remembered.endpoints
    judged = _with_event(desired, verdict, _cause_by_endpoints(snapshot, endpoints), snapshot)
    is_said = is_in_condition(judged.verdict, snapshot)
    match endpoints.use(snapshot.service, snapshot.now, is_said=is_said):
        case Use.READ_FIRST:
            return replace(_as_before(desired, verdict, snapshot), reads_endpoints=True)
        case Use.CONFIRM_LATER:
            return _as_before(desired, verdict, snapshot, endpoints.seconds_to_confirmation(snapshot.now))
        case Use.DECIDES:
            return judged


def _as_before(
    desired: Desired, verdict: Ready, snapshot: ServiceSnapshot, look_again_after: float | None = None
) -> Desired:
    """Return the state in which the present condition stays, for so many seconds."""
    return replace(desired, verdict=_present_verdict(verdict, snapshot), look_again_after=look_again_after)


def _present_verdict(verdict: Ready, snapshot: ServiceSnapshot) -> Verdict:
    """Return the verdict that the condition has from an earlier judgment, else the usual one."""
    condition = snapshot.service.ready_condition
    if condition is None:
        return verdict
    if condition.status == "True" and condition.message.startswith(f"{verdict.message}. "):
        return Ready(verdict.addresses, condition.message)
    if condition.status == "False" and condition.reason == Reason.NOT_ANNOUNCED:
        known = EventMessage("Warning", Reason.NOT_ANNOUNCED, condition.message)
        return NotReady(Reason.NOT_ANNOUNCED, known, changes_condition=False, emits_event=False)
    return verdict


def _with_event(desired: Desired, verdict: Ready, event: EventMessage | None, snapshot: ServiceSnapshot) -> Desired:
    """Return the state with the Event, which the condition repeats; with a Warning the Service is not ready.

    A Service without the condition, which the Go provider served, gets none for it.
    """
    if event is None:
        return desired
    if event.type == "Normal":
        explained = Ready(verdict.addresses, f"{verdict.message}. {event.message}")
        return replace(desired, verdict=explained, events=(*desired.events, event))
    had_condition = snapshot.request.had_condition
    return replace(desired, verdict=NotReady(Reason.NOT_ANNOUNCED, event, changes_condition=had_condition))


def _ends_with_restart(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Event about an announced Service that kube-vip ignores by now, or None."""
    if not snapshot.kube_vip.ignored:
        return None
    cause = (
        f"kube-vip ignores the Service, because annotation {IGNORE_ANNOTATION} was set after the announcement. It "
        "announces the address until it restarts, and withdraws it in no other case"
    )
    remedy = "To keep the address announced, remove the annotation"
    return EventMessage("Normal", Reason.ANNOUNCEMENT_UNKNOWN, cause, remedy)


def _cause_on_service(snapshot: ServiceSnapshot) -> EventMessage | None:
    """Return the Event about a cause that does not depend on the endpoints, or None."""
    if snapshot.cluster.announcer is Announcer.AUTO and not snapshot.announcements.exist:
        return _nothing_is_noted(snapshot)
    if snapshot.kube_vip.ignored:
        return _ignored(snapshot)
    return None


def _nothing_is_noted(snapshot: ServiceSnapshot) -> EventMessage:
    """Return the Event about a Service in a cluster without any note; its EndpointSlices are not read for it."""
    cause = (
        f"{_NO_NOTE}, nor that of any other Service. That is right if another program than kube-vip announces "
        "addresses, and for kube-vip in BGP mode before version 1.0, in routing-table or WireGuard mode, and with "
        "disable_service_updates"
    )
    checks = ["that kube-vip runs in this cluster"]
    if snapshot.service.spec.load_balancer_class is not None:
        checks.append(f"that it serves class {LOAD_BALANCER_CLASS} (lb_class_name)")
    checks.append("and that the Service has an endpoint (kube-vip needs one)")
    remedy = f"In these cases, set --announcer=other. In any other case, check {', '.join(checks)}"
    return EventMessage("Normal", Reason.ANNOUNCEMENT_UNKNOWN, cause, remedy)


def _ignored(snapshot: ServiceSnapshot) -> EventMessage:
    meta = snapshot.service.metadata
    return EventMessage(
        "Warning",
        Reason.NOT_ANNOUNCED,
        "with value 'true' makes kube-vip ignore the Service, so no node announces the address",
        "Remove the annotation",
        f"kubectl --namespace {meta.namespace} annotate service {meta.name} {IGNORE_ANNOTATION}-",
        place=f"Annotation {IGNORE_ANNOTATION}",
    )


def _cause_by_endpoints(snapshot: ServiceSnapshot, endpoints: Endpoints) -> EventMessage:
    """Return the Event about a Service without a note, by the endpoints that kube-vip counts."""
    if endpoints.reading is Reading.UNREADABLE:
        return _unknown_endpoints()
    if not endpoints.exist:
        return _no_endpoints(snapshot)
    if _is_out_of_reach(snapshot, endpoints):
        return _out_of_reach(endpoints)
    if _has_skipped_class(snapshot):
        return _skipped_class()
    return _not_announced(snapshot)


def _unknown_endpoints() -> EventMessage:
    cause = (
        f"{_NO_NOTE}. Whether kube-vip should is not known, because this controller cannot read the EndpointSlices of "
        "the Service"
    )
    remedy = "Grant list on endpointslices (chart: rbac.endpointSlices)"
    return EventMessage("Normal", Reason.ANNOUNCEMENT_UNKNOWN, cause, remedy)


def _no_endpoints(snapshot: ServiceSnapshot) -> EventMessage:
    cause = "The Service has no endpoint, and kube-vip announces an address only with one"
    if is_local(snapshot.service):
        cause = (
            "No endpoint of the Service takes traffic, and with externalTrafficPolicy Local, kube-vip announces an "
            "address only with one"
        )
    remedy = "The address is announced as soon as a Pod of the Service is ready"
    return EventMessage("Normal", Reason.NO_ENDPOINTS, cause, remedy)


def _is_out_of_reach(snapshot: ServiceSnapshot, endpoints: Endpoints) -> bool:
    """Return whether the node of each endpoint is known, and kube-vip has announced no address on any of them."""
    if not is_local(snapshot.service) or not endpoints.nodes or not snapshot.announcements.exist:
        return False
    return not endpoints.is_on_announcing_node


def _out_of_reach(endpoints: Endpoints) -> EventMessage:
    cause = (
        f"{_NO_NOTE}. Probable cause: with externalTrafficPolicy Local, kube-vip announces it only on a node with an "
        f"endpoint of the Service. The endpoints are on {endpoints.nodes}, where kube-vip has announced nothing so far"
    )
    remedy = (
        "Run kube-vip on all nodes with an election for each Service (chart: kube-vip.runOn all, "
        'kube-vip.env.svc_election "true"), or set externalTrafficPolicy to Cluster'
    )
    return EventMessage("Warning", Reason.NOT_ANNOUNCED, cause, remedy)


def _has_skipped_class(snapshot: ServiceSnapshot) -> bool:
    """Return whether kube-vip announces Services without a class, and has announced none with this Service's class."""
    has_class = snapshot.service.spec.load_balancer_class is not None
    announcements = snapshot.announcements
    return has_class and announcements.without_class and not announcements.with_class


def _skipped_class() -> EventMessage:
    cause = (
        f"{_NO_NOTE}. Probable cause: the Service has spec.loadBalancerClass {LOAD_BALANCER_CLASS}, and kube-vip has "
        f"announced only Services without a class so far. It serves one class, by default {DEFAULT_KUBEVIP_CLASS}"
    )
    return EventMessage("Warning", Reason.NOT_ANNOUNCED, cause, _CLASS_REMEDY)


def _not_announced(snapshot: ServiceSnapshot) -> EventMessage:
    """Return the Warning without a visible cause, with everything that is worth a look."""
    cause = f"{_NO_NOTE}, although the Service has an endpoint. The reason is not visible to this controller"
    checks = ["that the kube-vip Pods run", _queue(snapshot), _filters(snapshot)]
    remedy = f"Check {'; '.join(checks)}. If another program announces addresses, set --announcer=other"
    return EventMessage("Warning", Reason.NOT_ANNOUNCED, cause, remedy)


def _queue(snapshot: ServiceSnapshot) -> str:
    """Return what to look for in the queue of kube-vip, which handles one Service after the other."""
    waiting = snapshot.announcements.awaits_lease
    text = "that kube-vip is not occupied with another Service, see its log"
    if not waiting:
        return text
    if not may_share(snapshot.service, waiting, snapshot.cluster):
        # Tenants that must not share addresses do not read about Services of each other.
        waiting = "one in another namespace"
    return f"{text} ({waiting} waits for an address from DHCP)"


def _filters(snapshot: ServiceSnapshot) -> str:
    """Return which settings of kube-vip can exclude the Service."""
    if snapshot.service.spec.load_balancer_class is None:
        return "that its settings svc_namespace and lb_class_only do not exclude the Service"
    return f"that its setting lb_class_name is {LOAD_BALANCER_CLASS}, and that svc_namespace permits the namespace"
