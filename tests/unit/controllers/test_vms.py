"""Which Nodes a change of a VM enqueues."""

import asyncio

from devenv.harvester.machines import interfaces_of
from tests.support.clock import jumping_time, until
from tests.support.node_world import NAMESPACE, VM, VMI, NodeWorld, joined, machine

OURS = machine("w1")


def wakes(scene: NodeWorld) -> list[str]:
    """Return the names of the Nodes that are enqueued from now on."""
    woken: list[str] = []
    enqueue = scene.node.queue.enqueue

    def noted(key: str) -> None:
        woken.append(key)
        enqueue(key)

    scene.node.queue.enqueue = noted  # type: ignore[method-assign]
    return woken


@jumping_time
async def test_devices_of_pods_in_a_guest_enqueue_no_node() -> None:
    scene = NodeWorld()
    async with scene.live():
        await joined(scene, [OURS])
        await asyncio.sleep(1)
        woken = wakes(scene)
        for pod in range(20):
            device = {"interfaceName": f"cali{pod:011x}", "ipAddress": "fe80::ecee:eeff:feee:eeee"}
            interfaces = [*interfaces_of(OURS, "10.0.0.1"), device]
            scene.harvester_server.change(VMI, f"{NAMESPACE}/w1", {"status": {"interfaces": interfaces}})
            await asyncio.sleep(0.1)
        assert woken == []
        scene.report(OURS, "10.0.0.2")
        await until(lambda: "InternalIP 10.0.0.2" in scene.addresses("w1"), seconds=90)


@jumping_time
async def test_vms_of_other_clusters_enqueue_no_node() -> None:
    scene = NodeWorld()
    foreign = machine("s1", cluster="other", networks=("default/else",))
    async with scene.live():
        await joined(scene, [OURS])
        await asyncio.sleep(1)
        woken = wakes(scene)
        scene.boot(foreign, "10.0.7.1")
        scene.report(foreign, "10.0.7.2")
        await asyncio.sleep(1)
        scene.stop(foreign)
        scene.harvester_server.remove(VM, f"{NAMESPACE}/s1")
        await asyncio.sleep(1)
        assert woken == []
