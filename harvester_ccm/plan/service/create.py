"""Creates the load balancer of a Service: the first one, one after a deletion in Harvester, or the other workload type.

The last is made because the user said so, with the same address if possible. What has to be remembered while there is
no load balancer is kept in an annotation of the Service, so that a restart in the middle goes on where it was.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec
from msgspec.structs import replace

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.meta import OBJECT_NAME, read_note
from harvester_ccm.model.outcome import EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import LB_TOUCH, MOVING, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.cleanup import wait_for_booking
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, Announcement, hold_or_leave_requested, withdraw
from harvester_ccm.plan.service.load_balancer import Document, Former, former_of, new_load_balancer
from harvester_ccm.plan.service.ownership import is_name_of, load_balancer_name
from harvester_ccm.plan.service.pending import CONTROLLER_PATIENCE
from harvester_ccm.plan.service.request import Request, ignored_settings, unsupported
from harvester_ccm.plan.service.selection import Sight, is_served
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    ServiceChange,
    ServicePlan,
    Step,
    change_service,
    emit,
    hand_to_harvester,
    hold,
)
from harvester_ccm.plan.service.unbooked import keeping_note, record_of
from harvester_ccm.plan.service.vm_lb import wanted_spec

REPLACEMENT_PAUSE: Final = 5.0
"""Seconds between the end of the old load balancer and the new one: Harvester collects the old one's parts then."""
COLLECTED_AFTER: Final = 60.0
"""Seconds after which all parts of a VM load balancer that is gone are certainly collected."""
QUEUED_SECONDS: Final = 60.0
"""Time after which a Service whose creation is queued gets an Event; Harvester serves more than 100 Services in it."""
CREATION_QUEUED: Final = EventMessage(
    "Warning",
    Reason.ADDRESS_PENDING,
    "The load balancer is created after Harvester has responded to those that were created before it; load balancers "
    "are created one at a time. If this Event stays, check that the deployment harvester-load-balancer in namespace "
    "harvester-system is running",
)
_ENSURING: Final = EventMessage("Normal", Reason.ENSURING, "Ensuring load balancer")


def plan_creation(situation: Situation) -> ServicePlan:
    """Return what to do for a Service that has no load balancer."""
    service, request = situation.service, situation.request
    # Only in so many words is an address taken from kube-vip that its user gave.
    vm = request.wants_vm and not (situation.kept and request.workload_type is None)
    replaced = read_replaced(situation)
    ipam = (replaced.ipam if replaced is not None else "") or request.ipam
    second = replaced is not None or _may_meet_remains(situation, vm=vm)
    gone_for = max(situation.waited, situation.since_vm_lb or 0.0)
    if second and gone_for < REPLACEMENT_PAUSE:
        return ServicePlan(hold(service), Wait(WaitReason.SWITCHING, REPLACEMENT_PAUSE - gone_for))
    refusal = unsupported(service, vm=vm, new=situation.is_new)
    if refusal is not None or ipam is None:
        return ServicePlan((*emit(refusal), *_given_up(situation)), Refused(WaitReason.NOT_SERVABLE))
    spec = _front_spec("vm" if vm else "cluster", ipam, request, replaced)
    if vm:
        fields = wanted_spec(situation)
        if not fields or not situation.backends.known:
            return ServicePlan(hold(service), Wait(WaitReason.MACHINES if fields else WaitReason.NODE_PORTS))
        spec.update(fields)
    # kube-vip may have announced the address that the user asks for.
    lost = replaced is None and is_served(service) and service.addresses[0] != request.address
    recorded = change_service(service, ServiceChange(annotations=record_of(situation))) if situation.kept else ()
    create = _load_balancer(situation, spec, replaced, touched=second and vm)
    steps: tuple[Step, ...] = (
        *emit(
            ignored_settings(service, request, vm=vm),
            keeping_note(situation) if situation.kept and not (lost or vm) else None,
        ),
        *recorded,
        *_prepared(service, vm=vm),
        create,
        EmitEvent(_recreating(service, create.name) if lost else _ENSURING),
    )
    return ServicePlan(steps, Wait(WaitReason.NOT_PROCESSED, CONTROLLER_PATIENCE))


