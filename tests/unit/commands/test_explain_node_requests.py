"""``explain node`` shows the requests that the program then sends: many random situations, compared one by one."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest
from msgspec.structs import replace

from devenv.harvester.machines import Machine, instance_document, machine_document
from harvester_ccm.commands.clusters import Clusters, read_inventory
from harvester_ccm.commands.explain_node import report_live
from harvester_ccm.commands.rehearsal import AFTER_WRITE
from harvester_ccm.errors import CCMError
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES
from harvester_ccm.model.outcome import Wait
from harvester_ccm.names import (
    MACHINE_RECORD,
    PROVIDED_NODE_IP,
    REGION,
    SERVICE_FINALIZER,
    SHUTDOWN_TAINT,
    ZONE,
    ZONE_BETA,
)
from harvester_ccm.netip import parse_range
from tests.worlds.clock import jumping_time, until
from tests.worlds.memory_server import Call, Document, refused
from tests.worlds.node_objects import node_settings
from tests.worlds.node_world import BALANCER, NAMESPACE, NODE, TAINT, VM, VMI, NodeWorld, machine

T = TypeVar("T")

FEW: Final = 100
MANY: Final = 200
"""Situations."""
DEFAULTS: Final = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
AGENTS: Final = f"/apis/subresources.kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"
STATES: Final = ("Running", "Running", "Running", "Stopped", "Stopped", "Stopping", "Starting", "Paused", "")
REPORTS: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.50", "fd00::1", "fe80::1", "bad", "10.0.0.1")
ADDRESSES: Final = ("10.0.0.1", "10.0.0.9", "fd00::1")
SHUTDOWN: Final = {"key": SHUTDOWN_TAINT, "effect": "NoSchedule"}
OTHER: Final = {"key": "other", "effect": "NoExecute"}
AGAIN: Final = {**TAINT, "effect": "PreferNoSchedule"}


class Dice:
    """A source of situations."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def maybe(self, share: float = 0.5) -> bool:
        """Return whether something is so, with this probability."""
        return self._random.random() < share

    def one(self, *choices: T) -> T:
        """Return one of the choices."""
        return self._random.choice(choices)

    def some(self, choices: Sequence[Any], share: float = 0.4) -> list[Any]:
        """Return some of the choices, in their order."""
        return [choice for choice in choices if self.maybe(share)]


def world_of(dice: Dice) -> NodeWorld:
    """Return servers with a Node ``w1`` and what may or may not be its VM."""
    settings = node_settings(
        vmi_controller=dice.maybe(0.8),
        hostname_lookup=dice.maybe(0.8),
        use_provided_node_ip=dice.maybe(0.8),
        node_ip_cidrs=dice.one((), (), (parse_range("10.0.0.0/24")[1],)),
        exclude_ranges=dice.one((), (), (parse_range("10.0.0.2")[1],)),
        deletion_confirmations=dice.one(2, 3),
    )
    world = NodeWorld(settings)
    own = machine(dice.one("w1", "w1", "pool-1"), cluster=dice.one("demo", "demo", "demo", "other"))
    uid = add_vm(world, dice, own) if dice.maybe(0.65) else ""
    for number in range(2, 2 + dice.one(1, 3, 3)):
        add_neighbour(world, dice, f"w{number}")
    add_node(world, dice, own, uid)
    if dice.maybe(0.3):
        balancer = {"metadata": {"name": "lb", "namespace": NAMESPACE}, "status": {"address": "10.0.0.50"}}
        world.harvester_server.put(BALANCER, balancer)
    if dice.maybe(0.3):
        meta = {"name": "web", "namespace": "shop", "annotations": {KUBE_VIP_ADDRESSES: "10.0.0.2"}}
        meta["finalizers"] = dice.one([], [SERVICE_FINALIZER])
        world.guest_server.put("v1/services", {"metadata": meta, "spec": {"type": "LoadBalancer"}})
    world.harvester_server.fault = faults(dice)
    return world


