"""Labels and annotations of a Node that are copied from its VM: those with the prefix of ``--node-label-prefix``.

* What the VM itself has counts before what its instance has from the VM's template or from the host.
* A key that the Node has from somebody else, with another value, is left alone, with a note: whoever labels VMs
  cannot change what the cluster says about its Nodes.
* What was written is recorded in an annotation on the Node. Only that is taken away, when the VM runs without it, and
  only while it still has that value. Without the flag, or with another prefix, it goes as well.
* Nothing goes while the VM does not run or migrates: its instance lacks for a moment what it will have.
* Keys and values that Harvester stores suit a Node too; how many there may be is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct, field

from harvester_ccm.model.core import Node
from harvester_ccm.model.meta import read_note
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import VM_LABELS_RECORD, NodeReason
from harvester_ccm.plan.node.events import warning
from harvester_ccm.plan.node.patch import MetadataChange, MetadataPlan, record_change
from harvester_ccm.plan.node.vms import VM, migrating, phase

MOST_KEYS: Final = 50
"""So many labels are copied, and as many annotations: the first ones in the order of their names."""
LONGEST_VALUE: Final = 1024
"""So many characters may the value of an annotation have."""

_KINDS: Final = ("labels", "annotations")


class _Outcome(Struct):
    """What becomes of one kind of keys."""

    changes: dict[str, str | None] = field(default_factory=dict)
    record: dict[str, str] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    """Keys that somebody else has set on the Node."""


def plan_vm_labels(node: Node, vm: VM, prefix: str) -> MetadataPlan:
    """Return the changes of labels and annotations. ``prefix`` ends with a slash; an empty one copies nothing."""
    before = _record(node)
    if not prefix and not before:
        return MetadataPlan(MetadataChange({}, {}))
    runs = vm.vmi is not None and phase(vm.vmi) == "Running" and not migrating(vm.vmi)
    outcomes, notes = {}, list[EventMessage]()
    for kind in _KINDS:
        wanted, passed_over = _wanted(vm, kind, prefix)
        outcomes[kind] = outcome = _decided(_of(node.metadata, kind), wanted, before.get(kind, {}), may_go=runs)
        notes += [_not_copied(kind, passed_over)] if passed_over else []
        notes += [_taken(kind, outcome.taken)] if outcome.taken else []
    record = {kind: outcome.record for kind, outcome in outcomes.items() if outcome.record}
    recorded = record_change(node, VM_LABELS_RECORD, record)
    change = MetadataChange(outcomes["labels"].changes, {**outcomes["annotations"].changes, **recorded})
    return MetadataPlan(change, tuple(notes))


def _of(metadata: object, kind: str) -> Mapping[str, str]:
    found: Mapping[str, str] | None = getattr(metadata, kind)
    return found or {}


def _wanted(vm: VM, kind: str, prefix: str) -> tuple[dict[str, str], list[str]]:
    """Return what is to be copied, and the keys that are too long or too many."""
    sources = (vm.vmi.metadata if vm.vmi is not None else None, vm.object.metadata)
    found = {key: value for one in sources if one is not None for key, value in _of(one, kind).items()}
    mine = sorted(key for key in found if prefix and key.startswith(prefix))
    fitting = [key for key in mine if len(found[key]) <= LONGEST_VALUE][:MOST_KEYS]
    return {key: found[key] for key in fitting}, [key for key in mine if key not in fitting]


def _decided(
    present: Mapping[str, str], wanted: Mapping[str, str], before: Mapping[str, str], *, may_go: bool
) -> _Outcome:
    outcome = _Outcome()
    for key, value in wanted.items():
        theirs = key in present and key not in before
        if theirs and present[key] != value:
            outcome.taken.append(key)
        if not theirs:
            outcome.record[key] = value
            outcome.changes |= {} if present.get(key) == value else {key: value}
    for key, value in before.items():
        if key in wanted:
            continue
        if not may_go:
            outcome.record[key] = value
        elif present.get(key) == value:
            outcome.changes[key] = None
    return outcome


def _record(node: Node) -> dict[str, dict[str, str]]:
    try:
        text = node.metadata.annotation(VM_LABELS_RECORD) or "{}"
        return read_note(text, dict[str, dict[str, str]])
    except msgspec.MsgspecError:
        return {}


def _not_copied(kind: str, keys: list[str]) -> EventMessage:
    text = (
        f"Not all {kind} of the VM are copied to the Node: at most {MOST_KEYS}, and values of at most {LONGEST_VALUE} "
        f"characters. Left out are {_listed(keys)}"
    )
    return warning(NodeReason.VM_LABEL_LEFT_OUT, text, subject=f"{kind} {len(keys)}")


def _taken(kind: str, keys: list[str]) -> EventMessage:
    text = (
        f"The Node has {kind} with other values than its VM, and this program has not set them: {_listed(keys)}. They "
        "stay as they are. Remove them from the Node to have those of the VM"
    )
    return warning(NodeReason.VM_LABEL_LEFT_OUT, text, subject=f"{kind} {' '.join(keys)}")


def _listed(keys: list[str]) -> str:
    return ", ".join((*keys[:3], *([f"{len(keys) - 3} more"] if len(keys) > 3 else [])))
