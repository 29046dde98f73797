"""Commands observe what the controllers observe."""

import msgspec
import pytest

from harvester_ccm.commands.clusters import ClusterStore, rights_in
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.documents import Page
from harvester_ccm.kube.errors import Answer, Forbidden, KubeError, NotFound, NotServed, Unreachable
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.model.core import NODES, SERVICES, Service
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity, LoadBalancer
from harvester_ccm.names import LB_SERVICE_UUID
from harvester_ccm.plan.service.snapshot import observe
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


async def test_store_and_caches_have_the_same_snapshots() -> None:
    balancers = (
        objects.balancer(of="shop/main", uid="1"),
        objects.balancer("before", of="shop/main", uid="0"),
        objects.balancer(of="shop/elsewhere", uid="5", name="named"),
        objects.balancer(of="shop/elsewhere", name="earlier", annotations={LB_SERVICE_UUID: "5"}),
    )
    node = objects.node()
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    store = ClusterStore(
        CLUSTER,
        {
            SERVICES.plural: Page(services(), "100"),
            NODES.plural: Page((NODES.decode(msgspec.json.encode(node)),), "100"),
            LOAD_BALANCERS.plural: Page(tuple(map(load_balancer, balancers)), "100"),
            VIRTUAL_MACHINES.plural: Page((VIRTUAL_MACHINES.decode(msgspec.json.encode(objects.machine())),), "100"),
            INSTANCES.plural: Page((), "100"),
        },
    )
    caches = caches_of(store)
    for service in store.services.all():
        assert observe(store, service, CLUSTER) == observe(caches, service, CLUSTER)


def caches_of(store: ClusterStore) -> Caches:
    """Return caches that contain the store, as after their first list."""
    credentials = Credentials("http://127.0.0.1:1", "", None, TokenSource(None))
    client = ApiClient(credentials, cluster="none")
    caches = Caches(client, client, CLUSTER)
    caches.services._replace_all(Page(store.services.all(), "100"))
    caches.load_balancers._replace_all(Page(store.load_balancers.all(), "100"))
    caches.nodes._replace_all(Page(store.nodes.all(), "100"))
    caches.vms._replace_all(Page(store.vms.all(), "100"))
    for informer in caches.all:
        informer._synced.set()
    caches.pool_rights = store.pool_rights
    caches.refresh_backends()
    return caches


@pytest.mark.parametrize(
    ("problem", "are_known"),
    [
        (Forbidden(Answer(403, "", "no")), True),
        (NotFound(Answer(404, "", "not found")), True),
        (NotServed(Answer(404, "", "404 page not found")), False),
        (Unreachable("no route"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_review_that_a_server_refuses_grants_no_pool(problem: KubeError, *, are_known: bool) -> None:
    """As for the controller: an error that comes again is an answer."""
    rights = rights_in(problem)
    assert rights.are_known is are_known
    assert not rights.permit("lan")
