"""Every end that the process decides on releases the Lease after the response to its last write; its loss does not.

A process that goes on after its Lease has expired says nothing before it ends.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from harvester_ccm import __version__
from harvester_ccm.app import Application
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.builtin import LEASES, Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import ClusterReplaced
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.holder import program_of_holder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.reload import CredentialReloader
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import KUBE_VIP_ADDRESSES, LB_SERVICE_NAME, LEASE_FLAGS, LEASE_HOLDER, WORKLOAD_TYPE
from harvester_ccm.telemetry.metrics import Telemetry
from tests.support.builders import CLUSTER, LB_NAME, service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import MemoryClient, document_of
from tests.support.program_world import Harvester, Program, guest_server

FLAGS = ("--cloud-config=/none", "--secure-port=0", "--controllers=service-lb-controller", "--cluster-name=demo")
LEASE = "kube-system/cloud-controller-manager"
BUG = RuntimeError("a bug")


class Ending(CredentialReloader):
    """Ends the program with an exception after five seconds."""

    def __init__(self, client: ApiClient, error: Exception) -> None:
        super().__init__(client, lambda: client.credentials)
        self._error = error

    async def run(self) -> None:
        """Wait, and raise the exception."""
        await asyncio.sleep(5)
        raise self._error


class World:
    """A program with leader election."""

    def __init__(self) -> None:
        self.guest = guest_server()
        self.harvester = Harvester()

    async def run(self, error: Exception | None = None) -> int:
        """Run the program until it ends; ``error`` is raised in a task of it."""
        fence = WriteFence(shut=True)
        guest = MemoryClient(self.guest, cluster="guest", fence=fence)
        harvester = MemoryClient(self.harvester, cluster="harvester", namespace=CLUSTER.namespace, fence=fence)
        application = Application(
            build_settings(parse_command_line(FLAGS), {}),
            guest,
            harvester,
            fence=fence,
            reloaders=[] if error is None else [Ending(harvester, error)],
            telemetry=Telemetry("test"),
        )
        return await application.run()

    @property
    def holder(self) -> str:
        return str(self.guest.of(LEASES)[LEASE]["spec"]["holderIdentity"])

    @property
    def program(self) -> str:
        return program_of_holder(msgspec.convert(self.guest.of(LEASES)[LEASE], Lease), LEASE_HOLDER)


@jumping_time
async def test_replaced_cluster_releases_the_lease() -> None:
    world = World()
    assert await world.run(ClusterReplaced("another server")) == 1
    assert world.holder == ""


@jumping_time
async def test_bug_in_a_task_releases_the_lease() -> None:
    world = World()
    with pytest.raises(ExceptionGroup, match="unhandled errors") as caught:
        await world.run(BUG)
    assert caught.group_contains(RuntimeError, match="a bug")
    assert world.holder == ""


@jumping_time
async def test_leader_marks_its_lease_as_that_of_this_program() -> None:
    world = World()
    task = asyncio.create_task(world.run(ClusterReplaced("another server")), name="program")
    await asyncio.sleep(4)
    assert world.program == f"harvester-ccm/{__version__}"
    noted = world.guest.of(LEASES)[LEASE]["metadata"]["annotations"][LEASE_FLAGS]
    assert noted == "--cluster-name=demo --controllers=service-lb-controller"
    await task
    assert world.program == ""


@jumping_time
async def test_bug_in_an_informer_releases_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise BUG

    world = World()
    task = asyncio.create_task(world.run(), name="program")
    await asyncio.sleep(5)
    assert world.holder
    monkeypatch.setattr(Informer, "_apply", broken)
    world.guest.put(SERVICES, document_of(service()))
    with pytest.raises(ExceptionGroup):
        await task
    assert world.holder == ""


@jumping_time
async def test_lease_is_released_after_the_response_to_the_last_write() -> None:
    world = World()
    world.guest.put(SERVICES, document_of(service()))
    created: list[float] = []
    released: list[float] = []
    # The creation is on its way at the end of the program, 5 s after its start.
    world.harvester.delay = lambda call: 5.5 if call.verb == "POST" else 0.002
    world.harvester.on_change.append(lambda *_: created.append(asyncio.get_running_loop().time()))
    world.guest.on_change.append(_when_released(released))
    assert await world.run(ClusterReplaced("another server")) == 1
    assert len(world.harvester.of(LOAD_BALANCERS)) == 1
    assert created[0] < released[0]


def _when_released(times: list[float]) -> Callable[[str, str, Any], None]:
    """Return a callback that notes when the Lease has no holder."""

    def noted(collection: str, _kind: str, document: Any) -> None:
        if collection.endswith("leases") and not document["spec"]["holderIdentity"]:
            times.append(asyncio.get_running_loop().time())

    return noted


@jumping_time
async def test_lost_lease_is_not_written_even_with_a_bug_at_the_same_time() -> None:
    world = World()
    with capture_logs() as logs:
        ended: Awaitable[int] = asyncio.create_task(world.run(), name="program")
        await asyncio.sleep(5)
        world.guest.change(LEASES, LEASE, {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}})
        assert await ended == 1
    assert world.holder == "another"
    assert "leadership lost" in [entry["event"] for entry in logs]
    assert "lease released" not in [entry["event"] for entry in logs]


@pytest.mark.guarantee("No write is sent without the Lease")
@jumping_time
async def test_process_that_does_not_lead_emits_no_event() -> None:
    program = Program(guest_server(), Harvester(), CLUSTER.name)
    program.put(service())
    with capture_logs() as logs:
        async with program.live():
            await until(lambda: bool(program.address()), seconds=60)
            await asyncio.sleep(10)
            logs.clear()
            events = len(program.guest.events())
            sent = len(program.guest.writes("services/"))
            program.fence.deadline = -math.inf
            # A load balancer to correct, a Service to correct, and a mistake of its user.
            key = f"{CLUSTER.namespace}/{LB_NAME}"
            program.harvester.change(LOAD_BALANCERS, key, {"metadata": {"labels": {LB_SERVICE_NAME: "other"}}})
            program.change(metadata={"annotations": {KUBE_VIP_ADDRESSES: "10.9.9.9", WORKLOAD_TYPE: "wrong"}})
            await asyncio.sleep(60)
            assert len(program.guest.events()) == events
            assert [entry for entry in logs if entry["log_level"] in {"warning", "error"}] == []
            assert len(program.guest.writes("services/")) == sent
            # It goes on when it leads, as after a restart.
            program.fence.deadline = math.inf
            await until(lambda: len(program.guest.events()) > events, seconds=60)
