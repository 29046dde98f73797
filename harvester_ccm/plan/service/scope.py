"""Scope: the Services that this controller manages or removes, and their primaries."""

import zlib
from typing import Final

from msgspec import Struct

from harvester_ccm.errors import Forbidden
from harvester_ccm.model.core import Node, Service, parse_provider_id
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer, VirtualMachine
from harvester_ccm.model.meta import Store
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import LOAD_BALANCER_CLASS, PRIMARY_SERVICE_LABEL, SERVICE_FINALIZER, Reason
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.ownership import goes_by, marked_ours, service_key
from harvester_ccm.plan.service.request import primary_reference

FOREIGN_MARKS: Final = ("metallb.io/", "metallb.universe.tf/", "lbipam.cilium.io/", "io.cilium/lb-ipam")
"""Prefixes of annotations that give a Service to another load balancer controller."""
FOREIGN_LABELS: Final = {"implementation": "kube-vip"}
"""Label of the Services that kube-vip-cloud-provider serves; it has the same finalizer as this controller."""

LONGEST_LABEL: Final = 63
"""Characters of a label value."""


class Scope(Struct, frozen=True):
    """Whether this controller manages a Service."""

    ours: bool = True
    leaving: bool = False
    """Whether the Service is removed from Harvester: it is being deleted or is not to be served any more."""
    because: str = ""
    """Why the Service is not managed; empty if it is."""
    note: EventMessage | None = None
    """The Event about that."""


def scope_of(service: Service, cluster: ClusterIdentity, *, owned: bool) -> Scope:
    """Return whether the Service is managed; ``owned``: whether a load balancer of this cluster exists for it.

    Other controllers have the same finalizer. A Service with the finalizer is removed only if nothing else could have
    put it there: it has a load balancer of this cluster or other marks of this controller, or asks for no other
    controller. A Service without the finalizer is removed if kube-vip is still suppressed on it.
    """
    meta, spec = service.metadata, service.spec
    marked = owned or carries_our_marks(service)
    if wants_load_balancer(service, cluster, owned=owned):
        return Scope()
    if not meta.has_finalizer(SERVICE_FINALIZER):
        leaving = Announcement.of(service).suppressed and not meta.deleting
    elif of_other_class(service):
        leaving = marked
    elif spec.type == "LoadBalancer" and not meta.deleting:
        leaving = False
    else:
        is_ours = spec.load_balancer_class is not None or not (cluster.class_only or served_by_others(service))
        leaving = marked or is_ours
    if leaving:
        return Scope(leaving=True)
    because = _does_not_ask(service, cluster)
    if because:
        return Scope(ours=False, because=because)
    because = _of_others(service)
    left = EventMessage("Normal", Reason.MANAGED_BY_OTHER, f"This controller does not serve the Service: {because}")
    return Scope(ours=False, because=because, note=None if service.status.load_balancer.ingress else left)


def wants_load_balancer(service: Service, cluster: ClusterIdentity, *, owned: bool = False) -> bool:
    """Return whether the Service requests a load balancer of this controller.

    ``owned``: whether a load balancer of this cluster exists for it; marks that others add later have no effect then.
    """
    wanted = service.spec.load_balancer_class
    class_matches = wanted == LOAD_BALANCER_CLASS or (wanted is None and not cluster.class_only)
    requested = service.spec.type == "LoadBalancer" and not service.metadata.deleting
    return requested and class_matches and (owned or not served_by_others(service))


def is_served_by_us(service: Service, cluster: ClusterIdentity) -> bool:
    """Return the same for a Service whose load balancers are not known: the finalizer stands for them."""
    return wants_load_balancer(service, cluster, owned=service.metadata.has_finalizer(SERVICE_FINALIZER))


