"""A controller without leader election reports another one that renews the Lease: both write to the same objects."""

import asyncio

import pytest

from harvester_ccm.app import OTHER_LEADER_SECONDS
from harvester_ccm.kube.builtin import LEASES
from tests.support.clock import jumping_time
from tests.support.memory_server import Document
from tests.support.program_world import Harvester, Program, guest_server

LEASE = "kube-system/cloud-controller-manager"


class World(Program):
    """The program beside a Lease of another controller."""

    def __init__(self) -> None:
        super().__init__(guest_server(), Harvester(), "demo")
        metadata = {"name": "cloud-controller-manager", "namespace": "kube-system"}
        self.guest.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "w1_x", "renewTime": "0"}})

    def reports(self) -> list[Document]:
        return [one for one in self.guest.events() if one["involvedObject"]["kind"] == LEASES.kind]

    async def renew(self) -> None:
        """Renew the Lease every two seconds, as a leader does."""
        for number in range(1000):
            await asyncio.sleep(2)
            self.guest.change(LEASES, LEASE, {"spec": {"renewTime": str(number)}})


@jumping_time
@pytest.mark.parametrize("is_renewed", [True, False])
async def test_lease_that_another_controller_renews_is_reported_until_it_is_not(*, is_renewed: bool) -> None:
    world = World()
    async with world.live(), asyncio.TaskGroup() as group:
        other = group.create_task(world.renew() if is_renewed else asyncio.sleep(0))
        await asyncio.sleep(1.5 * OTHER_LEADER_SECONDS)
        other.cancel()
        # Nothing outside of the process shows whether this still holds, so it is repeated.
        assert [one["reason"] for one in world.reports()] == 2 * is_renewed * ["LeaderElectionDisabled"]
        assert all("w1_x renews the Lease: two controllers write to the" in one["message"] for one in world.reports())
        await asyncio.sleep(OTHER_LEADER_SECONDS)
    assert [one["reason"] for one in world.reports()[2:]] == is_renewed * ["SingleController"]
