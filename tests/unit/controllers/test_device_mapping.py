"""The ConfigMap of networks and devices: its writes."""

import asyncio

import pytest
from structlog.testing import capture_logs

from harvester_ccm.kube.errors import KubeError
from harvester_ccm.kube.write_limit import WRITE_BURST, WRITE_INTERVAL_SECONDS
from tests.support.clock import jumping_time, until
from tests.support.memory_server import refused
from tests.support.node_world import CONFIG_MAP, MAPPING, NodeWorld, machine

KEY = "interface-nad-mapping"
TWO_NETWORKS = ("default/vlan1", "default/vlan2")


def value(scene: NodeWorld) -> str | None:
    """Return the value in the ConfigMap; None if it does not exist."""
    found = scene.guest_server.objects.get(CONFIG_MAP, {}).get(MAPPING)
    return None if found is None else str(found["data"][KEY])


def writes(scene: NodeWorld) -> list[str]:
    """Return the writes of the ConfigMap."""
    return [
        call.verb
        for call in scene.guest_server.calls
        if "/configmaps" in call.path and call.verb not in {"GET", "WATCH"}
    ]


@jumping_time
async def test_created_and_changed_only_with_the_mapping() -> None:
    scene = NodeWorld()
    vm = machine("w1", networks=TWO_NETWORKS)
    async with scene.live():
        await asyncio.sleep(60)
        assert value(scene) is None, "nothing is known yet"
        scene.boot(vm, "10.0.0.1", "10.0.1.1")
        scene.join("w1")
        await until(lambda: value(scene) == '{"default/vlan1":"enp1s0","default/vlan2":"enp2s0"}')
        scene.boot(machine("w2"), "10.0.0.2")
        scene.join("w2")
        await until(lambda: value(scene) == '{"default/vlan1":"enp1s0"}')
        scene.boot(machine("foreign", cluster="other", networks=("default/else",)), "10.0.0.3")
        scene.stop(vm)
        await asyncio.sleep(3600)
    assert value(scene) == '{"default/vlan1":"enp1s0"}'
    assert writes(scene) == ["POST", "PUT"]


@jumping_time
async def test_other_contents_stay_and_edits_are_reverted() -> None:
    scene = NodeWorld()
    scene.boot(machine("w1"), "10.0.0.1")
    document = {
        "metadata": {"name": "harvester-nad-mapping", "namespace": "kube-system", "labels": {"mine": "1"}},
        "data": {"other": "kept", KEY: "broken"},
    }
    scene.guest_server.put(CONFIG_MAP, document)
    async with scene.live():
        await until(lambda: value(scene) == '{"default/vlan1":"enp1s0"}')
        scene.guest_server.change(CONFIG_MAP, MAPPING, {"data": {KEY: ""}})
        await until(lambda: value(scene) == '{"default/vlan1":"enp1s0"}')
        stored = scene.guest_server.objects[CONFIG_MAP][MAPPING]
        assert (stored["data"].get("other"), stored["metadata"]["labels"]) == ("kept", {"mine": "1"})
        scene.guest_server.remove(CONFIG_MAP, MAPPING)
        await until(lambda: value(scene) == '{"default/vlan1":"enp1s0"}')
    assert writes(scene) == ["PUT", "PUT", "POST"]


@jumping_time
async def test_writes_against_another_program_are_limited_and_reported() -> None:
    scene = NodeWorld()
    scene.boot(machine("w1"), "10.0.0.1")
    async with scene.live():
        scene.join("w1")
        for _ in range(3 * WRITE_BURST):
            await until(lambda: value(scene), WRITE_INTERVAL_SECONDS + 5)
            scene.guest_server.change(CONFIG_MAP, MAPPING, {"data": {KEY: ""}})
        assert asyncio.get_running_loop().time() > WRITE_BURST * WRITE_INTERVAL_SECONDS
        assert "FieldConflict" in scene.told("harvester-nad-mapping")


@jumping_time
async def test_write_that_finds_older_data_is_not_repeated() -> None:
    """The response is older than the store: without a list, the same write would be planned again and again."""
    scene = NodeWorld()
    scene.boot(machine("w1", networks=TWO_NETWORKS), "10.0.0.1", "10.0.1.1")
    async with scene.live():
        scene.join("w1")
        await until(lambda: value(scene) is not None)
        await scene.guest_server.lose_changes(CONFIG_MAP, MAPPING)
        scene.boot(machine("w2"), "10.0.0.2")
        scene.join("w2")
        await asyncio.sleep(60)
    assert value(scene) == '{"default/vlan1":"enp1s0"}'
    assert writes(scene) == ["POST", "PUT"]


@jumping_time
async def test_chart_without_permissions_for_config_maps() -> None:
    scene = NodeWorld()
    denied = refused(403, "Forbidden", "configmaps is forbidden")
    scene.guest_server.fault = lambda call: denied if "/configmaps" in call.path else None
    vm = machine("w1")
    with capture_logs() as logs:
        async with scene.live():
            scene.boot(vm, "10.0.0.1")
            for number in range(100):
                await asyncio.sleep(36)
                scene.report(vm, f"10.0.0.{number}")
            assert all(cache.synced for cache in scene.caches.of_guest)
    assert writes(scene) == []
    assert {entry["event"] for entry in logs if entry["log_level"] == "warning"} == {"list or watch failed"}


@pytest.mark.parametrize(
    ("denied", "fix"),
    [
        pytest.param(refused(403, "Forbidden", "configmaps is forbidden"), "grant get, list, watch", id="no right"),
        pytest.param(
            refused(403, "Forbidden", 'configmaps "x" is forbidden: exceeded quota: team'),
            "change the quota",
            id="quota",
        ),
        pytest.param(
            refused(400, "", 'admission webhook "x" denied the request: no'), "change the quota", id="webhook"
        ),
    ],
)
@jumping_time
async def test_denied_write_is_retried_every_ten_minutes(denied: KubeError, fix: str) -> None:
    scene = NodeWorld()
    scene.guest_server.fault = lambda call: denied if "/configmaps" in call.path and call.verb == "POST" else None
    vm = machine("w1")
    with capture_logs() as logs:
        async with scene.live():
            scene.boot(vm, "10.0.0.1")
            scene.join("w1")
            for number in range(100):
                await asyncio.sleep(36)
                scene.report(vm, f"10.0.0.{number}")
    warnings = [entry for entry in logs if entry["event"].startswith("network mapping not written")]
    assert len(warnings) <= 7
    assert fix in warnings[0]["fix"]
    assert not [one for one in logs if one["event"] == "reconcile failed"]
    assert len(writes(scene)) <= 7
