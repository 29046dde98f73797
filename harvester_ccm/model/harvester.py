"""Views of Harvester's types: LoadBalancer, VirtualMachine, VirtualMachineInstance.

A LoadBalancer keeps the bytes it was decoded from. Harvester has neither a patch verb nor a status subresource for
it, so a change is a PUT of the whole object, and fields that this program does not know must survive it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harvester_ccm.model.meta import Model, Object, Resource, decoder


class Listener(Model, frozen=True, kw_only=True):
    """Entry of a LoadBalancer's ``spec.listeners``: front port to backend port."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"
    backend_port: int = 0


class HealthCheck(Model, frozen=True, kw_only=True):
    """``spec.healthCheck``: a TCP connect to ``port`` on every backend; port 0 switches it off. Times in seconds."""

    port: int = 0
    success_threshold: int = 0
    failure_threshold: int = 0
    period_seconds: int = 0
    timeout_seconds: int = 0


class LoadBalancerSpec(Model, frozen=True, kw_only=True):
    """``spec`` of a LoadBalancer. An absent workload type means ``vm``, an absent ``ipam`` means ``pool``."""

    workload_type: str = "vm"
    ipam: str = "pool"
    ip_pool: str = ""
    listeners: tuple[Listener, ...] | None = None
    backend_server_selector: dict[str, tuple[str, ...] | None] | None = None
    health_check: HealthCheck | None = None


class AllocatedAddress(Model, frozen=True, kw_only=True):
    """The address Harvester booked; ``0.0.0.0`` when DHCP decides."""

    ip_pool: str = ""
    ip: str = ""


class LoadBalancerCondition(Model, frozen=True, kw_only=True):
    """Entry of ``status.conditions``; Harvester only uses the type ``Ready``."""

    type: str = ""
    status: str = ""
    message: str = ""


class LoadBalancerStatus(Model, frozen=True, kw_only=True):
    """``status`` of a LoadBalancer."""

    address: str = ""
    allocated_address: AllocatedAddress | None = None
    backend_servers: tuple[str, ...] | None = None
    conditions: tuple[LoadBalancerCondition, ...] | None = None


class LoadBalancer(Object, frozen=True, kw_only=True):
    """A LoadBalancer of Harvester."""

    spec: LoadBalancerSpec = LoadBalancerSpec()
    status: LoadBalancerStatus | None = None
    source: bytes = b""
    """The JSON document this view was decoded from; empty on objects that were never read."""

    @property
    def allocated_ip(self) -> str:
        """The booked address, ``0.0.0.0`` for DHCP, empty while there is none."""
        allocated = self.status.allocated_address if self.status else None
        return allocated.ip if allocated else ""

    @property
    def allocated_pool(self) -> str:
        """The pool the address was booked in; empty for DHCP or without an address."""
        allocated = self.status.allocated_address if self.status else None
        return allocated.ip_pool if allocated else ""

    @property
    def address(self) -> str:
        """``status.address``: the address in use."""
        return self.status.address if self.status else ""

    @property
    def ready(self) -> LoadBalancerCondition | None:
        """The Ready condition, or None before the controller has looked at the object."""
        conditions = self.status.conditions if self.status else None
        return next((c for c in conditions or () if c.type == "Ready"), None)

    def document(self) -> dict[str, object]:
        """Return a fresh copy of the whole object, to be changed and written back."""
        return msgspec.json.decode(self.source, type=dict[str, object])


class _SourcelessLoadBalancer(Object, frozen=True, kw_only=True):
    spec: LoadBalancerSpec = LoadBalancerSpec()
    status: LoadBalancerStatus | None = None


_decode_fields = msgspec.json.Decoder(_SourcelessLoadBalancer, strict=False).decode


def decode_load_balancer(source: bytes) -> LoadBalancer:
    """Decode a LoadBalancer and keep its document. Raises msgspec.DecodeError."""
    fields = _decode_fields(source)
    return LoadBalancer(metadata=fields.metadata, spec=fields.spec, status=fields.status, source=bytes(source))


