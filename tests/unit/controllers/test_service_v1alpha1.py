"""The Service controller on Harvester before 1.2: writes in its version, addresses of nodes, marks of old providers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harvester_ccm.errors import Answer, CCMError, Conflict, NotServed
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, LOAD_BALANCERS_V1ALPHA1, LoadBalancer
from harvester_ccm.model.meta import Resource
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import LB_CLUSTER, LB_SERVICE_UUID
from tests.worlds.builders import ADDRESS, LB_NAME, UID, service
from tests.worlds.clock import jumping_time
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
LB_KEY = f"vms/{LB_NAME}"
OLD = LOAD_BALANCERS_V1ALPHA1
NO_SUCH_VERSION = NotServed(Answer(404, "", "404 page not found", "DELETE /x"))


def node(name: str, address: str) -> dict[str, Any]:
    """Return a Node with an address."""
    return {"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}


def hosted(**more: Any) -> Any:
    """Return a Service that is served."""
    return service(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}, ours=True, address=ADDRESS, **more)


def balancer(name: str = LB_NAME, **metadata: Any) -> dict[str, Any]:
    """Return the load balancer of ``service()`` as an earlier provider made it."""
    mark = {"labels": {LB_CLUSTER: "demo"}, "annotations": {LB_SERVICE_UUID: UID}}
    return {
        "apiVersion": OLD.api_version,
        "metadata": {"name": name, "namespace": "vms", "uid": f"uid-of-{name}", **mark, **metadata},
        "spec": {
            "ipam": "pool",
            "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
            "backendServers": ["10.1.0.1"],
        },
        "status": {"address": ADDRESS, "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def stage_with(
    *services: Any, balancers: tuple[dict[str, Any], ...] = (), unsynced: str = "", **more: Any
) -> ServiceControllerWorld:
    """Return a started stage of such a Harvester, with one node."""
    stage = ServiceControllerWorld(balancers=OLD, **more)
    for one in services:
        stage.guest.put(SERVICES, one)
    for one in balancers:
        stage.harvester.put(OLD, one)
    stage.guest.put(NODES, node("a", "10.1.0.1"))
    await stage.start(unsynced)
    return stage


async def test_from_creation_to_the_address_to_silence() -> None:
    stage = await stage_with(service())
    assert await stage.reconcile(KEY) == Wait("not_processed", 30.0)
    assert stage.writes() == ["PATCH web/status", f"POST {LB_NAME}"]
    stored = stage.harvester.of(OLD)[LB_KEY]
    assert stored["apiVersion"] == OLD.api_version
    stage.harvester.put(OLD, {**stored, "status": balancer()["status"]})
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PATCH web/status"]
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == []


async def test_addresses_of_nodes_wake_and_are_written_though_the_vms_are_not_known() -> None:
    stage = await stage_with(hosted(), balancers=(balancer(),), unsynced="virtualmachines")
    await stage.reconcile(KEY)
    stage.writes()
    await stage.settle()
    stage.woken.clear()
    stage.guest.put(NODES, node("b", "10.1.0.2"))
    await stage.settle()
    assert stage.woken == [KEY]
    await stage.reconcile(KEY)
    assert stage.writes() == [f"PUT {LB_NAME}"]
    assert stage.harvester.of(OLD)[LB_KEY]["spec"]["backendServers"] == ["10.1.0.1", "10.1.0.2"]


async def test_one_of_an_earlier_provider_is_found_by_the_uid_and_keeps_its_name() -> None:
    stage = await stage_with(hosted(), balancers=(balancer("kubernetes-shop-web-1234"),))
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PUT kubernetes-shop-web-1234"]
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == []


async def test_missing_version_is_no_missing_load_balancer() -> None:
    stage = await stage_with(hosted(deleting=True), balancers=(balancer(),))
    stage.harvester.faults.append(NO_SUCH_VERSION)
    with pytest.raises(NotServed):
        await stage.reconcile(KEY)
    assert KEY in stage.guest.of(SERVICES)

    assert await stage.reconcile(KEY) == Done()
    assert KEY not in stage.guest.of(SERVICES)


async def test_missing_version_does_not_make_a_load_balancer_forgotten() -> None:
    stage = await stage_with(hosted(), balancers=(balancer(),))
    stage.harvester.faults.append(NO_SUCH_VERSION)
    with pytest.raises(NotServed):
        await stage.reconcile(KEY)
    assert stage.caches.load_balancers.get(LB_KEY) is not None


@jumping_time
async def test_nothing_is_written_in_a_version_that_is_not_read_any_more() -> None:
    chosen = [OLD]

    async def choose(_error: CCMError | None) -> Resource[LoadBalancer]:
        return chosen[-1]

    stage = await stage_with(hosted(), service("new", uid="2"), balancers=(balancer(),), choose=choose)
    chosen.append(LOAD_BALANCERS)
    stage.harvester.delay = lambda call: 60.0 if call.verb == "GET" else 0.0
    stage.harvester.break_watches()
    await asyncio.sleep(30)  # the list of the other version is on its way
    with pytest.raises(Conflict, match="are read in v1beta1 by now"):
        await stage.reconcile(KEY)
    assert stage.writes() == []


@pytest.mark.parametrize("exists", [True, False], ids=["to be changed", "to be created"])
async def test_nothing_is_written_in_the_old_version_once_there_is_a_newer_one(exists: bool) -> None:
    stage = await stage_with(hosted() if exists else service(), balancers=(balancer(),) if exists else ())
    stage.harvester.unserved = frozenset()
    with pytest.raises(Conflict, match="Harvester was upgraded"):
        await stage.reconcile(KEY)
    assert stage.harvester.writes() == []


async def test_change_that_is_not_taken_is_no_change_and_is_not_repeated_at_once() -> None:
    stage = await stage_with(hosted(), balancers=(balancer(),))
    before = stage.caches.load_balancers.get(LB_KEY)
    assert before is not None
    drop_changes(stage)
    with pytest.raises(Conflict, match="did not take a change"):
        await stage.reconcile(KEY)
    assert stage.writes() == [f"PUT {LB_NAME}"]
    assert stage.caches.load_balancers.get(LB_KEY) is before


def drop_changes(stage: ServiceControllerWorld) -> None:
    """Let Harvester answer a change with a new version of what was there, as one does in the middle of an upgrade."""
    stage.harvester.deaf_to = lambda call: call.verb == "PUT"
