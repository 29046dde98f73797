"""The emulated Harvester takes the times that were measured on the real one, on a clock that jumps."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from devenv.harvester import emulator, queue, versions
from devenv.harvester.queue import TokenBucket
from devenv.harvester.records import Records
from devenv.harvester.versions import VERSIONS, version, version_with_tag
from devenv.recordharvester import TIMES, TIMES_OF
from tests.devenv.harvester_server import measure_emulator, play_on_emulator
from tests.devenv.test_harvester_recordings import IN_MEMORY, NUMBERS
from tests.support.clock import jumping_time

MEASURED: Final = tuple(tag for tag in NUMBERS if tag != version("1.8.0").tag)
"""The tags with controllers of their own."""


def measured(tag: str) -> Mapping[str, Sequence[float]]:
    """Return the seconds of each run, by what they are the time of."""
    document = json.loads((TIMES_OF / f"{tag}.json").read_text())
    assert version_with_tag(document["harvester"]).tag == tag
    seconds: Mapping[str, Sequence[float]] = document["seconds"]
    return seconds


async def differing(tag: str) -> set[str]:
    """Return what takes the emulator much longer or shorter than it took."""
    of_real, of_emulator = measured(tag), await measure_emulator(NUMBERS[tag])
    assert of_real.keys() == of_emulator.keys()
    return {
        name
        for name, seconds in of_emulator.items()
        if not 0.8 * min(of_real[name]) <= seconds <= 1.25 * max(of_real[name])
    }


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_emulator_takes_the_times_that_were_measured(tag: str) -> None:
    assert {len(seconds) for seconds in measured(tag).values()} == {TIMES}
    assert await differing(tag) == set()


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_other_rate_of_writes_is_found(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(qps: float | None, burst: int) -> TokenBucket:
        return TokenBucket(qps and 2 * qps, burst)

    monkeypatch.setattr(emulator, "TokenBucket", twice)
    assert "27 of 30 load balancers at once" in await differing(tag)


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_other_backoff_is_found(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "LONGEST_RETRY", 60.0)
    assert "address that is free late" in await differing(tag)


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_other_search_for_a_pool_is_found(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = NUMBERS[tag]
    rules = version(number)
    other = replace(rules, retries_each_second=not rules.retries_each_second)
    monkeypatch.setattr(versions, "VERSIONS", {**VERSIONS, number: other})
    assert "pool that comes late" in await differing(tag)


MOMENT: Final = "the object has been modified"
"""In messages of attempts that begin on a copy before Harvester's own last write; they are not compared otherwise."""


async def has_stale_caches(number: str) -> bool:
    """Return whether the emulator has such a moment in a scenario in which the real Harvester had one."""
    of_version = [one for one in IN_MEMORY if one.number == number and MOMENT in one.file.read_text()]
    assert of_version
    played = [json.dumps(await play_on_emulator(one.scenario, min, number)) for one in of_version]
    return any(MOMENT in steps for steps in played)


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_caches_are_stale_as_those_of_harvester(tag: str) -> None:
    assert await has_stale_caches(NUMBERS[tag])


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_caches_that_know_each_write_at_once_are_found(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_stale(*arguments: Any, **more: Any) -> Records:
        return Records(*arguments, **{**more, "lags": False})

    monkeypatch.setattr(emulator, "Records", never_stale)
    assert not await has_stale_caches(NUMBERS[tag])
