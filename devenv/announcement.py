"""Fields of a Service and its EndpointSlices that kube-vip reads and writes. Pure."""

import hashlib
from collections.abc import Iterable
from typing import Final

from devenv.watch import Document, annotations_of, labels_of

ADDRESS_ANNOTATION: Final = "kube-vip.io/loadbalancerIPs"
IGNORE_ANNOTATION: Final = "kube-vip.io/ignore"
HOST_ANNOTATION: Final = "kube-vip.io/vipHost"
HARDWARE_ANNOTATION: Final = "kube-vip.io/hwaddr"
REQUESTED_ANNOTATION: Final = "kube-vip.io/requestedIP"
DHCP_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - requests an address by DHCP
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"


def is_load_balancer(service: Document) -> bool:
    """Whether the Service is of type LoadBalancer."""
    return bool(service["spec"].get("type") == "LoadBalancer")


def is_ignored(service: Document) -> bool:
    """Whether kube-vip ignores the Service; only this spelling counts."""
    return annotations_of(service).get(IGNORE_ANNOTATION) == "true"


def wanted_addresses(service: Document) -> tuple[str, ...]:
    """Return the addresses of a Service to announce: its annotation, else its status, else its specification."""
    annotation = annotations_of(service).get(ADDRESS_ANNOTATION)
    if annotation is not None:
        return tuple(part.strip() for part in annotation.split(",") if part.strip())
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    found = tuple(entry["ip"] for entry in ingress if entry.get("ip"))
    wished = service["spec"].get("loadBalancerIP")
    return found or ((wished,) if wished else ())


def lacks_address(service: Document) -> bool:
    """Whether kube-vip waits for an address of this Service, which delays all others, unless it has an annotation."""
    return (
        is_load_balancer(service)
        and annotations_of(service).get(ADDRESS_ANNOTATION) is None
        and not wanted_addresses(service)
        and not service["metadata"].get("deletionTimestamp")
    )


def must_withdraw(service: Document, annotation: str | None, known: tuple[tuple[str, ...], tuple[str, ...]]) -> bool:
    """Return whether a change withdraws the announcement.

    ``annotation`` is the one at the time of the announcement, ``known`` the requested addresses at that time and those
    that were assigned. A cleared status does not withdraw.
    """
    current = annotations_of(service).get(ADDRESS_ANNOTATION)
    if current == annotation:
        now = wanted_addresses(service)
        return annotation is None and bool(now) and now not in known
    return not current or wanted_addresses(service) not in known


def has_endpoints(service: Document, slices: Iterable[Document]) -> bool:
    """Return whether a slice of the Service has an endpoint."""
    place = (service["metadata"]["namespace"], service["metadata"]["name"])
    return any(
        entry.get("endpoints")
        for entry in slices
        if (entry["metadata"]["namespace"], labels_of(entry).get(SERVICE_NAME_LABEL)) == place
    )


def ingress_of(service: Document, addresses: tuple[str, ...]) -> list[Document]:
    """Return ``status.loadBalancer.ingress`` as kube-vip writes it: every port, in the order of the specification."""
    ports = [
        {"port": port["port"], "protocol": port.get("protocol", "TCP")} for port in service["spec"].get("ports") or ()
    ]
    return [{"ip": address, "ports": ports} for address in addresses]


def ingress_due(service: Document, addresses: tuple[str, ...]) -> list[Document] | None:
    """Return the ingress that kube-vip writes; None if the status has it, or the Service has another type."""
    wanted = ingress_of(service, addresses)
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    present = [{name: value for name, value in entry.items() if name != "ipMode"} for entry in ingress]
    return wanted if present != wanted and is_load_balancer(service) else None


def marks_of(key: str, node: str, addresses: tuple[str, ...], *, leased: bool) -> dict[str, str]:
    """Return the annotations of a Service that is announced on this node; they request the same DHCP lease again."""
    lease = {HARDWARE_ANNOTATION: hardware_address(key), REQUESTED_ANNOTATION: addresses[0]} if leased else {}
    return {HOST_ANNOTATION: node, **lease}


def hardware_address(key: str) -> str:
    """Return the MAC address of the interface that requests the Service's lease."""
    digest = hashlib.sha256(key.encode()).digest()[:5]
    return "02:" + ":".join(f"{byte:02x}" for byte in digest)
