"""The nodes of the guest cluster and the VMs behind them: ready, initialised, and left alone while it is measured."""

from __future__ import annotations

from typing import Final

from devenv.harvester.machines import Machine, Machines
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import NODES
from harvester_ccm.names import PROVIDER_NAME

NODE_COUNT: Final = 3


async def create_nodes(guest: ApiClient, harvester: ApiClient, *, cluster: str) -> None:
    """Create NODE_COUNT running VMs and their Nodes."""
    machines = Machines(harvester)
    for number in range(1, NODE_COUNT + 1):
        machine = Machine(f"bench-node-{number}", cluster=cluster)
        address = f"198.19.0.{number}"
        stored = await machines.create(machine, address)
        await guest.create(NODES, node_body(machine, str(stored["metadata"]["uid"]), address))


def node_body(machine: Machine, uid: str, address: str) -> dict[str, object]:
    """Return the Node of a VM, as the kubelet and a cloud controller manager have made it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": {"kubernetes.io/hostname": machine.name}},
        "spec": {"providerID": f"{PROVIDER_NAME}://{uid}"},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": machine.name},
            ],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
            "nodeInfo": {
                **dict.fromkeys(_UNUSED_INFO, ""),
                "systemUUID": machine.system_uuid,
                "machineID": machine.system_uuid.replace("-", ""),
            },
        },
    }


_UNUSED_INFO: Final = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "operatingSystem",
    "osImage",
)
"""Fields that the API requires and nobody here reads."""
