"""Writes to a Node: JSON merge patches that contain only fields of this controller.

A merge patch replaces a list as a whole. ``status.addresses`` belongs to this controller; a strategic merge patch would
merge two addresses of one type. ``spec.taints`` has several owners: a patch with taints carries the resource version.
Every patch carries the Node's UID, so a Node that was recreated under the same name rejects it (422).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from harvester_ccm.model.core import Node, NodeAddress, Taint, parse_provider_id
from harvester_ccm.names import MACHINE_RECORD, UNINITIALIZED_TAINT


class NodeRequest(Struct, frozen=True):
    """A write to a Node."""

    method: Literal["PATCH", "DELETE"]
    name: str
    body: Mapping[str, object]
    """A merge patch, or the preconditions of a deletion."""
    subresource: Literal["status"] | None = None


def addresses_request(node: Node, addresses: Sequence[NodeAddress]) -> NodeRequest | None:
    """Return the request that sets the addresses; None if the Node has them in any order."""
    if Counter(addresses) == Counter(node.status.addresses):
        return None
    status = {"addresses": [msgspec.to_builtins(address) for address in addresses]}
    return NodeRequest(
        "PATCH", node.metadata.name, {"metadata": {"uid": node.metadata.uid}, "status": status}, "status"
    )


def metadata_request(
    node: Node, *, labels: Mapping[str, str], annotations: Mapping[str, str], provider_id: str = ""
) -> NodeRequest | None:
    """Return the request for labels, annotations and provider ID, and for the removal of the uninitialized taint.

    The arguments contain only what must change. None: nothing must.
    """
    others = tuple(taint for taint in node.spec.taints if taint.key != UNINITIALIZED_TAINT)
    is_new = len(others) < len(node.spec.taints)
    if not (labels or annotations or provider_id or is_new):
        return None
    changes = {"labels": dict(labels), "annotations": dict(annotations)}
    body: dict[str, dict[str, object]] = (
        taints_body(node, others) if is_new else {"metadata": {"uid": node.metadata.uid}}
    )
    body["metadata"] |= {key: values for key, values in changes.items() if values}
    if provider_id:
        body.setdefault("spec", {})["providerID"] = provider_id
    return NodeRequest("PATCH", node.metadata.name, body)


def taints_body(node: Node, taints: Iterable[Taint]) -> dict[str, dict[str, object]]:
    """Return the patch that sets the taints, valid only for the present resource version of the Node."""
    documents = [{key: value for key, value in msgspec.to_builtins(taint).items() if value} for taint in taints]
    metadata: dict[str, object] = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "spec": {"taints": documents or None}}


def uninitialized_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a Node that must be initialized: the key counts, with any value and effect."""
    return tuple(taint for taint in node.spec.taints if taint.key == UNINITIALIZED_TAINT)


def was_initialized(node: Node) -> bool:
    """Return whether a cloud provider has set the addresses of a Node, and not only its kubelet.

    A Node that got the taint again has an InternalIP together with a provider ID or a recorded VM.
    """
    if not uninitialized_taints(node):
        return True
    managed = parse_provider_id(node.spec.provider_id) or node.metadata.annotation(MACHINE_RECORD) is not None
    return bool(managed) and any(address.type == "InternalIP" for address in node.status.addresses)
