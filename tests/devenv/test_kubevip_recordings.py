"""The emulated kube-vip does the same as the real one did in each recorded scenario, with both of its drivers.

``make e2e-kube-vip RECORD=1`` makes the recordings. If they differ from the emulator, the emulator is wrong.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from devenv import kubevip
from devenv.announcement import Settings, Version
from devenv.kubevip import KubeVipOptions
from devenv.kubevipplayer import Surroundings, play
from devenv.kubevipprocess import PROGRAMS, version_of
from devenv.kubevipscenarios import LEASES, SCENARIOS, Scenario, is_played
from devenv.recordkubevip import RECORDINGS, file_of
from tests.simulation import kubevip as simulated
from tests.simulation.loop import SeededLoop
from tests.support.clock import jumping_time
from tests.support.memory_server import Document, MemoryClient, MemoryServer, Where

VERSIONS = sorted(version_of(directory.name) for directory in RECORDINGS.glob("v*"))
CASES = [
    (scenario, version)
    for version in VERSIONS
    for scenario in SCENARIOS
    if is_played(scenario, version) and file_of(scenario, version).exists()
]
NEVER = 1e9
"""Seconds for which a DHCP server does not respond."""


def id_of(value: Scenario | Version) -> str:
    return value.name if isinstance(value, Scenario) else "v" + ".".join(map(str, value))


class ServiceServer(MemoryServer):
    """Clears the status of a Service that is of another type than LoadBalancer, as an API server does."""

    def change(self, collection: Where, key: str, patch: Mapping[str, Any]) -> Document:
        """Apply a merge patch."""
        if (patch.get("spec") or {}).get("type") not in {None, "LoadBalancer"}:
            patch = {**patch, "status": {"loadBalancer": None}}
        return super().change(collection, key, patch)


def recorded(scenario: Scenario, version: Version) -> Any:
    return json.loads(file_of(scenario, version).read_text())["steps"]


def settings_of(scenario: Scenario, version: Version) -> Settings:
    return replace(scenario.settings, version=version)


async def play_on_emulator(scenario: Scenario, version: Version) -> Any:
    client = MemoryClient(ServiceServer(), cluster="guest")
    options = KubeVipOptions(settings_of(scenario, version), dhcp_range=(LEASES[0], LEASES[-1]))
    async with kubevip.KubeVip(client, options) as vip:

        def let_dhcp_answer(answers: bool) -> None:
            vip.dhcp_answers = answers

        return await play(scenario, Surroundings(client, lambda: vip.announced, let_dhcp_answer, LEASES))


@pytest.mark.parametrize("text", [text for text in PROGRAMS if (RECORDINGS / text).exists()])
def test_every_scenario_is_recorded(text: str) -> None:
    version = version_of(text)
    played = {scenario.name for scenario in SCENARIOS if is_played(scenario, version)}
    assert played == {scenario.name for scenario, recorded_version in CASES if recorded_version == version}


@pytest.mark.parametrize(("scenario", "version"), CASES, ids=id_of)
@jumping_time
async def test_emulator_does_what_was_recorded(scenario: Scenario, version: Version) -> None:
    assert await play_on_emulator(scenario, version) == recorded(scenario, version)


@pytest.mark.parametrize(("scenario", "version"), CASES, ids=id_of)
@jumping_time
async def test_simulated_kube_vip_does_what_was_recorded(scenario: Scenario, version: Version) -> None:
    server = ServiceServer()
    loop = cast("SeededLoop", asyncio.get_running_loop())
    settings = settings_of(scenario, version)
    vip = simulated.KubeVip(
        server, loop, "recordings", settings=settings, leases=LEASES, kept_leases=1.0, raced_share=0.0
    )

    def let_dhcp_answer(answers: bool) -> None:
        vip.stop_dhcp(0.0 if answers else NEVER)

    client = MemoryClient(server, cluster="guest")
    found = await play(scenario, Surroundings(client, vip.on_node, let_dhcp_answer, LEASES))
    assert found == recorded(scenario, version)
