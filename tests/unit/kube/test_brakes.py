"""When a write counts as undone, and what is held back then."""

from __future__ import annotations

from typing import Any, Final

import pytest

from harvester_ccm.kube.brakes import (
    GONE_AT_ONCE,
    MADE_AT_ONCE,
    MADE_PAUSE,
    UNDONE_AT_ONCE,
    UNDONE_PAUSE,
    Brakes,
    Fields,
    Hold,
    WriteGroup,
    fields_of,
    written_fields,
)

Document = dict[str, Any]
OURS: Final[Document] = {"status": {"addresses": ["a"]}}
THEIRS: Final[Document] = {"status": {"addresses": ["b"]}}


def send(
    brakes: Brakes, now: float, body: Document, present: Document, answer: Document, method: str = "PATCH"
) -> bool:
    """Send a request if it may be sent, with what the server answers; return whether all of it was."""
    release = brakes.release(method, "x", body, present, now)
    if not release.empty:
        brakes.sent(release, answer, now)
    return not release.holds


def test_a_write_that_is_undone_is_repeated_some_times_and_then_waits() -> None:
    brakes = Brakes()
    assert [send(brakes, 0.0, OURS, THEIRS, OURS) for _ in range(UNDONE_AT_ONCE + 2)] == [
        *[True] * (1 + UNDONE_AT_ONCE),
        False,
    ]
    (hold,) = brakes.release("PATCH", "x", OURS, THEIRS, 1.0).holds
    assert hold == Hold(WriteGroup.STATUS, UNDONE_PAUSE - 1, {("status", "addresses"): ["b"]})
    assert send(brakes, UNDONE_PAUSE, OURS, THEIRS, OURS)
    assert not send(brakes, UNDONE_PAUSE, OURS, THEIRS, OURS)


def test_after_quiet_all_of_them_are_there_again() -> None:
    brakes = Brakes()
    for at in (0.0, (UNDONE_AT_ONCE + 1) * UNDONE_PAUSE):
        assert [send(brakes, at, OURS, THEIRS, OURS) for _ in range(UNDONE_AT_ONCE)] == [True] * UNDONE_AT_ONCE


def test_what_changes_by_our_own_wish_is_never_held() -> None:
    brakes, present = Brakes(), THEIRS
    for number in range(100):
        wanted = {"status": {"addresses": [f"ours-{number % 2}"]}}
        assert send(brakes, 0.0, wanted, present, wanted)
        present = wanted


def test_a_wish_that_follows_the_other_writer_is_held_all_the_same() -> None:
    brakes = Brakes()
    wishes = [{"status": {"addresses": [number]}} for number in range(9)]
    sent = [send(brakes, 0.0, wish, THEIRS, wish) for wish in wishes]
    assert sent.count(True) == 1 + UNDONE_AT_ONCE


def test_a_server_that_does_not_take_the_value_is_not_asked_without_end() -> None:
    brakes = Brakes()
    sent = [send(brakes, 0.0, OURS, THEIRS, THEIRS) for _ in range(9)]
    assert sent.count(True) == 1 + UNDONE_AT_ONCE


def test_only_the_group_that_is_undone_waits() -> None:
    brakes = Brakes()
    body = {"metadata": {"labels": {"zone": "one"}}, **OURS}
    there = {"metadata": {"labels": {"zone": "two"}}, **OURS}
    for _ in range(UNDONE_AT_ONCE + 1):
        send(brakes, 0.0, body, there, body)
    release = brakes.release("PATCH", "x", body, {**there, **THEIRS}, 0.0)
    assert [hold.group for hold in release.holds] == [WriteGroup.METADATA]
    assert release.body == OURS
    assert not release.empty
    assert [group for group, _ in release.parts] == [WriteGroup.STATUS]
    assert brakes.release("PATCH", "x", body, there, 0.0).empty


def test_another_field_of_the_group_is_written_while_nobody_touches_it() -> None:
    brakes = Brakes()
    body, there = {"metadata": {"labels": {"zone": "one"}}}, {"metadata": {"labels": {"zone": "two"}}}
    for _ in range(UNDONE_AT_ONCE + 1):
        send(brakes, 0.0, body, there, body)
    assert send(brakes, 0.0, {"metadata": {"labels": {"region": "r"}}}, there, there)


def test_what_an_object_is_let_go_with_never_waits_and_after_it_nothing_is_undone() -> None:
    brakes = Brakes()
    for _ in range(UNDONE_AT_ONCE + 1):
        send(brakes, 0.0, OURS, THEIRS, OURS)
    assert brakes.release("PATCH", "x", OURS, THEIRS, 0.0).empty
    held, free = {"metadata": {"finalizers": ["ours"]}, **THEIRS}, {"metadata": {"finalizers": None}, **OURS}
    withdrawal = brakes.release("PATCH", "x", OURS, THEIRS, 0.0, last=True)
    assert not withdrawal.holds
    brakes.sent(withdrawal, OURS, 0.0)
    assert brakes.release("PATCH", "x", OURS, THEIRS, 0.0).empty, "it may be refused yet"
    last = brakes.release("PATCH", "x", free, held, 0.0, last=True)
    assert not last.holds
    brakes.sent(last, OURS, 0.0)
    assert send(brakes, 0.0, OURS, THEIRS, OURS)
    assert not send(brakes, 0.0, OURS, THEIRS, OURS)


def test_somebody_who_takes_our_finalizer_away_is_no_reason_to_forget() -> None:
    brakes = Brakes()
    body, there = {"metadata": {"finalizers": ["ours", "theirs"]}}, {"metadata": {"finalizers": ["theirs"]}}
    assert [send(brakes, 0.0, body, there, body) for _ in range(9)].count(True) == 1 + UNDONE_AT_ONCE


