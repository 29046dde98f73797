"""What users are told of somebody else who keeps undoing what this program writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from harvester_ccm.kube.brakes import LISTS, MADE_PAUSE, MAPS, UNDONE_PAUSE, Fields, Hold, Path, WriteGroup
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NodeReason, Reason

SHOWN: Final = 3
"""So many fields are named at most."""
SHOWN_LENGTH: Final = 100
"""Of a value, in characters."""


class _Words(Struct, frozen=True):
    """What is written there, and what to do about somebody who undoes it."""

    what: str
    advice: str


_OF_SERVICES: Final[Mapping[WriteGroup, _Words]] = {
    WriteGroup.STATUS: _Words(
        "status of this Service",
        "Is another load balancer controller on (K3s ServiceLB, MetalLB, Cilium), or another cloud controller manager? "
        "Switch it off, or give the Service to one of them with loadBalancerClass",
    ),
    WriteGroup.METADATA: _Words(
        "Service", "Take it out of what is applied again and again (in GitOps: have this difference ignored)"
    ),
    WriteGroup.OBJECT: _Words(
        "load balancer in Harvester",
        "Is there another cluster of this name, or a copy of this one? Give each its own --cluster-name",
    ),
    WriteGroup.EXISTENCE: _Words(
        "namespace of the VMs in Harvester", "Look for whoever deletes load balancers there, also in another cluster"
    ),
}
_OF_NODES: Final[Mapping[WriteGroup, _Words]] = {
    WriteGroup.STATUS: _Words(
        "addresses of this Node",
        "Is the kubelet run without --cloud-provider=external, or is another cloud controller manager on, such as the "
        "one of K3s (--disable-cloud-controller switches it off)?",
    ),
    WriteGroup.METADATA: _Words(
        "Node", "Is there another cloud controller manager, or something else that labels or taints Nodes?"
    ),
}


def service_event(hold: Hold, writers: Sequence[str]) -> EventMessage:
    """Return what to tell of a write for a Service that is held back."""
    if hold.group is not WriteGroup.MAKING:
        return EventMessage("Warning", Reason.CONTESTED, _text(hold, _OF_SERVICES[hold.group], writers))
    text = (
        "Load balancers of this Service were created and deleted so often in a row that there is only one creation or "
        f"deletion each {MADE_PAUSE:.0f} s now, and what serves stays until both are due. Look for what changes the "
        "type, the class, the workload type or the primary of the Service again and again, for a copy of this cluster "
        "under the same name, and in Harvester for whoever deletes load balancers"
    )
    return EventMessage("Warning", Reason.MADE_TOO_OFTEN, text)


def node_event(hold: Hold, writers: Sequence[str]) -> EventMessage:
    """Return what to tell of a write to a Node that is held back."""
    return EventMessage("Warning", NodeReason.CONTESTED, _text(hold, _OF_NODES[hold.group], writers))


def _text(hold: Hold, words: _Words, writers: Sequence[str]) -> str:
    who = f"Somebody else ({' or '.join(writers)})" if writers else "Somebody else"
    return (
        f"{who} keeps undoing what this program writes to the {words.what}: {_fields(hold.undone)}. From now on it is "
        f"put right only every {UNDONE_PAUSE / 60:.0f} minutes, until that ends. {words.advice}"
    )


def _fields(fields: Fields) -> str:
    shown = [_field(path, value) for path, value in list(fields.items())[:SHOWN]]
    more = [f"{len(fields) - SHOWN} more"] if len(fields) > SHOWN else []
    return ", ".join((*shown, *more))


def _field(path: Path, value: object) -> str:
    kind = {**MAPS, **LISTS}.get(path[:-1])
    name = f"{kind} {path[-1]}" if kind else ".".join(path)
    if value is None:
        return f"{name} is not there"
    if value == "there":
        return f"{name} is there"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"{name} is {text[:SHOWN_LENGTH]!r}"
