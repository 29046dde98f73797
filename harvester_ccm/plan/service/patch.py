"""Changes of a Service, said as intentions and turned into the smallest merge patch.

Only fields that differ are in the patch. Annotations, labels, finalizers and status go through the ``status``
subresource in one request, which the API server permits and every installed RBAC rule grants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harvester_ccm.model.core import Ingress, PortStatus, Service
from harvester_ccm.names import SERVICE_FINALIZER
from harvester_ccm.plan.service.kube_vip import has_ignored


@dataclass(frozen=True)
class ServiceChange:
    """What should be different. None in a map means: remove the key."""

    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    finalizer: bool | None = None
    """True: ours must be there; False: it must not; None: leave it."""
    ingress: tuple[Ingress, ...] | None = None
    """The whole ``status.loadBalancer.ingress``; None: leave it."""


def virtual_ip_ingress(address: str, service: Service) -> tuple[Ingress, ...]:
    """Return the status for an address, in the shape kube-vip writes: any other makes it announce again."""
    ports = tuple(PortStatus(port=port.port, protocol=port.protocol) for port in service.spec.ports)
    return (Ingress(ip=address, ip_mode="VIP", ports=ports),)


def service_patch(service: Service, change: ServiceChange) -> dict[str, object]:
    """Return the merge patch that makes the change; empty when nothing differs.

    A change of finalizers carries the resource version, because a merge patch replaces the whole list and another
    controller may have changed it since. So does one by which kube-vip ignores the Service: it would not take down an
    address that somebody has written since.
    """
    metadata: dict[str, object] = {}
    annotations = _differing(service.metadata.annotations, change.annotations)
    if has_ignored(annotations):
        metadata["resourceVersion"] = service.metadata.resource_version
    labels = _differing(service.metadata.labels, change.labels)
    if annotations:
        metadata["annotations"] = annotations
    if labels:
        metadata["labels"] = labels
    finalizers = service.metadata.finalizers or ()
    if change.finalizer is not None and change.finalizer != (SERVICE_FINALIZER in finalizers):
        others = [name for name in finalizers if name != SERVICE_FINALIZER]
        metadata["finalizers"] = [*others, SERVICE_FINALIZER] if change.finalizer else others
        metadata["resourceVersion"] = service.metadata.resource_version
    patch: dict[str, object] = {"metadata": metadata} if metadata else {}
    if change.ingress is not None and not same_ingress(service.status.load_balancer.ingress, change.ingress):
        patch["status"] = {"loadBalancer": {"ingress": [_ingress_document(i) for i in change.ingress] or None}}
    return patch


def same_ingress(current: tuple[Ingress, ...], wanted: tuple[Ingress, ...]) -> bool:
    """Return whether two statuses say the same; a server older than 1.29 does not store ``ipMode``."""
    return len(current) == len(wanted) and all(
        (a.ip, a.hostname, a.ports) == (b.ip, b.hostname, b.ports) and (a.ip_mode or "VIP") == (b.ip_mode or "VIP")
        for a, b in zip(current, wanted, strict=True)
    )


def _differing(current: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if (current or {}).get(key) != value}


def _ingress_document(ingress: Ingress) -> dict[str, object]:
    document: dict[str, object] = {"ip": ingress.ip, "ipMode": ingress.ip_mode}
    if ingress.ports:
        document["ports"] = [{"port": port.port, "protocol": port.protocol} for port in ingress.ports]
    return document
