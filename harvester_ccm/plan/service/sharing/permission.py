"""Whether a Service may use the address of the primary that it names, and which Services use its own address.

A *primary* has a load balancer. Its *secondaries* name it in the annotation ``primary-service`` and have none.
"""

from collections.abc import Set
from typing import Final

from msgspec import Struct

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import EventMessage, quoted
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.ownership.owner import allocated_addresses
from harvester_ccm.plan.service.request import invalid_value, is_in_network, primary_reference, requested_network
from harvester_ccm.plan.service.scope import has_other_class, is_handled, is_in_scope, may_share, primary_label
from harvester_ccm.plan.service.sharing.ranking import is_announced_by_harvester
from harvester_ccm.plan.service.snapshot import ServiceSnapshot
from harvester_ccm.plan.service.supported import unsupported_reason


class Sharing(Struct, frozen=True):
    """Whether a secondary may use its primary's address now."""

    address: str = ""
    """The shared address, if it may be used and there is one."""
    refusal: EventMessage | None = None
    """Why it may not be used; None if the primary only has no address yet."""
    gives_up: bool = False
    """Whether the Service gives up the address that it shares: another Service on it has a port of this one, or
    ``--shared-address-scope`` does not permit it."""


_NO_ADDRESS: Final = Sharing()


def sharing_of(snapshot: ServiceSnapshot) -> Sharing:
    """Return whether the Service may share the address that it requests, and have it now.

    The address must be from Harvester: kube-vip may announce for the primary the address that its user requested.
    """
    service = snapshot.service
    reference = snapshot.request.primary
    primary = snapshot.primary
    if not may_share(service, reference, snapshot.cluster):
        # The Warning is the same whether the primary exists or not: tenants cannot look for Services of others.
        return Sharing(refusal=_out_of_scope(service, reference), gives_up=True)
    if refusal := unsupported_reason(service, is_vm=is_announced_by_harvester(primary)):
        return Sharing(refusal=refusal)
    if not _is_key(reference):
        expected = "namespace/name of a Service of type LoadBalancer"
        return Sharing(refusal=invalid_value(names.PRIMARY_SERVICE, reference, expected))
    if primary is None:
        remedy = f"Create it, or correct annotation {names.PRIMARY_SERVICE}"
        return Sharing(refusal=_rejected(f"Service {quoted(reference)} does not exist", remedy))
    if obstacle := _obstacle(snapshot, primary):
        return Sharing(refusal=obstacle)
    if clash := snapshot.ranking_of_primary.clashes.get(service.metadata.key):
        return Sharing(refusal=_rejected(clash, "Choose another port, or another primary"), gives_up=True)
    if users := users_of_address(snapshot):
        cause = f"This Service keeps its own, because {', '.join(users)} shares it"
        return Sharing(refusal=_rejected(cause, f"Name {primary.metadata.key} as primary there, too"))
    if not primary.addresses:
        return _NO_ADDRESS
    address = primary.addresses[0]
    return Sharing(address) if address in snapshot.primary_allocated else _NO_ADDRESS


def _is_key(reference: str) -> bool:
    namespace, slash, name = reference.partition("/")
    return bool(namespace and slash and name) and "/" not in name


def _out_of_scope(service: Service, reference: str) -> EventMessage:
    namespace = service.metadata.namespace
    expected = (
        f"{namespace}/NAME, a Service in namespace {namespace}, because the cloud controller manager runs with "
        "--shared-address-scope=namespace. Name a Service of this namespace, or remove the annotation to get an "
        "address of its own"
    )
    return invalid_value(names.PRIMARY_SERVICE, reference, expected)


def _obstacle(snapshot: ServiceSnapshot, primary: Service) -> EventMessage | None:
    """Return why the primary cannot be one for this Service, or None."""
    service = snapshot.service
    key = primary.metadata.key
    if key == service.metadata.key:
        return _rejected("The Service names itself as its primary", f"Remove annotation {names.PRIMARY_SERVICE}")
    further = primary_reference(primary)
    if further == service.metadata.key:
        cause = f"This Service and {key} name each other as primary"
        return _rejected(cause, f"Remove annotation {names.PRIMARY_SERVICE} from the one that is to have the address")
    if further:
        cause = f"Service {key} itself shares the address of {quoted(further)}"
        return _rejected(cause, "Name that Service as primary")
    if primary.metadata.deleting:
        return _rejected(
            f"Service {key} is being deleted", "Name another primary, or give this Service its own address"
        )
    if not is_in_scope(primary, snapshot.cluster):
        remedy = "Its type must be LoadBalancer, and no other controller may serve it (spec.loadBalancerClass)"
        return _rejected(f"Service {key} has no load balancer of Harvester", remedy)
    if is_in_network(service.metadata.annotation(names.NETWORK), primary.metadata.annotation(names.NETWORK)):
        return None
    network = requested_network(primary)
    there = quoted(network) if network else "absent"
    cause = f"Annotation {names.NETWORK} is {quoted(requested_network(service))} here and {there} on Service {key}"
    return _rejected(cause, "Remove it here, or name a primary in that network")


def _rejected(cause: str, remedy: str) -> EventMessage:
    return EventMessage("Warning", Reason.SHARING_REJECTED, f"The address cannot be shared. {cause}", remedy)


def users_of_address(snapshot: ServiceSnapshot) -> list[str]:
    """Return the keys of the Services that still have the address of this one, which its load balancers hold."""
    own = snapshot.match.own_load_balancers
    if not own:
        return []
    label = primary_label(snapshot.service.metadata.key)
    held = allocated_addresses(own) | {*snapshot.service.addresses}
    return sorted(
        secondary.metadata.key
        for secondary in managed_secondaries(snapshot)
        if secondary.metadata.label(names.PRIMARY_SERVICE_LABEL) == label and _uses_address(secondary, held)
    )


def managed_secondaries(snapshot: ServiceSnapshot) -> list[Service]:
    """Return the Services that share the address of this one, or did, and that this controller manages.

    On any other Service, a tenant can have written everything that looks like a shared address.
    """
    return [secondary for secondary in snapshot.own_secondaries if is_handled(secondary, snapshot.cluster)]


def _uses_address(secondary: Service, held: Set[str]) -> bool:
    """Return whether a managed Service has one of the addresses."""
    # A Service that is being removed has the finalizer until its address is withdrawn.
    is_requested = secondary.spec.type == "LoadBalancer" and not secondary.metadata.deleting
    if not (is_requested or secondary.has_finalizer):
        return False
    addresses = {*secondary.addresses}
    if secondary.ready_condition is not None or not has_other_class(secondary):
        # kube-vip announces the address in its annotation, also if another client changed the status.
        addresses.add(read_seen(secondary).address_annotation or "")
    return not held.isdisjoint(addresses)
