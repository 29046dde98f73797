"""Plans of a Service that has no load balancer, or whose load balancer is being deleted."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.deletion import REPORTED_AFTER_SECONDS, deletion_remedy
from harvester_ccm.plan.service.allocation.requested_address import RequestStep, answer_to_request, seed_of
from harvester_ccm.plan.service.desired import (
    CreateLoadBalancer,
    Desired,
    Document,
    Finalizer,
    SeedPool,
    not_ready,
    waits_at_most,
    waits_for,
)
from harvester_ccm.plan.service.ineffective import ignored_on_load_balancer
from harvester_ccm.plan.service.load_balancer.specification import new_load_balancer
from harvester_ccm.plan.service.load_balancer.vm_spec import vm_spec_of
from harvester_ccm.plan.service.messages import CONTROLLER_GRACE_SECONDS, UNAVAILABLE_GRACE_SECONDS
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.scope import was_secondary
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.waiting import waits_for_harvester, while_waiting

QUEUED_GRACE_SECONDS: Final = 60.0
"""Time after which the condition of a Service reports that its creation is queued."""
_ENSURING: Final = EventMessage("Normal", Reason.ENSURING, "Ensuring load balancer")
_RIGHTS_UNKNOWN: Final = EventMessage(
    "Warning",
    Reason.HARVESTER_UNAVAILABLE,
    "Harvester has not answered in which IP pools an address can be requested",
    "The log of the controller has the error of the review of its permissions",
)
CREATION_QUEUED: Final = EventMessage(
    "Warning",
    Reason.CREATION_QUEUED,
    "Creation is queued for more than a minute: load balancers are created one after the other",
    "If other Services get no address either, check that the deployment harvester-load-balancer in namespace "
    "harvester-system of Harvester is running",
)


def plan_new(snapshot: ServiceSnapshot) -> Desired:
    """Create the load balancer, after the Service has the finalizer and kube-vip is kept from it.

    A VM load balancer has to wait for the node ports of the Service, and for the list of VMs.
    """
    is_vm = snapshot.request.wants_vm
    body = next_body(snapshot, is_vm=is_vm)
    if body is None:
        return while_waiting(snapshot, waits_for_harvester(snapshot.machines_problem, snapshot, Phase.NEW))
    answer = answer_to_request(snapshot)
    if answer.step is RequestStep.AWAIT_RIGHTS:
        waits = waits_at_most(UNAVAILABLE_GRACE_SECONDS, _RIGHTS_UNKNOWN, snapshot, Phase.NEW)
        return while_waiting(snapshot, replace(waits, finalizer=Finalizer.ADD))
    if answer.step is RequestStep.WAIT and answer.warning is not None:
        verdict = not_ready(answer.warning, snapshot)
        return while_waiting(snapshot, Desired(verdict, look_again_after=answer.look_again_after))
    create = CreateLoadBalancer(snapshot.match.expected_name, body)
    ignored = ignored_on_load_balancer(snapshot.service, snapshot.request, None, is_vm=is_vm)
    desired = Desired(
        waits_for(Reason.QUEUED),
        finalizer=Finalizer.ADD,
        write=_next_in_harvester(snapshot, create, answer.step),
        reads_pool=answer.step is RequestStep.READ_POOL,
        events=(ignored, answer.warning, _lost(snapshot, create.name) or _ENSURING),
        look_again_after=CONTROLLER_GRACE_SECONDS,
    )
    return while_waiting(snapshot, desired)


def _next_in_harvester(
    snapshot: ServiceSnapshot, create: CreateLoadBalancer, step: RequestStep
) -> CreateLoadBalancer | SeedPool | None:
    """Return the creation, or what comes before it: the pool is read, and then the address requested."""
    match step:
        case RequestStep.READ_POOL:
            return None
        case RequestStep.SEED:
            return seed_of(snapshot)
    return create


def _lost(snapshot: ServiceSnapshot, name: str) -> EventMessage | None:
    """Return the Warning that the load balancer of a Service was deleted in Harvester, or None.

    During a switch this controller deletes it itself, after it has withdrawn the address.
    """
    address = snapshot.shown_address
    if not snapshot.keeps_address or not address or was_secondary(snapshot.service):
        return None
    cause = (
        f"The load balancer with address {address} of this Service does not exist in Harvester any more; it is "
        f"recreated as {name}. Its address is kept if Harvester allows it"
    )
    remedy = (
        "If nobody deleted it, and this repeats, a copy of this cluster, such as a restored snapshot, runs with the "
        "same --cluster-name and deletes it: give the copy another one"
    )
    return EventMessage("Warning", Reason.LOAD_BALANCER_LOST, cause, remedy)


def plan_queued(snapshot: ServiceSnapshot) -> Desired:
    """Wait until the creation gate admits the Service.

    There is never an Event: the Service whose load balancer is in progress gets one, and a hundred queued ones would
    only repeat it.
    """
    condition = snapshot.service.ready_condition
    if condition is not None and condition.status == "False" and condition.reason != Reason.CREATION_QUEUED:
        # What is wrong since the last attempt stays until the next one.
        return while_waiting(snapshot, Desired(waits_for(Reason.CREATION_QUEUED)))
    waits = waits_at_most(QUEUED_GRACE_SECONDS, CREATION_QUEUED, snapshot, Phase.NEW)
    return while_waiting(snapshot, replace(waits, verdict=replace(waits.verdict, emits_event=False)))


def plan_old_terminating(snapshot: ServiceSnapshot) -> Desired:
    """Wait while the old load balancer is being deleted, which has the name and the address."""
    load_balancer = snapshot.load_balancer
    cause = (
        f"Load balancer {load_balancer.metadata.name} is still being deleted in Harvester; a new one is created "
        "afterwards"
    )
    warning = EventMessage("Warning", Reason.REPLACEMENT_PENDING, cause, deletion_remedy(load_balancer))
    waits = waits_at_most(REPORTED_AFTER_SECONDS, warning, snapshot, Phase.OLD_TERMINATING)
    return while_waiting(snapshot, replace(waits, finalizer=Finalizer.ADD))


def next_body(snapshot: ServiceSnapshot, *, is_vm: bool) -> Document | None:
    """Return a new load balancer of this type; None while its backends are not known."""
    service = snapshot.service
    request = snapshot.request
    cluster = snapshot.cluster
    if not is_vm:
        return new_load_balancer(service, request, cluster, {})
    if snapshot.backends is None:
        return None
    return new_load_balancer(service, request, cluster, vm_spec_of(snapshot))
