"""Harvester before 1.2, which has load balancers of v1alpha1 only, and what its upgrade leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from devenv.ccm import CcmProcess
from devenv.demo.requests import ask
from devenv.faults import Record
from devenv.guestnodes import GuestNodes, address_of
from devenv.harvester.before12 import HarvesterBefore12
from devenv.harvester.definitions import serve_now
from devenv.harvester.emulator import DataPath
from devenv.harvester.records import LOAD_BALANCERS_V1ALPHA1, POOLS, SERVICES
from devenv.kubevip import KubeVipOptions
from devenv.logfile import logs_to
from devenv.restclient import Json
from devenv.stage import HOST_DHCP_RANGE, VM_NAMESPACE, Scene, Stage, until
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_TIMEOUT,
    IP_POOL,
    IPAM,
    WORKLOAD_TYPE,
    Reason,
)
from tests.e2e.conftest import DHCP_RANGE, clear
from tests.e2e.observing import caught_up, writes

pytestmark = pytest.mark.apiserver

BALANCERS = "/loadbalancers"
HTTP = {"name": "http", "port": 8080, "protocol": "TCP", "nodePort": 31080}
POOL = ("127.77.0.2", "127.77.0.99")
DEFAULT_CHECK = {"successThreshold": 1, "failureThreshold": 3, "PeriodSeconds": 5, "timeoutSeconds": 3}
QUICK_CHECK = {
    HEALTH_CHECK_PORT: "http",
    HEALTH_CHECK_FAILURE_THRESHOLD: "1",
    HEALTH_CHECK_PERIOD: "1",
    HEALTH_CHECK_TIMEOUT: "1",
}
OURS = "cloudprovider.harvesterhci.io"
THEIRS = "loadbalancer.harvesterhci.io"
CHOSEN = "harvester load balancer API version="


@pytest.fixture
async def stage(scene: Scene, tmp_path: Path) -> AsyncIterator[Stage]:
    """Clean clusters, whose Harvester is left as one of today."""
    with logs_to(tmp_path / "emulators.log"):
        try:
            options = KubeVipOptions(dhcp_range=DHCP_RANGE)
            async with Stage(scene, tmp_path, kube_vip=options, emulate=False) as opened:
                try:
                    yield opened
                finally:
                    await serve_now(opened.host)
        finally:
            clear(scene)
    for run in opened.runs:
        assert "Traceback" not in run.log, run.log


@pytest.fixture
async def old(stage: Stage) -> AsyncIterator[HarvesterBefore12]:
    """A Harvester before 1.2 in the place of today's."""
    data_path = DataPath(dhcp_range=HOST_DHCP_RANGE)
    async with HarvesterBefore12(stage.host, pool=POOL, data_path=data_path) as harvester:
        yield harvester


@pytest.fixture
async def nodes(stage: Stage) -> AsyncIterator[GuestNodes]:
    """Two nodes of the guest."""
    # The program takes a node's address from a NIC in a VM network.
    async with GuestNodes(stage.guest, stage.host, networks=("default/lan",)) as nodes:
        await nodes.add(1, 2)
        yield nodes


@pytest.fixture
async def ccm(stage: Stage, old: HarvesterBefore12, nodes: GuestNodes) -> CcmProcess:
    """The program, leading, with everything that it sends going through the proxies."""
    run = stage.run(proxied=True)
    # Of what it finds there it must assume that it had a load balancer until a moment ago.
    await stage.logged(run, "service controller started")
    return run


async def balancers(stage: Stage) -> list[Json]:
    """Return the load balancers as they are stored."""
    return await stage.host_eyes.all(LOAD_BALANCERS_V1ALPHA1.path(VM_NAMESPACE))


async def balancer(stage: Stage, **spec: object) -> Json:
    """Return the only load balancer once it has an address, its finalizer, and these fields in its ``spec``."""

    async def found() -> Json | None:
        present = await balancers(stage)
        complete = (
            len(present) == 1 and present[0]["status"].get("address") and present[0]["metadata"].get("finalizers")
        )
        return present[0] if complete and spec.items() <= present[0]["spec"].items() else None

    return await until(found, within=60, what=f"load balancer with {spec}")


async def answer(address: str, *numbers: int) -> None:
    """Return when exactly these nodes answer on port 8080."""
    names = {f"node-{number}" for number in numbers}

    async def only_these() -> bool:
        return {await ask("TCP", address, 8080) for _ in range(6)} == names

    await until(only_these, within=60, what=f"answers from {', '.join(sorted(names))}")


