"""The plan of a Service whose address Harvester announces: Harvester forwards to the nodes that may get traffic."""

from typing import Final

from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import AUTOSCALER_TAINT, EXCLUDE_NODE_LABEL, LB_UPDATE_AFTER_CREATE, Reason
from harvester_ccm.plan.service.allocation.state import Stage
from harvester_ccm.plan.service.announcing.address_events import address_events, allocated_before
from harvester_ccm.plan.service.announcing.sequence import Annotations, Goal, Wish
from harvester_ccm.plan.service.desired import Desired, Finalizer, not_ready, virtual_ip_ingress
from harvester_ccm.plan.service.load_balancer.refused import refused_ports_warning
from harvester_ccm.plan.service.load_balancer.specification import load_balancer_change
from harvester_ccm.plan.service.load_balancer.vm_spec import ports_left_out
from harvester_ccm.plan.service.messages import backends_warning
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import Ready, Verdict
from harvester_ccm.redaction import sanitize

UPDATE_AFTER_SECONDS: Final = 10.0
"""Time after which a new load balancer is written once more, so that Harvester repairs what is missing."""
FIRST_CHECKS_SECONDS: Final = 10.0
"""Time that a new load balancer gets for its first health checks, in addition to their own period."""
_NO_BACKEND: Final = EventMessage(
    "Warning",
    Reason.BACKENDS_UNHEALTHY,
    f"No Node of this cluster gets traffic: each is excluded (label {EXCLUDE_NODE_LABEL} or taint {AUTOSCALER_TAINT}), "
    "is being deleted, or has no VM that is known for certain",
    "Remove that label or taint from a Node; status lists Nodes without a VM",
)


def plan_announced_by_harvester(snapshot: ServiceSnapshot) -> Desired:
    """Keep listeners, backends and health check of the VM load balancer, and publish its address."""
    service = snapshot.service
    load_balancer = snapshot.load_balancer
    address = load_balancer.address
    update_in = _seconds_until_update(snapshot, load_balancer)
    checks_left = _seconds_of_first_checks(snapshot, load_balancer)
    removed: Annotations = {LB_UPDATE_AFTER_CREATE: None} if update_in is not None and update_in <= 0 else {}
    timers = [seconds for seconds in (update_in, checks_left) if seconds is not None and seconds > 0]
    return Desired(
        _verdict(snapshot, load_balancer),
        Wish(Goal.HOLD, address, had_address=True),
        finalizer=Finalizer.ADD,
        ingress=virtual_ip_ingress(address, service),
        write=load_balancer_change(load_balancer, snapshot, annotations=removed),
        events=address_events(snapshot, load_balancer, address),
        look_again_after=min(timers, default=None),
    )


def _seconds_until_update(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> float | None:
    """Return the seconds until a new load balancer is written once more; None if that is done.

    The reason is in ``specification.new_load_balancer``. The time counts from the address: before, Harvester has made
    neither Service nor EndpointSlice for it.
    """
    if load_balancer.metadata.annotation(LB_UPDATE_AFTER_CREATE) is None:
        return None
    return UPDATE_AFTER_SECONDS - snapshot.waited(Phase.ANNOUNCED_BY_HARVESTER)


def _verdict(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> Verdict:
    # While the VMs of the nodes are not known, some may get traffic.
    if snapshot.backends == ():
        return not_ready(_NO_BACKEND, snapshot)
    conflict = allocated_before(snapshot, load_balancer)
    if conflict is not None:
        return not_ready(conflict, snapshot)
    warning = _backends_warning(snapshot, load_balancer)
    if warning is not None and _seconds_of_first_checks(snapshot, load_balancer) is None:
        return not_ready(warning, snapshot)
    refused = refused_ports_warning(snapshot.service, ports_left_out(snapshot))
    if refused is not None:
        return not_ready(refused, snapshot)
    return Ready((load_balancer.address,), _ready_message(snapshot, load_balancer))


def _backends_warning(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> EventMessage | None:
    return backends_warning(load_balancer, is_labelled=snapshot.has_labelled_backend)


def _ready_message(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> str:
    """Return the message of the condition, with a problem that Harvester reports and whose effect is not known.

    Harvester keeps what it made before, so the address may well work. A problem that passes by itself is left out.
    """
    message = f"The load balancer has address {load_balancer.address}"
    reported = load_balancer.ready
    allocation = snapshot.allocation
    if reported is None or reported.status == "True":
        return message
    if _backends_warning(snapshot, load_balancer) is not None or allocation.stage is not Stage.FAILED:
        return message
    return f"{message}. Harvester reports: {sanitize(allocation.message)}"


def _seconds_of_first_checks(snapshot: ServiceSnapshot, load_balancer: LoadBalancer) -> float | None:
    """Return the seconds until the first health checks are over; None if they are, or no backend fails.

    A load balancer is not called unhealthy before its first checks are over, nor after a restart of this controller.
    """
    if snapshot.backends == () or _backends_warning(snapshot, load_balancer) is None:
        return None
    check = load_balancer.spec.health_check
    needed = FIRST_CHECKS_SECONDS
    if check is not None and check.port:
        needed += check.success_threshold * check.period_seconds + check.timeout_seconds
    left = needed - snapshot.waited(Phase.ANNOUNCED_BY_HARVESTER)
    return left if left > 0 else None
