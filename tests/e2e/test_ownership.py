"""Whose load balancer it is: kept over renames and restored Services, left alone when it is another cluster's."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

import devenv.apiserver
from devenv.apiserver import ControlPlane
from devenv.ccm import CcmProcess
from devenv.restclient import Json
from devenv.stage import SERVICE_ACCOUNT, Stage, until
from devenv.watch import documents
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig
from harvester_ccm.model.core import NAMESPACES, SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import (
    LB_CLUSTER,
    LB_OWNER,
    LB_SELECT_CLUSTER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    WORKLOAD_TYPE,
    Reason,
)
from tests.e2e.observing import caught_up, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("lan")]

FIVE = [f"web-{number}" for number in range(5)]
ORPHAN_GRACE = "plan.service.orphans.ORPHAN_GRACE"
LONG, SHORT = 10.0, 2.0
"""Seconds in the place of thirty: where a Service has to come back in time, and where nothing may happen."""
EVENT_DOCUMENTS = documents("", "v1", "events", kind="Event")
RIGHTS = Path(devenv.apiserver.__file__).parent / "rbac"


@pytest.fixture(scope="module")
def second_guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Another guest cluster on the same Harvester, with the rights of the program."""
    with ControlPlane.start("second-guest", tmp_path_factory.mktemp("second-guest")) as plane:
        plane.apply(RIGHTS / "guest-cloud-provider.yaml", RIGHTS / "guest-additions.yaml")
        yield plane


@pytest.fixture
async def second(second_guest: ControlPlane) -> AsyncIterator[ApiClient]:
    """An administrator's client of the second guest."""
    async with ApiClient(load_kubeconfig(second_guest.admin_kubeconfig), cluster="second-admin") as client:
        yield client


async def start(
    stage: Stage, *, cluster: str = "demo", former: str = "", kubeconfig: Path | None = None, grace: float = LONG
) -> CcmProcess:
    """Start the program and return when it leads. What is left over has to look so for ``grace`` seconds."""
    names = {"cluster-name": cluster, **({"former-cluster-name": former} if former else {})}
    times = {ORPHAN_GRACE: grace}
    run = stage.run(flags=names, kubeconfig=kubeconfig, proxied=kubeconfig is None, times=times)
    await stage.logged(run, "became leader")
    return run


async def end(stage: Stage, run: CcmProcess) -> None:
    """Ask the program to end and return when it has."""
    run.terminate(0)
    assert await stage.ended(run) == 0


async def complete(stage: Stage, number: int) -> dict[str, LoadBalancer]:
    """Return the load balancers by the Services that they serve, when there are so many and all is done about them."""

    async def all_done() -> dict[str, LoadBalancer] | None:
        found = await stage.load_balancers()
        done = [one for one in found if one.address and one.metadata.finalizers and not one.metadata.deleting]
        return by_service(done) if len(done) == len(found) == number else None

    return await until(all_done, within=60, what=f"{number} complete load balancers")


def by_service(balancers: list[LoadBalancer]) -> dict[str, LoadBalancer]:
    """Return load balancers by the names of their Services."""
    return {one.metadata.label(LB_SERVICE_NAME) or "": one for one in balancers}


