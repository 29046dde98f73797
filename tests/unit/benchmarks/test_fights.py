"""The benchmark of fights measures what it says, and its targets hold."""

from __future__ import annotations

from benchmarks.fights import section
from benchmarks.result import missed
from tests.worlds.fights import BY_STATUS


def test_rest_and_a_fight_meet_their_targets() -> None:
    rest, fight = section("rest", None, minutes=3), section("fight", BY_STATUS, minutes=3)
    assert missed([rest, fight]) == []
    assert [one.value for one in rest.measurements] == [0, 0, 0, 0]
    assert all(one.value for one in fight.measurements)
