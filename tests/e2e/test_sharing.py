"""Services that share one address: who may, who may not and learns why, and what happens when the others change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from devenv.faults import Answer, Delay
from devenv.stage import Stage, until
from harvester_ccm.errors import NotFound
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    IP_POOL,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    Reason,
)
from tests.e2e.observing import caught_up, give_endpoints, retouched, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("ccm")]

THREE = {"subnet": "127.77.9.0/24", "rangeStart": "127.77.9.11", "rangeEnd": "127.77.9.13"}
NOBODY = {"project": "*", "namespace": "nobody", "guestCluster": "*"}
"""Scope of a pool that is used only where it is named."""
TEN = [f"copy-{number}" for number in range(10)]


async def create(
    stage: Stage, name: str, port: int, *, of: str = "", protocol: str = "TCP", namespace: str = "default"
) -> None:
    """Create a Service with one port; ``of`` is the primary whose address it wants."""
    ports = [{"name": "main", "port": port, "protocol": protocol}]
    annotations = {PRIMARY_SERVICE: of} if of else {}
    await stage.create_service(name, namespace=namespace, ports=ports, annotations=annotations)


async def refused(stage: Stage, name: str, *words: str, namespace: str = "default") -> None:
    """Check that a Service was told once why it gets no address, and has none."""
    told = await stage.hears(name, Reason.SHARING_REFUSED, namespace=namespace)
    assert told.type == "Warning"
    for word in words:
        assert word in told.message, told.message
    service = await stage.service(name, namespace)
    assert service is not None
    assert service.addresses == ()


async def has_address(stage: Stage, address: str, *names: str, namespace: str = "default") -> None:
    """Return when all these Services have the address."""

    async def same() -> bool:
        found = [await stage.service(name, namespace) for name in names]
        return all(one is not None and one.addresses == (address,) for one in found)

    await until(same, within=60, what=f"{address} on {', '.join(names)}")


async def test_tcp_and_udp_of_one_number_share_an_address(stage: Stage) -> None:
    await create(stage, "dns-udp", 53, protocol="UDP")
    await create(stage, "dns-tcp", 53, of="default/dns-udp")
    await stage.served("dns-udp", "dns-tcp")

    await has_address(stage, "127.77.0.2", "dns-udp", "dns-tcp")
    assert len(await stage.load_balancers()) == 1
    assert stage.kube_vip.announced == {"127.77.0.2": {"default/dns-udp", "default/dns-tcp"}}
    document = await stage.service_document("dns-tcp")
    assert document["status"]["loadBalancer"]["ingress"] == [
        {"ip": "127.77.0.2", "ipMode": "VIP", "ports": [{"port": 53, "protocol": "TCP"}]},
    ]
    assert document["metadata"]["finalizers"] == [SERVICE_FINALIZER]
    assert document["metadata"]["labels"] == {PRIMARY_SERVICE_LABEL: "default.dns-udp"}
    assert document["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == "127.77.0.2"
    told = await stage.hears("dns-tcp", Reason.ENSURED)
    assert told.message == "Ensured load balancer, address 127.77.0.2 shared with default/dns-udp"

    await stage.delete_service("dns-tcp")
    await stage.gone("dns-tcp")
    assert len(await stage.load_balancers()) == 1
    await stage.delete_service("dns-udp")
    await stage.gone("dns-udp")
    await stage.nothing_left()


async def test_taken_port_is_refused_until_the_other_service_lets_it_go(stage: Stage) -> None:
    await create(stage, "main", 80)
    await create(stage, "first", 8080, of="default/main")
    await stage.served("main", "first")
    await create(stage, "second", 8080, of="default/main")
    await create(stage, "third", 80, of="default/main")

    await refused(stage, "second", "Port 8080/TCP", "Service default/first")
    await refused(stage, "third", "Port 80/TCP", "Service default/main")
    for name in ("second", "third"):
        await retouched(stage, name)
        assert len(await stage.told(name)) == 1

    await stage.change_service("first", {"spec": {"ports": [{"name": "main", "port": 8081}]}})
    await stage.change_service("main", {"spec": {"ports": [{"name": "main", "port": 81}]}})
    await has_address(stage, "127.77.0.2", "main", "first", "second", "third")

    # Who is served already keeps its port.
    await stage.change_service("main", {"spec": {"ports": [{"name": "main", "port": 8081}]}})
    told = await stage.hears("first", Reason.SHARING_REFUSED)
    assert "Port 8081/TCP" in told.message
    assert "default/main" in told.message


async def test_primaries_that_cannot_be_ones(stage: Stage) -> None:
    await create(stage, "main", 80)
    await create(stage, "middle", 81, of="default/main")
    await stage.served("main", "middle")

    await create(stage, "chained", 82, of="default/middle")
    await create(stage, "alone", 83, of="default/nobody")
    await create(stage, "self", 84, of="default/self")
    await create(stage, "plain", 85, of="main")
    await stage.create_service("internal", spec={"type": "ClusterIP"})
    await create(stage, "of-internal", 86, of="default/internal")

    await refused(stage, "chained", "default/middle itself shares", "Name default/main as primary")
    await refused(stage, "alone", "default/nobody does not exist")
    await refused(stage, "self", "names itself")
    await refused(stage, "of-internal", "default/internal has no load balancer", "LoadBalancer")
    told = await stage.hears("plain", Reason.INVALID_ANNOTATION)
    assert told.message == (
        f"Annotation {PRIMARY_SERVICE} is 'main'; expected namespace/name of a Service of type LoadBalancer"
    )

    await create(stage, "nobody", 90)
    await stage.change_service("internal", {"spec": {"type": "LoadBalancer"}})
    await own_addresses(stage, "nobody", "internal")
    for name, primary in (("alone", "nobody"), ("of-internal", "internal")):
        (service,) = await stage.served(primary)
        await has_address(stage, service.addresses[0], name)
    for name, of in (("chained", "default/main"), ("plain", "default/main"), ("self", None)):
        await stage.change_service(name, {"metadata": {"annotations": {PRIMARY_SERVICE: of}}})
    await has_address(stage, "127.77.0.2", "main", "middle", "chained", "plain")
    await own_addresses(stage, "self", "main")
    assert len(await stage.load_balancers()) == 4


async def own_addresses(stage: Stage, *names: str) -> None:
    """Check that all these Services have addresses, each its own."""
    services = await stage.served(*names)
    assert len({service.addresses for service in services}) == len(names)


async def test_primary_that_is_deleted_stays_while_its_address_is_used(stage: Stage) -> None:
    await give_endpoints(stage, "other-2")
    await create(stage, "main", 80)
    for number in (1, 2):
        await create(stage, f"other-{number}", 80 + number, of="default/main")
    await stage.served("main", "other-1", "other-2")

    await stage.delete_service("main")
    told = await stage.hears("main", Reason.DELETION_PENDING)
    assert "default/other-1, default/other-2" in told.message
    await stage.hears("other-1", Reason.SHARING_REFUSED)
    await retouched(stage, "other-2")
    await has_address(stage, "127.77.0.2", "main", "other-1", "other-2")
    assert set(stage.kube_vip.announced) == {"127.77.0.2"}

    # One goes, one becomes a Service with an address of its own.
    await stage.delete_service("other-1")
    await stage.change_service("other-2", {"metadata": {"annotations": {PRIMARY_SERVICE: None}}})
    await stage.gone("main", "other-1")
    (other,) = await stage.served("other-2")
    assert other.addresses != ("127.77.0.2",)
    # kube-vip has let go of the old address and wants to see a change of the endpoints before it announces another.

    async def announced() -> bool:
        return set(stage.kube_vip.announced) == set(other.addresses)

    await until(announced, within=60, what="announcement of the new address")

    async def one_left() -> bool:
        return len(await stage.load_balancers()) == (await stage.harvester.counts()).booked == 1

    await until(one_left, within=60, what="end of the load balancer that main had")


async def test_primary_that_changes(stage: Stage) -> None:
    await give_endpoints(stage, "other")
    await create(stage, "left", 80)
    await stage.served("left")
    await create(stage, "right", 80)
    await stage.served("right")
    await create(stage, "other", 81, of="default/left")
    await has_address(stage, "127.77.0.2", "left", "other")

    await stage.change_service("other", {"metadata": {"annotations": {PRIMARY_SERVICE: "default/right"}}})
    await has_address(stage, "127.77.0.3", "right", "other")
    told = await stage.hears("other", Reason.ADDRESS_CHANGED)
    assert told.message == "The address changed from 127.77.0.2 to 127.77.0.3, shared with default/right"

    async def announced() -> bool:
        return stage.kube_vip.announced.get("127.77.0.3") == {"default/right", "default/other"}

    await until(announced, within=60, what="announcement of the other primary's address")
    document = await stage.service_document("other")
    assert document["metadata"]["labels"] == {PRIMARY_SERVICE_LABEL: "default.right"}

    # Nothing holds the former primary any more.
    await stage.delete_service("left")
    await stage.gone("left")
    # A Service with a load balancer of its own gives that up.
    await stage.change_service("right", {"metadata": {"annotations": {PRIMARY_SERVICE: "default/new"}}})
    await stage.hears("right", Reason.SHARING_REFUSED)
    await create(stage, "new", 90)
    await stage.change_service("other", {"metadata": {"annotations": {PRIMARY_SERVICE: "default/new"}}})
    (new,) = await stage.served("new")
    await has_address(stage, new.addresses[0], "new", "other", "right")

    async def one_left() -> bool:
        return len(await stage.load_balancers()) == (await stage.harvester.counts()).booked == 1

    await until(one_left, within=60, what="end of the load balancer that right had")


async def test_secondaries_that_come_first_and_from_other_namespaces(stage: Stage, namespace: str) -> None:
    await create(stage, "early", 81, of="default/main")
    await create(stage, "early", 82, of="default/main", namespace=namespace)
    await refused(stage, "early", "default/main does not exist")
    await refused(stage, "early", "default/main does not exist", namespace=namespace)

    async def nobody_waits() -> bool:
        return stage.kube_vip.waiting_for is None

    await until(nobody_waits, within=60, what="kube-vip to pass them over")

    await create(stage, "main", 80)
    await has_address(stage, "127.77.0.2", "main", "early")
    await has_address(stage, "127.77.0.2", "early", namespace=namespace)
    assert len(await stage.load_balancers()) == 1

    await stage.delete_service("early", namespace)
    await stage.delete_service("early")
    await stage.delete_service("main")
    await stage.gone("early", namespace=namespace)
    await stage.gone("early", "main")
    await stage.nothing_left()


async def test_secondaries_follow_the_primary_to_another_address(stage: Stage) -> None:
    await stage.harvester.create_pool("three", THREE, selector={"scope": [NOBODY]})
    await stage.create_service("main", annotations={IP_POOL: "three"})
    await create(stage, "other", 81, of="default/main")
    await has_address(stage, "127.77.9.11", "main", "other")
    (balancer,) = await stage.load_balancers()

    # Somebody else gets the address in the moment in which it is free.
    refusal = stage.harvester_proxy.inject(Answer(503, "not now"), method="POST", path="/loadbalancers")
    await stage.host.delete(LOAD_BALANCERS, balancer.metadata.name, namespace="default")
    await stage.nothing_left()
    await take_address(stage, "127.77.9.11")
    stage.harvester_proxy.heal(refusal)

    told = await stage.hears("main", Reason.ADDRESS_CHANGED)
    assert told.message.startswith("The address changed from 127.77.9.11 to 127.77.9.")
    (main,) = await stage.served("main")
    await has_address(stage, main.addresses[0], "main", "other")
    told = await stage.hears("other", Reason.ADDRESS_NOT_BOOKED)
    assert told.message.startswith("Address 127.77.9.11 was withdrawn, because Harvester has given it to another")
    assert balancer.metadata.name in {one.metadata.name for one in await stage.load_balancers()}


async def take_address(stage: Stage, address: str) -> None:
    """Let a load balancer of others have this address of the pool; addresses are given in turn."""
    owners = {await foreign_address(stage, f"foreign-{number}"): f"foreign-{number}" for number in range(3)}
    assert address in owners
    await stage.host.delete(LOAD_BALANCERS, owners["127.77.9.12"], namespace="default")


async def foreign_address(stage: Stage, name: str) -> str:
    """Create a load balancer that is not the program's and return its address."""
    body = {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {"name": name},
        "spec": {"ipam": "pool", "workloadType": "cluster", "ipPool": "three"},
    }
    await stage.host.create(LOAD_BALANCERS, body, namespace="default")

    async def allocated() -> str:
        found = await stage.host.get(LOAD_BALANCERS, name, namespace="default")
        return found.allocated_ip if found.metadata.finalizers else ""

    return await until(allocated, within=60, what=f"address of {name}")


