"""An address that several Services share: the primary has the load balancer, its secondaries use the address.

Which secondaries may use it follows from their ranking.
"""

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.model.outcome import EventMessage, Outcome, Refused, Wait, WaitReason
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.cluster_lb import announced_again
from harvester_ccm.plan.service.network_device import changed_device
from harvester_ccm.plan.service.removal import plan_deletion, users_of_address
from harvester_ccm.plan.service.request import (
    ignored_settings,
    invalid,
    primary_reference,
    requested_network,
    unsupported,
)
from harvester_ccm.plan.service.scope import is_served_by_us, may_share, primary_label, was_secondary
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.writes import Desired, ServiceChange, wait_for

PRIMARY_PATIENCE: Final = 60.0
"""Seconds for which a primary may have no address before its secondaries get an Event."""


class Sharing(Struct, frozen=True):
    """Whether a secondary may use its primary's address."""

    address: str = ""
    """The shared address, if it may be used and there is one."""
    outcome: Outcome = Wait(WaitReason.SHARED_ADDRESS)
    """Outcome without the address; ``Refused`` if only a change of this Service permits it."""
    refusal: EventMessage | None = None
    """Why it may not be used."""
    gives_up: bool = False
    """Whether the Service gives up the address that it shares: another Service on it has a port of this one, or
    ``--shared-address-scope`` does not permit it."""


def plan_secondary(snapshot: ServiceSnapshot, keep: Desired | None) -> Desired:
    """Return the desired state of a Service that names a primary.

    ``keep`` is that with its own load balancer, if it has one: it stays until the other address can be used.
    """
    service, primary, sharing = snapshot.service, snapshot.primary, _sharing(snapshot)
    users = users_of_address(snapshot)
    if users and sharing.address and primary is not None:
        refusal = _refusal(
            f"This Service keeps its own, because {', '.join(users)} shares it. Name {primary.metadata.key} as primary "
            "there, too"
        )
        return keep.plus(refusal) if keep else Desired(sharing.outcome, refusal)
    if primary is None or not sharing.address:
        return keep.plus(sharing.refusal) if keep else _plan_without_address(snapshot, sharing)
    found = kube_vip.Announcement.of(primary)
    ignored = ignored_settings(service, snapshot.request, vm=found.ignored, primary=primary)
    device = changed_device(service, sharing.address, found.device) if found.device and not found.ignored else None
    events = ignored, device, snapshot.request.unknown
    if snapshot.match.left:
        deletion = plan_deletion(snapshot, snapshot.match.left)
        changes = kube_vip.Announcement.of(service).address != sharing.address
        withdrawn = ServiceChange(annotations=kube_vip.withdraw(service) if changes else {})
        return replace(deletion, events=(*events, *deletion.events), service=withdrawn)
    ensured = None if service.addresses == (sharing.address,) else _ensured(service, primary, sharing.address)
    desired = Desired(events=(*events, ensured), service=_attached(service, primary, sharing.address))
    return desired if found.ignored or found.withdrawn else announced_again(desired, snapshot, sharing.address)


def plan_leaving(service: Service) -> Desired:
    """Return the desired state of a former secondary: it gives up the shared address before it gets its own."""
    annotations = {**kube_vip.WITHDRAWN, **(kube_vip.NO_OWN_DEVICE if was_secondary(service) else {})}
    change = ServiceChange(annotations=annotations, labels={names.PRIMARY_SERVICE_LABEL: None}, ingress=())
    return Desired(Wait(WaitReason.SHARED_ADDRESS), service=change)


def _plan_without_address(snapshot: ServiceSnapshot, sharing: Sharing) -> Desired:
    """Return the desired state while the address may not be shared or does not exist."""
    service, primary = snapshot.service, snapshot.primary
    desired = Desired(sharing.outcome, sharing.refusal)
    if primary is not None and sharing.refusal is None and not service.addresses:
        text = (
            f"Service {primary.metadata.key}, whose address this Service shares, has none from Harvester yet: see its "
            f"Events. To have an address of its own, remove annotation {names.PRIMARY_SERVICE}"
        )
        late = EventMessage("Warning", names.Reason.ADDRESS_PENDING, text)
        desired = wait_for(WaitReason.SHARED_ADDRESS, snapshot, PRIMARY_PATIENCE, late)
    if (was_secondary(service) or service.addresses) and (sharing.gives_up or not _keeps_address(snapshot)):
        return replace(plan_leaving(service), outcome=desired.outcome, cause=desired.cause)
    # While the primary's load balancer is being replaced no Service may announce the address.
    withdrawn = service.addresses and primary is not None and kube_vip.Announcement.of(primary).withdrawn
    annotations = kube_vip.WITHDRAWN if withdrawn else kube_vip.suppress(service)
    # A Service that can never be served does not get the finalizer.
    finalizer = None if isinstance(desired.outcome, Refused) else True
    return replace(desired, service=ServiceChange(annotations=annotations, finalizer=finalizer))


