"""How long new Nodes waited for this program, out of the cache of Nodes. Nothing is remembered."""

from __future__ import annotations

from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import Node
from harvester_ccm.plan.node.patch import uninitialized_taints
from harvester_ccm.telemetry.metrics import Telemetry


def follow_new_nodes(telemetry: Telemetry, nodes: Informer[Node]) -> None:
    """Measure the age of Nodes at their first sight and when they are initialised, while this process leads."""

    def changed(old: Node | None, new: Node | None) -> None:
        created = new.metadata.created if new is not None else None
        if new is None or created is None or not telemetry.leading:
            return
        age, waits = max(0.0, telemetry.wall_clock() - created), bool(uninitialized_taints(new))
        if old is None and waits:
            telemetry.node_init_seconds.observe(age)
        elif old is not None and not waits and uninitialized_taints(old):
            telemetry.taint_seconds.observe(age)

    nodes.on_change(changed)
