"""Many Services that have their addresses: each is reconciled once at a start, after those that need something."""

from collections.abc import Callable
from typing import Final

import pytest

from harvester_ccm.controllers.service import ServiceController
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import KUBE_VIP_ADDRESSES
from harvester_ccm.plan.service.ownership.owner import name_for
from tests.support.builders import CLUSTER, allocated, served
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, document_of
from tests.support.program_world import Harvester, Program, guest_server
from tests.support.waiting import wait_for

MANY: Final = 600
"""More than fit on a page of a list."""
WORKERS: Final = 1
AHEAD: Final = 20
"""Maximum number of reconciles before a Service that needs something is reconciled."""
SLOW: Final = 0.3
"""Seconds until the response to the last list."""
LATE: Final = {"services": "/services", "load balancers": "/loadbalancers", "leadership": "/namespaces/kube-system"}


def with_addresses(count: int) -> Program:
    """Return a program whose cluster has this number of Services with addresses."""
    program = Program(guest_server(), Harvester(), CLUSTER.name, f"--concurrent-service-syncs={WORKERS}")
    for number in range(count):
        address = f"10.9.{number // 250}.{number % 250 + 1}"
        annotations = {KUBE_VIP_ADDRESSES: address}
        one = served(f"s{number:04}", uid=f"uid-{number}", address=address, annotations=annotations)
        program.put(one)
        found = allocated(one, name_for(one, CLUSTER), uid=f"lb-{number}", ip=address, address=address)
        program.harvester.put(LOAD_BALANCERS, document_of(found))
    return program


def observe_reconciles(monkeypatch: pytest.MonkeyPatch, observe: Callable[[str], None]) -> None:
    """Call ``observe`` with the key of every reconciled Service."""
    reconcile = ServiceController.reconcile

    async def observed(controller: ServiceController, key: str) -> Outcome:
        observe(key)
        return await reconcile(controller, key)

    monkeypatch.setattr(ServiceController, "reconcile", observed)


@pytest.mark.parametrize("late", LATE.values(), ids=LATE.keys())
@jumping_time
async def test_service_without_an_address_is_reconciled_before_those_that_have_one(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciled: list[str] = []
    came: dict[str, int] = {}
    """Number of reconciles when the Service without an address was seen."""
    program = with_addresses(MANY)

    def arrived(call: Call) -> None:
        if call.verb == "GET" and call.path.endswith(late):
            came["waiting"] = len(reconciled)

    def observe(key: str) -> None:
        reconciled.append(key)
        if len(reconciled) == came.get("waiting", MANY) + MANY // 2 and "meanwhile" not in came:
            program.create("meanwhile")
            came["meanwhile"] = len(reconciled)

    for server in (program.guest, program.harvester):
        server.delay = lambda call: SLOW if call.verb == "GET" and call.path.endswith(late) else 0.002
        server.on_arrived.append(arrived)
    program.create("waiting")
    observe_reconciles(monkeypatch, observe)
    async with program.live():
        await wait_for(lambda: all(map(program.address, came)) and len(came) == 2, 60, what="addresses")
        assert [reconciled.count(f"shop/s{number:04}") for number in range(MANY)] == [1] * MANY
    writes = (*program.harvester.writes(), *program.guest.writes("services"))
    assert not [one for one in writes if "s0" in one.rpartition("/")[2]]
    passed = {name: reconciled.index(f"shop/{name}", since) - since for name, since in came.items()}
    assert max(passed.values()) <= AHEAD, passed
