"""The emulated Harvester does the same as the real one did in each recorded scenario, as does that of the simulation.

``make recordings`` makes the recordings. If they differ from the emulator, the emulator is wrong.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from devenv.harvester import versions
from devenv.harvester.versions import NEWEST, VERSIONS, version, version_with_tag
from devenv.harvesterplayer import Surroundings, clear, play
from devenv.harvesterrecording import comparable
from devenv.harvesterscenarios import SCENARIOS, Interleaving, Scenario, Server
from devenv.recordharvester import RECORDINGS, TIMES, file_of
from harvester_ccm.kube.client import ApiClient
from tests.devenv.conftest import fast_emulator
from tests.devenv.harvester_server import HarvesterServer, play_on_emulator, webhook_of
from tests.simulation.harvester import HarvesterControllers
from tests.simulation.loop import SeededLoop
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryClient

SEEDS = ("recordings", "again", "once more", "and again")
"""Of the order in which Go iterates over maps."""
Steps = list[dict[str, Any]]


@dataclass(frozen=True)
class Recording:
    """A scenario that was recorded with programs of a version."""

    scenario: Scenario
    number: str
    """A version of Harvester with these programs."""

    @property
    def file(self) -> Path:
        return file_of(self.scenario, version(self.number))

    def __str__(self) -> str:
        return f"{self.number} {self.scenario.name}"


NUMBERS = {known.tag: number for number, known in VERSIONS.items() if known in versions.RECORDED}
RECORDED = [
    recording
    for tag, number in NUMBERS.items()
    for scenario in SCENARIOS
    if tag in scenario.tags and (recording := Recording(scenario, number)).file.exists()
]
IN_MEMORY = [one for one in RECORDED if one.scenario.server is not Server.REAL]
ON_A_SERVER = [
    pytest.param(one, marks=[] if one.number == NEWEST else pytest.mark.thorough)
    for one in RECORDED
    if one.scenario.server is not Server.ANY
]
SIMULATED = [one for one in RECORDED if one.scenario.is_simulated]


def distinct(found: list[Steps]) -> list[Steps]:
    return [steps for number, steps in enumerate(found) if steps not in found[:number]]


def recorded(recording: Recording) -> list[Steps]:
    """Return the different recordings of a scenario, without what may differ."""
    recordings = json.loads(recording.file.read_text())["recordings"]
    return distinct([comparable(one["steps"], recording.scenario.may_differ) for one in recordings])


@pytest.mark.parametrize("tag", NUMBERS)
def test_each_recording_has_three_runs_of_one_version(tag: str) -> None:
    of_tag = [one for one in RECORDED if version(one.number).tag == tag]
    assert {file.name for file in (RECORDINGS / tag).iterdir()} == {one.file.name for one in of_tag}
    assert {one.scenario.name for one in of_tag} == {one.name for one in SCENARIOS if tag in one.tags}
    for recording in of_tag:
        content = json.loads(recording.file.read_text())
        assert sum(one["times"] for one in content["recordings"]) == TIMES
        assert version_with_tag(content["harvester"]).tag == tag
        assert content["recorded"]


@pytest.mark.parametrize("recording", IN_MEMORY, ids=str)
@jumping_time
async def test_emulator_does_what_was_recorded(recording: Recording) -> None:
    scenario, number = recording.scenario, recording.number
    found = [comparable(await play_on_emulator(scenario, pick, number), scenario.may_differ) for pick in (min, max)]
    if scenario.may_differ is not Interleaving.MAP_ORDER:
        assert [found[0]] == recorded(recording)
        return
    missing = [steps for steps in recorded(recording) if steps not in found]
    assert missing == [], "the emulator does neither this nor that"


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
@pytest.mark.parametrize("recording", ON_A_SERVER, ids=str)
async def test_emulator_on_an_api_server_does_what_was_recorded(
    recording: Recording, vm_namespace: str, harvester_admin: ApiClient
) -> None:
    assert vm_namespace, "created before the emulator, so that it is cleared after the emulator has stopped"
    scenario = recording.scenario
    async with fast_emulator(harvester_admin, recording.number):
        found = comparable(await play_on_api_server(scenario, harvester_admin), scenario.may_differ)
    assert [found] == recorded(recording)


async def play_in_simulation(scenario: Scenario, seed: str, number: str) -> Steps:
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


@pytest.mark.parametrize("recording", SIMULATED, ids=str)
@jumping_time
async def test_simulation_does_what_was_recorded(recording: Recording) -> None:
    scenario = recording.scenario
    found = distinct([await play_in_simulation(scenario, seed, recording.number) for seed in SEEDS])
    if scenario.may_differ is Interleaving.MAP_ORDER:
        assert [steps for steps in recorded(recording) if steps not in found] == []
    else:
        assert found == recorded(recording)
