"""Zone and region labels of a Node, from the annotations that Harvester copies from the host to the VMI.

* Both the present label and the beta one are set, and overwritten, whenever the VMI names a zone or region.
* What was set is recorded in an annotation on the Node. When the VMI loses its zone or region, the labels are
  removed only if the record says that they came from a VMI and they still have that value: a label that a user
  put on a Node stays. They are removed only while the VMI runs, its guest agent answers and the Node is ready: a
  VM that starts has no annotations for a moment, and its Node counts as ready for most of a minute after its stop. The
  Go provider never removes a label and taints such a Node again and again.
* During a live migration an initialised Node keeps its labels; the end of the migration is an event of its own.
* A value that cannot be a label value is passed over with a note; the API server would refuse the whole patch.
* On an initialised Node the framework's rule holds for what no VMI decides: the beta label, where there is one,
  is copied to the present one. The instance type is never set, and only copied by this rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.meta import LABEL_VALUE, read_note
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import (
    INSTANCE_TYPE,
    INSTANCE_TYPE_BETA,
    REGION,
    REGION_BETA,
    TOPOLOGY_RECORD,
    ZONE,
    ZONE_BETA,
    NodeReason,
)
from harvester_ccm.plan.node.events import warning
from harvester_ccm.plan.node.patch import MetadataChange, uninitialized_taints
from harvester_ccm.plan.node.vms import agent_connected, migrating, phase

_BETA_KEYS: Final[Mapping[str, str]] = {ZONE: ZONE_BETA, REGION: REGION_BETA}
_RECORD_KEYS: Final[Mapping[str, str]] = {ZONE: "zone", REGION: "region"}


class TopologyPlan(Struct, frozen=True):
    """What to change on the Node, only what differs, and what is odd."""

    change: MetadataChange
    notes: tuple[EventMessage, ...] = ()


def plan_topology(node: Node, vmi: VirtualMachineInstance | None, *, follow: bool = True) -> TopologyPlan:
    """Return the changes of labels. ``follow`` False takes zone and region only at the initialisation."""
    labels: dict[str, str | None] = {}
    notes: list[EventMessage] = []
    tainted = bool(uninitialized_taints(node))
    record = _record(node)
    followed = vmi if vmi and (tainted or (follow and not migrating(vmi))) else None
    for key in (ZONE, REGION):
        value = (followed.metadata.annotation(key) if followed else None) or ""
        if value and LABEL_VALUE.fullmatch(value):
            labels |= {key: value, _BETA_KEYS[key]: value}
            record[_RECORD_KEYS[key]] = value
            continue
        if value:
            notes.append(_invalid(key, value))
        elif followed and _vanished(node, followed):
            labels |= _removals(node, key, record.pop(_RECORD_KEYS[key], None))
        if not tainted:
            labels |= _mirrored(node, labels, _BETA_KEYS[key], key)
    if not tainted:
        labels |= _mirrored(node, labels, INSTANCE_TYPE_BETA, INSTANCE_TYPE)
    changed = {key: value for key, value in labels.items() if node.metadata.label(key) != value}
    text = msgspec.json.encode(record, order="sorted").decode() if record else None
    recorded = {} if node.metadata.annotation(TOPOLOGY_RECORD) == text else {TOPOLOGY_RECORD: text}
    return TopologyPlan(MetadataChange(changed, recorded), tuple(notes))


def _vanished(node: Node, vmi: VirtualMachineInstance) -> bool:
    booted = phase(vmi) == "Running" and agent_connected(vmi)
    return booted and node.ready == "True" and not migrating(vmi)


def _removals(node: Node, key: str, recorded: str | None) -> dict[str, str | None]:
    pair = (key, _BETA_KEYS[key])
    return {label: None for label in pair if recorded is not None and node.metadata.label(label) == recorded}


def _mirrored(node: Node, planned: Mapping[str, str | None], beta: str, key: str) -> dict[str, str | None]:
    value = planned[beta] if beta in planned else node.metadata.label(beta)
    return {} if value is None else {key: value}


def _record(node: Node) -> dict[str, str]:
    try:
        record = read_note(node.metadata.annotation(TOPOLOGY_RECORD) or "{}", dict[str, object])
    except msgspec.DecodeError:
        return {}
    return {key: value for key, value in record.items() if isinstance(value, str)}


def _invalid(key: str, value: str) -> EventMessage:
    text = f"The VM's annotation {key} is {value!r}, expected a label value: at most 63 letters, digits, -, _ and ."
    return warning(NodeReason.TOPOLOGY_INVALID, f"{text}. The label is left as it is", subject=f"{key}={value}")
