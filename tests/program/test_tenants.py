"""What tenants of other namespaces can write must not affect the Services and Nodes of others."""

import asyncio
from typing import Any

import pytest

from harvester_ccm.kube.write_limit import WRITE_INTERVAL_SECONDS
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from tests.support.background import running
from tests.support.builders import ADDRESS, CLUSTER, allocated, served, service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Document, document_of
from tests.support.node_world import NAMESPACE, NodeWorld, initialised, machine
from tests.support.program_world import Harvester, Program, guest_server, with_machines, with_nodes

CLAIMED: dict[str, Any] = {
    "namespace": "mallory",
    "uid": "uid-of-mallory",
    "ports": [{"port": 443, "nodePort": 30443}],
    "labels": {PRIMARY_SERVICE_LABEL: "shop.web"},
}


def with_primary(*flags: str) -> Program:
    """Return a program with a Service that has an address."""
    program = Program(with_nodes(guest_server()), with_machines(Harvester()), CLUSTER.name, *flags)
    program.put(served())
    program.harvester.put(LOAD_BALANCERS, document_of(allocated()))
    return program


def secondary(program: Program) -> Document:
    return program.guest.of(SERVICES)["mallory/api"]


def address_of(found: Document) -> str:
    ingress = (found.get("status") or {}).get("loadBalancer", {}).get("ingress") or [{}]
    return str(ingress[0].get("ip", ""))


@pytest.mark.parametrize("annotations", [{}, {PRIMARY_SERVICE: "shop/web"}], ids=["label", "label and annotation"])
@jumping_time
async def test_service_that_may_not_share_keeps_no_primary_from_its_deletion_by_claiming_it_again_and_again(
    annotations: dict[str, str],
) -> None:
    """The address may really be announced for it, so the deletion waits until it is withdrawn once more."""
    program = with_primary("--shared-address-scope=namespace")
    claim = {"metadata": {"labels": CLAIMED["labels"], "annotations": {KUBE_VIP_ADDRESSES: ADDRESS, **annotations}}}

    async def claim_again_and_again() -> None:
        while True:
            program.guest.change(SERVICES, "mallory/api", claim)
            await asyncio.sleep(1)

    async with program.live():
        program.put(service("api", **CLAIMED, annotations=claim["metadata"]["annotations"]))
        async with running(claim_again_and_again()):
            await asyncio.sleep(125)
            program.guest.delete(SERVICES, "shop/web")
            await until(lambda: "shop/web" not in program.guest.of(SERVICES), seconds=2 * WRITE_INTERVAL_SECONDS)
            addresses = {found["status"].get("address") for found in program.harvester.items(LOAD_BALANCERS)}
            assert ADDRESS not in addresses


THEFTS: dict[str, dict[str, Any]] = {
    "annotation": {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS}}},
    "annotation, as an IPv6 address": {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: f"::ffff:{ADDRESS}"}}},
    "list in the annotation": {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: f"10.0.0.200,{ADDRESS}"}}},
    "specification": {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: None}}, "spec": {"loadBalancerIP": ADDRESS}},
    "shared address": {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: ADDRESS, PRIMARY_SERVICE: "shop/web"}}},
}


@pytest.mark.parametrize("theft", THEFTS.values(), ids=THEFTS.keys())
@pytest.mark.security(
    "The address of another Service is removed each time without a delay, and that Service gets the Event "
    "`AddressClaimed`"
)
@jumping_time
async def test_address_of_another_service_is_removed_as_often_as_a_tenant_writes_it(theft: dict[str, Any]) -> None:
    """What a tenant can write again and again must not stay while a correction waits for its rate limit."""
    program = with_primary("--shared-address-scope=namespace")
    assert await share_of_a_theft(program, theft, ADDRESS) < 0.02
    (claimed,) = [text for text in program.warnings("web") if "was written to Service mallory/api" in text]
    assert claimed.startswith(f"Address {ADDRESS} of this Service")
    assert "kubeVipPolicy=deny" in claimed


@pytest.mark.parametrize("text", ["10.9.0.1", "web.example.org"], ids=["Node", "host name"])
@pytest.mark.security("The address of another Service is removed each time without a delay")
@jumping_time
async def test_address_of_a_node_and_host_name_are_removed_as_often_as_a_tenant_writes_them(text: str) -> None:
    """kube-vip resolves a host name, to any address."""
    program = with_primary()
    addresses = [{"type": "InternalIP", "address": "10.9.0.1"}]
    program.guest.put(NODES, {"metadata": {"name": "other"}, "spec": {}, "status": {"addresses": addresses}})
    theft = {"metadata": {"annotations": {KUBE_VIP_ADDRESSES: text}}}
    assert await share_of_a_theft(program, theft, text) < 0.02


async def share_of_a_theft(program: Program, theft: dict[str, Any], text: str) -> float:
    """Return the part of two minutes in which kube-vip reads a text that a tenant writes whenever it is gone."""
    program.put(service("api", **{**CLAIMED, "labels": {}}))
    times: dict[bool, float] = {True: 0.0, False: 0.0}
    last = (False, 0.0)

    def count(*_change: object) -> None:
        nonlocal last
        now = asyncio.get_running_loop().time()
        was_shown, since = last
        times[was_shown] += now - since
        last = (is_shown(), now)

    async def steal_again_and_again() -> None:
        while True:
            if not is_shown():
                program.guest.change(SERVICES, "mallory/api", theft)
            await asyncio.sleep(0.5)

    def is_shown() -> bool:
        found = secondary(program)
        annotated = found["metadata"]["annotations"].get(KUBE_VIP_ADDRESSES)
        return text in (found["spec"].get("loadBalancerIP", "") if annotated is None else annotated)

    async with program.live():
        await until(lambda: address_of(secondary(program)) != "", seconds=60)
        program.guest.on_change.append(count)
        async with running(steal_again_and_again()):
            await asyncio.sleep(120)
        count()
    return times[True] / times[False]


