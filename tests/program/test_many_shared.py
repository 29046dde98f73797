"""Many Services that share one address: a change of one of them concerns the others only if sharing reads the field.

Counts instead of times: what is reconciled, how often the Services of one address are ranked, and how many calls a
plan takes.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import HEALTH_CHECK_PORT, PRIMARY_SERVICE, WORKLOAD_TYPE
from harvester_ccm.plan.service import plan
from tests.program.test_many import observe_reconciles
from tests.support.builders import CLUSTER, allocated, served, service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import document_of
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

MANY: Final = 150
WORKERS: Final = 4
AHEAD: Final = 2 * WORKERS
"""Maximum number of reconciles of other Services before an urgent one."""
SETTLED: Final = 5.0
"""Seconds after which nothing is queued any more."""


class Observed(Program):
    """A program with a primary and many secondaries, which notes each reconcile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, primary_key: str = "shop/web") -> None:
        super().__init__(guest_server(), Harvester(), CLUSTER.name, f"--concurrent-service-syncs={WORKERS}")
        self.reconciled: list[str] = []
        self.put(served())
        self.harvester.put(LOAD_BALANCERS, document_of(allocated()))
        for number in range(MANY):
            annotations = {PRIMARY_SERVICE: primary_key}
            ports = [{"port": 1000 + number, "protocol": "TCP", "nodePort": 30000 + number}]
            self.put(service(member(number), uid=f"uid-{number}", ports=ports, annotations=annotations))
        observe_reconciles(monkeypatch, self.reconciled.append)

    async def settle(self) -> None:
        """Return when the changes so far have been reconciled, and forget them."""
        await asyncio.sleep(SETTLED)
        self.reconciled.clear()


def member(number: int) -> str:
    return f"s{number:03}"


def calls_of(function: Callable[[], object]) -> int:
    """Return the number of Python functions and generators that a call enters."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


PRIMARIES: Final = {
    "one that has an address": "shop/web",
    "one that does not exist": "shop/none",
    "one of themselves, in a cycle": "shop/s000",
}


@pytest.mark.parametrize("primary_key", PRIMARIES.values(), ids=PRIMARIES.keys())
@pytest.mark.guarantee("A Service does not block other Services")
@jumping_time
async def test_label_of_a_secondary_concerns_no_other_service(
    primary_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Observed(monkeypatch, primary_key)
    async with program.live():
        await program.settle()
        await program.settle()
        for second in range(5):
            program.change(member(7), metadata={"labels": {"flip": str(second)}})
            await asyncio.sleep(1)
        assert set(program.reconciled) == {f"shop/{member(7)}"}


@pytest.mark.guarantee("A Service does not block other Services")
@jumping_time
async def test_services_that_share_an_address_are_reconciled_after_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Observed(monkeypatch)
    async with program.live():
        await program.settle()
        await program.settle()
        program.change(member(7), spec={"ports": [{"port": 9, "protocol": "TCP"}]})
        program.put(service("other", namespace="elsewhere", uid="other"))
        await asyncio.sleep(SETTLED)
        place = program.reconciled.index("elsewhere/other")
        assert place <= AHEAD, program.reconciled
        assert {f"shop/{member(number)}" for number in range(MANY)} <= set(program.reconciled)


@jumping_time
async def test_calls_to_plan_a_secondary_do_not_grow_with_the_number_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    plan_service = plan.plan_service

    def counted(snapshot: Any) -> Any:
        counts.append(calls_of(lambda: plan_service(snapshot)))
        return plan_service(snapshot)

    program = Observed(monkeypatch)
    async with program.live():
        await program.settle()
        await program.settle()
        monkeypatch.setattr("harvester_ccm.controllers.service.plan_service", counted)
        program.change(member(7), metadata={"labels": {"flip": "1"}})
        await asyncio.sleep(SETTLED)
    assert counts
    assert max(counts) < 10 * MANY, counts


@pytest.mark.parametrize("shared", [True, False], ids=["of the Services that share the address", "of one Service"])
def test_calls_to_plan_a_vm_load_balancer_grow_with_its_ports_alone(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[int, int] = {}
    plan_service = plan.plan_service

    async def scene(ports: int) -> None:
        program = Program(with_nodes(guest_server()), with_machines(Harvester()), CLUSTER.name)
        listed = [port_of(number) for number in range(ports)]
        vm = {WORKLOAD_TYPE: "vm", HEALTH_CHECK_PORT: "1000"}
        program.put(service(ports=listed[:1] if shared else listed, annotations=vm))
        async with program.live():
            await until(program.address, what="the address")
            if shared:
                program.put(service("api", uid="2", ports=listed[1:], annotations={PRIMARY_SERVICE: "shop/web"}))
                await until(lambda: program.address("api"), what="the shared address")
            await asyncio.sleep(SETTLED)
            seen: list[int] = []

            def counted(snapshot: Any) -> Any:
                seen.append(calls_of(lambda: plan_service(snapshot)))
                return plan_service(snapshot)

            monkeypatch.setattr("harvester_ccm.controllers.service.plan_service", counted)
            program.change(metadata={"labels": {"flip": "1"}})
            await asyncio.sleep(SETTLED)
            counts[ports] = max(seen)
            monkeypatch.undo()

    for ports in (100, 400):
        jumping_time(scene)(ports)
    # Four times as many ports take four times as many calls, not sixteen.
    assert counts[400] < 6 * counts[100], counts


def port_of(number: int) -> dict[str, Any]:
    return {"name": f"p{number}", "port": 1000 + number, "protocol": "TCP", "nodePort": 30000 + number}
