"""Nodes: the time until all Nodes of a large cluster are initialized.

Nodes list images, and VMIs have 4 KiB of other annotations, so that the objects have about the size of real ones.
"""

from collections.abc import AsyncIterator
from typing import Final

from benchmarks.environment import CLUSTER, MAX_SECONDS, MIB, Environment, now
from benchmarks.table import Row
from devenv.background import Background
from devenv.harvester.machines import Machine, instance_document, machine_document
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.kubelets import DOCUMENTS, Kubelet, node_document
from devenv.stage import VM_NAMESPACE
from devenv.watch import Document, Mirror
from harvester_ccm.model.core import NODES
from harvester_ccm.names import UNINITIALIZED_TAINT

WORKERS: Final = 32
"""The default of --concurrent-node-syncs."""
IMAGES: Final = [{"names": [f"registry.example.com/image-{number}:v1.0"], "sizeBytes": 10**8} for number in range(50)]
PADDING: Final = {"bench.example.com/padding": "x" * 4000}


async def measure(environment: Environment, count: int) -> AsyncIterator[Row]:
    """Measure the initialization of ``count`` Nodes. Starts and stops the controller.

    The API servers alone: two patches for each Node, as many concurrently as the controller sends.
    """
    names = [f"node-{number:04}" for number in range(count)]
    nodes = Mirror(environment.guest, DOCUMENTS)
    watch = Background("nodes", [nodes.run])

    async def create(name: str) -> None:
        number = names.index(name)
        machine, address = Machine(name, cluster=CLUSTER), f"198.19.{number // 250 + 1}.{number % 250 + 1}"
        node = node_document(Kubelet(name, system_uuid=machine.system_uuid))
        node["status"]["images"] = IMAGES
        await environment.guest.create(DOCUMENTS, node)
        vm, instance = machine_document(machine), instance_document(machine, address)
        vm["status"] = {"created": True, "ready": True, "printableStatus": "Running"}
        for resource, document in ((MACHINES, vm), (INSTANCES, instance)):
            document["metadata"]["annotations"] = PADDING
            await environment.harvester.create(resource, document, namespace=VM_NAMESPACE)

    async def patch(name: str) -> None:
        status = {"status": {"phase": "Running"}}
        await environment.guest.merge_patch(NODES, name, status, subresource="status")
        await environment.guest.merge_patch(NODES, name, {"metadata": {"labels": {"benchmark": "alone"}}})

    await watch.start([nodes.wait_synced], within=MAX_SECONDS)
    try:
        await environment.each(create, names, at_once=WORKERS)
        began = now()
        await environment.each(patch, names, at_once=WORKERS)
        alone = now() - began
        began = now()
        leading = await environment.start()
        await environment.until(
            lambda: all(_is_initialized(nodes.get(name)) for name in names), "initialization of the Nodes"
        )
        yield Row(f"{count} Nodes, until the last one is initialized", now() - began - leading, "s", alone)
        yield Row("  peak memory", environment.controller.peak_memory() / MIB, "MiB")
        await environment.stop()
    finally:
        await watch.stop()


def _is_initialized(node: Document | None) -> bool:
    taints = (node or {}).get("spec", {}).get("taints") or ()
    return node is not None and all(taint["key"] != UNINITIALIZED_TAINT for taint in taints)
