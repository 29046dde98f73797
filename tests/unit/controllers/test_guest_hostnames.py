"""Which guest agents are asked for their host name, how often, and what comes of the answers."""

from __future__ import annotations

import asyncio
from typing import Final

from structlog.testing import capture_logs

from devenv.harvester.machines import Machine
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import MemoryServer, refused
from tests.worlds.node_world import NAMESPACE, VM, NodeWorld, initialised, machine

AGENTS: Final = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"


def answers(server: MemoryServer, vm: Machine, hostname: str) -> None:
    """Have the agent of a VM answer."""
    server.answers[f"{AGENTS}/{vm.name}/guestosinfo"] = {"hostname": hostname}


@jumping_time
async def test_node_named_after_its_guest_is_found() -> None:
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
async def test_nobody_is_asked_while_names_or_uuids_tell() -> None:
    scene = NodeWorld()
    vm = machine("pool1-abc")
    for one in (vm, machine("w2"), machine("w3")):
        scene.boot(one, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=vm.system_uuid)
        scene.join("w2")
        await initialised(scene, ["w1", "w2"], 2)
        await asyncio.sleep(3600)
    assert scene.asked() == []


@jumping_time
async def test_two_vms_with_the_name_are_an_event_for_a_person() -> None:
    scene = NodeWorld()
    twins = [machine("pool1-abc"), machine("pool1-xyz")]
    for vm in twins:
        scene.boot(vm, "10.0.0.1")
        answers(scene.harvester_server, vm, "w1")
    scene.harvester_server.delay = lambda call: 3.0 if "pool1-xyz/guestosinfo" in call.path else 0.002
    async with scene.live():
        scene.join("w1")
        await until(lambda: scene.told("w1") == ["VMAmbiguous"])
        assert scene.node_writes() == []
        message = scene.guest_server.events()[0]["message"]
        assert "pool1-abc, pool1-xyz" in message
        answers(scene.harvester_server, twins[1], "w2")
        await initialised(scene, ["w1"], 600)
        await until(lambda: scene.told("w1") == ["VMAmbiguous", "Synced"])


@jumping_time
async def test_foreign_stopped_and_silent_vms_are_left_alone_without_a_word() -> None:
    scene = NodeWorld()
    scene.boot(machine("foreign", cluster="other"), "10.0.0.1")
    scene.boot(machine("silent"))
    scene.create(machine("stopped"))
    scene.harvester_server.put(VM, {"metadata": {"name": "odd", "namespace": NAMESPACE}})
    with capture_logs() as logs:
        async with scene.live():
            scene.join("w1")
            await until(lambda: scene.told("w1") == ["VMNotFound"])
            await asyncio.sleep(3600)
    assert scene.asked("guestosinfo") == []
    loud = [entry["event"] for entry in logs if entry["log_level"] != "debug"]
    assert loud == ["event emitted"]


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
async def test_guest_that_gets_its_name_late_is_found_within_two_minutes() -> None:
    scene = NodeWorld()
    vm = machine("pool1-abc")
    scene.boot(vm, "10.0.0.1")
    answers(scene.harvester_server, vm, "localhost")
    async with scene.live():
        scene.join("somebody-else")
        await asyncio.sleep(1800)
        answers(scene.harvester_server, vm, "w1")
        scene.join("w1")
        # The answer can be cached for a minute when the Node looks for it, which it does once per minute.
        await initialised(scene, ["w1"], 121)


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
async def test_without_the_right_to_ask_it_is_said_once() -> None:
    scene = NodeWorld()
    denied = refused(403, "Forbidden", "virtualmachineinstances/guestosinfo is forbidden")
    scene.harvester_server.fault = lambda call: denied if call.path.endswith("guestosinfo") else None
    for number in range(3):
        scene.boot(machine(f"pool1-{number}"), "10.0.0.1")
    with capture_logs() as logs:
        async with scene.live():
            scene.join("w1")
            await asyncio.sleep(3600)
    warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert sorted(warnings) == ["event emitted", "guest host names not readable"]


@jumping_time
async def test_a_vm_started_anew_may_have_another_name() -> None:
    scene = NodeWorld()
    vm = machine("pool1-abc")
    scene.boot(vm, "10.0.0.1")
    answers(scene.harvester_server, vm, "old")
    async with scene.live():
        scene.join("w1")
        await until(lambda: scene.asked("guestosinfo"))
        await asyncio.sleep(60)
        scene.stop(vm)
        answers(scene.harvester_server, vm, "w1")
        scene.start(vm, "10.0.0.1")
        await initialised(scene, ["w1"], 2)


@jumping_time
async def test_answer_of_a_vmi_that_was_replaced_meanwhile_names_nobody() -> None:
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
        assert scene.vms.hostnames == {}
        assert scene.provider_id("w1") == ""
