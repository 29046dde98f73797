"""A cloud-config that names another Harvester or namespace: whole programs in memory."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import PRIMARY_SERVICE
from harvester_ccm.plan.service.selection import MOST_TOLD
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.builders import CLUSTER, service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, MemoryServer, refused
from tests.worlds.program_world import Harvester, Program, guest_server

HOUR = 3600.0
Server = TypeVar("Server", bound=MemoryServer)
ACCEPT = "--accept-new-harvester"
NAMES = tuple(f"web-{number}" for number in range(MOST_TOLD + 10))


def with_nodes(guest: MemoryServer, count: int = 3) -> MemoryServer:
    """Return a cluster with Nodes that have been initialised."""
    for number in range(count):
        spec = {"providerID": f"harvester://vm-{number}"}
        guest.put(NODES, {"metadata": {"name": f"node-{number}"}, "spec": spec})
    return guest


def with_machines(harvester: Server, count: int = 3) -> Server:
    """Return a Harvester with the VMs of these Nodes."""
    for number in range(count):
        metadata = {"name": f"machine-{number}", "namespace": CLUSTER.namespace, "uid": f"vm-{number}"}
        harvester.put(VIRTUAL_MACHINES, {"metadata": metadata})
    return harvester


async def home(*names: str) -> tuple[MemoryServer, Harvester]:
    """Return a cluster whose Services are served, and the Harvester that it lives in."""
    guest, harvester = with_nodes(guest_server()), with_machines(Harvester())
    program = Program(guest, harvester, "demo")
    program.create(*names)
    async with program.live():
        await asyncio.sleep(10)
    assert all(program.address(name) for name in names), program.told()
    for server in (guest, harvester):
        server.calls.clear()
    guest.of("v1/events").clear()
    return guest, harvester


def shown(guest: MemoryServer) -> dict[str, Any]:
    """Return what the Services show."""
    return {key: (one["metadata"], one.get("status")) for key, one in guest.of(SERVICES).items()}


def ready(program: Program) -> bool:
    """Return whether the check about it succeeds."""
    checks = samples(program.telemetry)["kubernetes_healthcheck"]
    return checks[(("name", "harvester-recognised"), ("type", "readyz"))] == 1.0


@jumping_time
async def test_nothing_is_created_where_nothing_of_the_cluster_is_seen() -> None:
    guest, right = await home(*NAMES)
    before, wrong = shown(guest), Harvester()
    # Somebody else lives there.
    with_machines(wrong, 0).put(VIRTUAL_MACHINES, {"metadata": {"name": "theirs", "namespace": CLUSTER.namespace}})
    program = Program(guest, wrong, "demo")
    with capture_logs() as logs:
        async with program.live():
            await asyncio.sleep(HOUR)
            assert not ready(program)
            disputed = samples(program.telemetry)["harvester_ccm_services_disputed"]
            assert disputed[(("reason", "new_harvester"),)] == len(NAMES)
            assert shown(guest) == before
            told = program.told()
            assert len(told) == len(set(told)) == MOST_TOLD
            (said,) = program.warnings("web-0")
            assert "--accept-new-harvester" in said
            assert "Correct the cloud-config" in said
            program.create("new")
            await asyncio.sleep(HOUR)
            assert program.address("new") == ""
            assert program.warnings("new") == [said], "who waits is told"
    assert wrong.writes() == []
    (error,) = [one for one in logs if one["log_level"] == "error"]
    assert f"{len(NAMES)} Services" in error["detail"]
    assert "3 Nodes" in error["detail"]

    corrected = Program(guest, right, "demo")
    async with corrected.live():
        await asyncio.sleep(HOUR)
        assert ready(corrected)
        assert corrected.address("new")
    assert {key: one for key, one in shown(guest).items() if key in before} == before
    assert [one.split()[0] for one in right.writes()] == ["POST", "PUT"], "the new one, and its address"


@jumping_time
async def test_those_who_share_an_address_keep_it_too() -> None:
    guest, right = await home("web")
    program = Program(guest, right, "demo")
    program.put(service("share", uid="share", annotations={PRIMARY_SERVICE: "shop/web"}, ports=[{"port": 443}]))
    async with program.live():
        await asyncio.sleep(10)
    assert program.address("share") == program.address("web") != ""
    before, wrong = shown(guest), Harvester()
    guest.of("v1/events").clear()
    lost = Program(guest, wrong, "demo")
    async with lost.live():
        await asyncio.sleep(HOUR)
    assert (shown(guest), wrong.writes()) == (before, [])
    assert lost.told() == ["web: HarvesterNotRecognised"]


@jumping_time
async def test_a_service_that_goes_meanwhile_is_let_go() -> None:
    guest, _ = await home("web", "api")
    wrong = Harvester()
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(10)
        for name in ("web", "api"):
            guest.delete(SERVICES, f"shop/{name}")
        await asyncio.sleep(10)
        assert guest.of(SERVICES) == {}
        assert ready(program), "nothing is to be lost any more"
    assert wrong.writes() == []


@pytest.mark.parametrize("word", ["a VM of the cluster comes", "the last Service that is served goes"])
@jumping_time
async def test_who_waits_for_a_word_goes_on_as_soon_as_there_is_one(word: str) -> None:
    guest, _ = await home("web")
    wrong = Harvester()
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(10)
        program.create("new")
        await asyncio.sleep(HOUR)
        assert program.address("new") == ""
        if word.startswith("a VM"):
            with_machines(wrong, 1)
        else:
            # Its finalizer was taken off by hand.
            guest.remove(SERVICES, "shop/web")
        await asyncio.sleep(1)
        assert program.address("new")


@jumping_time
async def test_a_flag_says_that_the_cluster_has_moved() -> None:
    guest, _ = await home("web", "api")
    harvester = Harvester()
    # Which of them is created first is chance, and it would get what may be the other one's address.
    harvester.first = 100
    moved = Program(guest, harvester, "demo", ACCEPT)
    async with moved.live():
        await asyncio.sleep(10)
        assert ready(moved)
    assert len(harvester.of(LOAD_BALANCERS)) == 2
    assert {"api: RecreatingLoadBalancer", "web: RecreatingLoadBalancer"} <= set(moved.told())
    assert "HarvesterNotRecognised" not in str(moved.told())


@pytest.mark.parametrize("late", ["virtualmachines", "loadbalancers"])
@jumping_time
async def test_the_cloud_config_is_corrected_or_broken_while_the_program_runs(late: str) -> None:
    guest, harvester = await home("web", "api")
    before = shown(guest)
    right, wrong = Harvester(), Harvester()
    right.restore(harvester)
    wrong.version = harvester.version + 1000
    harvester.delay = lambda call: 1.0 if late in call.path else 0.002
    program = Program(guest, harvester, "demo")
    async with program.live():
        await asyncio.sleep(10)
        for place, recognised in ((wrong, False), (right, True)):
            harvester.restore(place)
            harvester.break_watches(refused(410, "Expired", "too old resource version"))
            await asyncio.sleep(HOUR)
            assert ready(program) is recognised
            assert (shown(guest), harvester.writes()) == (before, [])
        assert sorted(program.told()) == ["api: HarvesterNotRecognised", "web: HarvesterNotRecognised"]


@pytest.mark.parametrize("running", [True, False], ids=["while the program runs", "while it did not"])
@jumping_time
async def test_a_load_balancer_that_was_deleted_by_hand_is_created_again_at_once(running: bool) -> None:
    guest, harvester = await home("web")
    (key,) = harvester.of(LOAD_BALANCERS)
    program = Program(guest, harvester, "demo")
    if not running:
        harvester.remove(LOAD_BALANCERS, key)
    async with program.live():
        await asyncio.sleep(0.1)
        if running:
            harvester.remove(LOAD_BALANCERS, key)
        await asyncio.sleep(0.5)
        assert key in harvester.of(LOAD_BALANCERS)
        assert ready(program)


@jumping_time
async def test_vms_that_come_late_are_waited_for() -> None:
    guest, harvester = await home("web")
    (key,) = harvester.of(LOAD_BALANCERS)
    harvester.remove(LOAD_BALANCERS, key)
    until = asyncio.get_running_loop().time() + 100

    def slow(call: Call) -> Any:
        late = "virtualmachines" in call.path and call.at < until
        return refused(503, "ServiceUnavailable", "busy") if late else None

    harvester.fault = slow
    program = Program(guest, harvester, "demo")
    async with program.live():
        await asyncio.sleep(90)
        assert harvester.writes() == []
        await asyncio.sleep(60)
        assert key in harvester.of(LOAD_BALANCERS)
    assert program.told()[0] == "web: RecreatingLoadBalancer"


@pytest.mark.parametrize("seen", ["no Node has a VM", "VMs of all Nodes", "VMs may not be listed", "no Node"])
@jumping_time
async def test_one_witness_alone_changes_nothing(seen: str) -> None:
    """A cluster without any load balancer in Harvester, of which the VMs say nothing, or that it lives here."""
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    program.create("web")
    if seen != "no Node":
        with_nodes(guest)
    if seen != "no Node has a VM":
        # Served before, and its load balancer is gone.
        program.put(service("old", uid="old", ours=True, address="10.9.9.9"))
    if seen == "VMs of all Nodes":
        with_machines(harvester)
    if seen == "VMs may not be listed":
        harvester.fault = lambda call: (
            refused(403, "Forbidden", "no") if "virtualmachines" in call.path else None
        )  # fmt: skip
    async with program.live():
        await asyncio.sleep(1)
        assert program.address("web")
        assert ready(program)


@jumping_time
async def test_a_load_balancer_of_the_go_provider_is_recognised() -> None:
    guest, harvester = await home("web", "api")
    key = next(iter(harvester.of(LOAD_BALANCERS)))
    for number in range(3):
        harvester.remove(VIRTUAL_MACHINES, f"{CLUSTER.namespace}/machine-{number}")
    # Of the two one is left, without a mark.
    (lost,) = set(harvester.of(LOAD_BALANCERS)) - {key}
    harvester.remove(LOAD_BALANCERS, lost)
    harvester.of(LOAD_BALANCERS)[key]["metadata"]["annotations"].clear()
    program = Program(guest, harvester, "demo")
    async with program.live():
        await asyncio.sleep(10)
        assert ready(program)
    assert len(harvester.of(LOAD_BALANCERS)) == 2