async def test_renamed_cluster_keeps_names_and_addresses(stage: Stage) -> None:
    run = await start(stage)
    for name in FIVE:
        workload = {WORKLOAD_TYPE: "vm"} if name == FIVE[0] else {}
        await stage.create_service(name, ports=[{"name": "http", "port": 8080}], annotations=workload)
    addresses = {service.metadata.name: service.addresses for service in await stage.served(*FIVE)}
    before = await complete(stage, len(FIVE))
    await end(stage, run)
    stage.kube_vip.transitions.clear()

    # It might as well be a copy: until somebody says what it is, nothing is touched.
    stage.harvester_proxy.forget()
    run = await start(stage, cluster="renamed")
    for name in FIVE:
        told = await stage.hears(name, Reason.FOREIGN_LOAD_BALANCER)
        assert "--former-cluster-name=demo" in told.message
        assert f"harvester-ccm adopt default/{name} {before[name].metadata.name}" in told.message
    await caught_up(stage)
    assert writes(stage.harvester_proxy) == []
    assert {service.metadata.name: service.addresses for service in await stage.served(*FIVE)} == addresses
    await end(stage, run)

    run = await start(stage, cluster="renamed", former="demo")
    for name in FIVE:
        told = await stage.hears(name, Reason.ADOPTED)
        assert "made for cluster name 'demo', goes on serving under 'renamed'" in told.message
    await caught_up(stage)
    after = await complete(stage, len(FIVE))
    for name in FIVE:
        meta = after[name].metadata
        assert (meta.uid, after[name].address) == (before[name].metadata.uid, before[name].address)
        assert (meta.label(LB_CLUSTER), meta.annotation(LB_SELECT_CLUSTER)) == ("renamed", "renamed")
    assert {service.metadata.name: service.addresses for service in await stage.served(*FIVE)} == addresses
    assert stage.kube_vip.transitions == []

    for name in FIVE:
        await stage.delete_service(name)
    await stage.gone(*FIVE)
    await stage.nothing_left()


async def recreate(stage: Stage, name: str) -> Service:
    """Delete a Service without the program's clean-up and make it anew, as a restored backup is."""
    await stage.change_service(name, {"metadata": {"finalizers": None}})
    await stage.delete_service(name)
    await stage.gone(name)
    return await stage.create_service(name)


async def test_restored_service_gets_its_load_balancer_back(stage: Stage) -> None:
    run = await start(stage)
    await stage.create_service("web")
    (old,) = await stage.served("web")
    before = (await complete(stage, 1))["web"]
    await end(stage, run)
    new = await recreate(stage, "web")

    await start(stage)
    (served,) = await stage.served("web")
    told = await stage.hears("web", Reason.ADOPTED)
    assert f"Load balancer {before.metadata.name}, made for an earlier Service of this name" in told.message
    assert served.metadata.uid == new.metadata.uid != old.metadata.uid
    assert served.addresses == old.addresses

    async def marked() -> bool:
        # The write may meet one of Harvester's and be done again.
        after = (await complete(stage, 1))["web"]
        assert after.metadata.uid == before.metadata.uid
        return after.metadata.annotation(LB_SERVICE_UID) == new.metadata.uid

    await until(marked, within=60, what="the mark of the new Service")


def labelled(name: str, service: str, *, cluster: str = "demo", **more: Mapping[str, str]) -> Json:
    """Return a load balancer with the labels of a Service of a cluster, by default of one called demo."""
    labels = {LB_CLUSTER: cluster, LB_SERVICE_NAMESPACE: "default", LB_SERVICE_NAME: service}
    return {
        "apiVersion": LOAD_BALANCERS.api_version,
        "kind": LOAD_BALANCERS.kind,
        "metadata": {"name": name, "namespace": "default", "labels": labels, **more},
        "spec": {"ipam": "pool", "workloadType": "cluster"},
    }


_numbers = itertools.count(1)


async def swept(stage: Stage, uid: str, cluster: str = "demo") -> None:
    """Return when a run has deleted what has looked left over for so long as it takes.

    ``uid`` and ``cluster`` are what it goes by. It has seen all other load balancers before.
    """
    name = f"left-over-{next(_numbers)}"
    witness = labelled(name, name, cluster=cluster, annotations={LB_OWNER: uid})
    await stage.host.create(LOAD_BALANCERS, witness, namespace="default")

    async def gone() -> bool:
        return name not in {one.metadata.name for one in await stage.load_balancers()}

    await until(gone, within=60, what="end of what is left over")


