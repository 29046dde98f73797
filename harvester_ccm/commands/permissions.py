"""Every right that the running program uses, and what is lost without it.

A verb stands here when a controller sends it; ``tests/apiserver/test_commands_preflight.py`` takes each away in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from harvester_ccm.config import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, SERVICE_CONTROLLER, OrphanPolicy, Settings
from harvester_ccm.model.core import CONFIG_MAPS, EVENTS, LEASES, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE

GUEST: Final = "guest"
HARVESTER: Final = "harvester"

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
"""In the order in which they are shown."""
POLLED: Final = "changes are noticed late: the list is read again every 10 to 60 seconds"


@dataclass(frozen=True)
class Right:
    """One verb on one kind of object."""

    verb: str
    loss: str
    """What does not work without it."""
    required: bool = True
    """Whether the program is of no use without it; otherwise it does the rest."""
    named: bool = True
    """Whether it is asked for the one object of the collection that is used, where there is one."""


@dataclass(frozen=True)
class Collection:
    """The rights on one kind of object."""

    cluster: str
    group: str
    resource: str
    rights: tuple[Right, ...]
    subresource: str = ""
    namespace: str = ""
    """Namespace in the guest; empty: all of them. In Harvester it is always that of the cloud-config."""
    name: str = ""
    """The one object that is used; empty: all."""
    used: Callable[[Settings], bool] = field(default=lambda _settings: True)
    """Whether the flags have the program use it."""

    @property
    def title(self) -> str:
        """``resource`` or ``resource/subresource``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def _watched(what: str, *, required: bool = True) -> tuple[Right, Right]:
    return Right("list", f"{what} cannot be read", required), Right("watch", POLLED, required=False)


def _serves(settings: Settings) -> bool:
    return SERVICE_CONTROLLER in settings.controllers


def _keeps_nodes(settings: Settings) -> bool:
    return NODE_CONTROLLER in settings.controllers


def _ends_nodes(settings: Settings) -> bool:
    return LIFECYCLE_CONTROLLER in settings.controllers


def _touches_nodes(settings: Settings) -> bool:
    return _keeps_nodes(settings) or _ends_nodes(settings)


def _follows_machines(settings: Settings) -> bool:
    return _keeps_nodes(settings) and settings.nodes.vmi_controller


_MAPPING_LOSS: Final = "the network to device ConfigMap is not kept, so Services with a network get no device"

GUEST_COLLECTIONS: Final[tuple[Collection, ...]] = (
    Collection(
        GUEST,
        SERVICES.group,
        SERVICES.plural,
        _watched("Services"),
    ),
    Collection(
        GUEST,
        SERVICES.group,
        SERVICES.plural,
        (Right("get", "load balancers whose Service is gone are never deleted", required=False),),
        used=lambda settings: _serves(settings) and settings.services.orphan_lbs is OrphanPolicy.DELETE,
    ),
    Collection(
        GUEST,
        SERVICES.group,
        SERVICES.plural,
        (Right("patch", "no Service gets an address, and a deleted one is never let go"),),
        subresource="status",
        used=_serves,
    ),
    Collection(GUEST, NODES.group, NODES.plural, _watched("Nodes")),
    Collection(
        GUEST,
        NODES.group,
        NODES.plural,
        (Right("patch", "new Nodes are never initialised and keep the uninitialized taint"),),
        used=_touches_nodes,
    ),
    Collection(
        GUEST,
        NODES.group,
        NODES.plural,
        (Right("get", "a Node that is created anew under its name is noticed late", required=False),),
        used=_keeps_nodes,
    ),
    Collection(
        GUEST,
        NODES.group,
        NODES.plural,
        (Right("delete", "the Node of a VM that is gone stays; delete it by hand", required=False),),
        used=_ends_nodes,
    ),
    Collection(
        GUEST,
        NODES.group,
        NODES.plural,
        (Right("patch", "Nodes get no addresses and are never initialised"),),
        subresource="status",
        used=_keeps_nodes,
    ),
    Collection(
        GUEST,
        EVENTS.group,
        EVENTS.plural,
        (
            Right("create", "users are told nothing: no Events", required=False),
            Right("patch", "an Event that repeats is written anew each time", required=False),
        ),
    ),
    Collection(
        GUEST,
        NAMESPACES.group,
        NAMESPACES.plural,
        (
            Right(
                "get",
                "load balancers carry no owner mark, so clusters of one name are not told apart and left-over load "
                "balancers are not deleted",
                required=False,
            ),
        ),
        name="kube-system",
    ),
    Collection(
        GUEST,
        CONFIG_MAPS.group,
        CONFIG_MAPS.plural,
        (
            Right("list", "Services with a network get no device for kube-vip", required=False),
            Right("watch", POLLED, required=False),
        ),
        namespace=NAD_MAPPING_NAMESPACE,
        name=NAD_MAPPING_NAME,
    ),
    Collection(
        GUEST,
        CONFIG_MAPS.group,
        CONFIG_MAPS.plural,
        (
            Right("get", _MAPPING_LOSS, required=False),
            Right("create", _MAPPING_LOSS, required=False, named=False),
            Right("update", _MAPPING_LOSS, required=False),
        ),
        namespace=NAD_MAPPING_NAMESPACE,
        name=NAD_MAPPING_NAME,
        used=_follows_machines,
    ),
    Collection(
        GUEST,
        "authentication.k8s.io",
        "tokenreviews",
        (Right("create", "nobody can read /metrics of this program", required=False),),
        used=lambda settings: settings.server.port != 0,
    ),
    Collection(
        GUEST,
        "authorization.k8s.io",
        "subjectaccessreviews",
        (Right("create", "nobody can read /metrics of this program", required=False),),
        used=lambda settings: settings.server.port != 0,
    ),
)
"""Rights in the guest cluster; the Lease is added by ``collections_of``, because flags name it."""

