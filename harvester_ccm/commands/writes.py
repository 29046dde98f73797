"""The writes and Events of a plan, as ``explain`` prints them: one document each for scripts, one line for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

from msgspec.structs import asdict

from harvester_ccm.commands.render import Document
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.plan.service.load_balancer import described
from harvester_ccm.plan.service.snapshot import Situation
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


def write(verb: str, kind: str, name: str, body: Mapping[str, object] | None = None) -> Document:
    """Return the document of a write; ``body`` has the fields that it sets."""
    return {"verb": verb, "kind": kind, "name": name, "body": dict(body or {})}


def event(message: EventMessage) -> Document:
    """Return the document of an Event."""
    return {"type": message.type, "reason": str(message.reason), "message": message.message}


def service_steps(plan: ServicePlan, situation: Situation) -> Iterator[Document]:
    """Yield a document for each Event of a plan, for its dry run, its write and the one that follows."""
    for message in plan.events:
        yield {"event": event(message)}
    if plan.check is not None:
        yield write("dry run", "LoadBalancer", situation.match.expected_name)
    yield from (_write_document(one, situation) for one in (plan.write, plan.then) if one is not None)


def _write_document(planned: Write, situation: Situation) -> Document:
    service = situation.service
    match planned:
        case ChangeService(change=change):
            return write("patch", "Service", service.metadata.key, service_patch(service, change))
        case CreateLoadBalancer(name=name, body=body):
            return write("create", "LoadBalancer", name, described(body, situation))
        case ChangeLoadBalancer(name=name, change=difference):
            changed = {key: value for key, value in asdict(difference).items() if value}
            return write("update", "LoadBalancer", name, changed)
        case DeleteLoadBalancer(name=name):
            return write("delete", "LoadBalancer", name)
        case TouchEndpoints():
            return write("patch", "EndpointSlice", f"of Service {service.metadata.key}")


def step_text(step: Mapping[str, object]) -> str:
    """Return the document of a write or an Event in one line."""
    if "event" in step:
        return f"Event {_event_text(step)}"
    body = cast("Document", step["body"])
    fields = "; ".join(_leaves(body["spec"] if step["verb"] == "create" else body))
    return f"{step['verb']} {step['kind']} {step['name']}" + (f": {fields}" if fields else "")


def warnings_of(steps: Iterable[Mapping[str, object]]) -> list[str]:
    """Return reason and message of each Warning Event."""
    return [_event_text(step) for step in steps if is_warning(step)]


def is_warning(step: Mapping[str, object]) -> bool:
    """Return whether a document is that of a Warning Event."""
    return cast("Document", step.get("event", {})).get("type") == "Warning"


def _event_text(step: Mapping[str, object]) -> str:
    message = cast("Document", step["event"])
    return f"{message['reason']}: {message['message']}"


def _leaves(value: object, path: str = "") -> Iterator[str]:
    """Yield each field of a document with its value, without preconditions.

    >>> list(_leaves({"metadata": {"uid": "1", "labels": {"a": "b", "c": None}}, "spec": {"ports": [1]}}))
    ['metadata.labels.a "b"', 'metadata.labels.c removed', 'spec.ports [1]']
    """
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if path else str(key))
    elif path not in _PRECONDITIONS:
        yield f"{path} {'removed' if value is None else json.dumps(value, ensure_ascii=False)}"
