"""An address in a network of its own, announced on the device of that network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from devenv.guestnodes import GuestNodes
from devenv.stage import Stage, until
from harvester_ccm.names import (
    KUBE_VIP_INTERFACE,
    NETWORK,
    Reason,
)
from tests.e2e.observing import caught_up

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

SCOPE = {"project": "*", "namespace": "default", "guestCluster": "*"}
VLAN = "default/vlan1"


@pytest.fixture
async def vlan(stage: Stage) -> None:
    """A network in Harvester, and a pool for it."""
    await stage.harvester.create_network("vlan1")
    await stage.harvester.create_pool("vlan", "127.77.6.0/24", selector={"network": VLAN, "scope": [SCOPE]})


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
        assert await stage.told("web", Reason.DEVICE_CHANGED) == []


@asynccontextmanager
async def vlan_nodes(stage: Stage) -> AsyncIterator[None]:
    """Two nodes whose second device is in the network."""
    async with GuestNodes(stage.guest, stage.host, networks=("default/other", VLAN)) as nodes:
        for number in (1, 2):
            await nodes.add(number)
            await nodes.machines.report(nodes.machine(number), f"192.0.2.{number}", f"198.51.100.{number}")
        yield


async def announced_on(stage: Stage, device: str) -> None:
    """Return when kube-vip announces the address on this device."""

    async def announced() -> bool:
        service = await stage.service("web")
        written = service is not None and service.metadata.annotation(KUBE_VIP_INTERFACE) == device
        return written and stage.kube_vip.device_of("default/web") == device

    await until(announced, within=60, what=f"announcement on {device}")
