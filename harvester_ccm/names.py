"""Catalogue of every name that users, Harvester, kube-vip and Rancher share with us.

Each annotation, label, taint, finalizer and Event reason is here once. The reference page is generated from the texts,
which have one form: object and kind, who sets it: value (default). Meaning. Changing a value breaks running clusters.
"""

from enum import StrEnum
from typing import Final, Self

PROGRAM: Final = "harvester-ccm"
PROGRAM_NAMES: Final = (PROGRAM, "harvester-cloud-provider")
"""Names of the executable; existing charts use the second one."""
PREFIX: Final = "cloudprovider.harvesterhci.io/"
"""Prefix of the keys of this controller."""

DEFAULT_CLUSTER_NAME: Final = "kubernetes"
"""Default of the flag --cluster-name; two clusters with this name cannot be distinguished."""

SERVICE_ANNOTATIONS: Final[list[str]] = []
"""The annotations of this controller on a Service."""
KUBE_VIP_ANNOTATIONS: Final[list[str]] = []
"""The annotations of kube-vip on a Service that this controller reads."""
LB_KEYS: Final[list[str]] = []
"""The labels and annotations of a LoadBalancer that this controller reads or writes."""
NODE_KEYS: Final[list[str]] = []
"""The labels and annotations of a Node that this controller reads or writes."""


def _of(keys: list[str], key: str) -> str:
    """Return a key that is added to these."""
    keys.append(key)
    return key


# Annotations that users write on a Service.
IPAM: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "ipam")
"""Service annotation, set by users: `pool` or `dhcp` (default: `pool`). Source of the address: an IP pool of Harvester,
or a DHCP server. Fixed while the load balancer exists."""
NETWORK: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "network")
"""Service annotation, set by users: `namespace/name` of a VM network. Network of the address of a cluster load
balancer; before Harvester 1.9, also set `ip-pool`. Usually fixed once there is an address."""
PROJECT: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "project")
"""Service annotation, set by users: `cluster/project` id. Rancher project that selects the IP pool of a VM load
balancer, from Harvester 1.7 on. Harvester overwrites it in all other cases."""
POOL_NAMESPACE: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "namespace")
"""Service annotation, set by users: namespace in Harvester. No effect: Harvester overwrites it with the namespace of
the load balancer."""
PRIMARY_SERVICE: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "primary-service")
"""Service annotation, set by users: `namespace/name` of a Service. Share the address of that Service."""
WORKLOAD_TYPE: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "workload-type")
"""Service annotation, set by users: `cluster` or `vm` (default: `cluster`). Who announces the address: kube-vip in this
cluster, or Harvester."""
IP_POOL: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "ip-pool")
"""Service annotation, set by users: name of an IP pool, without a namespace. Take the address from this pool, whatever
its selector says. Once the load balancer has an address, only the pool of this address can be named."""
REQUESTED_ADDRESS: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "requested-address")
"""Service annotation, set and read by this controller or users: IPv4 address. A new Service requests it in the pool in
`ip-pool`, if Harvester's administrator permits that; otherwise it is only compared with the allocated one. A request in
`kube-vip.io/loadbalancerIPs` of a new Service is kept here, with the UID of the Service: it does not count on a
copy."""
ANNOUNCED_AS: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "announced-as")
"""Service annotation, set and read by this controller: JSON. The last step of the controller to have the address
announced. It continues there after a restart. Without it, the Service is handled as one of another provider, or
announced once more."""
HEALTH_CHECK_PORT: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "healthcheck-port")
"""Service annotation, set by users: Service port number, port name or node port. Harvester checks the Nodes of a
VM load balancer by a TCP connection to this port. A new Service gets such a load balancer, unless `workload-type` is
set."""
HEALTH_CHECK_SUCCESS_THRESHOLD: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "healthcheck-success-threshold")
"""Service annotation, set by users: number from 1 (default: `1`). Successful checks in a row after which a Node gets
traffic."""
HEALTH_CHECK_FAILURE_THRESHOLD: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "healthcheck-failure-threshold")
"""Service annotation, set by users: number from 1 (default: `3`). Failed checks in a row after which a Node gets no
traffic."""
HEALTH_CHECK_PERIOD: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "healthcheck-periodseconds")
"""Service annotation, set by users: seconds from 1 (default: `5`). Time between two checks."""
HEALTH_CHECK_TIMEOUT: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "healthcheck-timeoutseconds")
"""Service annotation, set by users: seconds from 1 (default: `3`). Time to accept the connection."""

