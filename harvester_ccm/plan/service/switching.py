"""The replacement of a load balancer by one of the other workload type, at the request of the user."""

from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.creation import next_body
from harvester_ccm.plan.service.allocation.deletion import deletion_in
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.announcing.sequence import HOLD
from harvester_ccm.plan.service.desired import DeleteLoadBalancer, Desired, Document, Finalizer, waits_for
from harvester_ccm.plan.service.phase import Phase, is_creation_prevented
from harvester_ccm.plan.service.request import WorkloadType
from harvester_ccm.plan.service.sharing.permission import managed_secondaries
from harvester_ccm.plan.service.snapshot import ServiceSnapshot


def is_switch_possible(snapshot: ServiceSnapshot) -> bool:
    """Return whether the Service requests the other workload type, and the next load balancer can be created.

    The present one is deleted first, so the controller must be able to create the next one without it.
    """
    if not snapshot.wants_switch or snapshot.request.primary:
        return False
    is_vm = snapshot.request.workload_type is WorkloadType.VM
    return not is_creation_prevented(snapshot, is_vm=is_vm) and next_body(snapshot, is_vm=is_vm) is not None


def is_switch_started(snapshot: ServiceSnapshot) -> bool:
    """Return whether nothing is left to lose: the address is withdrawn, or Harvester has allocated none."""
    record = snapshot.record
    is_withdrawn = record is not None and record.step in {Step.WITHDRAWN, Step.HELD}
    return is_withdrawn or not snapshot.load_balancer.allocated_ip


def plan_switching(snapshot: ServiceSnapshot) -> Desired:
    """Withdraw the address, delete the load balancer, and leave the creation of the next one to the phase NEW.

    Nothing is withdrawn before Harvester has accepted the new one in a dry run. One patch pins the IP pool, so that
    Harvester allocates the same address again, and withdraws the address.
    """
    load_balancer = snapshot.load_balancer
    deletion = deletion_in(Phase.SWITCHING, snapshot, (load_balancer,))
    pinned = _pinned_pool(snapshot, load_balancer)
    dry_run = _dry_run(snapshot, is_prepared=not pinned)
    if not isinstance(deletion.write, DeleteLoadBalancer):
        return replace(deletion, dry_run=dry_run)
    withdrawn = Desired(
        waits_for(Reason.REPLACEMENT_PENDING),
        HOLD,
        annotations=pinned,
        finalizer=Finalizer.ADD,
        write=deletion.write,
        dry_run=dry_run,
        events=(_changing(snapshot),),
    )
    if not _is_shared(snapshot, load_balancer):
        return withdrawn
    # The secondaries withdraw the address when they see that this Service has.
    verdict = waits_for(Reason.SHARED_ADDRESS_PENDING)
    return replace(withdrawn, verdict=verdict, write=None, events=(), look_again_after=5.0)


def _changing(snapshot: ServiceSnapshot) -> EventMessage:
    cause = (
        f"The load balancer is replaced by one of workload type {snapshot.request.workload_type}: it is deleted now "
        "and created again. Its address is kept if Harvester allows it"
    )
    return EventMessage("Normal", Reason.CHANGING_WORKLOAD_TYPE, cause)


def _pinned_pool(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> dict[str, str | None]:
    pool = load_balancer.allocated_pool if load_balancer.spec.ipam == "pool" else ""
    return {names.IP_POOL: pool} if pool and not snapshot.request.ip_pool else {}


def _dry_run(snapshot: ServiceSnapshot, *, is_prepared: bool) -> Document | None:
    """Return the next load balancer, if Harvester must accept it in a dry run before the next write.

    A Service that is withdrawn already has no address to keep: a VM load balancer needs no second dry run.
    """
    is_vm = snapshot.request.workload_type is WorkloadType.VM
    is_withdrawn = is_prepared and snapshot.service.has_finalizer and is_switch_started(snapshot)
    return None if is_vm and is_withdrawn else next_body(snapshot, is_vm=is_vm)


def _is_shared(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> bool:
    """Return whether kube-vip may announce the address for a Service that shares it."""
    held = {*snapshot.service.addresses, load_balancer.allocated_ip, load_balancer.address}
    for secondary in managed_secondaries(snapshot):
        seen = read_seen(secondary)
        if seen.read_address and not held.isdisjoint(seen.status):
            return True
    return False


def switch_mismatch(cluster: ClusterIdentity) -> EventMessage:
    """Return the Warning for a Service whose load balancer is kept, because no other would be created in its place."""
    cause = (
        "The workload type is not changed: without the load balancer of this Service, Harvester has no load balancer "
        f"and no VM of this cluster in namespace {cluster.namespace}, so the next one would not be created"
    )
    remedy = (
        "Check the provider IDs of the Nodes: if all VMs were recreated, let a Node join again, or start the "
        "controller with --allow-harvester-change for the change"
    )
    return EventMessage("Warning", Reason.HARVESTER_MISMATCH, cause, remedy)
