"""Addresses from DHCP: what is a lease of kube-vip, and what is an address that somebody else left in the status."""

import asyncio
from typing import Any, Final, cast

import pytest

from devenv.announcement import Settings, Version
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    IPAM,
    LB_SERVICE_NAME,
    PRIMARY_SERVICE,
)
from tests.simulation.kubevip import LEASES, NODE, KubeVip
from tests.simulation.loop import SeededLoop
from tests.support.builders import CLUSTER, service
from tests.support.clock import jumping_time
from tests.support.memory_server import Document
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

POOL_ADDRESS: Final = "10.0.0.1"
DHCP: Final = {IPAM: "dhcp"}
SILENT_SECONDS: Final = 100_000.0


class OneAddress(Harvester):
    """Its pool has one address, which the first load balancer gets that asks for it while no other one has it."""

    def _allocate(self, key: str) -> None:
        balancers = self.of(LOAD_BALANCERS)
        is_from_pool = key in balancers and balancers[key]["spec"]["ipam"] == "pool"
        if is_from_pool and self.holders:
            asyncio.get_running_loop().call_later(1.0, self._allocate, key)
            return
        self._addresses[key] = POOL_ADDRESS
        super()._allocate(key)

    @property
    def holders(self) -> list[str]:
        return [
            balancer["metadata"]["name"]
            for balancer in self.items(LOAD_BALANCERS)
            if balancer.get("status", {}).get("allocatedAddress", {}).get("ip") == POOL_ADDRESS
        ]


class World(Program):
    """A guest cluster with kube-vip, and a Harvester with one address."""

    harvester: OneAddress

    def __init__(self, version: Version = (1, 2, 2), kept_leases: float = 0.8) -> None:
        super().__init__(with_nodes(guest_server()), with_machines(OneAddress()), CLUSTER.name, "--announcer=auto")
        loop = cast("SeededLoop", asyncio.get_running_loop())
        settings = Settings(version=version, node=NODE)
        self.kube_vip = KubeVip(self.guest, loop, "leases", settings=settings, kept_leases=kept_leases)
        self.believed: set[str] = set()
        """Names of Services that were Ready with the address of the pool while their load balancer did not have it."""

    def add(self, name: str, port: int, annotations: dict[str, str], **more: Any) -> None:
        """Create a Service with an endpoint."""
        self.put_slice(name)
        ports = [{"port": port, "protocol": "TCP", "nodePort": 30000 + port}]
        self.put(service(name, uid=f"uid-of-{name}", ports=ports, annotations=annotations, **more))

    def delete_load_balancer(self, name: str) -> None:
        self.harvester.delete(LOAD_BALANCERS, f"vms/{self.load_balancer_of(name)['metadata']['name']}")

    def load_balancer_of(self, name: str) -> Document:
        (found,) = (
            balancer
            for balancer in self.harvester.items(LOAD_BALANCERS)
            if balancer["metadata"]["labels"][LB_SERVICE_NAME] == name
        )
        return dict(found)

    def is_ready(self, name: str) -> bool:
        return self.condition(name).get("status") == "True"

    def watch_belief(self, *names: str) -> None:
        """From now on, note in ``believed`` which of these Services are Ready with the address of the pool."""

        def observe(*_change: object) -> None:
            ready = (name for name in names if self.is_ready(name) and self.address(name) == POOL_ADDRESS)
            self.believed.update(ready)

        self.guest.on_change.append(observe)

    def answer_dhcp(self) -> None:
        """Let the DHCP server answer, and kube-vip ask it again."""
        self.kube_vip.stop_dhcp(0.0)
        self.kube_vip.restart()

    def withdrawals(self) -> list[str]:
        return [change for change in self.kube_vip.changes if "withdraws" in change]


