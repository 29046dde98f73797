"""Initialization of Nodes and later changes, on API servers in memory and simulated time."""

import asyncio

import pytest
from structlog.testing import capture_logs

from harvester_ccm.controllers.virtual_addresses import LINGER_SECONDS
from harvester_ccm.model.core import Service
from harvester_ccm.names import KUBE_VIP_ADDRESSES, PROVIDED_NODE_IP, REGION, ZONE
from tests.support.builders import service
from tests.support.clock import jumping_time, until
from tests.support.memory_server import Document, MemoryServer, refused
from tests.support.node_objects import DEFAULTS
from tests.support.node_world import (
    BALANCER,
    NAMESPACE,
    NODE,
    PERIOD,
    SERVICE,
    TAINT,
    VMI,
    NodeWorld,
    initialised,
    joined,
    machine,
)

ZONED = machine("w1", zone="zone-a", region="north")
GRACE_SECONDS = DEFAULTS.address_grace_seconds
VIP = "10.0.0.50"
LOAD_BALANCER = {"metadata": {"name": "lb", "namespace": NAMESPACE}, "status": {"address": VIP}}
ANNOUNCED = service(ours=True, annotations={KUBE_VIP_ADDRESSES: VIP}, address=VIP)
NODE_PATH = "PATCH /api/v1/nodes/w1"


@jumping_time
async def test_new_node_has_its_addresses_before_the_taint_is_removed() -> None:
    scene = NodeWorld()
    uid = scene.boot(ZONED, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        assert await initialised(scene, ["w1"]) < 0.2
        await until(lambda: scene.told("w1"))
    assert scene.node_writes() == [f"{NODE_PATH}/status", NODE_PATH]
    assert scene.provider_id("w1") == f"harvester://{uid}"
    assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]
    assert {key: scene.stored("w1")["metadata"]["labels"][key] for key in (ZONE, REGION)} == {
        ZONE: "zone-a",
        REGION: "north",
    }
    assert scene.told("w1") == ["Synced"]
    assert scene.asked() == []


@jumping_time
async def test_node_waits_for_vm_then_for_its_start_then_for_its_address() -> None:
    scene = NodeWorld()
    scene.boot(machine("other"), "10.0.0.9")
    async with scene.live():
        scene.join("w1")
        await until(lambda: scene.told("w1") == ["VMNotFound"])
        scene.create(ZONED)
        await until(lambda: scene.told("w1") == ["VMNotFound", "VMNotRunning"])
        scene.start(ZONED)
        await until(lambda: scene.told("w1") == ["VMNotFound", "VMNotRunning", "NoAddress"])
        await asyncio.sleep(600)
        assert scene.taints("w1") == ["uninitialized"]
        assert scene.node_writes() == []
        scene.report(ZONED, "10.0.0.1")
        assert await initialised(scene, ["w1"]) < 0.2
        await until(lambda: len(scene.told("w1")) == 4)
    assert scene.told("w1") == ["VMNotFound", "VMNotRunning", "NoAddress", "Synced"]


@jumping_time
async def test_state_of_a_few_seconds_causes_no_event() -> None:
    scene = NodeWorld()
    async with scene.live():
        scene.join("w1")
        await asyncio.sleep(PERIOD / 2)
        scene.boot(ZONED)
        await asyncio.sleep(PERIOD / 2)
        scene.report(ZONED, "10.0.0.1")
        await until(lambda: scene.told("w1"))
        await asyncio.sleep(60)
    assert scene.told("w1") == ["Synced"]


@jumping_time
async def test_changes_of_the_vm_are_written_at_once_and_nothing_else() -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, [ZONED])
        await asyncio.sleep(1)
        scene.guest_server.calls.clear()

        scene.report_lists(ZONED, ["10.0.0.1", "10.0.0.2"])
        assert await until(lambda: "ExternalIP 10.0.0.2" in scene.addresses("w1")) < 0.2
        key = f"{NAMESPACE}/w1"
        scene.harvester_server.change(VMI, key, {"status": {"migrationState": {"completed": False}}})
        scene.harvester_server.change(VMI, key, {"metadata": {"annotations": {ZONE: "zone-b"}}})
        await asyncio.sleep(1)
        assert scene.stored("w1")["metadata"]["labels"][ZONE] == "zone-a", "the migration is still under way"
        scene.harvester_server.change(VMI, key, {"status": {"migrationState": {"completed": True}}})
        assert await until(lambda: scene.stored("w1")["metadata"]["labels"][ZONE] == "zone-b") < 0.2
        await asyncio.sleep(1800)
    assert scene.node_writes() == [f"{NODE_PATH}/status", NODE_PATH]


