"""Names and addresses of the cluster."""

from dataclasses import dataclass
from typing import Final

from devenv.harvester.machines import Machine

CLUSTER: Final = "my-cluster"
VM_NAMESPACE: Final = "my-namespace"
VM_NETWORK: Final = f"{VM_NAMESPACE}/vlan-100"

NODE_NETWORK: Final = "10.77.0.0/24"
ROUTER: Final = "10.77.0.1"
GUEST: Final = "10.77.0.10"
"""Address of the guest cluster's API server."""
HARVESTER: Final = "10.77.0.5"
"""Address of Harvester's API server."""
POOL: Final = ("10.77.0.100", "10.77.0.180")
"""First and last address of the IP pool."""
VM_POOL: Final = ("10.77.0.60", "10.77.0.80")
"""First and last address of the IP pool for VM load balancers."""
LEASES: Final = ("10.77.0.190", "10.77.0.230")
"""First and last address of the DHCP server."""

# Kubernetes' specs want to see an address of a client that is in another /16 than the nodes.
CLIENT_ROUTER: Final = "10.88.0.1"
CLIENT: Final = "10.88.0.2"

POD_NETWORK: Final = "10.42.0.0/16"
SERVICE_NETWORK: Final = "10.43.0.0/16"
DNS: Final = "10.43.0.10"
HARVESTER_SERVICE_NETWORK: Final = "10.53.0.0/16"
WEBHOOK_SERVICE: Final = "10.53.0.200"
"""Address of the Service of Harvester's webhook."""

CONTROL_GROUP: Final = "harvester-ccm-e2e"
"""Parent of the control groups of all nodes."""


@dataclass(frozen=True)
class NodePlace:
    """What distinguishes a node from the others."""

    short: str
    address: str
    pods: str
    """Range of the pods on this node."""
    is_control_plane: bool
    has_node_ip: bool
    """Whether its kubelet gets a ``--node-ip``. Distributions differ in that."""

    @property
    def name(self) -> str:
        """Name of the Node, the host and the VM."""
        return f"{CLUSTER}-{self.short}"

    @property
    def machine(self) -> Machine:
        """The VM that this node is."""
        return Machine(self.name, namespace=VM_NAMESPACE, cluster=CLUSTER, networks=(VM_NETWORK,))

    @property
    def control_group(self) -> str:
        """Root of its pods' control groups."""
        return f"/{CONTROL_GROUP}/{self.short}"


NODES: Final = (
    NodePlace("n1", "10.77.0.11", "10.42.1.0/24", is_control_plane=True, has_node_ip=True),
    NodePlace("n2", "10.77.0.12", "10.42.2.0/24", is_control_plane=False, has_node_ip=False),
)
