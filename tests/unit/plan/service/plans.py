"""Snapshots, plans and their short form for tests."""

from typing import Any

from msgspec.structs import asdict, replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.model.outcome import Outcome, WaitReason
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.ranking import rank, sharing_fields
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState, observe
from harvester_ccm.plan.service.writes import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    ServicePlan,
    TouchEndpoints,
    Write,
    service_patch,
)
from tests.worlds.builders import CLUSTER, listed_store

Document = dict[str, Any]
BACKENDS = ("vm-1", "vm-2")


def snapshot_of(
    service: Service,
    *load_balancers: LoadBalancer,
    cluster: ClusterIdentity = CLUSTER,
    waited: float = 0.0,
    touch_at: float | None = None,
    ranked: tuple[Service, ...] = (),
    **fields: Any,
) -> ServiceSnapshot:
    """Return the snapshot of a Service with these load balancers, and further fields.

    ``waited`` is the time in its phase, in seconds; ``touch_at`` is relative to now; ``ranked`` are the Services that
    name the same ``primary``.
    """
    store = listed_store([service], load_balancers, BACKENDS)
    if ranked:
        fields["ranking_of_primary"] = rank(
            sharing_fields(fields["primary"], cluster), [sharing_fields(one, cluster) for one in ranked]
        )
    state = ServiceState(since=-waited, touch_at=touch_at)
    return replace(observe(store, service, cluster), remembered=state, **fields)


def plan(service: Service, *load_balancers: LoadBalancer, **fields: Any) -> ServicePlan:
    """Return the plan for the snapshot with these fields."""
    found = plan_service(snapshot_of(service, *load_balancers, **fields))
    assert isinstance(getattr(found.outcome, "reason", WaitReason.OTHER), WaitReason), found.outcome
    return found


def outline(service: Service, *load_balancers: LoadBalancer, **fields: Any) -> tuple[list[str], object, Outcome]:
    """Return the short form of a plan: its Events, its write without the condition, and its outcome."""
    found = plan(service, *load_balancers, **fields)
    return reasons(found), short(found.write, service), found.outcome


def short(write: Write | None, service: Service) -> object:
    """Return a write as a small document; None for no write, and for a patch of the condition alone."""
    match write:
        case ChangeService(change=change, touch=touch):
            patch = service_patch(service, replace(change, condition=None))
            metadata: Any = patch.get("metadata", {})
            metadata.pop("resourceVersion", None)
            return {**metadata, **_status(patch), **({"touch": True} if touch else {})} or None
        case CreateLoadBalancer(name=name, body=body):
            spec: Any = body["spec"]
            return {"create": name, **{key: value for key, value in spec.items() if key != "description"}}
        case ChangeLoadBalancer(name=name):
            return {"write": name, **{key: value for key, value in asdict(write).items() if value and key != "name"}}
        case DeleteLoadBalancer(lb=lb):
            return {"delete": lb.metadata.name}
        case TouchEndpoints():
            return "touch endpoints"
    return None


def _status(patch: Document) -> Document:
    if "status" not in patch:
        return {}
    ingress = patch["status"]["loadBalancer"]["ingress"]
    return {"ingress": ingress and [_entry(one) for one in ingress]}


def _entry(ingress: Document) -> str:
    ports = ",".join(f"{port['port']}/{port['protocol']}" for port in ingress["ports"])
    return f"{ingress['ip']} {ingress['ipMode']} {ports}"


def reasons(found: ServicePlan) -> list[str]:
    """Return types and reasons of the Events."""
    return [f"{event.type} {event.reason}" for event in found.events]


def messages(found: ServicePlan, reason: str = "") -> list[str]:
    """Return the messages of the Warning Events, or of those with this reason."""
    return [one.message for one in found.events if one.type == "Warning" and reason in {"", one.reason}]
