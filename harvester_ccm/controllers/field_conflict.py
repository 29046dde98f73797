"""Events for objects whose writes are rate-limited: another controller keeps changing the fields that this one sets."""

from __future__ import annotations

from typing import Final

from harvester_ccm.kube.workqueue import WRITE_BURST, WRITE_INTERVAL_SECONDS
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import NodeReason, Reason

_LIMIT: Final = f"after {WRITE_BURST} writes in a short time, only one every {WRITE_INTERVAL_SECONDS:.0f} s is sent"

SERVICE_CONFLICT: Final = EventMessage(
    "Warning",
    Reason.FIELD_CONFLICT,
    f"Changes of this Service and its load balancer are delayed: {_LIMIT}. Another controller probably overwrites the "
    "same fields. Typical causes: K3s ServiceLB (start K3s with --disable=servicelb) or MetalLB also handles this "
    "Service (set spec.loadBalancerClass), a GitOps tool reverts its annotations, two clusters have the same "
    "--cluster-name, or its type or workload type changes again and again",
)
NODE_CONFLICT: Final = EventMessage(
    "Warning",
    NodeReason.FIELD_CONFLICT,
    f"Changes of this Node are delayed: {_LIMIT}. Another controller probably overwrites the same fields. Typical "
    "causes: a second cloud controller manager (start K3s with --disable-cloud-controller), a kubelet without "
    "--cloud-provider=external, or a tool that manages labels or taints of Nodes",
)
MAPPING_CONFLICT: Final = EventMessage(
    "Warning",
    NodeReason.FIELD_CONFLICT,
    f"Changes of this ConfigMap are delayed: {_LIMIT}. Another program, for example a GitOps tool, deletes or "
    "overwrites it. Have that program ignore the ConfigMap",
)