DESCRIPTION: Final = _of(SERVICE_ANNOTATIONS, PREFIX + "description")
"""Service annotation, set by users: text (default: `namespace/name of cluster NAME`). Description of the load balancer
in Harvester."""

# Annotations and labels that this controller writes on a Service.
PRIMARY_SERVICE_LABEL: Final = PREFIX + "primary-service"
"""Service label, set by this controller: `namespace.name`. The Service has, or last had, the address of another one."""
LOAD_BALANCER_READY: Final = PREFIX + "LoadBalancerReady"
"""Service condition, set by this controller: `True` or `False`. Whether the Service is ready, and otherwise why not."""
SERVICE_FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
"""Service finalizer, set by this controller. Keeps a deleted Service until its address is withdrawn and its load
balancer is being deleted."""

# kube-vip's; only ``plan.service.announcing`` reads and writes them.
KUBE_VIP_ADDRESSES: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/loadbalancerIPs")
"""Service annotation, set and read by this controller: address, `0.0.0.0` or empty. What kube-vip announces: the
address, one from DHCP (`0.0.0.0`), or nothing (empty)."""
KUBE_VIP_INTERFACE: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/serviceInterface")
"""Service annotation, set and read by this controller or users: network device. Device of the Nodes on which kube-vip
announces the address of a Service with a network."""
KUBE_VIP_IGNORE: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/ignore")
"""Service annotation, set by this controller: `true`. kube-vip in this cluster ignores the Service: it has no address
yet, or Harvester announces it."""
KUBE_VIP_HOST: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/vipHost")
"""Service annotation, set by kube-vip: node name. The node that last announced an address of the Service, as it
noted."""
KUBE_VIP_LEASE: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/requestedIP")
"""Service annotation, set by kube-vip or users: address, or two with a comma. The last lease from DHCP, or the address
to request there."""
KUBE_VIP_DDNS: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/ddns")
"""Service annotation, set by this controller or users: `False` or `FALSE`. Do not set it: the controller changes the
spelling to have kube-vip announce an address again. A user's `true` stays."""
KUBE_VIP_LEASE_NAME: Final = _of(KUBE_VIP_ANNOTATIONS, "kube-vip.io/leaseName")
"""Service annotation, set by users: name. The Lease with which kube-vip elects the Node of the Service, with
`svc_election`."""

# Marks of other load balancer controllers on a Service.
FOREIGN_ANNOTATIONS: Final = ("metallb.io/", "metallb.universe.tf/", "lbipam.cilium.io/", "io.cilium/lb-ipam")
"""Prefixes of annotations that give a Service to another load balancer controller."""
FOREIGN_LABEL: Final = ("implementation", "kube-vip")
"""Label of the Services that kube-vip-cloud-provider serves; it has the same finalizer as this controller."""

RESYNC_TRIGGER: Final = PREFIX + "resync-trigger"
"""EndpointSlice annotation, set by this controller: version of the EndpointSlice. A change makes kube-vip 1.2 reconcile
the Service."""

