"""Plans of a Service that has no load balancer, or whose load balancer is being deleted."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.deletion import REPORTED_AFTER_SECONDS, deletion_remedy
from harvester_ccm.plan.service.desired import (
    CreateLoadBalancer,
    Desired,
    Document,
    Finalizer,
    SeedPool,
    waits_at_most,
    waits_for,
    waits_until,
)
from harvester_ccm.plan.service.kube_vip import GIVE_UP, LEAVE, PAUSE, Delegate, Intent, Mode, Withdraw, leases_of
from harvester_ccm.plan.service.load_balancer import new_load_balancer
from harvester_ccm.plan.service.messages import CONTROLLER_GRACE_SECONDS
from harvester_ccm.plan.service.obstacles import (
    keep_lease_or_withdraw,
    keep_or_pause,
    keep_request_or_pause,
    without_load_balancer,
)
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.request import Ipam
from harvester_ccm.plan.service.requested_address import Step, answer_to_request, seed_of
from harvester_ccm.plan.service.scope import is_served
from harvester_ccm.plan.service.settings import ignored_on_cluster_load_balancer, ignored_on_vm_load_balancer
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.vm_spec import vm_spec_of

QUEUED_GRACE_SECONDS: Final = 60.0
"""Time after which the condition of a Service reports that its creation is queued, if Harvester processes nothing."""
RIGHTS_SECONDS: Final = 1.0
"""Time after which a Service is planned again that waits until it is known in which pools it can request an address."""
_ENSURING: Final = EventMessage("Normal", Reason.ENSURING, "Ensuring load balancer")
CREATION_QUEUED: Final = EventMessage(
    "Warning",
    Reason.CREATION_QUEUED,
    "Creation is queued, and Harvester's load balancer controller has processed none of the load balancers before it "
    "for a minute",
    "Check that the deployment harvester-load-balancer in namespace harvester-system of Harvester is running",
)


def plan_new(snapshot: ServiceSnapshot) -> Desired:
    """Create the load balancer, after the Service has the finalizer and kube-vip is kept from it.

    A VM load balancer has to wait for the node ports of the Service, and for the list of VMs.
    """
    is_vm = snapshot.request.wants_vm
    if is_vm and not vm_spec_of(snapshot):
        return without_load_balancer(snapshot, waits_for(Reason.NODE_PORTS_PENDING))
    body = next_body(snapshot, is_vm=is_vm)
    if body is None:
        return Desired(waits_for(Reason.HARVESTER_UNAVAILABLE), keep_or_pause(snapshot))
    has_address_of_other_type = _has_address_of_other_type(snapshot, is_vm=is_vm)
    create = CreateLoadBalancer(snapshot.match.expected_name, body)
    if _has_other_address_than_lease(snapshot, is_vm=is_vm):
        if has_address_of_other_type:
            # Another machine requests the next lease, so the address is another one.
            return Desired(waits_for(Reason.REPLACEMENT_PENDING), GIVE_UP, ingress=())
        return _cleared(snapshot, create, is_vm=is_vm)
    return _created(snapshot, create, is_vm=is_vm, has_address_of_other_type=has_address_of_other_type)


def _has_other_address_than_lease(snapshot: ServiceSnapshot, *, is_vm: bool) -> bool:
    """Return whether a Service that gets an address from DHCP shows one that is not a lease of kube-vip.

    It is from an IP pool, from another controller, from a backup, or Harvester had leased it. A load balancer with DHCP
    is created only after the status is cleared: the next address there is the lease.
    """
    if snapshot.request.ipam is not Ipam.DHCP or not snapshot.service.addresses:
        return False
    return is_vm or not leases_of(snapshot.kube_vip, recorded="")


def _cleared(snapshot: ServiceSnapshot, create: CreateLoadBalancer, *, is_vm: bool) -> Desired:
    """Return the state in which the address is withdrawn, before the load balancer is created."""
    reason = Reason.QUEUED if is_vm else Reason.DHCP_LEASE_PENDING
    return Desired(
        waits_for(reason),
        Withdraw(),
        finalizer=Finalizer.ADD,
        ingress=(),
        events=(_lost(snapshot, create.name),),
    )


def _created(
    snapshot: ServiceSnapshot, create: CreateLoadBalancer, *, is_vm: bool, has_address_of_other_type: bool
) -> Desired:
    answer = answer_to_request(snapshot)
    if answer.step is Step.AWAIT_RIGHTS:
        intent = keep_or_pause(snapshot)
        return Desired(waits_for(Reason.HARVESTER_UNAVAILABLE), intent, look_again_after=RIGHTS_SECONDS)
    ignored_settings = ignored_on_vm_load_balancer if is_vm else ignored_on_cluster_load_balancer
    ignored = ignored_settings(snapshot.service, snapshot.request, snapshot.request.ipam)
    lost = None if has_address_of_other_type else _lost(snapshot, create.name)
    intent = _intent(snapshot, is_vm=is_vm)
    if answer.step is not Step.CREATE and not is_vm:
        # kube-vip announces what a new Service requests, and something else can have that address.
        intent = PAUSE
    finalizer = Finalizer.ADD
    if is_vm and has_address_of_other_type:
        # ``ignore`` is set only after kube-vip has seen the withdrawal.
        intent = LEAVE
        finalizer = Finalizer.KEEP
    return Desired(
        waits_for(Reason.QUEUED),
        intent,
        finalizer=finalizer,
        write=_next_in_harvester(snapshot, create, answer.step),
        reads_pool=answer.step is Step.READ_POOL,
        events=(ignored, answer.warning, lost or _ENSURING),
        look_again_after=CONTROLLER_GRACE_SECONDS,
    )


def _next_in_harvester(
    snapshot: ServiceSnapshot, create: CreateLoadBalancer, step: Step
) -> CreateLoadBalancer | SeedPool | None:
    """Return the creation, or what comes before it: the pool is read, and then the address requested."""
    match step:
        case Step.READ_POOL:
            return None
        case Step.SEED:
            return seed_of(snapshot)
    return create


def _intent(snapshot: ServiceSnapshot, *, is_vm: bool) -> Intent:
    if is_vm:
        return Delegate()
    if snapshot.request.ipam is Ipam.DHCP:
        return keep_lease_or_withdraw(snapshot.kube_vip)
    return keep_request_or_pause(snapshot.kube_vip)


def _has_address_of_other_type(snapshot: ServiceSnapshot, *, is_vm: bool) -> bool:
    """Return whether the Service shows the address of a load balancer of the other workload type, during a switch.

    kube-vip ignores the Service exactly if the old load balancer was one for VMs.
    """
    kube_vip = snapshot.kube_vip
    return kube_vip.is_withdrawn and kube_vip.ignored != is_vm and is_served(snapshot.service)


def _lost(snapshot: ServiceSnapshot, name: str) -> EventMessage | None:
    """Return the Warning that the load balancer of a served Service was deleted in Harvester, or None."""
    kube_vip = snapshot.kube_vip
    address = snapshot.shown_address
    # kube-vip may have announced the address that the user requests. Of a pair, one is requested.
    requested = {kube_vip.specified, kube_vip.requested, kube_vip.ipv4_of_pair}
    if not is_served(snapshot.service) or not requested.isdisjoint(snapshot.service.addresses):
        return None
    if _is_address_of_others(snapshot):
        return None
    if kube_vip.mode is Mode.WITHDRAWN:
        # This controller has withdrawn the address and deleted the load balancer for a switch, and the user has taken
        # the request back.
        return None
    cause = (
        f"The load balancer with address {address} of this Service does not exist in Harvester any more; it is "
        f"recreated as {name}. {_next_address(snapshot)}"
    )
    return EventMessage("Warning", Reason.LOAD_BALANCER_LOST, cause)


def _is_address_of_others(snapshot: ServiceSnapshot) -> bool:
    """Return whether another controller has written the address in the status.

    This one and the Go provider publish an address in kube-vip's annotation, and this one writes its condition: with
    its first patch, the condition that the Service waits.
    """
    condition = snapshot.service.ready_condition
    is_new = condition is None or condition.reason == Reason.QUEUED
    return is_new and not snapshot.kube_vip.annotated


def _next_address(snapshot: ServiceSnapshot) -> str:
    if snapshot.request.ipam is not Ipam.DHCP:
        return "It gets the same address if its name was the same and the address is free"
    if leases_of(snapshot.kube_vip, recorded=""):
        return "The address is from DHCP, and kube-vip keeps it"
    return "The address is withdrawn, because the next one comes from DHCP"


def plan_queued(snapshot: ServiceSnapshot) -> Desired:
    """Wait until the creation gate admits the Service.

    There is never an Event: the Service whose load balancer is in progress gets one, and a hundred queued ones would
    only repeat it.
    """
    condition = snapshot.service.ready_condition
    if condition is not None and condition.reason == Reason.HARVESTER_UNAVAILABLE:
        # The error of the last attempt stays until the next one.
        return Desired(waits_for(Reason.CREATION_QUEUED))
    left = QUEUED_GRACE_SECONDS - snapshot.unprocessed(Phase.NEW)
    waiting = waits_until(left, CREATION_QUEUED, snapshot)
    return Desired(replace(waiting.verdict, emits_event=False), look_again_after=waiting.look_again_after)


def plan_old_terminating(snapshot: ServiceSnapshot) -> Desired:
    """Wait while the old load balancer is being deleted, which has the name and the address."""
    load_balancer = snapshot.load_balancer
    cause = (
        f"Load balancer {load_balancer.metadata.name} is still being deleted in Harvester; a new one is created "
        "afterwards"
    )
    # A Service that never had an address may still request one, so its condition must not say that it is replaced.
    reason = Reason.REPLACEMENT_PENDING if snapshot.has_had_address else Reason.OLD_TERMINATING
    warning = EventMessage("Warning", reason, cause, deletion_remedy(load_balancer))
    waiting = waits_at_most(REPORTED_AFTER_SECONDS, warning, snapshot, Phase.OLD_TERMINATING)
    desired = Desired(
        waiting.verdict,
        keep_or_pause(snapshot),
        finalizer=Finalizer.ADD,
        look_again_after=waiting.look_again_after,
    )
    is_new = snapshot.shows_request and not snapshot.has_had_address
    if is_new and not snapshot.retained_address:
        # kube-vip announces what the user requests, and Harvester can take any time to delete the old one.
        return replace(desired, kube_vip=GIVE_UP, ingress=())
    return desired


def next_body(snapshot: ServiceSnapshot, *, is_vm: bool) -> Document | None:
    """Return a new load balancer of this type; None while its backends or node ports are not known."""
    service = snapshot.service
    request = snapshot.request
    cluster = snapshot.cluster
    if not is_vm:
        return new_load_balancer(service, request, cluster, {})
    vm_spec = vm_spec_of(snapshot)
    if not vm_spec or snapshot.backends is None:
        return None
    return new_load_balancer(service, request, cluster, vm_spec)
