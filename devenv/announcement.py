"""Fields of a Service and its EndpointSlices that kube-vip reads and writes. Pure."""

import hashlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from devenv.watch import Document, annotations_of, labels_of

ADDRESS_ANNOTATION: Final = "kube-vip.io/loadbalancerIPs"
IGNORE_ANNOTATION: Final = "kube-vip.io/ignore"
HOST_ANNOTATION: Final = "kube-vip.io/vipHost"
HARDWARE_ANNOTATION: Final = "kube-vip.io/hwaddr"
REQUESTED_ANNOTATION: Final = "kube-vip.io/requestedIP"
DDNS_ANNOTATION: Final = "kube-vip.io/ddns"
LEASE_NAME_ANNOTATION: Final = "kube-vip.io/leaseName"
WITHOUT_ENDPOINTS_ANNOTATION: Final = "kube-vip.io/allow-reconcile-without-endpoints"
DHCP_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - requests an address by DHCP
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
DEFAULT_CLASS: Final = "kube-vip.io/kube-vip-class"

Version = tuple[int, int, int]
NEWEST: Final[Version] = (1, 2, 4)
"""Commit bee5cfe of 2026-08-21. It is part of v1.2.4, unless that was released from another branch."""


@dataclass(frozen=True)
class Settings:
    """Environment variables of kube-vip, its version and its node."""

    version: Version = (1, 2, 3)
    node: str = "node-1"
    load_balancer_class: str = DEFAULT_CLASS
    """``lb_class_name``."""
    legacy_class_handling: bool = True
    """``lb_class_legacy_handling``: whether Services without a class are served."""
    class_only: bool = False
    """``lb_class_only``: whether only Services with the class are served, in spite of the legacy handling."""
    notes_node: bool = True
    """Whether it writes ``vipHost``. It does not in routing-table mode, nor in BGP mode before 1.0.3."""
    updates_services: bool = True
    """False for ``disable_service_updates``: it writes neither annotations nor the status."""


