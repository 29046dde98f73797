"""The permissions that the controller uses, and which of them its account lacks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from harvester_ccm.commands.clusters import GUEST, HARVESTER, TITLES, request_or_error
from harvester_ccm.commands.states import Line, ObjectStatus, State, StatusReason
from harvester_ccm.config import Settings
from harvester_ccm.kube.builtin import EVENTS, LEASES, NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.objects import Resource
from harvester_ccm.kube.reviews import ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ask_review
from harvester_ccm.kube.tokens import token_claims
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, NODES, SERVICES
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.remedies import guest_rbac_hint, rbac_hint

_ACCOUNT: Final = "kube-system/harvester-cloud-provider"
"""ServiceAccount of the chart and of the manifests."""


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
_NOT_ANNOUNCED: Final = "kube-vip 1.2 might not announce an address that was switched or changed"
_NO_SLICES: Final = (
    "it is not known why kube-vip does not announce a Service, and kube-vip 1.2 might not announce a changed address"
)
_NO_OWNER: Final = "load balancers have no owner annotation, so clusters of one name share them and orphans stay"
_NO_METRICS: Final = "no client can read /metrics of the controller"
_NO_HOSTNAME: Final = "new Nodes are not found by host name"
_STALE: Final = "load balancers are never kept up to date: address, owner, listeners, backends"
NO_LEASE: Final = "the controller does nothing without its Lease"

PERMISSIONS: Final = {
    HARVESTER: (
        Permission(LOAD_BALANCERS, "get", True, _STALE),
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
        Permission(SERVICES, "get", True, "load balancers are never deleted, and no deletion of a Service finishes"),
        Permission(SERVICES, "list", True, "Services cannot be read"),
        Permission(SERVICES, "watch", False, _POLLED),
        Permission(SERVICES, "patch", True, "no Service gets an address, and no deletion finishes", "status"),
        Permission(ENDPOINT_SLICES, "list", False, _NO_SLICES),
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
        Permission(LEASES, "get", True, NO_LEASE),
        Permission(LEASES, "create", True, NO_LEASE),
        Permission(LEASES, "update", True, NO_LEASE),
    ),
}
"""The verbs that a controller sends, by cluster, those of one kind of object next to each other.

``tests/apiserver/test_commands_preflight.py`` removes each one in turn. Each is checked with a SelfSubjectAccessReview,
which considers every authorizer of the API server.
"""


def permissions_of(cluster: str, settings: Settings) -> list[Permission]:
    """Return the permissions that the controller uses; the Lease is not used without leader election."""
    return [
        permission
        for permission in PERMISSIONS[cluster]
        if settings.leader_election.enabled or permission.resource is not LEASES
    ]


class Account(Struct, frozen=True):
    """The ServiceAccount of the controller in the guest cluster."""

    name: str
    """``namespace/name``."""
    is_own: bool
    """Whether the credential of the command is its own."""

    @property
    def subject(self) -> Mapping[str, object]:
        """Whom a review is about; empty for the one who asks."""
        if self.is_own:
            return {}
        namespace, _, name = self.name.partition("/")
        groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        return {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}


def account_of(guest: ApiClient, *, is_in_pod: bool) -> Account:
    """Return the account of the controller: the one of this credential in its pod, else that of chart and manifests.

    Elsewhere the command can have the credential of any user, of whom nothing is expected.
    """
    _, present = token_claims(guest.credentials.token.get())
    is_own = bool(present) and (is_in_pod or present == _ACCOUNT)
    return Account(present if is_own else _ACCOUNT, is_own=is_own)


async def is_granted(
    client: ApiClient, permission: Permission, settings: Settings, subject: Mapping[str, object]
) -> bool:
    """Return whether an account has a permission: ``subject`` of ``Account``, or the one who asks if it is empty."""
    namespace, name = permission.name(settings)
    attributes = {
        "namespace": client.namespace if client.cluster == HARVESTER else namespace,
        "verb": permission.verb,
        "group": permission.resource.group,
        "resource": permission.resource.plural,
        "subresource": permission.subresource,
        "name": name,
    }
    known = {key: value for key, value in attributes.items() if value}
    kind = SUBJECT_ACCESS_REVIEWS if subject else ACCESS_REVIEWS
    return (await ask_review(client, kind, {"resourceAttributes": known, **subject})).allowed


def what_is_missing(missing: Sequence[Permission], grantee: str) -> tuple[str, str]:
    """Return what cannot be done without permissions on one kind of object, and what to grant."""
    effects = "; ".join(f"{permission.verb}: {permission.effect}" for permission in missing)
    verbs = ", ".join(permission.verb for permission in missing)
    first = missing[0]
    group = f" ({first.resource.group})" if first.resource.group else ""
    return f"cannot {effects}", f"Grant {verbs} on {first.title}{group} {grantee}"


async def missing_in_harvester(client: ApiClient, settings: Settings) -> list[Line]:
    """Return what the account of the cloud-config must be permitted and is not, a line for each kind of object."""
    missing = await _denied(client, settings, {})
    return list(_lines(HARVESTER, missing, f"to the account of the cloud-config: {rbac_hint(client.namespace)}"))


async def missing_in_guest(client: ApiClient, settings: Settings, account: Account) -> list[Line]:
    """Return what the account of the controller must be permitted and is not, a line for each kind of object.

    Another account than that of the command is certainly the controller's only if it may write the Lease. What is wrong
    with the Lease is a problem of its own.
    """
    denied = await _denied(client, settings, account.subject)
    missing = [permission for permission in denied if permission.resource is not LEASES]
    may_lead = settings.leader_election.enabled and missing == denied
    if not account.is_own and not may_lead:
        return []
    return list(_lines(GUEST, missing, f"to ServiceAccount {account.name}: {guest_rbac_hint()}"))


async def _denied(client: ApiClient, settings: Settings, subject: Mapping[str, object]) -> list[Permission]:
    """Return the permissions without which the controller is of no use, and that are denied for sure."""
    required = [permission for permission in permissions_of(client.cluster, settings) if permission.required]
    granted = await asyncio.gather(
        *(request_or_error(is_granted(client, permission, settings, subject)) for permission in required)
    )
    return [permission for permission, answer in zip(required, granted, strict=True) if answer is False]


def _lines(where: str, missing: Sequence[Permission], grantee: str) -> Iterator[Line]:
    name = TITLES[where].removeprefix("the ").capitalize()
    for _, same in groupby(missing, key=lambda permission: permission.title):
        cause, fix = what_is_missing(list(same), grantee)
        reason = StatusReason("PermissionMissing", f"The controller {cause}. {fix}")
        yield name, ObjectStatus(State.NONE, reasons=(reason,))
