"""What a recording of Harvester contains: after each step, the states of each object, and the answer to the step.

Of an object is recorded what Harvester writes: metadata, status, and the objects that it generates. Order within an
object counts, timing does not. Times, UIDs and versions are left out, and lists without an order are sorted.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from devenv import player
from devenv.harvester.endpoints import is_dummy
from devenv.harvesterscenarios import Interleaving
from devenv.watch import Document, annotations_of, labels_of

OURS: Final = "loadbalancer.harvesterhci.io/"
"""Prefix of the labels and annotations that are recorded."""
ADDRESS: Final = re.compile(r"\b172\.31\.\d+\.\d+\b")
"""An address of a pool of the scenarios."""
PASSING: Final = re.compile(
    "service is not existing, ensure it first|the object has been modified|fail to reserve|fail to get allocator"
    "|record [^ ]+ into [^ ]+ failed|could not get the allocator|already exists"
    '|(endpointslices?.discovery.k8s|virtualmachineinstances?.kubevirt).io "[^"]+" not found'
)
"""In messages that pass by themselves within milliseconds."""
SHORT: Final = "service is waiting for external IP"
"""In a message that passes by itself, unless the host has no address: whether an attempt begins before, depends on the
speed of the machine."""
_CALL: Final = re.compile(r"(failed calling webhook \"[^\"]+\": failed to call webhook).*", re.DOTALL)
"""The part of an answer behind which only the place of the webhook follows."""


class Recorder(player.Recorder):
    """Notes the states of objects, and the answers to steps."""

    parts = ("objects",)

    def note_refusal(self, text: str) -> None:
        """Note that the step was rejected, with the answer."""
        self._steps[-1].setdefault("refusals", []).append(_CALL.sub(r"\1", text))

    def note(self, kind: str, document: Document, *, is_deleted: bool = False) -> None:
        """Note a state of an object."""
        seen = "deleted" if is_deleted else _state_of(kind, document)
        self._note("objects", f"{kind} {document['metadata']['name']}", seen)

    def result(self) -> list[dict[str, Any]]:
        """Return the steps."""
        return [{**step, "objects": dict(sorted(step["objects"].items()))} for step in self._steps]


def _state_of(kind: str, document: Document) -> dict[str, Any]:
    match kind:
        case "Service":
            return _service_state(document)
        case "EndpointSlice":
            return _slice_state(document)
        case _:
            return _resource_state(document)


def _resource_state(document: Document) -> dict[str, Any]:
    """Return what Harvester writes to a load balancer or a pool."""
    metadata, status = document["metadata"], dict(document.get("status") or {})
    if "conditions" in status:
        status["conditions"] = [_without_time(condition) for condition in status["conditions"]]
    if "backendServers" in status:
        status["backendServers"] = sorted(status["backendServers"])
    parts = {
        "annotations": _ours(annotations_of(document)),
        "labels": _ours(labels_of(document)),
        "finalizers": metadata.get("finalizers") or [],
        "deleting": bool(metadata.get("deletionTimestamp")),
        "healthCheck": document["spec"].get("healthCheck") or {},
        "status": status,
    }
    return {key: value for key, value in parts.items() if value}


def _ours(entries: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(OURS): value for key, value in sorted(entries.items()) if key.startswith(OURS)}


def _without_time(condition: Document) -> Document:
    return {key: value for key, value in condition.items() if not key.endswith("Time")}


def _service_state(document: Document) -> dict[str, Any]:
    spec = document["spec"]
    ingress = ((document.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    ports = [
        f"{port.get('name', '')} {port['port']}/{port['protocol']} to {port['targetPort']}" for port in spec["ports"]
    ]
    return {
        "labels": _ours(labels_of(document)),
        "owners": _owners(document),
        "requested": spec.get("loadBalancerIP", ""),
        "ports": ports,
        "addresses": [entry.get("ip", "") for entry in ingress],
    }


def _slice_state(document: Document) -> dict[str, Any]:
    ports = [f"{port.get('name', '')} {port['port']}/{port['protocol']}" for port in document.get("ports") or ()]
    endpoints = [_endpoint(entry) for entry in document.get("endpoints") or ()]
    return {
        "labels": _ours(labels_of(document)),
        "owners": _owners(document),
        "ports": ports,
        "endpoints": sorted(endpoints),
    }


def _owners(document: Document) -> list[str]:
    return [f"{owner['kind']} {owner['name']}" for owner in document["metadata"].get("ownerReferences") or ()]


def _endpoint(entry: Document) -> str:
    ready = "ready" if entry["conditions"].get("ready") else "not ready"
    target = "dummy" if is_dummy(entry) else entry["targetRef"]["name"]
    return f"{entry['addresses'][0]} {ready} {target}"


def comparable(steps: Sequence[dict[str, Any]], may_differ: Interleaving) -> list[dict[str, Any]]:
    """Return the steps without what may differ."""
    match may_differ:
        case Interleaving.WORKERS:
            return [{**step, "objects": _anonymous(_last_states(step["objects"]))} for step in steps]
        case Interleaving.STALE | Interleaving.GOING:
            return [{**step, "objects": _last_states(step["objects"])} for step in steps]
        case Interleaving.CACHES:
            known: dict[str, dict[str, Any]] = {}
            return [{**step, "objects": _fields(step["objects"], known)} for step in steps]
        case _:
            return list(steps)


def _last_states(objects: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the last state of each object but the pools.

    What a VMI that is being deleted changes passes. Harvester can release an address that is in use, if an attempt
    begins on a copy before its own last write: the load balancer keeps the address, and the pool has it no longer.
    """
    return {name: states[-1] for name, states in objects.items() if not name.startswith("IPPool ")}


def _anonymous(state: Any) -> Any:
    """Return a state with a word instead of each address."""
    if isinstance(state, str):
        return ADDRESS.sub("an address", state)
    if isinstance(state, list):
        return [_anonymous(entry) for entry in state]
    if not isinstance(state, dict):
        return state
    return {key: _anonymous(value) for key, value in state.items()}


def _fields(objects: dict[str, list[Any]], known: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Return the new values of each field of each object in the order of their first appearance, and the last.

    Messages that pass by themselves are left out. How often a value comes back is not in it, nor the order between the
    fields: both depend on what a cache has. ``known`` has the last values of the steps before.
    """
    found = {name: _new_values(states, known.setdefault(name, {})) for name, states in objects.items()}
    return {name: fields for name, fields in found.items() if fields}


def _new_values(states: Sequence[Any], known: dict[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for number, state in enumerate(states, 1):
        is_last = number == len(states)
        for field, value in _flat(state).items():
            passes = field == "message" and _passes(str(value), is_last=is_last)
            if passes or known.get(field) == value:
                continue
            known[field] = value
            values = found.setdefault(field, [])
            if value not in values:
                values.append(value)
    return {field: [*values, known[field]] for field, values in found.items()}


def _passes(message: str, *, is_last: bool) -> bool:
    """Whether a message is one of a moment; ``is_last``: of the last state in its step."""
    return PASSING.search(message) is not None or (SHORT in message and not is_last)


def _flat(state: Any) -> dict[str, Any]:
    """Return the fields of a state by name; those of its status beside the others."""
    if not isinstance(state, dict):
        return {"state": state}
    fields = {key: value for key, value in state.items() if key != "status"}
    status = dict(state.get("status") or {})
    for condition in status.pop("conditions", ()):
        fields["message"] = condition.get("message", condition["status"])
    return {**fields, **status}
