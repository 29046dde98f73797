"""``explain service``: its request, its load balancers, what is wrong with it, and the next write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from harvester_ccm.commands.checks import Result, check_admission
from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.verdict import judge_service
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, WaitReason
from harvester_ccm.names import VM_NAME
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.load_balancer import changed_document, described
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.request import Request
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    TouchEndpoints,
    Write,
    service_patch,
)


async def explain_service(
    store: ClusterStore, key: str, settings: Settings, harvester: ApiClient
) -> tuple[Document, bool]:
    """Return the explanation of a Service, and whether all is well. Raises CCMError if there is no such Service."""
    snapshot, plan, verdict = judge_service(store, _find(store, key), settings)
    writes = [one for one in (plan.write, plan.then) if one is not None]
    body = plan.check or next((one.body for one in writes if isinstance(one, CreateLoadBalancer)), None)
    check = await check_admission(harvester, described(body, snapshot), store.cluster.namespace) if body else None
    problem = None if snapshot.harvester_known else snapshot.harvester_problem
    is_named = any(one.reason == "HarvesterUnavailable" for one in verdict.reasons)
    document = {
        **_observed(snapshot),
        **verdict.explained(),
        "problem": harvester_unavailable(problem).message if problem and not is_named else "",
        "waitsFor": "" if isinstance(plan.outcome, Done) else WaitReason(plan.outcome.reason).meaning,
        "dryRun": dict(zip(("result", "detail", "advice"), map(str, check), strict=True)) if check else None,
        "nextWrites": [_described(one, snapshot) for one in writes],
        "notes": store.notes,
    }
    is_rejected = check is not None and check[0] is Result.FAILED
    return document, not ((verdict.is_problem and not verdict.waits) or is_rejected or problem)


def _find(store: ClusterStore, key: str) -> Service:
    service = store.services.get(key)
    if service is None:
        name = key.partition("/")[2]
        elsewhere = sorted(f"-n {one.metadata.namespace}" for one in store.services.all() if one.metadata.name == name)
        hint = f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else ""
        raise CCMError(f"there is no Service {key} in this cluster{hint}")
    return service


def _observed(snapshot: ServiceSnapshot) -> Document:
    """Return the observed state: the Service, its request, and the load balancers with its labels or its name."""
    service, match = snapshot.service, snapshot.match
    spec, meta = service.spec, service.metadata
    in_use = match.claims[0] if match.lb is not None else None
    return {
        "service": meta.key,
        "type": spec.type,
        "ports": [f"{one.port}/{one.protocol} (node port {one.node_port or 'none'})" for one in spec.ports],
        "addresses": list(service.addresses),
        "deleting": meta.deletion_timestamp,
        "requested": _requested(snapshot.request) if snapshot.scope.ours else "",
        "finalizers": list(meta.finalizers or ()),
        "announcedBy": Announcement.of(service).node or "",
        "expectedName": match.expected_name,
        "loadBalancer": {**_load_balancer(in_use.load_balancer), "owner": in_use.because} if in_use else None,
        "otherLoadBalancers": [
            {"name": one.name, "ownership": str(one.owner), "reason": one.because}
            for one in match.claims
            if one is not in_use
        ],
    }


def _requested(request: Request) -> str:
    if request.primary:
        return f"the address of Service {request.primary}"
    pool = f"IP pool {request.ip_pool}" if request.ip_pool else "any matching IP pool"
    parts = (
        "DHCP" if request.ipam == "dhcp" else pool,
        f"network {request.network}" if request.network else "",
        f"address {request.address}" if request.address else "",
        "VM load balancer" if request.wants_vm else "announced by kube-vip",
        f"health check of node port {request.health_check.port}" if request.health_check else "",
    )
    return ", ".join(filter(None, parts))


def _load_balancer(load_balancer: LoadBalancer) -> Document:
    spec, ready, meta = load_balancer.spec, load_balancer.ready, load_balancer.metadata
    message = f": {ready.message}" if ready and ready.message else ""
    return {
        "name": meta.name,
        "workloadType": spec.workload_type,
        "ipam": spec.ipam,
        "pool": load_balancer.allocated_pool or spec.ip_pool,
        "address": load_balancer.address or load_balancer.allocated_ip,
        "ready": f"{ready.status}{message}" if ready else "Unknown: not reconciled by Harvester yet",
        "deleting": meta.deletion_timestamp,
        "vms": list((spec.backend_server_selector or {}).get(VM_NAME) or ()),
        "backends": list(load_balancer.backends),
    }


def _described(planned: Write, snapshot: ServiceSnapshot) -> Document:
    """Return a write with the fields that it changes."""
    service = snapshot.service
    match planned:
        case ChangeService(change=change):
            patch = service_patch(service, change)
            # The condition is part of the explanation already.
            status = cast("Document", patch.get("status") or {})
            patch["status"] = {key: value for key, value in status.items() if key != "conditions"}
            return write(f"patch Service {service.metadata.key}", diff(plain(service), patch))
        case CreateLoadBalancer(name=name, body=body):
            return write(f"create LoadBalancer {name}", diff({}, described(body, snapshot)))
        case ChangeLoadBalancer(name=name):
            current = next(one.load_balancer for one in snapshot.match.claims if one.name == name)
            after = changed_document(current, planned)
            return write(f"update LoadBalancer {name}", diff(current.document(), after, complete=True))
        case DeleteLoadBalancer(name=name):
            return write(f"delete LoadBalancer {name}")
        case TouchEndpoints():
            return write(f"patch an EndpointSlice of Service {service.metadata.key}")


_PRECONDITIONS: Final = frozenset({"metadata.uid", "metadata.resourceVersion"})


def write(request: str, lines: Iterable[str] = ()) -> Document:
    """Return the document of a write: method and object, and a line for each changed field."""
    return {"request": request, "diff": list(lines)}


def plain(view: Struct) -> Document:
    """Return a view of an object as a JSON document."""
    return msgspec.json.decode(msgspec.json.encode(view), type=Document)


def diff(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str = "", *, complete: bool = False
) -> Iterator[str]:
    """Yield a line for each value that a write removes (``-``) or sets (``+``), without its preconditions.

    ``after`` is a merge patch, or the ``complete`` object.

    >>> list(diff({"spec": {"a": 1, "b": 2}}, {"metadata": {"uid": "1"}, "spec": {"a": 2, "b": None}}))
    ['- spec.a: 1', '+ spec.a: 2', '- spec.b: 2']
    """
    for key in {**before, **after} if complete else after:
        old, new, name = before.get(key), after.get(key), f"{path}{key}"
        if isinstance(new, Mapping):
            yield from diff(old if isinstance(old, Mapping) else {}, new, f"{name}.", complete=complete)
        elif old != new and name not in _PRECONDITIONS:
            if old not in (None, []):
                yield f"- {name}: {json.dumps(old, ensure_ascii=False)}"
            if new is not None:
                yield f"+ {name}: {json.dumps(new, ensure_ascii=False)}"
