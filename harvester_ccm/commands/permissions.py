"""The permissions that the controller uses, the effect of each missing one, and which of them a credential has.

A verb is listed if a controller sends it; ``tests/apiserver/test_commands_preflight.py`` removes each one in turn.
Each is checked with a SelfSubjectAccessReview, which considers every authorizer of the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.commands.checks import Check, Finding, Result
from harvester_ccm.commands.clusters import GUEST, HARVESTER, ask
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, OrphanPolicy, Settings
from harvester_ccm.errors import CCMError, Forbidden, rbac_hint
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.reviews import ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ask_review
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, EVENTS, LEASES, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.meta import Resource
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE


class Permission(Struct, frozen=True):
    """One verb on one kind of object."""

    resource: Resource[Any]
    verb: str
    effect: str
    """The effect of its absence."""
    required: bool
    """Whether the controller is of no use without it; otherwise the rest works."""
    used_by: str
    """The part of the controller that uses it, one of ``_parts``."""
    subresource: str = ""

    @property
    def title(self) -> str:
        """``resource`` or ``resource/subresource``."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def name(self, settings: Settings) -> tuple[str, str]:
        """Return namespace and name of the one object that is used; empty if there are several, or none yet."""
        names = {
            NAMESPACES.plural: ("", "kube-system"),
            CONFIG_MAPS.plural: (NAD_MAPPING_NAMESPACE, NAD_MAPPING_NAME),
            LEASES.plural: (settings.leader_election.namespace, settings.leader_election.name),
        }
        namespace, name = names.get(self.resource.plural, ("", ""))
        # An object that is created has no name yet.
        return namespace, "" if self.verb == "create" else name


ALL: Final = "all"
ORPHANS: Final = "orphans"
NODES_OR_LIFECYCLE: Final = "nodes or lifecycle"
MAPPING: Final = "mapping"
GUESTS: Final = "guests"
METRICS: Final = "metrics"
ELECTION: Final = "election"


def _parts(settings: Settings) -> frozenset[str]:
    """Return the parts of the controller that the flags switch on."""
    controllers = settings.controllers
    parts = {
        ALL: True,
        ORPHANS: SERVICE_CONTROLLER in controllers and settings.services.orphan_lbs is OrphanPolicy.DELETE,
        NODES_OR_LIFECYCLE: not controllers.isdisjoint({NODE_CONTROLLER, LIFECYCLE_CONTROLLER}),
        MAPPING: NODE_CONTROLLER in controllers and settings.nodes.vmi_controller,
        GUESTS: NODE_CONTROLLER in controllers and settings.nodes.asks_guests,
        METRICS: settings.server.port != 0,
        ELECTION: settings.leader_election.enabled,
    }
    return controllers | {part for part, is_on in parts.items() if is_on}


_POLLED: Final = "changes are noticed late: the list is read again every minute"
_NO_MAPPING: Final = "the network to device ConfigMap is not kept, so Services with a network wait for their device"
_NOT_ANNOUNCED: Final = (
    "kube-vip does not announce an address that was switched or changed, which an Event then reports"
)
_NO_OWNER: Final = "load balancers have no owner annotation, so clusters of one name share them and orphans stay"
_NO_METRICS: Final = "no client can read /metrics of the controller"
_NO_LEASE: Final = "the controller waits for its Lease forever and does nothing"
_STALE: Final = "load balancers are never kept up to date: address, owner, listeners, backends"
_KEPT: Final = "load balancers and their addresses stay when a Service is deleted"
_NO_HOSTNAME: Final = "a Node is found only if its VM has the Node's name or system UUID"
_NO_INSTANCES: Final = "VM instances, and with them the addresses of Nodes, cannot be read"

