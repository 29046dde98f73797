"""What kubelets do with their Node objects: register them with the uninitialized taint, report readiness.

Nothing runs on these Nodes. They are records in a real API server, for tests and the demo of the node half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """What a kubelet says about itself."""

    name: str
    system_uuid: str = ""
    """Of the machine's firmware."""
    node_ip: str = ""
    """``--node-ip``; becomes the annotation that the cloud provider respects."""
    labels: Mapping[str, str] = field(default_factory=dict)


def node_document(kubelet: Kubelet, *, ready: str = "True") -> Document:
    """Return the Node as a kubelet registers it. ``ready`` is ``True``, ``False`` or ``Unknown``."""
    provided = {"alpha.kubernetes.io/provided-node-ip": kubelet.node_ip} if kubelet.node_ip else {}
    addresses = [{"type": "Hostname", "address": kubelet.name}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": kubelet.name,
            "labels": {"kubernetes.io/hostname": kubelet.name, **kubelet.labels},
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
"""Required fields that say nothing here."""


def conditions_of(ready: str) -> list[Document]:
    """Return ``status.conditions`` with this Ready condition."""
    return [{"type": "Ready", "status": ready, "reason": "Test", "message": ""}]


class Kubelets:
    """The kubelets of one guest cluster. Every method but ``register`` raises NotFound for a Node that is not there."""

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
        """Delete the Node, as somebody with kubectl."""
        await self._client.delete(NODES, name)