class MultusNetwork(Model, frozen=True, kw_only=True):
    """A NIC's attachment to a network, ``namespace/name`` or ``name`` in the VM's own namespace."""

    network_name: str = ""


class Network(Model, frozen=True, kw_only=True):
    """Entry of ``spec.networks``, in NIC order. ``multus`` is absent on the pod network."""

    name: str = ""
    multus: MultusNetwork | None = None


class Interface(Model, frozen=True, kw_only=True):
    """Entry of ``status.interfaces``: what the guest agent or Multus reported of a NIC."""

    name: str = ""
    interface_name: str = ""
    ip_address: str = ""
    ip_addresses: tuple[str, ...] | None = None
    mac: str = ""


class MigrationState(Model, frozen=True, kw_only=True):
    """``status.migrationState``; stays after a migration."""

    completed: bool = False


class Condition(Model, frozen=True, kw_only=True):
    """A status condition."""

    type: str = ""
    status: str = ""
    message: str = ""


class Firmware(Model, frozen=True, kw_only=True):
    """``domain.firmware``; the UUID is what the kubelet reads as its system UUID."""

    uuid: str = ""


class Domain(Model, frozen=True, kw_only=True):
    """``domain`` of a VM's template or of a VMI."""

    firmware: Firmware | None = None


class InstanceSpec(Model, frozen=True, kw_only=True):
    """``spec`` of a VMI."""

    networks: tuple[Network, ...] | None = None
    domain: Domain | None = None


class InstanceStatus(Model, frozen=True, kw_only=True):
    """``status`` of a VMI."""

    phase: str = ""
    node_name: str = ""
    interfaces: tuple[Interface, ...] | None = None
    migration_state: MigrationState | None = None
    conditions: tuple[Condition, ...] | None = None


class VirtualMachineInstance(Object, frozen=True, kw_only=True):
    """A running VM; has the VM's name and exists only while it runs."""

    spec: InstanceSpec = InstanceSpec()
    status: InstanceStatus | None = None


class TemplateMeta(Model, frozen=True, kw_only=True):
    """``metadata`` of a VM's template: the labels a VMI gets at its start."""

    labels: dict[str, str] | None = None


class InstanceTemplate(Model, frozen=True, kw_only=True):
    """``spec.template`` of a VM."""

    metadata: TemplateMeta | None = None
    spec: InstanceSpec | None = None


class VirtualMachineSpec(Model, frozen=True, kw_only=True):
    """``spec`` of a VM."""

    run_strategy: str = ""
    running: bool | None = None
    template: InstanceTemplate | None = None


class VirtualMachineStatus(Model, frozen=True, kw_only=True):
    """``status`` of a VM."""

    ready: bool = False
    created: bool = False
    printable_status: str = ""


class VirtualMachine(Object, frozen=True, kw_only=True):
    """A VM; its UID is the node's provider ID."""

    spec: VirtualMachineSpec = VirtualMachineSpec()
    status: VirtualMachineStatus | None = None


class GuestOSInfo(Model, frozen=True, kw_only=True):
    """Answer of the guest agent; the host name may be a full domain name."""

    hostname: str = ""


LOAD_BALANCERS: Final = Resource(
    "loadbalancer.harvesterhci.io", "v1beta1", "loadbalancers", "LoadBalancer", decode_load_balancer
)
VIRTUAL_MACHINES: Final = Resource(
    "kubevirt.io", "v1", "virtualmachines", "VirtualMachine", decoder(VirtualMachine), strangers=True
)
INSTANCES: Final = Resource(
    "kubevirt.io",
    "v1",
    "virtualmachineinstances",
    "VirtualMachineInstance",
    decoder(VirtualMachineInstance),
    strangers=True,
)
GUEST_OS_INFO: Final = Resource(
    "subresources.kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", decoder(GuestOSInfo)
)
