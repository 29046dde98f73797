"""kube-vip in the guest cluster: what it reads on a Service, and the annotations that control it.

kube-vip announces any address that it finds on a Service, and blocks on a Service without one; an empty address
annotation makes it withdraw the address and continue. The empty annotation replaces the user's own one, so a request
in that is copied to an annotation of this controller.

kube-vip handles its events one after another, and while it waits for an address it reads ahead. With the empty
annotation alone it may announce the address that follows, then handle the event with the empty annotation, withdraw,
and stay silent; v0.9 and v1.0 never announce a Service after that. It skips all events of a Service with the annotation
``ignore``, but it does not withdraw the address of such a Service either.

Five verbs return the annotations to write, where None removes the key: ``suppress`` while the Service waits for an
address, ``announce``, ``withdraw``, ``delegate`` to Harvester, and ``release`` at the end.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import SERVICE_LABEL, EndpointSlice, Ingress, Service, ServicePort, ipv4_text
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.plan.service.network_device import Device

Annotations = dict[str, str | None]

WITHDRAWN: Final[Mapping[str, str | None]] = {names.KUBE_VIP_ADDRESSES: ""}
"""kube-vip announces nothing, unless it ignores the Service."""
NO_OWN_DEVICE: Final[Annotations] = {names.KUBE_VIP_INTERFACE: None}
"""Removes the device of the primary."""

RESTART: Final = "Restart it, for example by: kubectl --namespace kube-system rollout restart daemonset kube-vip"


class Announcement(Struct, frozen=True):
    """The fields of a Service that kube-vip reads, and the node where it announces the address.

    The address and ``ignore`` are separate annotations that several clients write: every combination occurs.
    """

    address: str | None
    """The address to announce, ``0.0.0.0`` for one from DHCP, or empty for none. None without the annotation: then
    kube-vip takes the address of the status or, if that is empty, the one of the specification."""
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
    def suppressed(self) -> bool:
        """Whether both annotations are present by which this controller suppresses kube-vip."""
        return self.withdrawn and self.ignored

    @property
    def shown(self) -> bool:
        """Whether kube-vip announces the address of the annotation, or may announce that of the status."""
        return bool(self.status) if self.address is None else bool(self.address)

    @property
    def read_address(self) -> str:
        """The address that kube-vip reads; the one of the specification takes precedence over the status."""
        first = self.status[0] if self.status else ""
        return self.address if self.address is not None else self.specified or first

    @property
    def without_status(self) -> str:
        """The address that kube-vip reads if the status has none; empty if none exists."""
        return self.specified if self.address is None else self.address


def suppress(service: Service, *, keep_request: bool = False) -> Annotations:
    """Keep kube-vip from a Service that waits for an address, and withdraw an address that it should not have.

    Both annotations are necessary: with one alone kube-vip may announce the address and withdraw it again. ``ignore``
    is not set while kube-vip may announce an address, because it would not withdraw it. That includes a Service whose
    status was emptied by another client after kube-vip had announced it.
    ``keep_request``: kube-vip goes on announcing the address that the user requests until Harvester has decided. Most
    often Harvester allocates that address, and kube-vip may not announce it again once it has withdrawn it.
    """
    found = Announcement.of(service)
    if keep_request and found.without_status and not found.ignored:
        return _kept_request(service)
    if found.status:
        return _look_again(service)
    announced_before = found.node is not None and service.metadata.has_finalizer(names.SERVICE_FINALIZER)
    shown = found.address is not None or found.without_status or announced_before
    ignored: Annotations = {} if shown else {names.KUBE_VIP_IGNORE: "true"}
    return {names.KUBE_VIP_ADDRESSES: "", **ignored, **_kept_request(service), **_look_again(service)}


def withdraw(service: Service) -> Annotations:
    """Withdraw the address, even if kube-vip ignores the Service now."""
    return {**WITHDRAWN, **_look_again(service)}


def withdraws(service: Service, annotations: Mapping[str, str | None]) -> bool:
    """Return whether these annotations make kube-vip withdraw an address that it has read."""
    return Announcement.of(service).shown and WITHDRAWN.items() <= annotations.items()


def _look_again(service: Service) -> Annotations:
    """Return the annotations that make kube-vip withdraw the address of a managed Service that it ignores.

    While kube-vip waited for an address it may have read one that another client wrote after ``ignore`` was set, or the
    one of the status after another client removed the empty annotation.
    """
    found = Announcement.of(service)
    managed = service.metadata.has_finalizer(names.SERVICE_FINALIZER) and found.ignored
    return {names.KUBE_VIP_ADDRESSES: "", names.KUBE_VIP_IGNORE: None} if managed and found.shown else {}


def delegate(service: Service) -> Annotations:
    """Leave the announcement to Harvester. An address that kube-vip may announce is withdrawn by a patch before."""
    found, look_again = Announcement.of(service), _look_again(service)
    withdrawn: Annotations = {names.KUBE_VIP_ADDRESSES: "", **_kept_request(service), **look_again}
    if look_again or (not found.ignored and (found.shown or found.without_status)):
        return withdrawn
    return {**withdrawn, names.KUBE_VIP_IGNORE: "true"}


def announce(service: Service, address: str, *, device: str = "") -> Annotations:
    """Announce an address; on kube-vip's default device, unless one is named.

    The annotation is omitted if kube-vip takes the address from the specification: it would take the same address in
    the annotation for another one, withdraw, and stay silent.
    """
    found = Announcement.of(service)
    annotations: Annotations = {}
    if found.address is not None or found.specified != address:
        annotations[names.KUBE_VIP_ADDRESSES] = address
    if _is_suppressed(service, address):
        annotations[names.KUBE_VIP_IGNORE] = None
    if device:
        annotations[names.KUBE_VIP_INTERFACE] = device
    return annotations


def _is_suppressed(service: Service, address: str) -> bool:
    """Return whether this controller suppresses kube-vip, also if another client changed the address annotation.

    ``address`` is the one to announce: if kube-vip has that already, a user has set ``ignore`` since then.
    """
    found = Announcement.of(service)
    managed = service.metadata.has_finalizer(names.SERVICE_FINALIZER)
    return found.suppressed or (managed and found.ignored and found.address != address)


def stays_silent(service: Service, address: str) -> bool:
    """Return whether kube-vip announces the address only after the endpoints have changed.

    That is so after it has announced any address of the Service and withdrawn it, even if that stayed in the status. A
    withdrawn Service that kube-vip does not ignore had an address that kube-vip may be about to announce, before it has
    noted its node. A Service that Harvester announced was never announced by kube-vip.
    """
    found = Announcement.of(service)
    known = found.read_address == address and not _is_stripped(service, address)
    if known or (found.ignored and not _is_suppressed(service, address)):
        return False
    return found.node is not None or (not found.ignored and (bool(found.status) or found.withdrawn))


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


def slice_to_touch(slices: Iterable[EndpointSlice]) -> str:
    """Return the name of a slice that has endpoints; empty if none exists, and kube-vip waits for the first one.

    kube-vip takes the endpoints of the slice that changed last for all of them: without any, it withdraws the address.
    """
    return min((one.metadata.name for one in slices if one.endpoints), default="")


def touch(service: Service) -> Annotations:
    """Return the annotation of an EndpointSlice that makes kube-vip read the Service again; its value is always new."""
    return {names.ENDPOINTS_TOUCHED: service.metadata.resource_version}


def not_announced(service: Service) -> EventMessage:
    """Return the Warning for a Service whose EndpointSlices must not be patched."""
    meta = service.metadata
    text = (
        "kube-vip has withdrawn the address of this Service before and does not announce it again until an "
        "EndpointSlice of the Service changes, which this controller is not permitted to do (chart: "
        "rbac.endpointSlices); it tries again every ten minutes. The Service gets no traffic until that is granted, "
        f"the pods of the Service change or you run: kubectl --namespace {meta.namespace} annotate endpointslices "
        f"--selector {SERVICE_LABEL}={meta.name} --overwrite touched=$(date +%s)"
    )
    return EventMessage("Warning", names.Reason.NOT_ANNOUNCED, text)


def announce_like(primary: Service, service: Service, address: str) -> Annotations:
    """Announce the address that a Service shares with its primary, as that of the primary is announced.

    kube-vip announces the address for each of the Services, on the device of that Service. If Harvester announces the
    address, ``delegate`` precedes.
    """
    found = Announcement.of(primary)
    if found.ignored:
        return NO_OWN_DEVICE
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


def has_ignored(annotations: Mapping[str, str | None]) -> bool:
    """Return whether kube-vip ignores the Service after these annotations are written."""
    return annotations.get(names.KUBE_VIP_IGNORE) is not None


def awaits_device(service: Service, address: str, device: Device) -> bool:
    """Return whether an address is not announced until its device is known: kube-vip reads the device only once.

    A device that a user wrote on the Service is used if none is known.
    """
    found = Announcement.of(service)
    return found.read_address != address and device.awaited and not (device.unknown and found.device)


def device_note(service: Service, address: str, device: Device, *, waits: bool = False) -> EventMessage | None:
    """Return the Warning about the device of an address, or None; ``waits``: whether it is not announced yet."""
    found = Announcement.of(service)
    now = f"device {found.device}" if found.device else "its default device"
    if waits and device.unknown:
        text = (
            f"Address {address} is not announced before its device is known: {device.unknown}. A device can also be "
            f"named in annotation {names.KUBE_VIP_INTERFACE} of the Service"
        )
        return EventMessage("Warning", names.Reason.NO_DEVICE, text)
    if device.unknown:
        text = f"kube-vip announces the address on {now}: {device.unknown}"
        return EventMessage("Warning", names.Reason.NO_DEVICE, text)
    announced = found.read_address == address and (found.node is not None or found.status) and not found.ignored
    if not announced or found.device == (device.name or found.device):
        return None
    text = (
        f"The device of the network is {device.name}, but kube-vip announces the address on {now} until it restarts, "
        f"and the address may not be reachable there. {RESTART}"
    )
    return EventMessage("Warning", names.Reason.DEVICE_CHANGED, text)


def requested_address(service: Service, *, dhcp: bool) -> dict[str, str]:
    """Return the address that a user wrote for kube-vip before this controller managed the Service, by its annotation.

    kube-vip's own value for DHCP is no address if one from DHCP is requested (``dhcp``).
    """
    value = Announcement.of(service).address or ""
    is_dhcp = dhcp and value.strip() == names.DHCP_ADDRESS
    return (
        {} if is_dhcp or service.metadata.has_finalizer(names.SERVICE_FINALIZER) else {names.KUBE_VIP_ADDRESSES: value}
    )


def _kept_request(service: Service) -> Annotations:
    """Return the annotation that keeps the address which a user wrote for kube-vip.

    On a managed Service with an address, kube-vip's annotation is this controller's.
    """
    found = Announcement.of(service)
    ours = service.metadata.has_finalizer(names.SERVICE_FINALIZER) and found.status
    address = "" if ours else ipv4_text(found.address or "")
    is_request = address not in {"", names.DHCP_ADDRESS} and not (found.specified or found.requested)
    return {names.REQUESTED_ADDRESS: address} if is_request else {}


def restored(service: Service, address: str) -> EventMessage | None:
    """Return the Warning for an address annotation that another client changed on a served Service, or None."""
    found = Announcement.of(service)
    if not found.address or not found.status or found.address in {address, names.DHCP_ADDRESS, *found.status}:
        return None
    text = (
        f"Annotation {names.KUBE_VIP_ADDRESSES} was changed to {found.address} and is restored to {address}, the "
        "address from Harvester. To get a certain address, create an IP pool with that single address and name it in "
        f"annotation {names.IP_POOL} when the Service is created"
    )
    return EventMessage("Warning", names.Reason.ANNOTATION_RESTORED, text)


def _is_stripped(service: Service, address: str) -> bool:
    """Return whether another client removed this controller's annotations from a served Service."""
    found = Announcement.of(service)
    served = bool(found.status) and service.metadata.has_finalizer(names.SERVICE_FINALIZER)
    readable = found.address is not None or found.ignored or found.specified == address
    return served and not readable and found.status == (address,)


def stays_up(service: Service) -> bool:
    """Return whether kube-vip goes on announcing the address of a Service whose type was changed."""
    found = Announcement.of(service)
    other_type = not service.metadata.deleting and service.spec.type != "LoadBalancer"
    return other_type and not found.ignored and found.node is not None