# Annotations and labels that this controller writes on a Harvester LoadBalancer.
LB_UPDATE_AFTER_CREATE: Final = _of(LB_KEYS, PREFIX + "update-after-create")
"""LoadBalancer annotation, set and read by this controller: `true`. A new VM load balancer is updated once more:
Harvester's cleanup of an earlier one with its name can delete parts of it."""
LB_DESCRIPTION: Final = _of(LB_KEYS, PREFIX + "description-from-service")
"""LoadBalancer annotation, set and read by this controller: `true`. The description is from the annotation of the
Service."""
LB_RECONCILE: Final = _of(LB_KEYS, PREFIX + "reconcile-requested")
"""LoadBalancer annotation, set and read by this controller: `true`. The load balancer has no address and is to be
deleted; Harvester's next status shows whether an address would be lost."""
LB_CLUSTER: Final = _of(LB_KEYS, PREFIX + "cluster")
"""LoadBalancer label, set and read by this controller: cluster name. Name of the guest cluster."""
LB_SERVICE_NAMESPACE: Final = _of(LB_KEYS, PREFIX + "serviceNamespace")
"""LoadBalancer label, set and read by this controller: namespace. Namespace of the Service."""
LB_SERVICE_NAME: Final = _of(LB_KEYS, PREFIX + "serviceName")
"""LoadBalancer label, set and read by this controller: name. Name of the Service."""
LB_OWNER: Final = _of(LB_KEYS, PREFIX + "cluster-uid")
"""LoadBalancer annotation, set and read by this controller: UID. UID of the namespace `kube-system` of the guest
cluster."""
LB_SERVICE_UID: Final = _of(LB_KEYS, PREFIX + "service-uid")
"""LoadBalancer annotation, set and read by this controller: UID. UID of the Service."""
LB_SERVICE_UUID: Final = _of(LB_KEYS, PREFIX + "service-uuid")
"""LoadBalancer annotation, set by others: UID. UID of the Service, from providers before 0.2."""
LB_REQUESTED_NETWORK: Final = _of(LB_KEYS, PREFIX + "lb-network")
"""LoadBalancer annotation, set and read by this controller: `namespace/name`. Requested network."""
LB_MANAGEMENT_NETWORK: Final = _of(LB_KEYS, PREFIX + "managementNetwork")
"""LoadBalancer annotation, set by this controller: `namespace/name`. Value of --management-network; Harvester 1.9
chooses the pool by it if no network is requested."""
LB_PREFIX: Final = "loadbalancer.harvesterhci.io/"
LB_SELECT_CLUSTER: Final = _of(LB_KEYS, LB_PREFIX + "cluster")
"""LoadBalancer annotation, set by this controller: cluster name. Guest cluster, for the selection of the pool."""
LB_SELECT_NETWORK: Final = _of(LB_KEYS, LB_PREFIX + "network")
"""LoadBalancer annotation, set and read by this controller: `namespace/name`. Network, for the selection of the pool;
Harvester can replace it."""
LB_SELECT_PROJECT: Final = _of(LB_KEYS, LB_PREFIX + "project")
"""LoadBalancer annotation, set by this controller: `cluster/project`. Project, for the selection of the pool."""
LB_SELECT_NAMESPACE: Final = _of(LB_KEYS, LB_PREFIX + "namespace")
"""LoadBalancer annotation, set by this controller: namespace. Namespace, for the selection of the pool."""
LB_CONTROLLER_FINALIZER: Final = "wrangler.cattle.io/harvester-lb-controller"
"""LoadBalancer finalizer, set and read by this controller. Harvester's own: it releases the address. New load balancers
are created with it, which saves Harvester a write."""

LEASE_HOLDER: Final = PREFIX + "holder"
"""Lease annotation, set and read by this controller: program with its version, and the holder's identity. Which program
holds the Lease."""
LEASE_FLAGS: Final = PREFIX + "flags"
"""Lease annotation, set and read by this controller: flags. Those of the holder that say what it does, for commands
outside of its pod."""

