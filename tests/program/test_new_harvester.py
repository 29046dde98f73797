"""A cloud-config that names another Harvester or namespace."""

import asyncio
from typing import Any

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import (
    WORKLOAD_TYPE,
)
from tests.support.builders import CLUSTER
from tests.support.clock import jumping_time
from tests.support.memory_server import MemoryServer
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes
from tests.unit.telemetry.test_metrics import samples

HOUR = 3600.0
ACCEPT = "--allow-harvester-change"
NAMES = tuple(f"web-{number}" for number in range(30))


async def home(*names: str) -> tuple[MemoryServer, Harvester]:
    """Return a cluster whose Services have addresses, and its Harvester."""
    guest, harvester = with_nodes(guest_server()), with_machines(Harvester())
    program = Program(guest, harvester, "demo")
    program.create(*names)
    async with program.live():
        await asyncio.sleep(10)
    assert all(program.address(name) for name in names), program.reasons()
    for server in (guest, harvester):
        server.calls.clear()
    guest.of("v1/events").clear()
    return guest, harvester


def states(guest: MemoryServer) -> dict[str, Any]:
    return {key: (one["metadata"], one.get("status")) for key, one in guest.of(SERVICES).items()}


def ready(program: Program) -> bool:
    """Return whether the readiness check of the Harvester succeeds."""
    checks = samples(program.telemetry)["kubernetes_healthcheck"]
    return checks[(("name", "harvester-matches-cluster"), ("type", "readyz"))] == 1.0


@jumping_time
@pytest.mark.guarantee("No load balancer is created in a wrong Harvester")
async def test_nothing_is_created_in_a_harvester_without_a_sign_of_the_cluster() -> None:
    guest, right = await home(*NAMES)
    before, wrong = states(guest), Harvester()
    with_machines(wrong, 0).put(VIRTUAL_MACHINES, {"metadata": {"name": "other", "namespace": CLUSTER.namespace}})
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(HOUR / 2)
        warnings = program.reasons()
        assert len(warnings) == len(set(warnings)) == len(NAMES), "one Event per Service"
        (message,) = program.warnings("web-0")
        await asyncio.sleep(HOUR / 2)
        assert not ready(program)
        pending = samples(program.telemetry)["harvester_ccm_services_pending"]
        assert pending[(("reason", "HarvesterMismatch"),)] == len(NAMES)
        assert states(guest) == before
        assert "--allow-harvester-change" in message
        assert "Correct the cloud-config" in message
        program.create("new")
        await asyncio.sleep(HOUR / 2)
        assert program.warnings("new") == [message], "a Service without an address gets the Event as well"
        await asyncio.sleep(HOUR / 2)
        assert program.address("new") == ""
    assert wrong.writes() == []

    corrected = Program(guest, right, "demo")
    async with corrected.live():
        await asyncio.sleep(HOUR)
        assert ready(corrected)
        assert corrected.address("new")
    assert {key: one for key, one in states(guest).items() if key in before} == before
    assert [one.split()[0] for one in right.writes()] == ["POST", "PUT"], "the new Service"


def recreate_machines(harvester: Harvester) -> None:
    """Give all VMs another UID, as a restore from a backup does."""
    for number in range(3):
        key = f"{CLUSTER.namespace}/machine-{number}"
        harvester.remove(VIRTUAL_MACHINES, key)
        metadata = {"name": f"machine-{number}", "namespace": CLUSTER.namespace, "uid": f"restored-{number}"}
        harvester.put(VIRTUAL_MACHINES, {"metadata": metadata})


@pytest.mark.parametrize("others", [(), ("api",)], ids=["the only load balancer", "one of two"])
@jumping_time
@pytest.mark.guarantee("A load balancer in use is never deleted")
async def test_switch_starts_only_if_the_next_load_balancer_would_be_created(others: tuple[str, ...]) -> None:
    """All VMs were recreated, for example from a backup, so their UIDs are no sign of the cluster any more."""
    guest, harvester = await home("web", *others)
    recreate_machines(harvester)
    program = Program(guest, harvester, "demo")
    before = program.service()["metadata"]["annotations"]
    async with program.live():
        await asyncio.sleep(60)
        program.change(metadata={"annotations": {WORKLOAD_TYPE: "vm"}})
        await asyncio.sleep(HOUR / 2)
        reasons = program.reasons()
        await asyncio.sleep(HOUR / 2)
        found = {one["spec"]["workloadType"] for one in harvester.items(LOAD_BALANCERS)}
        if others:
            assert found == {"cluster", "vm"}
            return
        assert found == {"cluster"}
        assert program.annotations() == {**before, WORKLOAD_TYPE: "vm"}
        assert program.condition()["status"] == "True"
        assert reasons == ["web: HarvesterMismatch"]
        assert "The workload type is not changed" in program.warnings()[0]
    accepted = Program(guest, harvester, "demo", ACCEPT)
    async with accepted.live():
        await asyncio.sleep(60)
        (balancer,) = harvester.items(LOAD_BALANCERS)
        assert balancer["spec"]["workloadType"] == "vm"
        assert accepted.address()
