"""The desired state of a Service whose address is a lease from DHCP, which kube-vip requests."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Ingress
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LOAD_BALANCER_CLASS, Reason
from harvester_ccm.plan.service.announced_address import address_events, announcement_of
from harvester_ccm.plan.service.desired import (
    Desired,
    Finalizer,
    TriggerKubeVipResync,
    Waiting,
    is_in_condition,
    not_ready,
    virtual_ip_ingress,
    waits_at_most,
    waits_for,
)
from harvester_ccm.plan.service.endpoints import Endpoints, Reading, Use
from harvester_ccm.plan.service.kube_vip import (
    LEASE_ANNOTATION,
    NOTES_ARE_VALID,
    RESYNC_AFTER_SECONDS,
    Annotations,
    leases_of,
    mark_of_notes,
    request_again,
)
from harvester_ccm.plan.service.lease_wait import Action, LeaseWait
from harvester_ccm.plan.service.load_balancer import load_balancer_change
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotReady, Ready

LEASE_GRACE_SECONDS: Final = 30.0
"""Time that kube-vip can take to get a lease before an Event reports that none exists."""
_LOG_COMMAND: Final = (
    "kubectl -n kube-system logs -l 'app.kubernetes.io/name in (kube-vip, kube-vip-ds)' --prefix --tail=20"
)
"""The names are those of the charts and of kube-vip's own manifests."""
_WAITS: Final = (
    f"The Service waits for {Reason.DHCP_LEASE_PENDING.meaning}. If it has none after {LEASE_GRACE_SECONDS:.0f} s, "
    "this message says what to check"
)
_ANNOUNCED_BEFORE: Final = (
    "kube-vip announced this Service before, and may request the address only after some minutes, or, up to version "
    "1.0, never: to make it do so at once, restart kube-vip, or create the Service again"
)


