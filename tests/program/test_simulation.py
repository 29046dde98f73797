"""The simulation itself: its actions can run."""

import inspect
import random
from typing import Final

import pytest

from tests.simulation.actions import SERVICES as NAMES
from tests.simulation.actions import Fragment
from tests.simulation.fragments import FAMILIES
from tests.simulation.runner import ActionRunner

FRAGMENTS: Final = [fragment for family in FAMILIES.values() for fragment in dict.fromkeys(family)]


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=lambda fragment: fragment.__name__.strip("_"))
def test_actions_of_a_fragment_can_run(fragment: Fragment) -> None:
    for seed in range(30):
        for action in fragment(random.Random(seed), NAMES):
            verb = getattr(ActionRunner, action.verb)
            inspect.signature(verb).bind(None, **action.more)
