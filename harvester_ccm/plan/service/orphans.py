"""What becomes of a load balancer that has no Service: deleted only when nothing is left to doubt.

One whose Service was seen to go is deleted at once: an API server that has begun to delete an object without finalizers
does not see one that is added meanwhile, so a Service can go before it has cleaned up. One that is found has to look
left over for ``ORPHAN_GRACE`` seconds first, and ``--orphan-lbs`` says what is done with it. There is one
brake for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct, field

from harvester_ccm.config import OrphanPolicy
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.lister import Lister
from harvester_ccm.names import (
    DEFAULT_CLUSTER_NAME,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    SERVICE_FINALIZER,
)
from harvester_ccm.plan.service.cleanup import before_deletion
from harvester_ccm.plan.service.load_balancer import LoadBalancerChange
from harvester_ccm.plan.service.ownership import goes_by, marked_ours, service_key, service_uuid, shows_address
from harvester_ccm.plan.service.selection import scope_of

ORPHAN_GRACE: Final = 30.0
"""Seconds for which a load balancer that was found must look left over before it is deleted."""
LOOK_AGAIN: Final = 30.0
"""Seconds until one that cannot be deleted yet is looked at again; a change of it comes earlier."""
LOOK_AGAIN_SEEN: Final = 10.0
"""The same for one whose Service was seen to go."""
DELETION_WINDOW: Final = 60.0
"""Seconds in which no more than ``DELETIONS_AT_ONCE`` are deleted, seen or found: so many at once are a mistake of
somebody's most often, and there is time to stop it."""
DELETIONS_AT_ONCE: Final = 20
_UNMARKED: Final = (
    "it carries this cluster's name but no owner mark, so it may be another cluster's; delete it by hand if it is not"
)


class Orphan(Enum):
    """Whether a load balancer is left over."""

    NO = "no"
    CERTAIN = "certain"
    """Ours by mark and name, and its Service does not exist or is not served by it."""
    LIKELY = "likely"
    """Carries our cluster name and no mark; reported, never deleted."""


class Suspicion(Struct, frozen=True):
    """What is known besides the load balancer and the Service of its name."""

    age: float
    """Seconds for which the load balancer has looked left over."""
    seen_gone: bool = False
    """Whether the Service that it was made for was seen to go, without a clean-up that has dealt with it."""
    caches_current: bool = True
    """Whether both clusters can be read at the moment."""
    services: Iterable[Service] = ()
    """All Services; gone through once at most, and only for a load balancer that may be deleted."""
    turn_in: float = 0.0
    """Seconds until one more may be deleted, as of ``deletion_turn``."""


class OrphanPlan(Struct, frozen=True):
    """What to do with a load balancer."""

    delete: bool = False
    because: str = ""
    """Why it looks left over, or why it is not deleted yet; empty when it does not look so."""
    report: bool = False
    """Whether it is to be named in the log, with the reason."""
    braked: bool = False
    """Whether it is not deleted only because so many others were."""
    look_again: float | None = None
    """Seconds."""
    first: LoadBalancerChange = field(default_factory=LoadBalancerChange)
    """What is written in the place of a deletion, so that the next look may delete."""


def service_of(load_balancer: LoadBalancer, services: Lister[Service]) -> Service | None:
    """Return the Service that the labels name, or without labels the one whose UID an earlier provider noted."""
    key, uid = service_key(load_balancer), service_uuid(load_balancer)
    if key != "/" or not uid:
        return services.get(key)
    return next((one for one in services.all() if one.metadata.uid == uid), None)


