"""What kube-vip can read on a Service, and what it has written there."""

from ipaddress import ip_address
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import Service

ADDRESS_ANNOTATION: Final = names.KUBE_VIP_ADDRESSES
DEVICE_ANNOTATION: Final = names.KUBE_VIP_INTERFACE
IGNORE_ANNOTATION: Final = names.KUBE_VIP_IGNORE
LEASE_ANNOTATION: Final = names.KUBE_VIP_LEASE
RECEIPT_ANNOTATION: Final = names.KUBE_VIP_HOST
"""Keys of kube-vip's annotations, for messages."""
NO_ADDRESS: Final = ""
"""Value of the address annotation that makes kube-vip announce nothing."""
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
"""Values of kube-vip's annotation for dynamic DNS that switch it on."""
_LEASE_LENGTH: Final = 100
"""Characters that are read of kube-vip's annotations about its leases: two addresses, or the name of a Lease."""


class Seen(Struct, frozen=True):
    """What kube-vip can read on a Service, and what it has written there.

    Several clients write the annotations: every combination occurs.
    """

    uid: str
    address_annotation: str | None
    """The annotation with the address: ``0.0.0.0`` for one from DHCP, empty for none; None without the annotation."""
    specified: str
    """``spec.loadBalancerIP``."""
    status: tuple[str, ...]
    """Addresses in the status."""
    ignored: bool
    """Whether kube-vip ignores the Service."""
    device: str | None
    """Device of the nodes on which the address is announced; None for kube-vip's default device."""
    node: str
    """The receipt: the node that announces the address, as kube-vip noted; empty without one."""
    lease_annotation: tuple[str, ...]
    """Addresses in kube-vip's annotation for leases: its last ones, or those that a user wants it to request."""
    ddns: str | None
    """The annotation for dynamic DNS; None without it."""
    compared: str
    """The fields that kube-vip compares besides the address (``compared_fields``)."""

    @property
    def read_address(self) -> str:
        """The address that kube-vip reads; empty if it reads none."""
        if self.address_annotation is not None:
            return self.address_annotation
        if self.specified:
            return self.specified
        return self.status[0] if self.status else ""

    @property
    def has_dynamic_dns(self) -> bool:
        """Whether a user has switched kube-vip's dynamic DNS on."""
        return self.ddns in _TRUE

    @property
    def is_held(self) -> bool:
        """Whether kube-vip ignores a Service that it must not announce: only this controller writes both."""
        return self.address_annotation == NO_ADDRESS and self.ignored

    @property
    def is_withdrawn(self) -> bool:
        """Whether the annotation makes kube-vip announce nothing."""
        return self.address_annotation == NO_ADDRESS

    @property
    def is_untouched(self) -> bool:
        """Whether nothing shows that kube-vip has ever had an address of the Service."""
        return not (self.address_annotation or self.specified or self.status or self.node)

    @property
    def leases(self) -> tuple[str, ...]:
        """The addresses in the status that are also in kube-vip's annotation for leases."""
        return tuple(address for address in self.status if _normal(address) in self.lease_annotation)

    def shows(self, address: str) -> bool:
        """Return whether the status has exactly this address; for ``0.0.0.0``, a lease."""
        if address == names.DHCP_ADDRESS:
            return bool(self.leases)
        return self.status == (address,)


def read_seen(service: Service) -> Seen:
    """Return what kube-vip reads on a Service and has written there."""
    annotation = service.metadata.annotation
    return Seen(
        uid=service.metadata.uid,
        address_annotation=annotation(names.KUBE_VIP_ADDRESSES),
        specified=service.spec.load_balancer_ip,
        status=service.addresses,
        ignored=annotation(names.KUBE_VIP_IGNORE) == "true",
        device=annotation(names.KUBE_VIP_INTERFACE),
        node=receipt_node(service),
        lease_annotation=_addresses_in(annotation(names.KUBE_VIP_LEASE) or ""),
        ddns=annotation(names.KUBE_VIP_DDNS),
        compared=compared_fields(service),
    )


def receipt_node(service: Service) -> str:
    """Return the node in the receipt of kube-vip on a Service; empty without a receipt."""
    return service.metadata.annotation(names.KUBE_VIP_HOST) or ""


def compared_fields(service: Service) -> str:
    """Return the fields that kube-vip compares besides the address, with the defaults of the API server.

    All spellings that leave dynamic DNS off are the same here: this controller changes one into another.
    """
    spec = service.spec
    fields = [
        spec.external_traffic_policy or "Cluster",
        ",".join(spec.ip_families) or "IPv4",
        spec.ip_family_policy or "SingleStack",
    ]
    annotation = service.metadata.annotation
    if annotation(names.KUBE_VIP_DDNS) in _TRUE:
        fields.append("DDNS")
    lease_name = annotation(names.KUBE_VIP_LEASE_NAME)
    if lease_name:
        fields.append(f"lease {lease_name[:_LEASE_LENGTH]}")
    return " ".join(fields)


def _normal(address: str) -> str:
    """Return an address in the usual form; empty for another text."""
    try:
        return str(ip_address(address.strip()))
    except ValueError:
        return ""


def _addresses_in(text: str) -> tuple[str, ...]:
    """Return the addresses in kube-vip's annotation for DHCP; texts that are none are left out."""
    if not text:
        return ()
    addresses = map(_normal, text[:_LEASE_LENGTH].split(","))
    return tuple(address for address in addresses if address)
