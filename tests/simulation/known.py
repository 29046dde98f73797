"""Shortened scenarios that failed once, each with its failure.

A new kind of action changes the scenario of every seed; these stay the same.
"""

from collections.abc import Mapping
from typing import Any, Final

from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    IPAM,
    KUBE_VIP_ADDRESSES,
    PRIMARY_SERVICE,
    WORKLOAD_TYPE,
)
from tests.simulation.actions import LAN, Action, Scenario
from tests.simulation.machines import MACHINES

ONE_PORT: Final[list[dict[str, Any]]] = [{"name": "main", "port": 80, "protocol": "TCP", "nodePort": 30000}]
OTHER_PORT: Final[list[dict[str, Any]]] = [{"name": "main", "port": 81, "protocol": "TCP", "nodePort": 30010}]
OTHER: Final = "example.com/other"
"""Class of another controller."""
TWO_PORTS: Final = [*ONE_PORT, {"name": "more", "port": 443, "protocol": "TCP", "nodePort": 30001}]


def _create(ports: list[dict[str, Any]], annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"name": "a", "ports": ports, "annotations": dict(annotations or {})}


def _request(address: str) -> dict[str, Any]:
    return {"address": address, "setting": "spec.loadBalancerIP"}


KNOWN: Final[Mapping[str, Scenario]] = {
    # A load balancer was deleted after its pool was blocked, and an allocation in progress stayed.
    "service without a pool is deleted while harvester allocates its address": Scenario(
        "1696",
        pool=1,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(ONE_PORT, {WORKLOAD_TYPE: "clutser"})),
            Action(0.014, "stop_controllers", {"seconds": 60}),
            Action(0.002, "resize_pool", {"by": 1}),
            Action(0.03, "retype", {"name": "a", "type": "ClusterIP"}),
        ),
    ),
    # kube-vip ignored the Service forever.
    "empty annotation is removed from a suppressed service while no controller runs": Scenario(
        "3379",
        pool=5,
        nodes=3,
        actions=(
            Action(0.0, "create", _create(TWO_PORTS)),
            Action(0.08, "kill", {"after_steps": 14}),
            Action(0.003, "annotate", {"name": "a", "annotations": {KUBE_VIP_ADDRESSES: None}}),
        ),
    ),
    # The load balancer was not deleted and kept its address.
    "deleted load balancer returns with a backup of harvester under another leader": Scenario(
        "1",
        pool=3,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(20.0, "delete", {"name": "a"}),
            Action(20.0, "stop", {}),
            Action(150.0, "restore", {"side": "harvester", "back": 180.0, "away": 5.0}),
        ),
    ),
    # An object that the watch had not delivered stayed in the cache after the restore.
    "harvester is restored without a load balancer that was just created": Scenario(
        "52256",
        pool=3,
        nodes=1,
        actions=(
            Action(4.18, "cut_watches", {"side": "harvester", "how": "silent"}),
            Action(0.0, "create", _create(ONE_PORT)),
            Action(15.781, "restore", {"side": "harvester", "back": 20.0, "away": 60.0}),
        ),
    ),
    # kube-vip goes on with an announcement that nothing on the Service shows any more.
    "address of a service that gets another class is removed from it before": Scenario(
        "S14 0",
        pool=3,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(20.0, "kill_for", {"seconds": 30.0}),
            Action(4.0, "change_type_and_class", {"name": "a", "type": "NodePort", "load_balancer_class": None}),
            Action(1.5, "change_type_and_class", {"name": "a", "type": "LoadBalancer", "load_balancer_class": OTHER}),
            Action(4.6, "annotate", {"name": "a", "annotations": {KUBE_VIP_ADDRESSES: None}}),
        ),
    ),
    # The controller took the address for a lease of kube-vip.
    "address of another service is written to the status of one with dhcp": Scenario(
        "82000911",
        pool=5,
        nodes=0,
        actions=(
            Action(21.872, "create", {**_create(TWO_PORTS, {HEALTH_CHECK_PORT: "80"}), "name": "c"}),
            Action(4.512, "create", {**_create(OTHER_PORT, {IPAM: "dhcp"}), "name": "b"}),
            Action(3.488, "write_status", {"name": "b", "of": "c"}),
            Action(500.0, "wait", {}),
        ),
    ),
    # Nothing showed any more that kube-vip had withdrawn an address, before Harvester refused the next one.
    "pool is deleted during a switch to a vm load balancer that is taken back": Scenario(
        "g0",
        pool=3,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(0.3, "delete_pool_in_use", {"name": LAN, "seconds": 5.0}),
            Action(0.0, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "vm"}}),
            Action(60.0, "stop", {}),
            Action(0.0, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "cluster"}}),
            Action(30.0, "make_pool", {"name": LAN}),
        ),
    ),
    # The load balancer was deleted because of VMs that were known from before an outage.
    "all machines are recreated unseen before the only load balancer is replaced": Scenario(
        "96009300",
        pool=2,
        nodes=3,
        actions=(
            Action(0.0, "create", _create(ONE_PORT, {HEALTH_CHECK_PORT: "nonsense"})),
            Action(0.0, "cut_watches", {"side": "harvester", "how": "silent"}),
            Action(0.151, "recreate_machines", {"names": MACHINES}),
            Action(10.0, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "cluster"}}),
        ),
    ),
    # The address of the pool passed for a lease of kube-vip, also after another Service had got it.
    "load balancer of a service that is to use dhcp is deleted while no lease is given": Scenario(
        "leases",
        pool=1,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(1.0, "create", {**_create(OTHER_PORT, {PRIMARY_SERVICE: "shop/a"}), "name": "b"}),
            Action(20.0, "stop_dhcp", {"seconds": 300.0}),
            Action(0.0, "annotate", {"name": "a", "annotations": {IPAM: "dhcp"}}),
            Action(10.0, "delete_balancer", {"name": "a"}),
            Action(20.0, "create", {**_create(ONE_PORT), "name": "c"}),
            Action(500.0, "wait", {}),
        ),
    ),
}
