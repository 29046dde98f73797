"""Catalogue of every name that users, Harvester, kube-vip and Rancher share with us.

Each annotation, label, taint, finalizer and Event reason stands here once, with its meaning; the reference page is
generated from this catalogue. Changing a value breaks running
clusters.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

PROGRAM: Final = "harvester-ccm"
PROGRAM_NAMES: Final = (PROGRAM, "harvester-cloud-provider")
"""Names the program is installed under; the second is the one that existing charts call."""
PREFIX: Final = "cloudprovider.harvesterhci.io/"
"""Prefix of the keys by which users talk to this program."""

DEFAULT_CLUSTER_NAME: Final = "kubernetes"
"""What the flag --cluster-name is when nobody sets it; two clusters of this name cannot be told apart."""


class Key(Struct, frozen=True):
    """Catalogue entry of a key."""

    name: str
    on: str
    """Kind of object that carries it."""
    kind: Literal["annotation", "label", "taint", "finalizer", "condition"]
    direction: Literal["read", "written", "both"]
    value: str
    """What a value looks like."""
    default: str
    meaning: str
    writer: str = ""
    """Who writes it, where the direction alone does not say: users write what is read of a Service."""


CATALOGUE: Final[list[Key]] = []


def catalogued(  # noqa: PLR0913 - one row of the catalogue
    name: str,
    on: str,
    kind: Literal["annotation", "label", "taint", "finalizer", "condition"],
    direction: Literal["read", "written", "both"],
    *,
    value: str,
    meaning: str,
    default: str = "",
    writer: str = "",
) -> str:
    """Put a key into the catalogue and return its name."""
    CATALOGUE.append(Key(name, on, kind, direction, value, default, meaning, writer))
    return name


# What users write on a Service.
IPAM: Final = catalogued(
    PREFIX + "ipam", "Service", "annotation", "read", value="`pool` or `dhcp`", default="pool",
    meaning="Where the address comes from: an IP pool of Harvester, or a DHCP server in the network of the nodes. "
    "Fixed once the load balancer exists.",
)  # fmt: skip
NETWORK: Final = catalogued(
    PREFIX + "network", "Service", "annotation", "read", value="`namespace/name` of a VM network",
    meaning="Network the address must belong to. Fixed once the load balancer has an address.",
)  # fmt: skip
PROJECT: Final = catalogued(
    PREFIX + "project", "Service", "annotation", "read", value="`cluster/project` id",
    meaning="Rancher project used to choose the IP pool of a VM load balancer. For a cluster load balancer Harvester "
    "overwrites it with the project of the VMs' namespace.",
)  # fmt: skip
POOL_NAMESPACE: Final = catalogued(
    PREFIX + "namespace", "Service", "annotation", "read", value="namespace in Harvester",
    meaning="Namespace used to choose the IP pool; Harvester overwrites it with the load balancer's own.",
)  # fmt: skip
PRIMARY_SERVICE: Final = catalogued(
    PREFIX + "primary-service", "Service", "annotation", "read", value="`namespace/name` of a Service",
    meaning="Share the address of that Service instead of getting one's own.",
)  # fmt: skip
WORKLOAD_TYPE: Final = catalogued(
    PREFIX + "workload-type", "Service", "annotation", "read", value="`cluster` or `vm`", default="cluster",
    meaning="Who announces the address: kube-vip in this cluster, or Harvester itself with health checks.",
)  # fmt: skip
IP_POOL: Final = catalogued(
    PREFIX + "ip-pool", "Service", "annotation", "read", value="name of an IP pool",
    meaning="Take the address from this pool, whatever its selector says. Fixed once the load balancer has an address.",
)  # fmt: skip
REQUESTED_ADDRESS: Final = catalogued(
    PREFIX + "requested-address", "Service", "annotation", "both", value="IPv4 address",
    meaning="Address the user would like. Harvester cannot be asked for one: it is compared with the one that was "
    "given. Filled from `kube-vip.io/loadbalancerIPs` if that was set before the Service was first seen, or before "
    "this program took over from another provider.",
)  # fmt: skip
HEALTH_CHECK_PORT: Final = catalogued(
    PREFIX + "healthcheck-port", "Service", "annotation", "read", value="Service port number, port name or node port",
    meaning="Check every node by a TCP connect to the node port behind this port; asks for a VM load balancer.",
)  # fmt: skip
HEALTH_CHECK_SUCCESS_THRESHOLD: Final = catalogued(
    PREFIX + "healthcheck-success-threshold", "Service", "annotation", "read", value="number from 1", default="1",
    meaning="Successful checks in a row before a node gets traffic.",
)  # fmt: skip
HEALTH_CHECK_FAILURE_THRESHOLD: Final = catalogued(
    PREFIX + "healthcheck-failure-threshold", "Service", "annotation", "read", value="number from 1", default="3",
    meaning="Failed checks in a row before a node gets no more traffic.",
)  # fmt: skip
HEALTH_CHECK_PERIOD: Final = catalogued(
    PREFIX + "healthcheck-periodseconds", "Service", "annotation", "read", value="seconds from 1", default="5",
    meaning="Time between two checks of a node.",
)  # fmt: skip
HEALTH_CHECK_TIMEOUT: Final = catalogued(
    PREFIX + "healthcheck-timeoutseconds", "Service", "annotation", "read", value="seconds from 1", default="3",
    meaning="Time a node has to accept the connection.",
)  # fmt: skip

DESCRIPTION: Final = catalogued(
    PREFIX + "description", "Service", "annotation", "read", value="text",
    default="`namespace/name of cluster NAME`",
    meaning="Description of the load balancer, which Harvester shows in its lists.",
)  # fmt: skip

# What we write on a Service.
PRIMARY_SERVICE_LABEL: Final = catalogued(
    PREFIX + "primary-service", "Service", "label", "written", value="`namespace.name`",
    meaning="Marks a Service that shares the address of another one.",
)  # fmt: skip
LOAD_BALANCER_READY: Final = catalogued(
    PREFIX + "LoadBalancerReady", "Service", "condition", "written", value="`True` or `False`",
    meaning="Whether the Service has its load balancer. `reason` and `message` say what it waits for, or who refuses "
    "it, once an Event does.",
)  # fmt: skip
SERVICE_FINALIZER: Final = catalogued(
    "service.kubernetes.io/load-balancer-cleanup", "Service", "finalizer", "written", value="",
    meaning="Holds a deleted Service until its load balancer is deleted in Harvester.",
)  # fmt: skip

# kube-vip's; only ``plan.service.kube_vip`` reads and writes them.
KUBE_VIP_ADDRESSES: Final = catalogued(
    "kube-vip.io/loadbalancerIPs", "Service", "annotation", "both", value="address, `0.0.0.0` or empty",
    meaning="What kube-vip announces: the address, one from DHCP (`0.0.0.0`), or nothing (empty) while the Service "
    "waits.",
)  # fmt: skip
KUBE_VIP_INTERFACE: Final = catalogued(
    "kube-vip.io/serviceInterface", "Service", "annotation", "both", value="network device",
    meaning="Device in the nodes on which kube-vip announces the address of a Service with a network.",
)  # fmt: skip
KUBE_VIP_IGNORE: Final = catalogued(
    "kube-vip.io/ignore", "Service", "annotation", "written", value="`true`",
    meaning="Tells kube-vip in this cluster to leave a Service alone that waits for an address, or whose address "
    "Harvester announces.",
)  # fmt: skip
KUBE_VIP_HOST: Final = catalogued(
    "kube-vip.io/vipHost", "Service", "annotation", "read", writer="kube-vip", value="node name",
    meaning="The node that announces the address.",
)  # fmt: skip
KUBE_VIP_LEASE: Final = catalogued(
    "kube-vip.io/requestedIP", "Service", "annotation", "read", writer="kube-vip", value="address",
    meaning="The address that kube-vip has leased from DHCP.",
)  # fmt: skip

ENDPOINTS_TOUCHED: Final = catalogued(
    PREFIX + "touched", "EndpointSlice", "annotation", "written", value="version of the Service",
    meaning="Written to have kube-vip look at the Service again; says nothing else.",
)  # fmt: skip

# What we write on a Harvester LoadBalancer.
LB_TOUCH: Final = catalogued(
    PREFIX + "touch-again", "LoadBalancer", "annotation", "both", value="`true`",
    meaning="The load balancer replaced one of the same name; it is written once more some seconds later, because "
    "Harvester's clean-up of the old one may take parts of the new one with it.",
)  # fmt: skip
LB_ASKED_AGAIN: Final = catalogued(
    PREFIX + "asked-again", "LoadBalancer", "annotation", "both", value="`true`",
    meaning="The load balancer has no address and is to be deleted; what Harvester says of it since then shows that no "
    "address is booked for it, which a deletion would lose.",
)  # fmt: skip
LB_CLUSTER: Final = catalogued(
    PREFIX + "cluster", "LoadBalancer", "label", "both", value="cluster name",
    meaning="Guest cluster the load balancer belongs to; Harvester cleans up by it.",
)  # fmt: skip
LB_SERVICE_NAMESPACE: Final = catalogued(
    PREFIX + "serviceNamespace", "LoadBalancer", "label", "both", value="namespace",
    meaning="Namespace of the Service it serves.",
)  # fmt: skip
LB_SERVICE_NAME: Final = catalogued(
    PREFIX + "serviceName", "LoadBalancer", "label", "both", value="name", meaning="Name of the Service it serves.",
)  # fmt: skip
LB_OWNER: Final = catalogued(
    PREFIX + "cluster-uid", "LoadBalancer", "annotation", "both", value="UID",
    meaning="UID of the guest cluster's kube-system namespace: tells clusters of the same name apart.",
)  # fmt: skip
LB_SERVICE_UID: Final = catalogued(
    PREFIX + "service-uid", "LoadBalancer", "annotation", "both", value="UID",
    meaning="UID of the Service that the load balancer was last written for.",
)  # fmt: skip
LB_SERVICE_UUID: Final = catalogued(
    PREFIX + "service-uuid", "LoadBalancer", "annotation", "read", value="UID",
    meaning="UID of the Service, written by the providers before 0.2.",
)  # fmt: skip
LB_REQUESTED_NETWORK: Final = catalogued(
    PREFIX + "lb-network", "LoadBalancer", "annotation", "both", value="`namespace/name`",
    meaning="Network the Service asked for; fixed once the load balancer has an address.",
)  # fmt: skip
LB_MANAGEMENT_NETWORK: Final = catalogued(
    PREFIX + "managementNetwork", "LoadBalancer", "annotation", "written", value="`namespace/name`",
    meaning="Value of --management-network; Harvester chooses the pool by it when no network was asked for.",
)  # fmt: skip
LB_PREFIX: Final = "loadbalancer.harvesterhci.io/"
LB_SELECT_CLUSTER: Final = catalogued(
    LB_PREFIX + "cluster", "LoadBalancer", "annotation", "written", value="cluster name",
    meaning="Guest cluster, for Harvester's choice of a pool.",
)  # fmt: skip
LB_SELECT_NETWORK: Final = catalogued(
    LB_PREFIX + "network", "LoadBalancer", "annotation", "both", value="`namespace/name`",
    meaning="Network, for Harvester's choice of a pool; filled by Harvester when empty.",
)  # fmt: skip
LB_SELECT_PROJECT: Final = catalogued(
    LB_PREFIX + "project", "LoadBalancer", "annotation", "written", value="`cluster/project`",
    meaning="Project, for Harvester's choice of a pool.",
)  # fmt: skip
LB_SELECT_NAMESPACE: Final = catalogued(
    LB_PREFIX + "namespace", "LoadBalancer", "annotation", "written", value="namespace",
    meaning="Namespace, for Harvester's choice of a pool.",
)  # fmt: skip
LB_CONTROLLER_FINALIZER: Final = catalogued(
    "wrangler.cattle.io/harvester-lb-controller", "LoadBalancer", "finalizer", "both", value="",
    meaning="Harvester's own: it returns the address to the pool before the load balancer goes. A load balancer "
    "deleted without it loses its address. New ones are created with it, which saves Harvester a write.",
)  # fmt: skip

# Nodes, virtual machines.
UNINITIALIZED_TAINT: Final = catalogued(
    "node.cloudprovider.kubernetes.io/uninitialized", "Node", "taint", "both", value="any",
    meaning="Keeps workloads off a node until provider ID, addresses and zone are set.",
)  # fmt: skip
SHUTDOWN_TAINT: Final = catalogued(
    "node.cloudprovider.kubernetes.io/shutdown", "Node", "taint", "both", value="",
    meaning="The node's VM is shut down.",
)  # fmt: skip
EXCLUDE_NODE_LABEL: Final = catalogued(
    "node.kubernetes.io/exclude-from-external-load-balancers", "Node", "label", "read", value="any but `false`",
    meaning="The node gets no traffic from VM load balancers.",
)  # fmt: skip
PROVIDED_NODE_IP: Final = catalogued(
    "alpha.kubernetes.io/provided-node-ip", "Node", "annotation", "read", value="address, or one per family",
    meaning="The address the kubelet was started with; becomes the InternalIP.",
)  # fmt: skip
ADDITIONAL_INTERNAL_IPS: Final = catalogued(
    PREFIX + "additional-internal-ips", "Node", "annotation", "read", value="JSON list of addresses",
    meaning="Addresses of the VM that are not published as ExternalIP.",
)  # fmt: skip
VM_CREATOR: Final = catalogued(
    "harvesterhci.io/creator", "VirtualMachineInstance", "label", "read",
    value="`docker-machine-driver-harvester`", meaning="Made by Rancher's node driver.",
)  # fmt: skip
VM_CLUSTER: Final = catalogued(
    "guestcluster.harvesterhci.io/name", "VirtualMachineInstance", "label", "read", value="cluster name",
    meaning="Guest cluster the VM is a node of.",
)  # fmt: skip
VM_NAME: Final = catalogued(
    "harvesterhci.io/vmName", "VirtualMachineInstance", "label", "read", value="name of the VM",
    meaning="Selects the backends of a VM load balancer.",
)  # fmt: skip
ZONE: Final = catalogued(
    "topology.kubernetes.io/zone", "Node", "label", "both", value="zone", meaning="Zone of the host the VM runs on."
)
REGION: Final = catalogued(
    "topology.kubernetes.io/region", "Node", "label", "both", value="region", meaning="Region of that host."
)
ZONE_BETA: Final = catalogued(
    "failure-domain.beta.kubernetes.io/zone", "Node", "label", "both", value="zone", meaning="Older name of the zone."
)
REGION_BETA: Final = catalogued(
    "failure-domain.beta.kubernetes.io/region", "Node", "label", "both", value="region",
    meaning="Older name of the region.",
)  # fmt: skip
MACHINE_RECORD: Final = catalogued(
    PREFIX + "virtual-machine", "Node", "annotation", "both", value="`namespace/name` of the VM",
    meaning="VM whose UID is in the provider ID: the one that Harvester is asked for before the Node is deleted. A "
    "Node of a VM in another namespace is not deleted.",
)  # fmt: skip
GO_MACHINE_RECORD: Final = catalogued(
    PREFIX + "vm-name-of-guest-cluster-node", "Node", "annotation", "read", value="name of the VM",
    meaning="What the Go provider from v0.2.9 on has recorded; read where the Node has no `virtual-machine`.",
    writer="Go provider",
)  # fmt: skip
INSTANCE_TYPE: Final = catalogued(
    "node.kubernetes.io/instance-type", "Node", "label", "written", value="text",
    meaning="Copied from the older name where that is set; Harvester names no instance types.",
)  # fmt: skip
INSTANCE_TYPE_BETA: Final = catalogued(
    "beta.kubernetes.io/instance-type", "Node", "label", "read", value="text",
    meaning="Older name of the instance type.",
)  # fmt: skip

NODE_DRIVER: Final = "docker-machine-driver-harvester"
"""Value of the creator label on VMs of Rancher's node driver."""
LOAD_BALANCER_CLASS: Final = "cloudprovider.harvesterhci.io/harvester"
"""Our own ``spec.loadBalancerClass``."""
PROVIDER_NAME: Final = "harvester"
"""Scheme of provider IDs: ``harvester://<VM UID>``. Must never change: it is stored on every node."""
NAD_MAPPING_NAMESPACE: Final = "kube-system"
NAD_MAPPING_NAME: Final = "harvester-nad-mapping"
NAD_MAPPING_KEY: Final = "interface-nad-mapping"

