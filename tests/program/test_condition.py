"""The condition in a Service's status while Harvester or the guest refuses what is written, and of many at once."""

from __future__ import annotations

import asyncio
from typing import Any

from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import LOAD_BALANCER_READY
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, MemoryServer, refused
from tests.worlds.program_world import Harvester, Program, guest_server


def ours(guest: MemoryServer) -> Document:
    """Return our condition of the only Service."""
    (service,) = guest.items(SERVICES)
    (found,) = (one for one in service["status"]["conditions"] if one["type"] == LOAD_BALANCER_READY)
    return dict(found)


@jumping_time
async def test_a_refusal_of_harvester_is_said_once() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    denied = refused(500, "InternalError", 'admission webhook "v" denied the request: no')
    harvester.fault = lambda call: denied if call.verb == "POST" else None
    async with program.live():
        program.create("web")
        await asyncio.sleep(900)
        condition = ours(guest)
        assert (condition["status"], condition["reason"]) == ("False", "SyncLoadBalancerFailed")
        assert "denied the request: no" in condition["message"]
        assert len(guest.writes("/services/")) == 2, "the finalizer and this"
        harvester.fault = None
        await asyncio.sleep(120)
        assert ours(guest)["status"] == "True"
        assert len(guest.writes("/services/")) == 3


@jumping_time
async def test_a_policy_that_refuses_something_else_lets_it_be_said() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    denied = refused(422, "Invalid", "denied request: no finalizers here")

    def policy(call: Call) -> Any:
        return denied if call.verb == "PATCH" and "finalizers" in call.body.get("metadata", {}) else None

    guest.fault = policy
    async with program.live():
        program.create("web")
        await asyncio.sleep(300)
        assert "no finalizers here" in ours(guest)["message"]
        patches = [call.body for call in guest.calls if call.verb == "PATCH" and "/services/" in call.path]
        assert sum("status" in body for body in patches) == 1


@jumping_time
async def test_a_hundred_at_once_cost_what_they_did() -> None:
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    async with program.live():
        program.create(*(f"web-{number}" for number in range(100)))
        await asyncio.sleep(60)
        assert all(program.address(f"web-{number}") for number in range(100))
        stored = [program.service(f"web-{number}")["status"]["conditions"][0] for number in range(100)]
        assert {one["status"] for one in stored} == {"True"}
        assert len(guest.writes("/services/")) == 200
