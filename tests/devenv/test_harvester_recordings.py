"""The emulated Harvester does the same as the real one did in each recorded scenario, as does that of the simulation.

``make recordings`` makes the recordings. If they differ from the emulator, the emulator is wrong.
"""

import json
import re
from typing import Any

import pytest

from devenv.harvester import HarvesterEmulator, admission, loadbalancers
from devenv.harvester.records import with_condition
from devenv.harvesterrecording import comparable
from devenv.harvesterscenarios import SCENARIOS, Interleaving, Scenario, Server
from devenv.recordharvester import RECORDINGS, TIMES, file_of
from devenv.watch import Document
from harvester_ccm.kube.client import ApiClient
from tests.devenv.harvester_server import play_on_emulator
from tests.devenv.test_harvester_scenarios import SEEDS, Steps, distinct, id_of, play_in_simulation, play_on_api_server
from tests.support.clock import jumping_time

RECORDED = [scenario for scenario in SCENARIOS if file_of(scenario).exists()]
IN_MEMORY = [scenario for scenario in RECORDED if scenario.server is not Server.REAL]
ON_A_SERVER = [scenario for scenario in RECORDED if scenario.server is Server.REAL]
SIMULATED = [scenario for scenario in RECORDED if scenario.is_simulated]


def recorded(scenario: Scenario) -> list[Steps]:
    """Return the different recordings of a scenario, without what may differ."""
    recordings = json.loads(file_of(scenario).read_text())["recordings"]
    return distinct([comparable(one["steps"], scenario.may_differ) for one in recordings])


def test_each_recording_has_three_runs_of_one_version() -> None:
    assert {file.name for file in RECORDINGS.iterdir()} == {file_of(scenario).name for scenario in RECORDED}
    assert len(RECORDED) >= 20
    for scenario in RECORDED:
        recording = json.loads(file_of(scenario).read_text())
        assert sum(one["times"] for one in recording["recordings"]) == TIMES
        assert re.fullmatch(r"v1\.\d+\.\d+.*", recording["harvester"])
        assert recording["recorded"]


@pytest.mark.parametrize("scenario", IN_MEMORY, ids=id_of)
@jumping_time
async def test_emulator_does_what_was_recorded(scenario: Scenario) -> None:
    found = [comparable(await play_on_emulator(scenario, pick), scenario.may_differ) for pick in (min, max)]
    if scenario.may_differ is not Interleaving.MAP_ORDER:
        assert [found[0]] == recorded(scenario)
        return
    missing = [steps for steps in recorded(scenario) if steps not in found]
    assert missing == [], "the emulator does neither this nor that"


@pytest.mark.apiserver
@pytest.mark.parametrize("scenario", ON_A_SERVER, ids=id_of)
async def test_emulator_on_an_api_server_does_what_was_recorded(
    scenario: Scenario, emulator: HarvesterEmulator, harvester_admin: ApiClient
) -> None:
    assert emulator.webhook is not None
    assert [comparable(await play_on_api_server(scenario, harvester_admin), scenario.may_differ)] == recorded(scenario)


WORDS = [
    ("no matched IPPool", "no matching IPPool"),
    ("fail to get allocator", "failed to get allocator"),
    ("no IP addresses available", "no addresses available"),
    ("is not available in range set", "is not free in range set"),
    ("not in range set", "outside range set"),
    ("is subnet's gateway", "is the gateway"),
    ("no running backend servers", "no backend servers"),
    ("have no IP", "have no address"),
    ("are not probed as healthy", "are not healthy"),
    ("service is waiting for external IP", "service is waiting for IP"),
]


@pytest.mark.parametrize(("words", "others"), WORDS)
@jumping_time
async def test_message_that_differs_by_a_word_is_found(
    words: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(status: Document, *, message: str, **more: Any) -> Document:
        return with_condition(status, message=message.replace(words, others), **more)

    monkeypatch.setattr(loadbalancers, "with_condition", changed)
    with_words = [scenario for scenario in IN_MEMORY if words in file_of(scenario).read_text()]
    assert any([await _differs(scenario) for scenario in with_words])


async def _differs(scenario: Scenario) -> bool:
    return comparable(await play_on_emulator(scenario, min), scenario.may_differ) not in recorded(scenario)


@jumping_time
async def test_answer_that_differs_by_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_port_problem", lambda which, number: f"listener {which} {number} must be <= 65535")
    scenario = next(one for one in SCENARIOS if one.name == "load balancers that are rejected")
    assert [await play_on_emulator(scenario)] != recorded(scenario)


@pytest.mark.parametrize("scenario", SIMULATED, ids=id_of)
@jumping_time
async def test_simulation_does_what_was_recorded(scenario: Scenario) -> None:
    found = distinct([await play_in_simulation(scenario, seed) for seed in SEEDS])
    if scenario.may_differ is Interleaving.MAP_ORDER:
        assert [steps for steps in recorded(scenario) if steps not in found] == []
    else:
        assert found == recorded(scenario)