async def _moved_to_dhcp(world: World) -> None:
    """Create a Service with an address of the pool, one that shares it, and delete the load balancer for DHCP."""
    world.kube_vip.stop_dhcp(SILENT_SECONDS)
    world.add("first", 80, {})
    world.add("admin", 81, {PRIMARY_SERVICE: "shop/first"})
    async with world.live():
        await asyncio.sleep(20)
        assert world.address("first") == world.address("admin") == POOL_ADDRESS
        world.change("first", metadata={"annotations": DHCP})
        await asyncio.sleep(20)
        assert world.is_ready("first"), "the load balancer keeps its address"


@jumping_time
@pytest.mark.guarantee("A Service cannot take the address of another Service")
async def test_address_of_a_pool_never_passes_for_a_lease() -> None:
    world = World()
    await _moved_to_dhcp(world)
    async with world.live():
        await asyncio.sleep(5)
        world.delete_load_balancer("first")
        await asyncio.sleep(60)
        assert world.load_balancer_of("first")["spec"]["ipam"] == "dhcp"
        assert (world.address("first"), world.address("admin")) == ("", "")
        assert world.condition("first")["reason"] == "DHCPLeasePending"
        assert not world.is_ready("admin")
        assert "first: DHCPLeasePending" in world.reasons()
        assert POOL_ADDRESS not in world.kube_vip.announced()
        world.watch_belief("first", "admin")
        world.add("next", 80, {})
        await asyncio.sleep(60)
        assert world.is_ready("next")
        assert world.address("next") == POOL_ADDRESS
        world.answer_dhcp()
        await asyncio.sleep(60)
        lease = world.address("first")
        assert lease in LEASES
        assert world.address("admin") == world.load_balancer_of("first")["status"]["address"] == lease
        assert world.is_ready("first")
        assert world.is_ready("admin")
        assert set(world.kube_vip.announced()[lease]) == {"shop/first", "shop/admin"}
    assert world.believed == set()


async def _moved_to_second_lease(world: World, **metadata: Any) -> None:
    """Create a Service with an address of the pool, and delete its load balancer when it requests DHCP."""
    world.add("first", 80, {})
    async with world.live():
        await asyncio.sleep(20)
        assert world.address("first") == POOL_ADDRESS
        world.change("first", metadata={"annotations": {**DHCP, **metadata}})
        await asyncio.sleep(60)
    world.delete_load_balancer("first")


def _is_served_by_lease(world: World) -> bool:
    lease = world.address("first")
    is_announced = world.kube_vip.announced().get(lease) == ["shop/first"] and lease in world.kube_vip.on_node()
    return world.is_ready("first") and lease in LEASES and is_announced


@pytest.mark.parametrize("version", [(1, 1, 2), (1, 2, 2), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("writes", range(13))
@jumping_time
@pytest.mark.guarantee("Every address is announced, or an Event reports the reason")
async def test_kube_vip_notes_a_lease_after_another_address(writes: int, version: Version) -> None:
    """kube-vip is not restarted. Since 1.2 it announces the lease, and notes it only if it is requested once more."""
    world = World(version)
    await _moved_to_second_lease(world)
    await world.until_crash(writes)
    async with world.live():
        await asyncio.sleep(60)
        assert _is_served_by_lease(world)
        before = world.service("first")
        await asyncio.sleep(3600)
        assert world.service("first") == before
        assert _is_served_by_lease(world)
    assert "first: DHCPLeasePending" not in world.reasons()


@jumping_time
@pytest.mark.guarantee("Writes are rate-limited")
async def test_lease_is_requested_rarely_while_no_dhcp_server_answers() -> None:
    """After each change of the Service, kube-vip handles no other one for about 130 s."""
    world = World()
    await _moved_to_second_lease(world)
    world.kube_vip.stop_dhcp(SILENT_SECONDS)
    async with world.live():
        await asyncio.sleep(120)
        before = len(world.guest.writes("services/"))
        await asyncio.sleep(6 * 3600)
        assert len(world.guest.writes("services/")) - before <= 10
        assert not world.is_ready("first")
        assert "create the Service again" in world.condition("first")["message"]
