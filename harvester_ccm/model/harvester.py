"""Views of Harvester's types: LoadBalancer, VirtualMachine, VirtualMachineInstance; and this cluster in Harvester.

Only what is read is kept of an object, because whoever writes one decides on its size. Harvester has neither a patch
verb nor a status subresource for a LoadBalancer. A change is a PUT of the whole object, which fields survive that this
controller does not know: it is read again before, as a ``WHOLE_LOAD_BALANCERS``.
"""

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Any, Final, Self

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from harvester_ccm.config import Announcer, Settings, SharedAddressScope
from harvester_ccm.kube.objects import (
    Condition,
    Kept,
    Model,
    Object,
    ObjectMeta,
    ObjectT,
    Resource,
    decoder,
    reducing_decoder,
)
from harvester_ccm.names import DEFAULT_CLUSTER_NAME, LB_CONTROLLER_FINALIZER, LB_KEYS, VM_KEYS
from harvester_ccm.netip import address_in
from harvester_ccm.redaction import cut

MAX_ADDRESSES: Final = 256
"""Addresses that are kept of a NIC."""
MAX_KEPT: Final = 256 * 1024
"""Bytes of an object of Harvester that are kept at most; a larger one counts as one that cannot be decoded."""


class HealthCheck(Model, frozen=True, kw_only=True):
    """``spec.healthCheck``: a TCP connect to ``port`` on every backend; port 0 switches it off. Times in seconds."""

    port: int = 0
    success_threshold: int = 0
    period_seconds: int = 0
    timeout_seconds: int = 0


class LoadBalancerSpec(Model, frozen=True, kw_only=True):
    """``spec`` of a LoadBalancer. An absent ``ipam`` means ``pool``."""

    named_workload_type: str = msgspec.field(default="", name="workloadType")
    """Empty if the object has none: Harvester's upgrade to 1.2 leaves it out."""
    ipam: str = "pool"
    ip_pool: str = ""
    description: str = ""
    backend_server_selector: dict[str, tuple[str, ...] | None] | None = None
    health_check: HealthCheck | None = None

    def __post_init__(self) -> None:
        """Cut the description, which can be a megabyte."""
        force_setattr(self, "description", cut(self.description))

    @property
    def workload_type(self) -> str:
        """``cluster`` or ``vm``; an absent one means ``vm``."""
        return self.named_workload_type or "vm"


def _address(text: str) -> str:
    """Return a text that is an IP address; empty for any other, which nobody can announce."""
    return "" if address_in(text) is None else text


class AllocatedAddress(Model, frozen=True, kw_only=True):
    """The address that Harvester allocated; ``0.0.0.0`` for DHCP."""

    ip_pool: str = ""
    ip: str = ""
    mask: str = ""
    """Of the subnet of its range."""

    def __post_init__(self) -> None:
        """Read an address only: it is published. With any other text, there is no allocation in the pool either."""
        if self.ip and not _address(self.ip):
            force_setattr(self, "ip", "")
            force_setattr(self, "ip_pool", "")


class HarvesterLoadBalancerStatus(Model, frozen=True, kw_only=True):
    address: str = ""
    allocated_address: AllocatedAddress | None = None
    backend_servers: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] | None = None

    def __post_init__(self) -> None:
        """Read an address only, as for the allocated one."""
        force_setattr(self, "address", _address(self.address))


class LoadBalancer(Object, frozen=True, kw_only=True):
    spec: LoadBalancerSpec = LoadBalancerSpec()
    status: HarvesterLoadBalancerStatus = HarvesterLoadBalancerStatus()
    source: bytes = b""
    """The parts of the JSON document that plans compare; all of it but ``managedFields`` on a whole load balancer."""

    @property
    def allocated_ip(self) -> str:
        """The allocated address, ``0.0.0.0`` for DHCP, empty if none exists."""
        return self.status.allocated_address.ip if self.status.allocated_address else ""

    @property
    def allocated_pool(self) -> str:
        """The pool of the allocated address; empty for DHCP or without an address."""
        return self.status.allocated_address.ip_pool if self.status.allocated_address else ""

    @property
    def subnet(self) -> IPv4Network | None:
        """The subnet of the pool's range; None if Harvester does not show it."""
        mask = self.status.allocated_address.mask if self.status.allocated_address else ""
        try:
            return IPv4Network(f"{self.allocated_ip}/{mask}", strict=False)
        except ValueError:
            return None

    @property
    def address(self) -> str:
        """``status.address``: the address in use."""
        return self.status.address

    @property
    def is_closed(self) -> bool:
        """Whether the pool is blocked: the status names a pool without an address, so Harvester allocates none."""
        return bool(self.allocated_pool) and not self.allocated_ip

    @property
    def backends(self) -> tuple[str, ...]:
        """The addresses that Harvester sends traffic to."""
        return self.status.backend_servers or ()

    @property
    def ready(self) -> Condition | None:
        """The Ready condition; None until Harvester has reconciled the object."""
        for condition in self.status.conditions or ():
            if condition.type == "Ready":
                return condition
        return None

    def document(self) -> dict[str, object]:
        """Return a fresh copy of what is kept of the document; a whole one can be changed and written back."""
        return _decode_document(self.source)


