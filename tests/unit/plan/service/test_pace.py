"""How many load balancers are asked for at once, as a pure decision."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.plan.service.pace import (
    MOST,
    PROMPT_SECONDS,
    PROOF,
    STOCK_BURST,
    STOCK_RATE,
    Pace,
    after_answer,
    is_answered,
    is_tried_again,
    next_turns,
)
from tests.worlds.builders import allocated, marked

PROMPT = 0.01
PROOF_ANSWERS = 13
"""So many of them in a row are more than a stock Harvester gives."""


def paced(*answers: tuple[float, float]) -> Pace:
    """Return the pace after answers, each asked for at a time and given at another."""
    pace = Pace()
    for asked, now in answers:
        pace = after_answer(pace, asked, now)
    return pace


def in_a_row(count: int, took: float = PROMPT, start: float = 0.0) -> list[tuple[float, float]]:
    """Return answers that come one after the other."""
    return [(start + number * took, start + (number + 1) * took) for number in range(count)]


def test_one_is_in_flight_until_harvester_has_proved_fast() -> None:
    assert paced().limit == 1
    assert paced(*in_a_row(PROOF_ANSWERS - 1)).limit == 1
    assert paced(*in_a_row(PROOF_ANSWERS)).limit == 2
    assert paced(*in_a_row(PROOF_ANSWERS + 7)).limit == 9
    assert paced(*in_a_row(1000)).limit == MOST


def test_prompt_answers_that_come_seldom_prove_nothing() -> None:
    seldom = [(float(at), at + PROMPT) for at in range(1000)]
    assert paced(*seldom).limit == 1


def test_answers_of_ten_a_second_prove_it_after_a_while() -> None:
    tenths = [(at / 10, at / 10 + 0.09) for at in range(60)]
    limits = [paced(*tenths[:number]).limit for number in range(60)]
    assert limits[15] == 1
    assert limits[30] > 1


def test_a_late_answer_halves_what_is_allowed_and_those_asked_for_with_it_no_further() -> None:
    fast = in_a_row(PROOF_ANSWERS + 14)
    assert paced(*fast).limit == 16, "one more for each"
    late = [(10.0, 10.5), (10.0, 10.6), (10.3, 10.7)]
    assert paced(*fast, *late).limit == 8
    assert paced(*fast, *late, (10.8, 11.2)).limit == 4
    assert paced(*fast, *late, (10.8, 11.2), (11.3, 11.31)).limit == 5


@given(
    st.lists(st.floats(0, 3, allow_nan=False), max_size=200),
    st.integers(1, 2),
    st.floats(0, 0.05, allow_nan=False),
)
def test_a_stock_harvester_is_never_asked_for_two_at_once(
    pauses: list[float], writes_each: int, overhead: float
) -> None:
    """It writes at most ten times at once and five times a second, once or twice for each load balancer."""
    pace, now, tokens = Pace(), 0.0, float(STOCK_BURST)
    for pause in (*pauses, *([0.0] * 60)):
        asked = now + pause
        tokens = min(STOCK_BURST, tokens + (asked - now) * STOCK_RATE)
        wait = max(0.0, (writes_each - tokens) / STOCK_RATE)
        now = asked + wait + overhead
        tokens = min(STOCK_BURST, tokens + (now - asked) * STOCK_RATE) - writes_each
        pace = after_answer(pace, asked, now)
        assert pace.limit == 1


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), max_size=300))
def test_the_limit_is_always_between_one_and_the_most(steps: list[tuple[float, float]]) -> None:
    before = Pace()
    for now, (_, took) in zip(accumulate(step for step, _ in steps), steps, strict=True):
        pace = after_answer(before, now - took, now)
        assert 1 <= pace.limit <= MOST
        prompt = now - (now - took) <= PROMPT_SECONDS
        assert before.limit <= pace.limit <= before.limit + 1 if prompt else pace.limit <= before.limit
        assert pace.limit <= max(before.limit, 1) or before.limit > 1 or pace.spare <= PROOF
        before = pace


@given(st.lists(st.text(min_size=1), unique=True), st.integers(0, 100), st.integers(1, MOST))
def test_the_first_in_line_go_on_and_never_more_than_may(waiting: list[str], busy: int, limit: int) -> None:
    called = next_turns(waiting, busy, Pace(limit))
    assert list(called) == waiting[: len(called)]
    assert len(called) == min(len(waiting), max(limit - busy, 0))


def test_an_address_and_a_condition_are_answers() -> None:
    assert not is_answered(marked())
    assert is_answered(allocated())
    assert is_answered(marked(ip="0.0.0.0"))
    assert is_answered(marked(message="no matched IPPool with requirement &{}"))
    assert is_answered(marked(deleting=True))


@pytest.mark.parametrize(
    "message",
    [
        "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan",
        "fail to get ip from pool lan, error: 10.0.0.1 has been allocated to vms/a, duplicate allocation",
        'Operation cannot be fulfilled on ippools "lan": the object has been modified',
    ],
)
def test_what_harvester_tries_again_at_once_is_no_answer(message: str) -> None:
    assert not is_answered(marked(message=message))
    assert is_tried_again(marked(message=message))
    assert not is_tried_again(marked())
    assert is_answered(allocated())
