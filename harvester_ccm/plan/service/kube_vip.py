"""kube-vip in the guest cluster: what it reads on a Service, and the annotations that control it.

kube-vip announces any address that it finds on a Service, and blocks on a Service without one; an empty address
annotation makes it withdraw the address and continue.

kube-vip handles its events one after another, and while it waits for an address it reads ahead. With the empty
annotation alone it may announce the address that follows, then handle the event with the empty annotation, withdraw,
and stay silent; v0.9 and v1.0 never announce a Service after that. It skips all events of a Service with the annotation
``ignore``, but it does not withdraw the address of such a Service either.

Five verbs return the annotations to write, where None removes the key: ``suppress`` while the Service waits for an
address, ``announce``, ``withdraw``, ``delegate`` to Harvester, and ``release`` at the end.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import SERVICE_LABEL, Ingress, Service, ServicePort, ipv4_text
from harvester_ccm.model.outcome import EventMessage

Annotations = dict[str, str | None]

WITHDRAWN: Final[Mapping[str, str | None]] = {names.KUBE_VIP_ADDRESSES: ""}
"""kube-vip announces nothing, unless it ignores the Service."""
IGNORED: Final[Mapping[str, str | None]] = {names.KUBE_VIP_IGNORE: "true"}
"""kube-vip skips all events of the Service."""
NOT_IGNORED: Final[Mapping[str, str | None]] = {names.KUBE_VIP_IGNORE: None}
"""kube-vip reads the Service again."""
NO_OWN_DEVICE: Final[Annotations] = {names.KUBE_VIP_INTERFACE: None}
"""Removes the device of the primary."""

RESTART: Final = (
    "Restart it (DaemonSet kube-vip in namespace kube-system): the addresses that it announces stop for some seconds"
)
"""Remedy without a command: a restart withdraws addresses."""
NAME_DEVICE: Final = f"A device can also be named in annotation {names.KUBE_VIP_INTERFACE} of the Service"


class Announcement(Struct, frozen=True):
    """The fields of a Service that kube-vip reads, and the node where it announces the address.

    The address and ``ignore`` are separate annotations that several clients write: every combination occurs.
    """

    address: str | None
    """The address to announce, ``0.0.0.0`` for one from DHCP, or empty for none; None without the annotation."""
    status: tuple[str, ...]
    specified: str
    """``spec.loadBalancerIP``."""
    requested: str
    """The address that is requested in this controller's annotation."""
    ignored: bool
    """Whether kube-vip ignores the Service; Harvester announces the address of a served Service then."""
    device: str | None
    """Device of the nodes on which the address is announced."""
    node: str | None
    """The node that announces the address, as kube-vip noted; None if it never announced one."""

    @classmethod
    def of(cls, service: Service) -> "Announcement":
        """Return the present annotations and fields."""
        annotation = service.metadata.annotation
        return cls(
            address=annotation(names.KUBE_VIP_ADDRESSES),
            status=service.addresses,
            specified=service.spec.load_balancer_ip,
            requested=(annotation(names.REQUESTED_ADDRESS) or "").strip(),
            ignored=annotation(names.KUBE_VIP_IGNORE) == "true",
            device=annotation(names.KUBE_VIP_INTERFACE),
            node=annotation(names.KUBE_VIP_HOST),
        )

    @property
    def withdrawn(self) -> bool:
        """Whether the annotation makes kube-vip announce nothing."""
        return self.address == ""

    @property
    def read_address(self) -> str:
        """The address that kube-vip may read: without the annotation that of the specification, else of the status."""
        return (self.specified or "".join(self.status[:1])) if self.address is None else self.address


def suppress(service: Service, *, keep_request: bool = False) -> Annotations:
    """Keep kube-vip from a Service that waits for an address, and withdraw an address that it should not have.

    Both annotations are necessary: with one alone kube-vip may announce the address and withdraw it again. ``ignore``
    is not set while kube-vip may announce an address, because it would not withdraw it.
    ``keep_request``: kube-vip goes on announcing the address that the user requests until Harvester has decided. Most
    often Harvester allocates that address, and kube-vip may not announce it again once it has withdrawn it.
    """
    found = Announcement.of(service)
    if keep_request and found.read_address and not found.ignored:
        return {}
    if found.status and not _ignores_address(service):
        return {}
    reads_nothing = found.address is None and not found.read_address
    return {**WITHDRAWN, **IGNORED} if reads_nothing else withdraw(service)


def withdraw(service: Service) -> Annotations:
    """Withdraw the address that kube-vip may announce, even if it ignores the Service now.

    This is written first, so that the address is not allocated to another Service while it is still announced.
    """
    ignored = NOT_IGNORED if _ignores_address(service) else {}
    return {**WITHDRAWN, **ignored} if Announcement.of(service).read_address else {}


def _ignores_address(service: Service) -> bool:
    """Return whether kube-vip may announce an address of a managed Service that it ignores.

    While kube-vip waited for an address it may have read one that another client wrote after ``ignore`` was set, or the
    one of the status after another client removed the empty annotation.
    """
    found = Announcement.of(service)
    return service.metadata.has_finalizer(names.SERVICE_FINALIZER) and found.ignored and bool(found.read_address)


def delegate(service: Service) -> Annotations:
    """Leave the announcement to Harvester. An address that kube-vip may announce is withdrawn by a patch before."""
    found = Announcement.of(service)
    is_announced = _ignores_address(service) or (found.read_address and not found.ignored)
    return withdraw(service) if is_announced else {**WITHDRAWN, **IGNORED}


