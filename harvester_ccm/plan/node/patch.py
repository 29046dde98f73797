"""Writes to a Node, as JSON merge patches of only our fields.

A merge patch replaces a list as a whole. ``status.addresses`` is ours, so that is right (a strategic merge would
collapse two addresses of one type). ``spec.taints`` belongs to many: its patch carries the resource version, so that
another writer's taint is never lost; the answer is 409 and the next look decides anew.
Every patch carries the Node's UID: a Node that was re-created under the same name meanwhile refuses it (422).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from harvester_ccm.model.core import Node, NodeAddress, Taint, parse_provider_id
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import MACHINE_RECORD, NODE_NETWORK_RECORD, UNINITIALIZED_TAINT

_RECORDS: Final = (MACHINE_RECORD, NODE_NETWORK_RECORD)


class NodePatch(Struct, frozen=True):
    """Body of a merge patch of a Node, and the subresource it goes to (None: the Node itself)."""

    body: Mapping[str, Mapping[str, object]]
    subresource: Literal["status"] | None = None
    told: tuple[EventMessage, ...] = ()
    """Events for when it was written: what is told once for each change of the Node."""
    initialised: bool = False
    """Whether the uninitialized taints go with it. ``patch_request`` adds that, bound to the Node's version then."""


class NodeRequest(Struct, frozen=True):
    """A write as it is sent."""

    method: Literal["PATCH", "DELETE"]
    name: str
    body: Mapping[str, object]
    """A merge patch, or the preconditions of a deletion."""
    subresource: Literal["status"] | None = None


def patch_request(node: Node, patch: NodePatch) -> NodeRequest | None:
    """Return the request for a patch of the Node as the last write returned it; None when nothing is left to write."""
    body = patch.body
    kept = tuple(taint for taint in node.spec.taints if taint.key != UNINITIALIZED_TAINT)
    if patch.initialised and len(kept) < len(node.spec.taints):
        body = {part: {**body.get(part, {}), **fields} for part, fields in taints_body(node, kept).items()}
    return NodeRequest("PATCH", node.metadata.name, body, patch.subresource) if body else None


class MetadataChange(Struct, frozen=True):
    """Labels and annotations that must differ from now."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def identity_patch(
    node: Node,
    provider_id: str | None,
    change: MetadataChange,
    *,
    told: tuple[EventMessage, ...] = (),
    initialised: bool = False,
) -> NodePatch | None:
    """Return the patch for provider ID, labels and annotations, or None when there is nothing to write.

    ``initialised`` takes the uninitialized taints away with it; it is a patch even without anything else.
    """
    if provider_id is None and not change.labels and not change.annotations:
        return NodePatch({}, told=told, initialised=True) if initialised else None
    changes = {"labels": change.labels, "annotations": change.annotations}
    body: dict[str, dict[str, object]] = {"metadata": {"uid": node.metadata.uid}}
    body["metadata"] |= {key: dict(values) for key, values in changes.items() if values}
    if provider_id is not None:
        body["spec"] = {"providerID": provider_id}
    return NodePatch(body, told=told, initialised=initialised)


def addresses_patch(
    node: Node, addresses: Sequence[NodeAddress], *, told: tuple[EventMessage, ...] = ()
) -> NodePatch | None:
    """Return the patch that makes the addresses these, or None when the Node has the same ones in any order."""
    if Counter(addresses) == Counter(node.status.addresses):
        return None
    status = {"addresses": [msgspec.to_builtins(address) for address in addresses]}
    return NodePatch({"metadata": {"uid": node.metadata.uid}, "status": status}, "status", told)


def uninitialized_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints that say the Node is to be initialised: the key counts, whatever value and effect."""
    return tuple(taint for taint in node.spec.taints if taint.key == UNINITIALIZED_TAINT)


def was_initialised(node: Node) -> bool:
    """Return whether the Node's addresses come from a finished initialisation and not from the kubelet's start.

    Besides a Node without the taint this is one with an InternalIP that got the taint again: it bears our provider
    ID, or a record, which are only written when the taint goes or is gone. A kubelet that is given the provider ID at
    its start is believed, too: what it writes then is its ``--node-ip``.
    """
    if not uninitialized_taints(node):
        return True
    if not any(address.type == "InternalIP" for address in node.status.addresses):
        return False
    ours = parse_provider_id(node.spec.provider_id) is not None
    return ours or any(node.metadata.annotation(record) is not None for record in _RECORDS)


def taints_body(node: Node, taints: Iterable[Taint]) -> dict[str, dict[str, object]]:
    """Return the body that makes the taints these, valid only for the Node's present resource version."""
    documents = [{key: value for key, value in msgspec.to_builtins(taint).items() if value} for taint in taints]
    metadata: dict[str, object] = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "spec": {"taints": documents or None}}
