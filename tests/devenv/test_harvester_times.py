"""The emulated Harvester takes the times that were measured on the real one, on a clock that jumps."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from devenv.harvester.versions import version, version_with_tag
from devenv.recordharvester import TIMES, TIMES_OF
from tests.devenv.harvester_server import measure_emulator
from tests.devenv.test_harvester_recordings import NUMBERS
from tests.support.clock import jumping_time

MEASURED: Final = tuple(tag for tag in NUMBERS if tag != version("1.8.0").tag)
"""The tags with controllers of their own."""


def measured(tag: str) -> Mapping[str, Sequence[float]]:
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
        if not 0.9 * min(of_real[name]) <= seconds <= 1.1 * max(of_real[name])
    }


@pytest.mark.parametrize("tag", MEASURED)
@jumping_time
async def test_emulator_takes_the_times_that_were_measured(tag: str) -> None:
    assert {len(seconds) for seconds in measured(tag).values()} == {TIMES}
    assert await differing(tag) == set()
