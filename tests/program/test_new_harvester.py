"""A cloud-config that names another Harvester or namespace."""

import asyncio
from typing import Any, TypeVar

import pytest

from harvester_ccm.kube.workqueue import RESYNC_SECONDS
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.support.builders import CLUSTER, allocated, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, MemoryServer, refused
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes
from tests.unit.telemetry.test_metrics import samples

HOUR = 3600.0
Server = TypeVar("Server", bound=MemoryServer)
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
    """Return metadata and status of the Services."""
    return {key: (one["metadata"], one.get("status")) for key, one in guest.of(SERVICES).items()}


def ready(program: Program) -> bool:
    """Return whether the readiness check of the Harvester succeeds."""
    checks = samples(program.telemetry)["kubernetes_healthcheck"]
    return checks[(("name", "harvester-matches-cluster"), ("type", "readyz"))] == 1.0


@jumping_time
async def test_waiting_service_is_served_soon_after_no_other_one_has_an_address() -> None:
    guest, _ = await home("web-0")
    program = Program(guest, with_machines(Harvester(), 0), "demo")
    async with program.live():
        await asyncio.sleep(10)
        program.create("new")
        await asyncio.sleep(10)
        assert program.address("new") == ""
        guest.delete(SERVICES, "shop/web-0")
        await asyncio.sleep(90)
        assert program.address("new"), "a resync takes up to ten minutes"


@jumping_time
@pytest.mark.guarantee("No load balancer is created in a wrong Harvester")
async def test_nothing_is_created_in_a_harvester_without_a_sign_of_the_cluster() -> None:
    guest, right = await home(*NAMES)
    before, wrong = states(guest), Harvester()
    with_machines(wrong, 0).put(VIRTUAL_MACHINES, {"metadata": {"name": "other", "namespace": CLUSTER.namespace}})
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(HOUR)
        assert not ready(program)
        pending = samples(program.telemetry)["harvester_ccm_services_pending"]
        assert pending[(("reason", "HarvesterMismatch"),)] == len(NAMES)
        assert states(guest) == before
        warnings = program.reasons()
        assert len(warnings) == len(set(warnings)) == len(NAMES), "one Event per Service"
        (message,) = program.warnings("web-0")
        assert "--allow-harvester-change" in message
        assert "Correct the cloud-config" in message
        program.create("new")
        await asyncio.sleep(HOUR)
        assert program.address("new") == ""
        assert program.warnings("new") == [message], "a Service without an address gets the Event as well"
    assert wrong.writes() == []

    corrected = Program(guest, right, "demo")
    async with corrected.live():
        await asyncio.sleep(HOUR)
        assert ready(corrected)
        assert corrected.address("new")
    assert {key: one for key, one in states(guest).items() if key in before} == before
    assert [one.split()[0] for one in right.writes()] == ["POST", "PUT"], "the new Service"


@pytest.mark.parametrize(("cluster", "owner"), [("theirs", "theirs"), ("demo", "")], ids=["another name", "this name"])
@jumping_time
async def test_address_that_the_wrong_harvester_allocated_to_another_cluster_stays(cluster: str, owner: str) -> None:
    guest, _ = await home("web")
    before, wrong = states(guest), Harvester()
    program = Program(guest, wrong, "demo")
    theirs = {LB_CLUSTER: cluster, LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "other"}
    found = allocated(
        name="theirs-shop-other-1", labels=theirs, annotations={LB_OWNER: owner}, ip=program.address("web")
    )
    wrong.put(LOAD_BALANCERS, {"apiVersion": LOAD_BALANCERS.api_version, **found.document()})
    async with program.live():
        await asyncio.sleep(HOUR)
    assert (states(guest), wrong.writes()) == (before, [])


@jumping_time
async def test_service_can_be_deleted_during_a_mismatch() -> None:
    guest, _ = await home("web", "api")
    wrong = Harvester()
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(10)
        for name in ("web", "api"):
            guest.delete(SERVICES, f"shop/{name}")
        await asyncio.sleep(10)
        assert guest.of(SERVICES) == {}
        assert ready(program), "no address can be lost any more"
    assert wrong.writes() == []


@pytest.mark.parametrize("end", ["a VM of the cluster exists", "the last Service with an address is deleted"])
@jumping_time
async def test_waiting_service_gets_an_address_within_a_resync_after_the_mismatch_ends(end: str) -> None:
    guest, _ = await home("web")
    wrong = Harvester()
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(10)
        program.create("new")
        await asyncio.sleep(HOUR)
        assert program.address("new") == ""
        if end.startswith("a VM"):
            with_machines(wrong, 1)
        else:
            # Without its finalizer.
            guest.remove(SERVICES, "shop/web")
        await asyncio.sleep(RESYNC_SECONDS + 1)
        assert program.address("new")


