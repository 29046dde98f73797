"""A published address that no node notes: the condition and the Events are right, and nothing else is written."""

import asyncio
from typing import Any, Final

import pytest

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import ENDPOINT_SLICES
from harvester_ccm.names import (
    KUBE_VIP_HOST,
)
from harvester_ccm.plan.service.announcing.readiness import FIRST_READING_SECONDS, RECEIPT_SECONDS
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Call, page, refused
from tests.support.program_world import Harvester, Program, guest_server

KUBE_VIP: Final = "--announcer=kube-vip"
JUDGED: Final = RECEIPT_SECONDS + 5.0
"""Time after which everything must be said."""
ADDRESS: Final = "10.0.0.2"
"""The first address of this Harvester."""
USUAL: Final = f"The load balancer has address {ADDRESS}"


def new_program(*flags: str) -> Program:
    """Return a program whose Harvester allocates an address for each Service."""
    return Program(guest_server(), Harvester(), CLUSTER.name, *flags)


def announce(program: Program, name: str = "web", *, node: str = "node-1") -> None:
    """Note a node on a Service, as kube-vip does when it announces the address."""
    program.change(name, metadata={"annotations": {KUBE_VIP_HOST: node}})


async def is_announced(program: Program, name: str = "web") -> None:
    """Announce a Service, and check that the condition has the usual message at once."""
    announce(program, name)
    address = program.address(name)
    usual = f"The load balancer has address {address}"
    await until(lambda: shown(program, name) == ("True", "EnsuredLoadBalancer", usual), 5.0, what="the usual condition")


def shown(program: Program, name: str = "web") -> tuple[str, str, str]:
    """Return status, reason and message of the condition."""
    condition = program.condition(name)
    return condition.get("status", ""), condition.get("reason", ""), condition.get("message", "")


def reads(program: Program) -> int:
    return sum(ENDPOINT_SLICES.plural in call.path for call in program.guest.calls)


def normal(program: Program, name: str, reason: str) -> list[str]:
    return [
        event["message"]
        for event in program.guest.events()
        if event["type"] == "Normal" and event["reason"] == reason and event["involvedObject"]["name"] == name
    ]


@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
@pytest.mark.parametrize("has_slice", [False, True], ids=["no slice", "empty slice"])
@jumping_time
async def test_service_without_endpoints_is_ready_and_the_event_says_what_it_lacks(*, has_slice: bool) -> None:
    program = new_program(KUBE_VIP)
    if has_slice:
        program.put_slice(is_filled=False)
    program.create("web")
    async with program.live():
        await asyncio.sleep(FIRST_READING_SECONDS - 1)
        assert shown(program)[:2] == ("False", "Announcing")
        assert reads(program) == 0
        await asyncio.sleep(3)
        status, _, message = shown(program)
        (event,) = normal(program, "web", "NoEndpoints")
        assert (status, message) == ("True", f"{USUAL}. {event}")
        assert reads(program) == 1
        await asyncio.sleep(300)
        program.put_slice()
        await is_announced(program)
        assert program.reasons() == []


@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
@jumping_time
async def test_service_with_endpoints_is_ready_when_kube_vip_has_noted_it() -> None:
    program = new_program(KUBE_VIP)
    program.create("web")
    program.put_slice()
    async with program.live():
        await asyncio.sleep(RECEIPT_SECONDS - 5)
        assert shown(program)[:2] == ("False", "Announcing")
        assert program.reasons() == []
        await asyncio.sleep(JUDGED - RECEIPT_SECONDS + 5)
        status, reason, message = shown(program)
        assert (status, reason) == ("False", "AddressNotAnnounced")
        assert program.warnings() == [message]
        assert "lb_class_only" in message
        await is_announced(program)
        assert len(program.guest.writes("/services/web/status")) == 4, "held, published, the Warning, ready"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(refused(503, "ServiceUnavailable", "busy"), id="busy"),
        pytest.param(page(), id="404 of a proxy"),
    ],
)
@jumping_time
async def test_api_server_that_is_not_available_is_no_answer(error: KubeError) -> None:
    program = new_program(KUBE_VIP)
    program.create("web")
    program.put_slice()
    until_read = 2 * RECEIPT_SECONDS

    def fault(call: Call) -> Any:
        return error if ENDPOINT_SLICES.plural in call.path and call.at < until_read else None

    program.guest.fault = fault
    async with program.live():
        await asyncio.sleep(until_read)
        assert shown(program)[:2] == ("False", "Announcing")
        await asyncio.sleep(90)
        assert shown(program)[:2] == ("False", "AddressNotAnnounced")
