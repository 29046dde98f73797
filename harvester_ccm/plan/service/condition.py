"""The condition ``LoadBalancerReady`` in the status of a Service, for ``kubectl wait`` and GitOps tools.

It follows from the desired state: True if the Service has its address, otherwise False with the text of the Warning
that says why not. It is written only when it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harvester_ccm.model.core import ServiceCondition
from harvester_ccm.model.outcome import Done, EventMessage, Outcome, Refused, Wait, WaitReason
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import Desired
from harvester_ccm.redaction import inert

_ANNOUNCING: Final[Mapping[str, str]] = {
    WaitReason.ENDPOINTS: "kube-vip announces the address after the next change of the endpoints of the Service",
    WaitReason.DHCP: "kube-vip requests an address from DHCP",
}
"""Message for what a Service with a load balancer waits for, by the reason."""
_CLUSTER_WIDE: Final = frozenset({Reason.HARVESTER_UNAVAILABLE, Reason.NOT_RECOGNISED})
"""Causes that hold for all Services at once; a Service that has its address is not affected."""


def condition_of(desired: Desired, snapshot: ServiceSnapshot) -> ServiceCondition | None:
    """Return the condition that the Service has in its desired state; None if it has none."""
    service, outcome, cause = snapshot.service, desired.outcome, desired.cause
    if not snapshot.scope.ours or desired.service.finalizer is False:
        return None
    if cause is not None:
        return condition_for(cause, snapshot, outcome)
    ingress = desired.service.ingress
    addresses = service.addresses if ingress is None else tuple(one.ip for one in ingress if one.ip)
    if is_served(outcome):
        unhealthy = service.ready_condition is not None and service.ready_condition.reason == Reason.BACKENDS_UNHEALTHY
        lb = snapshot.match.lb
        is_ready = lb is not None and lb.ready is not None and lb.ready.status == "True"
        if not addresses or (unhealthy and not is_ready):
            # While Harvester reports another problem, the last known state of the backends stays.
            return service.ready_condition
        text = f"The load balancer has address {', '.join(addresses)}"
        return _condition(snapshot, "True", str(Reason.ENSURED), text)
    lacking = _ANNOUNCING.get(getattr(outcome, "reason", "")) or _lacking(snapshot, addresses)
    if isinstance(outcome, Wait) and lacking:
        return _condition(snapshot, "False", _camel(outcome.reason), lacking)
    return service.ready_condition


def condition_for(
    cause: EventMessage, snapshot: ServiceSnapshot, outcome: Outcome | None = None
) -> ServiceCondition | None:
    """Return the condition of a Service that is not ready for this cause; ``outcome`` names the reason, if given."""
    if cause.reason in _CLUSTER_WIDE and snapshot.service.addresses and not snapshot.scope.leaving:
        return snapshot.service.ready_condition
    named = outcome is not None and not is_served(outcome)
    reason = _camel(outcome.reason) if named and isinstance(outcome, Wait | Refused) else str(cause.reason)
    return _condition(snapshot, "False", reason, cause.message)


def is_served(outcome: Outcome) -> bool:
    """Return whether a Service with this outcome has its load balancer."""
    return isinstance(outcome, Done) or (
        isinstance(outcome, Wait) and outcome.reason in {WaitReason.TOUCH, WaitReason.BACKENDS}
    )


def _lacking(snapshot: ServiceSnapshot, addresses: tuple[str, ...]) -> str:
    """Return the message for a Service that waits without a Warning; empty if the condition does not change yet."""
    service, found = snapshot.service, Announcement.of(snapshot.service)
    if not service.metadata.has_finalizer(SERVICE_FINALIZER) and (found.wished or found.status):
        # kube-vip may announce the requested address of a new Service. Without the condition, a restarted process would
        # take that for the address of a Service that another provider served.
        return "An address is requested from Harvester"
    was_ready = service.ready_condition is not None and service.ready_condition.status == "True"
    return "The Service has no address at the moment" if was_ready and not addresses else ""


def _condition(snapshot: ServiceSnapshot, status: str, reason: str, message: str) -> ServiceCondition:
    return ServiceCondition(
        type=LOAD_BALANCER_READY,
        status=status,
        reason=reason,
        message=inert(message),
        observed_generation=snapshot.service.metadata.generation,
        last_transition_time=snapshot.wall_time,
    )


def _camel(reason: str) -> str:
    """Return a reason in the form of the API conventions.

    >>> _camel("pool_exhausted")
    'PoolExhausted'
    """
    return "".join(word.capitalize() for word in reason.split("_"))
