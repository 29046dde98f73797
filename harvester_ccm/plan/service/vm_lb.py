"""A VM load balancer: Harvester announces and balances, we keep its listeners, backends and check right.

Every port of the Service is mapped to its node port on every VM of the cluster that may get traffic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import Listener, LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Wait, WaitReason, some_of
from harvester_ccm.names import LB_TOUCH, VM_NAME, Reason
from harvester_ccm.plan.service.backends import NO_BACKEND
from harvester_ccm.plan.service.cleanup import keep_or_remake
from harvester_ccm.plan.service.cluster_lb import address_event, not_as_requested, wait_for_address, without_address
from harvester_ccm.plan.service.kube_vip import stripped, virtual_ip_ingress
from harvester_ccm.plan.service.load_balancer import Document, LoadBalancerChange, load_balancer_change
from harvester_ccm.plan.service.pending import backend_note
from harvester_ccm.plan.service.shared_address import approved
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import ServiceChange, ServicePlan, Step, change_service, emit, hand_to_harvester

TOUCH_AFTER: Final = 10.0
"""Seconds after which a recreated load balancer is written once more."""

FIRST_CHECKS: Final = 10.0
"""Seconds that a new load balancer gets for its first checks, beside the time that these take by themselves."""


def wanted_spec(situation: Situation) -> Document:
    """Return the fields of ``spec`` that follow Service, secondaries and nodes; empty without node ports."""
    service = situation.service
    front = listeners(service, approved(service, situation.secondaries_of_primary, situation.cluster))
    if not front:
        return {}
    backends, check = situation.backends, situation.request.health_check
    spec: Document = {
        "listeners": msgspec.to_builtins([*front]),
        "backendServerSelector": {VM_NAME: [*backends.names] or [NO_BACKEND]},
        "healthCheck": None if check is None else msgspec.to_builtins(check),
    }
    if not backends.known:
        del spec["backendServerSelector"]
    return spec


def plan_vm(situation: Situation, load_balancer: LoadBalancer) -> ServicePlan:
    """Return what to do for a Service whose VM load balancer exists."""
    service, address = situation.service, load_balancer.address
    change = load_balancer_change(load_balancer, situation, spec=wanted_spec(situation))
    # Before it has an address there is nothing that could be collected with the parts of the old one.
    change, touch_in = _touch(load_balancer, change, situation.waited) if address else (change, None)
    told = emit(_strangers(situation))
    kept: tuple[Step, ...] = (*told, *hand_to_harvester(service), *keep_or_remake(situation, load_balancer, change))
    if not address:
        prepared = change_service(service, without_address(situation, {}))
        return wait_for_address(situation).after(*kept, *prepared)
    health, check_in = _health(situation, load_balancer)
    served = ServiceChange(ingress=virtual_ip_ingress(address, service))
    steps: tuple[Step, ...] = (
        *emit(health, not_as_requested(service, situation.request, load_balancer, address)),
        *emit(stripped(service, "")),
        *kept,
        *change_service(service, served),
        *emit(address_event(situation, load_balancer, address)),
    )
    waits = [(WaitReason.TOUCH, touch_in), (WaitReason.BACKENDS, check_in)]
    due = min(((reason, seconds) for reason, seconds in waits if seconds is not None), key=lambda w: w[1], default=None)
    return ServicePlan(steps, Done() if due is None else Wait(*due))


def _health(situation: Situation, load_balancer: LoadBalancer) -> tuple[EventMessage | None, float | None]:
    """Return what to tell about the backends, and in how long to look again.

    A load balancer that is new, or new to us, is not called unhealthy before its first checks are over.
    """
    # While the VMs behind the nodes are not known, some may get traffic.
    if situation.backends.known and not situation.backends.names:
        return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, situation.backends.none_because), None
    said = situation.service.ready_condition
    before = said.message if said is not None and said.reason == Reason.BACKENDS_UNHEALTHY else None
    note = backend_note(load_balancer)
    if note is not None:
        check = load_balancer.spec.health_check
        first = check.success_threshold * check.period_seconds + check.timeout_seconds if check and check.port else 0
        left = first + FIRST_CHECKS - situation.waited
        return (None, left) if left > 0 and before is None else (note, None)
    if before is None:
        return None, None
    ready = load_balancer.ready
    if ready is None or ready.status != "True":
        # Another trouble of Harvester's hides the nodes: what was said of them holds until it says more.
        return EventMessage("Warning", Reason.BACKENDS_UNHEALTHY, before), None
    servers = sorted(load_balancer.backends)
    text = f"Harvester sends traffic to the nodes again; it knows {', '.join(servers) or 'them'} as backends"
    return EventMessage("Normal", Reason.BACKENDS_HEALTHY, text), None


def _strangers(situation: Situation) -> EventMessage | None:
    """Return what to tell about nodes that are left out because it is not certain which VM they are."""
    names, backends = situation.backends.strangers, situation.backends
    if not names or not backends.known:
        return None
    text = (
        f"Harvester sends no traffic to {some_of(names)}: for these nodes no VM in the namespace "
        "of the cloud-config is known for certain. See: harvester-ccm explain node NAME"
    )
    return EventMessage("Warning", Reason.NODES_WITHOUT_VM, text)


def _touch(
    load_balancer: LoadBalancer, change: LoadBalancerChange, waited: float
) -> tuple[LoadBalancerChange, float | None]:
    """Return the change with the late second write of a recreated load balancer in it, and in how long that is due."""
    if load_balancer.metadata.annotation(LB_TOUCH) is None:
        return change, None
    if waited < TOUCH_AFTER:
        return change, TOUCH_AFTER - waited
    annotations = {**change.annotations, LB_TOUCH: None}
    return LoadBalancerChange(change.labels, annotations, change.spec, change.address), None


def listeners(service: Service, secondaries: Iterable[Service]) -> tuple[Listener, ...]:
    """Return one listener per port of the Service and of the Services that share its address.

    Ports without a node port (not yet allocated) are left out. Names are unique DNS labels.
    """
    made: dict[tuple[str, int], Listener] = {}
    used: set[str] = set()
    for owner in (service, *secondaries):
        for port in owner.spec.ports:
            if not port.node_port or (port.protocol, port.port) in made:
                continue
            wish = port.name if port.name and owner is service else f"{port.protocol.lower()}-{port.port}"
            name = _unused(wish, used)
            used.add(name)
            listener = Listener(name=name, port=port.port, protocol=port.protocol, backend_port=port.node_port)
            made[port.protocol, port.port] = listener
    return tuple(made.values())


def _unused(wish: str, used: set[str]) -> str:
    name, number = wish, 2
    while name in used:
        name, number = f"{wish[:58]}-{number}", number + 1
    return name
