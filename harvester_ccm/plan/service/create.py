"""The creation of a Service's load balancer, and its replacement by one of the other workload type."""

from __future__ import annotations

from typing import Final, cast

from harvester_ccm.config import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage, Refused, Wait, WaitReason
from harvester_ccm.names import IP_POOL, LB_TOUCH, Reason
from harvester_ccm.plan.service.kept_address import record_of
from harvester_ccm.plan.service.kube_vip import WITHDRAWN, Announcement, delegate, suppress, withdraw
from harvester_ccm.plan.service.load_balancer import Document, new_load_balancer
from harvester_ccm.plan.service.messages import CONTROLLER_PATIENCE
from harvester_ccm.plan.service.removal import plan_deletion
from harvester_ccm.plan.service.request import ignored_settings, unsupported
from harvester_ccm.plan.service.scope import is_served
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.vm_lb import wanted_spec
from harvester_ccm.plan.service.writes import (
    CreateLoadBalancer,
    DeleteLoadBalancer,
    Desired,
    ServiceChange,
    delete_load_balancer,
    service_patch,
)

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


def plan_creation(snapshot: ServiceSnapshot) -> Desired:
    """Return the desired state of a Service that has no load balancer."""
    service, request = snapshot.service, snapshot.request
    vm = request.wants_vm
    refusal = unsupported(service, vm=vm, new=snapshot.is_new)
    if refusal is not None or request.ipam is None:
        # The first problem is that of the annotation ipam.
        return Desired(Refused(WaitReason.NOT_SERVABLE), refusal or request.problems[0], service=_given_up(snapshot))
    body = _new_load_balancer(snapshot, vm=vm)
    if body is None:
        reason = WaitReason.NODE_PORTS if not wanted_spec(snapshot) else WaitReason.MACHINES
        return Desired(Wait(reason), service=ServiceChange(annotations=suppress(service)))
    switches = _is_switching(service, vm=vm)
    if switches and request.ipam == "dhcp":
        # Another machine requests the next lease, so the address is another one.
        return Desired(Wait(WaitReason.SWITCHING), service=ServiceChange(ingress=()))
    # kube-vip may have announced the address that the user requests.
    lost = not switches and is_served(service) and service.addresses[0] != request.address
    name = snapshot.match.expected_name
    annotations = delegate(service) if vm else suppress(service, keep_request=True)
    if snapshot.kept and not vm:
        annotations |= record_of(snapshot)
    # ``ignore`` is set only after kube-vip has seen the withdrawal.
    prepared = ServiceChange() if switches and vm else ServiceChange(annotations=annotations, finalizer=True)
    return Desired(
        Wait(WaitReason.NOT_PROCESSED, CONTROLLER_PATIENCE),
        events=(ignored_settings(service, request, vm=vm), _recreating(service, name) if lost else _ENSURING),
        service=prepared,
        then=CreateLoadBalancer(name, body),
    )


def _new_load_balancer(snapshot: ServiceSnapshot, *, vm: bool) -> Document | None:
    """Return the load balancer as it is created; None while the backends or node ports of one for VMs are not known."""
    service, request = snapshot.service, snapshot.request
    pool = request.ip_pool if request.ipam == "pool" else ""
    spec: Document = {"workloadType": "vm" if vm else "cluster", "ipam": request.ipam, "ipPool": pool}
    if vm:
        fields = wanted_spec(snapshot)
        if not fields or not snapshot.backends.known:
            return None
        spec.update(fields)
    body = new_load_balancer(service, request, snapshot.match.expected_name, snapshot.cluster, spec=spec)
    if vm:
        # Harvester may still collect the parts of an earlier load balancer of this name, and those of this one, too.
        metadata = cast("dict[str, Document]", body["metadata"])
        metadata["annotations"][LB_TOUCH] = "true"
    return body


def _is_switching(service: Service, *, vm: bool) -> bool:
    """Return whether the Service has the address of a load balancer of the other workload type."""
    found = Announcement.of(service)
    return found.withdrawn and found.ignored != vm and is_served(service)


