"""Who is told what: Services that need something, and only of what somebody has to mend. Whole programs in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LOAD_BALANCER_CLASS
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Document, refused
from tests.worlds.program_world import Harvester, Program, guest_server

CONTENDED = (
    "fail to update service, error: Operation cannot be fulfilled on services "
    '"demo-shop-web": the object has been modified; please apply your changes to the latest version and try again'
)


class Contended(Harvester):
    """Meets another writer of its own objects before it gives an address."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def _give_address(self, key: str) -> None:
        conditions = [{"type": "Ready", "status": "False", "message": CONTENDED}]
        self.change(LOAD_BALANCERS, key, {"status": {"allocatedAddress": {}, "conditions": conditions}})
        asyncio.get_running_loop().call_later(self._seconds, super()._give_address, key)


@jumping_time
async def test_harvester_meeting_its_own_writers_is_nothing_to_tell() -> None:
    program = Program(guest_server(), Contended(seconds=25), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(20)
        assert program.told() == []
        await asyncio.sleep(20)
        assert program.address("web")
    assert program.told() == []


@jumping_time
async def test_harvester_meeting_them_for_minutes_is_told_once_with_its_words() -> None:
    program = Program(guest_server(), Contended(seconds=1000), "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(990)
        (said,) = program.warnings("web")
        assert "still allocating the address" in said
        assert said.endswith(f"Harvester says: {CONTENDED}")
        await asyncio.sleep(20)
        assert program.address("web")
    assert program.told() == ["web: AddressPending"]


MARKS: dict[str, tuple[Document, str]] = {
    "metallb": ({"annotations": {"metallb.universe.tf/allow-shared-ip": "x"}}, "metallb.universe.tf/allow-shared-ip"),
    "cilium": ({"annotations": {"io.cilium/lb-ipam-ips": "10.0.0.8"}}, "io.cilium/lb-ipam-ips"),
    "kube-vip": ({"labels": {"implementation": "kube-vip"}}, "label implementation"),
}


@jumping_time
@pytest.mark.parametrize(("made_of", "mark"), MARKS.values(), ids=MARKS.keys())
async def test_who_is_left_to_another_controller_hears_it_once_and_how_to_be_served(made_of: Any, mark: str) -> None:
    program = Program(guest_server(), Harvester(), "demo")
    program.put(service(**made_of))
    status = {"loadBalancer": {"ingress": [{"ip": "10.9.9.9"}]}}
    program.put(service("served", uid="uid-of-served", **made_of, status=status["loadBalancer"]))
    async with program.live():
        await asyncio.sleep(60)
        for number in range(3):
            program.guest.change(SERVICES, "shop/web", {"metadata": {"labels": {"edited": str(number)}}})
            await asyncio.sleep(60)
        (event,) = program.guest.events()
        assert (event["type"], event["reason"], event["involvedObject"]["name"]) == (
            "Normal",
            "ManagedByOtherController",
            "web",
        )
        assert mark in event["message"]
        assert f"spec.loadBalancerClass {LOAD_BALANCER_CLASS}" in event["message"]
        assert program.guest.writes("services/") == []
        removed: Document = {"annotations": None, "labels": None}
        program.guest.change(SERVICES, "shop/web", {"metadata": removed})
        await asyncio.sleep(10)
        assert program.address("web")


FAULTS = {
    "the credential is not accepted": refused(401, "Unauthorized", "Unauthorized"),
    "Harvester is away": Unreachable("no route"),
}


@pytest.mark.parametrize("running", [True, False], ids=["while the program runs", "at start"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@jumping_time
async def test_a_fault_of_the_whole_cluster_is_told_to_those_who_wait(fault: CCMError, running: bool) -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    program.create("changed", "going", *(f"served-{number}" for number in range(15)))
    async with program.live():
        await asyncio.sleep(10)
        if running:
            await disturb(program, harvester, fault)
    if not running:
        again = Program(program.guest, harvester, "demo")
        harvester.fault = lambda _call: fault
        async with again.live():
            await disturb(again, harvester, fault)
    assert set(program.told()) == {f"{name}: HarvesterUnavailable" for name in ("changed", "going", "new")}


async def disturb(program: Program, harvester: Harvester, fault: CCMError) -> None:
    """Have Harvester refuse everything for ten minutes, in which three Services need it."""
    harvester.fault = lambda _call: fault
    harvester.break_watches(fault)
    await asyncio.sleep(1)
    program.create("new")
    program.guest.change(SERVICES, "shop/changed", {"spec": {"type": "ClusterIP"}})
    program.guest.delete(SERVICES, "shop/going")
    await asyncio.sleep(600)
