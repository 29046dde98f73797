"""Snapshots of one Service, and its whole plan in a short form, for tests.

A row of a table names only what differs: ``World`` is the Service and what exists beside it, ``Plan`` what must follow.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    ANNOUNCED_AS,
    KUBE_VIP_ADDRESSES,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    WORKLOAD_TYPE,
    Reason,
)
from harvester_ccm.plan.service.announcing.endpoints import Endpoints, Reading
from harvester_ccm.plan.service.announcing.record import Record, Step, written_record
from harvester_ccm.plan.service.desired import (
    ChangeLoadBalancer,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    PatchService,
    SeedPool,
    ServicePlan,
    TouchEndpoints,
    Write,
)
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.sharing.ranking import rank
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState, observe
from harvester_ccm.plan.service.verdict import NotManaged, NotReady, Ready, Verdict
from tests.support.builders import (
    ADDRESS,
    CLUSTER,
    SUPPRESSED,
    UID,
    VM_SPEC,
    allocated,
    listed_store,
    marked,
    served,
    service,
)

Document = dict[str, Any]
BACKENDS: Final = ("vm-1", "vm-2")
EXHAUSTED: Final = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
NO_POOL: Final = "no matched IPPool with requirement &{Network: Project: Namespace:vms Cluster:demo}"
WITHDRAWN: Final = {KUBE_VIP_ADDRESSES: ""}
VM: Final = {WORKLOAD_TYPE: "vm"}
SHOWN: Final = f"{ADDRESS} VIP 80/TCP"
READY: Final = f"Ready {ADDRESS}"
SHARES: Final = {PRIMARY_SERVICE: "shop/main"}
"""Annotation of a Service that shares the address of ``PRIMARY``."""
SHARED: Final = {PRIMARY_SERVICE_LABEL: "shop.main"}
"""Label of a Service that has its address."""
PRIMARY: Final = served("main", uid="main-uid")
WAITING: Final = service(ours=True, annotations=SUPPRESSED)
"""A Service that waits for its address."""
HOSTED: Final = service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM})
"""A Service whose address Harvester announces."""
NO_NODE_PORTS: Final[Document] = {"spec": {"allocateLoadBalancerNodePorts": False}, "ports": [{"port": 80}]}
HEALTH_CHECK: Final = {
    "port": 30080,
    "successThreshold": 1,
    "failureThreshold": 3,
    "periodSeconds": 5,
    "timeoutSeconds": 3,
}
"""Of a Service with port 80 that sets nothing else of it."""
VM_LOAD_BALANCER: Final = allocated(spec=VM_SPEC)
EXHAUSTED_LOAD_BALANCER: Final = marked(message=EXHAUSTED)


def record_of(step: Step, address: str = ADDRESS, **more: Any) -> dict[str, str]:
    """Return the annotation with the record of a Service; ``more`` are fields of ``Record``."""
    usual = {"uid": UID, "fields": "Cluster IPv4 SingleStack", "again": False}
    return {ANNOUNCED_AS: written_record(Record(step=step, address=address, **{**usual, **more}))}


class World(NamedTuple):
    """A Service, the load balancers in Harvester, and further arguments of ``snapshot_of``."""

    service: Service
    load_balancers: tuple[LoadBalancer, ...] = ()
    facts: Mapping[str, Any] = MappingProxyType({})


class Plan(NamedTuple):
    """A whole plan in the short form of ``outline``."""

    phase: Phase
    verdict: str
    """Such as ``Ready 10.0.0.1``, ``NotReady Queued`` and ``NotManaged``."""
    condition: str = ""
    """Status and reason; empty for none."""
    write: object = None
    then: object = None
    """The write after it."""
    events: tuple[str, ...] = ()
    """Types and reasons."""
    delay: float | None = None
    """Seconds after which the Service is planned again."""
    dry_run: bool = False


def snapshot_of(
    service: Service,
    *load_balancers: LoadBalancer,
    cluster: ClusterIdentity = CLUSTER,
    waited: float = 0.0,
    waited_in: Phase | None = None,
    since: float = 0.0,
    touches: int = 0,
    reading: Reading = Reading.NONE,
    not_stored: Mapping[str, object] = MappingProxyType({}),
    ranked: tuple[Service, ...] = (),
    **fields: Any,
) -> ServiceSnapshot:
    """Return the snapshot of a Service with these load balancers, and further fields of the snapshot.

    ``waited`` is the time, in seconds, in its phase, or in the phase ``waited_in``, ``since`` that since the last step
    of the announcement, in which the endpoints were touched ``touches`` times, at last now. ``reading`` is what the
    endpoints showed. The snapshot is of the time 0. ``ranked`` are the Services that name the ``primary``.
    """
    store = listed_store([service], load_balancers, BACKENDS)
    if ranked:
        fields["ranking_of_primary"] = rank(fields["primary"], ranked, cluster)
    snapshot = replace(observe(store, service, cluster), **fields)
    phase = waited_in or phase_of(snapshot)
    remembered = ServiceState(
        phase=phase,
        since=-waited,
        record_since=-since,
        touches=touches,
        touched_at=0.0 if touches else -since,
        endpoints=Endpoints(reading),
        not_stored=dict(not_stored),
    )
    return replace(snapshot, remembered=remembered)


def snapshot_in(world: World) -> ServiceSnapshot:
    return snapshot_of(world.service, *world.load_balancers, **world.facts)


def plan(service: Service, *load_balancers: LoadBalancer, **facts: Any) -> ServicePlan:
    return plan_service(snapshot_of(service, *load_balancers, **facts))


def outline(world: World) -> Plan:
    made = plan(world.service, *world.load_balancers, **world.facts)
    return Plan(
        phase=Phase(made.phase),
        verdict=short_verdict(made.verdict),
        condition=short_condition(made.condition),
        write=short_write(made.write),
        then=short_write(made.following_write),
        events=reasons(made),
        delay=made.look_again_after,
        dry_run=made.dry_run is not None,
    )


def short_verdict(verdict: Verdict) -> str:
    match verdict:
        case Ready(addresses=addresses):
            return f"Ready {' '.join(addresses)}"
        case NotReady(reason=reason):
            return f"NotReady {reason}"
        case NotManaged():
            return "NotManaged"


def conditioned(reason: Reason, **more: Any) -> Service:
    """Return a Service with the finalizer and a condition, and without an address unless ``more`` has one."""
    return with_condition(service(ours=True, **more), "True" if reason is Reason.ENSURED else "False", reason)


def with_condition(concerned: Service, status: str, reason: str, message: str = "old") -> Service:
    """Return a Service with this controller's condition."""
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status=status, reason=reason, message=message)
    return replace(concerned, status=replace(concerned.status, conditions=(condition,)))


