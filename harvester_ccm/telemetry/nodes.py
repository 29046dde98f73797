"""How long new Nodes waited for this program, out of the cache of Nodes. Nothing is remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.telemetry.creation import created_at

Tell = Callable[[float], None]


@dataclass(frozen=True)
class NodeTimes:
    """Whom to tell the age of a new Node in seconds."""

    seen: Tell
    """Called when it is seen first."""
    initialised: Tell
    """Called when its uninitialized taint is gone."""


class NodeReport:
    """Follows Nodes from their first sight until they are initialised."""

    def __init__(
        self, nodes: Informer[Node], times: NodeTimes, *, leading: Callable[[], bool], clock: Callable[[], float]
    ) -> None:
        """``leading`` says whether this process works: others tell nothing. ``clock`` counts from the epoch."""
        self._times = times
        self._leading = leading
        self._clock = clock
        nodes.on_change(self._changed)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if new is None or not self._leading():
            return
        waits = bool(uninitialized_taints(new))
        if old is None and waits:
            self._tell(self._times.seen, new)
        elif old is not None and not waits and uninitialized_taints(old):
            self._tell(self._times.initialised, new)

    def _tell(self, tell: Tell, node: Node) -> None:
        created = created_at(node)
        if created is not None:
            tell(max(0.0, self._clock() - created))
