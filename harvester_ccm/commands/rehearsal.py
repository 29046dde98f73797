"""The steps of a Service plan as the requests they are: each computed on what the one before it leaves behind.

The bodies come from ``service_patch`` and ``changed_document``, the functions that the running program sends with. A
resource version that only the server's answer tells is written as ``AFTER_WRITE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.plan.service.load_balancer import changed_document
from harvester_ccm.plan.service.steps import (
    ChangeLoadBalancer,
    ChangeService,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    Step,
    service_patch,
)

AFTER_WRITE: Final = "(of the answer to the write before)"

Document = dict[str, object]


def rehearse(
    steps: Iterable[Step], service: Service, load_balancers: Iterable[LoadBalancer], cluster: ClusterIdentity
) -> list[Document]:
    """Return one document per request and Event, in order; a step that would write nothing is left out.

    Each has exactly one key: ``service`` with the merge patch of its status subresource, ``loadBalancer`` with
    ``create`` (POST), ``update`` (PUT) or ``delete``, or ``event``.
    """
    present = {one.metadata.name: one for one in load_balancers}
    taken: list[Document] = []
    for step in steps:
        match step:
            case ChangeService(change=change):
                patch = service_patch(service, change)
                if patch:
                    taken.append({"service": _patch_of(service, patch)})
                    service = _patched(service, patch)
            case CreateLoadBalancer(body=body):
                taken.append({"loadBalancer": {"create": body}})
            case ChangeLoadBalancer(name=name, change=difference):
                if name in present:
                    taken.append({"loadBalancer": {"update": changed_document(present[name], difference)}})
            case DeleteLoadBalancer(name=name, uid=uid):
                target = {"namespace": cluster.namespace, "name": name, "uid": uid}
                taken.append({"loadBalancer": {"delete": target}})
            case EmitEvent(event=note):
                told = {"type": note.type, "reason": str(note.reason), "message": note.message}
                taken.append({"event": told})
    return taken


def _patch_of(service: Service, patch: Document) -> Document:
    meta = service.metadata
    return {"namespace": meta.namespace, "name": meta.name, "subresource": "status", "patch": patch}


def _patched(service: Service, patch: Mapping[str, object]) -> Service:
    document = cast("Document", msgspec.to_builtins(service))
    merged = merge(document, {**patch, "metadata": {**_section(patch, "metadata"), "resourceVersion": AFTER_WRITE}})
    return SERVICES.decode(msgspec.json.encode(merged))


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


def _section(document: Mapping[str, object], key: str) -> Document:
    value = document.get(key)
    return cast("Document", value) if isinstance(value, dict) else {}
