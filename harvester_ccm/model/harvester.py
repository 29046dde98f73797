"""Views of Harvester's types: LoadBalancer, VirtualMachine, VirtualMachineInstance.

A LoadBalancer keeps the bytes it was decoded from. Harvester has neither a patch verb nor a status subresource for
it, so a change is a PUT of the whole object, and fields that this program does not know must survive it.
"""

from __future__ import annotations

from dataclasses import replace
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
    """``spec`` of a LoadBalancer. An absent ``ipam`` means ``pool``."""

    named_workload_type: str = msgspec.field(default="", name="workloadType")
    """Empty where it is absent: in v1alpha1, and on what Harvester converted from it."""
    ipam: str = "pool"
    ip_pool: str = ""
    listeners: tuple[Listener, ...] | None = None
    backend_server_selector: dict[str, tuple[str, ...] | None] | None = None
    backend_servers: tuple[str, ...] | None = None
    """Addresses of the backends; in v1alpha1 only."""
    health_check: HealthCheck | None = None

    @property
    def workload_type(self) -> str:
        """``cluster`` or ``vm``; an absent one means ``vm``."""
        return self.named_workload_type or "vm"


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
    """A LoadBalancer of Harvester, of either version of the API."""

    api_version: str = ""
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
    def v1alpha1(self) -> bool:
        """Whether it was read in the version of Harvester before 1.2, and has to be written in it."""
        return self.api_version == LOAD_BALANCERS_V1ALPHA1.api_version

    @property
    def backends(self) -> tuple[str, ...]:
        """The addresses that Harvester sends traffic to."""
        if self.v1alpha1:
            return self.spec.backend_servers or ()
        return (self.status.backend_servers if self.status else None) or ()

    @property
    def ready(self) -> LoadBalancerCondition | None:
        """The Ready condition, or None before the controller has looked at the object."""
        conditions = self.status.conditions if self.status else None
        return next((c for c in conditions or () if c.type == "Ready"), None)

    def document(self) -> dict[str, object]:
        """Return a fresh copy of the whole object, to be changed and written back."""
        return msgspec.json.decode(self.source, type=dict[str, object])


class _SourcelessLoadBalancer(Object, frozen=True, kw_only=True):
    api_version: str = ""
    spec: LoadBalancerSpec = LoadBalancerSpec()
    status: LoadBalancerStatus | None = None


class _OldHealthCheck(msgspec.Struct):
    period_seconds: int = msgspec.field(default=0, name="PeriodSeconds")


class _OldSpec(Model, frozen=True, kw_only=True):
    health_check: _OldHealthCheck | None = None


class _OldLoadBalancer(msgspec.Struct):
    """What v1alpha1 names otherwise."""

    spec: _OldSpec = _OldSpec()


_decode_fields = msgspec.json.Decoder(_SourcelessLoadBalancer, strict=False).decode
_decode_old_names = msgspec.json.Decoder(_OldLoadBalancer, strict=False).decode


def decode_load_balancer(source: bytes) -> LoadBalancer:
    """Decode a LoadBalancer of either version and keep its document. Raises msgspec.DecodeError."""
    fields = _decode_fields(source)
    spec, check = fields.spec, fields.spec.health_check
    if check is not None and fields.api_version == LOAD_BALANCERS_V1ALPHA1.api_version:
        old = _decode_old_names(source).spec.health_check
        check = msgspec.structs.replace(check, period_seconds=old.period_seconds if old else 0)
        spec = msgspec.structs.replace(spec, health_check=check)
    return LoadBalancer(
        api_version=fields.api_version,
        metadata=fields.metadata,
        spec=spec,
        status=fields.status,
        source=bytes(source),
    )


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
LOAD_BALANCERS_V1ALPHA1: Final = replace(LOAD_BALANCERS, version="v1alpha1")
"""All that Harvester before 1.2 serves."""
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


def load_balancers_in(version: str) -> Resource[LoadBalancer]:
    """Return the resource of this version, ``v1alpha1`` or ``v1beta1``; an API group may stand before it."""
    return LOAD_BALANCERS_V1ALPHA1 if version.rpartition("/")[2] == "v1alpha1" else LOAD_BALANCERS
