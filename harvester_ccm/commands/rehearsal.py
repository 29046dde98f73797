"""The steps of a Service plan as the requests they are: each computed on what the one before it leaves behind.

Requests on Services, load balancers and Nodes, and Events, are entries of ``steps`` in an explanation; for people each
of them is one line.

The requests come from ``request_for``, as those do that the running program sends. A resource version that only the
server's answer tells is written as ``AFTER_WRITE``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

import msgspec
from msgspec import Struct, field

from harvester_ccm.commands.render import Document
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.model.meta import ObjectT, Resource
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.plan.service.situation import Situation
from harvester_ccm.plan.service.steps import (
    ChangeService,
    DeleteLoadBalancer,
    EmitEvent,
    Step,
    TouchEndpoints,
    request_for,
    strategic,
)

AFTER_WRITE: Final = "(of the answer to the write before)"
AT_WRITE: Final = "(the time of the write)"


class Rehearsal(Struct):
    """What the steps of one plan come to."""

    service: Service
    """As the writes leave it."""
    load_balancers: dict[str, LoadBalancer]
    """Of the situation, by name, as the writes leave them."""
    taken: list[Document] = field(default_factory=list)
    looks_again: bool = False
    """Whether a deletion was left out because something was written before it: the program looks once more first."""


def rehearse(steps: Iterable[Step], situation: Situation, *, again: bool = False) -> Rehearsal:
    """Return one document per request and Event, in order; a step that would write nothing is left out.

    ``again``: whether this is the second look, after which load balancers are deleted in any case. Each document has
    exactly one key: ``service`` with the strategic merge patch of its status, ``loadBalancer`` with ``create`` (POST),
    ``update`` (PUT) or ``delete``, ``endpointSlice`` with the merge patch of one of a Service's, or ``event``.
    """
    present = situation.match.judged
    done = Rehearsal(situation.service, present)
    taken, is_older = done.taken, False
    for step in steps:
        if isinstance(step, EmitEvent):
            taken.append({"event": event_document(step.event)})
            continue
        if isinstance(step, DeleteLoadBalancer) and is_older and not again:
            done.looks_again = True
            return done
        named = None if isinstance(step, ChangeService | TouchEndpoints) else present.get(step.name)
        request = request_for(step, situation, done.service, named)
        if request is None:
            continue
        is_older = is_older or request.method != "DELETE"
        target = {"namespace": request.namespace, "name": request.name}
        match request.method:
            case "PATCH" if isinstance(step, TouchEndpoints):
                service_key = {"namespace": request.namespace, "service": request.name}
                taken.append({"endpointSlice": {**service_key, "patch": request.body}})
            case "PATCH":
                taken.append({"service": {**target, "subresource": "status", "patch": strategic(request.body)}})
                done.service = after_write(SERVICES, done.service, request.body)
            case "POST":
                taken.append({"loadBalancer": {"create": request.body}})
            case "PUT":
                taken.append({"loadBalancer": {"update": request.body}})
                present[request.name] = LOAD_BALANCERS.decode(msgspec.json.encode(request.body))
            case "DELETE":
                taken.append({"loadBalancer": {"delete": {**target, **request.body}}})
    return done


def event_document(event: EventMessage) -> Document:
    """Return an Event as an explanation shows it."""
    return {"type": event.type, "reason": str(event.reason), "message": event.message}


def after_write(resource: Resource[ObjectT], item: ObjectT, patch: Mapping[str, object]) -> ObjectT:
    """Return the object that a merge patch leaves behind."""
    document = cast("Document", msgspec.to_builtins(item))
    merged = merge(merge(document, patch), {"metadata": {"resourceVersion": AFTER_WRITE}})
    return resource.decode(msgspec.json.encode(merged))


def merge(target: Mapping[str, object], patch: Mapping[str, object]) -> Document:
    """Return the result of a JSON merge patch (RFC 7386).

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = merge(_section(merged, key), value)
        else:
            merged[key] = value
    return merged


def is_warning(step: Mapping[str, object]) -> bool:
    """Return whether an entry of ``steps`` is an Event that warns users."""
    return _section(step, "event").get("type") == "Warning"


def warnings_of(steps: Iterable[Mapping[str, object]]) -> list[str]:
    """Return what users would be warned of by entries of ``steps``: reason and message."""
    events = [_section(step, "event") for step in steps if is_warning(step)]
    return [f"{event['reason']}: {event['message']}" for event in events]


def request_text(step: Mapping[str, object], present: Mapping[str, Mapping[str, object]]) -> str:
    """Return one entry of an explanation's ``steps`` in one line.

    ``present`` maps the names of load balancers to the documents that a write of the whole object changes.
    """
    ((kind, _),) = step.items()
    one = _section(step, kind)
    if kind == "event":
        return f"Event {one['reason']}: {one['message']}"
    if kind == "loadBalancer":
        return _load_balancer_text(one, present)
    if kind == "endpointSlice":
        return f"patch an EndpointSlice of Service {one['namespace']}/{one['service']}: {_fields(one['patch'])}"
    title = f"Service {one['namespace']}/{one['name']}" if kind == "service" else f"Node {one['name']}"
    if "delete" in one:
        return f"delete {title}"
    target = f"the status of {title}" if one["subresource"] else title
    return f"patch {target}: {_fields(one['patch'])}"


def _load_balancer_text(one: Mapping[str, object], present: Mapping[str, Mapping[str, object]]) -> str:
    created, deleted, updated = (_section(one, key) for key in ("create", "delete", "update"))
    if created:
        return f"create load balancer {_section(created, 'metadata')['name']}: {_fields(created.get('spec'))}"
    if deleted:
        return f"delete load balancer {deleted['name']}"
    name = str(_section(updated, "metadata")["name"])
    changes = "; ".join(differences(present[name], updated)) if name in present else ""
    return f"write load balancer {name}: {changes}"


def differences(before: Mapping[str, object], after: Mapping[str, object], path: str = "") -> list[str]:
    """Return what differs between two documents, one text per field.

    >>> differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}})
    ['a.b 1 → 3', 'c 2 → absent']
    """
    found: list[str] = []
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        where = f"{path}.{key}" if path else key
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(cast("Document", old), cast("Document", new), where)
        elif old != new:
            texts = [_compact(one[key]) if key in one else "absent" for one in (before, after)]
            found.append(f"{where} {' → '.join(texts)}")
    return found


_PRECONDITIONS: Final = frozenset({"metadata.uid", "metadata.resourceVersion"})
"""Fields of a patch that change nothing."""


def _fields(patch: object) -> str:
    """Return what a patch sets, one text per field; preconditions are left out.

    >>> _fields({"metadata": {"uid": "1", "labels": {"a": "b", "c": None}}, "spec": {"ports": [1]}})
    'metadata.labels.a "b"; metadata.labels.c removed; spec.ports [1]'
    """
    return "; ".join(_leaves(patch, ""))


def _leaves(value: object, path: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _leaves(one, f"{path}.{key}" if path else str(key))
    elif path not in _PRECONDITIONS:
        text = "removed" if value is None else json.dumps(value, separators=(", ", ": "), ensure_ascii=False)
        yield f"{path} {text}"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _section(document: Mapping[str, object], key: str) -> Document:
    value = document.get(key)
    return cast("Document", value) if isinstance(value, dict) else {}
