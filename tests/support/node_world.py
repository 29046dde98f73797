"""The Node controllers on two API servers in memory, with VMs and kubelets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from devenv.harvester.machines import (
    Machine,
    conditions_of,
    instance_document,
    interface_lists,
    interfaces_of,
    machine_document,
)
from harvester_ccm.config import NodeSettings
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.device_mapping import NetworkMapping
from harvester_ccm.controllers.guest_hostnames import GuestHostnames
from harvester_ccm.controllers.node import NodeController
from harvester_ccm.controllers.node_lifecycle import NodeLifecycleController
from harvester_ccm.controllers.reconciler import Shared
from harvester_ccm.controllers.virtual_addresses import VirtualAddresses
from harvester_ccm.controllers.wake import Wakes
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE, ServerIdentity
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import UNINITIALIZED_TAINT
from tests.support.clock import until
from tests.support.memory_server import Document, MemoryClient, MemoryServer
from tests.support.node_objects import DEFAULTS

NAMESPACE: Final = "default"
NODE: Final = "v1/nodes"
VM: Final = "kubevirt.io/v1/virtualmachines"
VMI: Final = "kubevirt.io/v1/virtualmachineinstances"
SERVICE: Final = "v1/services"
BALANCER: Final = "loadbalancer.harvesterhci.io/v1beta1/loadbalancers"
CONFIG_MAP: Final = "v1/configmaps"
MAPPING: Final = "kube-system/harvester-nad-mapping"
CLUSTER_UID: Final = "cluster-uid"
PERIOD: Final = DEFAULTS.monitor_period
"""``--node-monitor-period``: seconds between two checks of a Node that is not Ready."""
TAINT: Final = {"key": UNINITIALIZED_TAINT, "value": "true", "effect": "NoSchedule"}


def machine(name: str, **fields: Any) -> Machine:
    """Return a VM of this cluster."""
    return Machine(name, **fields)


class NodeWorld:
    """Servers, clients and controllers; ``live`` runs them."""

    def __init__(
        self,
        settings: NodeSettings = DEFAULTS,
        *,
        cluster: str = "demo",
        after: "NodeWorld | None" = None,
    ) -> None:
        """``after``: a world whose process ended; its servers are used again."""
        self.guest_server: MemoryServer = after.guest_server if after else MemoryServer()
        self.harvester_server: MemoryServer = after.harvester_server if after else MemoryServer()
        self.settings = settings
        self.outage = (0.0, 0.0)
        """Loop times of the begin and end of an outage of Harvester."""
        self.guest = MemoryClient(self.guest_server, cluster="guest")
        self.harvester = MemoryClient(self.harvester_server, cluster="harvester", namespace=NAMESPACE)
        self.caches = Caches(self.guest, self.harvester, ClusterIdentity(cluster, NAMESPACE))
        self.recorder = EventRecorder(self.guest, host="test")
        shared = Shared(self.caches, self.recorder)
        identity = ServerIdentity(self.guest, without="nothing")
        identity.uid = CLUSTER_UID
        self.guest_server.put(NAMESPACES, {"metadata": {"name": IDENTITY_NAMESPACE, "uid": CLUSTER_UID}})
        self.node = NodeController(
            shared,
            VirtualAddresses(self.caches.services, self.caches.load_balancers, self.caches.cluster),
            settings=settings,
            hostnames=GuestHostnames(self.harvester, self.caches),
        )
        self.mapping = NetworkMapping(shared, self.guest)
        self.lifecycle = NodeLifecycleController(shared, identity, self.harvester, settings=settings)
        Wakes(self.caches, (self.node, self.mapping, self.lifecycle))

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Run everything for the time of the block."""
        async with asyncio.TaskGroup() as group:
            work = [informer.run() for informer in self.caches.all]
            work += [self.recorder.run(), self.node.run(), self.mapping.run()]
            work.append(self.lifecycle.run())
            tasks = [group.create_task(one, name="scene") for one in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def boot(self, vm: Machine, *addresses: str) -> str:
        stored = self.create(vm)
        self.start(vm, *addresses)
        return stored

    def create(self, vm: Machine) -> str:
        uid: str = self.harvester_server.put(VM, machine_document(vm))["metadata"]["uid"]
        return uid

    def start(self, vm: Machine, *addresses: str) -> None:
        self.harvester_server.put(VMI, instance_document(vm, *addresses))
        status = {"created": True, "ready": True, "printableStatus": "Running"}
        self.harvester_server.change(VM, f"{NAMESPACE}/{vm.name}", {"status": status})

    def stop(self, vm: Machine) -> None:
        status = {"created": None, "ready": None, "printableStatus": "Stopped"}
        self.harvester_server.change(VM, f"{NAMESPACE}/{vm.name}", {"status": status})
        self.harvester_server.remove(VMI, f"{NAMESPACE}/{vm.name}")

    def report(self, vm: Machine, *addresses: str) -> None:
        """Report addresses as the guest agent."""
        status = {"interfaces": interfaces_of(vm, *addresses), "conditions": conditions_of(agent=bool(addresses))}
        self.harvester_server.change(VMI, f"{NAMESPACE}/{vm.name}", {"status": status})

    def report_lists(self, vm: Machine, *of_interfaces: Sequence[str]) -> None:
        """Report several addresses for each interface."""
        status = {"interfaces": interface_lists(vm, *of_interfaces), "conditions": conditions_of(agent=True)}
        self.harvester_server.change(VMI, f"{NAMESPACE}/{vm.name}", {"status": status})

    def destroy(self, vm: Machine) -> None:
        """Delete a VM and its instance."""
        self.harvester_server.remove(VMI, f"{NAMESPACE}/{vm.name}")
        self.harvester_server.remove(VM, f"{NAMESPACE}/{vm.name}")

    def join(self, name: str, *, system_uuid: str = "", ready: str = "True", **annotations: str) -> Document:
        """Register a Node as a kubelet does."""
        document = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"taints": [TAINT]},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}],
                "conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"systemUUID": system_uuid},
            },
        }
        return self.guest_server.put(NODE, document)

    def say_ready(self, name: str, ready: str) -> None:
        self.guest_server.change(NODE, name, {"status": {"conditions": [{"type": "Ready", "status": ready}]}})

    def stored(self, name: str) -> Document:
        return self.guest_server.objects[NODE][name]

    def names(self) -> set[str]:
        return set(self.guest_server.objects.get(NODE, {}))

    def addresses(self, name: str) -> list[str]:
        return [f"{entry['type']} {entry['address']}" for entry in self.stored(name)["status"]["addresses"]]

    def taints(self, name: str) -> list[str]:
        return [taint["key"].rpartition("/")[2] for taint in self.stored(name)["spec"].get("taints") or ()]

    def provider_id(self, name: str) -> str:
        return str(self.stored(name)["spec"].get("providerID", ""))

    def told(self, name: str = "") -> list[str]:
        return [
            event["reason"] for event in self.guest_server.events() if name in {"", event["involvedObject"]["name"]}
        ]

    def node_writes(self) -> list[str]:
        calls = self.guest_server.calls
        return [f"{call.verb} {call.path}" for call in calls if call.verb != "GET" and "/nodes/" in call.path]

    def asked(self, path: str = "") -> list[str]:
        """Return the requests for single objects that Harvester got, with ``path`` in them."""
        calls = self.harvester_server.calls
        return [call.path for call in calls if call.verb == "GET" and path in call.path and call.path.count("/") > 6]


async def initialised(scene: NodeWorld, names: Sequence[str], seconds: float = 60.0) -> float:
    """Wait until the Nodes have lost the taint; return how long it took."""
    return await until(
        lambda: all("uninitialized" not in scene.taints(name) for name in names), seconds, what="initialisation"
    )


async def joined(scene: NodeWorld, vms: list[Machine]) -> list[Machine]:
    """Start VMs with the addresses 10.0.0.1, 10.0.0.2, ..., wait until their Nodes are initialized; return the VMs."""
    for number, vm in enumerate(vms):
        scene.boot(vm, f"10.0.0.{number + 1}")
        scene.join(vm.name, system_uuid=vm.system_uuid)
    await initialised(scene, [vm.name for vm in vms])
    return vms


def machines(count: int) -> list[Machine]:
    """Return VMs w0, w1, ... of this cluster."""
    return [machine(f"w{number}") for number in range(count)]
