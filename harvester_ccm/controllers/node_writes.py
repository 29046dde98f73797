"""What both controllers of Nodes say about their writes."""

from collections.abc import Sequence

from harvester_ccm.kube.write_limit import WRITE_LIMIT
from harvester_ccm.model.core import Node
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.names import NodeReason


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
