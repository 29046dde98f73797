"""A Service that waits: what kube-vip announces meanwhile, and which address the status shows."""

from typing import Final

from msgspec.structs import replace

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import Ingress
from harvester_ccm.plan.service.announcing.sequence import HOLD, LEAVE
from harvester_ccm.plan.service.desired import Desired, waits_at_most
from harvester_ccm.plan.service.messages import UNAVAILABLE_GRACE_SECONDS, harvester_unavailable
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.request import Ipam
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

RECHECK_SECONDS: Final = 60.0
"""Time after which a Service is planned again that waits for the right Harvester, or for its address to be free:
nothing may wake it."""


def waits_for_harvester(problem: KubeError | None, snapshot: ServiceSnapshot, phase: Phase) -> Desired:
    """Return the state of a Service that waits until Harvester can be read; a request that failed is said at once."""
    grace = UNAVAILABLE_GRACE_SECONDS if problem is None else 0.0
    return waits_at_most(grace, harvester_unavailable(problem, snapshot.service), snapshot, phase)


def while_waiting(snapshot: ServiceSnapshot, desired: Desired) -> Desired:
    """Return a state in which the Service waits for an address from Harvester.

    An address that this controller has published stays announced. While the load balancer is replaced, the status goes
    on showing the address, because the Service gets it again. No other address is announced or shown: Harvester has
    not allocated it.
    """
    if snapshot.keeps_address:
        return replace(desired, wish=LEAVE)
    record = snapshot.record
    is_shown = record is not None and record.address in snapshot.service.addresses
    is_replaced = is_shown and snapshot.request.ipam is Ipam.POOL
    ingress = None if is_replaced else without_addresses(snapshot)
    return replace(desired, wish=HOLD, ingress=ingress)


def unpublished(snapshot: ServiceSnapshot, desired: Desired) -> Desired:
    """Return a state in which the Service does not get the address that it was given.

    An address that is published and still allocated to the Service stays. So does a lease: kube-vip would get it again.
    """
    desired = replace(desired, look_again_after=RECHECK_SECONDS)
    record = snapshot.record
    allocated = snapshot.match.given | snapshot.primary_allocated
    if record is not None and record.is_shown and record.address in allocated:
        return replace(desired, wish=LEAVE)
    return replace(desired, wish=HOLD, ingress=without_addresses(snapshot))


def without_addresses(snapshot: ServiceSnapshot) -> tuple[Ingress, ...] | None:
    """Return the status without any address; None if it has none: a host name there is a user's."""
    return () if snapshot.service.addresses else None