# Nodes, virtual machines.
UNINITIALIZED_TAINT: Final = "node.cloudprovider.kubernetes.io/uninitialized"
"""Node taint, set by kubelet: any. Keeps workloads off a Node until it is initialized."""
SHUTDOWN_TAINT: Final = "node.cloudprovider.kubernetes.io/shutdown"
"""Node taint, set and read by this controller. The VM of the Node is stopped, or cannot start."""
EXCLUDE_NODE_LABEL: Final = _of(NODE_KEYS, "node.kubernetes.io/exclude-from-external-load-balancers")
"""Node label, set by others: any that does not mean `false`. The Node gets no traffic from VM load balancers."""
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
"""Node taint, set by others: any. The cluster autoscaler is about to remove the Node: it gets no traffic from VM load
balancers."""
PROVIDED_NODE_IP: Final = _of(NODE_KEYS, "alpha.kubernetes.io/provided-node-ip")
"""Node annotation, set by others: address, or one per family. The address of the kubelet (`--node-ip`), the preferred
InternalIP."""
ADDITIONAL_INTERNAL_IPS: Final = _of(NODE_KEYS, PREFIX + "additional-internal-ips")
"""Node annotation, set by others: JSON list of addresses. Addresses of the VM that are not published as ExternalIP."""
VM_CREATOR: Final = "harvesterhci.io/creator"
"""VirtualMachineInstance label, set by others: `docker-machine-driver-harvester`. Whether Rancher's node driver made
the VM."""
VM_CLUSTER: Final = "guestcluster.harvesterhci.io/name"
"""VirtualMachineInstance label, set by others: cluster name. Guest cluster of the VM."""
VM_NAME: Final = "harvesterhci.io/vmName"
"""VirtualMachineInstance label, set by others: name of the VM. Selects the backends of a VM load balancer."""
ZONE: Final = _of(NODE_KEYS, "topology.kubernetes.io/zone")
"""Node label, set and read by this controller: zone. Zone of the host of the VM."""
REGION: Final = _of(NODE_KEYS, "topology.kubernetes.io/region")
"""Node label, set and read by this controller: region. Region of the host of the VM."""
ZONE_BETA: Final = _of(NODE_KEYS, "failure-domain.beta.kubernetes.io/zone")
"""Node label, set and read by this controller: zone. Older name of the zone."""
REGION_BETA: Final = _of(NODE_KEYS, "failure-domain.beta.kubernetes.io/region")
"""Node label, set and read by this controller: region. Older name of the region."""
VM_ANNOTATION: Final = _of(NODE_KEYS, PREFIX + "virtual-machine")
"""Node annotation, set and read by this controller: `namespace/name` of the VM. VM of the provider ID, which is read
again before the Node is deleted."""
GO_VM_ANNOTATION: Final = _of(NODE_KEYS, PREFIX + "vm-name-of-guest-cluster-node")
"""Node annotation, set by Go provider: name of the VM. The same from the Go provider; read if the Node has no
`virtual-machine`."""

