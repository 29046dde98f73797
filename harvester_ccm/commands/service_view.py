"""What is known about one Service, put together from an inventory as the running program does from its caches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.config import SERVICE_CONTROLLER
from harvester_ccm.controllers.service import service_index, sharer_index
from harvester_ccm.errors import CCMError
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, LoadBalancer
from harvester_ccm.names import LOAD_BALANCER_CLASS
from harvester_ccm.plan.service.decision import concerns_us
from harvester_ccm.plan.service.load_balancer import backend_addresses, backend_names
from harvester_ccm.plan.service.ownership import claim, given_addresses, name_for
from harvester_ccm.plan.service.request import network_devices, primary_reference
from harvester_ccm.plan.service.selection import class_matches, needs_cleanup, served_by_others
from harvester_ccm.plan.service.situation import Situation


@dataclass(frozen=True)
class ServiceView:
    """What the flags say, and the point in time."""

    cluster: ClusterIdentity
    serving: bool
    """Whether the service controller is on."""
    waited: float | None
    """Seconds in the present phase; None: to be told from the objects' times and ``now``."""
    now: datetime | None
    """None: no time is known, and ``waited`` None counts as 0."""


def situation_of(service: Service, inventory: Inventory, view: ServiceView) -> Situation:
    """Return what the plan is made from: equal to the running program's ``ServiceController.situation``."""
    own_key, primary = service.metadata.key, primary_reference(service)
    shared, can = primary or own_key, inventory.capabilities
    others = [one for one in inventory.services if one.metadata.key != own_key]
    problem: CCMError | None = inventory.problems.get(LOAD_BALANCERS.plural)
    named = inventory.service(primary) if primary else None
    given = given_addresses(candidates(named, inventory, view.cluster)) if named is not None else None
    return Situation(
        service=service,
        cluster=view.cluster,
        load_balancers=candidates(service, inventory, view.cluster),
        primary=named,
        primary_given=given if problem is None else None,
        sharers=tuple(one for one in others if primary_reference(one) == shared),
        dependants=tuple(one for one in others if own_key in sharer_index(one)),
        backends=backend_names(inventory.nodes, inventory.machines),
        backends_known=VIRTUAL_MACHINES.plural not in inventory.problems,
        backend_addresses=() if can.selects_backends_by_label else backend_addresses(inventory.nodes),
        capabilities=can,
        network_devices=network_devices(inventory.mapping),
        harvester_known=problem is None,
        harvester_problem=problem,
        waited=_waited(service, inventory, view),
    )


def candidates(service: Service, inventory: Inventory, cluster: ClusterIdentity) -> tuple[LoadBalancer, ...]:
    """Return the load balancers that carry the Service's labels or UID, and the one that has its name."""
    key, name = service.metadata.key, name_for(service, cluster)
    told_by = {key, service.metadata.uid} - {""}
    labelled = [one for one in inventory.load_balancers if told_by.intersection(service_index(one))]
    named = [one for one in inventory.load_balancers if one.metadata.name == name and one not in labelled]
    return (*labelled, *named)


def why_not_served(service: Service, inventory: Inventory, view: ServiceView) -> str:
    """Return why nothing is done about the Service; empty when it is served or being let go."""
    if not view.serving:
        return f"{SERVICE_CONTROLLER} is switched off by --controllers"
    found = claim(candidates(service, inventory, view.cluster), service, view.cluster)
    if concerns_us(service, found, view.cluster):
        return ""
    return _why_left_alone(service, view.cluster)


def _why_left_alone(service: Service, cluster: ClusterIdentity) -> str:
    if service.metadata.deleting:
        return "it is being deleted, and nothing of ours is left to clean up"
    if service.spec.type != "LoadBalancer":
        return f"its type is {service.spec.type}, not LoadBalancer"
    if not class_matches(service, cluster):
        return _other_class(service.spec.load_balancer_class)
    if served_by_others(service):
        return (
            "annotations or labels of another load balancer controller are on it; set spec.loadBalancerClass to "
            f"{LOAD_BALANCER_CLASS} to have it served by Harvester"
        )
    return "it is for another load balancer controller"


def _other_class(wanted: str | None) -> str:
    if wanted is None:
        return f"--load-balancer-class-only is set, and spec.loadBalancerClass is not {LOAD_BALANCER_CLASS}"
    return f"spec.loadBalancerClass is {wanted!r}: another controller serves it (ours is {LOAD_BALANCER_CLASS})"


def _waited(service: Service, inventory: Inventory, view: ServiceView) -> float:
    """Return the seconds since the Service entered its phase: it left, its load balancer came to be, or it did."""
    if view.waited is not None:
        return view.waited
    if view.now is None:
        return 0.0
    found = claim(candidates(service, inventory, view.cluster), service, view.cluster).chosen
    began = service.metadata.creation_timestamp
    if needs_cleanup(service, view.cluster, owned=found is not None):
        began = service.metadata.deletion_timestamp
    elif found is not None:
        began = found.metadata.deletion_timestamp or found.metadata.creation_timestamp
    return seconds_since(began, view.now)


def seconds_since(timestamp: str | None, now: datetime) -> float:
    """Return the age of a time of the API in seconds; 0 when it is absent, unreadable or in the future."""
    try:
        return max((now - datetime.fromisoformat(timestamp or "")).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return 0.0
