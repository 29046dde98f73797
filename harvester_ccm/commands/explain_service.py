"""``explain service``: its request, its load balancer, its condition, the Events that hold, and the next writes."""

from __future__ import annotations

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import Call
from harvester_ccm.commands.checks_connection import Check, Result
from harvester_ccm.commands.clusters import open_clusters, read_inventory
from harvester_ccm.commands.diff import event, service_writes
from harvester_ccm.commands.dry_run import check_admission
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.render import Document
from harvester_ccm.commands.service_view import ServiceView, condition_after, view_of
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import Done, WaitReason
from harvester_ccm.names import VM_NAME
from harvester_ccm.plan.service.decision import plan_service
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.load_balancer import described
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.request import Request
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import CreateLoadBalancer, ServicePlan
from harvester_ccm.redaction import inert


async def explain_service(call: Call, namespace: str, name: str) -> tuple[Document, int]:
    """Return the explanation of a Service, and the exit code. Raises CCMError if it cannot be read."""
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        view = view_of(call, inventory)
        snapshot = view.observe(_find(inventory, namespace or clusters.guest.namespace, name))
        if view.skip_reason(snapshot):
            return _skipped(snapshot, view), EXIT_OK
        plan = plan_service(snapshot)
        created = (one.body for one in (plan.write, plan.then) if isinstance(one, CreateLoadBalancer))
        body = plan.check or next(created, None)
        check = None
        if body is not None:
            check = await check_admission(clusters.harvester, described(body, snapshot), inventory.namespace)
    return _explained(snapshot, plan, view, check)


def _find(inventory: Inventory, namespace: str, name: str) -> Service:
    key = f"{namespace}/{name}"
    service = next((one for one in inventory.services if one.metadata.key == key), None)
    if service is None:
        elsewhere = (one.metadata for one in inventory.services if one.metadata.name == name)
        there = " or ".join(sorted(f"-n {one.namespace}" for one in elsewhere))
        raise CCMError(f"there is no Service {key} in this cluster" + (f"; did you mean {there}?" if there else ""))
    return service


def _skipped(snapshot: ServiceSnapshot, view: ServiceView) -> Document:
    return {**_observed(snapshot), "skipReason": view.skip_reason(snapshot), "notes": list(view.inventory.notes)}


def _explained(
    snapshot: ServiceSnapshot, plan: ServicePlan, view: ServiceView, check: Check | None
) -> tuple[Document, int]:
    outcome = plan.outcome
    condition = condition_after(plan, snapshot) if plan.condition is not None else None
    is_rejected = check is not None and check.result is Result.FAILED
    has_warning = any(one.type == "Warning" for one in plan.events)
    is_bad = condition is not None and condition.status == "False"
    is_unread = not snapshot.harvester_known
    document = {
        **_observed(snapshot),
        "condition": _condition(condition) if condition else None,
        "problem": harvester_unavailable(snapshot.harvester_problem).message if is_unread and not is_bad else "",
        # The message of an Event that says why the Service is not ready is that of the condition.
        "events": [event(one) for one in plan.events if condition is None or inert(one.message) != condition.message],
        "waitsFor": "" if isinstance(outcome, Done) else WaitReason(outcome.reason).meaning,
        "dryRun": {"result": check.result.lower(), "detail": check.detail, "advice": check.advice} if check else None,
        "nextWrites": service_writes(plan, snapshot),
        "notes": list(view.inventory.notes),
    }
    failed = has_warning or is_bad or is_rejected or is_unread
    return document, EXIT_PROBLEMS if failed else EXIT_OK


def _condition(condition: ServiceCondition) -> Document:
    return {
        "ready": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": condition.last_transition_time,
    }


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
