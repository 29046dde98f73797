"""Events that hold for some time before they are emitted, and what a process reports about itself."""

import asyncio

import pytest

from harvester_ccm.controllers.held_events import HeldEvents
from harvester_ccm.controllers.self_report import SelfReport
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import NodeReason, Reason
from tests.support.clock import jumping_time


def event(cause: str, subject: str) -> EventMessage:
    return EventMessage("Warning", NodeReason.NO_ADDRESS, cause, subject=subject)


@jumping_time
async def test_time_starts_again_with_another_subject_and_not_with_another_text() -> None:
    held = HeldEvents()
    held.hold([event("a", "x")])
    await asyncio.sleep(4)
    held.hold([event("b", "x")])
    assert held.due_after(10) == pytest.approx(6)
    held.hold([event("b", "y")])
    assert held.due_after(10) == pytest.approx(10)


@jumping_time
async def test_end_of_a_state_is_reported_once() -> None:
    emitted: list[EventMessage] = []
    report = SelfReport(emitted.append, EventMessage("Normal", Reason.CREDENTIAL_RELOADED, "end"))
    for state in (None, EventMessage("Warning", Reason.CREDENTIAL_NOT_RELOADED, "broken"), None, None):
        report.update(state)
    assert [one.reason for one in emitted] == [Reason.CREDENTIAL_NOT_RELOADED, Reason.CREDENTIAL_RELOADED]