def plan_orphan(
    load_balancer: LoadBalancer,
    service: Service | None,
    cluster: ClusterIdentity,
    suspicion: Suspicion,
    policy: OrphanPolicy = OrphanPolicy.DELETE,
) -> OrphanPlan:
    """Return what to do with a load balancer; ``service`` is the one that its labels name, if it exists."""
    mark = load_balancer.metadata.annotation(LB_SERVICE_UID)
    seen_gone = suspicion.seen_gone and (service is None or service.metadata.uid != mark)
    state = orphan_state(load_balancer, service, cluster, seen_gone=seen_gone)
    if state is Orphan.NO or (policy is OrphanPolicy.OFF and not seen_gone):
        return OrphanPlan()
    if state is Orphan.LIKELY:
        return OrphanPlan(because=_UNMARKED, report=policy is not OrphanPolicy.OFF)
    too_early = suspicion.age < ORPHAN_GRACE
    if too_early and not seen_gone:
        because = f"not deleted before it has looked left over for {ORPHAN_GRACE:.0f} s"
        return OrphanPlan(because=because, look_again=ORPHAN_GRACE - suspicion.age)
    report = not too_early and policy is not OrphanPolicy.OFF
    unsafe = _unsafe(load_balancer, suspicion)
    if unsafe:
        look_again = LOOK_AGAIN_SEEN if seen_gone else LOOK_AGAIN
        return OrphanPlan(because=unsafe, report=report, look_again=look_again)
    delete = seen_gone or policy is OrphanPolicy.DELETE
    if delete and suspicion.turn_in > 0:
        late = f"not deleted yet, because {DELETIONS_AT_ONCE} were in the last {DELETION_WINDOW:.0f} s"
        return OrphanPlan(because=late, report=report, braked=True, look_again=suspicion.turn_in)
    because = "made by this cluster for a Service that is gone or not served by it"
    first = (before_deletion(load_balancer) if delete else None) or LoadBalancerChange()
    return OrphanPlan(delete=delete, because=because, report=report, first=first)


def deletion_turn(deletions: Sequence[float], now: float) -> float:
    """Return the seconds until one more may be deleted; ``deletions`` are the times of the last ones, oldest first."""
    if len(deletions) < DELETIONS_AT_ONCE:
        return 0.0
    return max(deletions[-DELETIONS_AT_ONCE] + DELETION_WINDOW - now, 0.0)


def orphan_state(
    load_balancer: LoadBalancer, service: Service | None, cluster: ClusterIdentity, *, seen_gone: bool = False
) -> Orphan:
    """Return whether the load balancer is left over; ``service`` is the one of its name, if there is one.

    ``seen_gone``: the one that it was made for is gone, so ``service`` is another one.
    """
    meta = load_balancer.metadata
    labelled = bool(meta.label(LB_SERVICE_NAME) and meta.label(LB_SERVICE_NAMESPACE))
    if meta.deleting or not (labelled or service_uuid(load_balancer)):
        return Orphan.NO
    if service is not None and _keeps(service, cluster, seen_gone=seen_gone):
        return Orphan.NO
    if not goes_by(load_balancer, cluster):
        return Orphan.NO
    marked = marked_ours(load_balancer, cluster)
    if marked is not None and labelled:
        return Orphan.CERTAIN if marked else Orphan.NO
    unmarked = not meta.annotation(LB_OWNER)
    return Orphan.LIKELY if meta.label(LB_CLUSTER) not in ("", DEFAULT_CLUSTER_NAME) and unmarked else Orphan.NO


def _keeps(service: Service, cluster: ClusterIdentity, *, seen_gone: bool) -> bool:
    """Return whether the Service has the load balancer, takes it over, or cleans it up in order.

    One that holds our finalizer may be served by it even where we would not serve it any more. Another Service of the
    name has no such right.
    """
    if scope_of(service, cluster, owned=True).ours:
        return True
    return not seen_gone and service.metadata.has_finalizer(SERVICE_FINALIZER)


def _unsafe(load_balancer: LoadBalancer, suspicion: Suspicion) -> str:
    """Return why the load balancer must not be deleted now: its address would be lost, or taken from a Service."""
    if not suspicion.caches_current:
        return "not deleted while one of the clusters cannot be read"
    if any(shows_address(service, load_balancer) for service in suspicion.services):
        return "not deleted while a Service shows its address"
    if before_deletion(load_balancer) is None:
        return "not deleted until Harvester has booked or refused its address"
    return ""
