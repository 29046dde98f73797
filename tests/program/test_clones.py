"""Clones and restored snapshots of a cluster, a renamed cluster, and a server that leads to another cluster."""

import asyncio
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.informer import RELIST_SECONDS
from harvester_ccm.kube.reload import CredentialReloader
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, PRIMARY_SERVICE
from tests.support.builders import service
from tests.support.clock import jumping_time
from tests.support.memory_server import Call, MemoryServer, refused
from tests.support.program_world import Harvester, Program, by_name, copy_of, destructive, guest_server
from tests.unit.telemetry.test_metrics import samples

HOUR = 3600.0
CONFLICT = "LoadBalancerOwnershipConflict"


async def with_addresses(harvester: Harvester, program: Program, *names: str) -> dict[str, str]:
    program.create(*names)
    async with program.live():
        await asyncio.sleep(10)
    addresses = {name: program.address(name) for name in names}
    assert all(addresses.values()), program.reasons()
    harvester.calls.clear()
    return addresses


def clusters(harvester: MemoryServer) -> list[str]:
    return sorted(one["metadata"]["labels"][LB_CLUSTER] for one in harvester.items(LOAD_BALANCERS))


@jumping_time
@pytest.mark.guarantee("Objects of other clusters and clones never change")
@pytest.mark.security("a tenant who changes objects of another cluster")
async def test_two_clones_with_their_own_load_balancers_ignore_each_other() -> None:
    harvester = Harvester()
    one = Program(guest_server(), harvester, "one")
    one.create("web", "api")
    other = Program(copy_of(one.guest), harvester, "other")
    async with one.live():
        await asyncio.sleep(10)
    async with other.live():
        await asyncio.sleep(10)
    before = by_name(harvester, LOAD_BALANCERS)
    assert clusters(harvester) == ["one", "one", "other", "other"]
    harvester.calls.clear()
    async with one.live(), other.live():
        await asyncio.sleep(HOUR)
        assert by_name(harvester, LOAD_BALANCERS) == before
        assert destructive(harvester.calls) == []
        assert one.reasons() == other.reasons() == []
        other.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(HOUR)
    assert clusters(harvester) == ["one", "one", "other"]
    assert len(destructive(harvester.calls)) == 1


@jumping_time
async def test_restored_snapshot_changes_nothing_of_the_running_original() -> None:
    harvester = Harvester()
    prod = Program(guest_server(), harvester, "prod")
    prod.put(service("share", uid="uid-of-share", annotations={PRIMARY_SERVICE: "shop/api"}, ports=[{"port": 443}]))
    addresses = await with_addresses(harvester, prod, "web", "api", "old")
    addresses["share"] = addresses["api"]
    drill = Program(copy_of(prod.guest), harvester, "drill")
    # Created after the snapshot.
    prod.create("new")
    async with prod.live():
        await asyncio.sleep(10)
        prods = {name: one["metadata"] for name, one in by_name(harvester, LOAD_BALANCERS).items()}
        harvester.calls.clear()
        async with drill.live():
            await asyncio.sleep(HOUR / 2)
            conflicts = [f"{name}: {CONFLICT}" for name in ("api", "old", "web")]
            # The address is that of a primary whose load balancer belongs to another cluster.
            assert sorted(drill.reasons()) == sorted([*conflicts, "share: SharedAddressPending"]), "once each"
            (message,) = drill.warnings("web")
            await asyncio.sleep(HOUR / 2)
            assert destructive(harvester.calls) == []
            assert {name: drill.address(name) for name in addresses} == addresses, "unchanged"
            for remedy in ("--former-cluster-names=prod", "clear status.loadBalancer of the Service"):
                assert remedy in message
            pending = samples(drill.telemetry)["harvester_ccm_services_pending"]
            assert pending[(("reason", "LoadBalancerOwnershipConflict"),)] == 3

            drill.create("fresh")
            drill.guest.delete(SERVICES, "shop/old")
            # As the Event describes, to get another address.
            drill.guest.change(SERVICES, "shop/web", {"status": {"loadBalancer": None}})
            await asyncio.sleep(HOUR)
            assert drill.address("fresh")
            assert drill.address("web") not in {"", addresses["web"]}
            assert "shop/old" not in drill.guest.of(SERVICES)
            after = by_name(harvester, LOAD_BALANCERS)
            assert {name: after[name]["metadata"] for name in prods} == prods
            assert {prod.address(name) for name in (*addresses, "new")} >= set(addresses.values())
            assert prod.reasons() == []


