"""Zone and region labels of a Node, from the annotations that Harvester copies from the host to the VMI.

* The labels and their beta names follow the VMI while it has the annotation. They are never removed, as in the Go
  provider: a VM that starts has no annotations yet.
* During a live migration an initialized Node keeps its labels. The end of the migration is a change of the VMI.
* A value that is no label value is ignored with an Event: the API server would reject the whole patch.
* On an initialized Node a beta label that no VMI decides is copied to the label, as in the Go framework. Harvester has
  no instance types, so that label is only copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.model.meta import LABEL_VALUE
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import INSTANCE_TYPE, INSTANCE_TYPE_BETA, REGION, REGION_BETA, ZONE, ZONE_BETA
from harvester_ccm.plan.node.messages import invalid_annotation
from harvester_ccm.plan.node.patch import uninitialized_taints

_BETA: Final[Mapping[str, str]] = {ZONE: ZONE_BETA, REGION: REGION_BETA, INSTANCE_TYPE: INSTANCE_TYPE_BETA}


def topology_labels(
    node: Node, vmi: VirtualMachineInstance | None, *, follow: bool
) -> tuple[dict[str, str], tuple[EventMessage, ...]]:
    """Return the labels that must change, and Events for invalid annotations.

    With ``follow`` False, zone and region are only set when the Node is initialized.
    """
    is_new = bool(uninitialized_taints(node))
    labels: dict[str, str] = {}
    events: list[EventMessage] = []
    for key, beta in _BETA.items():
        is_followed = vmi is not None and key != INSTANCE_TYPE and (is_new or (follow and not vmi.is_migrating))
        value = (vmi.metadata.annotation(key) if vmi is not None and is_followed else None) or ""
        copied = None if is_new else node.metadata.label(beta)
        if LABEL_VALUE.fullmatch(value):
            labels |= {key: value, beta: value}
            continue
        if value:
            events.append(
                invalid_annotation(f"{key} of the VM", value, "a label value: at most 63 letters, digits, -, _ and .")
            )
        if copied is not None:
            labels[key] = copied
    return {key: value for key, value in labels.items() if node.metadata.label(key) != value}, tuple(events)
