"""Requested addresses that Harvester's administrator permits: the whole program, and a Harvester with IP pools."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from devenv.harvester.pools import Pool, PoolProblem, allocated_address, booked, choose_address, given_back
from harvester_ccm.kube.errors import AnswerTooLarge, KubeError
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import IP_POOLS, LOAD_BALANCERS
from harvester_ccm.names import (
    IP_POOL,
    KUBE_VIP_ADDRESSES,
    REQUESTED_ADDRESS,
    WORKLOAD_TYPE,
)
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, Document, Where, name_of, refused
from tests.support.program_world import Harvester, Program, guest_server

HOUR: Final = 3600.0
WANTED: Final = "10.0.0.50"
RULE: Final[Document] = {
    "verbs": ["get", "patch"],
    "apiGroups": ["loadbalancer.harvesterhci.io"],
    "resources": ["ippools"],
    "resourceNames": ["lan"],
}


class PooledHarvester(Harvester):
    """Allocates like Harvester: the address that the history of the pool names, or the next one."""

    def __init__(self, *pools: str, permitted: bool = True) -> None:
        super().__init__()
        self.permissions.rules = lambda _by: [RULE] if permitted else []
        for number, name in enumerate(pools or ("lan",)):
            subnet = f"10.0.{number}.0/24"
            self.put(IP_POOLS, {"metadata": {"name": name}, "spec": {"ranges": [{"subnet": subnet}]}, "status": {}})
        self.before_allocation: Callable[[str], None] = lambda _key: None
        """Called before each allocation with the key of the load balancer."""

    def remove(self, collection: Where, key: str) -> Document:
        """Remove an object; the address of a load balancer is free before."""
        if name_of(collection) == name_of(LOAD_BALANCERS):
            for pool in list(self.of(IP_POOLS).values()):
                self.put(IP_POOLS, given_back(pool, key))
        return super().remove(collection, key)

    def book(self, address: str, owner: str, pool: str = "lan") -> None:
        """Allocate an address to a load balancer of somebody else."""
        self.put(IP_POOLS, booked(self.of(IP_POOLS)[pool], address, owner))

    def release(self, owner: str, pool: str = "lan") -> None:
        """Release the address of a load balancer of somebody else."""
        self.put(IP_POOLS, given_back(self.of(IP_POOLS)[pool], owner))

    def _allocate(self, key: str) -> None:
        if key not in self.of(LOAD_BALANCERS):
            return
        self.before_allocation(key)
        spec = self.of(LOAD_BALANCERS)[key]["spec"]
        name = spec.get("ipPool") or "lan"
        document = self.of(IP_POOLS)[name]
        try:
            address = choose_address(Pool.of(document), key)
        except PoolProblem as problem:
            condition = {"type": "Ready", "status": "False", "message": str(problem)}
            self.change(LOAD_BALANCERS, key, {"status": {"allocatedAddress": {}, "conditions": [condition]}})
            return
        self.put(IP_POOLS, booked(document, address, key))
        status: Document = {
            "allocatedAddress": allocated_address(Pool.of(document), address),
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        if spec["workloadType"] == "vm":
            status["address"] = address
        self.change(LOAD_BALANCERS, key, {"status": status})

    def requests_to(self, collection: Any) -> list[str]:
        path = collection.path()
        return [f"{call.verb} {call.path}" for call in self.calls if path in call.path and call.verb != "WATCH"]

    @property
    def reviews(self) -> int:
        return sum(call.verb == "REVIEW" for call in self.calls)


def requesting(address: str = WANTED, *, name: str = "web", pool: str = "lan", **fields: Any) -> Document:
    """Return the arguments of a Service that requests an address of a pool."""
    annotations = {IP_POOL: pool, **fields.pop("annotations", {})}
    requested = {"name": name, "uid": f"uid-of-{name}", "annotations": annotations}
    return {**requested, "spec": {"loadBalancerIP": address}, **fields}


def start(harvester: PooledHarvester) -> Program:
    return Program(guest_server(), harvester, "demo")


FORMS: dict[str, Mapping[str, Any]] = {
    "field": requesting(),
    "annotation of kube-vip": requesting(annotations={KUBE_VIP_ADDRESSES: WANTED}, spec={}),
    "annotation": requesting(annotations={REQUESTED_ADDRESS: WANTED}, spec={}),
    "VM load balancer": requesting(annotations={WORKLOAD_TYPE: "vm"}),
}


@pytest.mark.parametrize("fields", FORMS.values(), ids=FORMS)
@jumping_time
@pytest.mark.guarantee("A requested address that is permitted and free is honored")
async def test_new_service_gets_the_requested_address(fields: Mapping[str, Any]) -> None:
    harvester = PooledHarvester()
    program = start(harvester)
    async with program.live():
        await asyncio.sleep(1)
        program.put(service(**fields))
        await asyncio.sleep(30)
        assert program.address() == WANTED
        assert not any(WANTED in text for text in program.warnings())
        await asyncio.sleep(HOUR)
    assert harvester.requests_to(IP_POOLS) == [f"{verb} {IP_POOLS.path(None, 'lan')}" for verb in ("GET", "PATCH")]
    patch = next(call.body for call in harvester.calls if call.verb == "PATCH")
    assert patch.keys() == {"metadata", "status"}
    assert patch["metadata"].keys() == {"resourceVersion"}
    ((address, owner),) = patch["status"]["allocatedHistory"].items()
    assert (address, owner) == (WANTED, next(iter(harvester.of(LOAD_BALANCERS))))


@pytest.mark.parametrize("writes", range(1, 8))
@jumping_time
@pytest.mark.guarantee("A requested address that is permitted and free is honored")
async def test_restart_between_any_two_writes_changes_nothing(writes: int) -> None:
    harvester = PooledHarvester()
    program = start(harvester)
    program.put(service(**requesting(annotations={KUBE_VIP_ADDRESSES: WANTED}, spec={})))
    await program.until_crash(writes)
    for server in (program.guest, harvester):
        server.fault = None
    async with program.live():
        await asyncio.sleep(60)
        assert program.address() == WANTED
    assert list(harvester.of(IP_POOLS)["lan"]["status"]["allocated"]) == [WANTED]


@jumping_time
async def test_permission_is_reviewed_once_and_found_with_the_resync() -> None:
    harvester = PooledHarvester(permitted=False)
    program = start(harvester)
    program.put(service(**requesting(name="early")))
    async with program.live():
        await asyncio.sleep(300)
        assert program.address("early") == "10.0.0.2"
        assert (harvester.reviews, harvester.requests_to(IP_POOLS)) == (1, [])
        (text,) = program.warnings("early")
        assert "generate_addon.sh --address-pools" in text
        harvester.permissions.rules = lambda _by: [RULE]
        await asyncio.sleep(600)
        program.put(service(**requesting()))
        await asyncio.sleep(30)
        assert program.address() == WANTED


@jumping_time
@pytest.mark.guarantee("A requested address that is permitted and free is honored")
async def test_service_waits_for_an_address_in_use_and_gets_it_when_a_load_balancer_goes() -> None:
    harvester = PooledHarvester()
    program = start(harvester)
    program.put(service(**requesting(name="first")))
    async with program.live():
        await asyncio.sleep(10)
        assert program.address("first") == WANTED
        program.put(service(**requesting()))
        await asyncio.sleep(10)
        assert program.condition()["reason"] == "AddressInUse"
        (text,) = program.warnings()
        assert "first has it" in text
        assert len(harvester.of(LOAD_BALANCERS)) == 1
        seen = len(harvester.requests_to(IP_POOLS))
        await asyncio.sleep(60)
        assert len(harvester.requests_to(IP_POOLS)) == seen, "nothing is asked while nothing changes"
        program.guest.delete(SERVICES, "shop/first")
        await asyncio.sleep(5)
        assert program.address() == WANTED
        assert program.condition()["status"] == "True"


@jumping_time
async def test_pool_that_changes_meanwhile_is_read_again() -> None:
    harvester = PooledHarvester()
    program = start(harvester)
    changes = iter(["10.0.0.7", "10.0.0.8"])

    def change(call: Call) -> None:
        if call.verb == "PATCH" and (address := next(changes, None)) is not None:
            harvester.book(address, f"others/{address}")

    harvester.on_arrived.append(change)
    program.put(service(**requesting()))
    async with program.live():
        await asyncio.sleep(30)
        assert program.address() == WANTED
    assert len(harvester.requests_to(IP_POOLS)) == 6
    assert program.warnings() == []


FORBIDDEN: Final = 'ippools "lan" is forbidden: User "demo" cannot patch resource "ippools"'
DENIALS: dict[str, tuple[str, KubeError]] = {
    "RBAC, when the pool is read": ("GET", refused(403, "Forbidden", FORBIDDEN)),
    "pool too large to be read": ("GET", AnswerTooLarge("more than 16 MiB")),
    "RBAC": ("PATCH", refused(403, "Forbidden", FORBIDDEN)),
    "policy": ("PATCH", refused(422, "Invalid", "ValidatingAdmissionPolicy 'p' denied request: only the history")),
}


@pytest.mark.parametrize(("verb", "denial"), DENIALS.values(), ids=DENIALS)
@jumping_time
async def test_denied_request_is_explained_and_the_service_gets_an_address(verb: str, denial: KubeError) -> None:
    harvester = PooledHarvester()
    harvester.fault = lambda call: denial if "ippools" in call.path and call.verb == verb else None
    program = start(harvester)
    program.put(service(**requesting()))
    async with program.live():
        await asyncio.sleep(60)
        assert program.address() == "10.0.0.2"
        assert any(f"Harvester: {denial}" in text for text in program.warnings())
    assert len(harvester.requests_to(IP_POOLS)) == (1 if verb == "GET" else 2)