async def test_left_over_load_balancers_are_deleted_when_it_is_certain(stage: Stage) -> None:
    run = await start(stage)
    for name in ("gone", "quick", "kept"):
        await stage.create_service(name)
    await stage.served("gone", "quick", "kept")
    balancers = await complete(stage, 3)
    await end(stage, run)
    for name in ("gone", "quick"):
        await stage.change_service(name, {"metadata": {"finalizers": None}})
        await stage.delete_service(name)
    # Marked by another cluster; of our name without any mark; no load balancer of a provider.
    foreign = labelled("foreign", "gone", annotations={LB_OWNER: "11111111-2222-3333-4444-555555555555"})
    plain = {**labelled("plain", "gone"), "metadata": {"name": "plain", "namespace": "default"}}
    for document in (foreign, labelled("unmarked", "gone"), plain):
        await stage.host.create(LOAD_BALANCERS, document, namespace="default")

    run = await start(stage)
    began = time.monotonic()
    # A Service that comes back in time has its load balancer back.
    await stage.create_service("quick")
    await stage.served("quick")
    deleted = await until(lambda: absent(stage, balancers["gone"]), within=60, what="end of the orphan")
    assert deleted
    assert time.monotonic() - began > LONG - 1
    left = {one.metadata.name for one in await stage.load_balancers()}
    kept = {balancers[name].metadata.name for name in ("quick", "kept")}
    assert left == kept | {"foreign", "unmarked", "plain"}
    assert (await stage.harvester.counts()).booked == len(left)
    deletions = [one.path.rpartition("/")[2] for one in writes(stage.harvester_proxy) if one.method == "DELETE"]
    assert deletions == [balancers["gone"].metadata.name]
    reported = [line for line in run.log.splitlines() if "load balancer without service" in line]
    assert [line for line in reported if "unmarked" in line and "no owner mark" in line]
    assert not [line for line in reported if "foreign" in line or "plain" in line]
    # Each is reported once.
    assert len(reported) <= 3


async def absent(stage: Stage, balancer: LoadBalancer) -> bool:
    """Return whether a load balancer is gone."""
    return balancer.metadata.uid not in {one.metadata.uid for one in await stage.load_balancers()}


async def test_two_clusters_of_one_name_leave_each_other_alone(
    stage: Stage, second: ApiClient, second_guest: ControlPlane
) -> None:
    kubeconfig = second_guest.kubeconfig_for_service_account(
        "kube-system", SERVICE_ACCOUNT, context_namespace="kube-system"
    )
    ours = await start(stage)
    theirs = await start(stage, kubeconfig=kubeconfig)
    await stage.create_service("web")
    (service,) = await stage.served("web")
    await create_in(second, "web")
    other = await served_in(second, "web")

    assert other.addresses != service.addresses
    told = await stage.hears("web", Reason.FOREIGN_LOAD_BALANCER)
    assert "belongs to another cluster, also called 'demo'" in told.message
    (text,) = await until(lambda: heard_in(second, "web"), within=60, what="Event in the second guest")
    assert "also called 'demo'" in text
    owners = {one.metadata.annotation(LB_OWNER): one.allocated_ip for one in await stage.load_balancers()}
    assert owners == {
        await stage.cluster_uid(): service.addresses[0],
        (await second.get(NAMESPACES, "kube-system")).metadata.uid: other.addresses[0],
    }

    # Each deletes its own, also when it alone has a Service of that name.
    await stage.delete_service("web")
    await stage.gone("web")
    (left,) = (await complete(stage, 1)).values()
    assert left.address == other.addresses[0]
    assert (await served_in(second, "web")).addresses == other.addresses
    await second.delete(SERVICES, "web", namespace="default")
    await stage.nothing_left()
    for run in (ours, theirs):
        assert run.exit_code is None