DHCP_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - not a bind address: Harvester's and kube-vip's word for "ask DHCP"


class Reason(StrEnum):
    """Reasons of Events on Services and the Lease; the first word of a catalogue line is its type."""

    ENSURING = "EnsuringLoadBalancer"
    """Normal: the load balancer is being created in Harvester."""
    ENSURED = "EnsuredLoadBalancer"
    """Normal: the Service has its address."""
    DELETING = "DeletingLoadBalancer"
    """Normal: the load balancer is being deleted."""
    DELETED = "DeletedLoadBalancer"
    """Normal: the load balancer was deleted."""
    SYNC_FAILED = "SyncLoadBalancerFailed"
    """Warning: a request was refused; the message says by whom and why."""
    ADDRESS_PENDING = "AddressPending"
    """Warning: the Service waits for an address; the message says for what and what to do."""
    ADDRESS_CHANGED = "AddressChanged"
    """Warning: the address of the Service is another one than before."""
    STILL_ANNOUNCED = "AddressStillAnnounced"
    """Warning: kube-vip may go on announcing an address that the Service does not have any more."""
    NOT_ANNOUNCED = "AddressNotAnnounced"
    """Warning: kube-vip does not announce the address again by itself; the message says what to do."""
    HARVESTER_UNAVAILABLE = "HarvesterUnavailable"
    """Warning: Harvester cannot be reached or refuses the credential."""
    INVALID_ANNOTATION = "InvalidAnnotation"
    """Warning: an annotation has a value that cannot be used."""
    IGNORED = "SettingsIgnored"
    """Warning: fields or annotations of the Service have no effect on this load balancer."""
    IMMUTABLE = "ChangeRefused"
    """Warning: something was changed that is fixed once the load balancer exists."""
    RECREATING = "RecreatingLoadBalancer"
    """Warning: the load balancer vanished in Harvester and is created again."""
    ADDRESS_NOT_AS_REQUESTED = "AddressNotAsRequested"
    """Warning: the address, its pool or its network is not the one that was asked for."""
    ADDRESS_NOT_BOOKED = "AddressNotBooked"
    """Warning: Harvester does not hold the address for this Service alone; the message says who may have it."""
    NO_DEVICE = "NetworkDeviceUnknown"
    """Warning: the device for the network of the Service is not known."""
    DEVICE_CHANGED = "NetworkDeviceChanged"
    """Warning: kube-vip announces the address on another device than that of the network, until it restarts."""
    SHARING_REFUSED = "SharingRefused"
    """Warning: the address of the primary Service cannot be shared; the message says why."""
    SWITCHING = "SwitchingLoadBalancer"
    """Normal: the load balancer is deleted, to be recreated with another workload type."""
    BACKENDS_UNHEALTHY = "BackendsUnhealthy"
    """Warning: no node can take traffic from Harvester's load balancer."""
    NODES_WITHOUT_VM = "NodesWithoutVM"
    """Warning: nodes get no traffic from Harvester's load balancer because it is not certain which VM they are."""
    BACKENDS_HEALTHY = "BackendsHealthy"
    """Normal: nodes take traffic again."""
    FOREIGN_LOAD_BALANCER = "ForeignLoadBalancer"
    """Warning: another cluster, or this one under another name, owns a load balancer for a Service of this name."""
    LEFT_TO_OTHERS = "LeftToOthers"
    """Normal: marks of another load balancer controller are on the Service, so it is not served here."""
    NOT_RECOGNISED = "HarvesterNotRecognised"
    """Warning: Harvester has no load balancer and no VM of this cluster, so no load balancer is created."""
    ADOPTED = "AdoptedLoadBalancer"
    """Normal: a load balancer made for Harvester before 1.2 goes on serving as a VM load balancer."""
    DELETION_PENDING = "DeletionPending"
    """Warning: the Service cannot be let go yet; the message says what it waits for."""
    ANNOTATION_RESTORED = "AnnotationRestored"
    """Warning: somebody took annotations for kube-vip off a Service that is served; they are set again."""
    FIELD_CONFLICT = "FieldConflict"
    """Warning: writes are rate-limited because another controller probably keeps changing the same fields."""
    LEADER = "LeaderElection"
    """Normal: this process became or stopped being the active one."""


