"""The deletion of load balancers without the loss of an address; read ``deletion_write`` first."""

from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import LB_CONTROLLER_FINALIZER, LB_RECONCILE, Reason
from harvester_ccm.plan.service.allocation.state import Allocation, read_allocation
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, DeleteLoadBalancer, Desired, waits_for
from harvester_ccm.plan.service.messages import release_entry_command
from harvester_ccm.plan.service.scope import finalizer_remedy
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotReady

FORCED_AFTER_SECONDS: Final = 300.0
"""Time after which a load balancer is deleted although Harvester has not recorded its address, if nothing else is left
to be done before."""
REPORTED_AFTER_SECONDS: Final = 30.0
"""Time after which an Event reports what a deletion waits for."""
DELETING: Final = EventMessage("Normal", Reason.DELETING, "Deleting load balancer")
_WAITS: Final = EventMessage(
    "Warning",
    Reason.DELETION_PENDING,
    "Harvester has not finished recording the address of the load balancer; a deletion now would lose the address. It "
    f"is deleted in any case after {FORCED_AFTER_SECONDS:.0f} s",
    "Check that harvester-load-balancer in namespace harvester-system runs",
)


def left_entry(allocation: Allocation) -> EventMessage | None:
    """Return the Warning about an entry of a pool that Harvester does not release by itself, or None."""
    entry = allocation.entry
    if entry is None or allocation.pool:
        return None
    cause = (
        f"An IP pool of Harvester has address {entry.address} for this load balancer, because its allocation was "
        "interrupted. Harvester before 1.5.1 gives the load balancer no address, and a deletion leaves the entry"
    )
    remedy = "Release the entry with the kubeconfig of Harvester"
    command = release_entry_command(entry.address, entry.owner)
    answer = f"Harvester: {allocation.message}"
    return EventMessage("Warning", Reason.ALLOCATING, cause, remedy, command, answer=answer)


def _first_write(
    load_balancers: Iterable[LoadBalancer], *, is_forced: bool
) -> ChangeLoadBalancer | DeleteLoadBalancer | None:
    for load_balancer in load_balancers:
        write = deletion_write(load_balancer)
        if write is not None:
            return write
        if is_forced:
            return DeleteLoadBalancer(load_balancer)
    return None


def _warning(load_balancers: Iterable[LoadBalancer]) -> EventMessage:
    """Return the Warning about a deletion that waits."""
    for load_balancer in load_balancers:
        entry = left_entry(read_allocation(load_balancer))
        if entry is not None and not load_balancer.allocated_ip:
            return replace(entry, reason=Reason.DELETION_PENDING)
    return _WAITS


def deletion_in(phase: str, snapshot: ServiceSnapshot, load_balancers: Collection[LoadBalancer]) -> Desired:
    """Return the next step of the deletion of load balancers of a Service, which waits for it in this phase.

    While a secondary is being reconciled, the patch by which it begins to share the address may be on its way.
    """
    if snapshot.secondary_in_progress:
        return Desired(waits_for(Reason.SHARED_ADDRESS_PENDING), look_again_after=1.0)
    return next_deletion(load_balancers, snapshot.waited(phase))


def next_deletion(load_balancers: Collection[LoadBalancer], waited: float) -> Desired:
    """Return the next step of the deletion of load balancers that are not being deleted yet.

    ``waited`` is the time in seconds for which the Service has waited for it.
    """
    is_forced = waited >= FORCED_AFTER_SECONDS
    write = _first_write(load_balancers, is_forced=is_forced)
    if isinstance(write, DeleteLoadBalancer):
        return Desired(waits_for(Reason.DELETION_PENDING), write=write, events=(DELETING,))
    is_reported = waited >= REPORTED_AFTER_SECONDS
    warning = _warning(load_balancers)
    verdict = NotReady(Reason.DELETION_PENDING, warning, changes_condition=is_reported, emits_event=is_reported)
    limit = FORCED_AFTER_SECONDS if is_reported else REPORTED_AFTER_SECONDS
    return Desired(verdict, write=write, look_again_after=limit - waited)


def deletion_write(load_balancer: LoadBalancer) -> ChangeLoadBalancer | DeleteLoadBalancer | None:
    """Return the deletion of a load balancer, or the write that must precede it; None while Harvester must respond.

    Harvester allocates an address in the pool first, records it on the load balancer next and adds its finalizer last;
    a deletion in between loses the address for good. After a refusal Harvester may allocate at any moment. With the
    pool named in the status it allocates nothing more, fails to record what it is allocating just now, and releases
    that on deletion; but a deletion that arrives before that allocation releases nothing. Harvester processes one load
    balancer once at a time, so its response to the blocked pool shows that no allocation is in progress. A pool that
    does not exist must not be named: Harvester would never remove its finalizer.
    """
    meta = load_balancer.metadata
    if not meta.has_finalizer(LB_CONTROLLER_FINALIZER):
        return None
    is_blocked = load_balancer.is_closed and load_balancer.ready is not None
    if load_balancer.allocated_ip or is_blocked:
        return DeleteLoadBalancer(load_balancer)
    allocation = read_allocation(load_balancer)
    if allocation.pool:
        # Harvester's next response is a new condition.
        status = {"allocatedAddress": {"ipPool": allocation.pool}, "conditions": None}
        return ChangeLoadBalancer(meta.name, status=status)
    if allocation.passes_by_itself:
        return None
    if meta.annotation(LB_RECONCILE) is not None:
        return DeleteLoadBalancer(load_balancer)
    # Harvester searches once more: its answer may be older than the request.
    return ChangeLoadBalancer(meta.name, annotations={LB_RECONCILE: "true"}, status={"conditions": None})


def deletion_remedy(load_balancer: LoadBalancer) -> str:
    """Return what to do if Harvester does not complete the deletion of a load balancer.

    The pool can be deleted while it is being blocked, or at any time after the allocation. Harvester then never removes
    its finalizer, because it cannot release the address.
    """
    meta = load_balancer.metadata
    others = [name for name in meta.finalizers or () if name != LB_CONTROLLER_FINALIZER]
    if others:
        remedy = finalizer_remedy(f"{LOAD_BALANCERS.plural}.{LOAD_BALANCERS.group} -n {meta.namespace} {meta.name}")
        return f"It waits for finalizers in Harvester: {abbreviate(others)}. {remedy}, with the kubeconfig of Harvester"
    remedy = "Check that harvester-load-balancer and its webhook run in namespace harvester-system"
    pool = load_balancer.allocated_pool
    if not pool:
        return remedy
    return (
        f"{remedy}. If IP pool {pool!r} does not exist any more, create it again under this name, with any range: "
        "Harvester completes the deletion then"
    )
