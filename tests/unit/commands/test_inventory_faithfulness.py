"""The explanations rest on what the running program does: same snapshot, same verdicts, same words."""

from __future__ import annotations

import msgspec

from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.rights import GUEST, HARVESTER, collections_of
from harvester_ccm.controllers.service import ServiceCaches
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES, Service
from harvester_ccm.model.harvester import (
    INSTANCES,
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    LoadBalancer,
)
from harvester_ccm.model.meta import Page
from harvester_ccm.names import LB_SERVICE_UUID
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES
from harvester_ccm.plan.service.snapshot import LOAD_BALANCER_INDEXES, SERVICE_INDEXES, observe
from tests.unit.commands import objects

CLUSTER = ClusterIdentity("demo", objects.VMS, objects.CLUSTER_UID)


def decoded(document: objects.Json) -> Service:
    return SERVICES.decode(msgspec.json.encode(document))


def load_balancer(document: objects.Json) -> LoadBalancer:
    return LOAD_BALANCERS.decode(msgspec.json.encode(document))


def services() -> tuple[Service, ...]:
    """A primary, two that share its address, one that has left it, and one that has nothing to do with it."""
    shares = {"cloudprovider.harvesterhci.io/primary-service": "shop/main"}
    left = objects.service("left", uid="4")
    left["metadata"]["labels"] = {"cloudprovider.harvesterhci.io/primary-service": "shop.main"}
    documents = (
        objects.service("main", uid="1"),
        objects.service("second", uid="2", annotations=shares),
        objects.service("third", uid="3", annotations=shares),
        left,
        objects.service("other", uid="5"),
    )
    return tuple(decoded(document) for document in documents)


async def test_lists_and_caches_show_the_same_situation() -> None:
    balancers = tuple(
        load_balancer(document)
        for document in (
            objects.balancer(of="shop/main", uid="1"),
            objects.balancer("before", of="shop/main", uid="0"),
            objects.balancer(of="shop/elsewhere", uid="5", name="named"),
            objects.balancer(of="shop/elsewhere", name="earlier", annotations={LB_SERVICE_UUID: "5"}),
        )
    )
    node = objects.node()
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    inventory = Inventory(
        services=services(),
        nodes=(NODES.decode(msgspec.json.encode(node)),),
        load_balancers=balancers,
        vms=(VIRTUAL_MACHINES.decode(msgspec.json.encode(objects.machine())),),
    )
    caches = caches_of(inventory)
    for service in inventory.services:
        listed = inventory.service_store(CLUSTER)
        assert observe(listed, service, CLUSTER) == observe(caches, service, CLUSTER)


def caches_of(inventory: Inventory) -> ServiceCaches:
    """Return caches that hold the inventory, as after their first list."""
    credentials = Credentials("http://127.0.0.1:1", "", None, FixedToken(None))
    client = ApiClient(credentials, cluster="none")
    caches = ServiceCaches(
        services=Informer(client, SERVICES, indexes=SERVICE_INDEXES),
        load_balancers=Informer(client, LOAD_BALANCERS, indexes=LOAD_BALANCER_INDEXES),
        vms=VMCache(
            Informer(client, NODES, indexes=NODE_INDEXES),
            Informer(client, VIRTUAL_MACHINES, indexes=VM_INDEXES),
            Informer(client, INSTANCES, indexes=VMI_INDEXES),
            CLUSTER,
        ),
        config_maps=Informer(client, CONFIG_MAPS),
    )
    caches.services._replace_all(Page(inventory.services, "100"))
    caches.load_balancers._replace_all(Page(inventory.load_balancers, "100"))
    caches.vms.nodes._replace_all(Page(inventory.nodes, "100"))
    caches.vms.vms._replace_all(Page(inventory.vms, "100"))
    nodes = caches.vms.nodes, caches.vms.vms, caches.vms.vmis
    for informer in (caches.services, *nodes, caches.config_maps, caches.load_balancers):
        informer._synced.set()
    caches.refresh_backends()
    return caches


def test_every_verb_that_is_sent_is_checked() -> None:
    """The rights that the two published roles and this project's additions give are all that the program may use."""
    settings = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
    verbs = {
        (cluster, collection.title): {right.verb for right in collection.rights}
        for cluster in (HARVESTER, GUEST)
        for collection in collections_of(cluster, settings)
    }
    assert verbs[HARVESTER, "loadbalancers"] == {"get", "list", "watch", "create", "update", "delete"}
    assert verbs[GUEST, "nodes"] == {"get", "list", "watch", "patch", "delete"}
    assert "patch" not in verbs[HARVESTER, "loadbalancers"]
    quiet = ["--cloud-config=x", "--leader-elect=false", "--secure-port=0", "--controllers=service-lb-controller"]
    less = collections_of(GUEST, build_settings(parse_command_line(quiet), {}))
    assert {one.title for one in less}.isdisjoint({"leases", "tokenreviews", "nodes/status"})
