"""The desired state of a Service whose address is a lease from DHCP, which kube-vip requests."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import LOAD_BALANCER_CLASS, Reason
from harvester_ccm.plan.service.announcing.endpoints import Reading
from harvester_ccm.plan.service.announcing.seen import LEASE_ANNOTATION
from harvester_ccm.plan.service.announcing.sequence import Wish
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, virtual_ip_ingress, waits_for
from harvester_ccm.plan.service.load_balancer.specification import load_balancer_change
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import Ready
from harvester_ccm.plan.service.waiting import without_addresses

LEASE_GRACE_SECONDS: Final = 30.0
"""Time that kube-vip can take to get a lease before an Event reports that none exists."""
_LOG_COMMAND: Final = (
    "kubectl -n kube-system logs -l 'app.kubernetes.io/name in (kube-vip, kube-vip-ds)' --prefix --tail=20"
)
"""The names are those of the charts and of kube-vip's own manifests."""


def with_lease(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, wish: Wish, leases: tuple[str, ...]) -> Desired:
    """Return the desired state with the leases of kube-vip; the load balancer gets a copy of the first one."""
    service = snapshot.service
    conflict = _lease_of_another(snapshot, leases)
    if conflict is not None:
        write = load_balancer_change(load_balancer, snapshot)
        return Desired(not_ready(conflict, snapshot), wish, finalizer=Finalizer.ADD, write=write)
    address = leases[0]
    # kube-vip writes a lease with the ports of that moment and does not follow them. Beside a lease, other addresses
    # are its own as well: one of another family, or that of a gateway.
    has_others = len(service.addresses) > 1 and address in service.addresses
    ingress = None
    if not has_others:
        ingress = virtual_ip_ingress(address, service)
    return Desired(
        Ready(leases, f"The load balancer has address {', '.join(leases)}"),
        wish,
        finalizer=Finalizer.ADD,
        ingress=ingress,
        write=load_balancer_change(load_balancer, snapshot, address=address),
    )


def _lease_of_another(snapshot: ServiceSnapshot, leases: tuple[str, ...]) -> EventMessage | None:
    """Return the Warning about a lease that Harvester has allocated to another load balancer, or None.

    A tenant can write kube-vip's annotations. The status is left as it is: kube-vip writes a lease once.
    """
    for lease in leases:
        for holder in snapshot.allocated_to_others(lease):
            cause = (
                f"kube-vip has noted {lease} as its lease from DHCP, but Harvester has allocated this address to load "
                f"balancer {holder.metadata.name}"
            )
            remedy = (
                "Take the range of the IP pool out of that of the DHCP server, and create this Service again without "
                f"annotation {LEASE_ANNOTATION}"
            )
            return EventMessage("Warning", Reason.ADDRESS_NOT_ALLOCATED, cause, remedy)
    return None


def plan_without_lease(snapshot: ServiceSnapshot, load_balancer: LoadBalancer, wish: Wish) -> Desired:
    """Return the state of a Service for which kube-vip has no lease; after a time, the endpoints show why.

    The status shows no other address, and kube-vip may write the lease there at this moment.
    """
    desired = Desired(
        waits_for(Reason.DHCP_LEASE_PENDING),
        wish,
        finalizer=Finalizer.ADD,
        ingress=without_addresses(snapshot),
        requires_version=True,
        write=load_balancer_change(load_balancer, snapshot),
    )
    left = LEASE_GRACE_SECONDS - snapshot.timers.since
    if left > 0:
        return replace(desired, look_again_after=left)
    if not snapshot.remembered.endpoints.is_current(snapshot.now):
        return replace(desired, reads_endpoints=True)
    return replace(desired, verdict=not_ready(_no_lease(snapshot), snapshot))


def _no_lease(snapshot: ServiceSnapshot) -> EventMessage:
    """Return the Event about a lease that is late: a missing endpoint comes first, because kube-vip waits for it."""
    reading = snapshot.remembered.endpoints.reading
    checks = [
        "that a DHCP server answers in the network of the nodes",
        "that the nodes have the kernel module macvlan, and last the log of kube-vip",
    ]
    if snapshot.remembered.is_touch_refused:
        checks.insert(0, "that this controller may list and patch endpointslices (chart: rbac.endpointSlices)")
    if snapshot.service.spec.load_balancer_class is not None:
        checks.insert(0, f"that kube-vip serves class {LOAD_BALANCER_CLASS} (lb_class_name)")
    if reading is Reading.MISSING:
        cause = (
            "The Service has no endpoint, and since version 1.2 kube-vip gets an address from DHCP only for a Service "
            "that has one"
        )
        remedy = f"Start a Pod of the Service. If that does not help, check in this order: {', '.join(checks)}"
        return EventMessage("Normal", Reason.DHCP_LEASE_PENDING, cause, remedy, _LOG_COMMAND)
    if reading is Reading.UNREADABLE:
        checks.insert(0, "that a Pod of the Service is ready (kube-vip gets an address only then)")
    remedy = f"Check in this order: {', '.join(checks)}"
    if snapshot.record is not None and snapshot.record.again:
        remedy = f"{remedy}. If nothing of that is wrong, restart kube-vip, or create the Service again"
    cause = "kube-vip has not got an address from DHCP yet"
    return EventMessage("Warning", Reason.DHCP_LEASE_PENDING, cause, remedy, _LOG_COMMAND)