@pytest.mark.parametrize("path", ["/services", "/loadbalancers"])
@jumping_time
async def test_forbidden_list_of_services_or_load_balancers_delays_nothing(path: str) -> None:
    scene = NodeWorld()
    denied = refused(403, "Forbidden", f"{path[1:]} is forbidden: cannot list")
    for server in (scene.guest_server, scene.harvester_server):
        server.fault = lambda call: denied if call.path.endswith(path) else None
    scene.boot(ZONED, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        scene.report(ZONED, "10.0.0.2")
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"), seconds=90)


@jumping_time
async def test_defaulted_network_is_emitted_once_for_each_node_and_not_after_a_restart() -> None:
    scene = NodeWorld()
    vms = [machine(f"w{number}", networks=("default/mgmt", "default/vlan5")) for number in range(3)]
    for number, vm in enumerate(vms):
        scene.boot(vm, f"10.0.0.{number}", "192.168.5.1")
        scene.join(vm.name, system_uuid=vm.system_uuid)
    async with scene.live():
        await initialised(scene, [vm.name for vm in vms])
        await asyncio.sleep(60)
    for _ in range(3):
        assert sorted(scene.told("w1")) == ["ManagementNetworkDefaulted", "Synced"]
        scene = NodeWorld(after=scene)
        scene.guest_server.calls.clear()
        async with scene.live():
            await asyncio.sleep(60)
        assert scene.node_writes() == []


@pytest.mark.parametrize(
    "done",
    [0, 1],
    ids=["before the first write", "before the second"],
)
def test_node_recreated_during_its_initialization(done: int) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(ZONED, "10.0.0.1")
        scene.guest_server.delay = lambda call: 0.05 if call.verb == "PATCH" else 0.002
        async with scene.live():
            scene.join("w1", system_uuid=ZONED.system_uuid)
            await until(lambda: len(scene.node_writes()) == done + 1)
            scene.guest_server.remove(NODE, "w1")
            scene.join("w1", system_uuid=ZONED.system_uuid)
            assert await initialised(scene, ["w1"]) < 0.3
            await until(lambda: scene.told("w1") == ["Synced"])
        assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]
        assert scene.provider_id("w1") != ""

    with capture_logs() as logs:
        run()
    assert [entry for entry in logs if entry["log_level"] == "warning"] == []


@jumping_time
async def test_vm_with_an_unreadable_vmi_is_not_reported_as_stopped() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    denied = refused(403, "Forbidden", "virtualmachineinstances.kubevirt.io is forbidden")
    scene.harvester_server.fault = lambda call: denied if "/virtualmachineinstances" in call.path else None
    async with scene.live():
        scene.guest_server.put(
            NODE, {**scene.join("w1"), "spec": {"providerID": "harvester://uid-1", "taints": [TAINT]}}
        )
        await until(lambda: scene.told("w1") == ["HarvesterUnavailable"])
        assert "virtualmachineinstances.kubevirt.io is forbidden" in scene.guest_server.events()[0]["message"]
        scene.harvester_server.fault = None
        await initialised(scene, ["w1"])


@pytest.mark.parametrize(
    ("server", "collection", "item"),
    [
        pytest.param("harvester_server", BALANCER, LOAD_BALANCER, id="load balancer"),
        pytest.param("guest_server", SERVICE, ANNOUNCED, id="Service"),
    ],
)
@jumping_time
async def test_virtual_ip_is_no_node_address(server: str, collection: str, item: Document | Service) -> None:
    scene = NodeWorld()
    allocator: MemoryServer = getattr(scene, server)
    async with scene.live():
        await joined(scene, [ZONED])
        scene.report_lists(ZONED, ["10.0.0.1", VIP])
        await until(lambda: f"ExternalIP {VIP}" in scene.addresses("w1"))

        stored = allocator.put(collection, item)
        await until(lambda: f"ExternalIP {VIP}" not in scene.addresses("w1"), DEFAULTS.status_period)

        allocator.remove(collection, f"{stored['metadata']['namespace']}/{stored['metadata']['name']}")
        await asyncio.sleep(LINGER_SECONDS / 2)
        scene.say_ready("w1", "False")
        await asyncio.sleep(1)
        assert f"ExternalIP {VIP}" not in scene.addresses("w1"), "agents report it for some time still"
        await asyncio.sleep(LINGER_SECONDS / 2)
        scene.say_ready("w1", "True")
        await until(lambda: f"ExternalIP {VIP}" in scene.addresses("w1"), DEFAULTS.status_period)


@pytest.mark.parametrize(
    ("server", "collection", "item", "path"),
    [
        pytest.param("harvester_server", BALANCER, LOAD_BALANCER, "/loadbalancers", id="load balancers"),
        pytest.param("guest_server", SERVICE, ANNOUNCED, "/services", id="Services"),
    ],
)
@jumping_time
async def test_new_node_waits_until_the_virtual_ips_are_listed(
    server: str, collection: str, item: Document | Service, path: str
) -> None:
    scene = NodeWorld()
    allocator: MemoryServer = getattr(scene, server)
    allocator.put(collection, item)
    allocator.delay = lambda call: 5.0 if call.path.endswith(path) else 0.002
    scene.boot(ZONED)
    scene.report_lists(ZONED, [VIP, "10.0.0.1"])
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        assert "InternalIP 10.0.0.1" in scene.addresses("w1")
        assert not any(VIP in address for address in scene.addresses("w1"))


