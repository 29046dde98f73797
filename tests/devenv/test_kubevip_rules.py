"""Fields of a Service and its EndpointSlices that kube-vip reads."""

import pytest

from devenv.announcement import is_ignored, must_withdraw, wanted_addresses
from devenv.announcer import Announcer, Step
from devenv.watch import Document, key_of
from tests.devenv.emulated import service

A, B = "127.79.0.10", "127.79.0.11"
ADDRESS = "kube-vip.io/loadbalancerIPs"
IGNORE = "kube-vip.io/ignore"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (service({ADDRESS: A}), (A,)),
        (service({ADDRESS: f"{A}, {B}"}), (A, B)),
        (service({ADDRESS: A}, status=B, requested=B), (A,)),
        (service(status=A, requested=B), (A,)),
        (service(requested=A), (A,)),
        (service({ADDRESS: ""}, status=A, requested=B), ()),
        (service(), ()),
    ],
)
def test_address_comes_from_annotation_status_or_specification(document: Document, expected: tuple[str, ...]) -> None:
    assert wanted_addresses(document) == expected


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_only_one_spelling_is_ignored(value: str, expected: bool) -> None:
    assert is_ignored(service({IGNORE: value})) is expected


@pytest.mark.parametrize(
    ("announced_with", "now", "expected"),
    [
        pytest.param(A, service({ADDRESS: A}, status=A), False, id="nothing changed"),
        pytest.param(A, service({ADDRESS: A}), False, id="status cleared"),
        pytest.param(A, service({ADDRESS: A}, status=B), False, id="status overwritten"),
        pytest.param(A, service({ADDRESS: B}), True, id="annotation changed"),
        pytest.param(A, service({ADDRESS: ""}), True, id="annotation emptied"),
        pytest.param(A, service(status=A), True, id="annotation removed"),
        pytest.param(None, service(), False, id="status address cleared"),
        pytest.param(None, service(status=B), True, id="status address changed"),
        pytest.param(None, service({ADDRESS: A}, status=A), False, id="annotation follows the status"),
    ],
)
def test_changes_that_withdraw(announced_with: str | None, now: Document, expected: bool) -> None:
    assert must_withdraw(now, announced_with, ((A,), (A,))) is expected


def met(document: Document, uid: str) -> Document:
    return {**document, "metadata": {**document["metadata"], "uid": uid}}


def test_older_event_without_address_waits_and_withdraws_nothing() -> None:
    announcer = Announcer()
    announcer.announce(met(service({ADDRESS: A}, status=A), "one"), (A,))
    assert announcer.change(met(service(), "one")) is Step.WAIT
    assert announcer.follow(met(service({ADDRESS: A}, status=A), "one")) is Step.KEEP
    assert announcer.follow(met(service({ADDRESS: ""}, status=A), "one")) is Step.WITHDRAW


def test_deletion_does_not_affect_a_recreated_service() -> None:
    announcer = Announcer()
    later = met(service({ADDRESS: A}, status=A), "later")
    # While it waits for the first one, it reads the later one of the same name.
    assert announcer.change(met(service(), "first")) is Step.WAIT
    assert announcer.follow(later) is Step.ANNOUNCE
    announcer.announce(later, (A,))
    for left in ({IGNORE: "true"}, {ADDRESS: B}):
        assert announcer.change(met(service(left), "first")) is Step.LEAVE
        assert announcer.delete(met(service(left), "first")) is None
    assert announcer.addresses(lambda _one: True) == {A: [key_of(later)]}
    assert announcer.delete(later) is not None
