"""Addresses that Harvester does not hold for the Service that shows them: whole programs in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    LB_CONTROLLER_FINALIZER,
    NETWORK,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
)
from tests.worlds.builders import CLUSTER, service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, Document, refused
from tests.worlds.node_objects import node
from tests.worlds.program_world import Harvester, Program, by_name, guest_server

HOUR = 3600.0
WISH = "192.168.1.50"
NO_POOL = (
    "allocate ip for lb vms/x failed, error: no matching IP pool with requirement &{Network: Project: Namespace:vms "
    "Cluster:demo}"
)
ASKED: dict[str, Document] = {
    "in the field": {"spec": {"loadBalancerIP": WISH}},
    "of kube-vip": {"annotations": {KUBE_VIP_ADDRESSES: WISH}},
}
asked_for = pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())


class Stocked(Harvester):
    """Gives the addresses that it was given, in this order, and refuses when there is none."""

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self.free = list(addresses)
        self.mask = ""

    def _give_address(self, key: str) -> None:
        status: Document = {"allocatedAddress": {}, "conditions": [{"type": "Ready", "message": NO_POOL}]}
        if self.free:
            allocated = {"ip": self.free.pop(0), "ipPool": "lan", "mask": self.mask}
            status = {"allocatedAddress": allocated, "conditions": [{"type": "Ready", "status": "True"}]}
        if key in self.of(LOAD_BALANCERS):
            self.change(LOAD_BALANCERS, key, {"metadata": {"finalizers": [LB_CONTROLLER_FINALIZER]}, "status": status})

    def stock(self, address: str) -> None:
        """Give an address to the load balancers that wait for one."""
        self.free.append(address)
        for key in list(self.of(LOAD_BALANCERS)):
            self._give_address(key)


def left_by_go(asked: Document) -> Any:
    """Return a Service as the Go provider leaves it where no pool fits: kube-vip announces what the user wrote."""
    annotations = {KUBE_VIP_HOST: "node-1", **asked.get("annotations", {})}
    return service(ours=True, address=WISH, condition=False, **{**asked, "annotations": annotations})


def swapped(harvester: Harvester, asked: Document) -> Program:
    """Return the program of a cluster that the Go provider ran until now."""
    program = Program(guest_server(), harvester, "demo")
    program.put(left_by_go(asked))
    return program


def noted(program: Program) -> dict[str, str]:
    """Return the annotations of the Service."""
    found: dict[str, str] = program.service("web")["metadata"]["annotations"]
    return found


def not_booked(program: Program) -> list[str]:
    """Return what was told of addresses that are not booked."""
    events = program.guest.events()
    return [one["message"] for one in events if one["reason"] == "AddressNotAllocated"]


@jumping_time
@asked_for
@pytest.mark.guarantee("A requested address stays until Harvester allocates one")
async def test_address_that_kube_vip_announced_before_us_survives_where_no_pool_fits(asked: Document) -> None:
    program = swapped(Stocked(), asked)
    before = noted(program)
    for _ in range(2):
        async with program.live():
            await asyncio.sleep(HOUR)
            assert program.address("web") == WISH
            kept = {} if "spec" in asked else {REQUESTED_ADDRESS: WISH}
            assert noted(program) == {**before, **kept}, "a roll-back finds what was there"
    patches = [one.body for one in program.guest.calls if one.is_write and "services/web" in one.path]
    assert sum(set(patch.get("metadata", ())) > {"uid"} for patch in patches) == len(kept), "it comes to rest"
    assert all(set(patch.get("status", ())) <= {"conditions"} for patch in patches)
    assert len(patches) - len(kept) <= 2, "what it waits for is said, and said anew when Harvester has said no"
    assert f"Address {WISH} stays announced: " in not_booked(program)[-1]
    assert len(not_booked(program)) <= 4, "one at each start, and another when Harvester has said no"


@jumping_time
@asked_for
async def test_address_that_harvester_gives_replaces_the_one_of_the_user(asked: Document) -> None:
    """As under the Go provider."""
    program = swapped(Stocked("10.0.0.7"), asked)
    async with program.live():
        await asyncio.sleep(60)
        assert program.address("web") == noted(program)[KUBE_VIP_ADDRESSES] == "10.0.0.7"
    assert "web: AddressChanged" in program.told()
    assert "web: AddressNotAsRequested" in program.told()


@jumping_time
@asked_for
async def test_address_of_the_user_that_harvester_gives_after_all_is_booked_without_a_blink(asked: Document) -> None:
    harvester = Stocked()
    program = swapped(harvester, asked)
    seen: set[str] = set()
    async with program.live():
        await asyncio.sleep(60)
        harvester.stock(WISH)
        for _ in range(100):
            await asyncio.sleep(0.1)
            seen.add(program.address("web"))
    assert seen == {WISH}
    (balancer,) = by_name(harvester, LOAD_BALANCERS).values()
    assert balancer["status"]["address"] == WISH


@jumping_time
async def test_services_that_share_such_an_address_keep_it_too() -> None:
    program = swapped(Stocked(), ASKED["in the field"])
    shared = {PRIMARY_SERVICE: "shop/web", KUBE_VIP_ADDRESSES: WISH}
    label = {PRIMARY_SERVICE_LABEL: "shop.web"}
    program.put(service("api", ours=True, address=WISH, ports=[{"port": 443}], annotations=shared, labels=label))
    async with program.live():
        await asyncio.sleep(HOUR)
        assert (program.address("web"), program.address("api")) == (WISH, WISH)
        assert program.guest.writes("services/api") == []


@jumping_time
async def test_a_service_that_waits_for_such_an_address_of_its_primary_is_told() -> None:
    harvester = Stocked()
    program = swapped(harvester, ASKED["in the field"])
    async with program.live():
        shared = {PRIMARY_SERVICE: "shop/web"}
        program.put(service("api", uid="uid-of-api", ports=[{"port": 443}], annotations=shared))
        await asyncio.sleep(HOUR)
        (told,) = program.warnings("api")
        assert "Service shop/web, whose address this Service shares, has none from Harvester yet" in told
        (condition,) = program.service("api")["status"]["conditions"]
        assert (condition["status"], condition["reason"], condition["message"]) == ("False", "SharedAddress", told)
        harvester.stock("10.0.0.7")
        await asyncio.sleep(60)
        assert program.address("api") == program.address("web") == "10.0.0.7"
        (condition,) = program.service("api")["status"]["conditions"]
        assert condition["status"] == "True"


@jumping_time
@asked_for
async def test_address_that_kube_vip_announces_for_a_new_service_stays_until_harvester_gives_one(
    asked: Document,
) -> None:
    harvester = Stocked()
    program = Program(guest_server(), harvester, "demo")
    async with program.live():
        await asyncio.sleep(1)
        program.put(service(**asked))
        await asyncio.sleep(0.03)
        announced_by_kube_vip(program)
        await asyncio.sleep(60)
        assert program.address("web") == WISH
        assert f"Address {WISH} stays announced: " in not_booked(program)[-1]
        harvester.stock("10.0.0.7")
        await asyncio.sleep(60)
        assert program.address("web") == "10.0.0.7"


@jumping_time
async def test_wish_that_kube_vip_follows_while_we_are_away_is_not_kept_where_a_load_balancer_gave_an_address() -> None:
    harvester = Stocked("10.0.0.1", "10.0.0.7")
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        assert program.address("web") == "10.0.0.1"
    (name,) = by_name(harvester, LOAD_BALANCERS)
    harvester.delete(LOAD_BALANCERS, f"vms/{name}")
    program.guest.change(SERVICES, "shop/web", {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: WISH}}})
    announced_by_kube_vip(program)
    async with program.live():
        await asyncio.sleep(60)
        assert program.address("web") == "10.0.0.7"
    assert "web: AddressChanged" in program.told()
    assert not_booked(program) == []


def announced_by_kube_vip(program: Program) -> None:
    """Have kube-vip write the wish into the status of the Service."""
    program.guest.change(SERVICES, "shop/web", {"status": {"loadBalancer": {"ingress": [{"ip": WISH}]}}})


@jumping_time
@pytest.mark.guarantee("A Service cannot take the address of another Service")
async def test_service_whose_address_another_load_balancer_got_gets_another_address() -> None:
    harvester = Stocked("10.0.0.1")
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        (name,) = by_name(harvester, LOAD_BALANCERS)
        harvester.fault = deny_creation_of("web")
        harvester.delete(LOAD_BALANCERS, f"vms/{name}")
        await asyncio.sleep(10)
        harvester.free = ["10.0.0.1", "10.0.0.2"]
        program.create("api")
        await asyncio.sleep(10)
        assert (program.address("web"), program.address("api")) == ("", "10.0.0.1")
        harvester.fault = None
        await asyncio.sleep(HOUR)
        assert program.address("web") == "10.0.0.2"
    assert "web: AddressNotAllocated" in program.told()


@jumping_time
async def test_address_that_harvester_allocates_twice_stays_and_nothing_is_deleted() -> None:
    harvester = Stocked("10.0.0.1", "10.0.0.2", "10.0.0.3")
    program = Program(guest_server(), harvester, "demo")
    program.create("web", "api", "db")
    async with program.live():
        await asyncio.sleep(10)
        before = by_name(harvester, LOAD_BALANCERS).keys()
        api = next(name for name in before if "-api-" in name)
        address = program.address("web")
        status = {"allocatedAddress": {"ip": address, "ipPool": "lan"}}
        harvester.change(LOAD_BALANCERS, f"vms/{api}", {"status": status})
        await asyncio.sleep(HOUR)
        assert by_name(harvester, LOAD_BALANCERS).keys() == before
        assert program.address("web") == address


@jumping_time
async def test_address_whose_load_balancer_is_lost_and_not_made_again_is_told_and_goes_with_its_next_owner() -> None:
    harvester = Stocked("10.0.0.1")
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        assert program.address("web") == "10.0.0.1"
        harvester.fault = deny_creation
        (name,) = by_name(harvester, LOAD_BALANCERS)
        harvester.delete(LOAD_BALANCERS, f"vms/{name}")
        await asyncio.sleep(HOUR)
        assert program.address("web") == "10.0.0.1", "nobody else has it"
        told = [line for line in program.warnings("web") if "not allocated any more" in line]
        assert len(told) == 1
        assert "10.0.0.1" in told[0]
        assert "may be given to another Service" in told[0]
        harvester.fault = None
        harvester.free = ["10.0.0.1"]
        program.create("api")
        harvester.fault = deny_creation_of("web")
        await asyncio.sleep(10)
        assert program.address("api") == "10.0.0.1"
        assert program.address("web") == noted(program)[KUBE_VIP_ADDRESSES] == ""
    assert any("10.0.0.1 is withdrawn" in line for line in not_booked(program))


def deny_creation(call: Call) -> Any:
    return deny_creation_of("")(call)


def deny_creation_of(name: str) -> Any:
    def deny(call: Call) -> Any:
        made = call.verb == "POST" and "loadbalancers" in call.path
        if made and name in call.body["metadata"]["name"]:
            return refused(500, "InternalError", "admission webhook denied the request: it has no running vm")
        return None

    return deny


def node_with(program: Program, harvester: Harvester, *addresses: str, network: str = "vlan7") -> None:
    """Give the cluster a node on the network, with these addresses."""
    place = {"name": "w1", "namespace": CLUSTER.namespace, "uid": "uid-w1"}
    program.guest.put(NODES, node("w1", provider_id="harvester://uid-w1"))
    harvester.put(VIRTUAL_MACHINES, {"metadata": place, "spec": {}, "status": {"ready": True, "created": True}})
    spec = {"networks": [{"name": "nic", "multus": {"networkName": f"default/{network}"}}]}
    status = {"phase": "Running", "interfaces": [{"name": "nic", "ipAddresses": list(addresses)}]}
    harvester.put(INSTANCES, {"metadata": {**place, "uid": "uid-vmi"}, "spec": spec, "status": status})


REACHED: dict[str, tuple[tuple[str, ...], str, bool]] = {
    "no node is in the subnet": (("10.7.0.5",), "255.255.255.0", False),
    "only the address itself is": (("10.7.0.5", "10.0.0.1"), "255.255.255.0", False),
    "a node is in the subnet": (("10.7.0.5", "10.0.0.9"), "255.255.255.0", True),
    "nothing is known of the nodes": ((), "255.255.255.0", True),
    "a pool of one address": (("10.7.0.5",), "255.255.255.255", True),
    "the pool does not say": (("10.7.0.5",), "", True),
}


@jumping_time
@pytest.mark.parametrize(("nodes", "mask", "reached"), REACHED.values(), ids=REACHED.keys())
async def test_address_from_a_pool_of_another_network_is_told(
    nodes: tuple[str, ...], mask: str, *, reached: bool
) -> None:
    harvester = Stocked("10.0.0.1")
    harvester.mask = mask
    program = Program(guest_server(), harvester, "demo")
    node_with(program, harvester, *nodes)
    mapping = {"interface-nad-mapping": '{"default/vlan7":"enp2s0"}'}
    where = {"name": "harvester-nad-mapping", "namespace": "kube-system"}
    program.guest.put(CONFIG_MAPS, {"metadata": where, "data": mapping})
    program.put(service(annotations={NETWORK: "vlan7"}))
    writes: list[int] = []
    for _ in range(2):
        async with program.live():
            await asyncio.sleep(HOUR)
            assert program.address("web") == "10.0.0.1"
        writes.append(len(program.guest.writes("services/")))
    assert writes[0] == writes[1]
    told = program.warnings("web")
    text = "10.0.0.1 comes from IP pool lan (10.0.0.0/24), but no node has an address of that subnet in network"
    assert [text in one for one in told] == ([] if reached else [True] * len(told))
    assert bool(told) is not reached
    assert len(told) <= 2, "once at each start"