def _queued(situation: Situation) -> ServicePlan:
    """Return the plan for a Service whose creation is not admitted yet."""
    if situation.waited < QUEUED_SECONDS:
        return ServicePlan((), Wait(WaitReason.CREATION_QUEUED, QUEUED_SECONDS - situation.waited))
    return ServicePlan(emit(CREATION_QUEUED), Wait(WaitReason.CREATION_QUEUED))


def plan_unrecognised(situation: Situation) -> ServicePlan:
    """Return what to do for a Service without a load balancer while Harvester shows nothing of this cluster.

    One that shows an address keeps it, as it is announced and booked where the cluster lives; one that waits goes on.
    """
    service, found = situation.service, situation.recognition
    if found.sight is Sight.OPEN:
        return ServicePlan(hold(service), Wait(WaitReason.MACHINES, 1.0))
    text = (
        f"Harvester, in namespace {situation.cluster.namespace}, shows none of this cluster's load balancers and VMs, "
        "so the cloud-config seems to name another Harvester or namespace. No load balancer is created there, and "
        "Services keep the addresses they have. Correct the cloud-config; if this is where the cluster lives now, "
        "start the program with --accept-new-harvester"
    )
    told = emit(EventMessage("Warning", Reason.NOT_RECOGNISED, text))
    concerned = not service.addresses or service.metadata.key in found.told
    return ServicePlan((*(told if concerned else ()), *hold(service)), Refused(WaitReason.NEW_HARVESTER))


def _may_meet_remains(situation: Situation, *, vm: bool) -> bool:
    """Return whether parts of a VM load balancer that is gone may still be there.

    Harvester collects them after it, and those of a new one of its name with them.
    """
    seen = situation.since_vm_lb is not None and situation.since_vm_lb < COLLECTED_AFTER
    return seen or (vm and bool(situation.service.addresses))


def _front_spec(workload_type: str, ipam: str, request: Request, replaced: Former | None) -> Document:
    pool = (replaced.pool if replaced is not None else "") or request.ip_pool
    return {"workloadType": workload_type, "ipam": ipam, "ipPool": pool if ipam == "pool" else ""}


def _given_up(situation: Situation) -> tuple[ChangeService, ...]:
    """Return the steps for a Service that cannot have a load balancer: the address of the one it had is not its own."""
    service = situation.service
    if situation.kept:
        return ()
    # What kube-vip shows of a withdrawn Service is the address of an earlier load balancer.
    if service.addresses and (is_served(service) or Announcement.of(service).withdrawn):
        return change_service(service, ServiceChange(annotations=WITHDRAWN, ingress=()))
    return hold(service)


def _prepared(service: Service, *, vm: bool) -> tuple[ChangeService, ...]:
    """Return the steps that put our finalizer on the Service and keep kube-vip from it until there is an address."""
    if vm:
        return hand_to_harvester(service)
    return change_service(service, ServiceChange(annotations=hold_or_leave_requested(service), finalizer=True))


def _load_balancer(
    situation: Situation, spec: Document, replaced: Former | None, *, touched: bool
) -> CreateLoadBalancer:
    """Return the step that makes the load balancer; in the place of another it has that one's name and network."""
    name = replaced.name if replaced is not None else situation.match.expected_name
    network = replaced.network if replaced is not None else None
    body = new_load_balancer(situation.service, situation.request, name, situation.cluster, spec=spec, network=network)
    if touched:
        metadata = cast("dict[str, Document]", body["metadata"])
        metadata["annotations"][LB_TOUCH] = "true"
    return CreateLoadBalancer(name, body, otherwise=_queued(situation))


def _recreating(service: Service, name: str) -> EventMessage:
    """Return the Event for a missing load balancer; Harvester allocates an address again by the name."""
    text = (
        f"No load balancer in Harvester has address {service.addresses[0]}, which the Service shows; one is created as "
        f"{name}. If that was its name, Harvester gives the same address unless somebody else took it"
    )
    return EventMessage("Warning", Reason.RECREATING, text)


