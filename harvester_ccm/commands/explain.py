"""Prints the observed state of a Service or a Node, what is wrong with it, and the next write of the controller.

A load balancer in Harvester means its Service. A write is printed with the fields that it changes. Nothing is written.
Use the flags of the controller: the same functions decide here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.clusters import ClusterStore, open_clusters
from harvester_ccm.commands.runner import OUTPUT, CommandContext, CommandSpec, Document, flag
from harvester_ccm.commands.states import UNANNOUNCED, Line, ObjectStatus, StatusReason, lifecycle_of, warnings_in
from harvester_ccm.commands.status import Survey, survey
from harvester_ccm.config import Announcer
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import NODES, SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import VM_NAME
from harvester_ccm.plan.node.match import Match, find_vm
from harvester_ccm.plan.node.patch import NodePatch, uninitialized_taints
from harvester_ccm.plan.node.power import state_of
from harvester_ccm.plan.service.announcing.endpoints import Reading
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
from harvester_ccm.plan.service.load_balancer.specification import changed_document
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.ownership.orphans import service_of
from harvester_ccm.plan.service.ownership.owner import service_key
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.request import Ipam, Request
from harvester_ccm.plan.service.snapshot import ServiceSnapshot

NAMESPACE: Final = flag(
    "namespace",
    "Namespace of the Service. Without it: the one in front of its name, else that of the kubeconfig's context.",
    shorthand="n",
)
_KINDS: Final = {
    name: resource.kind
    for short, resource in (("svc", SERVICES), ("no", NODES), ("lb", LOAD_BALANCERS))
    for name in (short, resource.kind.lower(), resource.plural)
}
"""Kinds by the names of kubectl for them."""
ANNOUNCER_OTHER: Final = "another program, or kube-vip without notes (--announcer=other)"
"""Who announces the addresses, as far as it is known with this flag."""
_PRECONDITIONS: Final = frozenset({"metadata.uid", "metadata.resourceVersion"})


async def _explain(context: CommandContext) -> int:
    kind, namespace, name = read_target(context.flags.arguments, context.flags[NAMESPACE.name])
    async with open_clusters(context) as connection:
        found = await survey(context, connection)
    store = found.store
    if kind == NODES.kind:
        document, is_well = _explain_node(found, name)
    elif kind == LOAD_BALANCERS.kind:
        document, is_well = _explain_service(found, _served_by(found, name))
    else:
        service = _find(store, f"{namespace or connection.guest.namespace}/{name}")
        document, is_well = _explain_service(found, service)
    notes = [*document.get("notes", ()), *store.notes]
    context.output.answer({**document, "notes": notes})
    return EXIT_OK if is_well else EXIT_PROBLEMS


def _reasons_about(lines: Iterable[Line], name: str) -> list[StatusReason]:
    return [reason for about, status in lines if about == name for reason in status.reasons]


def read_target(words: Sequence[str], namespace: str) -> tuple[str, str, str]:
    """Return kind, namespace (empty for that of the kubeconfig) and name; ``namespace`` is the value of ``-n``.

    Raises ConfigurationError if the words do not name one object.

    >>> read_target(["svc/web"], "shop")
    ('Service', 'shop', 'web')
    >>> read_target(["service", "shop/web"], "")
    ('Service', 'shop', 'web')
    """
    first, slash, rest = words[0].partition("/") if words else ("", "", "")
    kind = _KINDS.get(first.lower(), "")
    names = [rest, *words[1:]] if slash else list(words[1:])
    if not kind or len(names) != 1:
        expected = "svc/NAME -n NAMESPACE, node/NAME or lb/NAME"
        raise ConfigurationError([f"expected {expected}, got {' '.join(words) or 'nothing'}"])
    home, _, name = names[0].rpartition("/")
    if not name or "/" in home or (kind != SERVICES.kind and home) or (home and namespace and home != namespace):
        raise ConfigurationError([f"{names[0]!r} is not the name of one {kind}"])
    return kind, home or namespace, name


def _explain_service(found: Survey, service: Service) -> tuple[Document, bool]:
    """Return the explanation of a Service, and whether all is well."""
    planned = next(entry for entry in found.services if entry.service is service)
    snapshot = planned.snapshot
    plan = planned.plan
    name = f"Service {service.metadata.key}"
    more = _reasons_about(found.problems, name)
    status = replace(planned.status, reasons=tuple(dict.fromkeys((*planned.status.reasons, *more))))
    writes = [write for write in (plan.write, plan.following_write) if write is not None]
    hints = [hint.message for hint in _reasons_about(found.hints, name)]
    unannounced = [event.prose for event in plan.events if event.reason in UNANNOUNCED]
    problem = None if snapshot.harvester_known else snapshot.harvester_problem
    document = {
        **_observed(snapshot),
        "announcedBy": _announced_by(snapshot, plan),
        **msgspec.to_builtins(status),
        "problem": _unnamed_problem(problem, status),
        "nextWrites": [_service_write(write, snapshot) for write in writes],
        "notes": [*hints, *unannounced],
    }
    return document, not (status.is_problem or problem)


def _unnamed_problem(problem: KubeError | None, status: ObjectStatus) -> str:
    """Return why Harvester cannot be read; empty if a reason of the object says it."""
    is_named = any(reason.reason == "HarvesterUnavailable" for reason in status.reasons)
    return "" if problem is None or is_named else harvester_unavailable(problem).prose


def _find(store: ClusterStore, key: str) -> Service:
    service = store.services.get(key)
    if service is None:
        name = key.partition("/")[2]
        elsewhere = sorted(
            f"-n {other.metadata.namespace}" for other in store.services.all() if other.metadata.name == name
        )
        hint = f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else ""
        raise KubeError(f"there is no Service {key} in this cluster{hint}")
    return service


def _served_by(found: Survey, name: str) -> Service:
    """Return the Service that a load balancer of this cluster belongs to. Raises KubeError if there is none."""
    store = found.store
    if store.load_balancers.problem is not None:
        raise store.load_balancers.problem
    own = {load_balancer.metadata.name: load_balancer for load_balancer in store.own_load_balancers()}
    load_balancer = own.get(name)
    if load_balancer is None:
        raise KubeError(f"Harvester has no load balancer {name} of this cluster")
    service = service_of(load_balancer, store.services)
    if service is not None:
        return service
    reasons = _reasons_about(found.problems, f"LoadBalancer {name}")
    if reasons:
        raise KubeError(f"LoadBalancer {name}: {reasons[0].message}")
    return _find(store, service_key(load_balancer))


def _observed(snapshot: ServiceSnapshot) -> Document:
    """Return the observed state: the Service, its request, and the load balancers with its labels or its name."""
    service = snapshot.service
    match = snapshot.match
    spec = service.spec
    meta = service.metadata
    in_use = match.candidates[0] if match.load_balancer is not None else None
    return {
        "service": meta.key,
        "type": spec.type,
        "ports": [f"{port.port}/{port.protocol} (node port {port.node_port or 'none'})" for port in spec.ports],
        "addresses": list(service.addresses),
        "requested": _requested(snapshot.request) if snapshot.scope.is_managed else "",
        "finalizers": list(meta.finalizers or ()),
        "loadBalancer": {**_load_balancer(in_use.load_balancer), "owner": in_use.reason} if in_use else None,
        "otherLoadBalancers": [
            {
                "name": candidate.load_balancer.metadata.name,
                "ownership": str(candidate.owner),
                "reason": ". ".join(filter(None, (candidate.reason, candidate.remedy))),
                "command": candidate.command,
            }
            for candidate in match.candidates
            if candidate is not in_use
        ],
    }


def _announced_by(snapshot: ServiceSnapshot, plan: ServicePlan) -> str:
    """Return who announces the address, as far as it is known; empty if there is none to announce."""
    seen = snapshot.seen
    if plan.phase == Phase.ANNOUNCED_BY_HARVESTER:
        return "Harvester"
    # kube-vip never removes its note, so one beside no address is about an earlier address.
    if not seen.status or not seen.read_address:
        return ""
    if snapshot.cluster.announcer is Announcer.OTHER:
        return ANNOUNCER_OTHER
    return "" if snapshot.remembered.endpoints.reading is Reading.MISSING else seen.node


def _requested(request: Request) -> str:
    if request.primary:
        return f"the address of Service {request.primary}"
    pool = f"IP pool {request.ip_pool}" if request.ip_pool else "any matching IP pool"
    parts = (
        "DHCP" if request.ipam is Ipam.DHCP else pool,
        f"network {request.network}" if request.network else "",
        f"address {request.address}" if request.address else "",
        "VM load balancer" if request.wants_vm else "announced by kube-vip",
        f"health check of node port {request.health_check['port']}" if request.health_check else "",
    )
    return ", ".join(filter(None, parts))


def _load_balancer(load_balancer: LoadBalancer) -> Document:
    spec = load_balancer.spec
    ready = load_balancer.ready
    meta = load_balancer.metadata
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


def _service_write(planned: Write, snapshot: ServiceSnapshot) -> Document:
    """Return a write with the fields that it changes."""
    service = snapshot.service
    match planned:
        case PatchService(patch=patch):
            # The condition is part of the explanation already.
            status = cast("Document", patch.get("status") or {})
            shown = {**patch, "status": {key: value for key, value in status.items() if key != "conditions"}}
            return _write(f"patch Service {service.metadata.key}", diff(_plain(service), shown))
        case CreateLoadBalancer(name=name, body=body):
            return _write(f"create LoadBalancer {name}", diff({}, body))
        case ChangeLoadBalancer(name=name):
            known = [candidate.load_balancer for candidate in snapshot.match.candidates]
            current = next(load_balancer for load_balancer in known if load_balancer.metadata.name == name)
            after = changed_document(current, planned)
            return _write(f"update LoadBalancer {name}", diff(current.document(), after, complete=True))
        case DeleteLoadBalancer(load_balancer=load_balancer):
            return _write(f"delete LoadBalancer {load_balancer.metadata.name}")
        case SeedPool(pool=pool):
            return _write(f"patch IPPool {pool}", diff({}, planned.patch))
        case TouchEndpoints():
            return _write(f"patch an EndpointSlice of Service {service.metadata.key}")


def _explain_node(found: Survey, name: str) -> tuple[Document, bool]:
    """Return the explanation of a Node, and whether all is well. Raises KubeError if there is no such Node."""
    store = found.store
    settings = found.settings
    entry = next((entry for entry in found.nodes if entry[0].metadata.name == name), None)
    if entry is None:
        raise KubeError(f"there is no Node {name} in this cluster")
    node, plan, status = entry
    match = find_vm(store, node)
    lifecycle = lifecycle_of(store, node, settings)
    # An outage of Harvester is no problem of a Node that works, but here it explains why the VM is unknown.
    more = warnings_in([lifecycle.cause, lifecycle.event, match.problem])
    more += _reasons_about(found.problems, f"Node {name}")
    status = replace(status, reasons=tuple(dict.fromkeys((*status.reasons, *more))))
    patches = [write for write in (plan.write, lifecycle.write) if isinstance(write, NodePatch)]
    writes = [_write(f"patch Node {name}", diff(_plain(node), patch.body)) for patch in patches]
    if lifecycle.deletes:
        confirmations = settings.nodes.deletion_confirmations
        writes.append(_write(f"delete Node {name}, after {confirmations} live GETs did not find its VM"))
    addresses = {entry.address: entry.type for entry in plan.addresses.addresses}
    reasons = plan.addresses.reasons
    document = {
        "node": name,
        "initialized": not uninitialized_taints(node),
        "ready": node.ready,
        "providerId": node.spec.provider_id,
        "vm": _vm(match),
        "addresses": [
            {"type": addresses.get(address, "dropped"), "address": address, "reason": reasons.get(address, "")}
            for address in dict.fromkeys((*addresses, *reasons))
        ],
        **msgspec.to_builtins(status),
        "nextWrites": writes,
    }
    return document, not (status.is_problem or lifecycle.deletes or store.vms.problem)


def _vm(match: Match) -> Document | None:
    vm = match.vm
    if vm is None:
        return None
    return {
        "name": vm.object.metadata.key,
        "uid": vm.uid,
        "foundBy": str(match.by or ""),
        "status": vm.object.status.printable_status,
        "host": vm.vmi.status.node_name if vm.vmi else "",
        "power": state_of(vm).value,
        "guestAgent": "connected" if vm.vmi and vm.vmi.has_agent else "not connected",
    }


def _write(request: str, lines: Iterable[str] = ()) -> Document:
    """Return the document of a write: method and object, and a line for each changed field."""
    return {"request": request, "diff": list(lines)}


def _plain(view: Struct) -> Document:
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
    keys = after.keys()
    if complete:
        keys = {**before, **after}.keys()
    for key in keys:
        old = before.get(key)
        new = after.get(key)
        name = f"{path}{key}"
        if isinstance(new, Mapping):
            fields = old if isinstance(old, Mapping) else {}
            yield from diff(fields, new, f"{name}.", complete=complete)
        elif old != new and name not in _PRECONDITIONS:
            yield from _changed_value(name, old, new)


def _changed_value(name: str, old: object, new: object) -> Iterator[str]:
    if old not in (None, []):
        yield f"- {name}: {json.dumps(old, ensure_ascii=False)}"
    if new is not None:
        yield f"+ {name}: {json.dumps(new, ensure_ascii=False)}"


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usage="explain svc/NAME|node/NAME|lb/NAME [flags]",
    own=(OUTPUT, NAMESPACE),
    action=_explain,
    words=("svc", "service", "node", "lb"),
    check=lambda flags: read_target(flags.arguments, flags[NAMESPACE.name]),
)
