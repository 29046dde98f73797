"""Which Services are ours, to serve or to clean up after, which of them share the address of another one, and whether
the cloud-config leads to the Harvester that has their load balancers.
"""

from __future__ import annotations

import zlib
from typing import Final

from msgspec import Struct

from harvester_ccm.errors import Forbidden
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node, Service, parse_provider_id
from harvester_ccm.model.harvester import LoadBalancer, VirtualMachine
from harvester_ccm.model.lister import Lister
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.names import (
    LOAD_BALANCER_CLASS,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from harvester_ccm.plan.service.kube_vip import Announcement
from harvester_ccm.plan.service.ownership import goes_by, marked_ours, service_key
from harvester_ccm.plan.service.request import primary_reference

FOREIGN_MARKS: Final = ("metallb.io/", "metallb.universe.tf/", "lbipam.cilium.io/", "io.cilium/lb-ipam")
"""Prefixes of annotations that hand a Service to another load balancer controller."""
FOREIGN_LABELS: Final = {"implementation": "kube-vip"}
"""What kube-vip-cloud-provider puts on the Services that it serves; it uses the same finalizer as we do."""

LONGEST_LABEL: Final = 63
"""Characters of a label value."""


class Scope(Struct, frozen=True):
    """Whether a Service is ours, and in what way."""

    ours: bool = True
    """Whether there is anything to do with it."""
    leaving: bool = False
    """Whether it is on its way out."""
    because: str = ""
    """Why it is left alone; empty when it is not."""
    note: EventMessage | None = None
    """What to tell of that."""


def scope_of(service: Service, cluster: ClusterIdentity, *, owned: bool) -> Scope:
    """Return whether the Service is ours; ``owned``: whether a load balancer of ours exists for it."""
    if needs_cleanup(service, cluster, owned=owned):
        return Scope(leaving=True)
    if wants_load_balancer(service, cluster, owned=owned):
        return Scope()
    because = _does_not_ask(service, cluster)
    if because:
        return Scope(ours=False, because=because)
    because = _of_others(service)
    told = EventMessage("Normal", Reason.LEFT_TO_OTHERS, f"This Service is left alone: {because}")
    return Scope(ours=False, because=because, note=None if service.status.load_balancer.ingress else told)


def may_be_ours(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether the Service may be ours, whatever load balancers there are; ``scope_of`` decides."""
    asks = service.spec.type == "LoadBalancer" and class_matches(service, cluster)
    marked = Announcement.of(service).held or service.ready_condition is not None
    return asks or marked or service.metadata.has_finalizer(SERVICE_FINALIZER)


def _does_not_ask(service: Service, cluster: ClusterIdentity) -> str:
    """Return why a Service asks for no load balancer of ours; empty where it does."""
    wanted = service.spec.load_balancer_class
    if service.metadata.deleting:
        held = ", ".join(service.metadata.finalizers or ())
        others = f"; what still holds it is not ours: finalizer {held}" if held else ""
        return f"it is being deleted, and nothing of ours is left to clean up{others}"
    if service.spec.type != "LoadBalancer":
        return f"its type is {service.spec.type}, not LoadBalancer"
    if wanted is None and cluster.class_only:
        return f"--load-balancer-class-only is set, and spec.loadBalancerClass is not {LOAD_BALANCER_CLASS}"
    if of_other_class(service):
        return f"spec.loadBalancerClass is {wanted!r}: another controller serves it (ours is {LOAD_BALANCER_CLASS})"
    return ""


def _of_others(service: Service) -> str:
    """Return whose mark is on a Service that another controller is supposed to serve, and what to do if none does."""
    foreign = sorted(key for key in service.metadata.annotations or {} if key.startswith(FOREIGN_MARKS))
    labels = (f"label {key}" for key, value in FOREIGN_LABELS.items() if service.metadata.label(key) == value)
    mark = next(labels, None) or f"annotation {next(iter(foreign), '')}"
    return (
        f"{mark} says that another load balancer controller serves it. To have it served by Harvester, remove that, or "
        f"create the Service with spec.loadBalancerClass {LOAD_BALANCER_CLASS}"
    )


def class_matches(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether the load balancer class is ours, or absent where that is enough."""
    wanted = service.spec.load_balancer_class
    return wanted == LOAD_BALANCER_CLASS or (wanted is None and not cluster.class_only)


def of_other_class(service: Service) -> bool:
    """Return whether the Service asks for another controller by name."""
    return service.spec.load_balancer_class not in (None, LOAD_BALANCER_CLASS)


def wants_load_balancer(service: Service, cluster: ClusterIdentity, *, owned: bool = False) -> bool:
    """Return whether the Service asks this program for a load balancer.

    ``owned``: whether a load balancer of ours exists for it; it stays ours then, whoever else puts marks on it.
    """
    return (
        service.spec.type == "LoadBalancer"
        and not service.metadata.deleting
        and class_matches(service, cluster)
        and (owned or not served_by_others(service))
    )


def is_served_by_us(service: Service, cluster: ClusterIdentity) -> bool:
    """Return the same of a Service whose load balancers were not looked at: our finalizer stands for them."""
    return wants_load_balancer(service, cluster, owned=service.metadata.has_finalizer(SERVICE_FINALIZER))


def served_by_others(service: Service) -> bool:
    """Return whether another controller's marks are on a Service that does not ask for us by class.

    Once our finalizer is on it, it is ours, whatever is added later; but kube-vip-cloud-provider's finalizer is the
    same as ours, so next to its mark only what nobody else writes counts.
    """
    if service.spec.load_balancer_class == LOAD_BALANCER_CLASS or carries_our_marks(service):
        return False
    if any(service.metadata.label(key) == value for key, value in FOREIGN_LABELS.items()):
        return True
    if service.metadata.has_finalizer(SERVICE_FINALIZER):
        return False
    return any(key.startswith(FOREIGN_MARKS) for key in service.metadata.annotations or {})


def carries_our_marks(service: Service) -> bool:
    """Return whether something is on the Service that only this program writes; a served one need not have any."""
    meta = service.metadata
    ours = Announcement.of(service).withdrawn or was_secondary(service)
    return ours and meta.has_finalizer(SERVICE_FINALIZER)


def needs_cleanup(service: Service, cluster: ClusterIdentity, *, owned: bool = False) -> bool:
    """Return whether the Service carries our finalizer and is on its way out, be it to another controller by its class.

    Other controllers use the same finalizer: a Service of another class, and one that we would not serve, is left to
    them, unless a load balancer of ours exists for it (``owned``) or our marks are on it. One that had only to wait has
    no finalizer yet, and would be ignored by kube-vip for ever.
    """
    meta = service.metadata
    if not meta.has_finalizer(SERVICE_FINALIZER):
        wanted = wants_load_balancer(service, cluster, owned=owned)
        return Announcement.of(service).held and not wanted and not meta.deleting
    if of_other_class(service):
        return owned or carries_our_marks(service)
    if not meta.deleting and service.spec.type == "LoadBalancer":
        return False
    if service.spec.load_balancer_class is not None:
        return True
    return owned or carries_our_marks(service) or not (cluster.class_only or served_by_others(service))


def is_served(service: Service) -> bool:
    """Return whether the Service has an address and our finalizer."""
    return bool(service.addresses) and service.metadata.has_finalizer(SERVICE_FINALIZER)


def was_secondary(service: Service) -> bool:
    """Return whether the Service was last served with the address of another one."""
    return bool(service.metadata.label(PRIMARY_SERVICE_LABEL))


def primary_label(primary_key: str) -> str:
    """Return the value of the label that marks a secondary; where it would be too long, a checksum ends it."""
    value = primary_key.replace("/", ".", 1)
    return value if len(value) <= LONGEST_LABEL else f"{value[: LONGEST_LABEL - 9]}-{zlib.crc32(value.encode()):08x}"


def labelled_primary(service: Service) -> str | None:
    """Return the ``namespace/name`` of the Service whose address this one was last served with, or None.

    A shortened label says nothing here. A namespace has no dots in its name.
    """
    label = service.metadata.label(PRIMARY_SERVICE_LABEL) or ""
    return label.replace(".", "/", 1) or None


def primaries_of(service: Service) -> frozenset[str]:
    """Return the keys of the primaries that the Service names and was last served with."""
    return frozenset(key for key in (primary_reference(service), labelled_primary(service)) if key is not None)


def is_our_harvester(
    services: Lister[Service],
    load_balancers: Lister[LoadBalancer],
    nodes: Lister[Node],
    vms: Lister[VirtualMachine],
    cluster: ClusterIdentity,
) -> bool | None:
    """Return whether Services can get load balancers in this Harvester and namespace; None until the VMs are listed.

    In another Harvester or namespace, every Service would get another address. Two independent signs are necessary to
    conclude that: it has no load balancer of this cluster, although Services show addresses, and no VM of a Node.
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
    if not any(_is_allocated(one, cluster) for one in services.all()):
        return True
    return False if vms.synced else None


def _is_ours(load_balancer: LoadBalancer, services: Lister[Service], cluster: ClusterIdentity) -> bool:
    """Return whether the load balancer is this cluster's, whatever it was called when it made it.

    Without a mark, as the Go provider leaves it, one that has our name and that of a Service of ours counts.
    """
    marked = marked_ours(load_balancer, cluster)
    if marked is not None:
        return marked
    return goes_by(load_balancer, cluster) and services.get(service_key(load_balancer)) is not None


def _is_allocated(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether the Service shows an address that a load balancer of its own provided."""
    return is_served(service) and wants_load_balancer(service, cluster) and not was_secondary(service)
