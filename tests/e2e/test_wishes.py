"""What users ask for and Harvester or the cluster does not give as asked: served all the same, and told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from devenv.guestnodes import GuestNodes
from devenv.stage import Stage, until
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_INTERFACE
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    IP_POOL,
    LB_REQUESTED_NETWORK,
    NAD_MAPPING_KEY,
    NAD_MAPPING_NAME,
    NETWORK,
    REQUESTED_ADDRESS,
    Reason,
)
from tests.e2e.observing import caught_up, retouched

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

SCOPE = {"project": "*", "namespace": "default", "guestCluster": "*"}
VLAN = "default/vlan1"


async def the_load_balancer(stage: Stage) -> LoadBalancer:
    """Return the only load balancer once Harvester and the program have done all about it."""

    async def complete() -> LoadBalancer | None:
        found = await stage.load_balancers()
        return found[0] if len(found) == 1 and found[0].address and found[0].metadata.finalizers else None

    return await until(complete, within=60, what="complete load balancer")


async def test_address_that_harvester_does_not_give(stage: Stage) -> None:
    await stage.create_service("field", spec={"loadBalancerIP": "127.77.0.200"})
    await stage.create_service("kube-vip", annotations={KUBE_VIP_ADDRESSES: "127.77.0.201"})
    await stage.create_service("own", annotations={REQUESTED_ADDRESS: "127.77.0.202"})

    for name, wish in (("field", "127.77.0.200"), ("kube-vip", "127.77.0.201"), ("own", "127.77.0.202")):
        told = await stage.hears(name, Reason.ADDRESS_NOT_AS_REQUESTED)
        await retouched(stage, name)
        (service,) = await stage.served(name)  # kube-vip may have been first to give it one
        assert told.type == "Warning"
        assert f"address {wish} was asked for (" in told.message
        assert f") and {service.addresses[0]} was given" in told.message
        assert f"To have {wish}, make an IP pool with only that address" in told.message
        assert IP_POOL in told.message
        # Nobody had that address.
        assert await stage.told(name, Reason.ADDRESS_CHANGED) == []
        assert await stage.told(name, Reason.ADDRESS_NOT_AS_REQUESTED) == [told]
        assert service.addresses != (wish,)
    # What kube-vip announced without asking is not announced any more.
    assert set(stage.kube_vip.announced) <= {f"127.77.0.{number}" for number in (2, 3, 4)}
    document = await stage.service_document("kube-vip")
    assert document["metadata"]["annotations"][REQUESTED_ADDRESS] == "127.77.0.201"


async def test_address_is_pinned_by_a_pool_with_that_one(stage: Stage) -> None:
    await stage.harvester.create_pool("pinned", "127.77.5.5/32", selector={"scope": [{**SCOPE, "namespace": "none"}]})
    await stage.create_service("web", annotations={IP_POOL: "pinned"}, spec={"loadBalancerIP": "127.77.5.5"})
    (service,) = await stage.served("web")
    await stage.hears("web", Reason.ENSURED)
    assert service.addresses == ("127.77.5.5",)
    assert await stage.told("web", Reason.ADDRESS_NOT_AS_REQUESTED) == []

    await stage.change_service("web", {"metadata": {"annotations": {IP_POOL: "lan"}}})
    told = await stage.hears("web", Reason.IMMUTABLE)
    for words in (IP_POOL, "'lan'", "'pinned'", "Set the annotation back"):
        assert words in told.message
    (service,) = await stage.served("web")
    assert service.addresses == ("127.77.5.5",)


@pytest.fixture
async def vlan(stage: Stage) -> None:
    """A network in Harvester, and a pool for it."""
    await stage.harvester.create_network("vlan1")
    await stage.harvester.create_pool("vlan", "127.77.6.0/24", selector={"network": VLAN, "scope": [SCOPE]})


@pytest.mark.usefixtures("vlan")
async def test_changed_network_is_refused_and_told_until_it_is_set_back(stage: Stage) -> None:
    await publish(stage, {VLAN: "enp7s0"})
    await stage.create_service("web", annotations={NETWORK: VLAN})
    before = await the_load_balancer(stage)
    assert before.allocated_pool == "vlan"
    assert before.metadata.annotation(LB_REQUESTED_NETWORK) == VLAN

    await stage.change_service("web", {"metadata": {"annotations": {NETWORK: "default/vlan2"}}})
    told = await stage.hears("web", Reason.IMMUTABLE)
    await retouched(stage, "web")
    for words in (NETWORK, "'default/vlan2'", "'default/vlan1'", "Set the annotation back"):
        assert words in told.message
    await stage.change_service("web", {"metadata": {"annotations": {NETWORK: None}}})

    async def both() -> bool:
        return len(await stage.told("web", Reason.IMMUTABLE)) == 2

    await until(both, within=60, what="Event about the removed network")
    await stage.change_service("web", {"metadata": {"annotations": {NETWORK: VLAN}}})
    await caught_up(stage)
    assert len(await stage.told("web", Reason.IMMUTABLE)) == 2
    after = await the_load_balancer(stage)
    assert after.metadata.resource_version == before.metadata.resource_version
    (service,) = await stage.served("web")
    assert service.addresses == (before.address,)


@pytest.mark.usefixtures("vlan")
async def test_address_waits_for_the_device_of_its_network(stage: Stage) -> None:
    await stage.create_service("web", annotations={NETWORK: VLAN})
    told = await stage.hears("web", Reason.NO_DEVICE)
    assert "is not announced before its device is known" in told.message
    assert f"no device is known for network {VLAN}" in told.message
    assert "kube-system/harvester-nad-mapping" in told.message
    await caught_up(stage)
    service = await stage.service("web")
    assert service is not None
    assert (service.addresses, stage.kube_vip.announced) == ((), {})

    async with vlan_nodes(stage):
        await stage.served("web")
        await announced_on(stage, "enp2s0")
        assert stage.kube_vip.device_of("default/web") == "enp2s0"
        assert await stage.told("web", Reason.DEVICE_CHANGED) == []


@pytest.mark.usefixtures("vlan")
async def test_device_that_changes_under_an_address_is_told(stage: Stage) -> None:
    await publish(stage, {VLAN: "enp7s0"})
    await stage.create_service("web", annotations={NETWORK: VLAN})
    (before,) = await stage.served("web")
    await announced_on(stage, "enp7s0")
    async with vlan_nodes(stage):
        told = await stage.hears("web", Reason.DEVICE_CHANGED)
        await announced_on(stage, "enp2s0")
    assert "device enp7s0" in told.message
    assert "rollout restart daemonset kube-vip" in told.message
    assert await stage.told("web", Reason.DEVICE_CHANGED) == [told]
    (after,) = await stage.served("web")
    assert after.addresses == before.addresses
    assert stage.kube_vip.device_of("default/web") == "enp7s0", "it reads the device once"
    assert [one.kind for one in stage.kube_vip.transitions] == ["announce"]


async def publish(stage: Stage, devices: dict[str, str]) -> None:
    """Say which device is in which network."""
    meta = {"name": NAD_MAPPING_NAME, "namespace": "kube-system"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {NAD_MAPPING_KEY: json.dumps(devices)}}
    await asyncio.to_thread(stage.scene.guest.apply, body)


@asynccontextmanager
async def vlan_nodes(stage: Stage) -> AsyncIterator[None]:
    """Two nodes whose second device is in the network."""
    async with GuestNodes(stage.guest, stage.host, networks=("default/other", VLAN)) as nodes:
        for number in (1, 2):
            await nodes.add(number)
            await nodes.machines.report(nodes.machine(number), f"192.0.2.{number}", f"198.51.100.{number}")
        yield


async def announced_on(stage: Stage, device: str) -> None:
    """Return when kube-vip is told to announce the address on this device."""

    async def written() -> bool:
        service = await stage.service("web")
        return service is not None and service.metadata.annotation(KUBE_VIP_INTERFACE) == device

    await until(written, within=60, what=f"device {device} on the Service")
