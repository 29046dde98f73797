"""Warnings about delayed writes: what to do is never cut, however many fields are written."""

from typing import Final

from harvester_ccm.controllers.node_writes import node_conflict
from harvester_ccm.controllers.service_writes import service_conflict
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.model.core import Node
from harvester_ccm.names import ANNOUNCED_AS, LOAD_BALANCER_READY, PREFIX
from harvester_ccm.redaction import MAX_MESSAGE
from tests.support.builders import service

FIELDS: Final = [f"annotation {PREFIX}a-long-name-{number} of load balancer {'x' * 63}" for number in range(20)]


def test_remedy_of_a_conflict_is_never_cut() -> None:
    for event in (
        service_conflict(FIELDS, service("w" * 63)),
        node_conflict(FIELDS, Node(metadata=ObjectMeta(name="w" * 63))),
    ):
        assert event.message.endswith(f". {event.remedy}. Run: {event.command}")
        assert len(event.message) <= MAX_MESSAGE


def test_fields_that_follow_from_others_are_named_only_alone() -> None:
    own = [f"annotation {ANNOUNCED_AS}", f"condition {LOAD_BALANCER_READY}"]
    assert f"deletes {own[0]}, {own[1]}." in service_conflict(own, service()).message
    assert "deletes status.loadBalancer." in service_conflict([*own, "status.loadBalancer"], service()).message
