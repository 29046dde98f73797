"""The VMs of the Harvester namespace, joined with what identifies them to a Node."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, IntEnum, auto
from typing import Final, Literal
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.kube.objects import DNS_SUBDOMAIN
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Node, parse_provider_id
from harvester_ccm.model.harvester import ClusterIdentity, InstanceSpec, VirtualMachine, VirtualMachineInstance
from harvester_ccm.names import GO_VM_ANNOTATION, NODE_DRIVER, VM_ANNOTATION, VM_CLUSTER, VM_CREATOR
from harvester_ccm.netip import address_in
from harvester_ccm.plan.node.patch import was_initialized

_NAME_UUIDS: Final = UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
"""UUID namespace in which KubeVirt before 1.6 derives a firmware UUID from the name of the VM."""
_UNSET_HOSTNAMES: Final = frozenset({"localhost", "localhost.localdomain", "localhost.localdomain6"})
"""Host names of guests that have none yet."""


def node_identities(node: Node) -> Iterator[str]:
    """Yield the index values of a Node. A Node and a VM without a common value never match."""
    if uid := parse_provider_id(node.spec.provider_id):
        yield identity("uid", uid)
    if uuid := node.status.node_info.system_uuid.strip().lower():
        yield identity("uuid", uuid)
    yield identity("host", node.metadata.name.partition(".")[0])


def vm_identities(vm: VirtualMachine) -> Iterator[str]:
    """Yield the index values of a VM."""
    yield identity("uid", vm.metadata.uid)
    yield identity("host", vm.metadata.name.partition(".")[0])
    uuid = _template_uuid(vm)
    if uuid:
        yield identity("uuid", uuid)


def vmi_identities(vmi: VirtualMachineInstance) -> Iterator[str]:
    """Yield the index values of a VMI that its VM does not have."""
    if uuid := _firmware_uuid(vmi.spec):
        yield identity("uuid", uuid)


def identity(kind: Literal["uid", "uuid", "host"], value: str) -> str:
    """Return an index value: UID of a VM, UUID of its firmware, or a name without its domain."""
    return f"{kind} {value}"


def internal_ips_of(node: Node) -> Iterator[str]:
    """Yield the InternalIPs in the status of a Node, each in its usual form."""
    for text in node.internal_ips:
        address = address_in(text)
        if address is not None:
            yield str(address)


IDENTITY: Final = "identity"
INTERNAL_IP: Final = "InternalIP"
NODE_INDEXES: Final[Mapping[str, Callable[[Node], Iterable[str]]]] = {
    IDENTITY: node_identities,
    INTERNAL_IP: internal_ips_of,
}
VM_INDEXES: Final[Mapping[str, Callable[[VirtualMachine], Iterable[str]]]] = {IDENTITY: vm_identities}
VMI_INDEXES: Final[Mapping[str, Callable[[VirtualMachineInstance], Iterable[str]]]] = {IDENTITY: vmi_identities}


class NodeStore:
    """What plans of Nodes read: with NODE_INDEXES, VM_INDEXES and VMI_INDEXES."""

    nodes: Store[Node]
    vms: Store[VirtualMachine]
    vmis: Store[VirtualMachineInstance]
    cluster: ClusterIdentity
    hostnames: Mapping[str, str] = {}
    """VM name to the host name that its guest agent reported. Empty unless a Node needs them."""


class Membership(IntEnum):
    """Cluster of a VM, by the label ``guestcluster.harvesterhci.io/name``. The lowest value matches best."""

    OWN = 0
    UNMARKED = 1
    """The VM has no label, or this cluster has no name of its own."""
    FOREIGN = 2


class VM(Struct, frozen=True):
    """A VM with its VMI and its guest."""

    object: VirtualMachine
    vmi: VirtualMachineInstance | None = None
    """None while the VM does not run."""
    hostname: str = ""
    """Host name of the guest in lower case; empty if it is unknown or not usable."""
    membership: Membership = Membership.UNMARKED

    @property
    def name(self) -> str:
        """Name of the VM and of its VMI."""
        return self.object.metadata.name

    @property
    def uid(self) -> str:
        """UID of the VM, which a provider ID contains."""
        return self.object.metadata.uid

    @property
    def is_running(self) -> bool:
        """Whether the VM runs, so that it has its addresses."""
        if self.vmi is None or self.vmi.metadata.deleting:
            return False
        return self.vmi.status.phase == "Running"

    @property
    def firmware_uuid(self) -> str:
        """UUID of the firmware in lower case. The value of the VMI takes precedence over the template."""
        running = ""
        if self.vmi is not None:
            running = _firmware_uuid(self.vmi.spec)
        return running or _template_uuid(self.object)

    @property
    def uuid_is_made_from_name(self) -> bool:
        """Whether every VM of this name has this firmware UUID, in every namespace and every Harvester."""
        return self.firmware_uuid == str(uuid5(_NAME_UUIDS, self.name))

    @property
    def cluster_label(self) -> str:
        """Name of the cluster that the VM is labeled with; empty if it has no label."""
        template = self.object.spec.template
        sources = [self.object.metadata]
        if self.vmi is not None:
            sources.insert(0, self.vmi.metadata)
        if template is not None and template.metadata is not None:
            sources.append(template.metadata)
        for metadata in sources:
            label = metadata.label(VM_CLUSTER)
            if label:
                return label
        return ""


def join(store: NodeStore, vm: VirtualMachine) -> VM:
    """Return a VM with its VMI and its guest."""
    hostname = usable_hostname(store.hostnames.get(vm.metadata.name, ""))
    joined = VM(vm, store.vmis.get(vm.metadata.key), hostname)
    label = joined.cluster_label
    if not store.cluster.named or not label:
        return joined
    membership = Membership.OWN if label in store.cluster.names else Membership.FOREIGN
    return replace(joined, membership=membership)


def vm_named(store: NodeStore, name: str) -> VM | None:
    """Return the VM with this name; None if none exists in the Harvester namespace."""
    vm = store.vms.get(f"{store.cluster.namespace}/{name}")
    if vm is None:
        return None
    return join(store, vm)


def vms_of(store: NodeStore, value: str) -> list[VM]:
    """Return the VMs with an index value."""
    names = [vm.metadata.name for vm in store.vms.by_index(IDENTITY, value)]
    names += [vmi.metadata.name for vmi in store.vmis.by_index(IDENTITY, value)]
    joined = (vm_named(store, name) for name in dict.fromkeys(names))
    return [vm for vm in joined if vm is not None]


def owner_of(store: NodeStore, vm: VM) -> str | None:
    """Return the name of the Node with the provider ID of a VM; None if none exists.

    Of several, an initialized one has the VM, or else the first by name. A kubelet can register with any provider ID,
    so a Node that cannot be this VM does not count.
    """
    nodes = [node for node in store.nodes.by_index(IDENTITY, identity("uid", vm.uid)) if not is_ruled_out(node, vm)]
    if not nodes:
        return None
    owner = min(nodes, key=lambda node: (not was_initialized(node), node.metadata.name))
    return owner.metadata.name


def is_ruled_out(node: Node, vm: VM) -> bool:
    """Return whether a Node that is not initialized yet cannot be this VM: see ``contradiction_of``."""
    return not was_initialized(node) and contradiction_of(node, vm) is not None


class Contradiction(Enum):
    """A sign that a VM is not that of a Node, however the Node identifies it."""

    CLUSTER = auto()
    """The VM is labeled for another cluster."""
    UUID = auto()
    """The firmware UUID of the VM, or of its template while it is stopped, is not the system UUID of the Node."""


def contradiction_of(node: Node, vm: VM) -> Contradiction | None:
    """Return a sign that the VM is not that of the Node, or None."""
    if vm.membership is Membership.FOREIGN:
        return Contradiction.CLUSTER
    firmware_uuid = _template_uuid(vm.object) if vm.vmi is None else _firmware_uuid(vm.vmi.spec)
    if compare_uuids(node, firmware_uuid) is UUIDComparison.DIFFERENT:
        return Contradiction.UUID
    return None


class UUIDComparison(Enum):
    """Whether the firmware UUID of a VM is the system UUID of a Node."""

    EQUAL = auto()
    DIFFERENT = auto()
    UNKNOWN = auto()
    """One of them is missing, or is no UUID."""


def compare_uuids(node: Node, firmware_uuid: str) -> UUIDComparison:
    """Compare the system UUID of a Node with the firmware UUID of a VM.

    Firmware reports the first three fields in either byte order.
    """
    try:
        system = UUID(node.status.node_info.system_uuid.strip())
        firmware = UUID(firmware_uuid)
    except ValueError:
        return UUIDComparison.UNKNOWN
    if firmware.bytes in (system.bytes, system.bytes_le):
        return UUIDComparison.EQUAL
    return UUIDComparison.DIFFERENT


def all_vms(store: NodeStore) -> list[VM]:
    """Return the VMs of the Harvester namespace."""
    return [join(store, vm) for vm in store.vms.all()]


def own_vmis(store: NodeStore) -> list[VirtualMachineInstance]:
    """Return the VMIs that are nodes of this cluster: by their cluster label, or by the provider ID of a Node.

    The Go provider uses the label only. VMs that Rancher did not create have none, and a cluster without a name of its
    own cannot be labeled.
    """
    own = (vm for vm in all_vms(store) if vm.membership is Membership.OWN or owner_of(store, vm) is not None)
    return [vm.vmi for vm in own if vm.vmi is not None and not vm.vmi.metadata.deleting]


def queryable_guests(store: NodeStore) -> list[VirtualMachineInstance]:
    """Return the VMIs whose guest agents can be queried for the host name.

    Only VMs that can be this cluster's and have no Node yet are queried, and only while they run with a connected
    agent: KubeVirt answers any other query with an error.
    """
    guests = []
    for vm in all_vms(store):
        vmi = vm.vmi
        if vmi is None or vmi.status.phase != "Running" or not vmi.has_agent or owner_of(store, vm) is not None:
            continue
        made_by_driver = vmi.metadata.label(VM_CREATOR) == NODE_DRIVER
        if vm.membership is Membership.OWN or (vm.membership is Membership.UNMARKED and made_by_driver):
            guests.append(vmi)
    return guests


def recorded_name(node: Node, namespace: str) -> str:
    """Return the name of the VM that is recorded on a Node; empty without a record of a VM in this namespace.

    The Go provider recorded names without a namespace.
    """
    record = node.metadata.annotation(VM_ANNOTATION) or node.metadata.annotation(GO_VM_ANNOTATION) or ""
    name = record.removeprefix(f"{namespace}/")
    if not DNS_SUBDOMAIN.fullmatch(name):
        return ""
    return name


def reported_addresses(vmi: VirtualMachineInstance, nic: str) -> tuple[str, ...]:
    """Return Harvester's report about an interface. As in the Go provider, the first entry of a name counts."""
    for interface in vmi.interfaces:
        if interface.name == nic:
            return interface.addresses
    return ()