@pytest.mark.security("A Service can share the address of a Service in another namespace, as with the Go provider")
@pytest.mark.security(
    "That adds its ports to this address, and to the VM load balancer of the other Service, if it has one"
)
@pytest.mark.security("It changes the load balancer of another Service only if it shares the address")
@pytest.mark.security("`--shared-address-scope=namespace`")
@pytest.mark.security("permits sharing only within a namespace")
@pytest.mark.parametrize("scope", ["cluster", "namespace"])
@pytest.mark.parametrize("workload_type", ["cluster", "vm"])
@jumping_time
async def test_scope_of_shared_addresses_is_the_cluster_or_the_namespace_of_the_primary(
    scope: str, workload_type: str
) -> None:
    program = with_primary(f"--shared-address-scope={scope}")
    program.change(metadata={"annotations": {WORKLOAD_TYPE: workload_type}})
    program.put(service("api", **{**CLAIMED, "labels": {}}, annotations={PRIMARY_SERVICE: "shop/web"}))
    program.put(
        service("db", uid="db", ports=[{"port": 5432, "nodePort": 30432}], annotations={PRIMARY_SERVICE: "shop/web"})
    )
    async with program.live():
        await asyncio.sleep(60)
        assert program.address() == program.address("db") != ""
        assert address_of(secondary(program)) == (program.address() if scope == "cluster" else "")
        if workload_type == "vm":
            (balancer,) = program.harvester.items(LOAD_BALANCERS)
            ports = {listener["port"] for listener in balancer["spec"]["listeners"]}
            assert (443 in ports) is (scope == "cluster")
        texts = [text for text in program.warnings("api") if text.startswith("Annotation ")]
        assert bool(texts) is (scope == "namespace")
        for part in (PRIMARY_SERVICE, "'shop/web'", "namespace mallory", "--shared-address-scope"):
            assert all(part in text for text in texts)


@pytest.mark.security("Services that share across namespaces then give up the address")
@jumping_time
async def test_service_of_another_namespace_gives_up_a_shared_address_that_is_not_permitted_any_more() -> None:
    program = with_primary()
    program.put(service("api", **{**CLAIMED, "labels": {}}, annotations={PRIMARY_SERVICE: "shop/web"}))
    async with program.live():
        await asyncio.sleep(10)
        assert address_of(secondary(program)) == ADDRESS
    restricted = Program(program.guest, program.harvester, CLUSTER.name, "--shared-address-scope=namespace")
    async with restricted.live():
        await asyncio.sleep(10)
        assert address_of(secondary(restricted)) == ""
        assert secondary(restricted)["metadata"]["annotations"][KUBE_VIP_ADDRESSES] == ""
        restricted.guest.delete(SERVICES, "shop/web")
        await until(lambda: "shop/web" not in restricted.guest.of(SERVICES), seconds=30)


@pytest.mark.security("The Events of the sharing Service tell whether the other Service exists, and which ports it has")
@jumping_time
async def test_events_of_a_sharing_service_tell_about_its_primary() -> None:
    program = with_primary()
    texts = []
    for primary, port in (("shop/web", 80), ("shop/web", 443), ("shop/nobody", 80)):
        fields = {**CLAIMED, "labels": {}, "ports": [{"port": port, "nodePort": 30443}]}
        program.put(service("api", **fields, annotations={PRIMARY_SERVICE: primary}))
        program.guest.of("v1/events").clear()
        async with program.live():
            await asyncio.sleep(60)
        texts.append(" ".join(program.warnings("api")))
    taken, shared, absent = texts
    assert "Port 80/TCP is used on this address by Service shop/web" in taken
    assert shared == ""
    assert "Service 'shop/nobody' does not exist" in absent


TAKEN = "10.0.0.1"
CLAIMS: dict[str, dict[str, Any]] = {
    "another class": {
        "annotations": {KUBE_VIP_ADDRESSES: TAKEN},
        "spec": {"loadBalancerClass": "x/y"},
        "finalizers": [SERVICE_FINALIZER],
    },
    "another class, status": {
        "annotations": {KUBE_VIP_ADDRESSES: TAKEN, KUBE_VIP_HOST: "w0"},
        "spec": {"loadBalancerClass": "x/y"},
        "finalizers": [SERVICE_FINALIZER],
        "status": {"ingress": [{"ip": TAKEN}]},
    },
    "requested, and announced by kube-vip": {
        "annotations": {KUBE_VIP_HOST: "w0"},
        "spec": {"loadBalancerIP": TAKEN},
        "status": {"ingress": [{"ip": TAKEN}]},
    },
}


@pytest.mark.parametrize("fields", CLAIMS.values(), ids=CLAIMS.keys())
@jumping_time
@pytest.mark.security("Harvester never gives it the address of another Service")
async def test_service_cannot_keep_a_node_from_its_address(fields: dict[str, Any]) -> None:
    world = NodeWorld()
    world.guest_server, world.harvester_server = guest, harvester = guest_server(), Harvester()
    harvester.paused = True
    program = Program(guest, harvester, CLUSTER.name, "--controllers=*", namespace=NAMESPACE)
    program.put(service("claim", **fields))
    vm = machine("w1")
    async with program.live():
        await asyncio.sleep(60)
        world.boot(vm, TAKEN)
        world.join(vm.name, system_uuid=vm.system_uuid)
        await initialised(world, [vm.name])
        assert f"InternalIP {TAKEN}" in world.addresses(vm.name)
