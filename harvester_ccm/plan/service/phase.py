"""The phases of a Service: one enum, and one function that returns the phase of a Service.

The phase follows from the snapshot alone. Each phase has one plan (``plan.PLANS``), and a change of the phase restarts
the time that the Service has waited.
"""

from enum import StrEnum

from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.allocation.chosen_network import is_withheld
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck
from harvester_ccm.plan.service.request import Ipam
from harvester_ccm.plan.service.scope import Role
from harvester_ccm.plan.service.sharing.permission import sharing_of
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.supported import unsupported_reason


class Phase(StrEnum):
    """The phases of a Service.

    They stand in the order in which ``phase_of`` decides. The docstring of each has three parts: what holds. Ends: what
    ends it. User: what the user sees, mostly a reason in the condition, an Event and ``status``.
    """

    NOT_OURS = "NotOurs"
    """Another controller, or none, serves the Service. Ends: with a change of its type, its class or the marks of
    another controller. User: at most the Normal Event ManagedByOtherController; the condition is removed."""
    HARVESTER_UNKNOWN = "HarvesterUnknown"
    """Harvester's load balancers have not been listed, or the one of the Service cannot be decoded, so its absence
    means nothing. Or the Service needs one, and the VMs, which would show that this is the Harvester of the cluster,
    have not been listed. Ends: when that is listed and decoded. User: an existing address works; a Service without an
    address, or one that is being deleted, has HarvesterUnavailable."""
    LEAVING = "Leaving"
    """The Service is being deleted, or is not to be served any more. Ends: when its load balancers are deleted and the
    finalizer is removed. User: the Events DeletingLoadBalancer and DeletedLoadBalancer; DeletionPending if something
    prevents the deletion."""
    SHARING = "Sharing"
    """The Service can use the address of its primary. Ends: when the annotation primary-service is changed, or when
    the address may not be shared any more. User: Ready; Announcing before."""
    SHARING_PENDING = "SharingPending"
    """The Service names a primary whose address it cannot use, and has no load balancer of its own. Ends: when the
    address of the primary can be used. User: SharedAddressPending after 60 s; AddressSharingRejected,
    InvalidAnnotation or Unsupported at once."""
    NAME_TAKEN = "NameTaken"
    """A load balancer of another cluster has the name or the address of the one that would be created. Ends: when that
    one is deleted, or adopted with the command in the Event. User: LoadBalancerOwnershipConflict."""
    WRONG_HARVESTER = "WrongHarvester"
    """The Service needs a load balancer, and Harvester has no other one and no VM of this cluster. Ends: with another
    cloud-config, with --allow-harvester-change, or when an object of this cluster appears. User: HarvesterMismatch; an
    existing address stays."""
    ADDRESS_TAKEN = "AddressTaken"
    """No load balancer of the Service has its address, and Harvester has given that to another load balancer. Ends:
    with the patch that withdraws the address. User: AddressNotAllocated, then another address."""
    UNSUPPORTED = "Unsupported"
    """The Service needs a load balancer, and none can serve it as it is. Ends: with a change of the Service. User:
    Unsupported, or InvalidAnnotation for a wrong ipam."""
    NEW = "New"
    """The Service has no load balancer, and nothing but a requested address prevents its creation. Ends: when it is
    created. User: the Event EnsuringLoadBalancer, or LoadBalancerLost if it had one; AddressInUse while something else
    has the requested address; CreationQueued without an Event."""
    OLD_TERMINATING = "OldTerminating"
    """The load balancer is being deleted, and its name and address are not free. Ends: when Harvester removes its
    finalizer from it. User: ReplacementPending after 30 s."""
    ADDRESS_IN_USE = "AddressInUse"
    """The Service has got an address that a Node, an API server or the cluster itself has. Ends: when that gives it up,
    or with another address. User: AddressInUse."""
    ANNOUNCED_BY_HARVESTER = "AnnouncedByHarvester"
    """Harvester announces the address and forwards to the nodes. Ends: with a change of the Service, or with the loss
    of the load balancer. User: Ready, or BackendsUnhealthy."""
    PENDING = "Pending"
    """The load balancer has no address; one that Harvester announces has none before the announcement. Ends: when it
    has an address, or when it is deleted because the Service requests another pool or network. User: NoMatchingPool,
    PoolExhausted or AllocationFailed at once; NotProcessed, Allocating or AnnouncementPending after 30 s."""
    OTHER_NETWORK = "OtherNetwork"
    """Harvester has allocated an address of another network than the Service requests, and nothing announces it. Ends:
    when the Service names a pool or requests another network: the load balancer is deleted. User:
    AddressInOtherNetwork."""
    ANNOUNCED_BY_KUBE_VIP = "AnnouncedByKubeVip"
    """Harvester has allocated the address, and kube-vip in this cluster announces it, or is to. Ends: with a change of
    the Service, or with the loss of the load balancer. User: Ready; before that Announcing, DHCPLeasePending
    or NetworkDeviceUnknown."""
    SWITCHING = "Switching"
    """The load balancer is replaced by one of the other workload type. Ends: when it is deleted, or when the user takes
    the request back. User: the Event ChangingWorkloadType; ReplacementPending, and no traffic for some seconds."""