VM_KEYS: Final = (VM_CREATOR, VM_CLUSTER, VM_NAME, ZONE, REGION)
"""The labels and annotations of a VM and its VMI that this controller reads."""

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
    """Why a Service is not ready, or what happened to it.

    The first word of a docstring is the type of its Event. ``meaning`` completes the sentence "The Service waits for";
    a reason without one is only that of an Event.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Return a member with its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    # Reasons for which a Service is not ready.
    QUEUED = (
        "Queued",
        "its reconcile; if this stays for a minute, the log or the flags of the controller have the cause",
    )
    """No Event: the Service is reconciled next. Fix: none; if it stays, see the log of the controller."""
    CREATION_QUEUED = (
        "CreationQueued",
        "Harvester to respond to the load balancers that were created or deleted before its own",
    )
    """No Event: load balancers are created one after the other. Fix: wait; if other Services get no address either,
    check `harvester-load-balancer`."""
    NOT_PROCESSED = "NotProcessed", "Harvester's load balancer controller to reconcile the load balancer"
    """Warning: Harvester has not processed the load balancer. Fix: check `harvester-load-balancer` and its log."""
    ALLOCATING = "Allocating", "Harvester to finish allocating an address, which takes seconds"
    """Warning: Harvester has not finished the allocation, or cannot write the IP pool. Fix: wait; after a minute, do
    what the message states, and check the log of `harvester-load-balancer`."""
    ANNOUNCEMENT_PENDING = "AnnouncementPending", "the kube-vip of Harvester itself to announce the address"
    """Warning: Harvester does not announce the address of a VM load balancer yet. Fix: check the DaemonSet `kube-vip`
    in namespace `harvester-system` of Harvester; with `ipam: dhcp`, the DHCP server in the network of its hosts."""
    NO_MATCHING_POOL = "NoMatchingPool", "a ready IP pool in Harvester that fits this Service"
    """Warning: no ready IP pool fits the Service, or has the requested name. Fix: create a pool as the message states,
    or name one in annotation `ip-pool`."""
    POOL_EXHAUSTED = "PoolExhausted", "a free address in the IP pool"
    """Warning: the IP pool has no free address. Fix: add a range to the pool, delete Services that use it, or with
    `harvester-ccm cleanup` the load balancers of a cluster that no longer exists."""
    ALLOCATION_FAILED = "AllocationFailed", "Harvester to allocate an address; its message is in the Event"
    """Warning: Harvester cannot allocate an address; the message has Harvester's words. Fix: follow them; otherwise see
    the log of `harvester-load-balancer`."""
    ADDRESS_IN_USE = "AddressInUse", "its address, which something else has"
    """Warning: something else has the requested address, or the allocated one is that of a Node, an API server or the
    cluster.
    Fix: wait or request another address; for an allocated one, do what the message states."""
    DHCP_LEASE_PENDING = (
        "DHCPLeasePending",
        "kube-vip in this cluster to get an address from DHCP, which needs an endpoint and a DHCP server",
    )
    """Warning: kube-vip has no lease from DHCP; a Normal Event while the Service has no endpoint. Fix: start a pod of
    the Service, and check the DHCP server in the network of the Nodes."""
    NETWORK_DEVICE_UNKNOWN = (
        "NetworkDeviceUnknown",
        "the device of its network in the nodes, on which the address is announced",
    )
    """Warning: the device for the network of the Service is not known. Fix: give every VM an interface with one device
    name in the network, and qemu-guest-agent; or set annotation `kube-vip.io/serviceInterface`."""
    OTHER_NETWORK = "AddressInOtherNetwork", "an address of the network that it requests"
    """Warning: Harvester before 1.9 chose the IP pool without the network of the Service. A new address of another
    network is not announced. Fix: name a pool of the network in annotation `ip-pool`."""
    ANNOUNCING = "Announcing", "kube-vip to note that it announces the address"
    """No Event: no Node has noted yet that it announces the address. Fix: none; it takes some seconds, longer while
    kube-vip works on many Services."""
    NOT_ANNOUNCED = "AddressNotAnnounced", "a node to announce its address"
    """Warning: no Node has noted that it announces the address, annotation `kube-vip.io/ignore` prevents it, or
    kube-vip does not announce it again by itself. Fix: remove the annotation, or check kube-vip as the message
    states."""
    HARVESTER_UNAVAILABLE = (
        "HarvesterUnavailable",
        "Harvester to respond; nothing is decided while its load balancers or VMs cannot be read",
    )
    """Warning: Harvester cannot be reached, rejects the credential, denies a permission or cannot serve a request. No
    address is withdrawn for that. Fix: check what the message states: server, network, credential or webhook."""
    HARVESTER_MISMATCH = (
        "HarvesterMismatch",
        "the right Harvester: the one in the cloud-config has no load balancer and no VM of this cluster",
    )
    """Warning: Harvester has no load balancer and no VM of this cluster. Fix: correct server or namespace of the
    cloud-config, or start the controller once with `--allow-harvester-change`."""
    OWNERSHIP_CONFLICT = (
        "LoadBalancerOwnershipConflict",
        "the name or the address of its load balancer, which a load balancer of another cluster has",
    )
    """Warning: a load balancer with the name, the labels or the address of this one belongs to another cluster, or to
    this one under another name. Fix: set `--former-cluster-names` if this cluster was renamed; otherwise do what the
    message states, or create the Service again."""
    REPLACEMENT_PENDING = "ReplacementPending", "the old load balancer to be deleted in Harvester"
    """Warning: Harvester is still deleting the old load balancer, or that of an earlier Service of this name. Fix:
    wait; after a minute, check its finalizers, and `harvester-load-balancer`."""
    UNSUPPORTED = "Unsupported", "a change of the Service: as it is, the load balancer that it requests cannot serve it"
    """Warning: the load balancer that the Service requests cannot serve it. Fix: change the Service as the message
    states."""
    INVALID_ANNOTATION = "InvalidAnnotation", "a correction of an annotation"
    """Warning: the value of an annotation, or of `spec.loadBalancerIP`, cannot be used. Fix: correct it as the message
    states."""
    SHARING_REJECTED = "AddressSharingRejected", "the permission to share an address"
    """Warning: the address of the primary cannot be shared. Fix: change ports, network or primary as the message
    states."""
    SHARED_ADDRESS_PENDING = "SharedAddressPending", "another Service, with which it shares an address"
    """Warning: the primary has no address from Harvester or DHCP yet. Fix: see the Events of the primary."""
    ADDRESS_NOT_ALLOCATED = "AddressNotAllocated", "another address"
    """Warning: Harvester did not allocate the address of the Service, or allocated it to another one. Fix: do what the
    message states."""
    BACKENDS_UNHEALTHY = "BackendsUnhealthy", "a node that takes traffic"
    """Warning: no Node gets traffic from Harvester's load balancer. Fix: check what the message states: labels, pods,
    or the network between Harvester's hosts and the Nodes."""
    DELETION_PENDING = "DeletionPending", "its load balancer to be deleted"
    """Warning: the finalizer of the Service cannot be removed yet. Fix: see the message: usually Harvester must
    respond, or another Service must give up the address."""
    FIELD_CONFLICT = (
        "FieldConflict",
        "the rate limit of its writes; another controller probably changes the same fields",
    )
    """Warning: writes are rate-limited; another controller probably keeps changing the same fields. Fix: find it in the
    managed fields, as the message states."""
    SYNC_FAILED = "SyncLoadBalancerFailed", "the API server to accept a write"
    """Warning: a write was rejected or had no effect, or another client changed the object before each attempt. Fix: do
    what the message states."""

    # Reasons of Events only.
    ENSURING = "EnsuringLoadBalancer"
    """Normal: the load balancer is being created in Harvester."""
    ENSURED = "EnsuredLoadBalancer"
    """Normal: the Service has its address."""
    DELETING = "DeletingLoadBalancer"
    """Normal: the load balancer is being deleted."""
    DELETED = "DeletedLoadBalancer"
    """Normal: the deletion of the load balancer was requested, and the Service is released."""
    ADDRESS_CHANGED = "AddressChanged"
    """Warning: the address of the Service changed. Fix: update DNS records and firewalls."""
    STILL_ANNOUNCED = "AddressStillAnnounced"
    """Warning: kube-vip might still announce a former address of the Service. Fix: restart kube-vip as the message
    states."""
    NO_ENDPOINTS = "NoEndpoints"
    """Normal: kube-vip announces the address when the Service has an endpoint."""
    ANNOUNCEMENT_UNKNOWN = "AnnouncementUnknown"
    """Normal: it is not visible whether the address is announced."""
    IGNORED = "SettingsIgnored"
    """Warning: settings of the Service have no effect on this load balancer, or annotations are unknown. Fix: do what
    the message states, or remove them."""
    IMMUTABLE = "ImmutableSettingChanged"
    """Warning: a setting was changed that is fixed by now. Fix: set it back, or create the Service again."""
    LOAD_BALANCER_LOST = "LoadBalancerLost"
    """Warning: the load balancer was deleted in Harvester and is created again. Fix: none; the Service usually gets the
    same address."""
    ADDRESS_NOT_AS_REQUESTED = "AddressNotAsRequested"
    """Warning: the address is not the requested one. Fix: do what the message states: usually name a pool that permits
    requests in annotation `ip-pool`, and create the Service again."""
    LOCAL_POLICY = "LocalTrafficPolicy"
    """Normal: with externalTrafficPolicy Local, kube-vip must elect a node for each Service: `kube-vip.runOn: all` and
    `kube-vip.env.svc_election: "true"` in the chart, with another version than v1.2.0 to v1.2.3."""
    DEVICE_CHANGED = "NetworkDeviceChanged"
    """Warning: kube-vip announces the address on another device than that of the network. Fix: restart kube-vip as
    the message states."""
    CHANGING_WORKLOAD_TYPE = "ChangingWorkloadType"
    """Normal: the load balancer is deleted, to be recreated with another workload type."""
    MANAGED_BY_OTHER = "ManagedByOtherController"
    """Normal: a mark of another load balancer controller is on the Service, so this one ignores it."""
    ADDRESS_CLAIMED = "AddressClaimed"
    """Warning: the address of the Service was written to another Service, and kube-vip can announce it there, too. Fix:
    find the writer in the managed fields of the other Service; set `kubeVipPolicy: deny` in the chart, which rejects
    changes of existing Services from Kubernetes 1.30 on."""
    ANNOTATION_RESTORED = "AnnotationRestored"
    """Warning: the annotation with the address for kube-vip was changed and is set again. Fix: remove
    `kube-vip.io/loadbalancerIPs` from manifests."""
    CREDENTIAL_NOT_RELOADED = "CredentialNotReloaded"
    """Warning: a kubeconfig cannot be read any more, or its new content cannot be used. Fix: correct the Secret, or the
    file in place. A file is loaded within seconds, a Secret usually within two minutes."""
    CREDENTIAL_RELOADED = "CredentialReloaded"
    """Normal: the kubeconfigs can be used again, or the process that reported the problem has ended."""
    LEADER = "LeaderElection"
    """Normal: a process became or stopped being the active one."""


