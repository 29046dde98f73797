"""The permissions that the controller uses, the effect of each missing one, and the check of those of a credential.

A verb is listed if a controller sends it; ``tests/apiserver/test_commands_preflight.py`` removes each one in turn.
Each is checked with a SelfSubjectAccessReview, which considers every authorizer of the API server.
"""

import asyncio
from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.commands.clusters import GUEST, HARVESTER, ask
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, Forbidden, rbac_hint
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.identity import ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ask_review
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, EVENTS, LEASES, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.meta import Resource
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE


class Result(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """The rest works."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not checked, because it depends on something that cannot be read."""


Finding = tuple[Result, str, str]
"""Result, detail, and what to do, which is empty if nothing is."""


class Check(Struct, frozen=True):
    """A check of ``preflight``."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    check: str
    result: Result
    detail: str
    advice: str = ""
    """Remedy."""


class Permission(Struct, frozen=True):
    """One verb on one kind of object."""

    resource: Resource[Any]
    verb: str
    required: bool
    """Whether the controller is of no use without it; otherwise the rest works."""
    effect: str
    """The effect of its absence."""
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


_POLLED: Final = "changes are noticed late: the list is read again every minute"
_NO_MAPPING: Final = "the network to device ConfigMap is not kept, so Services with a network wait for their device"
_NOT_ANNOUNCED: Final = "kube-vip does not announce an address that was switched or changed"
_NO_OWNER: Final = "load balancers have no owner annotation, so clusters of one name share them and orphans stay"
_NO_METRICS: Final = "no client can read /metrics of the controller"
_NO_HOSTNAME: Final = "a Node is found only if its VM has the Node's name or system UUID"
_STALE: Final = "load balancers are never kept up to date: address, owner, listeners, backends"
_NO_LEASE: Final = "the controller waits for its Lease forever and does nothing"

PERMISSIONS: Final = {
    HARVESTER: (
        Permission(LOAD_BALANCERS, "get", False, "an existing load balancer is not adopted at once"),
        Permission(LOAD_BALANCERS, "list", True, "load balancers cannot be read"),
        Permission(LOAD_BALANCERS, "watch", False, _POLLED),
        Permission(LOAD_BALANCERS, "create", True, "no Service gets a load balancer"),
        Permission(LOAD_BALANCERS, "update", True, _STALE),
        Permission(LOAD_BALANCERS, "delete", True, "load balancers and their addresses stay when a Service is deleted"),
        Permission(VIRTUAL_MACHINES, "get", False, "the Node of a deleted VM is never deleted"),
        Permission(VIRTUAL_MACHINES, "list", True, "VMs cannot be read"),
        Permission(VIRTUAL_MACHINES, "watch", False, _POLLED),
        Permission(INSTANCES, "list", True, "VM instances, and with them the addresses of Nodes, cannot be read"),
        Permission(INSTANCES, "watch", False, _POLLED),
        Permission(GUEST_OS_INFO, "get", False, _NO_HOSTNAME, "guestosinfo"),
    ),
    GUEST: (
        Permission(SERVICES, "get", False, "orphaned load balancers are never deleted"),
        Permission(SERVICES, "list", True, "Services cannot be read"),
        Permission(SERVICES, "watch", False, _POLLED),
        Permission(SERVICES, "patch", True, "no Service gets an address, and no deletion finishes", "status"),
        Permission(ENDPOINT_SLICES, "list", False, _NOT_ANNOUNCED),
        Permission(ENDPOINT_SLICES, "patch", False, _NOT_ANNOUNCED),
        Permission(NODES, "get", False, "a Node that is created again is noticed late"),
        Permission(NODES, "list", True, "Nodes cannot be read"),
        Permission(NODES, "watch", False, _POLLED),
        Permission(NODES, "patch", True, "new Nodes keep the uninitialized taint"),
        Permission(NODES, "delete", False, "the Node of a deleted VM stays; delete it"),
        Permission(NODES, "patch", True, "Nodes get no addresses and are not initialized", "status"),
        Permission(EVENTS, "create", False, "there are no Events"),
        Permission(NAMESPACES, "get", False, _NO_OWNER),
        Permission(CONFIG_MAPS, "get", False, _NO_MAPPING),
        Permission(CONFIG_MAPS, "list", False, "Services with a network wait for their device"),
        Permission(CONFIG_MAPS, "watch", False, _POLLED),
        Permission(CONFIG_MAPS, "create", False, _NO_MAPPING),
        Permission(CONFIG_MAPS, "update", False, _NO_MAPPING),
        Permission(TOKEN_REVIEWS, "create", False, _NO_METRICS),
        Permission(SUBJECT_ACCESS_REVIEWS, "create", False, _NO_METRICS),
        Permission(LEASES, "get", True, _NO_LEASE),
        Permission(LEASES, "create", True, _NO_LEASE),
        Permission(LEASES, "update", True, _NO_LEASE),
    ),
}
"""By cluster, those of one kind of object next to each other."""


def permissions_of(cluster: str, settings: Settings) -> list[Permission]:
    """Return the permissions that the controller uses; the Lease is not used without leader election."""
    return [one for one in PERMISSIONS[cluster] if settings.leader_election.enabled or one.resource is not LEASES]


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
        group = f" ({missing[0].resource.group})" if missing[0].resource.group else ""
        advice = f"Grant {', '.join(one.verb for one in missing)} on {missing[0].title}{group} {grantee}"
        result = Result.FAILED if any(one.required for one in missing) else Result.WARNING
        return result, f"may not {effects}", advice
    unknown = next((granted for _, granted in pairs if isinstance(granted, CCMError)), None)
    if unknown is not None:
        result = Result.SKIPPED if isinstance(unknown, Forbidden) else Result.FAILED
        return result, f"unknown: {unknown}", "Check the health and the load of this server"
    return Result.OK, f"may {verbs}", ""