@jumping_time
async def test_flag_declares_that_the_cluster_was_moved() -> None:
    guest, _ = await home("web", "api")
    harvester = Harvester()
    # Other addresses than those of the Services.
    harvester.first = 100
    moved = Program(guest, harvester, "demo", ACCEPT)
    async with moved.live():
        await asyncio.sleep(10)
        assert ready(moved)
    assert len(harvester.of(LOAD_BALANCERS)) == 2
    assert {"api: LoadBalancerLost", "web: LoadBalancerLost"} <= set(moved.reasons())
    assert "HarvesterMismatch" not in str(moved.reasons())


@jumping_time
async def test_recreation_waits_until_the_vms_are_listed() -> None:
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
    assert program.reasons()[0] == "web: LoadBalancerLost"


@pytest.mark.parametrize("seen", ["no Node has a VM", "every Node has a VM", "VMs cannot be listed", "no Node"])
@jumping_time
async def test_one_missing_sign_of_the_cluster_is_no_mismatch(seen: str) -> None:
    """The cluster has no load balancer, but no address to lose, a VM, or no comparable Node."""
    guest, harvester = guest_server(), Harvester()
    program = Program(guest, harvester, "demo")
    program.create("web")
    if seen != "no Node":
        with_nodes(guest)
    if seen != "no Node has a VM":
        # Its load balancer was deleted.
        program.put(service("old", uid="old", ours=True, address="10.9.9.9"))
    if seen == "every Node has a VM":
        with_machines(harvester)
    if seen == "VMs cannot be listed":
        harvester.fault = lambda call: (
            refused(403, "Forbidden", "no") if "virtualmachines" in call.path else None
        )  # fmt: skip
    async with program.live():
        await asyncio.sleep(1)
        assert program.address("web")
        assert ready(program)


@jumping_time
async def test_load_balancer_of_the_go_provider_is_a_sign_of_the_cluster() -> None:
    guest, harvester = await home("web", "api")
    key = next(iter(harvester.of(LOAD_BALANCERS)))
    for number in range(3):
        harvester.remove(VIRTUAL_MACHINES, f"{CLUSTER.namespace}/machine-{number}")
    # One is left, without the owner annotation.
    (lost,) = set(harvester.of(LOAD_BALANCERS)) - {key}
    harvester.remove(LOAD_BALANCERS, lost)
    harvester.of(LOAD_BALANCERS)[key]["metadata"]["annotations"].clear()
    program = Program(guest, harvester, "demo")
    async with program.live():
        await asyncio.sleep(10)
        assert ready(program)
    assert len(harvester.of(LOAD_BALANCERS)) == 2


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
        await asyncio.sleep(HOUR)
        found = {one["spec"]["workloadType"] for one in harvester.items(LOAD_BALANCERS)}
        if others:
            assert found == {"cluster", "vm"}
            return
        assert found == {"cluster"}
        assert program.annotations() == {**before, WORKLOAD_TYPE: "vm"}
        assert program.condition()["status"] == "True"
        assert program.reasons() == ["web: HarvesterMismatch"]
        assert "The workload type is not changed" in program.warnings()[0]
    accepted = Program(guest, harvester, "demo", ACCEPT)
    async with accepted.live():
        await asyncio.sleep(60)
        (balancer,) = harvester.items(LOAD_BALANCERS)
        assert balancer["spec"]["workloadType"] == "vm"
        assert accepted.address()


@jumping_time
async def test_switch_does_not_start_if_another_cluster_has_the_name_of_the_next_load_balancer() -> None:
    """The present one has a former name of the cluster."""
    guest, harvester = await home("web")
    renamed = ("renamed", "--former-cluster-names=demo")
    name = load_balancer_name("renamed", "shop", "web", "uid-of-web")
    theirs = {LB_CLUSTER: "theirs", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web"}
    found = allocated(name=name, labels=theirs, annotations={LB_OWNER: "theirs"}, ip="10.7.7.7", address="10.7.7.7")
    harvester.put(LOAD_BALANCERS, {"apiVersion": LOAD_BALANCERS.api_version, **found.document()})
    program = Program(guest, harvester, *renamed)
    async with program.live():
        await asyncio.sleep(60)
        address = program.address()
        program.change(metadata={"annotations": {WORKLOAD_TYPE: "vm"}})
        await asyncio.sleep(HOUR)
        assert "DELETE" not in {line.split()[0] for line in harvester.writes()}
        assert program.address() == program.annotations()[KUBE_VIP_ADDRESSES] == address != ""
        assert "web: LoadBalancerOwnershipConflict" in program.reasons()


@jumping_time
@pytest.mark.guarantee("No load balancer is created in a wrong Harvester")
async def test_vm_of_others_that_cannot_be_decoded_is_no_sign_of_the_cluster() -> None:
    guest, _ = await home("web")
    wrong = with_machines(Harvester(), 0)
    wrong.put(VIRTUAL_MACHINES, {"metadata": {"name": "other", "namespace": CLUSTER.namespace}, "spec": "none"})
    program = Program(guest, wrong, "demo")
    async with program.live():
        await asyncio.sleep(HOUR)
        assert not ready(program)
    assert wrong.writes() == []