@pytest.mark.parametrize("is_restored", [True, False], ids=["and the controller restores it", "just now"])
@jumping_time
async def test_address_that_another_program_wrote_to_a_service_blocks_no_new_node(*, is_restored: bool) -> None:
    """K3s ServiceLB writes the addresses of all nodes to the status of a Service that kube-vip announces."""
    scene = NodeWorld()
    async with scene.live():
        scene.guest_server.put(SERVICE, ANNOUNCED)
        scene.guest_server.change(SERVICE, "shop/web", {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}})
        if is_restored:
            await asyncio.sleep(1)
            scene.guest_server.change(SERVICE, "shop/web", {"status": {"loadBalancer": {"ingress": [{"ip": VIP}]}}})
        scene.boot(ZONED, "10.0.0.1")
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        await until(lambda: scene.told("w1"))
    assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]
    assert scene.told("w1") == ["Synced"]


@jumping_time
async def test_rejected_write_is_retried() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    denied = refused(403, "Forbidden", "nodes/status is forbidden")
    scene.guest_server.fault = lambda call: denied if call.path.endswith("/status") else None
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await asyncio.sleep(300)
        assert scene.taints("w1") == ["uninitialized"], "without its addresses a Node must not be used"
        assert len(scene.node_writes()) < 30
        assert scene.told("w1") == ["NodeUpdateRejected"]
        message = scene.guest_server.events()[0]["message"]
        assert "nodes/status is forbidden" in message
        assert "Grant the verb patch on nodes and nodes/status" in message
        scene.guest_server.fault = None
        await initialised(scene, ["w1"])
        await until(lambda: scene.told("w1") == ["NodeUpdateRejected", "Synced"])


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param(["fd00::1"], ["InternalIP 10.0.0.9", "ExternalIP fd00::1"], id="other family"),
        pytest.param([], ["InternalIP 10.0.0.9"], id="no agent"),
    ],
)
@jumping_time
async def test_new_node_waits_for_the_address_of_its_kubelet_and_then_has_it(
    reported: list[str], expected: list[str]
) -> None:
    scene = NodeWorld()
    scene.boot(ZONED, *reported)
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid, **{PROVIDED_NODE_IP: "10.0.0.9"})
        assert await until(lambda: scene.told("w1") == ["NodeIPNotReported"]) < 2 * PERIOD
        assert scene.node_writes() == []
        assert GRACE_SECONDS - 2 * PERIOD < await initialised(scene, ["w1"]) < GRACE_SECONDS
        assert scene.addresses("w1") == [*expected, "Hostname w1"]
        await asyncio.sleep(600)
    assert scene.told("w1") == ["NodeIPNotReported", "Synced"]
    assert scene.node_writes() == [f"{NODE_PATH}/status", NODE_PATH]


@jumping_time
async def test_internal_ip_is_replaced_only_if_it_is_missing_for_a_minute_in_which_another_is_reported() -> None:
    scene, vm = NodeWorld(), machine("w1")
    scene.boot(vm)
    scene.report_lists(vm, ["10.0.0.1", "10.0.0.100"])
    async with scene.live():
        scene.join("w1", system_uuid=vm.system_uuid)
        await initialised(scene, ["w1"])
        before = scene.addresses("w1")
        scene.guest_server.calls.clear()
        for _ in range(5):
            scene.report(vm, "10.0.0.100")
            await asyncio.sleep(GRACE_SECONDS - 1)
            scene.report_lists(vm, ["10.0.0.100", "10.0.0.1"])
            await asyncio.sleep(1)
        scene.report(vm, "10.0.0.100")
        await asyncio.sleep(GRACE_SECONDS - 1)
        # A silent guest agent says nothing about the address.
        scene.report(vm)
        await asyncio.sleep(10 * GRACE_SECONDS)
        scene.report(vm, "10.0.0.100")
        await asyncio.sleep(GRACE_SECONDS - 20)
        # During an outage of Harvester, the report is an old one.
        scene.harvester_server.fault = lambda _call: refused(503, "ServiceUnavailable", "away")
        scene.harvester_server.break_watches()
        await asyncio.sleep(10 * GRACE_SECONDS)
        assert (scene.addresses("w1"), scene.node_writes()) == (before, [])
        scene.harvester_server.fault = None
        await until(lambda: scene.caches.vms.problem is None and scene.caches.vmis.problem is None)
        await asyncio.sleep(GRACE_SECONDS - 1)
        assert (scene.addresses("w1"), scene.node_writes()) == (before, [])
        assert await until(lambda: "InternalIP 10.0.0.100" in scene.addresses("w1")) < 2
        await until(lambda: "InternalIPChanged" in scene.told("w1"))
        await asyncio.sleep(600)
    assert scene.node_writes() == [f"{NODE_PATH}/status"]
