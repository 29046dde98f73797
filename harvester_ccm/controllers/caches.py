"""The caches of both clusters, one object for all controllers, and what follows from several of them."""

from collections.abc import Callable
from typing import Any, Final

import structlog

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES, ConfigMap, Node, Service
from harvester_ccm.model.harvester import (
    INSTANCES,
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    LoadBalancer,
    VirtualMachine,
    VirtualMachineInstance,
)
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.node.match import vm_names
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES, NodeStore
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.announcing.seen import receipt_node
from harvester_ccm.plan.service.load_balancer.vm_spec import backends_of
from harvester_ccm.plan.service.sharing.ranking import Rankings
from harvester_ccm.plan.service.store import LOAD_BALANCER_INDEXES, SERVICE_INDEXES, ServiceStore

_MAPPING: Final = f"metadata.name={NAD_MAPPING_NAME}"

log = structlog.get_logger(__name__)


class Caches(ServiceStore, NodeStore):
    """The stores of the controllers. They follow the clusters while the informers run."""

    def __init__(self, guest: ApiClient, harvester: ApiClient, cluster: ClusterIdentity) -> None:
        """``cluster`` has the namespace in Harvester; its UID can be set later, before the controllers start."""
        namespace = cluster.namespace
        self.cluster = cluster
        """The guest cluster."""
        self.services: Informer[Service] = Informer(guest, SERVICES, indexes=SERVICE_INDEXES)
        self.nodes: Informer[Node] = Informer(guest, NODES, indexes=NODE_INDEXES)
        self.config_maps: Informer[ConfigMap] = Informer(
            guest, CONFIG_MAPS, namespace=NAD_MAPPING_NAMESPACE, field_selector=_MAPPING
        )
        """Holds the ConfigMap that maps networks to devices, and no other one."""
        self.load_balancers: Informer[LoadBalancer] = Informer(
            harvester, LOAD_BALANCERS, namespace=namespace, indexes=LOAD_BALANCER_INDEXES
        )
        self.vms: Informer[VirtualMachine] = Informer(
            harvester, VIRTUAL_MACHINES, namespace=namespace, indexes=VM_INDEXES
        )
        self.vmis: Informer[VirtualMachineInstance] = Informer(
            harvester, INSTANCES, namespace=namespace, indexes=VMI_INDEXES
        )
        self.rankings = Rankings(self.services, cluster)
        self.unidentified: set[str] = set()
        """Names of the Nodes that only the host name of a guest can identify. The Node controller updates it."""
        self.on_backends: Callable[[], None] = lambda: None
        """Called when the nodes that may get traffic have changed."""
        self.on_pool_rights: Callable[[], None] = lambda: None
        """Called when addresses can be requested in other IP pools than before."""
        self.services.on_change(self._record_announcement)

    @property
    def of_guest(self) -> tuple[Informer[Any], ...]:
        """The caches that readiness requires of the guest cluster: older charts do not grant the ConfigMaps."""
        return (self.services, self.nodes)

    @property
    def of_harvester(self) -> tuple[Informer[Any], ...]:
        """The caches of Harvester."""
        return (self.load_balancers, self.vms, self.vmis)

    @property
    def all(self) -> tuple[Informer[Any], ...]:
        """All caches."""
        return (*self.of_guest, *self.of_harvester, self.config_maps)

    def refresh_backends(self) -> None:
        """Determine the nodes that may get traffic. The last ones stay until the VMs are known again."""
        if not self.nodes.synced:
            return
        backends = backends_of(self.nodes.all(), vm_names(self))
        if backends is None or backends == self.backends:
            return
        self.backends = backends
        self.on_backends()

    def set_pool_rights(self, rights: PoolRights) -> None:
        """Record in which IP pools an address can be requested."""
        if rights == self.pool_rights:
            return
        self.pool_rights = rights
        log.info("permission for requested addresses", pools=sorted(rights.names), all_pools=rights.are_all)
        self.on_pool_rights()

    def _record_announcement(self, old: Service | None, new: Service | None) -> None:
        if new is None or not receipt_node(new):
            return
        if old is None or not receipt_node(old):
            self.last_announced_at = loop_time()
