"""How long new Nodes wait, as it is shown."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from harvester_ccm.model.core import NODES, Node
from harvester_ccm.names import UNINITIALIZED_TAINT
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.services import follow_new_nodes
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.offline import OfflineInformer, offline_client


def node(version: int, *, tainted: bool, age: float | None = 40.0) -> Node:
    created = None if age is None else datetime.fromtimestamp(time.time() - age, UTC).isoformat()
    taints = [{"key": UNINITIALIZED_TAINT, "effect": "NoSchedule"}] if tainted else []
    meta = {"name": "n1", "uid": "u1", "resourceVersion": str(version), "creationTimestamp": created}
    return NODES.decode(json.dumps({"metadata": meta, "spec": {"taints": taints}}).encode())


async def test_new_nodes_are_timed_once() -> None:
    telemetry = Telemetry("1")
    nodes: OfflineInformer[Node] = OfflineInformer(offline_client(), NODES)
    follow_new_nodes(telemetry, nodes)
    for version, tainted in enumerate((True, True, False, False), 1):
        nodes.observe(node(version, tainted=tainted))

    shown = samples(telemetry)

    for name in ("initial_node_sync_delay", "cloud_provider_taint_removal_delay"):
        assert shown[f"node_controller_{name}_seconds_count"][()] == 1
        assert shown[f"node_controller_{name}_seconds_sum"][()] == pytest.approx(40, abs=2)


async def test_nodes_that_were_there_before_are_not_timed() -> None:
    telemetry = Telemetry("1")
    nodes: OfflineInformer[Node] = OfflineInformer(offline_client(), NODES)
    follow_new_nodes(telemetry, nodes)
    nodes.observe(node(1, tainted=False))
    nodes.lose(node(1, tainted=False))
    nodes.observe(node(2, tainted=True, age=None))

    assert samples(telemetry)["node_controller_initial_node_sync_delay_seconds_count"][()] == 0
