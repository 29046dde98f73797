"""What an upgrade of Harvester to 1.2 makes of a load balancer."""

from __future__ import annotations

from typing import Any

import pytest

from devenv.harvester.conversion import converted

LISTENERS = [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}]
METADATA = {"name": "web", "namespace": "vms", "uid": "lb-uid"}
READY = [{"type": "Ready", "status": "True"}]
MACHINES = {"192.0.2.1": "node-1", "192.0.2.2": "node-2"}


@pytest.mark.parametrize(
    ("spec", "status", "new_spec", "new_status"),
    [
        pytest.param(
            {"ipam": "pool", "listeners": LISTENERS, "backendServers": ["192.0.2.1", "192.0.2.2"]},
            {"address": "127.77.0.2", "conditions": READY},
            {"backendServerSelector": {"harvesterhci.io/vmName": ["node-1", "node-2"]}},
            {
                "address": "127.77.0.2",
                "conditions": READY,
                "backendServers": ["192.0.2.1", "192.0.2.2"],
                "allocatedAddress": {"ip": "127.77.0.2", "ipPool": "lan"},
            },
            id="address from a pool",
        ),
        pytest.param(
            {"ipam": "dhcp", "listeners": LISTENERS, "backendServers": ["192.0.2.9"]},
            {"address": "127.79.0.10"},
            {"backendServerSelector": {"harvesterhci.io/vmName": []}},
            {"address": "127.79.0.10", "backendServers": ["192.0.2.9"], "allocatedAddress": {"ip": "0.0.0.0"}},
            id="address from DHCP, unknown backend",
        ),
        pytest.param(
            {
                "ipam": "pool",
                "listeners": LISTENERS,
                "description": "shop",
                "healthCheck": {"port": 30080, "successThreshold": 1, "PeriodSeconds": 5},
            },
            {},
            {
                "description": "shop",
                "healthCheck": {"port": 30080, "successThreshold": 1},
                "backendServerSelector": {"harvesterhci.io/vmName": []},
            },
            {},
            id="no address yet, and a check whose period is lost",
        ),
    ],
)
def test_converted(
    spec: dict[str, Any], status: dict[str, Any], new_spec: dict[str, Any], new_status: dict[str, Any]
) -> None:
    old = {
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1",
        "kind": "LoadBalancer",
        "metadata": METADATA,
        "spec": spec,
        "status": status,
    }
    assert converted(old, pool="lan", machines=MACHINES) == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": METADATA,
        "spec": {"ipam": spec["ipam"], "listeners": LISTENERS, **new_spec},
        "status": new_status,
    }