def condition(**fields: str) -> Document:
    """Return a patch of our condition, beside which the object has others."""
    return {"status": {"conditions": [{"type": "Ready", "status": "True", "message": "fine", **fields}]}}


def test_a_condition_is_undone_by_what_it_says_and_by_nobody_elses() -> None:
    brakes, said = Brakes(), condition(lastTransitionTime="1")
    for number in range(9):
        theirs = {"type": "Theirs", "status": str(number)}
        later = {"status": {"conditions": [*condition(lastTransitionTime="2")["status"]["conditions"], theirs]}}
        assert send(brakes, 0.0, said, later, later)
    other = condition(message="wrong")
    assert [send(brakes, 0.0, said, other, said) for _ in range(9)].count(True) == 1 + UNDONE_AT_ONCE


def test_what_a_whole_object_leaves_out_is_undone_when_it_is_back() -> None:
    brakes, body = Brakes(), {"metadata": {"annotations": {}}, "spec": {"ipam": "pool"}}
    there = {"metadata": {"annotations": {"gone": "x"}}, "spec": {"ipam": "pool"}}
    assert [send(brakes, 0.0, body, there, body, "PUT") for _ in range(9)].count(True) == 1 + UNDONE_AT_ONCE


def test_writes_of_another_group_are_no_reason_to_forget() -> None:
    brakes = Brakes()
    for number in range(1 + UNDONE_AT_ONCE):
        assert send(brakes, 0.0, OURS, THEIRS, OURS, "PUT")
        assert send(brakes, 0.0, {"metadata": {"labels": {"number": str(number)}}}, {}, {})
    assert not send(brakes, 0.0, OURS, THEIRS, OURS, "PUT")


def test_the_order_of_keys_is_no_difference() -> None:
    brakes, before = Brakes(), {"number": "0", "app": "web"}
    for number in range(1, 10):
        wanted = {"app": "web", "number": str(number)}
        assert send(brakes, 0.0, {"spec": {"of": wanted}}, {"spec": {"of": before}}, {"spec": {"of": wanted}})
        before = dict(reversed(wanted.items()))


def test_what_vanished_is_made_again_some_times_and_then_waits() -> None:
    brakes = Brakes()
    sent = [send(brakes, 0.0, {}, {}, {}, "POST") for _ in range(9)]
    assert sent.count(True) == 1 + GONE_AT_ONCE
    (hold,) = brakes.release("POST", "x", {}, {}, 0.0).holds
    assert (hold.group, hold.undone) == (WriteGroup.EXISTENCE, {("x",): None})


def test_what_is_made_and_deleted_by_our_own_wish_has_an_allowance() -> None:
    brakes = Brakes()
    sent = [send(brakes, 0.0, {}, {}, {}, method) for method in ("POST", "DELETE") * 5]
    assert sent.count(True) == MADE_AT_ONCE
    (hold,) = brakes.release("DELETE", "x", {}, {}, 2.0).holds
    assert hold == Hold(WriteGroup.MAKING, MADE_PAUSE - 2, {})
    assert not brakes.quiet_in(2.0), "nothing was undone"


def test_of_another_object_of_the_name_nothing_is_known() -> None:
    brakes = Brakes()
    for _ in range(9):
        send(brakes, 0.0, OURS, THEIRS, OURS, "PUT")
    assert not send(brakes, 0.0, OURS, THEIRS, OURS, "PUT")
    assert send(brakes, 0.0, {}, {}, {}, "POST")
    assert send(brakes, 0.0, OURS, {}, OURS, "PUT")


def test_a_hold_is_told_until_there_was_quiet() -> None:
    brakes = Brakes()
    for _ in range(UNDONE_AT_ONCE + 1):
        send(brakes, 0.0, OURS, THEIRS, OURS)
    (hold,) = brakes.release("PATCH", "x", OURS, THEIRS, 0.0).holds
    assert not brakes.is_told(hold)
    brakes.set_told(hold)
    send(brakes, UNDONE_PAUSE, OURS, THEIRS, OURS)
    assert brakes.is_told(hold)
    send(brakes, 99 * UNDONE_PAUSE, OURS, THEIRS, OURS)
    assert not brakes.is_told(hold)


@pytest.mark.parametrize(
    ("body", "present", "written"),
    [
        ({"metadata": {"uid": "u", "resourceVersion": "7"}}, {}, {}),
        (
            {"metadata": {"annotations": {"a": None, "b": "2"}}},
            {"metadata": {"annotations": {"a": "1", "c": "3"}}},
            {("metadata", "annotations", "a"): None, ("metadata", "annotations", "b"): "2"},
        ),
        (
            {"metadata": {"finalizers": ["theirs"]}},
            {"metadata": {"finalizers": ["ours", "theirs"]}},
            {("metadata", "finalizers", "ours"): None},
        ),
        (
            {"spec": {"taints": [{"key": "old"}, {"key": "new", "effect": "NoSchedule"}]}},
            {"spec": {"taints": [{"key": "old"}]}},
            {("spec", "taints", "new"): "there"},
        ),
        ({"spec": {"taints": None}}, {"spec": {"taints": [{"key": "old"}]}}, {("spec", "taints", "old"): None}),
        ({"status": {"conditions": None}}, condition(), {}),
        ({"metadata": {"labels": None}}, {"metadata": {"labels": {"a": "1"}, "finalizers": ["ours"]}}, {}),
    ],
)
def test_what_a_patch_writes(body: Document, present: Document, written: Fields) -> None:
    assert written_fields(body, fields_of(present)) == written
