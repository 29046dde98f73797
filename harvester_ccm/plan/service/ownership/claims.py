"""Addresses of others that can be read on a Service: kube-vip announces an address for each Service that shows it.

A user who may edit a Service can write any address there, again and again. So the writes that remove one never wait,
and the Service that has the address gets an Event.
"""

from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.ownership.owner import allocated_addresses, may_be_of_cluster, service_key
from harvester_ccm.plan.service.sharing.permission import sharing_of
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, addresses_read


def owners_of_claimed(snapshot: ServiceSnapshot) -> tuple[LoadBalancer, ...]:
    """Return the load balancers of others to which Harvester has allocated an address that the Service shows."""
    claimed = addresses_read(snapshot.seen) - allocated_addresses(snapshot.match.own_load_balancers)
    owners = [owner for address in sorted(claimed) for owner in snapshot.allocated_to_others(address)]
    if not owners or not snapshot.request.primary or sharing_of(snapshot).gives_up:
        return tuple(owners)
    return tuple(owner for owner in owners if owner.allocated_ip not in snapshot.primary_allocated)


def shows_address_of_others(snapshot: ServiceSnapshot) -> bool:
    """Return whether the Service shows an address that something else has: the write that removes it never waits."""
    return snapshot.shows_held_address or bool(owners_of_claimed(snapshot))


def claim_events(snapshot: ServiceSnapshot) -> dict[str, EventMessage]:
    """Return the Warnings for other Services of this cluster whose addresses the Service shows, by their keys.

    An address that this controller has published there does not count: it is about to be withdrawn.
    """
    published = "" if snapshot.record is None else snapshot.record.address
    own_key = snapshot.service.metadata.key
    owners = [owner for owner in owners_of_claimed(snapshot) if owner.allocated_ip != published]
    claimed = {service_key(owner): owner for owner in owners if may_be_of_cluster(owner, snapshot.cluster)}
    return {key: _claimed(owner.allocated_ip, own_key) for key, owner in claimed.items()}


def _claimed(address: str, other: str) -> EventMessage:
    cause = (
        f"Address {address} of this Service was written to Service {other}, for which kube-vip can announce it as well "
        "until it is removed there. Traffic can reach the Pods of that Service meanwhile"
    )
    remedy = (
        "Find in its managed fields who does that. From Kubernetes 1.30 on, kubeVipPolicy=deny in the chart rejects "
        "such a change of a Service that exists"
    )
    return EventMessage("Warning", Reason.ADDRESS_CLAIMED, cause, remedy)
