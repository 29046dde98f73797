"""Scope: the Services that this controller manages or removes, and their primaries."""

import zlib
from typing import Final

from msgspec import Struct

from harvester_ccm.config import SharedAddressScope
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import LOAD_BALANCER_CLASS, PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.request import primary_reference

BY_PRIMARY: Final = "primary"
"""Index of Services by the primary that they name, and by the one whose address they last had."""
FOREIGN_MARKS: Final = ("metallb.io/", "metallb.universe.tf/", "lbipam.cilium.io/", "io.cilium/lb-ipam")
"""Prefixes of annotations that give a Service to another load balancer controller."""
FOREIGN_LABEL: Final = ("implementation", "kube-vip")
"""Label of the Services that kube-vip-cloud-provider serves; it has the same finalizer as this controller."""


class Scope(Struct, frozen=True):
    """Whether this controller manages a Service."""

    ours: bool = True
    leaving: bool = False
    """Whether the Service is removed from Harvester: it is being deleted or is not to be served any more."""
    because: str = ""
    """Why the Service is not managed; empty if it is."""
    note: EventMessage | None = None
    """The Event about that."""

    @property
    def requested(self) -> bool:
        """Whether the Service requests a load balancer of this controller."""
        return self.ours and not self.leaving


def scope_of(service: Service, cluster: ClusterIdentity, *, owned: bool) -> Scope:
    """Return whether the Service is managed; ``owned``: whether a load balancer of this cluster exists for it.

    Other controllers have the same finalizer. A Service with the finalizer is removed only if nothing else could have
    put it there: it has a load balancer of this cluster or other marks of this controller, or asks for no other
    controller. A Service without the finalizer is removed if kube-vip is still suppressed on it.
    """
    meta, spec, found = service.metadata, service.spec, Announcement.of(service)
    has_finalizer = meta.has_finalizer(SERVICE_FINALIZER)
    # Marks that only this controller writes; a Service that it serves need not have any.
    is_marked = found.withdrawn or was_secondary(service) or service.ready_condition is not None
    owned = owned or (has_finalizer and is_marked)
    ended, others = _ended(service), _others(service, cluster, owned=owned)
    if not ended and not others:
        return Scope()
    if has_finalizer:
        leaving = bool(ended or of_other_class(service)) and (owned or not others)
    else:
        leaving = found.withdrawn and found.ignored and not meta.deleting
    if leaving:
        return Scope(leaving=True)
    note = None
    # A class is a request for another controller; an annotation may have been written for another reason.
    if not (ended or spec.load_balancer_class or cluster.class_only or service.status.load_balancer.ingress):
        note = EventMessage("Normal", Reason.MANAGED_BY_OTHER, f"This controller does not serve the Service: {others}")
    return Scope(ours=False, because=ended or others, note=note)


def is_served_by_us(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether a Service whose load balancers are not known is served, as far as the Service itself shows it.

    Tenants can write the finalizer, so it does not stand for a load balancer.
    """
    return scope_of(service, cluster, owned=False).requested


def is_managed(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether a Service whose load balancers are not known is served, or is being removed from Harvester."""
    return service.ready_condition is not None or scope_of(service, cluster, owned=False).ours


def may_share(service: Service, primary_key: str, cluster: ClusterIdentity) -> bool:
    """Return whether ``--shared-address-scope`` permits that a Service shares the address of a primary."""
    if cluster.shared_address_scope is SharedAddressScope.CLUSTER:
        return True
    return primary_key.partition("/")[0] == service.metadata.namespace


def may_be_ours(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether the Service may be managed, whatever load balancers exist; ``scope_of`` decides."""
    is_managed = service.ready_condition is not None or service.metadata.has_finalizer(SERVICE_FINALIZER)
    return is_managed or scope_of(service, cluster, owned=True).ours


def _ended(service: Service) -> str:
    """Return why the Service requests no load balancer at all; empty if it does."""
    if service.metadata.deleting:
        held = ", ".join(service.metadata.finalizers or ())
        others = f"; it waits for finalizers of other controllers: {held}" if held else ""
        return f"it is being deleted, and nothing of this controller is left{others}"
    return "" if service.spec.type == "LoadBalancer" else f"its type is {service.spec.type}, not LoadBalancer"


def _others(service: Service, cluster: ClusterIdentity, *, owned: bool) -> str:
    """Return why the Service is left to other controllers, by its class or a mark on it; empty if it is not.

    A Service that is ``owned``, or has the finalizer, is managed whatever is added later. But kube-vip-cloud-provider
    has the same finalizer, and its label counts.
    """
    meta, wanted, (label, value) = service.metadata, service.spec.load_balancer_class, FOREIGN_LABEL
    if of_other_class(service):
        return f"spec.loadBalancerClass is {wanted!r}: another controller serves it (ours is {LOAD_BALANCER_CLASS})"
    if wanted is None and cluster.class_only:
        return f"--load-balancer-class-only is set, and spec.loadBalancerClass is not {LOAD_BALANCER_CLASS}"
    if owned or wanted is not None:
        return ""
    marks = [f"label {label}"] if meta.label(label) == value else []
    if not meta.has_finalizer(SERVICE_FINALIZER):
        marks += sorted(f"annotation {key}" for key in meta.annotations or {} if key.startswith(FOREIGN_MARKS))
    remedy = (
        "belongs to another load balancer controller. To have it served by Harvester, remove that, or create the "
        f"Service with spec.loadBalancerClass {LOAD_BALANCER_CLASS}"
    )
    return f"{marks[0]} {remedy}" if marks else ""


def of_other_class(service: Service) -> bool:
    """Return whether the Service requests another controller by its class."""
    return service.spec.load_balancer_class not in (None, LOAD_BALANCER_CLASS)


def is_served(service: Service) -> bool:
    """Return whether the Service has an address and the finalizer."""
    return bool(service.addresses) and service.metadata.has_finalizer(SERVICE_FINALIZER)


def was_secondary(service: Service) -> bool:
    """Return whether the Service last had the address of another one."""
    return bool(service.metadata.label(PRIMARY_SERVICE_LABEL))


def primary_label(primary_key: str) -> str:
    """Return the value of the label on a secondary; a checksum is the end of one with more than 63 characters."""
    value = primary_key.replace("/", ".", 1)
    return value if len(value) <= 63 else f"{value[:54]}-{zlib.crc32(value.encode()):08x}"


def primaries_of(service: Service) -> frozenset[str]:
    """Return the keys of the primary that the Service names, and of the one whose address it last had.

    The label has a dot instead of the slash; a namespace has no dots in its name. A shortened label names no Service.
    """
    labelled = (service.metadata.label(PRIMARY_SERVICE_LABEL) or "").replace(".", "/", 1)
    return frozenset(key for key in (primary_reference(service), labelled) if key)
