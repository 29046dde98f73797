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
    SERVICE_FINALIZER,
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
    # The load balancer was adopted while its deletion waited for the Lease, and both were sent.
    "guest cluster is restored and a service is recreated before the lease is renewed": Scenario(
        "mini 1",
        pool=5,
        nodes=2,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(1.23, "restore", {"side": "guest", "back": 20.0, "away": 1.0}),
            Action(1.486, "create", _create(ONE_PORT, {IPAM: "pool"})),
        ),
    ),
    # The clone repeatedly tried to create a load balancer with the name of the original's.
    "cluster is cloned during a switch to a vm load balancer and its status is cleared": Scenario(
        "c100",
        pool=5,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(5.0, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "vm"}}),
            Action(0.1, "clone", {}),
            Action(5.0, "in_clone", {"verb": "clear_status", "name": "a"}),
        ),
    ),
    # An address that kube-vip still announced after the change of the type counted as managed by it.
    "type is changed twice and the service is deleted": Scenario(
        "20305",
        pool=3,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(2.965, "retype", {"name": "a", "type": "NodePort"}),
            Action(2.689, "retype", {"name": "a", "type": "LoadBalancer"}),
            Action(0.061, "delete", {"name": "a"}),
        ),
    ),
    # kube-vip had not annotated the address that it withdrew, and did not announce the next one.
    "load balancer with dhcp is deleted before kube-vip has its lease": Scenario(
        "50394",
        pool=1,
        nodes=3,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(0.022, "delete", {"name": "a"}),
            Action(0.177, "create", _create(TWO_PORTS, {IPAM: "dhcp"})),
            Action(0.273, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "cluster"}}),
            Action(0.036, "agent_back", {"name": "w3"}),
            Action(0.0, "delete_balancer", {"name": "a"}),
        ),
    ),
    # The lease of kube-vip was not recorded, and kube-vip and the controller waited for each other.
    "dhcp address is removed from the status while the controller is suspended": Scenario(
        "808",
        pool=3,
        nodes=0,
        actions=(
            Action(0.233, "create", _create(ONE_PORT, {IPAM: "dhcp"})),
            Action(0.09, "halt", {"seconds": 100}),
            Action(19.798, "clear_status", {"name": "a"}),
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
    # The secondary kept the address although no load balancer had it.
    "primary becomes internal in a cluster with a clone": Scenario(
        "x1",
        pool=5,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(ONE_PORT, {IPAM: "dhcp"})),
            Action(2.4, "clone", {}),
            Action(30.0, "wait", {}),
            Action(15.0, "in_clone", {"verb": "clear_status", "name": "a"}),
            Action(1.0, "create", {**_create(OTHER_PORT, {PRIMARY_SERVICE: "shop/a"}), "name": "b"}),
            Action(20.0, "retype", {"name": "a", "type": "ClusterIP"}),
            Action(10.0, "delete_balancer", {"name": "a"}),
        ),
    ),
    # The load balancer was deleted as an orphan, and the address was not withdrawn.
    "finalizer of a service that became internal is removed by hand": Scenario(
        "S9 0",
        pool=3,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(20.0, "kill_for", {"seconds": 5.0}),
            Action(0.0, "change_type_and_class", {"name": "a", "type": "NodePort", "load_balancer_class": None}),
            Action(0.1, "write_finalizer", {"name": "a", "finalizer": SERVICE_FINALIZER, "present": False}),
        ),
    ),
    # kube-vip ignored the withdrawal and the deletion.
    "another client lets kube-vip ignore a service in the moment of its deletion": Scenario(
        "S12 0",
        pool=3,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(20.0, "delete", {"name": "a"}),
            Action(0.0, "write_ignore", {"name": "a", "value": "true"}),
        ),
    ),
    # kube-vip still announced the address from before, and was touched before it had read the Service again.
    "service with dhcp was internal and comes back while no controller runs": Scenario(
        "S15 0",
        pool=3,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(20.0, "annotate", {"name": "a", "annotations": {IPAM: "dhcp"}}),
            Action(1.0, "change_type_and_class", {"name": "a", "type": "ClusterIP", "load_balancer_class": None}),
            Action(3.0, "kill_for", {"seconds": 5.0}),
            Action(0.5, "change_type_and_class", {"name": "a", "type": "LoadBalancer", "load_balancer_class": None}),
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
    # The restored guest cluster was not reachable, and the load balancer of the older data was deleted.
    "guest cluster is restored from before a service began to share an address": Scenario(
        "7900943",
        pool=5,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(TWO_PORTS)),
            Action(26.744, "create", {**_create(OTHER_PORT), "name": "b"}),
            Action(0.0, "annotate", {"name": "a", "annotations": {PRIMARY_SERVICE: "shop/b"}}),
            Action(38.643, "restore", {"side": "harvester", "back": 60.0, "away": 5.0}),
            Action(2.739, "restore", {"side": "guest", "back": 60.0, "away": 5.0}),
            Action(29.512, "delete", {"name": "a"}),
        ),
    ),
    # No load balancer was created again, because the controller could not know what would happen.
    "all machines are recreated while a load balancer is replaced": Scenario(
        "7901286",
        pool=1,
        nodes=3,
        actions=(
            Action(0.0, "create", _create(TWO_PORTS)),
            Action(2.366, "annotate", {"name": "a", "annotations": {WORKLOAD_TYPE: "vm"}}),
            Action(0.033, "recreate_machines", {"names": MACHINES}),
        ),
    ),
    # kube-vip withdrew an address that it had announced from the annotation, and stayed silent.
    "own address is requested and the annotation is removed": Scenario(
        "S13 0",
        pool=3,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(20.0, "request_address", {"name": "a", "of": "a"}),
            Action(20.0, "annotate", {"name": "a", "annotations": {KUBE_VIP_ADDRESSES: None}}),
        ),
    ),
    # The address stayed in the status.
    "finalizer is removed by hand while the address is withdrawn": Scenario(
        "3170162366",
        pool=5,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(TWO_PORTS)),
            Action(0.34, "network_fault", {"side": "guest", "kind": "429s", "seconds": 0.02, "share": 1.0, "of": ""}),
            Action(0.008, "retype", {"name": "a", "type": "ClusterIP"}),
            Action(0.098, "write_finalizer", {"name": "a", "finalizer": SERVICE_FINALIZER, "present": False}),
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
    # The Service looked like a new one, whose endpoints kube-vip does not need to be touched.
    "status is cleared during a switch back from a vm load balancer": Scenario(
        "95000920",
        pool=2,
        nodes=0,
        actions=(
            Action(0.0, "create", _create(TWO_PORTS, {HEALTH_CHECK_PORT: "80"})),
            Action(0.0, "create", {**_create(OTHER_PORT), "name": "b"}),
            Action(0.174, "annotate", {"name": "b", "annotations": {WORKLOAD_TYPE: "vm"}}),
            Action(0.0, "kill_after_writes", {"number": 10, "seconds": 0.0}),
            Action(5.428, "annotate", {"name": "b", "annotations": {WORKLOAD_TYPE: "cluster"}}),
            Action(2.878, "clear_status", {"name": "b"}),
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
    # kube-vip announced the address from the specification when the load balancer was deleted.
    "service with its address in the specification gets another class": Scenario(
        "97008465",
        pool=3,
        nodes=1,
        actions=(
            Action(0.454, "create", _create(ONE_PORT)),
            Action(1.329, "restore", {"side": "guest", "back": 60.0, "away": 5.0}),
            Action(0.0, "create", _create(ONE_PORT)),
            Action(3.003, "request_address", {"name": "a", "of": "a"}),
            Action(17.258, "change_type_and_class", {"name": "a", "type": "NodePort", "load_balancer_class": None}),
            Action(0.0, "change_type_and_class", {"name": "a", "type": "LoadBalancer", "load_balancer_class": OTHER}),
            Action(0.0, "cut_watches", {"side": "guest", "how": "broken"}),
        ),
    ),
    # What a reading of the EndpointSlices showed was said minutes later, when another cause had come and gone.
    "permission for slices is granted, and kube-vip is to ignore the service for a moment": Scenario(
        "3640417150",
        pool=5,
        nodes=1,
        actions=(
            Action(0.0, "create", _create(ONE_PORT)),
            Action(0.0, "forbid_slices", {"is_forbidden": True}),
            Action(23.443, "create", {**_create(OTHER_PORT), "name": "c"}),
            Action(0.0, "remove_endpoints", {"name": "c"}),
            Action(140.0, "wait", {}),
            Action(0.0, "forbid_slices", {"is_forbidden": False}),
            Action(20.0, "write_ignore", {"name": "c", "value": "true"}),
            Action(20.0, "write_ignore", {"name": "c", "value": None}),
        ),
    ),
    # The address of the deleted Service was taken for a lease of the next one with its name.
    "service of a blocked queue is created again with dhcp": Scenario(
        "3640418830",
        pool=5,
        nodes=3,
        actions=(
            Action(25.109, "stop_dhcp", {"seconds": 300.0}),
            Action(5.0, "create", _create(ONE_PORT, {IPAM: "dhcp"})),
            Action(0.16, "create", {**_create(OTHER_PORT), "name": "c"}),
            Action(140.0, "wait", {}),
            Action(0.0, "stop_dhcp", {"seconds": 300.0}),
            Action(0.0, "delete", {"name": "c"}),
            Action(0.5, "create", {**_create(OTHER_PORT, {IPAM: "dhcp"}), "name": "c"}),
            Action(700.0, "wait", {}),
        ),
    ),
    # kube-vip had had the requested address from the annotation, withdrew it with that, and stayed silent.
    "service waits for its requested address, and its annotation is removed": Scenario(
        "3640418722",
        pool=3,
        nodes=3,
        actions=(
            Action(38.487, "permit_requests", {"permitted": True}),
            Action(0.0, "stop", {}),
            Action(2.236, "request", {**_create(ONE_PORT), **_request("10.0.0.12")}),
            Action(1.662, "annotate", {"name": "a", "annotations": {KUBE_VIP_ADDRESSES: None}}),
        ),
    ),
    # kube-vip read the first patch too late, and announced the address for good although it was to ignore the Service.
    "requested address is removed before the controller sees the service": Scenario(
        "292953919",
        pool=3,
        nodes=1,
        actions=(
            Action(30.662, "request", {**_create(ONE_PORT, {WORKLOAD_TYPE: "vm"}), **_request("10.0.0.12")}),
            Action(0.004, "change_request", {"name": "a", "address": None}),
        ),
    ),
}
