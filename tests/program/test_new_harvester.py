"""A cloud-config that names another Harvester or namespace: whole programs in memory."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pytest

from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, LB_SERVICE_NAME, LB_SERVICE_NAMESPACE, PRIMARY_SERVICE
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.builders import CLUSTER, allocated, service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, MemoryServer, refused
from tests.worlds.program_world import Harvester, Program, guest_server

HOUR = 3600.0
Server = TypeVar("Server", bound=MemoryServer)
ACCEPT = "--accept-new-harvester"
NAMES = tuple(f"web-{number}" for number in range(30))


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
    return checks[(("name", "harvester-matches-cluster"), ("type", "readyz"))] == 1.0


@jumping_time
@pytest.mark.guarantee("No load balancer is created in a wrong Harvester")
async def test_nothing_is_created_where_nothing_of_the_cluster_is_seen() -> None:
    guest, right = await home(*NAMES)
    before, wrong = shown(guest), Harvester()
    # Somebody else lives there.
    with_machines(wrong, 0).put(VIRTUAL_MACHINES, {"metadata": {"name": "theirs", "namespace": CLUSTER.namespace}})
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(HOUR)
        assert not ready(program)
        pending = samples(program.telemetry)["harvester_ccm_services_pending"]
        assert pending[(("reason", "harvester_mismatch"),)] == len(NAMES)
        assert shown(guest) == before
        told = program.told()
        assert len(told) == len(set(told)) == len(NAMES), "one Event per Service"
        (said,) = program.warnings("web-0")
        assert "--accept-new-harvester" in said
        assert "Correct the cloud-config" in said
        program.create("new")
        await asyncio.sleep(HOUR)
        assert program.address("new") == ""
        assert program.warnings("new") == [said], "a Service without an address gets the Event as well"
    assert wrong.writes() == []

    corrected = Program(guest, right, "demo")
    async with corrected.live():
        await asyncio.sleep(HOUR)
        assert ready(corrected)
        assert corrected.address("new")
    assert {key: one for key, one in shown(guest).items() if key in before} == before
    assert [one.split()[0] for one in right.writes()] == ["POST", "PUT"], "the new one, and its address"


@jumping_time
async def test_an_address_that_another_cluster_has_in_the_wrong_harvester_is_kept() -> None:
    guest, _ = await home("web")
    before, wrong = shown(guest), Harvester()
    program = Program(guest, wrong, "demo")
    theirs = {LB_CLUSTER: "theirs", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "other"}
    found = allocated(
        name="theirs-shop-other-1", labels=theirs, annotations={LB_OWNER: "theirs"}, ip=program.address("web")
    )
    wrong.put(LOAD_BALANCERS, {"apiVersion": LOAD_BALANCERS.api_version, **found.document()})
    async with program.live():
        await asyncio.sleep(HOUR)
    assert (shown(guest), wrong.writes()) == (before, [])


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
    assert lost.told() == ["web: HarvesterMismatch"]


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
async def test_a_waiting_service_gets_an_address_within_a_resync_after_the_mismatch_ends(word: str) -> None:
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
        await asyncio.sleep(RESYNC_SECONDS + 1)
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
    assert "HarvesterMismatch" not in str(moved.told())


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