def may_be_ours(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether the Service may be managed, whatever load balancers exist; ``scope_of`` decides."""
    marked = Announcement.of(service).suppressed or service.ready_condition is not None
    return (
        marked or service.metadata.has_finalizer(SERVICE_FINALIZER) or wants_load_balancer(service, cluster, owned=True)
    )


def _does_not_ask(service: Service, cluster: ClusterIdentity) -> str:
    """Return why a Service does not request a load balancer of this controller; empty if it does."""
    wanted = service.spec.load_balancer_class
    if service.metadata.deleting:
        held = ", ".join(service.metadata.finalizers or ())
        others = f"; it waits for finalizers of other controllers: {held}" if held else ""
        return f"it is being deleted, and nothing of this controller is left{others}"
    if service.spec.type != "LoadBalancer":
        return f"its type is {service.spec.type}, not LoadBalancer"
    if wanted is None and cluster.class_only:
        return f"--load-balancer-class-only is set, and spec.loadBalancerClass is not {LOAD_BALANCER_CLASS}"
    if of_other_class(service):
        return f"spec.loadBalancerClass is {wanted!r}: another controller serves it (ours is {LOAD_BALANCER_CLASS})"
    return ""


def _of_others(service: Service) -> str:
    """Return the mark of another controller on a Service, and how to have it served nevertheless."""
    foreign = sorted(key for key in service.metadata.annotations or {} if key.startswith(FOREIGN_MARKS))
    labels = (f"label {key}" for key, value in FOREIGN_LABELS.items() if service.metadata.label(key) == value)
    mark = next(labels, None) or f"annotation {next(iter(foreign), '')}"
    return (
        f"{mark} belongs to another load balancer controller. To have it served by Harvester, remove that, or create "
        f"the Service with spec.loadBalancerClass {LOAD_BALANCER_CLASS}"
    )


def of_other_class(service: Service) -> bool:
    """Return whether the Service requests another controller by its class."""
    return service.spec.load_balancer_class not in (None, LOAD_BALANCER_CLASS)


def served_by_others(service: Service) -> bool:
    """Return whether marks of another controller are on a Service that does not request this one by class.

    With the finalizer the Service is managed, whatever is added later; but kube-vip-cloud-provider has the same
    finalizer, so next to its label only marks count that no other controller writes.
    """
    if service.spec.load_balancer_class == LOAD_BALANCER_CLASS or carries_our_marks(service):
        return False
    if any(service.metadata.label(key) == value for key, value in FOREIGN_LABELS.items()):
        return True
    if service.metadata.has_finalizer(SERVICE_FINALIZER):
        return False
    return any(key.startswith(FOREIGN_MARKS) for key in service.metadata.annotations or {})


def carries_our_marks(service: Service) -> bool:
    """Return whether the Service has marks that only this controller writes; a served one need not have any."""
    ours = Announcement.of(service).withdrawn or was_secondary(service)
    return ours and service.metadata.has_finalizer(SERVICE_FINALIZER)


def is_served(service: Service) -> bool:
    """Return whether the Service has an address and the finalizer."""
    return bool(service.addresses) and service.metadata.has_finalizer(SERVICE_FINALIZER)


def was_secondary(service: Service) -> bool:
    """Return whether the Service last had the address of another one."""
    return bool(service.metadata.label(PRIMARY_SERVICE_LABEL))


def primary_label(primary_key: str) -> str:
    """Return the value of the label on a secondary; a checksum replaces the end of a value that is too long."""
    value = primary_key.replace("/", ".", 1)
    return value if len(value) <= LONGEST_LABEL else f"{value[: LONGEST_LABEL - 9]}-{zlib.crc32(value.encode()):08x}"


def primaries_of(service: Service) -> frozenset[str]:
    """Return the keys of the primary that the Service names, and of the one whose address it last had.

    The label has a dot instead of the slash; a namespace has no dots in its name. A shortened label names no Service.
    """
    labelled = (service.metadata.label(PRIMARY_SERVICE_LABEL) or "").replace(".", "/", 1)
    return frozenset(key for key in (primary_reference(service), labelled) if key)


def is_our_harvester(
    services: Store[Service],
    load_balancers: Store[LoadBalancer],
    nodes: Store[Node],
    vms: Store[VirtualMachine],
    cluster: ClusterIdentity,
) -> bool | None:
    """Return whether load balancers can be created in this Harvester and namespace; None until the VMs are listed.

    In another Harvester or namespace, every Service would get another address. Two independent signs are necessary to
    conclude that: it has no load balancer of this cluster, although Services have addresses, and no VM of a Node.
    Either alone is normal: all load balancers were deleted, or all VMs were replaced.
    """
    if cluster.new_harvester or not load_balancers.synced or load_balancers.unread:
        return True
    if any(_is_ours(one, services, cluster) for one in load_balancers.all()):
        return True
    named = {uid for node in nodes.all() if (uid := parse_provider_id(node.spec.provider_id))}
    not_readable = vms.unread or (not vms.synced and isinstance(vms.problem, Forbidden))
    if not named or not_readable or any(one.metadata.uid in named for one in vms.all()):
        return True
    if not any(
        is_served(one) and wants_load_balancer(one, cluster) and not was_secondary(one) for one in services.all()
    ):
        return True
    return False if vms.synced else None


def _is_ours(load_balancer: LoadBalancer, services: Store[Service], cluster: ClusterIdentity) -> bool:
    """Return whether the load balancer is this cluster's, whatever the cluster was called at its creation.

    Without an owner annotation (Go provider), one that has the cluster's name and that of an existing Service counts.
    """
    marked = marked_ours(load_balancer, cluster)
    if marked is not None:
        return marked
    return goes_by(load_balancer, cluster) and services.get(service_key(load_balancer)) is not None
