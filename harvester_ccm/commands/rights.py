"""The permissions that the controller uses, the effect of each missing one, and which of them a credential has.

A verb is listed if a controller sends it; ``tests/apiserver/test_commands_preflight.py`` removes each one in turn.
Each is checked with a SelfSubjectAccessReview, which considers every authorizer of the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.commands.clusters import HARVESTER, ask
from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, OrphanPolicy, Settings
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.reviews import ACCESS_REVIEWS, ask_review
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, EVENTS, LEASES, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.meta import Resource
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE

POLLED: Final = "changes are noticed late: the list is read again every minute"

ORPHANS: Final = "orphans"
"""Load balancers without a Service are deleted."""
MAPPING: Final = "mapping"
"""The network to device ConfigMap is kept."""
GUESTS: Final = "guests"
"""Guest agents are asked for host names."""
METRICS: Final = "metrics"
ELECTION: Final = "election"


def _parts_in_use(settings: Settings) -> frozenset[str]:
    """Return the controllers and the other parts of the program that the flags switch on."""
    controllers = settings.controllers
    switched = {
        ORPHANS: SERVICE_CONTROLLER in controllers and settings.services.orphan_lbs is OrphanPolicy.DELETE,
        MAPPING: NODE_CONTROLLER in controllers and settings.nodes.vmi_controller,
        GUESTS: NODE_CONTROLLER in controllers and settings.nodes.asks_guests,
        METRICS: settings.server.port != 0,
        ELECTION: settings.leader_election.enabled,
    }
    return frozenset({*controllers, *(part for part, on in switched.items() if on)})


class Right(Struct, frozen=True):
    """One verb on one kind of object."""

    verb: str
    loss: str
    """What does not work without it."""
    required: bool = True
    """Whether the program is of no use without it; otherwise it does the rest."""
    parts: tuple[str, ...] = ()
    """Parts of the program that use it, any of which will do; empty: it is always used."""

    @property
    def named(self) -> bool:
        """Whether it is asked for the one object of the collection that is used; what is created has no name yet."""
        return self.verb != "create"


class Collection(Struct, frozen=True):
    """The rights on one kind of object."""

    group: str
    resource: str
    rights: tuple[Right, ...]
    """In the order in which they are shown."""
    subresource: str = ""
    namespace: str = ""
    """Namespace in the guest; empty: all of them. In Harvester it is always that of the cloud-config."""
    name: str = ""
    """The one object that is used; empty: all."""

    @property
    def title(self) -> str:
        """``resource`` or ``resource/subresource``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def _of(kind: Resource[Any], *rights: Right, subresource: str = "", namespace: str = "", name: str = "") -> Collection:
    return Collection(kind.group, kind.plural, rights, subresource, namespace, name)


def _must(verb: str, loss: str, *parts: str) -> Right:
    return Right(verb, loss, True, parts)


def _should(verb: str, loss: str, *parts: str) -> Right:
    return Right(verb, loss, False, parts)


def _watched(what: str, *parts: str) -> tuple[Right, Right]:
    return _must("list", f"{what} cannot be read", *parts), _should("watch", POLLED, *parts)


_NO_MAPPING: Final = "the network to device ConfigMap is not kept, so Services with a network wait for their device"
_SILENT: Final = "kube-vip stays silent after an address was switched or changed, which an Event then says"
_NO_METRICS: Final = _should("create", "nobody can read /metrics of this program", METRICS)
_NO_LEASE: Final = "the program waits for its Lease for ever and does nothing"
_EITHER: Final = (NODE_CONTROLLER, LIFECYCLE_CONTROLLER)

