"""Everything that an explanation rests on: objects of both clusters, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property, partial

from msgspec import Struct, field

from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, CredentialError, Unauthorized, Unreachable
from harvester_ccm.model.core import NODES, SERVICES, ConfigMap, Node, Service
from harvester_ccm.model.harvester import (
    INSTANCES,
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    LoadBalancer,
    VirtualMachine,
    VirtualMachineInstance,
)
from harvester_ccm.model.meta import Store
from harvester_ccm.plan.node.match import node_matches
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES
from harvester_ccm.plan.service.backends import Backends
from harvester_ccm.plan.service.scope import is_our_harvester
from harvester_ccm.plan.service.snapshot import LOAD_BALANCER_INDEXES, SERVICE_INDEXES, ListedStore
from harvester_ccm.plan.service.virtual_ips import (
    VIRTUAL_IP,
    VirtualIPIndex,
    virtual_ips_of_load_balancer,
    virtual_ips_of_service,
)


class Inventory(Struct, frozen=True):
    """Objects of both clusters. Nothing in it is looked up later: what is not here is not known."""

    services: tuple[Service, ...] = ()
    nodes: tuple[Node, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    cluster_uid: str = ""
    """UID of the guest's kube-system namespace; empty while it is not known."""
    namespace: str = ""
    """The one in Harvester."""
    load_balancers: tuple[LoadBalancer, ...] = ()
    vms: tuple[VirtualMachine, ...] = ()
    vmis: tuple[VirtualMachineInstance, ...] = ()
    unread: frozenset[str] = frozenset()
    """VMs and VMIs that are there and could not be decoded."""
    hostnames: Mapping[str, str] = field(default_factory=dict)
    """VM name to what its guest agent says."""
    problems: Mapping[str, CCMError] = field(default_factory=dict)
    """Why a collection could not be read, by the plural of its resource."""
    taken: datetime = field(default_factory=partial(datetime.now, UTC))
    """The time when the objects were read, by which they are judged."""

    @property
    def harvester_away(self) -> CCMError | None:
        """Why nothing at all is known of Harvester; None where only a part of it cannot be read."""
        error = self.problems.get(LOAD_BALANCERS.plural)
        return error if isinstance(error, Unreachable | Unauthorized | CredentialError) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, and why; without the reason for which Harvester as a whole cannot be read."""
        away, plurals = str(self.problems.get(LOAD_BALANCERS.plural, "")), dict[str, list[str]]()
        for plural, error in self.problems.items():
            plurals.setdefault(str(error), []).append(plural)
        return tuple(f"cannot read {', '.join(names)}: {text}" for text, names in plurals.items() if text != away)

    def node_store(self, settings: Settings) -> ListedNodes:
        """Return what is read of Nodes and VMs."""
        return ListedNodes(self, ClusterIdentity.of(settings, self.namespace))

    def service_store(self, cluster: ClusterIdentity) -> ListedStore:
        """Return what is read of Services and of what they depend on, with indexes."""
        problem, nodes = self.problems.get, ListedNodes(self, cluster)
        services = Store(self.services, SERVICE_INDEXES, problem=problem(SERVICES.plural))
        balancers = Store(self.load_balancers, LOAD_BALANCER_INDEXES, problem=problem(LOAD_BALANCERS.plural))
        # That there is no Node follows from a list only.
        known = NODES.plural not in self.problems
        return ListedStore(
            services=services,
            load_balancers=balancers,
            config_maps=Store(self.config_maps),
            backends=Backends.of(self.nodes, node_matches(nodes)) if known else Backends(known=False),
            our_harvester=is_our_harvester(services, balancers, nodes.nodes, nodes.vms, cluster),
        )


class ListedNodes(Struct, frozen=True, dict=True):
    """Nodes and VMs of an inventory: the ``NodeStore`` of a command."""

    inventory: Inventory
    cluster: ClusterIdentity

    @cached_property
    def nodes(self) -> Store[Node]:
        """The Nodes of this cluster."""
        return Store(self.inventory.nodes, NODE_INDEXES)

    @cached_property
    def vms(self) -> Store[VirtualMachine]:
        """The VMs of the Harvester namespace."""
        inventory = self.inventory
        return Store(inventory.vms, VM_INDEXES, problem=inventory.problems.get(VIRTUAL_MACHINES.plural))

    @cached_property
    def vmis(self) -> Store[VirtualMachineInstance]:
        """Their VMIs."""
        return Store(self.inventory.vmis, VMI_INDEXES, problem=self.inventory.problems.get(INSTANCES.plural))

    @property
    def hostnames(self) -> Mapping[str, str]:
        """VM name to the host name of its guest."""
        return self.inventory.hostnames

    @cached_property
    def virtual_ips(self) -> VirtualIPIndex:
        """The addresses of load balancers."""
        inventory = self.inventory
        problem = inventory.problems.get(LOAD_BALANCERS.plural)
        balancers = Store(inventory.load_balancers, {VIRTUAL_IP: virtual_ips_of_load_balancer}, problem=problem)
        return VirtualIPIndex(Store(inventory.services, {VIRTUAL_IP: virtual_ips_of_service}), balancers)
