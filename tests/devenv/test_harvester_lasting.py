"""A webhook that stays while emulators come and go."""

from __future__ import annotations

import pytest

from devenv.apiserver import ControlPlane
from devenv.harvester import HarvesterEmulator
from devenv.harvester.lasting import LastingWebhook
from devenv.harvester.queue import FAST
from devenv.harvester.records import LOAD_BALANCERS, POOLS
from devenv.harvester.webhook import CONFIGURATION, VALIDATING
from harvester_ccm.errors import AdmissionDenied, ServerError
from harvester_ccm.kube.client import ApiClient
from tests.devenv.emulated import vm_balancer

LAN = "127.77.0.0/24"


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