def phase_of(snapshot: ServiceSnapshot) -> Phase:
    """Return the phase of a Service, but for SWITCHING, which follows when the present load balancer is settled."""
    role = snapshot.scope.role
    if role is Role.IGNORE:
        return Phase.NOT_OURS
    if _may_miss_load_balancer(snapshot):
        return Phase.HARVESTER_UNKNOWN
    if role is Role.REMOVE:
        return Phase.LEAVING
    if snapshot.request.primary:
        return _phase_of_secondary(snapshot)
    return _phase_alone(snapshot)


def _may_miss_load_balancer(snapshot: ServiceSnapshot) -> bool:
    """Return whether a load balancer of the Service may exist that the cache lacks."""
    if not snapshot.harvester_known:
        return True
    # One whose creation got no response may be missing in a cache that is not current.
    is_leaving = snapshot.scope.role is Role.REMOVE
    return is_leaving and snapshot.harvester_problem is not None and not snapshot.match.own_load_balancers


def _phase_of_secondary(snapshot: ServiceSnapshot) -> Phase:
    """Return the phase of a Service that names a primary.

    It keeps its own load balancer until it can use the address of the primary.
    """
    shared = sharing_of(snapshot).address
    if shared:
        return Phase.ADDRESS_IN_USE if shared in snapshot.holders_of_new else Phase.SHARING
    load_balancer = snapshot.match.load_balancer
    if load_balancer is None or load_balancer.metadata.deleting:
        return Phase.SHARING_PENDING
    return _phase_alone(snapshot)


def _phase_alone(snapshot: ServiceSnapshot) -> Phase:
    """Return the phase of a Service with an address of its own."""
    load_balancer = snapshot.match.load_balancer
    if load_balancer is None and (obstacle := _creation_obstacle(snapshot)) is not None:
        return obstacle
    if snapshot.taken_address:
        return Phase.ADDRESS_TAKEN
    if load_balancer is None:
        is_unsupported = _is_unsupported(snapshot, is_vm=snapshot.request.wants_vm)
        return Phase.UNSUPPORTED if is_unsupported else Phase.NEW
    return _phase_with(snapshot, load_balancer)


def _phase_with(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Phase:
    """Return the phase of a Service that has a load balancer of its own."""
    if load_balancer.metadata.deleting:
        return Phase.OLD_TERMINATING
    if snapshot.holders_of_new.keys() - snapshot.primary_allocated:
        return Phase.ADDRESS_IN_USE
    if load_balancer.spec.workload_type == "vm":
        return Phase.ANNOUNCED_BY_HARVESTER if load_balancer.address else Phase.PENDING
    if not load_balancer.allocated_ip:
        return Phase.PENDING
    return Phase.OTHER_NETWORK if is_withheld(snapshot) else Phase.ANNOUNCED_BY_KUBE_VIP


def _creation_obstacle(snapshot: ServiceSnapshot) -> Phase | None:
    """Return the phase in which no load balancer can be created, or None."""
    if snapshot.name_conflict is not None:
        return Phase.NAME_TAKEN
    match snapshot.harvester_check:
        case HarvesterCheck.UNKNOWN:
            return Phase.HARVESTER_UNKNOWN
        case HarvesterCheck.MISMATCH:
            return Phase.WRONG_HARVESTER
    return None


def is_creation_prevented(snapshot: ServiceSnapshot, *, is_vm: bool) -> bool:
    """Return whether no load balancer can be created for the Service, beside the one that it has."""
    return _creation_obstacle(snapshot) is not None or _is_unsupported(snapshot, is_vm=is_vm)


def _is_unsupported(snapshot: ServiceSnapshot, *, is_vm: bool) -> bool:
    refusal = unsupported_reason(snapshot.service, is_vm=is_vm)
    return refusal is not None or snapshot.request.ipam is Ipam.INVALID
