"""How long new Nodes waited for this program, out of the cache of Nodes. Nothing is remembered."""

from __future__ import annotations

from prometheus_client import Histogram

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.telemetry.metrics import Telemetry


class NodeMetrics:
    """Follows Nodes from their first sight until they are initialised, while this process leads."""

    def __init__(self, telemetry: Telemetry, nodes: Informer[Node]) -> None:
        self._telemetry = telemetry
        nodes.on_change(self._changed)

    def _changed(self, old: Node | None, new: Node | None) -> None:
        if new is None or not self._telemetry.leading:
            return
        waits = bool(uninitialized_taints(new))
        if old is None and waits:
            self._observe_age(self._telemetry.node_init_seconds, new)
        elif old is not None and not waits and uninitialized_taints(old):
            self._observe_age(self._telemetry.taint_seconds, new)

    def _observe_age(self, histogram: Histogram, node: Node) -> None:
        created = node.metadata.created
        if created is not None:
            histogram.observe(max(0.0, self._telemetry.wall_clock() - created))