_OF_LOAD_BALANCER: Final = Kept(frozenset(LB_KEYS), finalizers=frozenset({LB_CONTROLLER_FINALIZER}))
_OF_MACHINE: Final = Kept(frozenset(VM_KEYS))

_decode_fields: Final = reducing_decoder(LoadBalancer, _OF_LOAD_BALANCER)
_decode_document: Final = msgspec.json.Decoder(dict[str, Any]).decode


_ABSENT: Final = msgspec.Raw()


class _ComparedSpec(Struct, rename="camel", omit_defaults=True):
    """The fields of ``spec`` whose documents plans compare."""

    description: str | None = None
    listeners: msgspec.Raw = _ABSENT
    backend_server_selector: msgspec.Raw = _ABSENT
    health_check: msgspec.Raw = _ABSENT


class _Compared(Struct):
    spec: _ComparedSpec = msgspec.field(default_factory=_ComparedSpec)


_decode_compared: Final = msgspec.json.Decoder(_Compared).decode


def limited(item: ObjectT, source: bytes) -> ObjectT:
    """Return an object of which no more is kept than the limit. Raises ValueError with its size and largest field."""
    size = len(msgspec.json.encode(item))
    if size <= MAX_KEPT:
        return item
    raise ValueError(
        f"it has {len(source):,} bytes, of which {size:,} would be kept, and the limit is {MAX_KEPT:,}; its largest "
        f"field is {_largest_field(source)}"
    )


def _largest_field(source: bytes) -> str:
    sizes = {
        cut(f"{part}.{name}"): len(msgspec.json.encode(value))
        for part, fields in _decode_document(source).items()
        if isinstance(fields, dict)
        for name, value in fields.items()
    }
    return max(sizes, key=sizes.__getitem__)


def decode_load_balancer(source: bytes) -> LoadBalancer:
    """Decode a LoadBalancer with what is read of it. Raises msgspec.DecodeError, and ValueError if that is too much."""
    load_balancer = _decode_fields(source)
    ready = tuple(condition for condition in load_balancer.status.conditions or () if condition.type == "Ready")
    force_setattr(load_balancer.status, "conditions", ready)
    compared = _decode_compared(source).spec
    if compared.description is not None:
        compared.description = cut(compared.description)
    meta = load_balancer.metadata
    document = {
        "metadata": {"labels": meta.labels, "annotations": meta.annotations},
        "spec": compared,
        "status": {"address": load_balancer.address},
    }
    # Copied, because an encoder keeps as much again in reserve.
    kept = bytes(memoryview(msgspec.json.encode(document)))
    return limited(replace(load_balancer, source=kept), source)


def decode_whole_load_balancer(source: bytes) -> LoadBalancer:
    """Decode a LoadBalancer with its document. Raises msgspec.DecodeError.

    ``managedFields`` is left out: it is a third of the document, and the API server keeps it if a PUT lacks it.
    """
    document = _decode_document(source)
    document.get("metadata", {}).pop("managedFields", None)
    return replace(_decode_fields(source), source=msgspec.json.encode(document))


class AddressRange(Model, frozen=True, kw_only=True):
    """Entry of ``spec.ranges`` of an IPPool; Harvester has defaults for all but the subnet."""

    subnet: str = ""
    range_start: str = ""
    range_end: str = ""
    gateway: str = ""


class IPPoolSpec(Model, frozen=True, kw_only=True):
    ranges: tuple[AddressRange, ...] | None = None


class IPPoolStatus(Model, frozen=True, kw_only=True):
    """``status`` of an IPPool. Both maps have addresses as keys, and load balancers (``namespace/name``) as values."""

    allocated: dict[str, str] | None = None
    """Addresses that load balancers have."""
    allocated_history: dict[str, str] | None = None
    """Free addresses, each with the load balancer that gets it if it is created again."""
    conditions: tuple[Condition, ...] | None = None