class NodeReason(StrEnum):
    """Reasons of Events on Nodes; the first word of a catalogue line is its type."""

    SYNCED = "Synced"
    """Normal: the Node is initialised."""
    DELETING = "DeletingNode"
    """Normal: the Node was deleted because its VM is gone."""
    DELETION_FAILED = "DeletingNodeFailed"
    """Warning: the API server did not delete the Node."""
    DELETION_HELD = "NodeDeletionHeld"
    """Warning: the Node has no VM any more, but deleting it is not safe; the message says why."""
    VM_NOT_FOUND = "VMNotFound"
    """Warning: no VM in our Harvester namespace is this Node."""
    VM_AMBIGUOUS = "VMAmbiguous"
    """Warning: several VMs claim to be this Node."""
    VM_OF_OTHER_CLUSTER = "VMOfOtherCluster"
    """Warning: the VM with the Node's name is marked as another cluster's."""
    VM_OF_OTHER_MACHINE = "VMOfOtherMachine"
    """Warning: a VM that looks like the Node's is another machine, or can be one."""
    OTHER_PROVIDER = "OtherProvider"
    """Warning: the new Node has another provider's ID, and is left alone."""
    NO_PROVIDER_ID = "NoProviderID"
    """Warning: the Node joined without the uninitialized taint, so it was never given a provider ID."""
    VM_OF_OTHER_NODE = "VMOfOtherNode"
    """Warning: the VM is another Node's already."""
    VM_REPLACED = "VMReplaced"
    """Warning: the VM in the provider ID is gone, another one has taken its place."""
    VM_NOT_RUNNING = "VMNotRunning"
    """Warning: the VM has no running instance."""
    HARVESTER_FORBIDDEN = "HarvesterForbidden"
    """Warning: Harvester does not grant what is needed to find the VM."""
    HARVESTER_UNAVAILABLE = "HarvesterUnavailable"
    """Warning: Harvester cannot be reached, refuses the credential, or is still being read."""
    NO_MANAGEMENT_NETWORK = "NoManagementNetwork"
    """Warning: the VM has no interface in the network that carries node addresses."""
    NETWORK_GUESSED = "ManagementNetworkGuessed"
    """Warning: the VM has several networks and no flag says which one carries node addresses."""
    NO_ADDRESS = "NoAddress"
    """Warning: Harvester reports no usable address of the VM."""
    INTERNAL_IP_CHANGED = "InternalIPChanged"
    """Warning: the InternalIP of an initialised Node was changed; the message says from what, to what, and why."""
    NO_INTERNAL_IP = "NoInternalIP"
    """Warning: none of the VM's addresses may become the InternalIP."""
    PROVIDED_IP_INVALID = "InvalidProvidedNodeIP"
    """Warning: the annotation with the kubelet's address cannot be read."""
    PROVIDED_IP_NOT_FOUND = "ProvidedNodeIPNotFound"
    """Warning: the VM does not have the address the kubelet was started with."""
    ADDITIONAL_IPS_INVALID = "InvalidAdditionalInternalIPs"
    """Warning: the annotation with additional internal addresses cannot be read."""
    WRITE_REFUSED = "NodeWriteRefused"
    """Warning: the API server of this cluster refuses what was to be written to the Node."""
    FIELD_CONFLICT = "FieldConflict"
    """Warning: writes are rate-limited because another controller probably keeps changing the same fields."""
    TOPOLOGY_INVALID = "InvalidTopology"
    """Warning: the VM's zone or region cannot be a label value."""
