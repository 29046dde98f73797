"""A webhook that stays while emulators come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane
from devenv.harvester import HarvesterEmulator
from devenv.harvester.lasting import LastingWebhook
from devenv.harvester.queue import FAST
from devenv.harvester.records import LOAD_BALANCERS, POOLS
from devenv.harvester.webhook import CONFIGURATION, NETWORKS, VALIDATING
from devenv.proxy import FaultProxy
from devenv.watch import Document
from harvester_ccm.errors import AdmissionDenied, ServerError
from harvester_ccm.kube.client import ApiClient
from tests.devenv.emulated import vm_balancer
from tests.worlds.waiting import wait_for

LAN = "127.77.0.0/24"
VLAN = "vlan9"
ON_VLAN = {"network": f"default/{VLAN}", "scope": [{"project": "*", "namespace": "x", "guestCluster": "*"}]}


async def test_its_rules_hold_while_an_emulator_has_it(
    harvester: ControlPlane, harvester_admin: ApiClient, vm_namespace: str
) -> None:
    path = VALIDATING.path(None, CONFIGURATION)

    async def attempt() -> None:
        """Try to create a load balancer that the rules refuse."""
        document = vm_balancer("web", vm_namespace, listeners=[])
        await harvester_admin.request(
            "POST", LOAD_BALANCERS.path(vm_namespace), params={"dryRun": "All"}, body=document
        )

    with LastingWebhook(harvester.admin_kubeconfig) as webhook:
        await attempt()
        for _ in range(2):
            async with HarvesterEmulator(harvester_admin, pace=FAST, webhook=webhook) as emulator:
                # A pool of its name was there with the emulator before this one.
                await emulator.create_pool("lan", LAN)
                with pytest.raises(AdmissionDenied):
                    await attempt()
            await attempt()
        async with HarvesterEmulator(harvester_admin, pace=FAST, webhook=webhook):
            await webhook.stop()
            with pytest.raises(ServerError, match="failed calling webhook"):
                await attempt()
        # Whoever comes next finds it listening.
        async with HarvesterEmulator(harvester_admin, pace=FAST, webhook=webhook):
            with pytest.raises(AdmissionDenied):
                await attempt()
        assert harvester.admin.get_or_none(path) is not None
    assert harvester.admin.get_or_none(path) is None
    assert harvester.admin.get_or_none(POOLS.path(None, "lan")) is None


@asynccontextmanager
async def beside_a_proxy(webhook: LastingWebhook) -> AsyncIterator[LastingWebhook]:
    """Enter it elsewhere: the proxy in front of its API server has this event loop."""
    await asyncio.to_thread(webhook.__enter__)
    try:
        yield webhook
    finally:
        await asyncio.to_thread(webhook.__exit__, None, None, None)


async def test_it_knows_what_has_come_and_gone_before_an_emulator_has_it(
    harvester: ControlPlane, harvester_admin: ApiClient, harvester_proxy: FaultProxy, tmp_path: Path
) -> None:
    network: Document = {
        "apiVersion": NETWORKS.api_version,
        "kind": NETWORKS.kind,
        "metadata": {"name": VLAN, "namespace": "default"},
        "spec": {"config": "{}"},
    }
    proxied = harvester_proxy.kubeconfig(harvester.admin_kubeconfig, tmp_path / "proxied")

    async def blind() -> None:
        """Have the webhook miss what happens next: it looks anew a moment later."""
        await wait_for(lambda: harvester_proxy.cut_watches(NETWORKS.plural) == 1, 60.0, what="its watch of networks")

    async with beside_a_proxy(LastingWebhook(proxied)) as webhook:
        await blind()
        await harvester_admin.create(NETWORKS, network, namespace="default")
        async with HarvesterEmulator(harvester_admin, pace=FAST, webhook=webhook) as emulator:
            await emulator.create_pool("on-vlan", LAN, selector=ON_VLAN)
        await blind()
        await harvester_admin.delete(NETWORKS, VLAN, namespace="default")
        async with HarvesterEmulator(harvester_admin, pace=FAST, webhook=webhook) as emulator:
            with pytest.raises(AdmissionDenied, match=f'"{VLAN}" not found'):
                await emulator.create_pool("on-vlan", LAN, selector=ON_VLAN)
