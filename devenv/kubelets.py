"""Node objects like those of kubelets: registered with the uninitialized taint, with a Ready condition.

Nothing runs on these Nodes.
"""

from dataclasses import dataclass
from typing import Final

from devenv.watch import Document, documents
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import NODES

DOCUMENTS: Final = documents("", "v1", "nodes", kind="Node", namespaced=False)
UNINITIALIZED: Final[Document] = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
"""The taint of a kubelet with ``--cloud-provider=external``."""


@dataclass(frozen=True)
class Kubelet:
    """The settings of a kubelet."""

    name: str
    system_uuid: str = ""
    """Of the VM's firmware."""
    node_ip: str = ""
    """``--node-ip``, which becomes an annotation."""


def node_document(kubelet: Kubelet, *, ready: str = "True") -> Document:
    """Return the Node that a kubelet registers. ``ready`` is ``True``, ``False`` or ``Unknown``."""
    provided = {"alpha.kubernetes.io/provided-node-ip": kubelet.node_ip} if kubelet.node_ip else {}
    addresses = [{"type": "Hostname", "address": kubelet.name}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": kubelet.name,
            "labels": {"kubernetes.io/hostname": kubelet.name},
            "annotations": provided,
        },
        "spec": {"taints": [UNINITIALIZED]},
        "status": {
            "addresses": addresses,
            "conditions": conditions_of(ready),
            "nodeInfo": {"systemUUID": kubelet.system_uuid, **_NODE_INFO},
        },
    }


_NODE_INFO: Final[Document] = dict.fromkeys(
    ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
     "machineID", "operatingSystem", "osImage"),
    "",
)  # fmt: skip
"""Required fields."""


def conditions_of(ready: str) -> list[Document]:
    """Return ``status.conditions`` with this Ready condition."""
    return [{"type": "Ready", "status": ready, "reason": "Test", "message": ""}]


class Kubelets:
    """The kubelets of one guest cluster. Methods except ``register`` raise NotFound if the Node does not exist."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def register(self, kubelet: Kubelet, *, ready: str = "True") -> None:
        """Register a Node. Raises AlreadyExists."""
        await self._client.create(NODES, node_document(kubelet, ready=ready))

    async def report(self, name: str, ready: str) -> None:
        """Change the Ready condition."""
        await self._client.merge_patch(
            NODES, name, {"status": {"conditions": conditions_of(ready)}}, subresource="status"
        )

    async def remove(self, name: str) -> None:
        """Delete the Node."""
        await self._client.delete(NODES, name)