def plan_dhcp(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the desired state with an address from DHCP.

    kube-vip requests a lease and writes it to the status; the load balancer gets a copy of the address.
    """
    service = snapshot.service
    leases = leases_of(snapshot.kube_vip, recorded=load_balancer.address)
    if not leases:
        return _without_lease(snapshot, load_balancer)
    conflict = _lease_of_another(snapshot, leases)
    if conflict is not None:
        return Desired(
            not_ready(conflict, snapshot),
            announcement_of(snapshot, load_balancer),
            finalizer=Finalizer.ADD,
            write=load_balancer_change(load_balancer, snapshot),
        )
    address = leases[0]
    # kube-vip writes a lease with the ports of that moment and does not follow them. Beside a lease, other addresses
    # are its own as well: one of another family, or that of a gateway.
    has_others = len(service.addresses) > 1 and address in service.addresses
    ingress = None
    if not has_others:
        ingress = virtual_ip_ingress(address, service)
    notes: Annotations = NOTES_ARE_VALID
    if snapshot.remembered.resync_at is not None:
        # Before the touch of the endpoints, kube-vip can show the lease that it had before.
        notes = {}
    desired = Desired(
        Ready(leases, f"The load balancer has address {', '.join(leases)}"),
        announcement_of(snapshot, load_balancer),
        annotations=notes,
        finalizer=Finalizer.ADD,
        ingress=ingress,
        write=load_balancer_change(load_balancer, snapshot, address=address),
        events=address_events(snapshot, load_balancer, address),
    )
    return _with_lease_step(_with_doubt(desired, snapshot), snapshot, {})


def _with_doubt(desired: Desired, snapshot: ServiceSnapshot) -> Desired:
    """Return the state of a Service that shows a lease, which kube-vip may have lost with a withdrawal."""
    wait = _lease_wait(snapshot)
    if wait is None:
        return desired
    request = request_again(snapshot.kube_vip)
    if wait.needs_request and request:
        return _requested_again(desired, request)
    if wait.needs_touch:
        # The change of the condition is the event after which kube-vip requests the lease.
        return replace(desired, verdict=waits_for(Reason.DHCP_LEASE_PENDING), events=())
    return desired


def _lease_wait(snapshot: ServiceSnapshot) -> LeaseWait | None:
    """Return the wait for a lease, unless a touch is due anyway, or the load balancer is to be replaced.

    A replacement gives the lease up, and begins with a new round of writes, which touches would take from it.
    """
    if snapshot.remembered.resync_at is not None or snapshot.wants_switch:
        return None
    return snapshot.remembered.lease_wait


def _requested_again(desired: Desired, request: Annotations) -> Desired:
    """Return the state in which kube-vip requests the lease from scratch."""
    return replace(
        desired,
        verdict=waits_for(Reason.KUBE_VIP_RESYNC_PENDING),
        annotations={**desired.annotations, **request},
        # kube-vip may have noted the lease just now.
        requires_version=True,
        triggers_resync=True,
        requests_lease=True,
        look_again_after=RESYNC_AFTER_SECONDS,
    )


def _with_lease_step(desired: Desired, snapshot: ServiceSnapshot, request: Annotations) -> Desired:
    """Return the state with what kube-vip needs to get an address from DHCP again; ``request`` is empty with one."""
    wait = _lease_wait(snapshot)
    if wait is None:
        return desired
    step = wait.step(snapshot.now, may_request=bool(request))
    match step.action:
        case Action.REQUEST:
            return _requested_again(desired, request)
        case Action.TOUCH:
            return replace(desired, write=desired.write or TriggerKubeVipResync())
        case Action.WAIT:
            return replace(desired, look_again_after=_earlier(desired.look_again_after, step.seconds))


def _earlier(*delays: float | None) -> float | None:
    """Return the shortest of the delays that are not None."""
    return min((delay for delay in delays if delay is not None), default=None)


def _lease_of_another(snapshot: ServiceSnapshot, leases: tuple[str, ...]) -> EventMessage | None:
    """Return the Warning about a lease that Harvester has allocated to another load balancer, or None.

    A tenant can write what kube-vip notes. The status is left as it is: kube-vip writes a lease once.
    """
    for lease in leases:
        for holder in snapshot.allocated_to_others(lease):
            cause = (
                f"kube-vip has noted {lease} as its lease from DHCP, but Harvester has allocated this address to load "
                f"balancer {holder.metadata.name}"
            )
            remedy = (
                "Take the range of the IP pool out of that of the DHCP server, and create this Service again without "
                f"annotation {LEASE_ANNOTATION}"
            )
            return EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, cause, remedy)
    return None


def _without_lease(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Desired:
    """Return the state of a Service for which kube-vip has no lease; after a time, the endpoints show why.

    kube-vip requests one, and the status shows no other address.
    """
    kube_vip = snapshot.kube_vip
    waiting = _waiting_for_lease(snapshot)
    mark: Annotations = {}
    if not kube_vip.requests_lease:
        mark = mark_of_notes(kube_vip)
    desired = Desired(
        waiting.verdict,
        announcement_of(snapshot, load_balancer),
        annotations=mark,
        finalizer=Finalizer.ADD,
        ingress=without_address(snapshot),
        # kube-vip writes the lease once, perhaps at this moment.
        requires_version=kube_vip.requests_lease,
        write=load_balancer_change(load_balancer, snapshot),
        reads_endpoints=waiting.reads_endpoints,
        events=address_events(snapshot, load_balancer, ""),
        look_again_after=waiting.look_again_after,
    )
    request: Annotations = {}
    if kube_vip.awaits_second_lease:
        request = request_again(kube_vip)
    return _with_lease_step(desired, snapshot, request)


def _waiting_for_lease(snapshot: ServiceSnapshot) -> Waiting:
    """Return the verdict: that of the condition, until the usual time has passed and the endpoints are known."""
    if snapshot.remembered.resync_at is not None:
        # kube-vip requests the lease after the touch that is due. Where it is not permitted, a Warning says so.
        return Waiting(_as_before(snapshot))
    endpoints = snapshot.remembered.endpoints
    message = _no_lease(snapshot, endpoints)
    waiting = waits_at_most(LEASE_GRACE_SECONDS, message, snapshot, Phase.ANNOUNCED_BY_KUBE_VIP)
    if waiting.look_again_after is not None:
        return Waiting(_as_before(snapshot), waiting.look_again_after)
    is_said = is_in_condition(waiting.verdict, snapshot)
    match endpoints.use(snapshot.service, snapshot.now, is_said=is_said):
        case Use.READ_FIRST:
            return Waiting(_as_before(snapshot), reads_endpoints=True)
        case Use.CONFIRM_LATER:
            return Waiting(_as_before(snapshot), endpoints.seconds_to_confirmation(snapshot.now))
        case Use.DECIDES:
            return waiting


def _as_before(snapshot: ServiceSnapshot) -> NotReady:
    """Return the verdict on a Service without a lease while nothing new is to be said: no Event is due."""
    verdict = waits_for(Reason.DHCP_LEASE_PENDING)
    condition = snapshot.service.ready_condition
    message = EventMessage("Warning", Reason.DHCP_LEASE_PENDING, _WAITS)
    if condition is not None and condition.reason == Reason.DHCP_LEASE_PENDING:
        message = replace(message, cause=condition.message)
    return replace(verdict, message=message)


def _no_lease(snapshot: ServiceSnapshot, endpoints: Endpoints) -> EventMessage:
    """Return the Event about a lease that is late: a missing endpoint comes first, because kube-vip waits for it."""
    checks = [
        "that a DHCP server answers in the network of the nodes",
        "that the nodes have the kernel module macvlan, and last the log of kube-vip",
    ]
    if snapshot.service.spec.load_balancer_class is not None:
        checks.insert(0, f"that kube-vip serves class {LOAD_BALANCER_CLASS} (lb_class_name)")
    if endpoints.reading is Reading.DONE and not endpoints.exist:
        cause = "The Service has no endpoint, and kube-vip gets an address from DHCP only for a Service that has one"
        remedy = f"Start a Pod of the Service. If that does not help, check in this order: {', '.join(checks)}"
        return EventMessage("Normal", Reason.DHCP_LEASE_PENDING, cause, remedy, _LOG_COMMAND)
    if endpoints.reading is Reading.UNREADABLE:
        checks.insert(0, "that a Pod of the Service is ready (kube-vip gets an address only then)")
    remedy = f"Check in this order: {', '.join(checks)}"
    if snapshot.kube_vip.node is not None:
        remedy = f"{_ANNOUNCED_BEFORE}. {remedy}"
    cause = "kube-vip has not got an address from DHCP yet"
    return EventMessage("Warning", Reason.DHCP_LEASE_PENDING, cause, remedy, _LOG_COMMAND)


def awaits_first_lease(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> bool:
    is_from_dhcp = load_balancer.allocated_ip == names.DHCP_ADDRESS
    return is_from_dhcp and not leases_of(snapshot.kube_vip, recorded=load_balancer.address)


def without_address(snapshot: ServiceSnapshot) -> tuple[Ingress, ...] | None:
    """Return the status without any address; None if it has none: a host name there is a user's."""
    return () if snapshot.service.addresses else None