def _keeps_address(snapshot: ServiceSnapshot) -> bool:
    """Return whether the Service keeps the address of its primary, for which none can be shared at the moment.

    The primary gets its address again, unless it shows another one or another load balancer has this one.
    """
    service, primary = snapshot.service, snapshot.primary
    if primary is None or service.metadata.label(names.PRIMARY_SERVICE_LABEL) != primary_label(primary.metadata.key):
        return False
    if not snapshot.primary_allocated.isdisjoint(service.addresses):
        return True
    same = primary.addresses[:1] in ((), service.addresses[:1])
    is_taken = any(map(snapshot.allocated_to_others, service.addresses))
    return same and not is_taken and is_served_by_us(primary, snapshot.cluster)


def _attached(service: Service, primary: Service, address: str) -> ServiceChange:
    """Return the change that gives the Service the primary's address, announced like that of the primary."""
    network = primary.metadata.annotation(names.NETWORK)
    copied = {names.NETWORK: network} if network and not requested_network(service) else {}
    return ServiceChange(
        annotations={**kube_vip.announce_like(primary, service, address), **copied, names.IPAM: None},
        labels={names.PRIMARY_SERVICE_LABEL: primary_label(primary.metadata.key)},
        finalizer=True,
        ingress=kube_vip.virtual_ip_ingress(address, service),
    )


def _ensured(service: Service, primary: Service, address: str) -> EventMessage:
    shared = f"{address} shared with {primary.metadata.key}"
    if not service.addresses:
        return EventMessage("Normal", names.Reason.ENSURED, f"Ensured load balancer, address {shared}")
    text = f"The address changed from {service.addresses[0]} to {shared}"
    return EventMessage("Warning", names.Reason.ADDRESS_CHANGED, text)


def _sharing(snapshot: ServiceSnapshot) -> Sharing:
    """Return whether the Service may share the address that it requests, and have it now.

    The address must be from Harvester: kube-vip may announce for the primary the address that its user requested.
    """
    service, primary, reference = snapshot.service, snapshot.primary, snapshot.request.primary or ""
    refused, waits = Refused(WaitReason.UNSUPPORTED), Wait(WaitReason.UNSUPPORTED)
    if not may_share(service, reference, snapshot.cluster):
        # The Warning is the same whether the primary exists or not: tenants cannot look for Services of others.
        return Sharing("", refused, _out_of_scope(service, reference), gives_up=True)
    vm = primary is not None and bool(primary.addresses) and kube_vip.Announcement.of(primary).ignored
    refusal = unsupported(service, vm=vm)
    if refusal is None and not re.fullmatch("[^/]+/[^/]+", reference):
        refusal = invalid(names.PRIMARY_SERVICE, reference, "namespace/name of a Service of type LoadBalancer")
    if refusal is not None:
        return Sharing("", refused, refusal)
    why = _obstacle(service, primary, reference, snapshot.cluster)
    if primary is None or why:
        return Sharing("", waits, _refusal(why))
    if clash := snapshot.ranking_of_primary.clashes.get(service.metadata.key):
        return Sharing("", waits, _refusal(clash), gives_up=True)
    allocated = snapshot.primary_allocated & {*primary.addresses[:1], names.DHCP_ADDRESS}
    return Sharing(primary.addresses[0]) if allocated and primary.addresses else Sharing()


def _out_of_scope(service: Service, reference: str) -> EventMessage:
    namespace = service.metadata.namespace
    expected = (
        f"{namespace}/NAME, a Service in namespace {namespace}, because the cloud controller manager runs with "
        "--shared-address-scope=namespace. Name a Service of this namespace, or remove the annotation to get an "
        "address of its own"
    )
    return invalid(names.PRIMARY_SERVICE, reference, expected)


def _obstacle(service: Service, primary: Service | None, reference: str, cluster: ClusterIdentity) -> str:
    """Return why the primary cannot be one for this Service; empty if it can."""
    if primary is None:
        return f"Service {reference} does not exist. Create it, or correct annotation {names.PRIMARY_SERVICE}"
    if primary.metadata.key == service.metadata.key:
        return f"The Service names itself as its primary. Remove annotation {names.PRIMARY_SERVICE}"
    further = primary_reference(primary)
    if further is not None:
        return f"Service {reference} itself shares the address of {further}. Name {further} as primary instead"
    if primary.metadata.deleting:
        return f"Service {reference} is being deleted. Name another primary, or give this Service its own address"
    if not is_served_by_us(primary, cluster):
        return f"Service {reference} has no load balancer of Harvester. Its type must be LoadBalancer"
    has = requested_network(primary)
    elsewhere = (
        f"Annotation {names.NETWORK} is {requested_network(service)!r} here and {repr(has) if has else 'absent'} on "
        f"Service {reference}. Remove it here, or name a primary in that network"
    )
    return "" if _is_in_network(service, primary) else elsewhere


def _is_in_network(service: Service, primary: Service) -> bool:
    """Return whether the primary's address is in the network that the Service requests, or none is requested."""
    return requested_network(service) in {"", requested_network(primary)}


def _refusal(why: str) -> EventMessage:
    return EventMessage("Warning", names.Reason.SHARING_REJECTED, f"The address cannot be shared. {why}")
