"""Rules of the emulated kube-vip that no recording shows: a spelling, and a race that the recordings leave out."""

from typing import Any

import pytest

from devenv.announcement import Settings, is_ignored
from devenv.announcer import Reaction, announcer_for
from devenv.watch import Document
from tests.devenv.emulated import service

A, B = "127.79.0.10", "127.79.0.11"
ADDRESS = "kube-vip.io/loadbalancerIPs"
IGNORE = "kube-vip.io/ignore"
DDNS = "kube-vip.io/ddns"


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_only_one_spelling_is_ignored(value: str, expected: bool) -> None:
    assert is_ignored(service({IGNORE: value})) is expected


def with_policy(policy: str) -> Document:
    document = service({ADDRESS: A})
    document["spec"]["externalTrafficPolicy"] = policy
    return document


def met(document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "uid": "one"}}


def effects(reaction: Reaction) -> list[Any]:
    """Run a reaction that asks nothing; return its effects."""
    return list(reaction)


def test_old_version_announces_and_withdraws_one_address_at_once() -> None:
    announcer = announcer_for(Settings(version=(1, 1, 2)))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    _, again, _ = effects(announcer.change("MODIFIED", met(with_policy("Local"))))
    assert again.is_raced
    _, other, _ = effects(announcer.change("MODIFIED", met(service({ADDRESS: B}))))
    assert not other.is_raced


def test_old_version_announces_a_silent_address_without_a_race() -> None:
    announcer = announcer_for(Settings(version=(1, 1, 2)))
    for annotations in ({ADDRESS: A}, {ADDRESS: ""}, {ADDRESS: A}):
        effects(announcer.change("MODIFIED", met(service(annotations))))
    assert announcer.addresses(lambda _instance: True) == {}, "nothing was up when the spelling changes"
    again, _ = effects(announcer.change("MODIFIED", met(service({ADDRESS: A, DDNS: "False"}))))
    assert not again.is_raced
