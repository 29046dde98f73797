"""Clusters of one kube-system UID, a renamed cluster, and one in the place of another: whole programs in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from structlog.testing import capture_logs

from harvester_ccm.errors import CCMError
from harvester_ccm.kube.informer import RELIST_SECONDS
from harvester_ccm.kube.reload import CredentialReloader
from harvester_ccm.model.core import SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import LB_CLUSTER, LB_OWNER, LB_SERVICE_UID, PRIMARY_SERVICE
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.builders import service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, MemoryServer, refused
from tests.worlds.program_world import Harvester, Program, by_name, copy_of, destructive, guest_server

HOUR = 3600.0
LOST = "LoadBalancerOwnershipConflict"


async def served(harvester: Harvester, program: Program, *names: str) -> dict[str, str]:
    """Have the program serve Services, end it, and return their addresses."""
    program.create(*names)
    async with program.live():
        await asyncio.sleep(10)
    addresses = {name: program.address(name) for name in names}
    assert all(addresses.values()), program.told()
    harvester.calls.clear()
    return addresses


def clusters(harvester: MemoryServer) -> list[str]:
    """Return the cluster names that load balancers carry, sorted."""
    return sorted(one["metadata"]["labels"][LB_CLUSTER] for one in harvester.items(LOAD_BALANCERS))


@jumping_time
@pytest.mark.guarantee("Objects of other clusters and clones never change")
async def test_two_clones_with_load_balancers_of_their_own_leave_each_other_alone() -> None:
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
        assert one.told() == other.told() == []
        other.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(HOUR)
    assert clusters(harvester) == ["one", "one", "other"]
    assert len(destructive(harvester.calls)) == 1


@jumping_time
async def test_a_load_balancer_that_comes_back_with_a_backup_of_harvester_is_swept_as_ever() -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    await served(harvester, program, "web")
    (kept,) = harvester.items(LOAD_BALANCERS)
    async with program.live():
        await asyncio.sleep(120.0)
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(10)
        assert harvester.items(LOAD_BALANCERS) == []
        harvester.put(LOAD_BALANCERS, kept)
        await asyncio.sleep(HOUR)
        assert harvester.items(LOAD_BALANCERS) == []


@pytest.mark.parametrize("names", [("one", "other"), ("demo", "demo")], ids=["names of their own", "one name"])
def test_ordinary_clusters_of_one_namespace_say_nothing_of_each_others_load_balancers(names: tuple[str, str]) -> None:
    @jumping_time
    async def scene() -> None:
        harvester = Harvester()
        one, other = (Program(guest_server(f"uid-of-{number}"), harvester, name) for number, name in enumerate(names))
        with capture_logs() as logs:
            async with one.live(), other.live():
                await asyncio.sleep(120.0)
                one.put(service("web", uid="web-of-one"))
                other.put(service("api", uid="api-of-other"))
                await asyncio.sleep(60.0)
                assert len(harvester.items(LOAD_BALANCERS)) == 2
                assert one.told() == other.told() == []
        assert [line for line in logs if line["log_level"] in {"warning", "error"}] == []

    scene()


@jumping_time
async def test_load_balancer_that_a_backup_of_harvester_brings_back_without_its_service_is_deleted() -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    await served(harvester, program, "web")
    backed_up = harvester.version
    async with program.live():
        program.guest.delete(SERVICES, "shop/web")
        await asyncio.sleep(10)
        assert harvester.items(LOAD_BALANCERS) == []
        harvester.fault = away
        harvester.rewind(backed_up)
        await asyncio.sleep(10)
        assert len(harvester.items(LOAD_BALANCERS)) == 1
        harvester.fault = None
        await asyncio.sleep(HOUR)
        assert harvester.items(LOAD_BALANCERS) == []


def away(_call: Call) -> CCMError:
    """Answer as a server that is there and does not work."""
    return refused(503, "ServiceUnavailable", "the server is away")


def adopt(harvester: Harvester, name: str) -> None:
    """Write a cluster name on all load balancers, as the command does."""
    for key in harvester.of(LOAD_BALANCERS):
        harvester.change(LOAD_BALANCERS, key, {"metadata": {"labels": {LB_CLUSTER: name}}})


@pytest.mark.parametrize("absence", [0.0, 120.0], ids=["there", "away at first"])
def test_what_was_there_before_the_program_is_known_whenever_harvester_is_back(absence: float) -> None:
    @jumping_time
    async def run() -> None:
        harvester = Harvester()
        before = Program(guest_server(), harvester, "before")
        addresses = await served(harvester, before, "web", "gone")
        adopt(harvester, "after")
        before.guest.remove(SERVICES, "shop/gone")
        program = Program(before.guest, harvester, "after")
        harvester.fault = away if absence else None
        async with program.live():
            await asyncio.sleep(absence)
            harvester.fault = None
            await asyncio.sleep(HOUR)
            (kept,) = harvester.items(LOAD_BALANCERS)
        assert kept["metadata"]["annotations"][LB_SERVICE_UID] == "uid-of-web"
        assert program.address("web") == addresses["web"]
        assert program.told() == []

    run()


@jumping_time
async def test_what_an_earlier_leader_made_is_known_when_the_watch_tells_of_it_late() -> None:
    harvester = Harvester()
    program = Program(guest_server(), harvester, "demo")
    await served(harvester, program, "web")
    ((key, left),) = harvester.of(LOAD_BALANCERS).items()
    program.guest.remove(SERVICES, "shop/web")
    harvester.remove(LOAD_BALANCERS, key)
    busy = refused(429, "TooManyRequests", "try again later")
    harvester.fault = lambda call: busy if call.verb == "WATCH" else None
    async with program.live():
        await asyncio.sleep(10)
        harvester.put(LOAD_BALANCERS, left)
        await asyncio.sleep(120.0)
        harvester.fault = None
        await asyncio.sleep(HOUR)
        assert harvester.items(LOAD_BALANCERS) == []


@jumping_time
async def test_a_restored_snapshot_beside_the_original_touches_nothing_of_it() -> None:
    harvester = Harvester()
    prod = Program(guest_server(), harvester, "prod")
    prod.put(service("share", uid="uid-of-share", annotations={PRIMARY_SERVICE: "shop/api"}, ports=[{"port": 443}]))
    addresses = await served(harvester, prod, "web", "api", "old")
    addresses["share"] = addresses["api"]
    drill = Program(copy_of(prod.guest), harvester, "drill")
    # Made after the snapshot, and gone after it.
    prod.create("new")
    async with prod.live():
        await asyncio.sleep(10)
        prods = {name: one["metadata"] for name, one in by_name(harvester, LOAD_BALANCERS).items()}
        harvester.calls.clear()
        async with drill.live():
            await asyncio.sleep(HOUR)
            assert destructive(harvester.calls) == []
            assert {name: drill.address(name) for name in addresses} == addresses, "left exactly as they are"
            assert sorted(drill.told()) == [f"{name}: {LOST}" for name in ("api", "old", "web")], "once each"
            (said,) = drill.warnings("web")
            for remedy in ("--former-cluster-name=prod", "kubectl patch service -n shop"):
                assert remedy in said
            pending = samples(drill.telemetry)["harvester_ccm_services_pending"]
            assert pending[(("reason", "ownership_conflict"),)] == 3

            drill.create("fresh")
            drill.guest.delete(SERVICES, "shop/old")
            # What the Event says: an address of its own.
            drill.guest.change(SERVICES, "shop/web", {"status": {"loadBalancer": None}})
            await asyncio.sleep(HOUR)
            assert drill.address("fresh")
            assert drill.address("web") not in {"", addresses["web"]}
            assert "shop/old" not in drill.guest.of(SERVICES)
            after = by_name(harvester, LOAD_BALANCERS)
            assert {name: after[name]["metadata"] for name in prods} == prods
            assert {prod.address(name) for name in (*addresses, "new")} >= set(addresses.values())
            assert prod.told() == []


@jumping_time
async def test_a_renamed_cluster_keeps_its_addresses_with_one_write_for_each_once_it_is_said() -> None:
    harvester = Harvester()
    before = Program(guest_server(), harvester, "before")
    addresses = await served(harvester, before, "web", "api", "gone")
    guest = before.guest
    unsaid = Program(guest, harvester, "after")
    async with unsaid.live():
        await asyncio.sleep(HOUR)
        assert destructive(harvester.calls) == []
        guest.remove(SERVICES, "shop/gone")
        await asyncio.sleep(HOUR)
    assert clusters(harvester) == ["before"] * 3, "nothing is collected of what may be a copy's"
    said = Program(guest, harvester, "after", "--former-cluster-name=before")
    harvester.calls.clear()
    async with said.live():
        await asyncio.sleep(HOUR)
    assert clusters(harvester) == ["after", "after"]
    assert sorted(one.split()[0] for one in destructive(harvester.calls)) == ["DELETE", "PUT", "PUT"]
    assert {name: said.address(name) for name in ("web", "api")} == {name: addresses[name] for name in ("web", "api")}


@jumping_time
async def test_a_rewritten_label_or_mark_stops_the_writes() -> None:
    for rewritten, reason in (
        ({"labels": {LB_CLUSTER: "drill"}}, "ownership_conflict"),
        ({"annotations": {LB_OWNER: "somebody"}}, "ownership_conflict"),
    ):
        harvester = Harvester()
        prod = Program(guest_server(), harvester, "prod")
        addresses = await served(harvester, prod, "web")
        async with prod.live():
            await asyncio.sleep(10)
            (key,) = harvester.of(LOAD_BALANCERS)
            harvester.change(LOAD_BALANCERS, key, {"metadata": rewritten})
            await asyncio.sleep(HOUR)
            assert destructive(harvester.calls) == []
            assert prod.told() == [f"web: {LOST}"]
            assert prod.address("web") == addresses["web"]
            assert samples(prod.telemetry)["harvester_ccm_services_pending"][(("reason", reason),)] == 1
            prod.guest.delete(SERVICES, "shop/web")
            await asyncio.sleep(HOUR)
            assert destructive(harvester.calls) == []


def lead_elsewhere(program: Program, server: MemoryServer) -> None:
    """Have another cluster answer the program from now on; it does not know the versions that are watched."""
    before = program.guest
    program.guest = program.client.server = server

    def gone(call: Call) -> CCMError | None:
        return refused(410, "Expired", "too old resource version") if call.verb == "WATCH" else None

    server.fault = gone
    before.break_watches()


@pytest.mark.parametrize("versions", [0, 100_000], ids=["older versions", "newer versions"])
@pytest.mark.guarantee("Objects of other clusters and clones never change")
def test_nothing_is_deleted_when_another_cluster_answers(versions: int) -> None:
    @jumping_time
    async def run() -> None:
        harvester = Harvester()
        prod = Program(guest_server(), harvester, "prod")
        await served(harvester, prod, *(f"web-{number}" for number in range(5)))
        other = guest_server("another")
        other.version = versions
        async with prod.live():
            await asyncio.sleep(60)
            harvester.calls.clear()
            lead_elsewhere(prod, other)
            await asyncio.sleep(60)
            assert prod.exit_code == 1
        assert destructive(harvester.calls) == []
        assert [call for call in other.calls if call.is_write] == []

    run()


@jumping_time
async def test_a_credential_for_another_cluster_ends_the_program() -> None:
    harvester = Harvester()
    prod = Program(guest_server(), harvester, "prod")
    await served(harvester, prod, "web")
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
            # At the latest the next list shows it: a watch can continue on the other server.
            await asyncio.sleep(RELIST_SECONDS[1] + 60)
            assert prod.exit_code == 1
    assert destructive(harvester.calls) == []


@jumping_time
async def test_a_restored_guest_is_still_itself() -> None:
    harvester = Harvester()
    prod = Program(guest_server(), harvester, "prod")
    await served(harvester, prod, "web")
    restored = copy_of(prod.guest)
    prod.create("after-the-snapshot")
    async with prod.live():
        await asyncio.sleep(60)
        prod.guest.version += 1000
        prod.guest.change(SERVICES, "shop/web", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(60)
        lead_elsewhere(prod, restored)
        restored.fault = None
        restored.version = 500
        await asyncio.sleep(600)
        assert prod.exit_code is None
