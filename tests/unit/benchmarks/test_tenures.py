"""Who held the Lease and who wrote meanwhile, from lines of an audit log."""

from __future__ import annotations

import json

import pytest

from benchmarks.tenures import Handover, handover_seconds, intruders, late_writes, read_writes, tenures_of, work_of

USERS = {"user-a": "a", "user-b": "b"}


def line(user: str, second: float, what: str = "update leases", *, code: int = 200) -> bytes:
    verb, resource = what.split()
    stamps = {
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second:09.6f}Z",
        "stageTimestamp": f"2026-01-01T00:00:{second + 0.1:09.6f}Z",
    }
    entry = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, "name": "x"},
        "responseStatus": {"code": code},
        **stamps,
    }
    return json.dumps(entry).encode() + b"\n"


LEASES = [
    line("user-a", 1),
    line("user-b", 1.5, code=409),
    line("user-a", 3),
    line("user-b", 5),
    line("user-b", 7),
    line("user-a", 9),
]
START = read_writes([line("user-a", 0)], USERS)[0].received


def handover(candidate: str, second: float, signal: str = "SIGTERM") -> Handover:
    return Handover(candidate, START + second, signal, lease_duration=1.0)


def test_reading_leaves_others_and_reading_requests_out() -> None:
    lines = [*LEASES, line("somebody", 2), line("user-a", 2, "get services"), line("user-a", 2)[:-1]]
    assert len(read_writes(lines, USERS)) == len(LEASES)


def test_tenures_are_rows_of_successful_writes() -> None:
    tenures = tenures_of(read_writes(LEASES, USERS))
    assert [one.candidate for one in tenures] == ["a", "b", "a"]
    assert [round(one.last.received - START) for one in tenures] == [3, 7, 9]


@pytest.mark.parametrize(
    ("user", "second", "outside"),
    [
        ("user-a", 2, False),
        ("user-b", 2, True),
        ("user-a", 4.95, True),
        ("user-a", 6, True),
        ("user-b", 6, False),
        ("user-a", 20, False),
        ("user-b", 20, True),
    ],
)
def test_write_outside_the_own_tenure_is_found(user: str, second: float, outside: bool) -> None:
    writes = read_writes([*LEASES, line(user, second, "patch services")], USERS)
    assert len(intruders(work_of(writes), tenures_of(writes))) == outside


@pytest.mark.parametrize(
    ("second", "signal", "late"),
    [(2.5, "SIGTERM", 0), (3.5, "SIGTERM", 1), (3.5, "SIGKILL", 0), (4.5, "SIGKILL", 1)],
)
def test_write_after_the_own_lease_was_over_is_found(second: float, signal: str, late: int) -> None:
    writes = read_writes([*LEASES, line("user-a", second, "patch services")], USERS)
    assert len(late_writes(work_of(writes), tenures_of(writes), [handover("a", 2.9, signal)])) == late


def test_events_are_no_work() -> None:
    assert work_of(read_writes([*LEASES, line("user-b", 2, "create events")], USERS)) == []


def test_time_of_a_handover() -> None:
    tenures = tenures_of(read_writes(LEASES, USERS))
    assert handover_seconds(tenures, handover("a", 2.9)) == pytest.approx(2.2)
    assert handover_seconds(tenures, handover("b", 6.9)) == pytest.approx(2.2)
    with pytest.raises(ValueError, match="nobody took the Lease after a was ended"):
        handover_seconds(tenures, handover("a", 9.5))
