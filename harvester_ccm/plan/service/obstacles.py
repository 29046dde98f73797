"""Plans of Services that get no load balancer at the moment: others serve them, or something stands in the way."""

from typing import Final

from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.desired import Desired, not_ready, waits_at_most, waits_for
from harvester_ccm.plan.service.kube_vip import (
    GIVE_UP,
    LEAVE,
    PAUSE,
    Announce,
    Intent,
    KubeVip,
    Withdraw,
    overwritten_address,
)
from harvester_ccm.plan.service.messages import (
    UNAVAILABLE_GRACE_SECONDS,
    harvester_mismatch,
    harvester_unavailable,
)
from harvester_ccm.plan.service.ownership import foreign_note
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.requested_address import answer_to_request
from harvester_ccm.plan.service.scope import is_served
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.supported import unsupported_reason
from harvester_ccm.plan.service.verdict import NotManaged, NotReady

RECHECK_SECONDS: Final = 60.0
"""Time after which a Service is planned again that waits for the right Harvester: nothing may wake it."""


def plan_not_ours(snapshot: ServiceSnapshot) -> Desired:
    """Leave the Service to others."""
    return Desired(NotManaged(snapshot.scope.reason), events=(snapshot.scope.note,))


def plan_harvester_unknown(snapshot: ServiceSnapshot) -> Desired:
    """Wait while Harvester's load balancers cannot be read: only a new Service is kept from kube-vip."""
    service = snapshot.service
    problem = snapshot.harvester_problem
    intent = PAUSE if snapshot.is_new else LEAVE
    if is_served(service) and not snapshot.is_leaving:
        # For Services that have what they need, health checks and metrics report the outage.
        return Desired(waits_for(Reason.HARVESTER_UNAVAILABLE), intent)
    grace = UNAVAILABLE_GRACE_SECONDS if problem is None else 0.0
    warning = harvester_unavailable(problem, service)
    waiting = waits_at_most(grace, warning, snapshot, Phase.HARVESTER_UNKNOWN)
    return Desired(waiting.verdict, intent, look_again_after=waiting.look_again_after)


def plan_harvester_unverified(snapshot: ServiceSnapshot) -> Desired:
    """Wait until the VMs are listed."""
    intent = keep_or_pause(snapshot)
    return Desired(waits_for(Reason.HARVESTER_UNAVAILABLE), intent, look_again_after=1.0)


def plan_wrong_harvester(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing. A Service that has an address keeps it: it is allocated in the Harvester of the cluster."""
    verdict = not_ready(harvester_mismatch(snapshot.cluster), snapshot)
    return Desired(verdict, keep_or_pause(snapshot), look_again_after=RECHECK_SECONDS)


def plan_name_taken(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing while a load balancer of another cluster has the name or the address."""
    conflict = snapshot.name_conflict
    if conflict is None:
        raise LookupError(f"no load balancer has the name or the address of Service {snapshot.service.metadata.key}")
    return Desired(not_ready(foreign_note(conflict), snapshot), keep_or_pause(snapshot))


def plan_address_taken(snapshot: ServiceSnapshot) -> Desired:
    """Withdraw the address: Harvester has given it to another load balancer."""
    address = snapshot.unallocated_address
    holder = snapshot.allocated_to_others(address)[0]
    cause = (
        f"Address {address} is withdrawn: Harvester has given it to {holder.metadata.name}, and this Service gets "
        "another one"
    )
    warning = EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, cause)
    return Desired(not_ready(warning, snapshot), GIVE_UP, ingress=(), look_again_after=1.0)


def plan_address_unavailable(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing while the requested address cannot be allocated, and have kube-vip withdraw it.

    kube-vip announces what a new Service requests, before anything has allocated it.
    """
    answer = answer_to_request(snapshot)
    if answer.warning is None:
        raise LookupError(f"nothing keeps Service {snapshot.service.metadata.key} from the address that it requests")
    verdict = not_ready(answer.warning, snapshot)
    if snapshot.service.addresses:
        return Desired(verdict, GIVE_UP, ingress=(), look_again_after=answer.look_again_after)
    return Desired(verdict, PAUSE, look_again_after=answer.look_again_after)


def plan_unsupported(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing until the Service is changed, and withdraw the address of an earlier load balancer."""
    service = snapshot.service
    request = snapshot.request
    refusal = unsupported_reason(service, is_vm=request.wants_vm)
    # The first problem is that of the annotation ipam.
    verdict = not_ready(refusal or request.problems[0], snapshot)
    return without_load_balancer(snapshot, verdict)


def without_load_balancer(snapshot: ServiceSnapshot, verdict: NotReady) -> Desired:
    """Return the state of a Service for which no load balancer can be created until it changes."""
    if snapshot.retained_address:
        return Desired(verdict, keep_request_or_pause(snapshot.kube_vip))
    if is_served(snapshot.service) or snapshot.shows_request:
        # The address is that of an earlier load balancer, or kube-vip announces what the user requests.
        return Desired(verdict, GIVE_UP, ingress=())
    return Desired(verdict, PAUSE)


def keep_or_pause(snapshot: ServiceSnapshot) -> Intent:
    """Return the intent for a Service that waits: it keeps the address that it shows, and no other one.

    kube-vip would announce what another client has written to its annotation. While a touch of the endpoints is due,
    this process has just written the annotation, and kube-vip can have written the address of before to the status. A
    new Service shows what its user has requested elsewhere: nothing has allocated either address.
    """
    state = snapshot.kube_vip
    is_touch_due = snapshot.remembered.resync_at is not None
    if not state.status or is_touch_due or not overwritten_address(state, state.status[0]):
        return PAUSE
    return Withdraw() if snapshot.is_new else Announce(state.status[0])


def keep_lease_or_withdraw(kube_vip: KubeVip) -> Intent:
    """Return the intent for a Service with DHCP that has no load balancer, or one that Harvester has not processed.

    kube-vip keeps its lease. It announces nothing else: Harvester never allocates an address that the user requests.
    """
    if kube_vip.requests_lease and not kube_vip.ignored:
        return LEAVE
    return Withdraw() if kube_vip.read_address else PAUSE


def keep_request_or_pause(kube_vip: KubeVip) -> Intent:
    """Return the intent for a Service without an address from Harvester that may request one.

    kube-vip goes on announcing the address that the user requests until Harvester has decided. Most often Harvester
    allocates that address, and kube-vip may not announce it again once it has withdrawn it.
    """
    is_announced = bool(kube_vip.read_address) and not kube_vip.ignored
    return LEAVE if is_announced else PAUSE