@pytest.mark.usefixtures("ccm")
async def test_whole_load_balancer_and_service(stage: Stage, nodes: GuestNodes, ccm: CcmProcess) -> None:
    service = await stage.create_service("web", ports=[HTTP], annotations={f"{OURS}/description": "shop"})
    await nodes.listen(service)
    (served,) = await stage.served("web")
    document = await balancer(stage, backendServers=[address_of(1), address_of(2)])

    assert document["metadata"]["labels"] == {
        f"{OURS}/cluster": "demo",
        f"{OURS}/serviceNamespace": "default",
        f"{OURS}/serviceName": "web",
    }
    assert document["metadata"]["annotations"] == {
        f"{OURS}/lb-network": "",
        f"{OURS}/cluster-uid": await stage.cluster_uid(),
        f"{OURS}/service-uid": served.metadata.uid,
        f"{OURS}/service-uuid": served.metadata.uid,
        f"{THEIRS}/cluster": "demo",
        f"{THEIRS}/network": "",
        f"{THEIRS}/project": "",
        f"{THEIRS}/namespace": "",
    }
    assert document["spec"] == {
        "description": "shop",
        "ipam": "pool",
        "listeners": [{"name": "http", "port": 8080, "protocol": "TCP", "backendPort": 31080}],
        "backendServers": [address_of(1), address_of(2)],
    }
    (address,) = served.addresses
    assert document["status"]["address"] == address
    assert IPv4Address(POOL[0]) <= IPv4Address(address) <= IPv4Address(POOL[1])
    written = await stage.service_document("web")
    ports = [{"port": 8080, "protocol": "TCP"}]
    assert written["status"]["loadBalancer"] == {"ingress": [{"ip": address, "ipMode": "VIP", "ports": ports}]}
    assert written["metadata"]["annotations"]["kube-vip.io/ignore"] == "true"
    assert written["metadata"]["annotations"]["kube-vip.io/loadbalancerIPs"] == ""
    await answer(address, 1, 2)
    assert stage.kube_vip.transitions == []
    assert ccm.log.count(CHOSEN) == 1
    assert f"{CHOSEN}v1alpha1" in ccm.log
    assert "cannot be read" not in ccm.log


@pytest.mark.usefixtures("ccm")
async def test_address_from_dhcp_and_its_end(stage: Stage, nodes: GuestNodes) -> None:
    await nodes.listen(await stage.create_service("web", ports=[HTTP], annotations={IPAM: "dhcp"}))
    (served,) = await stage.served("web")
    assert served.addresses == ("127.79.0.10",)
    assert (await balancer(stage))["spec"]["ipam"] == "dhcp"
    await answer("127.79.0.10", 1, 2)

    await stage.delete_service("web")
    await stage.gone("web")

    async def nothing_left() -> bool:
        generated = await stage.host_eyes.all(SERVICES.path(VM_NAMESPACE))
        return not await balancers(stage) and {one["metadata"]["name"] for one in generated} == {"kubernetes"}

    await until(nothing_left, within=60, what="neither load balancer nor Service in Harvester")


@pytest.mark.usefixtures("ccm")
async def test_backends_follow_the_nodes_in_one_write_each(stage: Stage, nodes: GuestNodes) -> None:
    await nodes.listen(await stage.create_service("web", ports=[HTTP]))
    (served,) = await stage.served("web")
    await balancer(stage, backendServers=[address_of(1), address_of(2)])
    await caught_up(stage)
    stage.harvester_proxy.forget()

    excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
    await nodes.change(1, {"metadata": {"labels": {excluded: ""}}})
    await balancer(stage, backendServers=[address_of(2)])
    await answer(served.addresses[0], 2)
    await nodes.change(1, {"metadata": {"labels": {excluded: None}}})
    await balancer(stage, backendServers=[address_of(1), address_of(2)])
    await caught_up(stage)
    assert [one.method for one in writes(stage.harvester_proxy, BALANCERS) if one.status == 200] == ["PUT", "PUT"]


@pytest.mark.usefixtures("ccm")
async def test_checked_nodes_that_fail_are_left_out(stage: Stage, nodes: GuestNodes) -> None:
    service = await stage.create_service("web", ports=[HTTP], annotations={HEALTH_CHECK_PORT: "http"})
    await nodes.listen(service)
    (served,) = await stage.served("web")
    await balancer(stage, healthCheck={"port": 31080, **DEFAULT_CHECK})

    await stage.change_service("web", {"metadata": {"annotations": QUICK_CHECK}})
    quick = {"successThreshold": 1, "failureThreshold": 1, "PeriodSeconds": 1, "timeoutSeconds": 1}
    await balancer(stage, healthCheck={"port": 31080, **quick})
    nodes.fail(1)
    await answer(served.addresses[0], 2)
    await nodes.listen(service, 1)
    await answer(served.addresses[0], 1, 2)


@pytest.mark.usefixtures("ccm")
async def test_what_such_a_harvester_cannot_do_is_told(stage: Stage) -> None:
    await stage.create_service("web", ports=[HTTP], annotations={WORKLOAD_TYPE: "cluster", IP_POOL: "lan"})
    await stage.served("web")
    told = await stage.hears("web", Reason.IGNORED)
    assert f"annotations {IP_POOL} (Harvester before 1.2" in told.message
    assert f"annotation {WORKLOAD_TYPE} cluster (Harvester before 1.2" in told.message