def plan_replacement(situation: Situation, load_balancer: LoadBalancer, wanted: str) -> ServicePlan:
    """Return what to do for an existing load balancer whose workload type must become ``wanted``."""
    service = situation.service
    record = msgspec.json.encode(replace(former_of(load_balancer), cluster=situation.cluster.name)).decode()
    recorded = change_service(service, ServiceChange(annotations={MOVING: record}, finalizer=True))
    away = withdraw(service) if Announcement.of(service).shown else {}
    # Another machine asks for the next lease, so the address is another one.
    shown = () if load_balancer.spec.ipam == "dhcp" else None
    withdrawn = change_service(service, ServiceChange(annotations=away, ingress=shown))
    booking = wait_for_booking(situation, (load_balancer,))
    if booking is not None:
        return booking.after(*recorded, *withdrawn)
    if _announced_by_secondaries(situation, load_balancer):
        # They withdraw as soon as they see that this Service has.
        return ServicePlan((*recorded, *withdrawn), Wait(WaitReason.SECONDARIES, 5.0))
    text = (
        f"The load balancer becomes one of workload type {wanted}: it is deleted now and created again within about "
        f"{REPLACEMENT_PAUSE:.0f} s. Its address is kept where Harvester allows it"
    )
    steps: tuple[Step, ...] = (
        *recorded,
        *emit(EventMessage("Normal", Reason.SWITCHING, text)),
        *withdrawn,
        DeleteLoadBalancer.of(load_balancer),
    )
    return ServicePlan(steps, Wait(WaitReason.SWITCHING, REPLACEMENT_PAUSE))


def _announced_by_secondaries(situation: Situation, load_balancer: LoadBalancer) -> bool:
    held = {*situation.service.addresses, load_balancer.allocated_ip, load_balancer.address}
    announced = (one for one in map(Announcement.of, situation.own_secondaries) if one.shown and not one.ignored)
    return any(held.intersection(one.status) for one in announced)


def read_replaced(situation: Situation) -> Former | None:
    """Return what the load balancer was whose move is under way, or None.

    Whoever may edit the Service may write the note: it is believed only of a load balancer that is the Service's, as
    with the name of another one comes the address that it had.
    """
    service, match = situation.service, situation.match
    noted = noted_move(service)
    if noted is None or not _is_of(noted, situation.cluster):
        return None
    own = {one.metadata.name for one in match.own}
    if noted.name in match.judged.keys() - own:
        # A copy of the cluster has the note of the original, whose load balancer that is.
        return None
    return noted if noted.name in {match.expected_name, *own} or is_name_of(noted.name, service) else None


def noted_move(service: Service) -> Former | None:
    """Return the note of a move on a Service, whoever wrote it; None for none, and for one that cannot be read.

    Its names are told in commands to be copied: what no object can be called is not read.
    """
    try:
        noted = read_note(service.metadata.annotation(MOVING) or "", Former)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    names = (noted.name, noted.cluster) if noted.cluster else (noted.name,)
    return noted if all(map(OBJECT_NAME.fullmatch, names)) else None


def _is_of(noted: Former, cluster: ClusterIdentity) -> bool:
    """Return whether a note of a move is one of this cluster's: older ones name none."""
    return noted.cluster in {"", *cluster.names}


def move_elsewhere(situation: Situation) -> Former | None:
    """Return the note of a move that a cluster of another name has begun for this very Service, or None.

    Whoever may edit the Service may write one: a copy has the finalizer of the original, and the name of the load
    balancer is made from that one's name and the Service's UID.
    """
    service, noted = situation.service, noted_move(situation.service)
    if noted is None or _is_of(noted, situation.cluster):
        return None
    meta = service.metadata
    made = load_balancer_name(noted.cluster, meta.namespace, meta.name, meta.uid)
    proven = noted.name == made or is_name_of(noted.name, service)
    return noted if proven and meta.has_finalizer(SERVICE_FINALIZER) else None
