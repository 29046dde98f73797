"""Writes to Nodes, with the responses in the cache at once."""

from collections.abc import Sequence

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import Conflict, NotFound
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.write_limit import WRITE_LIMIT
from harvester_ccm.kube.written_fields import fields_of_patch
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import NodeReason
from harvester_ccm.plan.node.patch import NodePatch


def node_conflict(fields: Sequence[str], node: Node) -> EventMessage:
    """Return the Warning about a Node whose writes are delayed; ``fields`` are those that were written repeatedly."""
    cause = (
        f"Changes of this Node are delayed: {WRITE_LIMIT}. Another controller probably overwrites or deletes "
        f"{abbreviate(fields)}"
    )
    remedy = (
        "Find it in the managed fields, and stop it. Typical causes: a second cloud controller manager (start K3s with "
        "--disable-cloud-controller and RKE2 with disable-cloud-controller: true; uninstall that of Talos), a kubelet "
        "without --cloud-provider=external, or a tool that manages labels or taints of Nodes"
    )
    command = f"kubectl get node {node.metadata.name} -o yaml --show-managed-fields"
    return EventMessage("Warning", NodeReason.FIELD_CONFLICT, cause, remedy, command, subject="rate limit")


def patched_fields(patch: NodePatch | None) -> list[str]:
    """Return the fields of a patch, as messages name them."""
    return [] if patch is None else fields_of_patch(patch.body)


class NodeWrites:
    """Patches Nodes for all controllers."""

    def __init__(self, guest: ApiClient, nodes: Informer[Node]) -> None:
        self._guest = guest
        self._nodes = nodes

    async def patch(self, node: Node, patch: NodePatch) -> Node:
        """Patch a Node and return the response. Raises KubeError."""
        name = node.metadata.name
        try:
            written = await self._guest.merge_patch(NODES, name, patch.body, subresource=patch.subresource)
        except NotFound as error:
            self._nodes.not_found(node, error)
            raise Conflict(error.answer) from error
        except Conflict:
            await self._nodes.refresh(node)
            raise
        self._nodes.observe_current(node, written)
        return written