def add_vm(world: NodeWorld, dice: Dice, vm: Machine) -> str:
    """Add a VM in any state, with or without VMI; return its UID."""
    state = dice.one(*STATES)
    document = machine_document(vm)
    up = state in {"Running", "Paused"}
    document["status"] = {"printableStatus": state, "ready": up, "created": up or dice.maybe()}
    uid: str = world.harvester_server.put(VM, document)["metadata"]["uid"]
    if up or dice.maybe(0.3):
        placed = dataclasses.replace(vm, zone=dice.one("", "z1"), region=dice.one("", "r1"))
        running = instance_document(placed, "10.0.0.1")
        running["status"]["phase"] = dice.one("Running", "Running", "Running", "Scheduling", "Failed")
        running["status"]["interfaces"] = [{"name": "default", "ipAddresses": dice.some(REPORTS)}]
        world.harvester_server.put(VMI, running)
    if dice.maybe(0.7):
        world.harvester_server.answers[f"{AGENTS}/{vm.name}/guestosinfo"] = {"hostname": dice.one("w1", "W1.x", "z")}
    return uid


def add_neighbour(world: NodeWorld, dice: Dice, name: str) -> None:
    """Add another Node with its VM, sometimes without."""
    vm = machine(name)
    uid = world.boot(vm, "10.0.1.1") if dice.maybe(0.95) else "gone"
    stored = world.join(name, ready="True" if uid != "gone" or dice.maybe() else "Unknown")
    world.guest_server.put(NODE, {**stored, "spec": {"providerID": f"harvester://{uid}"}})


def add_node(world: NodeWorld, dice: Dice, own: Machine, uid: str) -> None:
    """Add the Node that is explained."""
    annotations = {
        PROVIDED_NODE_IP: dice.one(None, None, "10.0.0.2", "10.9.9.9", "x"),
        MACHINE_RECORD: dice.one(None, own.name, own.name),
    }
    stored = world.join("w1", system_uuid=dice.one("", own.system_uuid), ready=dice.one("True", "False", "Unknown"))
    stored["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    stored["metadata"]["labels"] = dice.one({}, {ZONE: "z1"}, {ZONE_BETA: "z0"}, {REGION: "r9"})
    taints = [*dice.some([SHUTDOWN, OTHER], 0.3), *dice.some([TAINT], 0.4), *dice.some([AGAIN], 0.15)]
    ours = f"harvester://{uid or 'gone'}"
    provider_id = dice.one("", ours, ours, ours, "harvester://gone", "k3s://w1")
    stored["spec"] = {"taints": taints, **({"providerID": provider_id} if provider_id else {})}
    shown = [{"type": "InternalIP", "address": address} for address in dice.some(ADDRESSES, 0.3)]
    stored["status"]["addresses"] = [*shown, {"type": "Hostname", "address": "w1"}]
    if dice.maybe(0.1):
        stored["status"]["conditions"] = []
    if dice.maybe(0.05):
        stored["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    world.guest_server.put(NODE, stored)


def faults(dice: Dice) -> Callable[[Call], CCMError | None]:
    """Return what goes wrong in Harvester."""
    broken = dice.some(["/loadbalancers", "/virtualmachineinstances", "/virtualmachines", "/virtualmachines/"], 0.1)
    error = dice.one(refused(403, "Forbidden", "not granted"), refused(503, "ServiceUnavailable", "away"))

    def fault(call: Call) -> CCMError | None:
        path = call.path
        return error if any(path.endswith(one) or (one.endswith("/") and one in path) for one in broken) else None

    return fault


async def explained(world: NodeWorld) -> list[tuple[str, str | None, Document]]:
    """Return the requests that the command shows."""
    clusters = Clusters(world.guest, world.harvester)
    inventory = await read_inventory(clusters)
    node = inventory.node("w1")
    assert node is not None
    report = await report_live(node, inventory, clusters, replace(DEFAULTS, nodes=world.settings))
    requests: list[Any] = [step["node"] for step in report.steps if "node" in step]
    return [
        ("DELETE", None, one["delete"]) if "delete" in one else ("PATCH", one["subresource"], one["patch"])
        for one in requests
    ]


@asynccontextmanager
async def filled_caches(world: NodeWorld) -> AsyncIterator[None]:
    """Have the caches followed for the time of the block, from when each was read once, or could not be."""
    informers = (world.nodes, world.machines, world.instances, world.services, world.load_balancers)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.run()) for one in informers]
        if world.settings.asks_guests:
            tasks.append(group.create_task(world.hostnames.run()))
        await until(lambda: all(one.synced or one.problem is not None for one in informers))
        yield
        for task in tasks:
            task.cancel()