@jumping_time
async def test_renamed_cluster_keeps_its_addresses_once_a_flag_declares_the_former_name() -> None:
    harvester = Harvester()
    before = Program(guest_server(), harvester, "before")
    addresses = await with_addresses(harvester, before, "web", "api", "gone")
    guest = before.guest
    undeclared = Program(guest, harvester, "after")
    async with undeclared.live():
        await asyncio.sleep(HOUR)
        assert destructive(harvester.calls) == []
        guest.remove(SERVICES, "shop/gone")
        await asyncio.sleep(HOUR)
    assert clusters(harvester) == ["before"] * 3, "they could be those of a clone"
    declared = Program(guest, harvester, "after", "--former-cluster-names=before")
    harvester.calls.clear()
    async with declared.live():
        await asyncio.sleep(HOUR)
    assert clusters(harvester) == ["after", "after"]
    assert sorted(one.split()[0] for one in destructive(harvester.calls)) == ["DELETE", "PUT", "PUT"]
    assert {name: declared.address(name) for name in ("web", "api")} == {
        name: addresses[name] for name in ("web", "api")
    }


@jumping_time
@pytest.mark.security(
    "A Service cannot change load balancers of another cluster: ownership is verified before each change"
)
async def test_changed_cluster_label_or_owner_annotation_stops_the_writes() -> None:
    for rewritten, reason in (
        ({"labels": {LB_CLUSTER: "drill"}}, "LoadBalancerOwnershipConflict"),
        ({"annotations": {LB_OWNER: "another"}}, "LoadBalancerOwnershipConflict"),
    ):
        harvester = Harvester()
        prod = Program(guest_server(), harvester, "prod")
        addresses = await with_addresses(harvester, prod, "web")
        async with prod.live():
            await asyncio.sleep(10)
            (key,) = harvester.of(LOAD_BALANCERS)
            harvester.change(LOAD_BALANCERS, key, {"metadata": rewritten})
            await asyncio.sleep(HOUR / 2)
            assert prod.reasons() == [f"web: {CONFLICT}"]
            await asyncio.sleep(HOUR / 2)
            assert destructive(harvester.calls) == []
            assert prod.address("web") == addresses["web"]
            assert samples(prod.telemetry)["harvester_ccm_services_pending"][(("reason", reason),)] == 1
            prod.guest.delete(SERVICES, "shop/web")
            await asyncio.sleep(HOUR)
            assert destructive(harvester.calls) == []


def redirect(program: Program, server: MemoryServer) -> None:
    """Redirect requests to another cluster, which does not have the watched versions."""
    before = program.guest
    program.guest = program.client.server = server

    def gone(call: Call) -> KubeError | None:
        return refused(410, "Expired", "too old resource version") if call.verb == "WATCH" else None

    server.fault = gone
    before.break_watches()


@pytest.mark.parametrize("versions", [0, 100_000], ids=["older versions", "newer versions"])
@pytest.mark.guarantee("Objects of other clusters and clones never change")
@jumping_time
async def test_nothing_is_deleted_when_another_cluster_responds(versions: int) -> None:
    harvester = Harvester()
    prod = Program(guest_server(), harvester, "prod")
    await with_addresses(harvester, prod, *(f"web-{number}" for number in range(5)))
    other = guest_server("another")
    other.version = versions
    async with prod.live():
        await asyncio.sleep(60)
        harvester.calls.clear()
        redirect(prod, other)
        await asyncio.sleep(60)
        assert prod.exit_code == 1
    assert destructive(harvester.calls) == []
    assert [call for call in other.calls if call.is_write] == []


@jumping_time
async def test_credential_for_another_cluster_ends_the_process() -> None:
    harvester = Harvester()
    prod = Program(guest_server(), harvester, "prod")
    await with_addresses(harvester, prod, "web")
    with NamedTemporaryFile() as file:
        followed = replace(prod.client.credentials, files={Path(file.name): b""})
        await prod.client.use(followed)
        reloader = CredentialReloader(prod.client, lambda: replace(followed, files={Path(file.name): b"changed"}))
        prod.reloaders.append(reloader)
        async with prod.live():
            await asyncio.sleep(60)
            other = guest_server("another")
            prod.client.server = other
            file.write(b"changed")
            file.flush()
            await reloader.check()
            # A watch can continue on the other server; the next list cannot.
            await asyncio.sleep(RELIST_SECONDS[1] + 60)
            assert prod.exit_code == 1
    assert destructive(harvester.calls) == []