HARVESTER_COLLECTIONS: Final[tuple[Collection, ...]] = (
    Collection(
        HARVESTER,
        LOAD_BALANCERS.group,
        LOAD_BALANCERS.plural,
        _watched("load balancers"),
    ),
    Collection(
        HARVESTER,
        LOAD_BALANCERS.group,
        LOAD_BALANCERS.plural,
        (
            Right("get", "a load balancer that is there already is not taken up at once", required=False),
            Right("create", "no Service gets a load balancer"),
            Right("update", "load balancers are never kept up to date: address, owner, listeners, backends"),
            Right("delete", "load balancers and their addresses stay when a Service is deleted"),
        ),
        used=_serves,
    ),
    Collection(HARVESTER, VIRTUAL_MACHINES.group, VIRTUAL_MACHINES.plural, _watched("VMs")),
    Collection(
        HARVESTER,
        VIRTUAL_MACHINES.group,
        VIRTUAL_MACHINES.plural,
        (Right("get", "the Node of a VM that is gone is never deleted", required=False),),
        used=_ends_nodes,
    ),
    Collection(
        HARVESTER,
        INSTANCES.group,
        INSTANCES.plural,
        _watched("VM instances, and with them the addresses of Nodes,"),
        used=_touches_nodes,
    ),
    Collection(
        HARVESTER,
        GUEST_OS_INFO.group,
        GUEST_OS_INFO.plural,
        (Right("get", "a Node is found only if its VM has the Node's name or system UUID", required=False),),
        subresource="guestosinfo",
        used=_follows_machines,
    ),
)


def collections_of(cluster: str, settings: Settings) -> tuple[Collection, ...]:
    """Return the rights that a run with these settings uses, one entry per kind of object."""
    if cluster == HARVESTER:
        return _joined(one for one in HARVESTER_COLLECTIONS if one.used(settings))
    return _joined((*(one for one in GUEST_COLLECTIONS if one.used(settings)), *_lease(settings)))


def _lease(settings: Settings) -> tuple[Collection, ...]:
    election = settings.leader_election
    if not election.enabled:
        return ()
    loss = "the program waits for its Lease for ever and does nothing"
    rights = (Right("get", loss), Right("create", loss, named=False), Right("update", loss))
    return (Collection(GUEST, LEASES.group, LEASES.plural, rights, namespace=election.namespace, name=election.name),)


def _joined(collections: Iterable[Collection]) -> tuple[Collection, ...]:
    """Return the entries with those of one kind of object put together."""
    joined: dict[str, Collection] = {}
    for one in collections:
        before = joined.get(one.title)
        rights = (*before.rights, *one.rights) if before else one.rights
        rights = tuple(sorted(rights, key=lambda right: VERBS.index(right.verb)))
        joined[one.title] = Collection(
            one.cluster, one.group, one.resource, rights, one.subresource, one.namespace, one.name
        )
    return tuple(joined.values())