async def sent(world: NodeWorld) -> list[tuple[str, str | None, Document]]:
    """Return the requests that the program sends in one look at the Node, and for its deletion in some."""
    server = world.guest_server
    known = server.objects[NODE]["w1"]["metadata"]["resourceVersion"]
    server.calls.clear()
    async with filled_caches(world):
        await world.node.reconcile("w1")
        if not writes(world):
            # Time for guest agents to say their host names.
            await asyncio.sleep(15)
            await world.node.reconcile("w1")
        for _ in range(world.settings.deletion_confirmations):
            outcome = await world.lifecycle.reconcile("w1")
            if "w1" not in world.names() or not isinstance(outcome, Wait):
                break
            await asyncio.sleep(outcome.at_most or 0.0)
    bodies = ((call, call.body.get("preconditions", call.body)) for call in writes(world))
    return [(call.verb, subresource_of(call), with_placeholder(body, known)) for call, body in bodies]


def writes(world: NodeWorld) -> list[Call]:
    """Return the writes to the Node."""
    calls = world.guest_server.calls
    return [call for call in calls if call.is_write and call.path.startswith("/api/v1/nodes/w1")]


def subresource_of(call: Call) -> str | None:
    """Return the subresource in the path of a request."""
    return call.path.removeprefix("/api/v1/nodes/w1").removeprefix("/") or None


def with_placeholder(body: Document, known: str) -> Document:
    """Return the body with the placeholder for a version that nobody could know before."""
    version = body.get("metadata", {}).get("resourceVersion", known)
    return body if version == known else {**body, "metadata": {**body["metadata"], "resourceVersion": AFTER_WRITE}}


def test_explain_shows_what_the_program_sends(*, thorough: bool) -> None:
    kinds: set[tuple[tuple[str, str | None], ...]] = set()

    @jumping_time
    async def compare(seed: int) -> None:
        world = world_of(Dice(seed))
        shown = await explained(world)
        assert shown == await sent(world), f"situation {seed}"
        kinds.add(tuple((verb, subresource) for verb, subresource, _ in shown))

    for seed in range(MANY if thorough else FEW):
        compare(seed)
    status, patch, delete = ("PATCH", "status"), ("PATCH", None), ("DELETE", None)
    assert {(), (status,), (patch,), (status, patch), (delete,)} <= kinds, "the situations are too much alike"


@pytest.mark.parametrize("broken", ["/virtualmachineinstances", "/loadbalancers"])
def test_shutdown_taint_of_a_stopped_vm_whose_vmi_cannot_be_read(broken: str) -> None:
    @jumping_time
    async def run() -> None:
        world = NodeWorld()
        document = machine_document(machine("w1"))
        document["status"] = {"printableStatus": "Stopped"}
        uid = world.harvester_server.put(VM, document)["metadata"]["uid"]
        stored = world.join("w1", ready="Unknown")
        world.guest_server.put(NODE, {**stored, "spec": {"providerID": f"harvester://{uid}"}})
        denied = refused(503, "ServiceUnavailable", "away")
        world.harvester_server.fault = lambda call: denied if call.path.endswith(broken) else None
        ((verb, subresource, body),) = await explained(world)
        assert (verb, subresource, body["spec"]) == ("PATCH", None, {"taints": [SHUTDOWN]})
        assert await sent(world) == [(verb, subresource, body)]

    run()
