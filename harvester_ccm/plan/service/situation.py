"""The vocabulary of Service plans: steps to take, in order, and what they are decided on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harvester_ccm.errors import CCMError
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import SINCE_1_2, Capabilities, LoadBalancer
from harvester_ccm.model.outcome import Done, EventMessage, Outcome
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.load_balancer import Document, Former, LoadBalancerChange
from harvester_ccm.plan.service.patch import ServiceChange, service_patch


@dataclass(frozen=True)
class ChangeService:
    """Patch the Service in the guest."""

    change: ServiceChange


@dataclass(frozen=True)
class CreateLoadBalancer:
    """Create the object in Harvester."""

    name: str
    body: Document


@dataclass(frozen=True)
class ChangeLoadBalancer:
    """Write the changed object in Harvester."""

    name: str
    change: LoadBalancerChange


@dataclass(frozen=True)
class DeleteLoadBalancer:
    """Delete that very object in Harvester; not found is success."""

    name: str
    uid: str


@dataclass(frozen=True)
class EmitEvent:
    """Write an Event on the Service, unless the plan before emitted the same."""

    event: EventMessage


Step = ChangeService | CreateLoadBalancer | ChangeLoadBalancer | DeleteLoadBalancer | EmitEvent


@dataclass(frozen=True)
class ServicePlan:
    """Steps in order, and the answer once all of them worked."""

    steps: tuple[Step, ...] = ()
    outcome: Outcome = field(default_factory=Done)


@dataclass(frozen=True)
class Situation:
    """All that is known about one Service and what it depends on."""

    service: Service
    cluster: ClusterIdentity
    load_balancers: tuple[LoadBalancer, ...] = ()
    """Those that carry the Service's labels, and the one that has its name."""
    primary: Service | None = None
    """The Service whose address this one shares, if it names one that exists."""
    primary_given: frozenset[str] | None = None
    """Addresses that Harvester has given for that Service; None while that is not known."""
    sharers: tuple[Service, ...] = ()
    """Services that name this Service's primary as theirs, or this Service itself; this Service left out."""
    dependants: tuple[Service, ...] = ()
    """Services that name this very Service as their primary, or were last served as its secondaries."""
    backends: tuple[str, ...] = ()
    """Names of the VMs of all nodes that may get traffic."""
    backends_known: bool = True
    """Whether the VMs have been listed; before that, the backends of a load balancer are left as they are."""
    backend_addresses: tuple[str, ...] = ()
    """Their addresses; followed only where load balancers do not select backends by label."""
    capabilities: Capabilities = SINCE_1_2
    """What a new load balancer can do."""
    network_devices: Mapping[str, str] | None = None
    """Network to device in the nodes; None while there is none."""
    mapping_known: bool = True
    """Whether that was looked up; before that, nothing is said about it."""
    harvester_known: bool = True
    """Whether Harvester's load balancers have been listed; before that, none found means nothing."""
    harvester_problem: CCMError | None = None
    waited: float = 0.0
    """Seconds since the Service entered its present phase."""
    since_hosted: float | None = None
    """Seconds since a VM load balancer of the Service was last there; None when none was."""
    former: Former | None = None
    """The last load balancer of the Service that had an address, if it was seen."""
    emitted: frozenset[EventMessage] = frozenset()
    """The Events of the plan before."""


def change_service(service: Service, change: ServiceChange) -> tuple[ChangeService, ...]:
    """Return the step for a change, or nothing if the Service is that way already."""
    return (ChangeService(change),) if service_patch(service, change) else ()


def hold(service: Service) -> tuple[ChangeService, ...]:
    """Return the step that keeps kube-vip from a Service while it waits for an address."""
    return change_service(service, ServiceChange(annotations=kube_vip.hold(service)))


def hand_to_harvester(service: Service) -> tuple[ChangeService, ...]:
    """Return the steps after which kube-vip leaves the Service, which then has our finalizer, to Harvester."""
    patches = (ServiceChange(annotations=one, finalizer=True) for one in kube_vip.hand_to_harvester(service))
    return tuple(step for change in patches for step in change_service(service, change))


def emit(*notes: EventMessage | None) -> tuple[EmitEvent, ...]:
    """Return a step for each note that there is."""
    return tuple(EmitEvent(note) for note in notes if note is not None)
