"""The two drivers of the emulated Harvester do the same in each scenario: in the simulation, in memory, on a server."""

import asyncio
from typing import Any, cast

import pytest

from devenv.harvester import HarvesterEmulator
from devenv.harvester.versions import NEWEST, Duplicate, version
from devenv.harvesterplayer import Surroundings, clear, play
from devenv.harvesterrecording import comparable
from devenv.harvesterscenarios import SCENARIOS, Interleaving, Scenario, Server
from harvester_ccm.kube.client import ApiClient
from tests.devenv.harvester_server import HarvesterServer, play_on_emulator, webhook_of
from tests.simulation.harvester import HarvesterControllers
from tests.simulation.loop import SeededLoop
from tests.support.clock import JumpingLoop, jumping_time
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


PLAYED = [
    (number, scenario)
    for number in ("1.3", "1.4", "1.5.0", "1.6", "1.7", "1.8", "1.9")
    for scenario in SIMULATED
    if number in {NEWEST, "1.5.0", "1.6", "1.7"} or version(number).tag in scenario.tags
    if version(number).duplicate is Duplicate.RELEASED or scenario.may_differ is not Interleaving.WORKERS
]
"""The scenarios of each version; those without programs of their own play all. If a conflict of workers can leave an
allocation for ever, it depends on chance whether it does."""


@pytest.mark.parametrize(("number", "scenario"), PLAYED, ids=lambda value: getattr(value, "name", value))
@jumping_time
async def test_simulation_does_the_same_as_the_emulator(number: str, scenario: Scenario) -> None:
    in_simulation = distinct([await play_in_simulation(scenario, seed, number) for seed in SEEDS])
    in_emulator = [
        comparable(await play_on_emulator(scenario, pick, number), scenario.may_differ) for pick in (min, max)
    ]
    assert [steps for steps in in_emulator if steps not in in_simulation] == []
    assert [steps for steps in in_simulation if steps not in in_emulator] == []
