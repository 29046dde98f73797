"""The two drivers of the emulated Harvester do the same in each scenario: in the simulation, in memory, on a server."""

import asyncio
from typing import Any, cast

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.versions import NEWEST
from devenv.harvesterplayer import Surroundings, clear, play
from devenv.harvesterrecording import comparable
from devenv.harvesterscenarios import SCENARIOS, Scenario, Server
from harvester_ccm.kube.client import ApiClient
from tests.devenv.harvester_server import HarvesterServer, play_on_emulator, webhook_of
from tests.simulation.harvester import HarvesterControllers
from tests.simulation.loop import SeededLoop
from tests.support.clock import JumpingLoop
from tests.support.memory_server import MemoryClient

SIMULATED = [scenario for scenario in SCENARIOS if scenario.is_simulated]
SEEDS = ("recordings", "again", "once more", "and again")
"""Of the order in which Go iterates over maps."""
Steps = list[dict[str, Any]]


def id_of(scenario: Scenario) -> str:
    return scenario.name


def distinct(found: list[Steps]) -> list[Steps]:
    return [steps for number, steps in enumerate(found) if steps not in found[:number]]


JUDGED = [scenario for scenario in SCENARIOS if scenario.server is Server.BOTH]


def _played_in_memory(scenario: Scenario) -> Steps:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(play_on_emulator(scenario))


async def play_on_api_server(scenario: Scenario, client: ApiClient) -> Steps:
    """Play a scenario with a Harvester that is emulated on a real API server, and return its steps."""

    async def switch(_what: str, _is_on: bool) -> None:
        raise NotImplementedError

    def let_backend_answer(_address: str, _port: int, _answers: bool) -> None:
        raise NotImplementedError

    try:
        return await play(scenario, Surroundings(client, switch, let_backend_answer))
    finally:
        await clear(client)


@pytest.mark.apiserver
@pytest.mark.parametrize("scenario", JUDGED, ids=id_of)
async def test_emulator_on_an_api_server_does_the_same_as_in_memory(
    scenario: Scenario, emulator: HarvesterEmulator, harvester_admin: ApiClient
) -> None:
    assert emulator.webhook is not None
    in_memory = await asyncio.to_thread(_played_in_memory, scenario)
    assert await play_on_api_server(scenario, harvester_admin) == in_memory


async def play_in_simulation(scenario: Scenario, seed: str, number: str = NEWEST) -> Steps:
    """Play a scenario with the controllers of the simulation, of this version of Harvester, and return its steps."""
    server = HarvesterServer()
    loop = cast("SeededLoop", asyncio.get_running_loop())
    controllers = HarvesterControllers(server, loop, seed, lambda: "now", number)

    async def switch(what: str, is_on: bool) -> None:
        if what == "webhook":
            server.webhook_answers = is_on
        elif is_on:
            controllers.start()
        else:
            controllers.stop()

    def let_backend_answer(_address: str, _port: int, _answers: bool) -> None:
        raise NotImplementedError

    async with webhook_of(server, number):
        around = Surroundings(MemoryClient(server, cluster="harvester"), switch, let_backend_answer)
        return comparable(await play(scenario, around), scenario.may_differ)
