"""The table of what wakes what: each signal at the caches, and the keys that are enqueued."""

from typing import Any

import msgspec
import pytest

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.concerned import MAPPING_KEY
from harvester_ccm.controllers.reconciler import QueueName
from harvester_ccm.controllers.wake import RULES, Signal, Wakes
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import CONFIG_MAPS, NODES
from harvester_ccm.model.harvester import INSTANCES, VIRTUAL_MACHINES
from harvester_ccm.names import VM_CLUSTER
from tests.support.builders import CLUSTER, allocated, service
from tests.support.offline import offline_client

VM: dict[str, Any] = {"metadata": {"name": "w1", "namespace": CLUSTER.namespace, "uid": "vm-1"}}
NIC: dict[str, Any] = {"name": "nic-1", "multus": {"networkName": "prod/mgmt"}}
DEVICE: dict[str, Any] = {"name": "nic-1", "interfaceName": "enp1s0", "ipAddress": "10.0.0.1"}
NODE: dict[str, Any] = {"metadata": {"name": "w1", "uid": "node-1"}, "spec": {"providerID": "harvester://vm-1"}}


class Queue:
    """Records the keys that are enqueued."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def enqueue_background(self, keys: Any) -> None:
        self.keys += [f"{key} later" for key in keys]

    def enqueue_after(self, key: str, seconds: float) -> None:
        self.keys.append(f"{key} in {seconds:g} s")


class Controller:
    """A controller that reconciles nothing."""

    def __init__(self, name: QueueName) -> None:
        self.name = name
        self.queue = Queue()

    def wake(self, keys: Any) -> None:
        self.queue.keys += keys


class World:
    """Caches, and one controller of each kind."""

    def __init__(self, *names: QueueName, synced: bool = True) -> None:
        self.caches = Caches(offline_client(), offline_client("harvester"), CLUSTER)
        self.controllers: dict[str, Any] = {name: Controller(name) for name in names or QueueName}
        Wakes(self.caches, self.controllers.values())
        if synced:
            for cache in self.caches.all:
                cache._synced.set()

    def woken(self) -> dict[str, list[str]]:
        """Return the keys by queue, and forget them."""
        woken = {}
        for name, controller in self.controllers.items():
            if controller.queue.keys:
                woken[name] = controller.queue.keys
                controller.queue.keys = []
        return woken


def put(cache: Informer[Any], resource: Any, document: dict[str, Any], version: int = 1) -> None:
    metadata = {**document["metadata"], "resourceVersion": str(version)}
    cache.observe(resource.decode(msgspec.json.encode({**document, "metadata": metadata})))


def test_every_signal_wakes_something() -> None:
    used = {signal for rule in RULES for signal in rule.signals}
    # All Nodes are enqueued when the controllers start, which wait for the first list.
    assert set(Signal) - used == {Signal.NODES}


async def test_changes_before_the_first_list_wake_nobody() -> None:
    world = World(synced=False)
    world.caches.services.observe(service())
    put(world.caches.nodes, NODES, NODE)
    assert world.woken() == {}


async def test_controllers_that_do_not_run_are_not_woken() -> None:
    world = World(QueueName.NODE)
    world.caches.services.observe(service())
    put(world.caches.nodes, NODES, NODE)
    assert world.woken() == {"node": ["w1"]}


async def test_change_of_a_node_wakes_it_unless_it_is_a_heartbeat() -> None:
    world = World()
    put(world.caches.nodes, NODES, NODE)
    in_a_second = f"{MAPPING_KEY} in 1 s"
    assert world.woken() == {"node": ["w1"], "node_lifecycle": ["w1"], "network_mapping": [in_a_second]}
    put(world.caches.nodes, NODES, NODE, version=2)
    assert world.woken() == {}


@pytest.mark.parametrize("is_instance", [False, True], ids=["VM", "VMI"])
async def test_change_of_a_vm_wakes_the_node_with_its_identity(*, is_instance: bool) -> None:
    world = World(QueueName.NODE)
    put(world.caches.nodes, NODES, NODE)
    put(world.caches.nodes, NODES, {"metadata": {"name": "other", "uid": "node-2"}})
    put(world.caches.vms, VIRTUAL_MACHINES, VM)
    world.woken()
    if is_instance:
        put(world.caches.vmis, INSTANCES, VM)
    else:
        put(world.caches.vms, VIRTUAL_MACHINES, {**VM, "status": {"ready": True}}, version=2)
    assert world.woken() == {"node": ["w1"]}


async def test_connected_guest_agent_wakes_nodes_that_nothing_else_identifies() -> None:
    world = World(QueueName.NODE)
    put(world.caches.vms, VIRTUAL_MACHINES, VM)
    put(world.caches.vmis, INSTANCES, VM)
    world.caches.unidentified.add("unknown")
    connected = {**VM, "status": {"conditions": [{"type": "AgentConnected", "status": "True"}]}}
    put(world.caches.vmis, INSTANCES, connected, version=2)
    assert world.woken() == {"node": ["unknown"]}


async def test_devices_of_pods_in_a_guest_wake_no_node() -> None:
    def report(version: int, *interfaces: dict[str, str]) -> None:
        status = {"interfaces": interfaces}
        put(world.caches.vmis, INSTANCES, {**VM, "spec": {"networks": [NIC]}, "status": status}, version)

    world = World(QueueName.NODE)
    put(world.caches.nodes, NODES, NODE)
    put(world.caches.vms, VIRTUAL_MACHINES, VM)
    report(1, DEVICE)
    world.woken()
    of_pod = {"interfaceName": "cali00000000001", "ipAddress": "fe80::ecee:eeff:feee:eeee"}
    report(2, DEVICE, of_pod)
    assert world.woken() == {}
    report(3, {**DEVICE, "ipAddress": "10.0.0.2"}, of_pod)
    assert world.woken() == {"node": ["w1"]}


async def test_vms_of_other_clusters_wake_no_node() -> None:
    world = World(QueueName.NODE)
    put(world.caches.nodes, NODES, NODE)
    world.woken()
    foreign = {"metadata": {**VM["metadata"], "name": "s1", "uid": "vm-2", "labels": {VM_CLUSTER: "other"}}}
    put(world.caches.vms, VIRTUAL_MACHINES, foreign)
    put(world.caches.vmis, INSTANCES, foreign)
    put(world.caches.vmis, INSTANCES, {**foreign, "status": {"interfaces": [DEVICE]}}, version=2)
    world.caches.vms.remove(f"{CLUSTER.namespace}/s1", "vm-2")
    assert world.woken() == {}


@pytest.mark.parametrize("collection", ["services", "load_balancers", "vms", "vmis"])
async def test_list_that_addresses_of_nodes_depend_on_wakes_all_nodes(collection: str) -> None:
    """A new Node is planned only once all of them are listed: the last list must not wait for the resync."""
    world = World(QueueName.NODE)
    put(world.caches.nodes, NODES, NODE)
    world.woken()
    for callback in getattr(world.caches, collection)._state_callbacks:
        callback()
    assert world.woken() == {"node": ["w1"]}


async def test_change_of_a_load_balancer_wakes_its_service() -> None:
    world = World(QueueName.SERVICE)
    world.caches.services.observe(service())
    world.woken()
    world.caches.load_balancers.observe(allocated())
    assert world.woken()["service"][0] == "shop/web"


async def test_config_map_wakes_its_controller_and_all_services() -> None:
    world = World(QueueName.SERVICE, QueueName.NETWORK_MAPPING)
    world.caches.services.observe(service())
    world.woken()
    namespace, _, name = MAPPING_KEY.partition("/")
    put(world.caches.config_maps, CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace, "uid": "1"}})
    assert world.woken() == {
        "service": ["shop/web", "shop/web later"],
        "network_mapping": [f"{MAPPING_KEY} in 0 s"],
    }
