"""The desired state of a Service and its load balancer, which a plan returns, and the writes that lead there."""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct, field
from msgspec.structs import replace

from harvester_ccm.model.core import Ingress, Service, ServiceCondition, ServicePort
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.announcing.sequence import LEAVE, Wish
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.verdict import NotReady, Verdict

Document = dict[str, object]


class Finalizer(StrEnum):
    """What happens to this controller's finalizer on the Service."""

    KEEP = auto()
    """It stays as it is."""
    ADD = auto()
    REMOVE = auto()


class CreateLoadBalancer(Struct, frozen=True):
    """Create the load balancer in Harvester, as soon as the creation gate admits it."""

    name: str
    body: Document


class ChangeLoadBalancer(Struct, frozen=True):
    """Replace the load balancer in Harvester by one with these changes; None as a value of a map removes the key."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    status: Mapping[str, object] = field(default_factory=dict)


class DeleteLoadBalancer(Struct, frozen=True):
    """Delete the load balancer in Harvester if it has this UID and version; not found counts as deleted."""

    load_balancer: LoadBalancer


class TouchEndpoints(Struct, frozen=True):
    """Patch an EndpointSlice of the Service: kube-vip may announce an address only after a change of one."""


class SeedPool(Struct, frozen=True):
    """Name a load balancer in the history of an IP pool: Harvester gives it the address when it is created."""

    pool: str
    version: str
    """The version of the pool that was read: any change of it since can have booked the address."""
    address: str
    owner: str
    """``namespace/name`` of the load balancer."""

    @property
    def patch(self) -> Document:
        """The merge patch."""
        return {
            "metadata": {"resourceVersion": self.version},
            "status": {"allocatedHistory": {self.address: self.owner}},
        }


class PatchService(Struct, frozen=True):
    """Patch the Service in the guest cluster."""

    patch: Mapping[str, object]
    """A strategic merge patch."""
    releases: bool = False
    """Whether it removes the finalizer of this controller."""


LoadBalancerWrite = CreateLoadBalancer | ChangeLoadBalancer | DeleteLoadBalancer
Write = PatchService | LoadBalancerWrite | SeedPool | TouchEndpoints


class Desired(Struct, frozen=True):
    """The desired state of one Service and its load balancer."""

    verdict: Verdict
    """Whether the Service is ready when the objects have this state."""
    wish: Wish = LEAVE
    """What kube-vip must do."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """Annotations of this controller; None removes one."""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    finalizer: Finalizer = Finalizer.KEEP
    ingress: tuple[Ingress, ...] | None = None
    """The whole ``status.loadBalancer.ingress``; None: unchanged."""
    requires_version: bool = False
    """Whether the patch of the Service holds only for the version that was read."""
    write: LoadBalancerWrite | SeedPool | TouchEndpoints | None = None
    """The write that is sent when no field of the Service differs."""
    dry_run: Document | None = None
    """A load balancer that Harvester must accept in a dry run before anything is written."""
    events: tuple[EventMessage | None, ...] = ()
    """Events in addition to the Event of the verdict; None is no Event."""
    reads_pool: bool = False
    """Whether the IP pool of the request must be read when nothing is left to write. Then the Service is planned
    again."""
    reads_endpoints: bool = False
    """Whether the EndpointSlices must be read when nothing is left to write. Then the Service is planned again."""
    look_again_after: float | None = None
    """Seconds after which the Service is planned again; None: when something changes."""

    @property
    def is_reported(self) -> bool:
        """Whether the Event of the verdict is due."""
        return isinstance(self.verdict, NotReady) and self.verdict.emits_event

    def with_events(self, *events: EventMessage | None) -> "Desired":
        """Return the same state with these Events in front."""
        return replace(self, events=(*events, *self.events))


class ServicePlan(Struct, frozen=True):
    """The next write for a Service. The Service is planned again after it."""

    phase: str
    verdict: Verdict
    condition: ServiceCondition | None = None
    """The condition of the Service when the plan is carried out; None: it has none."""
    events: tuple[EventMessage, ...] = ()
    """A Normal Event is emitted when the write can be sent, or if there is none; a Warning in any case."""
    write: Write | None = None
    following_write: Write | None = None
    """The write that probably follows, for people."""
    dry_run: Document | None = None
    """A load balancer that Harvester must accept in a dry run before the write is sent."""
    reads_pool: bool = False
    """Whether, without a write, the IP pool of the request is read before the Service is planned again."""
    reads_endpoints: bool = False
    """Whether, without a write, the EndpointSlices of the Service are read before it is planned again."""
    look_again_after: float | None = None
    """Seconds after which the Service is planned again; None: when something changes."""

    @property
    def is_next_creation(self) -> bool:
        """Whether the load balancer is created next, or its address requested: one Service after the other."""
        if self.write is None:
            return self.reads_pool
        return isinstance(self.write, CreateLoadBalancer | SeedPool)

    @property
    def waiting_reason(self) -> str:
        """The reason for which the Service is not ready; empty if it is, or is not managed."""
        return self.verdict.reason if isinstance(self.verdict, NotReady) else ""


def virtual_ip_ingress(address: str, service: Service) -> tuple[Ingress, ...]:
    """Return the status for an address, in the form of kube-vip: any other makes it announce the address again."""
    ports = tuple(ServicePort(port=port.port, protocol=port.protocol) for port in service.spec.ports)
    return (Ingress(ip=address, ip_mode="VIP", ports=ports),)


def waits_for(reason: Reason) -> NotReady:
    """Return the verdict on a Service that waits in its usual time: no Event is due."""
    message = EventMessage("Warning", reason, f"The Service waits for {reason.meaning}")
    return NotReady(reason, message, changes_condition=False, emits_event=False)


def waits_at_most(grace_seconds: float, warning: EventMessage, snapshot: ServiceSnapshot, phase: str) -> Desired:
    """Return the state of a Service that waits; the Warning is due after the grace time in this phase."""
    return waits_until(grace_seconds - snapshot.waited(phase), warning, snapshot)


def waits_until(left: float, warning: EventMessage, snapshot: ServiceSnapshot) -> Desired:
    """Return the state of a Service that waits; the Warning is due in ``left`` seconds, and not before."""
    if left > 0:
        return Desired(waits_for(Reason(warning.reason)), look_again_after=left)
    return Desired(not_ready(warning, snapshot))


def not_ready(warning: EventMessage, snapshot: ServiceSnapshot) -> NotReady:
    """Return the verdict on a Service that is not ready for the cause in a Warning."""
    return NotReady(Reason(warning.reason), warning, changes_condition=_changes_condition(warning, snapshot))


def _changes_condition(warning: EventMessage, snapshot: ServiceSnapshot) -> bool:
    """Return whether the condition becomes False for the cause in a Warning.

    A cause that holds for all Services at once does not affect a Service that has its address and is ready. If the
    Service is not ready, its condition may be out of date: kube-vip can have got a lease meanwhile.
    """
    is_cluster_wide = warning.reason in {Reason.HARVESTER_UNAVAILABLE, Reason.HARVESTER_MISMATCH}
    condition = snapshot.service.ready_condition
    is_ready = condition is None or condition.status == "True"
    return not (is_cluster_wide and snapshot.service.addresses and is_ready and not snapshot.is_leaving)
