"""Writes to a Node, as JSON merge patches of only our fields.

A merge patch replaces a list as a whole. ``status.addresses`` is ours, so that is right (a strategic merge would
collapse two addresses of one type). ``spec.taints`` belongs to many: its patch carries the resource version, so that
another writer's taint is never lost; the answer is 409 and the next look decides anew.
Every patch carries the Node's UID: a Node that was re-created under the same name meanwhile refuses it (422).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from harvester_ccm.model.core import Node, NodeAddress, Taint, parse_provider_id
from harvester_ccm.names import UNINITIALIZED_TAINT


@dataclass(frozen=True)
class NodePatch:
    """Body of a merge patch of a Node, and the subresource it goes to (None: the Node itself)."""

    body: Mapping[str, object]
    subresource: Literal["status"] | None = None
    initialised: bool = False
    """Whether the uninitialized taints go with it. ``patch_request`` adds that, bound to the Node's version then."""


@dataclass(frozen=True)
class NodeRequest:
    """A write as it is sent."""

    method: Literal["PATCH", "DELETE"]
    name: str
    body: Mapping[str, object]
    subresource: Literal["status"] | None = None


def patch_request(node: Node, patch: NodePatch) -> NodeRequest | None:
    """Return the request for a patch of the Node as the last write returned it; None when nothing is left to write."""
    body = patch.body
    kept = tuple(taint for taint in node.spec.taints if taint.key != UNINITIALIZED_TAINT)
    if patch.initialised and len(kept) < len(node.spec.taints):
        removal = taints_patch(node, kept).body
        body = {part: {**_part(body, part), **_part(removal, part)} for part in ("metadata", "spec")}
    return NodeRequest("PATCH", node.metadata.name, body, patch.subresource) if body else None


@dataclass(frozen=True)
class MetadataChange:
    """Labels and annotations that must differ from now; None removes a key."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]


def identity_patch(
    node: Node, provider_id: str | None, change: MetadataChange, *, initialised: bool = False
) -> NodePatch | None:
    """Return the patch for provider ID, labels and annotations, or None when there is nothing to write.

    ``initialised`` takes the uninitialized taints away with it; it is a patch even without anything else.
    """
    if provider_id is None and not change.labels and not change.annotations:
        return NodePatch({}, initialised=True) if initialised else None
    metadata: dict[str, object] = _metadata(node)
    if change.labels:
        metadata["labels"] = dict(change.labels)
    if change.annotations:
        metadata["annotations"] = dict(change.annotations)
    body: dict[str, object] = {"metadata": metadata}
    if provider_id is not None:
        body["spec"] = {"providerID": provider_id}
    return NodePatch(body, initialised=initialised)


def addresses_patch(node: Node, addresses: Iterable[NodeAddress]) -> NodePatch | None:
    """Return the patch that makes the addresses these, or None when the Node has the same ones in any order."""
    wanted = tuple(addresses)
    if sorted(map(_pair, wanted)) == sorted(map(_pair, node.status.addresses)):
        return None
    documents = [{"type": address.type, "address": address.address} for address in wanted]
    return NodePatch({"metadata": _metadata(node), "status": {"addresses": documents}}, "status")


def uninitialized_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints that say the Node is to be initialised: the key counts, whatever value and effect."""
    return tuple(taint for taint in node.spec.taints if taint.key == UNINITIALIZED_TAINT)


def was_initialised(node: Node) -> bool:
    """Return whether the Node's addresses come from a finished initialisation and not from the kubelet's start.

    Besides a Node without the taint this is one of ours that only has it with the effect ``PreferNoSchedule``: the
    mark by which the Go provider asks for a second initialisation. A kubelet registers with ``NoSchedule``.
    """
    taints = uninitialized_taints(node)
    ours = parse_provider_id(node.spec.provider_id) is not None
    return not taints or (ours and all(taint.effect == "PreferNoSchedule" for taint in taints))


def _part(body: Mapping[str, object], key: str) -> Mapping[str, object]:
    part = body.get(key)
    return part if isinstance(part, Mapping) else {}


def has_taint(taints: Iterable[Taint], key: str, effect: str) -> bool:
    """Return whether a taint with this key and effect is there; its value does not matter."""
    return any((taint.key, taint.effect) == (key, effect) for taint in taints)


def without_taint(taints: Iterable[Taint], key: str, effect: str) -> tuple[Taint, ...]:
    """Return the taints except those with this key and effect."""
    return tuple(taint for taint in taints if (taint.key, taint.effect) != (key, effect))


def taints_patch(node: Node, taints: Iterable[Taint]) -> NodePatch:
    """Return the patch that makes the taints these, valid only for the Node's present resource version."""
    documents = [_taint_document(taint) for taint in taints]
    metadata = {**_metadata(node), "resourceVersion": node.metadata.resource_version}
    return NodePatch({"metadata": metadata, "spec": {"taints": documents or None}})


def _metadata(node: Node) -> dict[str, object]:
    return {"uid": node.metadata.uid}


def _pair(address: NodeAddress) -> tuple[str, str]:
    return address.type, address.address


def _taint_document(taint: Taint) -> dict[str, str]:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added or ""}
    return {name: value for name, value in fields.items() if value}