def announce(service: Service, address: str, *, device: str = "") -> Annotations:
    """Announce an address; on kube-vip's default device, unless one is named.

    The annotation is omitted if kube-vip takes the address from the specification: it would take the same address in
    the annotation for another one, withdraw, and stay silent.
    """
    found = Announcement.of(service)
    annotations: Annotations = {names.KUBE_VIP_INTERFACE: device} if device else {}
    if found.address == address:
        # A user has set ``ignore`` since then, if it is present.
        return annotations
    if found.address is not None or found.specified != address:
        annotations[names.KUBE_VIP_ADDRESSES] = address
    return {**annotations, names.KUBE_VIP_IGNORE: None}


def stays_silent(service: Service, address: str) -> bool:
    """Return whether kube-vip announces the address only after the endpoints have changed.

    That is so after it has announced any address of the Service and withdrawn it. kube-vip notes its node some time
    after it has announced an address, and not at all if the address is withdrawn before. So every Service that has had
    an address counts, also one that Harvester announces now: a new Service is ignored and has no address.
    """
    found = Announcement.of(service)
    # It reads an address from the status only after another client has removed the annotation: it has withdrawn it.
    if address == (found.specified if found.address is None else found.address):
        return False
    if found.node is not None or found.status:
        return True
    if found.ignored:
        return False
    # The user may have requested another address, which kube-vip announces until Harvester has decided.
    return found.withdrawn or found.read_address not in {"", address}


def lease_of(service: Service, *, touched: bool = True) -> str:
    """Return the address that kube-vip has leased by DHCP for a Service; empty if none exists.

    kube-vip writes a lease once, to the status and to its own annotation, which is read if the status was emptied.
    Until kube-vip announces a withdrawn Service again, the annotation has the previous lease. ``touched``: whether no
    touch of the endpoints is due before that.
    """
    found = Announcement.of(service)
    if found.status:
        return found.status[0]
    announces = found.address == names.DHCP_ADDRESS and found.node is not None and touched
    return ipv4_text(service.metadata.annotation(names.KUBE_VIP_LEASE) or "") if announces else ""


def not_announced(service: Service) -> EventMessage:
    """Return the Warning for a Service whose EndpointSlices must not be patched."""
    meta = service.metadata
    cause = (
        "kube-vip has withdrawn the address and announces it again only after a change of an EndpointSlice of the "
        "Service, which this controller is not permitted to make. The Service gets no traffic until then"
    )
    remedy = "Grant it (chart: rbac.endpointSlices), or change an EndpointSlice yourself"
    command = (
        f"kubectl --namespace {meta.namespace} annotate endpointslices --selector {SERVICE_LABEL}={meta.name} "
        "--overwrite touched=$(date +%s)"
    )
    return EventMessage("Warning", names.Reason.NOT_ANNOUNCED, cause, remedy, command)


def announce_like(primary: Service, service: Service, address: str) -> Annotations:
    """Announce the address that a Service shares with its primary, as that of the primary is announced.

    kube-vip announces the address for each of the Services, on the device of that Service.
    """
    found = Announcement.of(primary)
    if found.ignored:
        return {**delegate(service), **NO_OWN_DEVICE}
    return {**(WITHDRAWN if found.withdrawn else announce(service, address)), names.KUBE_VIP_INTERFACE: found.device}


def virtual_ip_ingress(address: str, service: Service) -> tuple[Ingress, ...]:
    """Return the status for an address, in the form of kube-vip: any other makes it announce the address again."""
    ports = tuple(ServicePort(port=port.port, protocol=port.protocol) for port in service.spec.ports)
    return (Ingress(ip=address, ip_mode="VIP", ports=ports),)


def release(service: Service, *, device: str, announced_by_us: bool) -> Annotations:
    """Remove this controller's annotations from a Service that stays, and none of another controller.

    ``device`` is the one that this controller writes for the Service.
    """
    annotations: Annotations = {names.KUBE_VIP_ADDRESSES: None, names.KUBE_VIP_IGNORE: None} if announced_by_us else {}
    if device and Announcement.of(service).device == device:
        annotations[names.KUBE_VIP_INTERFACE] = None
    return annotations


def requested_addresses(service: Service, *, had_condition: bool) -> dict[str, str]:
    """Return the addresses that the Service requests, by the field or annotation, in order of precedence.

    kube-vip's annotation is the user's until the Service had this controller's condition, or shares an address.
    """
    found, shares = Announcement.of(service), service.metadata.label(names.PRIMARY_SERVICE_LABEL)
    users = None if had_condition or shares else found.address
    return {
        "spec.loadBalancerIP": found.specified,
        names.REQUESTED_ADDRESS: found.requested,
        names.KUBE_VIP_ADDRESSES: users or "",
    }


def restored(service: Service, address: str) -> EventMessage | None:
    """Return the Warning for an address annotation that another client changed on a served Service, or None."""
    found = Announcement.of(service)
    if not found.address or not found.status or found.address in {address, names.DHCP_ADDRESS, *found.status}:
        return None
    cause = f"was changed to {found.address!r} and is restored to {address}, the address from Harvester"
    remedy = (
        "To get a certain address, create an IP pool with that single address and name it in annotation "
        f"{names.IP_POOL} when the Service is created"
    )
    place = f"Annotation {names.KUBE_VIP_ADDRESSES}"
    return EventMessage("Warning", names.Reason.ANNOTATION_RESTORED, cause, remedy, place=place)