async def test_of_ten_with_the_same_port_exactly_one_wins(stage: Stage) -> None:
    await create(stage, "main", 80)
    await stage.served("main")
    stage.guest_proxy.forget()
    await asyncio.gather(*(create(stage, name, 8080, of="default/main") for name in TEN))

    async def all_decided() -> bool:
        told = [await stage.told(name) for name in TEN]
        return all(told)

    await until(all_decided, within=60, what="word about all ten")
    await caught_up(stage)
    winners = [name for name in TEN if await is_served(stage, name)]
    assert len(winners) == 1
    # No one was served for a moment and lost it again.
    ensured = [name for name in TEN if await stage.told(name, Reason.ENSURED)]
    assert ensured == winners
    assert len(writes(stage.guest_proxy, "/services/copy-")) <= 4 * len(TEN)

    await stage.delete_service(winners[0])
    await stage.gone(winners[0])

    async def another() -> bool:
        return any([await is_served(stage, name) for name in TEN])

    await until(another, within=60, what="another winner")
    await caught_up(stage)
    assert sum([await is_served(stage, name) for name in TEN]) == 1
    await delete_all(stage, TEN)


async def is_served(stage: Stage, name: str) -> bool:
    """Return whether a Service has an address."""
    service = await stage.service(name)
    return service is not None and bool(service.addresses)


async def delete_all(stage: Stage, names: Sequence[str]) -> None:
    """Delete Services, some of which may be gone."""
    for name in names:
        with suppress(NotFound):
            await stage.delete_service(name)
    await stage.gone(*names)


async def test_nobody_waits_for_services_that_share_a_slow_address(stage: Stage) -> None:
    await create(stage, "main", 80)
    await stage.served("main")
    slow = stage.guest_proxy.inject(Delay(6), method="PATCH", path="/services/copy-")
    many = [f"copy-{number:02}" for number in range(30)]
    await asyncio.gather(*(create(stage, name, 1000 + number, of="default/main") for number, name in enumerate(many)))

    async def begun() -> bool:
        return slow.hits > 0

    await until(begun, within=60, what="the first slow write")
    for name in ("bystander-1", "bystander-2"):
        await create(stage, name, 80)
        await stage.served(name, within=60)
    # They take turns. Were all workers waiting for theirs, the bystanders would be behind most of them.
    assert slow.hits <= 4
    stage.guest_proxy.heal(slow)
    (main,) = await stage.served("main")
    await has_address(stage, main.addresses[0], *many)
