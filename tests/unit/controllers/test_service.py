"""The Service controller: writes go into the caches, mistakes of the moment are mended, everything is told once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harvester_ccm.errors import (
    Answer,
    Conflict,
    Forbidden,
    NotServed,
    ServerError,
    Unreachable,
    WriteReverted,
    error_from_answer,
)
from harvester_ccm.model.core import NODES, SERVICES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.outcome import Done, Wait
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_IGNORE,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    LB_SERVICE_UUID,
    LOAD_BALANCER_READY,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    WORKLOAD_TYPE,
)
from tests.worlds.builders import ADDRESS, LB_NAME, UID, allocated, marked, served, service
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, document_of, page, refused
from tests.worlds.service_controller_world import ServiceControllerWorld

KEY = "shop/web"
LB_KEY = f"vms/{LB_NAME}"
EXHAUSTED = "fail to get ip from pool lan, error: no IP addresses available in range set: 10.0.0.1-10.0.0.2"
DENIED = error_from_answer(
    Answer(500, "InternalError", 'admission webhook "v" denied the request: listener has duplicate name x')
)
BUSY = ServerError(Answer(503, "ServiceUnavailable", "busy"))


async def stage_with(*services: Any, balancers: tuple[Any, ...] = (), **more: Any) -> ServiceControllerWorld:
    """Return a started stage with these objects."""
    stage = ServiceControllerWorld(**more)
    for one in services:
        stage.guest.put(SERVICES, one)
    for balancer in balancers:
        stage.harvester.put(LOAD_BALANCERS, balancer)
    await stage.start()
    return stage


def grant(stage: ServiceControllerWorld, **more: Any) -> None:
    """Let Harvester give the address."""
    found = stage.harvester.of(LOAD_BALANCERS).get(LB_KEY, {"metadata": {}})["metadata"]
    stage.harvester.put(LOAD_BALANCERS, marked(uid=found.get("uid", "uid"), ip=ADDRESS, pool="lan", **more))


async def test_from_creation_to_the_address_to_silence() -> None:
    stage = await stage_with(service())
    assert await stage.reconcile(KEY) == Wait("not_processed", 30.0)
    assert stage.writes() == ["PATCH web/status", f"POST {LB_NAME}"]
    grant(stage)
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PATCH web/status", f"PUT {LB_NAME}"]
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == []
    assert stage.told() == ["web: Normal EnsuringLoadBalancer", "web: Normal EnsuredLoadBalancer"]
    assert stage.guest.of(SERVICES)[KEY]["status"]["loadBalancer"]["ingress"][0]["ip"] == ADDRESS


async def test_answers_count_before_the_watch_tells_of_them() -> None:
    stage = await stage_with(service())
    stage.guest.lagging = stage.harvester.lagging = True
    await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status", f"POST {LB_NAME}"]
    await stage.reconcile(KEY)
    assert stage.writes() == []


async def test_a_hundred_served_services_are_silent_after_a_restart() -> None:
    services, balancers = [], []
    for number in range(100):
        ip, pool = f"10.0.0.{number}", "lan"
        one = served(f"web-{number}", uid=f"uid-{number}", address=ip, annotations={KUBE_VIP_ADDRESSES: ip})
        services.append(one)
        balancers.append(marked(one, f"lb-web-{number}", uid=f"uid-{number}", ip=ip, pool=pool, address=ip))
    stage = await stage_with(*services, balancers=tuple(balancers))
    for one in services:
        assert await stage.reconcile(one.metadata.key) == Done()
    assert (stage.writes(), stage.told()) == ([], [])


async def test_deletion_is_told_before_the_service_is_gone() -> None:
    stage = await stage_with(served(deleting=True), balancers=(allocated(),))
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PATCH web/status", "PATCH web/status", f"DELETE {LB_NAME}"]
    assert stage.told() == ["web: Normal DeletingLoadBalancer", "web: Normal DeletedLoadBalancer"]
    assert await stage.reconcile(KEY) == Done()
    assert (stage.writes(), stage.controller._states._states) == ([], {})


async def test_services_of_others_cost_nothing() -> None:
    stage = await stage_with(service(spec={"loadBalancerClass": "example.com/other"}), service("b", kind="ClusterIP"))
    for key in (KEY, "shop/b", "shop/none"):
        assert await stage.reconcile(key) == Done()
    assert (stage.writes(), stage.told(), stage.controller._states._states) == ([], [], {})


async def test_a_reason_is_told_once_until_it_changes() -> None:
    stage = await stage_with(
        service(annotations={KUBE_VIP_ADDRESSES: ""}, ours=True), balancers=(marked(message=EXHAUSTED),)
    )
    for _ in range(3):
        await stage.reconcile(KEY)
    assert stage.told() == ["web: Warning AddressPending"]
    stage.harvester.put(LOAD_BALANCERS, marked(message="fail to get allocator lab"))
    for _ in range(3):
        await stage.reconcile(KEY)
    assert stage.told() == ["web: Warning AddressPending"]
    grant(stage)
    await stage.reconcile(KEY)
    stage.told()
    stage.harvester.put(LOAD_BALANCERS, marked(message=EXHAUSTED))
    await stage.reconcile(KEY)
    assert stage.told() == [], "an equal Event is emitted once an hour"


async def test_two_events_of_one_reason_do_not_chase_each_other() -> None:
    wrong = {
        "cloudprovider.harvesterhci.io/workload-type": "pod",
        "cloudprovider.harvesterhci.io/requested-address": "x",
    }
    stage = await stage_with(served(annotations=wrong), balancers=(allocated(),))
    for _ in range(3):
        await stage.reconcile(KEY)
    assert stage.told() == ["web: Warning InvalidAnnotation"] * 2


async def test_a_new_service_of_the_same_name_is_told_anew() -> None:
    refused: dict[str, Any] = {"spec": {"ipFamilies": ["IPv6"]}}
    stage = await stage_with(service(**refused))
    await stage.reconcile(KEY)
    stage.guest.put(SERVICES, service(uid="another", **refused))
    await stage.reconcile(KEY)
    assert stage.told() == ["web: Warning SyncLoadBalancerFailed"] * 2


ENSURING = "web: Normal EnsuringLoadBalancer"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(DENIED, [ENSURING, "web: Warning SyncLoadBalancerFailed"], id="refused: at once"),
        pytest.param(
            Forbidden(Answer(403, "", "no")), [ENSURING, "web: Warning HarvesterUnavailable"], id="403: at once"
        ),
        pytest.param(BUSY, [ENSURING], id="may pass: not yet"),
        pytest.param(Unreachable("no route"), [ENSURING], id="unreachable: not yet"),
    ],
)
async def test_failed_writes(error: Any, told: list[str]) -> None:
    stage = await stage_with(service())
    for _ in range(3):
        stage.harvester.faults.append(error)
        with pytest.raises(type(error)):
            await stage.reconcile(KEY)
    assert stage.told() == told


@jumping_time
async def test_a_fault_that_lasts_is_told_once_and_overcome() -> None:
    stage = await stage_with(service())
    stage.controller.at_work = True
    stage.harvester.faults += [BUSY] * 4
    stage.controller.queue.enqueue(KEY)
    await asyncio.sleep(60)
    assert stage.told() == [
        ENSURING,
        "web: Warning HarvesterUnavailable",
        "web: Warning AddressPending",
    ]
    assert stage.writes().count(f"POST {LB_NAME}") == 5


async def test_what_exists_already_is_found_by_asking() -> None:
    stage = await stage_with(service())
    stage.harvester.lagging = True
    stage.harvester.put(LOAD_BALANCERS, allocated())
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert stage.caches.load_balancers.get(LB_KEY) is not None
    assert await stage.reconcile(KEY) == Done()
    assert stage.told() == [ENSURING, "web: Normal EnsuredLoadBalancer"]


async def test_a_load_balancer_that_a_write_finds_gone_is_created_again_when_it_is_seen_to_be() -> None:
    stage = await stage_with(served(), balancers=(allocated(address="10.0.0.9"),))
    stage.guest.change(SERVICES, KEY, {"status": {"conditions": [{"type": LOAD_BALANCER_READY, "status": "True"}]}})
    stage.harvester.lagging = True
    stage.harvester.remove(LOAD_BALANCERS, LB_KEY)
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert stage.writes() == [f"PUT {LB_NAME}"]
    stage.harvester.catch_up()
    await stage.reconcile(KEY)
    assert stage.writes()[-1] == f"POST {LB_NAME}"
    assert stage.told() == ["web: Warning RecreatingLoadBalancer"]


async def test_deleting_what_is_gone_already_succeeds() -> None:
    stage = await stage_with(served(deleting=True), balancers=(allocated(),))
    stage.harvester.lagging = True
    stage.harvester.remove(LOAD_BALANCERS, LB_KEY)
    assert await stage.reconcile(KEY) == Done()
    assert KEY not in stage.guest.of(SERVICES)


async def test_another_load_balancer_of_the_name_is_not_deleted() -> None:
    stage = await stage_with(served(deleting=True), balancers=(allocated(),))
    stage.harvester.lagging = True
    stage.harvester.put(LOAD_BALANCERS, allocated(uid="a-newer-one"))
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert LB_KEY in stage.harvester.of(LOAD_BALANCERS)


async def test_a_service_that_a_write_finds_gone_is_gone_when_it_is_seen_to_be() -> None:
    stage = await stage_with(service())
    stage.guest.lagging = True
    stage.guest.remove(SERVICES, KEY)
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status"], "a load balancer that is made for nobody is nobody's to delete"
    assert stage.caches.services.get(KEY) is not None
    stage.guest.catch_up()
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == []


async def test_an_api_that_is_not_served_means_no_load_balancer_is_gone() -> None:
    stage = await stage_with(served(deleting=True), balancers=(allocated(),))
    stage.harvester.faults.append(NotServed(Answer(404, "", "404 page not found")))
    with pytest.raises(NotServed):
        await stage.reconcile(KEY)
    assert KEY in stage.guest.of(SERVICES)
    assert stage.caches.load_balancers.get(LB_KEY) is not None
    assert await stage.reconcile(KEY) == Done()
    assert KEY not in stage.guest.of(SERVICES)


async def test_a_load_balancer_of_a_provider_before_0_2_is_found_by_the_uid_and_keeps_its_name() -> None:
    earlier = allocated(
        name="kubernetes-shop-web-1234",
        labels={LB_SERVICE_NAMESPACE: "", LB_SERVICE_NAME: ""},
        annotations={LB_SERVICE_UID: "", LB_OWNER: "", LB_SERVICE_UUID: UID},
    )
    stage = await stage_with(served(), balancers=(earlier,))
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == ["PUT kubernetes-shop-web-1234"]
    assert await stage.reconcile(KEY) == Done()
    assert stage.writes() == []


async def test_a_page_in_the_place_of_an_answer_makes_no_service_unseen() -> None:
    stage = await stage_with(service())
    stage.guest.faults.append(page())
    with pytest.raises(NotServed):
        await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status"]
    await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status", f"POST {LB_NAME}"]


async def test_nothing_is_made_for_a_service_that_cannot_be_held() -> None:
    stage = await stage_with(service())
    stage.guest.deaf_to = lambda call: call.verb == "PATCH"
    with pytest.raises(WriteReverted):
        await stage.reconcile(KEY)
    assert stage.writes() == ["PATCH web/status"], "without our finalizer it may go before its load balancer does"


async def test_a_conflict_with_harvester_loses_no_event() -> None:
    stage = await stage_with(
        service(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}, ours=True),
        balancers=(marked(ip=ADDRESS, pool="x"),),
    )
    stage.harvester.faults.append(Conflict(Answer(409, "Conflict", "changed")))
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert await stage.reconcile(KEY) == Done()
    assert stage.told() == ["web: Normal EnsuredLoadBalancer"]


async def test_a_finalizer_is_not_written_over_another_controllers() -> None:
    # Nothing but the finalizer is to be written.
    held = {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}
    stage = await stage_with(service(annotations=held))
    stage.guest.lagging = True
    stage.guest.put(SERVICES, service(annotations=held, finalizers=["example.com/keep"]))
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert stage.guest.of(SERVICES)[KEY]["metadata"]["finalizers"] == ["example.com/keep"]


async def test_another_service_of_the_name_is_not_written() -> None:
    """One made anew, or that of another cluster which a name leads to for a moment."""
    stage = await stage_with(served(), balancers=(marked(ip="10.0.0.77", pool="lan"),))
    stage.guest.lagging = True
    stage.guest.put(SERVICES, served(uid="another"))
    before = stage.guest.of(SERVICES)[KEY]
    with pytest.raises(Conflict):
        await stage.reconcile(KEY)
    assert stage.guest.of(SERVICES)[KEY] == before
    assert "Warning SyncLoadBalancerFailed" not in str(stage.told())


async def test_nothing_is_written_to_harvester_before_it_was_read() -> None:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, served(deleting=True))
    await stage.start("loadbalancers")
    stage.harvester.fault = lambda _call: Unreachable("no route")
    await stage.read(stage.caches.load_balancers)
    assert await stage.reconcile(KEY) == Wait("harvester_unavailable")
    assert stage.writes() == ["PATCH web/status"]
    (condition,) = stage.guest.of(SERVICES)[KEY]["status"].pop("conditions")
    assert (condition["status"], condition["reason"]) == ("False", "HarvesterUnavailable")
    assert stage.guest.of(SERVICES)[KEY]["status"]["loadBalancer"] == document_of(served())["status"]["loadBalancer"]
    assert stage.told() == ["web: Warning HarvesterUnavailable"]


@jumping_time
async def test_time_is_counted_from_the_last_change_of_the_phase() -> None:
    stage = await stage_with(service())
    for _ in range(2):
        await stage.reconcile(KEY)
    await asyncio.sleep(20)
    assert await stage.reconcile(KEY) == Wait("not_processed", 10.0)
    stage.harvester.remove(LOAD_BALANCERS, LB_KEY)
    await stage.reconcile(KEY)
    assert await stage.reconcile(KEY) == Wait("not_processed", 30.0)


VM = {WORKLOAD_TYPE: "vm", KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true"}


def hosted() -> Any:
    spec = {
        "workloadType": "vm",
        "listeners": [{"name": "tcp-80", "port": 80, "protocol": "TCP", "backendPort": 30080}],
        "backendServerSelector": {"harvesterhci.io/vmName": ["vm-a"]},
    }
    return allocated(spec=spec)


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


async def hosted_stage(*unsynced: str) -> ServiceControllerWorld:
    stage = ServiceControllerWorld()
    stage.guest.put(SERVICES, service(annotations=VM, ours=True, address=ADDRESS))
    stage.guest.put(NODES, node("node-a", providerID="harvester://uid-a"))
    stage.harvester.put(VIRTUAL_MACHINES, {"metadata": {"name": "vm-a", "namespace": "vms", "uid": "uid-a"}})
    stage.harvester.put(LOAD_BALANCERS, hosted())
    await stage.start(*unsynced)
    return stage


async def test_backends_follow_the_nodes() -> None:
    stage = await hosted_stage()
    await stage.reconcile(KEY)
    assert stage.writes() == []
    stage.harvester.put(VIRTUAL_MACHINES, {"metadata": {"name": "vm-b", "namespace": "vms", "uid": "uid-b"}})
    stage.guest.put(NODES, node("vm-b"))
    await stage.settle()
    assert stage.woken == [KEY]
    await stage.reconcile(KEY)
    assert stage.writes() == [f"PUT {LB_NAME}"]
    chosen = stage.harvester.of(LOAD_BALANCERS)[LB_KEY]["spec"]["backendServerSelector"]
    assert chosen == {"harvesterhci.io/vmName": ["vm-a", "vm-b"]}
    await stage.settle()
    stage.woken.clear()
    stage.guest.put(NODES, {**node("vm-b"), "status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    await stage.settle()
    assert stage.woken == []


STRANGER = {"guestcluster.harvesterhci.io/name": "someone-else"}
UNINITIALIZED = [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}]
IN_DOUBT: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "another cluster's VM has its name": ({}, {"labels": STRANGER}, True),
    "so it has, and the node is new": ({"taints": UNINITIALIZED}, {"labels": STRANGER}, False),
    "another provider's ID": ({"providerID": "aws:///eu/i-1"}, {}, True),
    "its VM is gone, another cluster's has the name": ({"providerID": "harvester://gone"}, {"labels": STRANGER}, False),
    "no VM has its name": ({}, {"name": "vm-z"}, True),
    "its VM is gone": ({"providerID": "harvester://gone"}, {"name": "vm-z"}, False),
}


@pytest.mark.parametrize(("spec", "meta", "told"), IN_DOUBT.values(), ids=IN_DOUBT.keys())
async def test_node_whose_vm_is_in_doubt_gets_no_traffic(
    spec: dict[str, Any], meta: dict[str, Any], told: bool
) -> None:
    stage = await hosted_stage()
    machine = {"name": "n6", "namespace": "vms", "uid": "uid-n6", **meta}
    stage.harvester.put(VIRTUAL_MACHINES, {"metadata": machine})
    stage.guest.put(NODES, node("n6", **spec))
    for _ in range(3):
        await stage.reconcile(KEY)
    assert stage.writes() == []
    chosen = stage.harvester.of(LOAD_BALANCERS)[LB_KEY]["spec"]["backendServerSelector"]
    assert chosen == {"harvesterhci.io/vmName": ["vm-a"]}
    assert stage.told() == (["web: Warning BackendVMUnknown"] if told else [])


async def test_backends_stay_until_the_vms_were_read() -> None:
    stage = await hosted_stage("virtualmachines")
    await stage.reconcile(KEY)
    assert stage.writes() == [], "a node's name is not its VM's"
    await stage.read(stage.caches.vms.vms)
    assert KEY in stage.woken
    await stage.reconcile(KEY)
    assert stage.writes() == []


async def test_names_of_nodes_have_to_do_where_vms_may_not_be_read() -> None:
    stage = await hosted_stage("virtualmachines")
    stage.harvester.fault = lambda call: refused(403, "Forbidden", "no") if "virtualmachines" in call.path else None
    await stage.read(stage.caches.vms.vms)
    assert KEY in stage.woken
    await stage.reconcile(KEY)
    chosen = stage.harvester.of(LOAD_BALANCERS)[LB_KEY]["spec"]["backendServerSelector"]
    assert chosen == {"harvesterhci.io/vmName": ["node-a"]}


@jumping_time
async def test_health_comes_and_goes_once_each() -> None:
    stage = await hosted_stage()
    await stage.reconcile(KEY)
    await asyncio.sleep(60)
    down = {"type": "Ready", "status": "False", "message": "no running backend servers"}
    for condition in (down, down, {"type": "Ready", "status": "True"}, {"type": "Ready", "status": "True"}):
        document: Any = hosted().document()
        document["status"]["conditions"] = [condition]
        stage.harvester.put(LOAD_BALANCERS, document)
        await stage.reconcile(KEY)
    assert stage.told() == ["web: Warning BackendsUnhealthy", "web: Normal BackendsHealthy"]


WEB, API, EXTRA = (
    served(),
    service("api", annotations={PRIMARY_SERVICE: KEY}),
    service("extra", annotations={PRIMARY_SERVICE: KEY}),
)
FORMER = service("api", labels={PRIMARY_SERVICE_LABEL: "shop.web"}, ours=True)
WAKES: dict[str, tuple[Any, set[str]]] = {
    "the primary": (served(ports=[{"port": 81}]), {KEY, "shop/api", "shop/extra"}),
    "a secondary": (
        service("api", annotations={PRIMARY_SERVICE: KEY}, ports=[{"port": 9}]),
        {KEY, "shop/api", "shop/extra"},
    ),
    "a secondary names another one": (
        service("api", annotations={PRIMARY_SERVICE: "shop/other"}),
        {KEY, "shop/api", "shop/extra", "shop/other"},
    ),
    "a secondary names nobody": (service("api"), {KEY, "shop/api", "shop/extra"}),
    "a secondary is ClusterIP": (service("api", kind="ClusterIP"), {KEY, "shop/api", "shop/extra"}),
    "the primary becomes a secondary": (
        served(annotations={PRIMARY_SERVICE: "shop/other"}),
        {KEY, "shop/api", "shop/extra", "shop/other"},
    ),
    "somebody else": (served("other"), {"shop/other"}),
}


@pytest.mark.parametrize(("changed", "woken"), WAKES.values(), ids=WAKES.keys())
async def test_a_change_wakes_those_who_share(changed: Any, woken: set[str]) -> None:
    stage = await stage_with(WEB, API, EXTRA, service("other"), service("lonely"))
    stage.guest.put(SERVICES, changed)
    await stage.settle()
    assert set(stage.woken) == woken


async def test_an_address_that_is_given_wakes_the_secondaries() -> None:
    stage = await stage_with(service(), API, EXTRA, service("lonely"))
    stage.harvester.put(LOAD_BALANCERS, allocated())
    await stage.settle()
    assert set(stage.woken) == {KEY, "shop/api", "shop/extra"}


async def test_the_end_of_a_secondary_wakes_its_former_primary() -> None:
    stage = await stage_with(WEB, FORMER)
    stage.guest.remove(SERVICES, "shop/api")
    await stage.settle()
    assert set(stage.woken) == {KEY, "shop/api"}


async def test_a_load_balancer_wakes_its_service_even_when_its_labels_change() -> None:
    stage = await stage_with(served(), service("api"), balancers=(allocated(),))
    stage.harvester.put(LOAD_BALANCERS, allocated(labels={"cloudprovider.harvesterhci.io/serviceName": "api"}))
    await stage.settle()
    assert sorted(stage.woken) == ["shop/api", KEY]
    await stage.settle()
    stage.woken.clear()
    stage.harvester.remove(LOAD_BALANCERS, LB_KEY)
    await stage.settle()
    assert "shop/api" in stage.woken


async def test_secondary_is_enqueued_when_the_load_balancer_of_its_primary_is_deleted() -> None:
    secondary = service("api", annotations={PRIMARY_SERVICE: KEY}, ports=[{"port": 9}])
    stage = await stage_with(served(), secondary, balancers=(allocated(),))
    await stage.settle()
    stage.woken.clear()
    stage.harvester.remove(LOAD_BALANCERS, LB_KEY)
    await stage.settle()
    assert "shop/api" in stage.woken


async def test_two_secondaries_with_one_port_agree_who_gives_way() -> None:
    stage = await stage_with(
        served(),
        service(
            "older", uid="1", annotations={PRIMARY_SERVICE: KEY}, ports=[{"port": 9}], created="2026-01-01T00:00:00Z"
        ),
        service(
            "newer", uid="2", annotations={PRIMARY_SERVICE: KEY}, ports=[{"port": 9}], created="2026-01-02T00:00:00Z"
        ),
        balancers=(allocated(),),
    )
    for key in ("shop/newer", "shop/older", KEY, "shop/newer", "shop/older"):
        await stage.reconcile(key)
    assert stage.told() == ["newer: Warning AddressSharingRejected", "older: Normal EnsuredLoadBalancer"]
    stage.guest.remove(SERVICES, "shop/older")
    await stage.settle()
    assert "shop/newer" in stage.woken
    await stage.reconcile("shop/newer")
    assert stage.told() == ["newer: Normal EnsuredLoadBalancer"]


@jumping_time
async def test_a_service_stays_while_a_creation_without_response_may_have_made_its_load_balancer() -> None:
    stage = await stage_with()
    harvester = stage.harvester

    def lost(call: Call) -> Unreachable | None:
        if call.verb != "POST":
            return None
        harvester.fault = lambda _: Unreachable("connection refused")
        return Unreachable("connection reset by peer")

    harvester.lost, harvester.lagging = lost, True
    stage.controller.at_work = True
    stage.guest.put(SERVICES, service())
    await asyncio.sleep(3)
    harvester.break_watches(Unreachable("connection reset by peer"))
    await asyncio.sleep(3)
    stage.guest.delete(SERVICES, KEY)
    await asyncio.sleep(30)
    assert list(harvester.of(LOAD_BALANCERS)) == [LB_KEY]
    assert KEY in stage.guest.of(SERVICES)
