"""Service plans in short, for tests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.model.outcome import Outcome, WaitReason
from harvester_ccm.names import SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.backends import Backends
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.ownership import match_load_balancer
from harvester_ccm.plan.service.scope import scope_of
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
OURS = [SERVICE_FINALIZER]
OF_BACKENDS = {
    "backends": "names",
    "backends_known": "known",
    "no_backend_because": "none_because",
    "stranger_nodes": "strangers",
}
"""What tests say of a snapshot's backends, by the fields of those."""
REMEMBERED = ("touch_at",)
"""What they say of what is remembered, besides how long ago something was."""
AGO = {"waited": "since"}
"""Seconds that they give, by the times that those were at."""


def snapshot_of(
    service: Service, *load_balancers: LoadBalancer, cluster: ClusterIdentity = CLUSTER, **more: Any
) -> ServiceSnapshot:
    """Return what is known of a Service with these load balancers; ``more`` are further fields of the snapshot."""
    store = listed_store([service], load_balancers, Backends())
    seen = observe(store, service, cluster)
    match = match_load_balancer(load_balancers, service, cluster)
    scope = scope_of(service, cluster, owned=match.lb is not None)
    backends = Backends(**{field: more.pop(name) for name, field in OF_BACKENDS.items() if name in more})
    known = {name: more.pop(name) for name in REMEMBERED if name in more}
    ago = {field: more.pop(name) for name, field in AGO.items() if name in more}
    times = {field: -seconds for field, seconds in ago.items() if seconds is not None}
    remembered = ServiceState(**known, **times)
    return replace(seen, match=match, scope=scope, backends=backends, remembered=remembered, **more)


def plan(service: Service, *load_balancers: LoadBalancer, **more: Any) -> ServicePlan:
    """Return the plan for a Service in ``CLUSTER``; ``more`` are further fields of the snapshot."""
    known: Document = {"backends": ("vm-1", "vm-2"), **more}
    made = plan_service(snapshot_of(service, *load_balancers, **known))
    assert isinstance(getattr(made.outcome, "reason", WaitReason.OTHER), WaitReason), made.outcome
    return made


def outline(service: Service, *load_balancers: LoadBalancer, **more: Any) -> tuple[list[str], object, Outcome]:
    """Return the whole plan in short: its Events, its write without the condition, and its outcome."""
    made = plan(service, *load_balancers, **more)
    return told(made), short(made.write, service), made.outcome


def short(write: Write | None, service: Service) -> object:
    """Return a write as a small document; None for no write, and for a patch of the condition alone."""
    match write:
        case ChangeService(change=change, touch=touch):
            patch = service_patch(service, replace(change, condition=None))
            metadata: Any = patch.get("metadata", {})
            metadata.pop("resourceVersion", None)
            return {**metadata, **_status(patch), **({"touch": True} if touch else {})} or None
        case CreateLoadBalancer(name=name, body=body):
            return {"create": name, **body["spec"]}  # type: ignore[dict-item]  # a spec is a document
        case ChangeLoadBalancer(name=name):
            return {"write": name, **{key: value for key, value in asdict(write).items() if value and key != "name"}}
        case DeleteLoadBalancer(name=name):
            return {"delete": name}
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


def told(made: ServicePlan) -> list[str]:
    """Return the types and reasons of the Events."""
    return [f"{event.type} {event.reason}" for event in made.events]


def said(made: ServicePlan, reason: Reason) -> str:
    """Return the texts of the Events with this reason, one per line."""
    return "\n".join(event.message for event in made.events if event.reason == reason)
