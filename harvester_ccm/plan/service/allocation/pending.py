"""The plan of a Service whose load balancer has no address yet."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage, quoted
from harvester_ccm.model.harvester import IP_POOLS, LoadBalancer
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, IP_POOL, PROJECT, Reason
from harvester_ccm.plan.service.allocation.deletion import deletion_write, left_entry
from harvester_ccm.plan.service.allocation.state import Allocation, Requirement, Stage
from harvester_ccm.plan.service.announcing.address_events import not_allocated
from harvester_ccm.plan.service.announcing.sequence import HOLD
from harvester_ccm.plan.service.desired import Desired, Finalizer, LoadBalancerWrite, not_ready, waits_until
from harvester_ccm.plan.service.load_balancer.specification import load_balancer_change, searches_elsewhere
from harvester_ccm.plan.service.messages import (
    CONTROLLER_GRACE_SECONDS,
    UNAVAILABLE_GRACE_SECONDS,
    harvester_unavailable,
)
from harvester_ccm.plan.service.ownership.owner import Mark, mark_of
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.scope import was_served
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.waiting import while_waiting, without_addresses


def plan_pending(snapshot: ServiceSnapshot) -> Desired:
    """Wait for the address, and keep kube-vip from the Service.

    A load balancer in another pool or network than the Service requests now is deleted and created again: Harvester
    forgets what it has allocated in one pool when another one is named.
    """
    load_balancer = snapshot.load_balancer
    allocation = snapshot.allocation
    waits = _waiting(snapshot, allocation)
    desired = replace(waits, finalizer=Finalizer.ADD, write=_write(snapshot, load_balancer))
    if _is_retained(snapshot):
        return replace(desired, write=None).with_events(not_allocated(snapshot))
    if allocation.is_refused:
        # The address that the Service had belongs to another one, or may at any moment.
        return replace(desired, wish=HOLD, ingress=without_addresses(snapshot))
    is_reported = waits.is_reported and load_balancer.spec.ipam != "dhcp"
    warning = not_allocated(snapshot) if is_reported else None
    return while_waiting(snapshot, desired.with_events(warning))


def _is_retained(snapshot: ServiceSnapshot) -> bool:
    """Return whether kube-vip announces an address that the Go provider never got from Harvester.

    It stays until Harvester has allocated one, so that the change to this controller takes nothing away.
    """
    is_of_go = mark_of(snapshot.load_balancer, snapshot.cluster) is Mark.NONE
    is_announced = not snapshot.seen.ignored and snapshot.service.addresses == (snapshot.seen.read_address,)
    return snapshot.record is None and is_of_go and is_announced and was_served(snapshot.service)


def is_left_unprocessed(snapshot: ServiceSnapshot) -> bool:
    """Return whether the Warning is due that Harvester has not processed the load balancer, as far as is known."""
    is_pending = snapshot.remembered.phase == Phase.PENDING and snapshot.match.load_balancer is not None
    if not is_pending or snapshot.harvester_problem is not None:
        return False
    return snapshot.allocation.stage is Stage.NOT_PROCESSED and _seconds_to_warning(snapshot) <= 0


def _seconds_to_warning(snapshot: ServiceSnapshot) -> float:
    """Return the seconds before a Warning: a state that Harvester usually ends itself gets some time."""
    allocation = snapshot.allocation
    if allocation.passes_by_itself:
        return CONTROLLER_GRACE_SECONDS - snapshot.waited(Phase.PENDING)
    return 0.0


def _waiting(snapshot: ServiceSnapshot, allocation: Allocation) -> Desired:
    problem = snapshot.harvester_problem
    until_outage_counts = UNAVAILABLE_GRACE_SECONDS - snapshot.waited(Phase.PENDING)
    if problem is not None and until_outage_counts <= 0:
        return Desired(not_ready(harvester_unavailable(problem), snapshot))
    is_vm = snapshot.load_balancer.spec.workload_type == "vm"
    waits = waits_until(_seconds_to_warning(snapshot), pending_warning(allocation, is_vm=is_vm), snapshot)
    return waits if problem is None else replace(waits, look_again_after=until_outage_counts)


def _write(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> LoadBalancerWrite | None:
    """Return the change of the load balancer, or its deletion if the Service requests another pool or network.

    A load balancer whose pool was blocked for a deletion is also deleted, because Harvester never allocates an address
    for it. The same is true before Harvester 1.5.1 if the pool has an entry for it: the deletion releases the entry.
    """
    is_elsewhere = searches_elsewhere(load_balancer, snapshot) and not snapshot.allocation.passes_by_itself
    if is_elsewhere or load_balancer.is_closed or _has_left_entry(snapshot):
        return deletion_write(load_balancer)
    return load_balancer_change(load_balancer, snapshot)


def _has_left_entry(snapshot: ServiceSnapshot) -> bool:
    """Return whether a known pool has an entry for the load balancer, and Harvester has had the time to release it."""
    allocation = snapshot.allocation
    is_known = allocation.stage is Stage.DUPLICATE and bool(allocation.pool)
    return is_known and snapshot.waited(Phase.PENDING) >= CONTROLLER_GRACE_SECONDS


class _Text(Struct, frozen=True):
    """The Warning about a stage; ``{pool}`` is the pool after a blank."""

    reason: Reason
    cause: str
    remedy: str = ""


_TEXTS: Final[Mapping[Stage, _Text]] = {
    Stage.NOT_PROCESSED: _Text(
        Reason.NOT_PROCESSED,
        "Harvester's load balancer controller has not processed the load balancer",
        "Check that the deployment harvester-load-balancer in namespace harvester-system of Harvester is running",
    ),
    Stage.POOL_NOT_WRITTEN: _Text(
        Reason.ALLOCATING,
        "Harvester cannot write IP pool{pool}",
        "If this stays, the VM network of the pool was most likely deleted: create it again under its name, or create "
        f"the Service again with another pool in annotation {IP_POOL}",
    ),
    Stage.ALLOCATING: _Text(
        Reason.ALLOCATING,
        "Harvester is still allocating the address",
        "If this stays, check the status of the IP pool and the log of harvester-load-balancer in namespace "
        "harvester-system",
    ),
    Stage.DUPLICATE: _Text(
        Reason.ALLOCATING,
        "IP pool{pool} has an address for this load balancer, because its allocation was interrupted, and Harvester "
        "does not give it out",
        "If this stays although the load balancer is created again, which releases the address, check the log of "
        "harvester-load-balancer in namespace harvester-system",
    ),
    Stage.NOT_ANNOUNCED: _Text(
        Reason.ANNOUNCEMENT_PENDING,
        "Harvester does not announce an address for this Service yet",
        "Check that kube-vip runs in namespace harvester-system of Harvester and, for ipam dhcp, that a DHCP server "
        "answers there",
    ),
    Stage.POOL_EXHAUSTED: _Text(
        Reason.POOL_EXHAUSTED,
        "IP pool{pool} has no free address",
        "Add a range to it, or delete a Service that uses it. harvester-ccm cleanup --cluster-name=NAME deletes the "
        "load balancers of a cluster that no longer exists. If no load balancer uses it, an entry of its status names "
        "one that is gone (see the page about disaster recovery)",
    ),
    Stage.POOL_NOT_READY: _Text(
        Reason.NO_MATCHING_POOL,
        "Harvester has no ready IP pool{pool}",
        f"Create it, or name another one in annotation {IP_POOL}",
    ),
    Stage.OUT_OF_RANGE: _Text(
        Reason.ALLOCATION_FAILED,
        "The IP pool no longer has the address that a load balancer of this name had, and Harvester gives it no other "
        "one",
        "Add it to a range of the pool, or delete the Service and create it again",
    ),
    Stage.FAILED: _Text(
        Reason.ALLOCATION_FAILED,
        "Harvester did not allocate an address",
        "Check the log of the deployment harvester-load-balancer in namespace harvester-system of Harvester",
    ),
}


_SELECTORS_COMMAND: Final = (
    f"kubectl get {IP_POOLS.plural}.{IP_POOLS.group} -o "
    "custom-columns=NAME:.metadata.name,NETWORK:.spec.selector.network,SCOPE:.spec.selector.scope"
)
"""Run with the kubeconfig of Harvester: which Services each pool is for."""


def pending_warning(allocation: Allocation, *, is_vm: bool = False) -> EventMessage:
    """Return the Warning about a load balancer to which Harvester has given no address: why, and what to do."""
    if allocation.stage is Stage.NO_MATCHING_POOL:
        return _no_matching_pool(allocation, is_vm=is_vm)
    if "/" in allocation.missing_pool:
        return _pool_with_namespace(allocation)
    entry = left_entry(allocation)
    if entry is not None:
        return entry
    text = _TEXTS[allocation.stage]
    pool = allocation.missing_pool or allocation.pool
    named_pool = f" {quoted(pool)}" if pool else ""
    cause = text.cause.format(pool=named_pool)
    answer = f"Harvester: {allocation.message}" if allocation.message else ""
    if allocation.stage is Stage.NOT_PROCESSED:
        answer = ""
    return EventMessage("Warning", text.reason, cause, text.remedy, answer=answer)


def _pool_with_namespace(allocation: Allocation) -> EventMessage:
    """Return the Warning about a pool that cannot exist: its name has a namespace, as the name of a network has."""
    pool = allocation.missing_pool
    cause = f"Harvester has no IP pool {quoted(pool)}, because IP pools have no namespace"
    remedy = f"Name the pool without one in annotation {IP_POOL}: {quoted(pool.rpartition('/')[2])}"
    answer = f"Harvester: {allocation.message}"
    return EventMessage("Warning", Reason.NO_MATCHING_POOL, cause, remedy, answer=answer)


def _no_matching_pool(allocation: Allocation, *, is_vm: bool) -> EventMessage:
    """Return the Warning that no IP pool fits, with what Harvester has looked for."""
    wanted = allocation.requirement
    cause = "No IP pool of Harvester fits this Service"
    remedy = "Create a pool whose selector matches, or a global one"
    if wanted is not None:
        cause = f"No IP pool of Harvester fits {_searched(wanted) or 'this Service'}"
        remedy = _fitting_pool(wanted)
        if is_vm and not wanted.project:
            remedy = f"{remedy}. Since Harvester 1.7, a pool for a project fits only with annotation {PROJECT}"
    remedy = f"{remedy}. If a pool is meant for it, its selector is misspelt: see all with Harvester's kubeconfig"
    answer = f"Harvester: {allocation.message}"
    return EventMessage("Warning", Reason.NO_MATCHING_POOL, cause, remedy, _SELECTORS_COMMAND, answer=answer)


def _searched(wanted: Requirement) -> str:
    values = {
        "network": wanted.network,
        "project": wanted.project,
        "namespace": wanted.namespace,
        "cluster": wanted.cluster,
    }
    return ", ".join(f"{name} {quoted(value)}" for name, value in values.items() if value)


def _fitting_pool(wanted: Requirement) -> str:
    """Return what to do so that a pool fits."""
    where = "In Harvester"
    project = f"project {quoted(wanted.project)}, " if wanted.project else ""
    if wanted.cluster in ("", DEFAULT_CLUSTER_NAME):
        where = (
            "This cluster has no name of its own, and pools for a named one do not fit: set --cluster-name (chart: "
            "global.cattle.clusterName). Or in Harvester"
        )
    return (
        f"{where}, create an IP pool whose network is {wanted.network or '(none)'} and whose scope covers {project}"
        f"namespace {quoted(wanted.namespace)} and guest cluster {wanted.cluster or '(none)'}, or a global pool"
    )
