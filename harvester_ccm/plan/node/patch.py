"""Writes to a Node, and its topology labels: JSON merge patches that contain only fields of this controller.

A merge patch replaces a list as a whole. ``status.addresses`` belongs to this controller; a strategic merge patch would
merge two addresses of one type. ``spec.taints`` has several owners: a patch with taints carries the resource version.
Every patch carries the Node's UID, so a Node that was recreated under the same name rejects it (422).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.kube.objects import LABEL_VALUE
from harvester_ccm.model.core import Node, NodeAddress, Taint, parse_provider_id
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.plan.node.messages import invalid_annotation

_BETA: Final[Mapping[str, str]] = {names.ZONE: names.ZONE_BETA, names.REGION: names.REGION_BETA}


class NodePatch(Struct, frozen=True):
    """A merge patch of a Node."""

    body: Mapping[str, object]
    subresource: Literal["status"] | None = None


def addresses_patch(node: Node, addresses: Sequence[NodeAddress]) -> NodePatch | None:
    """Return the patch that sets the addresses; None if the Node has them in any order."""
    if Counter(addresses) == Counter(node.status.addresses):
        return None
    status = {"addresses": [msgspec.to_builtins(address) for address in addresses]}
    return NodePatch({"metadata": {"uid": node.metadata.uid}, "status": status}, "status")


def metadata_patch(
    node: Node, *, labels: Mapping[str, str], annotations: Mapping[str, str], provider_id: str = ""
) -> NodePatch | None:
    """Return the patch for labels, annotations and provider ID, and for the removal of the uninitialized taint.

    The arguments contain only what must change. None: nothing must.
    """
    others = tuple(taint for taint in node.spec.taints if taint.key != names.UNINITIALIZED_TAINT)
    is_uninitialized = len(others) < len(node.spec.taints)
    if not (labels or annotations or provider_id or is_uninitialized):
        return None
    body: dict[str, dict[str, object]] = {"metadata": {"uid": node.metadata.uid}}
    if is_uninitialized:
        body = taints_body(node, others)
    if labels:
        body["metadata"]["labels"] = dict(labels)
    if annotations:
        body["metadata"]["annotations"] = dict(annotations)
    if provider_id:
        body.setdefault("spec", {})["providerID"] = provider_id
    return NodePatch(body)


def topology_labels(
    node: Node, vmi: VirtualMachineInstance | None, *, follow: bool
) -> tuple[dict[str, str], tuple[EventMessage, ...]]:
    """Return the zone and region labels that must change, and Events for invalid annotations.

    They follow the annotations that Harvester copies from the host to the VMI; with ``follow`` False only at the
    initialization, and not during a live migration. They are never removed: a VM that starts has no annotations yet.
    The API server would reject the whole patch for a value that is no label value.
    """
    is_uninitialized = bool(uninitialized_taints(node))
    if vmi is None or (not is_uninitialized and (vmi.is_migrating or not follow)):
        return {}, ()
    labels: dict[str, str] = {}
    events: list[EventMessage] = []
    for key, beta in _BETA.items():
        value = vmi.metadata.annotation(key) or ""
        if LABEL_VALUE.fullmatch(value):
            labels |= {key: value, beta: value}
        elif value:
            expected = "a label value: at most 63 letters, digits, -, _ and ."
            events.append(invalid_annotation(f"{key} of the VM", value, expected))
    changed = {key: value for key, value in labels.items() if node.metadata.label(key) != value}
    return changed, tuple(events)


def taints_body(node: Node, taints: Iterable[Taint]) -> dict[str, dict[str, object]]:
    """Return the patch that sets the taints, valid only for the present resource version of the Node."""
    documents = [{key: value for key, value in msgspec.to_builtins(taint).items() if value} for taint in taints]
    metadata: dict[str, object] = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata, "spec": {"taints": documents or None}}


def uninitialized_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a Node that must be initialized: the key counts, with any value and effect."""
    return tuple(taint for taint in node.spec.taints if taint.key == names.UNINITIALIZED_TAINT)


def was_initialized(node: Node) -> bool:
    """Return whether a cloud provider has set the addresses of a Node, and not only its kubelet.

    A Node that got the taint again has an InternalIP, and a recorded VM or a provider ID. Without a record, the taint
    tells: the Go provider sets it with another effect than a kubelet, which can register with a provider ID and an
    InternalIP (``--provider-id``, ``--node-ip``).
    """
    taints = uninitialized_taints(node)
    if not taints:
        return True
    if not node.internal_ips:
        return False
    records = (node.metadata.annotation(names.VM_ANNOTATION), node.metadata.annotation(names.GO_VM_ANNOTATION))
    if any(record is not None for record in records):
        return True
    is_of_kubelet = any(taint.effect == "NoSchedule" for taint in taints)
    return parse_provider_id(node.spec.provider_id) is not None and not is_of_kubelet