def plan_harvester_mismatch(snapshot: ServiceSnapshot) -> Desired:
    """Return the plan for a Service without a load balancer if this is not known to be the Harvester of the cluster.

    A Service that has an address keeps it: it is announced, and allocated in the Harvester of the cluster.
    """
    suppressed = ServiceChange(annotations=suppress(snapshot.service))
    if snapshot.our_harvester is None:
        return Desired(Wait(WaitReason.MACHINES, 1.0), service=suppressed)
    cause = EventMessage("Warning", Reason.NOT_RECOGNISED, harvester_mismatch(snapshot.cluster))
    return Desired(Refused(WaitReason.NEW_HARVESTER), cause, service=suppressed)


def harvester_mismatch(cluster: ClusterIdentity) -> str:
    """Return the message for a cloud-config that leads to another Harvester or namespace."""
    return (
        f"Harvester has no load balancer and no VM of this cluster in namespace {cluster.namespace}: the cloud-config "
        "seems to lead to another Harvester or namespace. No load balancer is created there, and Services keep their "
        "addresses. Correct the cloud-config; if the cluster moved there, start the controller with "
        "--accept-new-harvester"
    )


def _given_up(snapshot: ServiceSnapshot) -> ServiceChange:
    """Return the change for a Service that cannot have a load balancer: the address of an earlier one is withdrawn."""
    service = snapshot.service
    if snapshot.kept:
        return ServiceChange()
    # What kube-vip shows of a withdrawn Service is the address of an earlier load balancer.
    if service.addresses and (is_served(service) or Announcement.of(service).withdrawn):
        return ServiceChange(annotations=WITHDRAWN, ingress=())
    return ServiceChange(annotations=suppress(service))


def _recreating(service: Service, name: str) -> EventMessage:
    """Return the Warning for a missing load balancer; Harvester allocates an address again by the name."""
    text = (
        f"No load balancer in Harvester has address {service.addresses[0]} of this Service; one is created as {name}. "
        "If that was its name, Harvester gives it the same address unless another load balancer has it now"
    )
    return EventMessage("Warning", Reason.RECREATING, text)


def plan_replacement(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, wanted: str) -> Desired | None:
    """Return how a load balancer is replaced by one of the ``wanted`` workload type; None if it cannot be created.

    Nothing is withdrawn before Harvester has accepted the new one in a dry run. One patch pins the IP pool, so that
    Harvester allocates the same address again, and withdraws the address.
    """
    service, request = snapshot.service, snapshot.request
    body = _new_load_balancer(snapshot, vm=wanted == "vm")
    if body is None or request.primary is not None or request.ipam is None:
        return None
    deletion = plan_deletion(snapshot, (load_balancer,))
    if deletion is None or not isinstance(deletion.then, DeleteLoadBalancer):
        return deletion
    pool = load_balancer.allocated_pool if load_balancer.spec.ipam == "pool" else ""
    pinned = {IP_POOL: pool} if pool and not request.ip_pool else {}
    withdrawn = withdraw(service) if Announcement.of(service).shown else {}
    prepared = ServiceChange(annotations={**pinned, **withdrawn}, finalizer=True)
    # A Service that is withdrawn already has no address to keep.
    check = body if wanted != "vm" or service_patch(service, prepared) else None
    if _announced_by_secondaries(snapshot, load_balancer):
        # They withdraw the address when they see that this Service has.
        return Desired(Wait(WaitReason.SECONDARIES, 5.0), service=prepared, check=check)
    text = (
        f"The load balancer is replaced by one of workload type {wanted}: it is deleted now and created again. Its "
        "address is kept if Harvester allows it"
    )
    return Desired(
        Wait(WaitReason.SWITCHING),
        events=(EventMessage("Normal", Reason.SWITCHING, text),),
        service=prepared,
        then=delete_load_balancer(load_balancer),
        check=check,
    )


def _announced_by_secondaries(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> bool:
    held = {*snapshot.service.addresses, load_balancer.allocated_ip, load_balancer.address}
    announced = (one for one in map(Announcement.of, snapshot.own_secondaries) if one.shown and not one.ignored)
    return any(held.intersection(one.status) for one in announced)
