"""The next writes of a plan, as ``explain`` prints them: one line for each field that they change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

import msgspec
from msgspec import Struct

from harvester_ccm.commands.render import Document
from harvester_ccm.model.core import ServiceCondition
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.plan.service.load_balancer import changed_document, described
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
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

_PRECONDITIONS: Final = frozenset({"metadata.uid", "metadata.resourceVersion"})


def service_writes(plan: ServicePlan, snapshot: ServiceSnapshot) -> list[Document]:
    """Return the next write for a Service, and the one that probably follows."""
    return [_described(one, snapshot) for one in (plan.write, plan.then) if one is not None]


def write(request: str, lines: Iterable[str] = ()) -> Document:
    """Return the document of a write: method and object, and a line for each changed field."""
    return {"request": request, "diff": list(lines)}


def event(message: EventMessage) -> Document:
    """Return the document of an Event."""
    return {"type": message.type, "reason": str(message.reason), "message": message.message}


def plain(view: Struct) -> Document:
    """Return a view of an object as a JSON document."""
    return msgspec.json.decode(msgspec.json.encode(view), type=Document)


def diff(
    before: Mapping[str, object], after: Mapping[str, object], path: str = "", *, complete: bool = False
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
                yield f"- {name}: {_json(old)}"
            if new is not None:
                yield f"+ {name}: {_json(new)}"


def _described(planned: Write, snapshot: ServiceSnapshot) -> Document:
    service = snapshot.service
    match planned:
        case ChangeService(change=change):
            before = plain(service)
            patch = service_patch(service, change)
            status = patch.get("status")
            if isinstance(status, dict) and "conditions" in status:
                # Its message is part of the explanation already.
                status["conditions"] = _ready(change.condition)
                cast("Document", before["status"])["conditions"] = _ready(service.ready_condition)
            return write(f"patch Service {service.metadata.key}", diff(before, patch))
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


def _ready(condition: ServiceCondition | None) -> list[str] | None:
    """Return the condition in short form; None if the Service has none."""
    return [f"LoadBalancerReady={condition.status} ({condition.reason})"] if condition and condition.status else None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