def short_condition(condition: ServiceCondition | None) -> str:
    return "" if condition is None else f"{condition.status} {condition.reason}"


def short_write(write: Write | None) -> object:
    """Return a write as a small document; ``condition`` is a patch of the condition alone."""
    match write:
        case PatchService(patch=patch, releases=releases):
            released = {"release": True} if releases else {}
            return {**_short_patch(patch), **released} or "condition"
        case CreateLoadBalancer(name=name, body=body):
            spec: Any = body["spec"]
            return {"create": name, **{key: value for key, value in spec.items() if key != "description"}}
        case ChangeLoadBalancer(name=name):
            parts = {part: value for part, value in asdict(write).items() if value and part != "name"}
            return {"change": name, **parts}
        case DeleteLoadBalancer(load_balancer=load_balancer):
            return {"delete": load_balancer.metadata.name}
        case SeedPool(pool=pool, version=version, address=address):
            return {"seed": address, "pool": pool, "version": version}
        case TouchEndpoints():
            return "touch"
    return None


def _short_patch(patch: Mapping[str, Any]) -> Document:
    metadata = {key: value for key, value in patch.get("metadata", {}).items() if key != "resourceVersion"}
    record = metadata.get("annotations", {}).get(ANNOUNCED_AS)
    if record:
        metadata["annotations"] = {**metadata["annotations"], ANNOUNCED_AS: short_record(record)}
    if "loadBalancer" not in patch.get("status", {}):
        return metadata
    ingress = patch["status"]["loadBalancer"]["ingress"] or ()
    return {**metadata, "ingress": [_short_entry(entry) for entry in ingress]}


def short_record(text: str) -> str:
    """Return step and address of a record as it is written, and what it says besides that."""
    record = msgspec.json.decode(text, type=Record)
    flags = {
        "again": record.again,
        "to respell": record.needs_respelling,
        "respelled": record.was_respelled,
        f"from {record.node}": bool(record.node),
        "answers": record.answers,
        record.fields: record.fields != "Cluster IPv4 SingleStack",
    }
    words = [record.step.value, record.address, *(word for word, is_set in flags.items() if is_set)]
    return ", ".join(word for word in words if word)


def _short_entry(entry: Document) -> str:
    ports = ",".join(f"{port['port']}/{port['protocol']}" for port in entry["ports"])
    return f"{entry['ip']} {entry['ipMode']} {ports}"


def reasons(made: ServicePlan) -> tuple[str, ...]:
    return tuple(f"{event.type} {event.reason}" for event in made.events)


def messages(made: ServicePlan, reason: str = "") -> list[str]:
    return [event.message for event in made.events if event.type == "Warning" and reason in {"", event.reason}]