def usable_hostname(hostname: str) -> str:
    """Return the host name of a guest in the form of a Node name; empty if it identifies no guest.

    >>> usable_hostname("W1.Example.com."), usable_hostname("localhost"), usable_hostname("my host")
    ('w1.example.com', '', '')
    """
    name = hostname.strip().lower().removesuffix(".")
    if name in _UNSET_HOSTNAMES or not DNS_SUBDOMAIN.fullmatch(name):
        return ""
    return name


class NodeNetworks(Struct, frozen=True):
    """The VM networks in which a Node is."""

    used: str
    """That of its InternalIP."""
    attached: frozenset[str]


def networks_of(node: Node, vm: VM) -> NodeNetworks | None:
    """Return the VM networks of a Node; None if its VM does not report the InternalIP in any."""
    if vm.vmi is None:
        return None
    networks = {name: full_network(network, vm.vmi) for name, network in vm.vmi.spec.multus_networks.items()}
    internal_ips = set(internal_ips_of(node))
    for interface in vm.vmi.interfaces:
        if interface.name in networks and not internal_ips.isdisjoint(interface.addresses):
            return NodeNetworks(networks[interface.name], frozenset(networks.values()))
    return None


def full_network(network: str, vmi: VirtualMachineInstance) -> str:
    """Return a network as ``namespace/name``. A name without a namespace is in the namespace of the VM."""
    if "/" in network:
        return network
    return f"{vmi.metadata.namespace}/{network}"


def _template_uuid(vm: VirtualMachine) -> str:
    """Return the firmware UUID in the template of a VM, which an instance gets at its start."""
    template = vm.spec.template
    if template is None:
        return ""
    return _firmware_uuid(template.spec)


def _firmware_uuid(spec: InstanceSpec | None) -> str:
    if spec is None or spec.domain is None or spec.domain.firmware is None:
        return ""
    return spec.domain.firmware.uuid.strip().lower()
