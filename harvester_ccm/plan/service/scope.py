"""Scope: whether this controller serves a Service, removes it from Harvester, or leaves it to others."""

import zlib
from enum import StrEnum, auto
from typing import Final

from msgspec import Struct

from harvester_ccm.config import SharedAddressScope
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, abbreviate
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import (
    FOREIGN_ANNOTATIONS,
    FOREIGN_LABEL,
    LOAD_BALANCER_CLASS,
    PRIMARY_SERVICE_LABEL,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import read_record
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.request import primary_reference

BY_PRIMARY: Final = "primary"
"""Index of Services by the primary that they name, and by the one whose address they last had."""
_OUR_CLASS: Final = (
    f"spec.loadBalancerClass {LOAD_BALANCER_CLASS}, if kube-vip announces this class (chart: kube-vip.harvesterClass; "
    "another kube-vip: env lb_class_name)"
)


class Role(StrEnum):
    """What this controller does with a Service."""

    SERVE = auto()
    REMOVE = auto()
    """The Service is removed from Harvester: it is being deleted or is not to be served any more."""
    IGNORE = auto()
    """Another controller, or none, serves the Service."""


class Scope(Struct, frozen=True):
    """What this controller does with a Service, and why it ignores one."""

    role: Role = Role.SERVE
    reason: str = ""
    """Why the Service is ignored; empty otherwise."""
    event: EventMessage | None = None
    """The Event about that, if its user may have expected something else."""

    @property
    def is_managed(self) -> bool:
        """Whether this controller serves or removes the Service."""
        return self.role is not Role.IGNORE


def scope_of(service: Service, cluster: ClusterIdentity, *, has_load_balancer: bool) -> Scope:
    """Return what this controller does with the Service.

    A Service with the finalizer is removed only if nothing else could have put it there. A Service without the
    finalizer is removed if kube-vip still waits on it for this controller.
    """
    # A Service is owned if this controller has handled it. Tenants can write each of these marks.
    has_own_mark = service.has_finalizer and (was_secondary(service) or _has_own_fields(service))
    is_owned = has_load_balancer or has_own_mark
    ended = _no_request_reason(service)
    others = _other_controller_reason(service, cluster, is_owned=is_owned)
    if not ended and not others:
        return Scope()
    if _is_to_be_removed(service, ended=bool(ended), is_ours=is_owned or not others):
        return Scope(Role.REMOVE)
    return Scope(Role.IGNORE, ended or others, _event(service, cluster, ended, others))


def _is_to_be_removed(service: Service, *, ended: bool, is_ours: bool) -> bool:
    if service.has_finalizer:
        return is_ours and (ended or has_other_class(service))
    # Another client may have removed the finalizer.
    is_left_behind = _has_own_fields(service) or read_seen(service).is_held
    return is_left_behind and not service.metadata.deleting


def _has_own_fields(service: Service) -> bool:
    """Return whether a Service has the condition or the record of this controller."""
    return service.ready_condition is not None or read_record(service) is not None


def _event(service: Service, cluster: ClusterIdentity, ended: str, others: str) -> EventMessage | None:
    """Return the Event for a Service that another controller serves because of a mark on it."""
    # A class is a request for another controller; an annotation may have been written for another reason.
    is_expected = ended or service.spec.load_balancer_class or cluster.class_only
    if is_expected or service.status.load_balancer.ingress:
        return None
    return EventMessage("Normal", Reason.MANAGED_BY_OTHER, f"This controller does not serve the Service: {others}")


def _no_request_reason(service: Service) -> str:
    """Return why the Service requests no load balancer at all; empty if it does."""
    if service.metadata.deleting:
        return f"it is being deleted, and nothing of this controller is left{_finalizers_left(service)}"
    return "" if service.spec.type == "LoadBalancer" else f"its type is {service.spec.type}, not LoadBalancer"


def _finalizers_left(service: Service) -> str:
    """Return the finalizers that keep a Service, and how to end that; empty without one."""
    meta = service.metadata
    if not meta.finalizers:
        return ""
    remedy = finalizer_remedy(f"service -n {meta.namespace} {meta.name}")
    return f". It waits for finalizers of other controllers: {abbreviate(meta.finalizers)}. {remedy}"


def finalizer_remedy(target: str) -> str:
    """Return what to do about finalizers of other controllers; ``target`` are the arguments that name the object."""
    return (
        "Check that the controller of each runs: a finalizer begins with the domain of its controller. If that is "
        f"uninstalled, delete its finalizer with kubectl edit {target}"
    )


def _other_controller_reason(service: Service, cluster: ClusterIdentity, *, is_owned: bool) -> str:
    """Return why the Service is left to other controllers, by its class or a mark on it; empty if it is not.

    A Service that this controller has handled is managed whatever is added later, to the Service or to the flags: else
    kube-vip would go on announcing an address that Harvester may allocate again.
    """
    wanted_class = service.spec.load_balancer_class
    if has_other_class(service):
        without_class = "" if cluster.class_only else "without that class, or "
        return (
            f"spec.loadBalancerClass is {wanted_class!r}, which another controller has to serve. To have it served by "
            f"Harvester, create the Service again {without_class}with {_OUR_CLASS}"
        )
    if is_owned or wanted_class is not None:
        return ""
    if cluster.class_only:
        return f"--require-load-balancer-class is set, and spec.loadBalancerClass is not {LOAD_BALANCER_CLASS}"
    mark = _foreign_mark(service)
    remedy = (
        "belongs to another load balancer controller. To have it served by Harvester, remove that, or create the "
        f"Service again with {_OUR_CLASS}"
    )
    return f"{mark} {remedy}" if mark else ""


def _foreign_mark(service: Service) -> str:
    """Return the label or annotation of another controller; empty without one."""
    label, value = FOREIGN_LABEL
    if service.metadata.label(label) == value:
        return f"label {label}"
    if service.has_finalizer:
        # It was served when the annotation was added. kube-vip-cloud-provider has the same finalizer: its label counts.
        return ""
    annotations = service.metadata.annotations or {}
    keys = sorted(key for key in annotations if key.startswith(FOREIGN_ANNOTATIONS))
    return f"annotation {keys[0]}" if keys else ""


def is_in_scope(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether this controller serves a Service, as far as the Service itself shows it.

    Its load balancers are not looked at. Tenants can write the finalizer, so it does not stand for a load balancer.
    """
    return scope_of(service, cluster, has_load_balancer=False).role is Role.SERVE


def is_handled(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether this controller serves or removes a Service, as far as the Service itself shows it."""
    if service.ready_condition is not None:
        return True
    return scope_of(service, cluster, has_load_balancer=False).is_managed


def may_be_ours(service: Service, cluster: ClusterIdentity) -> bool:
    """Return whether the Service may be managed, whatever load balancers exist; ``scope_of`` decides."""
    if service.ready_condition is not None or service.has_finalizer:
        return True
    return scope_of(service, cluster, has_load_balancer=True).is_managed


def has_other_class(service: Service) -> bool:
    """Return whether the Service requests another controller by its class."""
    return service.spec.load_balancer_class not in (None, LOAD_BALANCER_CLASS)


def was_served(service: Service) -> bool:
    """Return whether this controller or the Go provider served the Service: it has an address and the finalizer."""
    return bool(service.addresses) and service.has_finalizer


def was_secondary(service: Service) -> bool:
    """Return whether the Service last had the address of another one."""
    return bool(service.metadata.label(PRIMARY_SERVICE_LABEL))


def may_share(service: Service, primary_key: str, cluster: ClusterIdentity) -> bool:
    """Return whether ``--shared-address-scope`` permits that a Service shares the address of a primary."""
    if cluster.shared_address_scope is SharedAddressScope.CLUSTER:
        return True
    return primary_key.partition("/")[0] == service.metadata.namespace


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