PERMISSIONS: Final = {
    HARVESTER: (
        Permission(
            LOAD_BALANCERS, "get", "an existing load balancer is not adopted at once", False, SERVICE_CONTROLLER
        ),
        Permission(LOAD_BALANCERS, "list", "load balancers cannot be read", True, ALL),
        Permission(LOAD_BALANCERS, "watch", _POLLED, False, ALL),
        Permission(LOAD_BALANCERS, "create", "no Service gets a load balancer", True, SERVICE_CONTROLLER),
        Permission(LOAD_BALANCERS, "update", _STALE, True, SERVICE_CONTROLLER),
        Permission(LOAD_BALANCERS, "delete", _KEPT, True, SERVICE_CONTROLLER),
        Permission(VIRTUAL_MACHINES, "get", "the Node of a deleted VM is never deleted", False, LIFECYCLE_CONTROLLER),
        Permission(VIRTUAL_MACHINES, "list", "VMs cannot be read", True, ALL),
        Permission(VIRTUAL_MACHINES, "watch", _POLLED, False, ALL),
        Permission(INSTANCES, "list", _NO_INSTANCES, True, ALL),
        Permission(INSTANCES, "watch", _POLLED, False, ALL),
        Permission(GUEST_OS_INFO, "get", _NO_HOSTNAME, False, GUESTS, "guestosinfo"),
    ),
    GUEST: (
        Permission(SERVICES, "get", "orphaned load balancers are never deleted", False, ORPHANS),
        Permission(SERVICES, "list", "Services cannot be read", True, ALL),
        Permission(SERVICES, "watch", _POLLED, False, ALL),
        Permission(
            SERVICES,
            "patch",
            "no Service gets an address, and no deletion finishes",
            True,
            SERVICE_CONTROLLER,
            "status",
        ),
        Permission(ENDPOINT_SLICES, "list", _NOT_ANNOUNCED, False, SERVICE_CONTROLLER),
        Permission(ENDPOINT_SLICES, "patch", _NOT_ANNOUNCED, False, SERVICE_CONTROLLER),
        Permission(NODES, "get", "a Node that is created again is noticed late", False, NODE_CONTROLLER),
        Permission(NODES, "list", "Nodes cannot be read", True, ALL),
        Permission(NODES, "watch", _POLLED, False, ALL),
        Permission(NODES, "patch", "new Nodes keep the uninitialized taint", True, NODES_OR_LIFECYCLE),
        Permission(NODES, "delete", "the Node of a deleted VM stays; delete it", False, LIFECYCLE_CONTROLLER),
        Permission(NODES, "patch", "Nodes get no addresses and are not initialized", True, NODE_CONTROLLER, "status"),
        Permission(EVENTS, "create", "there are no Events", False, ALL),
        Permission(NAMESPACES, "get", _NO_OWNER, False, ALL),
        Permission(CONFIG_MAPS, "get", _NO_MAPPING, False, MAPPING),
        Permission(CONFIG_MAPS, "list", "Services with a network wait for their device", False, ALL),
        Permission(CONFIG_MAPS, "watch", _POLLED, False, ALL),
        Permission(CONFIG_MAPS, "create", _NO_MAPPING, False, MAPPING),
        Permission(CONFIG_MAPS, "update", _NO_MAPPING, False, MAPPING),
        Permission(TOKEN_REVIEWS, "create", _NO_METRICS, False, METRICS),
        Permission(SUBJECT_ACCESS_REVIEWS, "create", _NO_METRICS, False, METRICS),
        Permission(LEASES, "get", _NO_LEASE, True, ELECTION),
        Permission(LEASES, "create", _NO_LEASE, True, ELECTION),
        Permission(LEASES, "update", _NO_LEASE, True, ELECTION),
    ),
}
"""By cluster, those of one kind of object next to each other."""


def permissions_of(cluster: str, settings: Settings) -> list[Permission]:
    """Return the permissions that the controller uses with these settings."""
    parts = _parts(settings)
    return [one for one in PERMISSIONS[cluster] if one.used_by in parts]


async def check_permissions(client: ApiClient, where: str, settings: Settings, user: str) -> list[Check]:
    """Return a check for each kind of object."""
    used = permissions_of(where, settings)
    granted = await asyncio.gather(*(ask(_is_granted(client, where, one, settings)) for one in used))
    who = f"to {user}" if user else "to the user of the kubeconfig"
    grantee = f"{who}: install the chart of this version, or add it to its ClusterRole"
    if where == HARVESTER:
        grantee = f"{who}: {rbac_hint(client.namespace)}"
    reviewed = groupby(zip(used, granted, strict=True), key=lambda pair: pair[0].title)
    return [Check(where, title, *_judged(list(pairs), grantee)) for title, pairs in reviewed]


async def _is_granted(client: ApiClient, where: str, permission: Permission, settings: Settings) -> bool:
    namespace, name = permission.name(settings)
    attributes = {
        "namespace": client.namespace if where == HARVESTER else namespace,
        "verb": permission.verb,
        "group": permission.resource.group,
        "resource": permission.resource.plural,
        "subresource": permission.subresource,
        "name": name,
    }
    known = {key: value for key, value in attributes.items() if value}
    return (await ask_review(client, ACCESS_REVIEWS, {"resourceAttributes": known})).allowed


def _judged(reviewed: Iterable[tuple[Permission, bool | CCMError]], grantee: str) -> Finding:
    """Check the permissions on one kind of object; ``grantee`` says where to grant what is missing."""
    pairs = list(reviewed)
    verbs = ", ".join(one.verb for one, _ in pairs)
    missing = [one for one, granted in pairs if granted is False]
    if missing:
        effects = "; ".join(f"{one.verb}: {one.effect}" for one in missing)
        if len(missing) == len(pairs) > 1:
            worst = next((one for one in missing if one.required), missing[0])
            effects = f"do anything ({verbs}): {worst.effect}"
        group = f" ({missing[0].resource.group})" if missing[0].resource.group else ""
        advice = f"Grant {', '.join(one.verb for one in missing)} on {missing[0].title}{group} {grantee}"
        result = Result.FAILED if any(one.required for one in missing) else Result.WARNING
        return result, f"may not {effects}", advice
    unknown = next((granted for _, granted in pairs if isinstance(granted, CCMError)), None)
    if isinstance(unknown, Forbidden):
        return Result.SKIPPED, f"unknown: {unknown}", ""
    if unknown is not None:
        advice = "The controller does not work while this server is like that. Check its health and its load"
        return Result.FAILED, f"unknown: {unknown}", advice
    return Result.OK, f"may {verbs}", ""
