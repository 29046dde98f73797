"""Queries of guest agents for host names: which, how often, and their results."""

import asyncio
from collections import Counter
from typing import Final

from structlog.testing import capture_logs

from devenv.harvester.machines import Machine
from harvester_ccm.controllers.guest_hostnames import MAX_PARALLEL
from tests.support.clock import jumping_time, until
from tests.support.memory_server import MemoryServer, refused
from tests.support.node_world import NAMESPACE, NodeWorld, initialised, machine

AGENTS: Final = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"


def answers(server: MemoryServer, vm: Machine, hostname: str) -> None:
    server.answers[f"{AGENTS}/{vm.name}/guestosinfo"] = {"hostname": hostname}


@jumping_time
async def test_node_with_the_host_name_of_its_guest_is_found() -> None:
    scene = NodeWorld()
    vm, other = machine("pool1-abc"), machine("pool1-xyz")
    uid = scene.boot(vm, "10.0.0.1")
    scene.boot(other, "10.0.0.2")
    answers(scene.harvester_server, vm, "W1.example.com")
    answers(scene.harvester_server, other, "w2")
    async with scene.live():
        scene.join("w1")
        await initialised(scene, ["w1"], 2)
        await asyncio.sleep(3600)
    assert scene.provider_id("w1") == f"harvester://{uid}"
    assert sorted(scene.asked("guestosinfo")) == [f"{AGENTS}/{name}/guestosinfo" for name in ("pool1-abc", "pool1-xyz")]
    assert scene.told("w1") == ["Synced"]


@jumping_time
async def test_no_agent_is_queried_if_name_or_uuid_identify_the_vm() -> None:
    scene = NodeWorld()
    vm = machine("pool1-abc")
    for number, one in enumerate((vm, machine("w2"), machine("w3"))):
        scene.boot(one, f"10.0.0.{number}")
    async with scene.live():
        scene.join("w1", system_uuid=vm.system_uuid)
        scene.join("w2")
        await initialised(scene, ["w1", "w2"], 2)
        await asyncio.sleep(3600)
    assert scene.asked() == []


@jumping_time
async def test_failing_agent_is_queried_once_per_minute() -> None:
    scene = NodeWorld()
    scene.boot(machine("pool1-abc"), "10.0.0.1")
    with capture_logs() as logs:
        async with scene.live():
            scene.join("w1")
            await asyncio.sleep(3600)
            assert 50 <= len(scene.asked("guestosinfo")) <= 61
            answers(scene.harvester_server, machine("pool1-abc"), "w1")
            await initialised(scene, ["w1"], 121)
    assert [entry for entry in logs if entry["log_level"] == "warning" and "reason" not in entry] == []


@jumping_time
async def test_few_queries_of_guests_are_in_flight() -> None:
    scene = NodeWorld()
    for number in range(3 * MAX_PARALLEL):
        scene.boot(machine(f"pool1-{number}"), f"10.0.0.{number}")
    scene.harvester_server.delay = lambda call: 1.0 if call.path.endswith("guestosinfo") else 0.002
    async with scene.live():
        scene.join("w1")
        await until(lambda: len(scene.asked("guestosinfo")) == 3 * MAX_PARALLEL)
    calls = [call.at for call in scene.harvester_server.calls if call.path.endswith("guestosinfo")]
    assert max(Counter(calls).values()) == MAX_PARALLEL


@jumping_time
async def test_agent_that_connects_after_its_node_has_joined_is_queried_at_once() -> None:
    scene = NodeWorld()
    vm = machine("pool1-abc")
    scene.boot(vm)
    answers(scene.harvester_server, vm, "w1")
    async with scene.live():
        scene.join("w1")
        await asyncio.sleep(10)
        scene.report(vm, "10.0.0.1")
        await initialised(scene, ["w1"], 2)


@jumping_time
async def test_missing_permission_is_logged_once() -> None:
    scene = NodeWorld()
    denied = refused(403, "Forbidden", "virtualmachineinstances/guestosinfo is forbidden")
    scene.harvester_server.fault = lambda call: denied if call.path.endswith("guestosinfo") else None
    for number in range(3):
        scene.boot(machine(f"pool1-{number}"), "10.0.0.1")
    with capture_logs() as logs:
        async with scene.live():
            scene.join("w1")
            await asyncio.sleep(1800)
            warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
            assert sorted(warnings) == ["event emitted", "guest host names not readable"]
            await asyncio.sleep(1800)
    assert [entry["event"] for entry in logs].count("guest host names not readable") == 1


@jumping_time
async def test_response_of_a_replaced_vmi_is_ignored() -> None:
    scene = NodeWorld()
    vm = machine("pool1-abc")
    scene.boot(vm, "10.0.0.1")
    answers(scene.harvester_server, vm, "w1")
    scene.harvester_server.delay = lambda call: 5.0 if "guestosinfo" in call.path else 0.002
    async with scene.live():
        scene.join("w1")
        await until(lambda: scene.asked("guestosinfo"))
        asleep = refused(409, "Conflict", "VMI does not have guest agent connected")
        scene.harvester_server.fault = lambda call: asleep if "guestosinfo" in call.path else None
        scene.stop(vm)
        scene.start(vm, "10.0.0.1")
        await asyncio.sleep(60)
        assert scene.caches.hostnames == {}
        assert scene.provider_id("w1") == ""