@pytest.mark.usefixtures("old", "nodes")
async def test_load_balancer_of_an_earlier_provider_is_taken_over(stage: Stage) -> None:
    created = await stage.create_service("web", ports=[HTTP])
    body = {
        "apiVersion": LOAD_BALANCERS_V1ALPHA1.api_version,
        "kind": LOAD_BALANCERS_V1ALPHA1.kind,
        "metadata": {
            "name": "kubernetes-default-web-1234",
            "namespace": VM_NAMESPACE,
            "labels": {f"{OURS}/cluster": "kubernetes"},
            "annotations": {f"{OURS}/service-uuid": created.metadata.uid},
        },
        "spec": {
            "ipam": "pool",
            "listeners": [{"name": "http", "port": 8080, "protocol": "TCP", "backendPort": 31080}],
        },
        "status": {},
    }
    await stage.host.create(LOAD_BALANCERS_V1ALPHA1, body, namespace=VM_NAMESPACE)
    before = await balancer(stage)

    # That provider called every cluster so; the name alone would not tell ours from a copy of it.
    stage.run(flags={"former-cluster-name": "kubernetes"})
    await stage.served("web")
    after = await balancer(stage, backendServers=[address_of(1), address_of(2)])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["address"] == before["status"]["address"]

    await stage.delete_service("web")
    await stage.gone("web")

    async def gone() -> bool:
        return not await balancers(stage)

    await until(gone, within=60, what="end of the load balancer")


async def test_restart_writes_nothing(stage: Stage, ccm: CcmProcess) -> None:
    await stage.create_service("web", ports=[HTTP])
    await stage.served("web")
    before = await balancer(stage, backendServers=[address_of(1), address_of(2)])
    await caught_up(stage)
    ccm.terminate(0)
    await stage.ended(ccm)
    stage.harvester_proxy.forget()

    again = stage.run(proxied=True)
    await stage.logged(again, "became leader")
    await caught_up(stage)
    assert writes(stage.harvester_proxy) == []
    assert await balancer(stage) == before
    assert again.log.count(CHOSEN) == 1


async def test_upgrade_keeps_the_load_balancers(
    stage: Stage, old: HarvesterBefore12, nodes: GuestNodes, ccm: CcmProcess
) -> None:
    service = await stage.create_service("web", ports=[HTTP], annotations={HEALTH_CHECK_PORT: "http"})
    await nodes.listen(service)
    await stage.create_service("plain", ports=[{**HTTP, "nodePort": 31081}])
    served = {one.metadata.name: one.addresses for one in await stage.served("web", "plain")}
    await caught_up(stage)
    before = {one["metadata"]["uid"] for one in await balancers(stage)}
    stage.harvester_proxy.forget()

    booked = await old.upgrade(pool="lan")
    async with stage.harvester:
        await stage.harvester.create_pool("lan", "127.77.0.0/24")
        await stage.host.merge_patch(POOLS, "lan", {"status": {"allocated": booked}})
        await stage.logged(ccm, f"{CHOSEN}v1beta1", within=60)
        await repaired(stage)
        told = await stage.hears("plain", Reason.ADOPTED)
        await caught_up(stage)

        assert WORKLOAD_TYPE in told.message
        assert await stage.told("web", Reason.ADOPTED) == []
        assert [
            one.message for name in ("web", "plain") for one in await stage.told(name) if one.type == "Warning"
        ] == []
        # Nothing that the newer version has was lost by a write in the older one.
        assert {path_version(one) for one in writes(stage.harvester_proxy, BALANCERS) if one.status == 200} == {
            "v1beta1"
        }
        assert {one.metadata.uid for one in await stage.load_balancers()} == before
        assert {one.method for one in writes(stage.harvester_proxy, BALANCERS) if (one.status or 0) < 400} == {"PUT"}
        assert {one.metadata.name: one.addresses for one in await stage.served("web", "plain")} == served
        await answer(served["web"][0], 1, 2)
        assert ccm.log.count(CHOSEN) == 2

        for name in ("web", "plain"):
            await stage.delete_service(name)
        await stage.gone("web", "plain")
        await stage.nothing_left()


def path_version(record: Record) -> str:
    """Return the version of the API that a request was made in."""
    return record.path.split("/")[3]


async def repaired(stage: Stage) -> None:
    """Return when every load balancer is announced and the lost period of the health check is back."""

    async def whole() -> bool:
        found = await stage.load_balancers()
        checks = [one.spec.health_check.period_seconds for one in found if one.spec.health_check]
        selectors = [one.spec.backend_server_selector for one in found]
        wanted = {"harvesterhci.io/vmName": ("node-1", "node-2")}
        return checks == [5] and selectors == [wanted, wanted] and all(one.address for one in found)

    await until(whole, within=60, what="repaired load balancers")
