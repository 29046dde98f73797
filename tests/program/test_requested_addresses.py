"""Addresses that no load balancer of their Service allocated: requested, lost, allocated twice, unreachable."""

import asyncio

import pytest

from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_LEASE,
    LB_CONTROLLER_FINALIZER,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
)
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import Document
from tests.support.program_world import Harvester, Program, by_name, guest_server

HOUR = 3600.0
REQUESTED = "192.168.1.50"
NO_POOL = (
    "allocate ip for lb vms/x failed, error: no matching IP pool with requirement &{Network: Project: Namespace:vms "
    "Cluster:demo}"
)
REQUESTS: dict[str, Document] = {
    "field": {"spec": {"loadBalancerIP": REQUESTED}},
    "annotation of kube-vip": {"annotations": {KUBE_VIP_ADDRESSES: REQUESTED}},
}
each_request = pytest.mark.parametrize("request_fields", REQUESTS.values(), ids=REQUESTS.keys())


class PoolHarvester(Harvester):
    """Allocates the addresses of a pool in order, and rejects a load balancer if none is left."""

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self.free = list(addresses)

    def _allocate(self, key: str) -> None:
        status: Document = {"allocatedAddress": {}, "conditions": [{"type": "Ready", "message": NO_POOL}]}
        if self.free:
            allocated = {"ip": self.free.pop(0), "ipPool": "lan"}
            status = {"allocatedAddress": allocated, "conditions": [{"type": "Ready", "status": "True"}]}
        if key in self.of(LOAD_BALANCERS):
            self.change(LOAD_BALANCERS, key, {"metadata": {"finalizers": [LB_CONTROLLER_FINALIZER]}, "status": status})

    def add(self, address: str) -> None:
        """Add an address to the pool, for the first load balancer without one."""
        self.free.append(address)
        for key in list(self.of(LOAD_BALANCERS)):
            self._allocate(key)


def announce(program: Program) -> None:
    """Write the requested address into the status, as kube-vip does."""
    program.change(status={"loadBalancer": {"ingress": [{"ip": REQUESTED}]}})


@each_request
@pytest.mark.guarantee("No address is announced before Harvester has allocated it")
@jumping_time
async def test_requested_address_of_a_new_service_waits_until_harvester_has_allocated_it(
    request_fields: Document,
) -> None:
    harvester = PoolHarvester()
    program = Program(guest_server(), harvester, "demo")
    async with program.live():
        await asyncio.sleep(1)
        program.put(service(**request_fields))
        announce(program)
        await asyncio.sleep(60)
        assert (program.address(), program.annotations()[KUBE_VIP_ADDRESSES]) == ("", "")
        assert program.condition()["reason"] == "NoMatchingPool"
        harvester.add(REQUESTED)
        await asyncio.sleep(60)
        assert program.address() == program.annotations()[KUBE_VIP_ADDRESSES] == REQUESTED
        assert program.condition()["status"] == "True"
        assert [reason for reason in program.reasons() if "NoMatchingPool" not in reason] == []


CLAIMS: dict[str, Document] = {
    "field": {"spec": {"loadBalancerIP": "10.0.0.1"}},
    "annotation of kube-vip": {"annotations": {KUBE_VIP_ADDRESSES: "10.0.0.1"}},
    "annotation of a lease": {"annotations": {IPAM: "dhcp", KUBE_VIP_LEASE: "10.0.0.1"}, "address": "10.0.0.1"},
    "stored request": {"annotations": {REQUESTED_ADDRESS: "10.0.0.1"}},
    "status": {"address": "10.0.0.1", "annotations": {KUBE_VIP_HOST: "node-1"}},
    "field and status": {
        "spec": {"loadBalancerIP": "10.0.0.1"},
        "address": "10.0.0.1",
        "annotations": {KUBE_VIP_HOST: "node-1"},
    },
    "annotation of kube-vip and status": {
        "address": "10.0.0.1",
        "annotations": {KUBE_VIP_ADDRESSES: "10.0.0.1", KUBE_VIP_HOST: "node-1"},
    },
    "marks of a managed Service": {"ours": True, "address": "10.0.0.1", "annotations": {KUBE_VIP_HOST: "node-1"}},
    "label of a secondary": {"labels": {PRIMARY_SERVICE_LABEL: "shop.web"}, "address": "10.0.0.1"},
}
"""What a tenant can write into a Service to get the address of another one, without sharing it."""


@pytest.mark.parametrize("free", [["10.0.0.2"], []], ids=["another address is free", "no address is free"])
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.guarantee("A Service cannot take the address of another Service")
@pytest.mark.security("Harvester never gives it the address of another Service")
@jumping_time
async def test_service_that_claims_the_address_of_another_one_does_not_get_it(claim: Document, free: list[str]) -> None:
    harvester = PoolHarvester("10.0.0.1", *free)
    program = Program(guest_server(), harvester, "demo")
    program.create("web")
    async with program.live():
        await asyncio.sleep(10)
        (owned,) = by_name(harvester, LOAD_BALANCERS).values()
        before = program.service()
        assert program.address() == "10.0.0.1"
        program.put(service("thief", namespace="mallory", uid="uid-of-thief", **claim))
        await asyncio.sleep(HOUR)
        thief = program.guest.of(SERVICES)["mallory/thief"]
        ingress = thief["status"].get("loadBalancer", {}).get("ingress") or []
        assert "10.0.0.1" not in [entry.get("ip") for entry in ingress]
        assert thief["metadata"]["annotations"].get(KUBE_VIP_ADDRESSES) != "10.0.0.1"
        assert program.service() == before
        assert by_name(harvester, LOAD_BALANCERS)[owned["metadata"]["name"]] == owned


@pytest.mark.guarantee("A Service cannot take the address of another Service")
@pytest.mark.security("Harvester never gives it the address of another Service")
@jumping_time
async def test_lease_that_a_tenant_notes_is_never_the_address_of_another_service() -> None:
    program = Program(guest_server(), Harvester(), "demo")
    program.create("web")
    program.put(service("thief", uid="thief", annotations={IPAM: "dhcp"}))
    program.put(service("friend", uid="friend", annotations={PRIMARY_SERVICE: "shop/thief"}, ports=[{"port": 443}]))
    async with program.live():
        await asyncio.sleep(10)
        # As kube-vip notes a lease, which it has not got yet.
        notes = {KUBE_VIP_LEASE: program.address(), KUBE_VIP_HOST: "node-1"}
        program.change("thief", metadata={"annotations": notes})
        await asyncio.sleep(HOUR)
        assert (program.address("thief"), program.address("friend")) == ("", "")
        assert program.condition("thief")["reason"] == "DHCPLeasePending", "a note without the status is nothing"
        # The lease that kube-vip gets is not affected.
        program.change("thief", metadata={"annotations": {KUBE_VIP_LEASE: "10.9.0.9"}})
        program.change("thief", status={"loadBalancer": {"ingress": [{"ip": "10.9.0.9"}]}})
        await asyncio.sleep(60)
        assert program.condition("thief")["status"] == "True"
        assert program.address("thief") == program.address("friend") == "10.9.0.9"