_GUEST_COLLECTIONS: Final[tuple[Collection, ...]] = (
    _of(
        SERVICES,
        _should("get", "load balancers whose Service is gone are never deleted", ORPHANS),
        *_watched("Services"),
    ),
    _of(
        SERVICES,
        _must("patch", "no Service gets an address, and a deleted one is never let go", SERVICE_CONTROLLER),
        subresource="status",
    ),
    _of(ENDPOINT_SLICES, *(_should(verb, _SILENT, SERVICE_CONTROLLER) for verb in ("list", "patch"))),
    _of(
        NODES,
        _should("get", "a Node that is created anew under its name is noticed late", NODE_CONTROLLER),
        *_watched("Nodes"),
        _must("patch", "new Nodes are never initialised and keep the uninitialized taint", *_EITHER),
        _should("delete", "the Node of a VM that is gone stays; delete it by hand", LIFECYCLE_CONTROLLER),
    ),
    _of(
        NODES, _must("patch", "Nodes get no addresses and are never initialised", NODE_CONTROLLER), subresource="status"
    ),
    _of(EVENTS, _should("create", "users are told nothing: no Events")),
    _of(
        NAMESPACES,
        _should(
            "get",
            "load balancers carry no owner mark, so clusters of one name are not told apart and left-over load "
            "balancers are not deleted",
        ),
        name="kube-system",
    ),
    _of(
        CONFIG_MAPS,
        _should("get", _NO_MAPPING, MAPPING),
        _should("list", "Services with a network wait for their device"),
        _should("watch", POLLED),
        _should("create", _NO_MAPPING, MAPPING),
        _should("update", _NO_MAPPING, MAPPING),
        namespace=NAD_MAPPING_NAMESPACE,
        name=NAD_MAPPING_NAME,
    ),
    Collection("authentication.k8s.io", "tokenreviews", (_NO_METRICS,)),
    Collection("authorization.k8s.io", "subjectaccessreviews", (_NO_METRICS,)),
)
"""Rights in the guest cluster, without those on the Lease, which flags name."""

_LEASE_RIGHTS: Final = tuple(_must(verb, _NO_LEASE, ELECTION) for verb in ("get", "create", "update"))

_HARVESTER_COLLECTIONS: Final[tuple[Collection, ...]] = (
    _of(
        LOAD_BALANCERS,
        _should("get", "a load balancer that is there already is not taken up at once", SERVICE_CONTROLLER),
        *_watched("load balancers"),
        _must("create", "no Service gets a load balancer", SERVICE_CONTROLLER),
        _must(
            "update",
            "load balancers are never kept up to date: address, owner, listeners, backends",
            SERVICE_CONTROLLER,
        ),
        _must("delete", "load balancers and their addresses stay when a Service is deleted", SERVICE_CONTROLLER),
    ),
    _of(
        VIRTUAL_MACHINES,
        _should("get", "the Node of a VM that is gone is never deleted", LIFECYCLE_CONTROLLER),
        *_watched("VMs"),
    ),
    _of(INSTANCES, *_watched("VM instances, and with them the addresses of Nodes,")),
    _of(
        GUEST_OS_INFO,
        _should("get", "a Node is found only if its VM has the Node's name or system UUID", GUESTS),
        subresource="guestosinfo",
    ),
)


def collections_of(cluster: str, settings: Settings) -> tuple[Collection, ...]:
    """Return the rights that a run with these settings uses, one entry per kind of object."""
    election, parts = settings.leader_election, _parts_in_use(settings)
    lease = _of(LEASES, *_LEASE_RIGHTS, namespace=election.namespace, name=election.name)
    table = _HARVESTER_COLLECTIONS if cluster == HARVESTER else (*_GUEST_COLLECTIONS, lease)
    used = (
        replace(one, rights=tuple(right for right in one.rights if not right.parts or parts.intersection(right.parts)))
        for one in table
    )
    return tuple(one for one in used if one.rights)


async def review(
    client: ApiClient, collections: Iterable[Collection], namespace: str
) -> dict[str, list[tuple[Right, bool | CCMError]]]:
    """Return for each collection, by title, which permissions are granted; ``namespace`` is that of Harvester."""
    placed = [(one, right) for one in collections for right in one.rights]
    answers = await asyncio.gather(*(ask(_is_granted(client, one, right, namespace)) for one, right in placed))
    found: dict[str, list[tuple[Right, bool | CCMError]]] = {}
    for (one, right), answer in zip(placed, answers, strict=True):
        found.setdefault(one.title, []).append((right, answer))
    return found


async def _is_granted(client: ApiClient, collection: Collection, right: Right, namespace: str) -> bool:
    attributes = {
        "namespace": namespace or collection.namespace,
        "verb": right.verb,
        "group": collection.group,
        "resource": collection.resource,
        "subresource": collection.subresource,
        "name": collection.name if right.named else "",
    }
    known = {key: value for key, value in attributes.items() if value}
    return (await ask_review(client, ACCESS_REVIEWS, {"resourceAttributes": known})).allowed
