"""The request of a certain address: whether a new Service gets it, and what has to be done first.

Harvester's administrator decides in which pools this cluster may request one. There, a Service that has no load
balancer yet gets exactly the address that its user wrote, or waits for it. Everywhere else Harvester chooses, and
``address_events.not_as_requested`` says so afterwards. All of that follows from the pool as it was read, so a restart
between the request in the pool and the creation of the load balancer changes nothing.

Another cluster can take the address at any moment. That is seen either in the version of the pool, or afterwards.
"""

from enum import StrEnum, auto
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.event import EventMessage, abbreviate, quoted
from harvester_ccm.model.harvester import IPPool
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.address_pools import (
    GRANT,
    can_allocate,
    ranges_text,
)
from harvester_ccm.plan.service.desired import SeedPool
from harvester_ccm.plan.service.request import Ipam, Request, invalid_value
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

MACHINE_SECONDS: Final = 60.0
"""Time after which a Service is planned again whose address a Node has: no event shows that it has gone."""


class RequestStep(StrEnum):
    """What has to be done next for the requested address of a Service without a load balancer."""

    CREATE = auto()
    """Create the load balancer: nothing is requested, the request is in the pool, or it cannot be made."""
    AWAIT_RIGHTS = auto()
    """Wait until it is known in which pools an address can be requested."""
    READ_POOL = auto()
    """Read the pool."""
    SEED = auto()
    """Request the address in the pool."""
    WAIT = auto()
    """Create nothing: Harvester cannot allocate the address."""


class RequestAnswer(Struct, frozen=True):
    """What becomes of a request."""

    step: RequestStep
    warning: EventMessage | None = None
    """Why the Service waits, or why the request is not made."""
    look_again_after: float | None = None
    """Seconds after which a Service that waits is planned again; None: when something changes."""


_CREATE: Final = RequestAnswer(RequestStep.CREATE)


def answer_to_request(snapshot: ServiceSnapshot) -> RequestAnswer:
    """Return what becomes of the request of a Service without a load balancer."""
    request = snapshot.request
    rights = snapshot.pool_rights
    if not request.address or snapshot.has_had_address:
        # A Service that had an address gets that one again.
        return _CREATE
    if request.ipam is not Ipam.POOL or not request.ip_pool:
        return _CREATE
    if not rights.are_known:
        return RequestAnswer(RequestStep.AWAIT_RIGHTS)
    if not rights.permit(request.ip_pool):
        return _CREATE
    refused = snapshot.remembered.refused_seed
    if refused is not None and (refused.pool, refused.address) == (request.ip_pool, request.address):
        return RequestAnswer(RequestStep.CREATE, _refused(request, refused.answer))
    if snapshot.holder_of_requested:
        warning = _in_use(request, snapshot.holder_of_requested)
        return RequestAnswer(RequestStep.WAIT, warning, look_again_after=MACHINE_SECONDS)
    observed = snapshot.pool
    if observed is None or observed.name != request.ip_pool:
        return RequestAnswer(RequestStep.READ_POOL)
    return _by_pool(snapshot, observed.pool)


def seed_of(snapshot: ServiceSnapshot) -> SeedPool:
    """Return the write that requests the address in the pool. Raises LookupError if the pool was not read."""
    observed = snapshot.pool
    if observed is None or observed.pool is None:
        raise LookupError(f"the IP pool of Service {snapshot.service.metadata.key} was not read")
    version = observed.pool.metadata.resource_version
    return SeedPool(observed.name, version, snapshot.request.address, _owner(snapshot))


def _owner(snapshot: ServiceSnapshot) -> str:
    return f"{snapshot.cluster.namespace}/{snapshot.match.expected_name}"


def _by_pool(snapshot: ServiceSnapshot, pool: IPPool | None) -> RequestAnswer:
    """Return what becomes of a request by the state of the pool."""
    request = snapshot.request
    owner = _owner(snapshot)
    if pool is None:
        return RequestAnswer(RequestStep.WAIT, _no_pool(request))
    if owner in pool.allocated.values() or owner in pool.history.values():
        # The pool names an address for the load balancer, perhaps another one: that is what it gets.
        return _CREATE
    if not pool.is_usable:
        return RequestAnswer(RequestStep.WAIT, _no_pool(request))
    holder = _holder(snapshot, pool)
    if holder:
        return RequestAnswer(RequestStep.WAIT, _in_use(request, holder))
    if not can_allocate(pool, request.address):
        return RequestAnswer(RequestStep.WAIT, _never_free(request, pool))
    return RequestAnswer(RequestStep.SEED)


def _holder(snapshot: ServiceSnapshot, pool: IPPool) -> str:
    """Return which load balancer has the address; empty if none has. Harvester can lose the record of one in use."""
    address = snapshot.request.address
    for load_balancer in snapshot.allocated_to_others(address):
        return f"load balancer {load_balancer.metadata.name} in Harvester has it"
    if address not in pool.allocated:
        return ""
    namespace, _, name = pool.allocated[address].partition("/")
    if namespace != snapshot.cluster.namespace:
        # Load balancers of other namespaces are no business of this cluster.
        return "a load balancer of another namespace in Harvester has it"
    return f"load balancer {name} in Harvester has it"


def _in_use(request: Request, holder: str) -> EventMessage:
    cause = f"requests address {request.address} of IP pool {quoted(request.ip_pool)}, which is in use: {holder}"
    remedy = (
        "The Service gets the address when it is free, at the latest some minutes afterwards. For another address now, "
        "change or remove the request"
    )
    return EventMessage("Warning", Reason.ADDRESS_IN_USE, cause, remedy, place=_place(request))


def _no_pool(request: Request) -> EventMessage:
    cause = f"Harvester has no ready IP pool {quoted(request.ip_pool)}, of which address {request.address} is requested"
    remedy = f"Create it, or name another one in annotation {names.IP_POOL}"
    return EventMessage("Warning", Reason.NO_MATCHING_POOL, cause, remedy)


def _never_free(request: Request, pool: IPPool) -> EventMessage:
    """Return the Warning about an address that Harvester never allocates of this pool."""
    ranges = abbreviate(ranges_text(pool))
    expected = (
        f"an address of IP pool {quoted(request.ip_pool)} ({ranges or 'it has no range'}), and not the gateway, the "
        f"network or the broadcast address. Change it, or name another pool in annotation {names.IP_POOL}"
    )
    return invalid_value(request.address_setting, request.address, expected)


def _refused(request: Request, answer: str) -> EventMessage:
    cause = (
        f"requests address {request.address} of IP pool {quoted(request.ip_pool)}, and Harvester did not permit the "
        "request in the pool. The Service gets any address"
    )
    remedy = f"Have Harvester's administrator permit it ({GRANT}), then create the Service again"
    return EventMessage(
        "Warning",
        Reason.ADDRESS_NOT_AS_REQUESTED,
        cause,
        remedy,
        place=_place(request),
        answer=f"Harvester: {answer}",
    )


def _place(request: Request) -> str:
    """Return the setting with the request as the subject of a sentence."""
    setting = request.address_setting
    return setting if setting.startswith("spec.") else f"Annotation {setting}"