class Wanted(NamedTuple):
    """What kube-vip is to announce for a Service."""

    addresses: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Everything in the annotation or the status that is no address, also an empty text. None of them can be resolved
    here, so that kube-vip announces nothing."""
    is_annotated: bool = False
    """Whether it comes from the annotation. Since 1.0.1, kube-vip takes the same address from elsewhere for another."""

    @property
    def is_missing(self) -> bool:
        """Whether there is nothing to announce, not even an empty annotation."""
        return not self.addresses and not self.names


def is_load_balancer(service: Document) -> bool:
    """Whether the Service is of type LoadBalancer."""
    return bool(service["spec"].get("type") == "LoadBalancer")


def is_ignored(service: Document) -> bool:
    """Whether kube-vip ignores the Service; only this spelling counts."""
    return annotations_of(service).get(IGNORE_ANNOTATION) == "true"


def has_served_class(service: Document, settings: Settings) -> bool:
    """Whether kube-vip serves the class of the Service."""
    name = service["spec"].get("loadBalancerClass")
    if name is not None:
        return bool(name == settings.load_balancer_class)
    if settings.legacy_class_handling:
        return not settings.class_only
    return settings.load_balancer_class == ""


def is_served(service: Document, settings: Settings) -> bool:
    """Whether kube-vip reads the events of the Service."""
    return is_load_balancer(service) and not is_ignored(service) and has_served_class(service, settings)


def wanted_of(service: Document) -> Wanted:
    """Return what to announce for a Service: its annotation, else its status or its specification.

    The specification is more important than another address in the status.
    """
    annotation = annotations_of(service).get(ADDRESS_ANNOTATION)
    if annotation is not None:
        parts = [_canonical(part.strip()) for part in annotation.split(",")]
        addresses = tuple(part for part in parts if _is_address(part))
        return Wanted(addresses, tuple(part for part in parts if not _is_address(part)), is_annotated=True)
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    shown = tuple(entry["ip"] for entry in ingress if entry.get("ip"))
    names = tuple(entry["hostname"] for entry in ingress if entry.get("hostname"))
    specified = service["spec"].get("loadBalancerIP") or ""
    if specified and any(_contradicts(specified, address) for address in shown):
        return Wanted((specified,))
    if shown or names:
        return Wanted(shown, names)
    return Wanted((specified,)) if specified else Wanted(())


def wanted_addresses(service: Document) -> tuple[str, ...]:
    """Return the addresses to announce for a Service."""
    return wanted_of(service).addresses


def _contradicts(specified: str, shown: str) -> bool:
    """Return whether an address in the status is another one of the same family as the one in the specification."""
    if not _is_address(specified) or not _is_address(shown):
        return False
    one, other = ipaddress.ip_address(specified), ipaddress.ip_address(shown)
    return one.version == other.version and one != other


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _canonical(text: str) -> str:
    return str(ipaddress.ip_address(text)) if _is_address(text) else text


def lacks_address(service: Document) -> bool:
    """Whether the Service is of type LoadBalancer and has neither an address nor the annotation."""
    return is_load_balancer(service) and wanted_of(service).is_missing


def is_changed(before: Document, after: Document, version: Version) -> bool:
    """Return whether kube-vip withdraws a Service because of the differences between two states."""
    one, other = wanted_of(before), wanted_of(after)
    if version < (1, 0, 1):
        return (one.addresses, one.names) != (other.addresses, other.names)
    return one != other or _compared(before, version) != _compared(after, version)


def _compared(service: Document, version: Version) -> tuple[object, ...]:
    """Return the other fields that kube-vip compares since 1.0.1, with the defaults of the API server.

    It compares the text of the annotation about DDNS: another spelling of the same value is a change.
    """
    if version < (1, 0, 3):
        return (_policy_of(service),)
    spec = service["spec"]
    annotations = annotations_of(service)
    families = (spec.get("ipFamilies") or ["IPv4"], spec.get("ipFamilyPolicy") or "SingleStack")
    compared = (_policy_of(service), *families, annotations.get(DDNS_ANNOTATION, ""))
    return (*compared, annotations.get(LEASE_NAME_ANNOTATION, "")) if version >= (1, 2, 3) else compared


def has_refused_lease(service: Document) -> bool:
    """Return whether kube-vip ignores a Service: it permits ``leaseName`` only with externalTrafficPolicy Cluster."""
    return LEASE_NAME_ANNOTATION in annotations_of(service) and _policy_of(service) != "Cluster"


def _policy_of(service: Document) -> str:
    return str(service["spec"].get("externalTrafficPolicy") or "Cluster")


def counts_endpoint(service: Document, endpoints: Iterable[Document], node: str) -> bool:
    """Return whether kube-vip on a node announces a Service because of these endpoints.

    With externalTrafficPolicy Cluster, every address counts, also of a Pod that is not ready.
    """
    if _policy_of(service) == "Cluster":
        return any(endpoint.get("addresses") for endpoint in endpoints)
    return any(_is_local(endpoint, node) for endpoint in endpoints)


def _is_local(endpoint: Document, node: str) -> bool:
    """Return whether an endpoint is on a node and serves requests."""
    is_here = node in (endpoint.get("nodeName"), endpoint.get("hostname"))
    return is_here and (endpoint.get("conditions") or {}).get("serving") is True


def needs_no_endpoint(service: Document) -> bool:
    """Whether the user has requested that kube-vip announces the Service without endpoints."""
    permitted = annotations_of(service).get(WITHOUT_ENDPOINTS_ANNOTATION, "").lower() == "true"
    return permitted and _policy_of(service) == "Cluster"


def service_of(endpoint_slice: Document) -> str | None:
    """Return the Service of an EndpointSlice, as ``namespace/name``; None if its label names none."""
    name = labels_of(endpoint_slice).get(SERVICE_NAME_LABEL)
    return f"{endpoint_slice['metadata']['namespace']}/{name}" if name else None


def ingress_of(service: Document, addresses: tuple[str, ...]) -> list[Document]:
    """Return ``status.loadBalancer.ingress`` as kube-vip writes it: every port, in the order of the specification."""
    ports = [
        {"port": port["port"], "protocol": port.get("protocol", "TCP")} for port in service["spec"].get("ports") or ()
    ]
    return [{"ip": address, "ports": ports} for address in addresses]


def ingress_due(service: Document, announced: Document, addresses: tuple[str, ...]) -> list[Document] | None:
    """Return the ingress that kube-vip writes; None if the status has it, or the Service has another type.

    ``announced`` is the Service when kube-vip read its address: the ports are from that time.
    """
    wanted = ingress_of(announced, addresses)
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    present = [{name: value for name, value in entry.items() if name != "ipMode"} for entry in ingress]
    return wanted if present != wanted and is_load_balancer(service) else None


def marks_of(key: str, addresses: tuple[str, ...], settings: Settings, *, leased: bool) -> dict[str, str]:
    """Return the annotations of a Service that is announced; they request the same DHCP lease again."""
    node = {HOST_ANNOTATION: settings.node} if settings.notes_node else {}
    lease = {HARDWARE_ANNOTATION: hardware_address(key), REQUESTED_ANNOTATION: addresses[0]} if leased else {}
    return {**node, **lease}


def hardware_address(key: str) -> str:
    """Return the MAC address of the interface that requests the Service's lease."""
    digest = hashlib.sha256(key.encode()).digest()[:5]
    return "02:" + ":".join(f"{byte:02x}" for byte in digest)
