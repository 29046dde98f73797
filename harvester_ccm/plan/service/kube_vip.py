"""How a Service of ours is kept from kube-vip in the guest, while it waits and when Harvester announces its address.

kube-vip announces whatever address it finds on a Service and stalls on one that has none; an empty annotation makes it
withdraw and pass over. The empty annotation replaces a user's own one, so the wish in that is moved to an annotation
of ours.

kube-vip handles its events one after another, and while it waits for an address it looks ahead. With the empty
annotation alone it may announce the address that follows, meet the empty annotation after that, withdraw, and stay
silent; v0.9 and v1.0 never announce a Service that they met so. It passes over the events of a Service that it is to
ignore, whenever it meets them.
"""

from __future__ import annotations

from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    REQUESTED_ADDRESS,
    SERVICE_FINALIZER,
    USER_IGNORE,
)
from harvester_ccm.plan.service.patch import ServiceChange
from harvester_ccm.plan.service.request import preset_address
from harvester_ccm.plan.service.selection import is_kept_from_kube_vip, is_parked
from harvester_ccm.plan.service.situation import ChangeService, change_service


def parked(service: Service) -> dict[str, str | None]:
    """Return the annotations of a Service that waits for an address; nothing if it has one already.

    One that kube-vip may announce is not ignored: kube-vip would not withdraw it then.
    """
    if service.addresses:
        return {}
    unmet = service.metadata.annotation(KUBE_VIP_ADDRESSES) is None and not _is_wished(service)
    ignored: dict[str, str | None] = {KUBE_VIP_IGNORE: "true"} if unmet else {}
    return {KUBE_VIP_ADDRESSES: "", **ignored, **_kept_wishes(service)}


def taken_on(service: Service) -> dict[str, str | None]:
    """Return the annotations of a Service whose address Harvester is about to give.

    kube-vip has been first to see the Service, and announces what its user wrote. It goes on until Harvester has
    decided: most often that is the address given, and once kube-vip has withdrawn one it may not announce it again.
    """
    if service.metadata.annotation(KUBE_VIP_IGNORE) != "true" and _is_wished(service):
        return _kept_wishes(service)
    return {**_kept_wishes(service), **parked(service), **taken_down(service)}


def taken_down(service: Service) -> dict[str, str | None]:
    """Return the annotations that make kube-vip look again at a Service of ours that it ignores, and withdraw.

    While it waited for an address it may have found one that somebody wrote after it was told to ignore the Service.
    """
    meta = service.metadata
    ours = meta.has_finalizer(SERVICE_FINALIZER) and is_kept_from_kube_vip(service)
    return {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None} if ours and meta.annotation(KUBE_VIP_ADDRESSES) else {}


def hand_over(service: Service) -> tuple[ChangeService, ...]:
    """Return the steps after which kube-vip leaves the Service, which then has our finalizer, to Harvester.

    Both annotations come in one patch, before any status, so that kube-vip cannot be in between. If it may announce
    the Service already, it is made to withdraw first: it does not once it ignores the Service. An address that somebody
    wrote later may have reached it while it still waited for one, and then it has to look at the Service once more.
    """
    meta = service.metadata
    found, ignored = meta.annotation(KUBE_VIP_ADDRESSES), meta.annotation(KUBE_VIP_IGNORE) == "true"
    maybe_announced = found or (found is None and (service.addresses or service.spec.load_balancer_ip))
    withdrawn: dict[str, str | None] = {KUBE_VIP_ADDRESSES: "", **_kept_wishes(service)}
    first: tuple[ChangeService, ...] = ()
    if found and ignored and meta.has_finalizer(SERVICE_FINALIZER):
        first = change_service(service, ServiceChange(annotations={**withdrawn, KUBE_VIP_IGNORE: None}))
    elif maybe_announced and not ignored:
        first = change_service(service, ServiceChange(annotations=withdrawn, finalizer=True))
    ignoring = ServiceChange(annotations={**withdrawn, KUBE_VIP_IGNORE: "true"}, finalizer=True)
    return (*first, *change_service(service, ignoring))


def taken_back(service: Service) -> dict[str, str | None]:
    """Return the annotation that gives a Service to kube-vip with its address, if it was us who had it ignored."""
    return {KUBE_VIP_IGNORE: None} if is_parked(service) else {}


def announced(service: Service, address: str) -> dict[str, str | None]:
    """Return the annotations that have kube-vip announce an address.

    None where it takes the address from the specification: from an annotation it would take it for another one,
    withdraw, and stay silent.
    """
    if service.metadata.annotation(KUBE_VIP_ADDRESSES) is None and service.spec.load_balancer_ip == address:
        return taken_back(service)
    return {KUBE_VIP_ADDRESSES: address, **taken_back(service)}


def late_announcement(service: Service, address: str = "") -> str:
    """Return what to add to word of an address that kube-vip is to announce; empty where it does so at once.

    Once it has let go of an address of a Service it waits for a change of the endpoints before it announces another,
    or the same.
    """
    met = service.addresses or service.metadata.annotation(KUBE_VIP_HOST) is not None
    shows = bool(address) and _shown(service) == address
    if not met or (shows and service.addresses in ((), (address,))):
        return ""
    return (
        ". kube-vip may announce it only after the endpoints of the Service change or kube-vip restarts; check that it "
        "answers"
    )


def _kept_wishes(service: Service) -> dict[str, str | None]:
    """Return the annotations that keep what the user said to kube-vip before we did."""
    meta, preset = service.metadata, preset_address(service)
    already_said = service.spec.load_balancer_ip or meta.annotation(REQUESTED_ADDRESS)
    kept: dict[str, str | None] = {REQUESTED_ADDRESS: preset} if preset and not already_said else {}
    ignored = meta.annotation(KUBE_VIP_IGNORE) == "true" and meta.annotation(KUBE_VIP_ADDRESSES) != ""
    if ignored and not meta.has_finalizer(SERVICE_FINALIZER):
        kept[USER_IGNORE] = "true"
    return kept


def _is_wished(service: Service) -> bool:
    """Return whether kube-vip finds an address that the user wrote on a Service."""
    return bool(_shown(service))


def _shown(service: Service) -> str:
    """Return the address that kube-vip finds on a Service whose status has none."""
    found = service.metadata.annotation(KUBE_VIP_ADDRESSES)
    return (service.spec.load_balancer_ip or "") if found is None else found