BLOCKING_REASONS: Final[frozenset[Reason]] = frozenset(
    {Reason.UNSUPPORTED, Reason.INVALID_ANNOTATION, Reason.OWNERSHIP_CONFLICT}
)
"""Reasons that only a user or an administrator can end."""


class NodeReason(StrEnum):
    """Reasons of Events on Nodes; the first word of a catalogue line is its type."""

    SYNCED = "Synced"
    """Normal: the Node is initialized."""
    DELETING = "DeletingNode"
    """Normal: the Node was deleted because its VM is gone."""
    DELETION_FAILED = "DeletingNodeFailed"
    """Warning: the API server did not delete the Node. Fix: grant `delete` on `nodes` (chart: `rbac.nodeDeletion`), or
    exempt the controller from the policy."""
    DELETION_BLOCKED = "NodeDeletionBlocked"
    """Warning: the VM of the Node was not found, but deleting the Node is not safe. Fix: correct namespace or server of
    the cloud-config; if the VM is deleted, delete the Node."""
    VM_NOT_FOUND = "VMNotFound"
    """Warning: no VM in the Harvester namespace matches the Node. Fix: check the namespace of the cloud-config;
    otherwise do what the message states."""
    VM_AMBIGUOUS = "VMAmbiguous"
    """Warning: several VMs match the Node. Fix: distinguish them by UUID, host name or label, as the message states."""
    VM_CLUSTER_MISMATCH = "VMClusterMismatch"
    """Warning: the VM is labeled for another cluster. Fix: correct `--cluster-name`, or the label
    `guestcluster.harvesterhci.io/name` in the template of the VM and on its instance."""
    VM_IDENTITY_MISMATCH = "VMIdentityMismatch"
    """Warning: the VM is, or can be, another machine. Fix: if it is the right one, delete the Node and restart its
    kubelet."""
    PROVIDER_MISMATCH = "ProviderMismatch"
    """Warning: the new Node has the ID of another provider and is ignored. Fix: if it is a Harvester VM, end the other
    cloud controller, delete the Node and restart its kubelet."""
    NO_PROVIDER_ID = "NoProviderID"
    """Warning: the Node joined without the uninitialized taint. Fix: start the kubelet with
    `--cloud-provider=external`, delete the Node and restart the kubelet."""
    VM_IN_USE = "VMInUse"
    """Warning: two Nodes have one VM; an initialized one keeps it. Fix: delete the Node that is not used."""
    INTERNAL_IP_IN_USE = "InternalIPInUse"
    """Warning: two Nodes whose VMs both run have one address; an initialized one keeps it. Fix: give one of the VMs
    another address, or stop one of them."""
    VM_REPLACED = "VMReplaced"
    """Warning: another VM replaces the deleted one of the provider ID. Fix: none; to let the Node join with the new
    UID, delete it and restart its kubelet."""
    VM_NOT_RUNNING = "VMNotRunning"
    """Warning: the VM of a new Node, or of one that is not Ready, does not run. Fix: do what the message states."""
    KUBELET_NOT_REPORTING = "KubeletNotReporting"
    """Warning: the VM runs, but its kubelet does not report. Fix: check the kubelet and the network in the VM."""
    HARVESTER_UNAVAILABLE = "HarvesterUnavailable"
    """Warning: Harvester cannot be reached, rejects the credential, denies a permission, cannot list its VMs, or has
    not listed them yet. Fix: do what the message states."""
    NO_VM_NETWORK = "NoVMNetwork"
    """Warning: the VM has no interface in the network for node addresses. Fix: attach the VM to a VM network, or
    correct `--management-network`."""
    NETWORK_DEFAULTED = "ManagementNetworkDefaulted"
    """Warning: the VM has several networks, and no flag selects the one for node addresses. Fix: set
    `--management-network`."""
    NO_ADDRESS = "NoAddress"
    """Warning: Harvester reports no usable address of the VM. Fix: run qemu-guest-agent in the VM, and configure its
    interface."""
    INTERNAL_IP_CHANGED = "InternalIPChanged"
    """Warning: the InternalIP of an initialized Node was changed. Fix: none; if it was not intended, correct the
    address of the VM or `--node-ip` of the kubelet."""
    NO_INTERNAL_IP = "NoInternalIP"
    """Warning: none of the VM's addresses can become the InternalIP. Fix: correct `--node-ip-cidr`,
    `--management-network`, `--node-ip` or the address of the VM."""
    INVALID_ANNOTATION = "InvalidAnnotation"
    """Warning: an annotation of the Node or its VM has an invalid value and is ignored. Fix: correct it."""
    NODE_IP_NOT_REPORTED = "NodeIPNotReported"
    """Warning: the VM does not report the address of the kubelet. Fix: none if it ends soon; otherwise correct the
    address of the VM, `--node-ip` or `--management-network`."""
    NODE_IP_IN_POD_NETWORK = "NodeIPInPodNetwork"
    """Warning: the address of the kubelet, or the InternalIP, is in Harvester's management (pod) network. Fix: set
    `--node-ip` to the VM's address in a VM network, and restart the kubelet."""
    UPDATE_REJECTED = "NodeUpdateRejected"
    """Warning: the guest cluster rejects a write to the Node. Fix: grant `patch` on `nodes` and `nodes/status`, or
    exempt the controller from the policy."""
    FIELD_CONFLICT = "FieldConflict"
    """Warning: writes are rate-limited; another controller probably keeps changing the same fields. Fix: find it with
    `kubectl get node NAME -o yaml --show-managed-fields`."""