async def test_a_kubeconfig_that_leads_to_another_cluster_ends_the_program_and_deletes_nothing(
    stage: Stage, second: ApiClient, second_guest: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(stage.scene.kubeconfig.read_bytes())
    other = second_guest.kubeconfig_for_service_account("kube-system", SERVICE_ACCOUNT, context_namespace="kube-system")
    run = await start(stage, kubeconfig=kubeconfig)
    for name in FIVE:
        await stage.create_service(name)
    await stage.served(*FIVE)
    before = await complete(stage, len(FIVE))

    kubeconfig.write_bytes(other.read_bytes())
    assert await stage.ended(run, within=60) == 1
    assert "the guest is another cluster now" in run.log
    after = await complete(stage, len(FIVE))
    assert {name: one.metadata.uid for name, one in after.items()} == {
        name: one.metadata.uid for name, one in before.items()
    }

    # Nor does it delete them, nor touch them, as the program of that other cluster.
    run = await start(stage, kubeconfig=kubeconfig, grace=SHORT)
    await stage.logged(run, "service controller started")
    await swept(stage, (await second.get(NAMESPACES, "kube-system")).metadata.uid)
    assert {one.metadata.resource_version for one in await stage.load_balancers()} == {
        one.metadata.resource_version for one in after.values()
    }
    await end(stage, run)


async def test_two_machines_of_one_image_leave_each_other_alone(
    stage: Stage, second_guest: ControlPlane, tmp_path: Path
) -> None:
    """The image has an initialised cluster in it: one UID of kube-system, and whatever Services were there.

    Each has a name of its own; ``tests/program/test_copies.py`` has the same with one name, which takes an hour.
    It comes last here: the second guest is a copy from now on.
    """
    await asyncio.to_thread(stage.scene.guest.back_up, tmp_path / "image")
    await asyncio.to_thread(second_guest.restore, tmp_path / "image")
    kubeconfig = second_guest.kubeconfig_for_service_account(
        "kube-system", SERVICE_ACCOUNT, context_namespace="kube-system"
    )
    async with ApiClient(load_kubeconfig(second_guest.admin_kubeconfig), cluster="second-admin") as second:
        uids = {(await client.get(NAMESPACES, "kube-system")).metadata.uid for client in (stage.guest, second)}
        (uid,) = uids
        ours = await start(stage, cluster="demo", grace=SHORT)
        theirs = await start(stage, cluster="other", kubeconfig=kubeconfig, grace=SHORT)
        for name in ("web", "api"):
            await stage.create_service(name)
        shown = {one.metadata.name: one.addresses for one in await stage.served("web", "api")}
        await create_in(second, "web")
        other = await served_in(second, "web")
        assert other.addresses not in shown.values()

        async def all_done() -> dict[str, str] | None:
            found = await stage.load_balancers()
            done = {one.metadata.uid: one.metadata.resource_version for one in found if one.address}
            return done if len(done) == len(found) == 3 else None

        await until(all_done, within=60, what="three load balancers")
        await caught_up(stage)
        before = await until(all_done, within=60, what="three load balancers at rest")
        for cluster in ("demo", "other"):
            await swept(stage, uid, cluster)
        assert await all_done() == before, "nothing was written to any of them"
        assert (await served_in(second, "web")).addresses == other.addresses

        # Each deletes its own.
        await stage.delete_service("web")
        await stage.gone("web")
        left = {one.address for one in await stage.load_balancers() if not one.metadata.deleting}
        assert left == {*other.addresses, *shown["api"]}
        await second.delete(SERVICES, "web", namespace="default")
        await stage.delete_service("api")
        await stage.nothing_left()
        for run in (ours, theirs):
            assert run.exit_code is None
            await end(stage, run)


async def create_in(client: ApiClient, name: str) -> None:
    """Create a Service in the second guest."""
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    await client.create(SERVICES, body, namespace="default")


async def served_in(client: ApiClient, name: str) -> Service:
    """Return a Service of the second guest once it has an address."""

    async def served() -> Service | None:
        service = await client.get(SERVICES, name, namespace="default")
        return service if service.addresses else None

    return await until(served, within=60, what=f"address of {name} in the second guest")


async def heard_in(client: ApiClient, name: str) -> list[str]:
    """Return what a Service of the second guest was told about a load balancer of another cluster."""
    events = (await client.list(EVENT_DOCUMENTS, namespace="default")).items
    mine = [one for one in events if one["involvedObject"]["name"] == name]
    return [one["message"] for one in mine if one["reason"] == Reason.FOREIGN_LOAD_BALANCER]
