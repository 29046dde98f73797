"""What is read to explain one Service where not everything may be read."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.commands.clusters import Clusters
from harvester_ccm.commands.one_service import read_for, read_without_harvester
from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import PRIMARY_SERVICE
from tests.unit.commands import objects
from tests.worlds.memory_server import Call, MemoryClient, MemoryServer, refused

FORBIDDEN = refused(403, "Forbidden", "services is forbidden")


def one_by_one(call: Call) -> CCMError | None:
    """Refuse lists, and whatever is not in namespace shop."""
    return None if "/namespaces/shop/services/" in call.path else FORBIDDEN


def guest(*services: dict[str, Any]) -> MemoryClient:
    server = MemoryServer()
    for one in services:
        server.put(SERVICES, one)
    server.fault = one_by_one
    return MemoryClient(server, cluster="guest")


async def test_a_service_and_its_primary_are_asked_for_by_name() -> None:
    shares = objects.service("api", uid="api", annotations={PRIMARY_SERVICE: "shop/web"})
    clusters = Clusters(
        guest(shares, objects.service(), objects.service("other", uid="other")),
        MemoryClient(MemoryServer(), cluster="harvester", namespace=objects.VMS),
    )
    found = await read_for(clusters, "shop/api")
    assert [one.metadata.key for one in found.services] == ["shop/api", "shop/web"]
    assert SERVICES.plural not in found.problems
    assert [text.partition(":")[0] for text in found.assumptions][:2] == [
        "other Services may not be listed",
        "Nodes may not be read",
    ]
    # That no Node is known is no reason to say that there is none.
    assert not found.service_store(ClusterIdentity("demo", objects.VMS)).backends.known


async def test_a_primary_that_may_not_be_read_is_not_taken_for_none() -> None:
    shares = objects.service("api", uid="api", annotations={PRIMARY_SERVICE: "elsewhere/web"})
    with pytest.raises(CCMError, match="shares the address of elsewhere/web, which cannot be read"):
        await read_without_harvester(guest(shares), "shop/api")


async def test_without_a_cloud_config_nothing_is_known_of_harvester() -> None:
    found = await read_without_harvester(guest(objects.service()), "shop/web")
    assert "no --cloud-config was given" in str(found.problems[LOAD_BALANCERS.plural])
    assert not found.service_store(ClusterIdentity("demo", "")).load_balancers.synced


@pytest.mark.parametrize("plural", ["services", "nodes"])
async def test_other_faults_are_errors(plural: str) -> None:
    client = guest(objects.service())
    client.server.fault = lambda call: refused(500, "InternalError", "etcd") if call.path.endswith(plural) else None
    with pytest.raises(CCMError, match="etcd") as caught:
        await read_without_harvester(client, "shop/web")
    assert not isinstance(caught.value, Forbidden)
