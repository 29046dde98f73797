"""Plans of Services that others serve, or that get no load balancer or no address because something prevents it."""

from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage, quoted
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.announcing.sequence import HOLD, LEAVE, Wish
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, waits_for
from harvester_ccm.plan.service.messages import harvester_mismatch
from harvester_ccm.plan.service.ownership.owner import foreign_warning
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.scope import was_secondary, was_served
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.supported import unsupported_reason
from harvester_ccm.plan.service.verdict import NotManaged
from harvester_ccm.plan.service.waiting import RECHECK_SECONDS, unpublished, waits_for_harvester, without_addresses


def plan_not_ours(snapshot: ServiceSnapshot) -> Desired:
    """Leave the Service to others."""
    return Desired(NotManaged(snapshot.scope.reason), events=(snapshot.scope.event,))


def plan_harvester_unknown(snapshot: ServiceSnapshot) -> Desired:
    """Wait while Harvester's load balancers or VMs cannot be read. Only a new Service is kept from kube-vip."""
    service = snapshot.service
    wish = LEAVE if service.has_finalizer else HOLD
    waits_for_vms = snapshot.harvester_known and not snapshot.is_leaving
    if was_served(service) and not snapshot.is_leaving:
        # For Services that have what they need, health checks and metrics report the outage.
        return Desired(waits_for(Reason.HARVESTER_UNAVAILABLE), wish, look_again_after=1.0 if waits_for_vms else None)
    problem = snapshot.machines_problem if waits_for_vms else snapshot.harvester_problem
    return replace(waits_for_harvester(problem, snapshot, Phase.HARVESTER_UNKNOWN), wish=wish)


def plan_wrong_harvester(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing. A Service that has an address keeps it: it is allocated in the Harvester of the cluster."""
    verdict = not_ready(harvester_mismatch(snapshot.cluster), snapshot)
    return Desired(verdict, _leave_if_served(snapshot), look_again_after=RECHECK_SECONDS)


def plan_name_taken(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing while a load balancer of another cluster has the name or the address."""
    conflict = snapshot.name_conflict
    if conflict is None:
        raise LookupError(f"no load balancer has the name or the address of Service {snapshot.service.metadata.key}")
    return Desired(not_ready(foreign_warning(conflict), snapshot), _leave_if_served(snapshot))


def _leave_if_served(snapshot: ServiceSnapshot) -> Wish:
    return LEAVE if was_served(snapshot.service) else HOLD


def plan_address_taken(snapshot: ServiceSnapshot) -> Desired:
    """Withdraw the address: Harvester has given it to another load balancer."""
    address = snapshot.taken_address
    holder = snapshot.allocated_to_others(address)[0]
    cause = (
        f"Address {address} is withdrawn: Harvester has given it to {holder.metadata.name}, and this Service gets "
        "another one"
    )
    verdict = not_ready(EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, cause), snapshot)
    if was_secondary(snapshot.service):
        # It has shared the address so far.
        verdict = waits_for(Reason.SHARED_ADDRESS_PENDING)
    return Desired(verdict, HOLD, ingress=(), look_again_after=1.0)


def plan_address_in_use(snapshot: ServiceSnapshot) -> Desired:
    """Do not publish a new address that a Node, an API server or the cluster has: that would lose its traffic.

    An IP pool, or the range of a DHCP server, overlaps with addresses of the nodes or of the cluster.
    """
    address, holder = next(iter(snapshot.holders_of_new.items()))
    cause = f"Address {address} is not published, because {holder}"
    load_balancer = snapshot.match.load_balancer
    pool = "" if load_balancer is None else load_balancer.allocated_pool
    source = f"IP pool {quoted(pool)} in Harvester" if pool else "the DHCP server"
    remedy = (
        f"Delete the Service, take the address out of the range of {source}, and create the Service again: Harvester "
        "refuses to take out an address that is allocated"
    )
    if address in snapshot.primary_allocated:
        remedy = f"Name another primary than Service {snapshot.request.primary}, which has this address"
    verdict = not_ready(EventMessage("Warning", Reason.ADDRESS_IN_USE, cause, remedy), snapshot)
    return unpublished(snapshot, Desired(verdict, finalizer=Finalizer.ADD))


def plan_unsupported(snapshot: ServiceSnapshot) -> Desired:
    """Create nothing until the Service is changed, and withdraw the address of an earlier load balancer."""
    service = snapshot.service
    request = snapshot.request
    refusal = unsupported_reason(service, is_vm=request.wants_vm)
    # Without a refusal, the annotation ipam is wrong, and the first problem says so.
    verdict = not_ready(refusal or request.problems[0], snapshot)
    return Desired(verdict, HOLD, ingress=without_addresses(snapshot))