class IPPool(Object, frozen=True, kw_only=True):
    """An IP pool of Harvester; it has no namespace."""

    spec: IPPoolSpec = IPPoolSpec()
    status: IPPoolStatus = IPPoolStatus()

    @property
    def ranges(self) -> tuple[AddressRange, ...]:
        return self.spec.ranges or ()

    @property
    def allocated(self) -> Mapping[str, str]:
        """Addresses that load balancers have."""
        return self.status.allocated or {}

    @property
    def history(self) -> Mapping[str, str]:
        """Free addresses, each with the load balancer that gets it if it is created again."""
        return self.status.allocated_history or {}

    @property
    def is_usable(self) -> bool:
        """Whether Harvester can allocate addresses of it, as far as it shows that."""
        conditions = self.status.conditions or ()
        is_refused = any((entry.type, entry.status) == ("Ready", "False") for entry in conditions)
        return not self.metadata.deleting and not is_refused


class MultusNetwork(Model, frozen=True, kw_only=True):
    """A NIC's attachment to a network, ``namespace/name`` or ``name`` in the VM's own namespace."""

    network_name: str = ""


class PodNetwork(Model, frozen=True, kw_only=True):
    """A NIC's attachment to the pod network: with masquerade, the VM has an address of one of these ranges."""

    vm_network_cidr: str = msgspec.field(default="", name="vmNetworkCIDR")
    """Empty: KubeVirt's default."""
    vm_ipv6_network_cidr: str = msgspec.field(default="", name="vmIPv6NetworkCIDR")
    """Empty: KubeVirt's default."""


class Network(Model, frozen=True, kw_only=True):
    """Entry of ``spec.networks``, in NIC order. ``multus`` is absent on the pod network."""

    name: str = ""
    multus: MultusNetwork | None = None
    pod: PodNetwork | None = None


class Interface(Model, frozen=True, kw_only=True):
    """Entry of ``status.interfaces``: a NIC as the guest agent or Multus reports it."""

    name: str = ""
    interface_name: str = ""
    mac: str = ""
    ip_address: str = ""
    ip_addresses: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Cut what the guest agent says."""
        force_setattr(self, "interface_name", cut(self.interface_name))
        force_setattr(self, "mac", cut(self.mac))
        force_setattr(self, "ip_address", cut(self.ip_address))
        if self.ip_addresses:
            force_setattr(self, "ip_addresses", tuple(map(cut, self.ip_addresses[:MAX_ADDRESSES])))

    @property
    def addresses(self) -> tuple[str, ...]:
        """All reported addresses in order."""
        if self.ip_addresses:
            return self.ip_addresses
        return (self.ip_address,) if self.ip_address else ()


class MigrationState(Model, frozen=True, kw_only=True):
    """``status.migrationState``; stays after a migration."""

    completed: bool = False


class Firmware(Model, frozen=True, kw_only=True):
    """``domain.firmware``; the UUID is what the kubelet reads as its system UUID."""

    uuid: str = ""


class Domain(Model, frozen=True, kw_only=True):
    firmware: Firmware | None = None


class InstanceSpec(Model, frozen=True, kw_only=True):
    networks: tuple[Network, ...] | None = None
    domain: Domain | None = None

    @property
    def multus_networks(self) -> dict[str, str]:
        """NIC name to network, ``namespace/name`` or ``name``, in NIC order, without those on the pod network."""
        return {
            network.name: network.multus.network_name for network in self.networks or () if network.multus is not None
        }


class InstanceStatus(Model, frozen=True, kw_only=True):
    phase: str = ""
    node_name: str = ""
    interfaces: tuple[Interface, ...] | None = None
    migration_state: MigrationState | None = None
    conditions: tuple[Condition, ...] | None = None


class VirtualMachineInstance(Object, frozen=True, kw_only=True):
    """A running VM; has the VM's name and exists only while it runs."""

    spec: InstanceSpec = InstanceSpec()
    status: InstanceStatus = InstanceStatus()

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        return self.status.interfaces or ()

    @property
    def is_migrating(self) -> bool:
        """Whether a live migration is in progress. KubeVirt keeps the state of the last one."""
        state = self.status.migration_state
        return state is not None and not state.completed

    @property
    def has_agent(self) -> bool:
        """Whether the guest agent is connected."""
        connected = ("AgentConnected", "True")
        return any((condition.type, condition.status) == connected for condition in self.status.conditions or ())


_decode_instance: Final = reducing_decoder(VirtualMachineInstance, _OF_MACHINE)


