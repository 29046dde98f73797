"""Initialisation and refresh of Nodes, on API servers in memory and a clock that jumps."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from harvester_ccm.controllers.service import ServiceCaches
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.names import REGION, ZONE
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import page, refused
from tests.worlds.node_objects import DEFAULTS, node_settings
from tests.worlds.node_world import BALANCER, NAMESPACE, NODE, PERIOD, TAINT, VMI, NodeWorld, initialised, machine

ZONED = machine("w1", zone="zone-a", region="north")
VIP = {"address": "10.0.0.50"}
SERVICE = "v1/services"
NODE_PATH = "PATCH /api/v1/nodes/w1"


@jumping_time
async def test_new_node_gets_its_addresses_before_it_loses_the_taint() -> None:
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


NODE_GONE = refused(404, "NotFound", 'nodes "w1" not found', about="w1")


@pytest.mark.parametrize("answer", [page(), NODE_GONE], ids=["a page", "that it is gone"])
@pytest.mark.parametrize("ready", ["True", "False"], ids=["refreshed", "tainted"])
def test_node_that_a_write_does_not_find_stays_a_backend_until_it_is_seen_to_go(answer: CCMError, ready: str) -> None:
    @jumping_time
    async def run() -> None:
        scene = NodeWorld()
        scene.boot(ZONED, "10.0.0.1")
        caches = ServiceCaches(scene.services, scene.load_balancers, scene.vms, scene.config_maps)
        backends: set[tuple[str, ...]] = set()

        def look(_old: object, _new: object) -> None:
            caches.refresh_backends()
            backends.add(caches.backends.names)

        async with scene.live():
            scene.join("w1", system_uuid=ZONED.system_uuid)
            await initialised(scene, ["w1"])
            scene.nodes.on_change(look)
            scene.guest_server.faults.append(answer)
            if ready == "True":
                scene.report(ZONED, "10.0.0.2")
                await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"), seconds=90)
            else:
                scene.stop(ZONED)
                scene.say_ready("w1", ready)
                await until(lambda: "shutdown" in scene.taints("w1"))
            assert scene.guest_server.faults == []
        assert backends == {("w1",)}

    run()


@jumping_time
async def test_what_passes_within_seconds_is_not_told() -> None:
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
async def test_changes_of_the_vm_reach_the_node_at_once_and_only_they_are_written() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
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


@jumping_time
async def test_topology_is_not_followed_without_the_vmi_controller() -> None:
    scene = NodeWorld(node_settings(vmi_controller=False))
    scene.boot(ZONED, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"metadata": {"annotations": {ZONE: "zone-b"}}})
        scene.report(ZONED, "10.0.0.2")
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"), seconds=90)
        await asyncio.sleep(600)
        assert scene.stored("w1")["metadata"]["labels"][ZONE] == "zone-a"


@pytest.mark.parametrize("path", ["/services", "/loadbalancers"])
def test_services_and_load_balancers_that_may_not_be_listed_delay_nothing(path: str) -> None:
    @jumping_time
    async def run() -> None:
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

    run()


@jumping_time
async def test_guesses_are_told_once_for_each_node_and_not_at_every_start() -> None:
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


@jumping_time
async def test_joined_again_under_the_same_name() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    async with scene.live():
        first = scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        scene.guest_server.remove(NODE, "w1")
        await asyncio.sleep(1)
        again = scene.join("w1", system_uuid=ZONED.system_uuid)
        assert again["metadata"]["uid"] != first["metadata"]["uid"]
        await initialised(scene, ["w1"])
        await until(lambda: scene.told("w1") == ["Synced", "Synced"])
    assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]


@pytest.mark.parametrize(
    "done",
    [0, 1],
    ids=["before the first write", "before the second"],
)
def test_node_replaced_in_the_middle_of_its_initialisation(done: int) -> None:
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
async def test_vm_of_a_left_over_node_is_free_when_that_is_deleted() -> None:
    scene = NodeWorld()
    uid = scene.boot(ZONED, "10.0.0.1")
    left_over = scene.join("old-name", ready="Unknown")
    scene.guest_server.put(NODE, {**left_over, "spec": {"providerID": f"harvester://{uid}"}})
    async with scene.live():
        scene.join("w1")
        await until(lambda: scene.told("w1") == ["VMInUse"])
        scene.guest_server.remove(NODE, "old-name")
        assert await initialised(scene, ["w1"]) < 0.2
    assert scene.provider_id("w1") == f"harvester://{uid}"


@jumping_time
async def test_vm_whose_instance_cannot_be_read_is_not_called_stopped() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    denied = refused(403, "Forbidden", "virtualmachineinstances.kubevirt.io is forbidden")
    scene.harvester_server.fault = lambda call: denied if "/virtualmachineinstances" in call.path else None
    async with scene.live():
        scene.guest_server.put(
            NODE, {**scene.join("w1"), "spec": {"providerID": "harvester://uid-1", "taints": [TAINT]}}
        )
        await until(lambda: scene.told("w1") == ["HarvesterForbidden"])
        assert "list VirtualMachineInstances" in scene.guest_server.events()[0]["message"]
        scene.harvester_server.fault = None
        await initialised(scene, ["w1"])


@jumping_time
async def test_virtual_address_of_a_load_balancer_is_no_node_address() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        nics = [{"name": "default", "ipAddresses": ["10.0.0.1", "10.0.0.50"]}]
        scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"interfaces": nics}})
        await until(lambda: "ExternalIP 10.0.0.50" in scene.addresses("w1"))

        scene.harvester_server.put(BALANCER, {"metadata": {"name": "lb", "namespace": NAMESPACE}, "status": VIP})
        await until(lambda: "ExternalIP 10.0.0.50" not in scene.addresses("w1"), DEFAULTS.status_period)

        scene.harvester_server.remove(BALANCER, f"{NAMESPACE}/lb")
        await asyncio.sleep(30)
        scene.say_ready("w1", "False")
        await asyncio.sleep(1)
        assert "ExternalIP 10.0.0.50" not in scene.addresses("w1"), "agents report it for some time still"
        scene.report(ZONED, "10.0.0.1")
        await asyncio.sleep(600)
    assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]


@jumping_time
async def test_no_address_is_published_before_those_of_load_balancers_are_known() -> None:
    scene = NodeWorld()
    scene.boot(ZONED)
    nics = [{"name": "default", "ipAddresses": ["10.0.0.50", "10.0.0.1"]}]
    scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"interfaces": nics}})
    scene.harvester_server.put(BALANCER, {"metadata": {"name": "lb", "namespace": NAMESPACE}, "status": VIP})
    scene.harvester_server.delay = lambda call: 20.0 if "/loadbalancers" in call.path else 0.002
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await asyncio.sleep(10)
        assert scene.node_writes() == []
        await initialised(scene, ["w1"])
    assert scene.addresses("w1") == ["InternalIP 10.0.0.1", "Hostname w1"]


@jumping_time
async def test_replaced_vm_is_told_and_the_node_stays() -> None:
    scene = NodeWorld()
    uid = scene.boot(ZONED, "10.0.0.1")
    scene.boot(machine("w2"), "10.0.0.2")
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await initialised(scene, ["w1"])
        scene.destroy(ZONED)
        scene.say_ready("w1", "Unknown")
        scene.boot(ZONED, "10.0.0.7")
        await until(lambda: "VMReplaced" in scene.told("w1"))
        await asyncio.sleep(600)
        assert scene.told("w1").count("VMReplaced") == 1
    assert scene.provider_id("w1") == f"harvester://{uid}", "a provider ID cannot be changed"
    assert "InternalIP 10.0.0.7" in scene.addresses("w1")


@jumping_time
async def test_guest_that_refuses_writes_is_tried_again() -> None:
    scene = NodeWorld()
    scene.boot(ZONED, "10.0.0.1")
    denied = refused(403, "Forbidden", "nodes/status is forbidden")
    scene.guest_server.fault = lambda call: denied if call.path.endswith("/status") else None
    async with scene.live():
        scene.join("w1", system_uuid=ZONED.system_uuid)
        await asyncio.sleep(300)
        assert scene.taints("w1") == ["uninitialized"], "without its addresses a Node must not be used"
        assert len(scene.node_writes()) < 30
        assert scene.told("w1") == ["NodeWriteRefused"]
        message = scene.guest_server.events()[0]["message"]
        assert "nodes/status is forbidden" in message
        assert "Grant the verb patch on nodes and nodes/status" in message
        scene.guest_server.fault = None
        await initialised(scene, ["w1"])
        await until(lambda: scene.told("w1") == ["NodeWriteRefused", "Synced"])


@jumping_time
async def test_fifty_nodes_join_at_once() -> None:
    scene = NodeWorld()
    vms = [machine(f"w{number}") for number in range(50)]
    async with scene.live():
        for vm in vms:
            scene.join(vm.name, system_uuid=vm.system_uuid)
        await asyncio.sleep(2)
        for vm in vms:
            scene.boot(vm)
        await asyncio.sleep(1)
        for number, vm in enumerate(vms):
            scene.report(vm, f"10.0.0.{number + 1}")
        await initialised(scene, [vm.name for vm in vms])
        await until(lambda: len(scene.told()) == 50)
    assert len(scene.node_writes()) == 100
    assert set(scene.told()) == {"Synced"}
    assert scene.asked() == []


@jumping_time
async def test_internal_ip_stays_during_an_outage_that_began_while_the_agent_did_not_report_it() -> None:
    scene, vm = NodeWorld(), machine("w1")
    scene.boot(vm)
    scene.report_lists(vm, ["10.0.0.1", "10.0.0.100"])
    async with scene.live():
        scene.join("w1", system_uuid=vm.system_uuid)
        await initialised(scene, ["w1"])
        before = scene.addresses("w1")
        scene.report(vm, "10.0.0.100")
        await asyncio.sleep(0.5)
        scene.harvester_server.fault = lambda _: Unreachable("connection refused")
        scene.harvester_server.break_watches(Unreachable("connection reset by peer"))
        await asyncio.sleep(600)
        assert scene.addresses("w1") == before
