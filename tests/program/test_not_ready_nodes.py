"""A Node that is not Ready has an Event with the cause, as far as Harvester shows it."""

import asyncio

import pytest

from harvester_ccm.kube.errors import Unreachable
from tests.support.clock import jumping_time, until
from tests.support.node_world import NAMESPACE, PERIOD, VM, NodeWorld, initialised, joined, machine

MACHINE = machine("w1")


def messages(scene: NodeWorld, reason: str) -> list[str]:
    return [str(event["message"]) for event in scene.guest_server.events() if event["reason"] == reason]


@jumping_time
async def test_stopped_vm_is_the_cause_and_the_event_has_the_command_to_start_it() -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, [MACHINE])
        scene.stop(MACHINE)
        scene.say_ready("w1", "Unknown")
        assert await until(lambda: "VMNotRunning" in scene.told("w1")) >= PERIOD
        (text,) = messages(scene, "VMNotRunning")
        assert text.startswith("VM default/w1 is stopped in Harvester (status Stopped), so this Node is not Ready. ")
        assert text.endswith("Run: virtctl start w1 -n default")
        await until(lambda: scene.taints("w1") == ["shutdown"])
        await asyncio.sleep(1800)
        assert scene.told("w1") == ["Synced", "VMNotRunning"]


@jumping_time
async def test_vm_that_is_being_deleted_is_the_cause_and_nobody_is_asked_to_start_it() -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, [MACHINE])
        scene.stop(MACHINE)
        deleting = {"finalizers": ["example.com/backup"], "deletionTimestamp": "2026-11-21T08:00:00Z"}
        change = {"metadata": deleting, "status": {"printableStatus": "Terminating"}}
        scene.harvester_server.change(VM, f"{NAMESPACE}/w1", change)
        scene.say_ready("w1", "Unknown")
        await until(lambda: "VMNotRunning" in scene.told("w1"))
        (text,) = messages(scene, "VMNotRunning")
        assert "VM default/w1 is being deleted in Harvester (status Terminating)" in text
        assert "Its finalizers keep it: example.com/backup" in text
        assert "start" not in text


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        pytest.param("Paused", "VMNotRunning", "is paused", id="paused"),
        pytest.param("CrashLoopBackOff", "VMNotRunning", "cannot be started", id="cannot run"),
        pytest.param("Starting", "VMNotRunning", "is starting or stopping, or its host failed", id="starting"),
        pytest.param("Running", "KubeletNotReporting", "VM default/w1 runs", id="running"),
    ],
)
@jumping_time
async def test_state_of_the_vm_is_the_cause(status: str, reason: str, text: str) -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, [MACHINE])
        if status == "CrashLoopBackOff":
            scene.stop(MACHINE)
        change = {"printableStatus": status, "ready": status == "Running"}
        scene.harvester_server.change(VM, f"{NAMESPACE}/w1", {"status": change})
        scene.say_ready("w1", "Unknown")
        await until(lambda: reason in scene.told("w1"))
        assert text in messages(scene, reason)[0]
        assert status in messages(scene, reason)[0]
        await asyncio.sleep(1800)
        assert sorted(scene.told("w1")) == sorted(["Synced", reason])


@jumping_time
async def test_state_from_before_an_outage_neither_sets_nor_removes_the_taint() -> None:
    """A VM that was started while Harvester cannot be read is not shut down."""
    scene = NodeWorld()
    other = machine("w2")
    async with scene.live():
        await joined(scene, [MACHINE, other])
        scene.stop(MACHINE)
        scene.say_ready("w1", "Unknown")
        await until(lambda: scene.taints("w1") == ["shutdown"])
        scene.harvester_server.fault = lambda _call: Unreachable("no answer within 10 s")
        scene.harvester_server.break_watches()
        await asyncio.sleep(60)
        scene.start(MACHINE, "10.0.0.1")
        scene.say_ready("w1", "True")
        await until(lambda: scene.taints("w1") == [])
        scene.say_ready("w1", "Unknown")
        scene.stop(other)
        scene.say_ready("w2", "Unknown")
        await asyncio.sleep(600)
        assert scene.taints("w1") == scene.taints("w2") == []
        scene.harvester_server.fault = None
        await until(lambda: scene.taints("w2") == ["shutdown"])
        await asyncio.sleep(60)
        assert scene.taints("w1") == []


@jumping_time
async def test_kubelet_that_reports_its_own_cause_has_no_event() -> None:
    """A Node is not Ready until its network plugin runs."""
    scene = NodeWorld()
    scene.boot(MACHINE, "10.0.0.1")
    async with scene.live():
        scene.join("w1", system_uuid=MACHINE.system_uuid, ready="False")
        await initialised(scene, ["w1"])
        await asyncio.sleep(1800)
        assert scene.told("w1") == ["Synced"]
        scene.say_ready("w1", "True")
        await asyncio.sleep(60)
        assert scene.told("w1") == ["Synced"]


@jumping_time
async def test_node_of_another_provider_has_no_event() -> None:
    scene = NodeWorld()
    async with scene.live():
        scene.join("w1", ready="Unknown")
        scene.guest_server.change("v1/nodes", "w1", {"spec": {"taints": None, "providerID": "k3s://w1"}})
        await asyncio.sleep(1800)
        assert scene.told("w1") == []