def decode_instance(source: bytes) -> VirtualMachineInstance:
    """Decode a VMI with what is read of it. Raises msgspec.DecodeError, and ValueError if that is too much.

    Devices that are in none of its networks are left out: a guest agent lists one for each pod (``cali…``, ``veth…``).
    Without them, the view changes only when a NIC of the VM does. One over a NIC stays if it has an address, such as
    a bridge: it has the MAC of the NIC.
    """
    instance = _decode_instance(source)
    networks = {network.name for network in instance.spec.networks or ()}
    nics = tuple(entry for entry in instance.interfaces if entry.name in networks)
    macs = {nic.mac for nic in nics} - {""}
    unnamed = [entry for entry in instance.interfaces if not entry.name and entry.addresses]
    over = {entry.mac: entry for entry in unnamed if entry.mac in macs}
    kept = (*nics, *over.values())
    return limited(replace(instance, status=replace(instance.status, interfaces=kept)), source)


class InstanceTemplate(Model, frozen=True, kw_only=True):
    """``spec.template`` of a VM."""

    metadata: ObjectMeta | None = None
    """A VMI gets its labels from here."""
    spec: InstanceSpec | None = None


class VirtualMachineSpec(Model, frozen=True, kw_only=True):
    template: InstanceTemplate | None = None


class VirtualMachineStatus(Model, frozen=True, kw_only=True):
    ready: bool = False
    created: bool = False
    printable_status: str = ""
    conditions: tuple[Condition, ...] | None = None


class VirtualMachine(Object, frozen=True, kw_only=True):
    """A VM; its UID is the node's provider ID."""

    spec: VirtualMachineSpec = VirtualMachineSpec()
    status: VirtualMachineStatus = VirtualMachineStatus()


_decode_machine: Final = reducing_decoder(VirtualMachine, _OF_MACHINE)


def decode_machine(source: bytes) -> VirtualMachine:
    """Decode a VM with what is read of it. Raises msgspec.DecodeError, and ValueError if that is too much."""
    machine = _decode_machine(source)
    template = machine.spec.template
    if template is not None and template.metadata is not None:
        force_setattr(template, "metadata", _OF_MACHINE.reduce(template.metadata))
    return limited(machine, source)


class GuestOSInfo(Model, frozen=True, kw_only=True):
    """Response of the guest agent; the host name can be a full domain name."""

    hostname: str = ""


class ClusterIdentity(Struct, frozen=True):
    """This cluster as Harvester sees it."""

    name: str
    """Value of --cluster-name, trimmed."""
    namespace: str
    """Namespace in Harvester with the VMs and load balancers of this cluster: that of the cloud-config's context."""
    uid: str = ""
    """UID of the guest cluster's kube-system namespace; empty if reading it is forbidden, or if it is not needed."""
    management_network: str = ""
    former_names: tuple[str, ...] = ()
    class_only: bool = False
    asks_guests: bool = True
    publishes_devices: bool = True
    """Whether this controller writes the ConfigMap that maps networks to the devices of the nodes."""
    new_harvester: bool = False
    shared_address_scope: SharedAddressScope = SharedAddressScope.CLUSTER
    announcer: Announcer = Announcer.AUTO
    """The others are as in the settings of the process."""

    @classmethod
    def of(cls, settings: Settings, namespace: str, uid: str = "") -> Self:
        """Return the identity by the flags, the namespace in Harvester and the UID of the guest cluster."""
        return cls(
            name=settings.harvester.cluster_name,
            namespace=namespace,
            uid=uid,
            former_names=settings.harvester.former_names,
            management_network=settings.nodes.management_network or "",
            asks_guests=settings.nodes.asks_guests,
            class_only=settings.services.class_only,
            publishes_devices=settings.nodes.vmi_controller,
            new_harvester=settings.services.allow_harvester_change,
            shared_address_scope=settings.services.shared_address_scope,
            announcer=settings.services.announcer,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The current name and the former ones."""
        return (self.name, *self.former_names)

    @property
    def named(self) -> bool:
        """Whether the name is unique to this cluster: neither empty nor the default."""
        return self.name not in {"", DEFAULT_CLUSTER_NAME}


LOAD_BALANCERS: Final = Resource(
    "loadbalancer.harvesterhci.io", "v1beta1", "loadbalancers", "LoadBalancer", decode_load_balancer
)
WHOLE_LOAD_BALANCERS: Final = replace(LOAD_BALANCERS, decode=decode_whole_load_balancer)
"""For a request before a PUT."""
IP_POOLS: Final = Resource(
    "loadbalancer.harvesterhci.io", "v1beta1", "ippools", "IPPool", decoder(IPPool), namespaced=False
)
VIRTUAL_MACHINES: Final = Resource("kubevirt.io", "v1", "virtualmachines", "VirtualMachine", decode_machine)
INSTANCES: Final = Resource("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", decode_instance)
GUEST_OS_INFO: Final = Resource(
    "subresources.kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", decoder(GuestOSInfo)
)
