"""What others change about a load balancer or a Service: put right, told where it matters, never fought over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from devenv.demo.requests import ask
from devenv.guestnodes import GuestNodes
from devenv.stage import Stage, until
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import (
    HEALTH_CHECK_PORT,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_UID,
    SERVICE_FINALIZER,
    VM_NAME,
    WORKLOAD_TYPE,
    Reason,
)
from tests.e2e.observing import caught_up, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

HTTP = {"name": "http", "port": 8080, "protocol": "TCP"}
FRONT = ({"name": "other", "port": 9090, "protocol": "TCP", "backendPort": 30999},)


@pytest.fixture
async def nodes(stage: Stage) -> AsyncIterator[GuestNodes]:
    """One node of the guest."""
    async with GuestNodes(stage.guest, stage.host) as nodes:
        await nodes.add(1)
        yield nodes


async def the_load_balancer(stage: Stage) -> LoadBalancer:
    """Return the only load balancer once Harvester and the program have done all about it."""

    async def complete() -> LoadBalancer | None:
        found = await stage.load_balancers()
        return found[0] if len(found) == 1 and found[0].address and found[0].metadata.finalizers else None

    return await until(complete, within=60, what="complete load balancer")


async def edit(stage: Stage, name: str, patch: Mapping[str, object]) -> None:
    """Change a load balancer as an administrator of Harvester does."""
    await stage.host.merge_patch(LOAD_BALANCERS, name, patch, namespace="default")


async def repaired(stage: Stage, before: LoadBalancer) -> None:
    """Return when spec, labels and annotations are as before the edit."""

    async def same() -> bool:
        (now,) = await stage.load_balancers()
        kept, found = now.document(), before.document()
        return (kept["spec"], now.metadata.labels, now.metadata.annotations) == (
            found["spec"],
            before.metadata.labels,
            before.metadata.annotations,
        )

    await until(same, within=60, what="repaired load balancer")


async def test_deleted_load_balancer_comes_back_with_name_and_address(stage: Stage) -> None:
    await stage.create_service("web")
    before = await the_load_balancer(stage)
    await stage.host.delete(LOAD_BALANCERS, before.metadata.name, namespace="default")

    told = await stage.hears("web", Reason.RECREATING)
    after = await the_load_balancer(stage)
    assert told.type == "Warning"
    assert "No load balancer in Harvester has address 127.77.0.2" in told.message
    assert (after.metadata.name, after.address) == (before.metadata.name, "127.77.0.2")
    assert after.metadata.uid != before.metadata.uid
    (service,) = await stage.served("web")
    assert service.addresses == ("127.77.0.2",)
    await caught_up(stage)
    # It was announced all the time.
    assert [one.kind for one in stage.kube_vip.transitions] == ["announce"]
    assert await stage.told("web", Reason.ADDRESS_CHANGED) == []


async def test_deleted_vm_load_balancer_serves_again(stage: Stage, nodes: GuestNodes) -> None:
    service = await stage.create_service("web", ports=[HTTP], annotations={WORKLOAD_TYPE: "vm"})
    await nodes.listen(service)
    before = await the_load_balancer(stage)
    assert await ask("TCP", before.address, 8080) == "node-1"
    await stage.host.delete(LOAD_BALANCERS, before.metadata.name, namespace="default")

    async def anew() -> bool:
        (now,) = await stage.load_balancers() or (before,)
        return now.metadata.uid != before.metadata.uid and now.address == before.address

    await until(anew, within=60, what="another load balancer with the same address")
    key = f"default/{before.metadata.name}"

    async def serves() -> bool:
        # Harvester's clean-up of the old one takes the new one's parts with it, if they were there too early.
        made, (now,) = stage.harvester.services.get(key), await stage.load_balancers()
        return made is not None and made["metadata"]["ownerReferences"][0]["uid"] == now.metadata.uid

    await until(serves, within=60, what="parts of the new load balancer")
    assert await ask("TCP", before.address, 8080) == "node-1"


async def test_edits_of_a_cluster_load_balancer(stage: Stage) -> None:
    await stage.create_service("web")
    before = await the_load_balancer(stage)
    name = before.metadata.name
    stage.harvester_proxy.forget()

    await edit(stage, name, {"metadata": {"labels": {LB_SERVICE_NAME: "other"}, "annotations": {LB_OWNER: None}}})
    await repaired(stage, before)
    await edit(stage, name, {"metadata": {"labels": None, "annotations": {LB_SERVICE_UID: "x"}}})
    await repaired(stage, before)
    await edit(stage, name, {"status": {"address": "127.77.0.9"}})

    async def address_restored() -> bool:
        return (await the_load_balancer(stage)).address == "127.77.0.2"

    await until(address_restored, within=60, what="the address in the status of the load balancer")
    await caught_up(stage)
    taken = [one for one in writes(stage.harvester_proxy) if one.status == 200]
    assert [one.method for one in taken] == ["PUT"] * 3
    # What is not the program's is left alone.
    await edit(stage, name, {"metadata": {"labels": {"team": "a"}}, "spec": {"description": "mine"}})
    await caught_up(stage)
    after = await the_load_balancer(stage)
    assert after.metadata.label("team") == "a"
    assert len([one for one in writes(stage.harvester_proxy) if one.status == 200]) == 3


@pytest.mark.usefixtures("nodes")
async def test_edits_of_a_vm_load_balancer(stage: Stage) -> None:
    await stage.create_service("web", ports=[HTTP], annotations={HEALTH_CHECK_PORT: "http"})
    before = await the_load_balancer(stage)
    name = before.metadata.name

    for spec in (
        {"backendServerSelector": {VM_NAME: ["somebody-else"]}},
        {"backendServerSelector": None},
        {"healthCheck": {"periodSeconds": 60}},
        {"healthCheck": None},
        {"listeners": FRONT, "healthCheck": {"port": 30999}},
    ):
        await edit(stage, name, {"spec": spec})
        await repaired(stage, before)
    assert (await the_load_balancer(stage)).address == "127.77.0.2"


async def test_edits_of_a_served_service(stage: Stage) -> None:
    await stage.create_service("web")
    await stage.create_service("hosted", ports=[HTTP], annotations={WORKLOAD_TYPE: "vm"})
    web, hosted = await stage.served("web", "hosted")

    await stage.change_service("web", {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: "127.77.0.66"}}})
    told = await stage.hears("web", Reason.ADDRESS_NOT_AS_REQUESTED)
    for words in (KUBE_VIP_ADDRESSES, "127.77.0.66", web.addresses[0], "single address"):
        assert words in told.message
    await is_as_before(stage, "web", KUBE_VIP_ADDRESSES, web.addresses[0])

    status = {"status": {"loadBalancer": None}}
    for name in ("web", "hosted"):
        await stage.guest.merge_patch(SERVICES, name, status, namespace="default", subresource="status")
        await stage.change_service(name, {"metadata": {"finalizers": None}})
    await stage.change_service("hosted", {"metadata": {"annotations": {KUBE_VIP_IGNORE: None}}})

    for before in (web, hosted):

        async def restored(name: str = before.metadata.name, address: str = before.addresses[0]) -> bool:
            service = await stage.service(name)
            assert service is not None
            return service.addresses == (address,) and service.metadata.has_finalizer(SERVICE_FINALIZER)

        await until(restored, within=60, what=f"status and finalizer of {before.metadata.name}")
    await is_as_before(stage, "hosted", KUBE_VIP_IGNORE, "true")
    assert len(await stage.load_balancers()) == 2


async def is_as_before(stage: Stage, name: str, annotation: str, value: str) -> None:
    """Return when an annotation of a Service has its value again."""

    async def same() -> bool:
        service = await stage.service(name)
        return service is not None and service.metadata.annotation(annotation) == value

    await until(same, within=60, what=f"{annotation} {value}")
