"""Random events of VMs, Nodes and load balancers: what must never be written to a Node.

The simulation knows the VM of each kubelet and its addresses. No Node is deleted while its VM exists or it is Ready,
and one process deletes at most one per minute; none loses an InternalIP that its VM has, or gets an address of another
VM; the uninitialized taint is removed only with an InternalIP and the provider ID of the VM; other taints stay; the
shutdown taint is set only if the VM does not run. No Node gets an InternalIP of an initialized Node whose VM runs. When
the events end, so do the writes.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.controllers.node_lifecycle import DELETION_INTERVAL_SECONDS
from harvester_ccm.names import PROVIDED_NODE_IP, SHUTDOWN_TAINT, UNINITIALIZED_TAINT
from tests.support.clock import jumping_time
from tests.support.memory_server import Call
from tests.support.node_objects import DEFAULTS
from tests.support.node_world import BALANCER, NAMESPACE, NODE, TAINT, VM, VMI, NodeWorld, machine

NODES: Final = 6
EVENTS: Final = 25
RECONCILE_SECONDS: Final = 0.1
"""Time for all writes of one reconcile: a request takes some milliseconds here."""
SEEDS: Final = 8
OTHER_TAINT: Final = {"key": "example.com/drained", "effect": "NoExecute"}


@dataclass
class Member:
    """A VM that is a Node."""

    vm: Machine
    addresses: tuple[tuple[str, ...], ...]
    """Addresses by interface."""
    provided: str = ""
    """The kubelet's --node-ip."""
    exists: bool = True
    runs: bool = True
    uids: set[str] = field(default_factory=set)
    """UIDs of its VMs: of the first, and of those that were restored from a backup."""
    started: float = -RECONCILE_SECONDS
    """Loop time of the last start of its VM."""

    @property
    def all_addresses(self) -> set[str]:
        """The addresses of all interfaces."""
        return {address for nic in self.addresses for address in nic}


def internal(addresses: list[Mapping[str, str]]) -> set[str]:
    return {entry["address"] for entry in addresses if entry["type"] == "InternalIP"}


def taints_of(spec: Mapping[str, Any]) -> set[str]:
    return {taint["key"] for taint in spec.get("taints") or ()}


class Oracle:
    """Checks every write to a Node."""

    def __init__(self, scene: NodeWorld, members: Mapping[str, Member]) -> None:
        self._scene = scene
        self._members = members
        self._deleted: list[float] = []
        """Loop times of the deletions of this process."""
        self.wrong: list[str] = []
        scene.guest_server.fault = self._check

    def _check(self, call: Call) -> None:
        if not call.is_write or "/nodes/" not in call.path:
            return
        name = call.path.split("/nodes/")[1].partition("/")[0]
        node = self._scene.guest_server.of(NODE).get(name)
        if node is None:
            return
        body = call.body or {}
        wanted = body.get("preconditions", {}) if call.verb == "DELETE" else body["metadata"]
        if any(wanted.get(key, node["metadata"][key]) != node["metadata"][key] for key in ("uid", "resourceVersion")):
            return
        if call.verb == "DELETE":
            self._check_deletion(name, node)
            return
        if "addresses" in body.get("status", {}):
            self._check_addresses(name, node, body["status"]["addresses"])
        if "taints" in body.get("spec", {}):
            self._check_taints(name, node, body["spec"])

    def _check_deletion(self, name: str, node: Mapping[str, Any]) -> None:
        now = self._now()
        self._deleted = [at for at in self._deleted if now - at < DELETION_INTERVAL_SECONDS] + [now]
        if self._members[name].exists:
            self._report(f"{name} is deleted, and its VM exists")
        if node["status"]["conditions"][0]["status"] == "True":
            self._report(f"{name} is deleted, and Ready")
        if len(self._deleted) > 1:
            self._report(f"{len(self._deleted)} deleted within {DELETION_INTERVAL_SECONDS:g} s")

    def _check_addresses(self, name: str, node: Mapping[str, Any], written: list[Mapping[str, str]]) -> None:
        member = self._members[name]
        before = internal(node["status"]["addresses"])
        after = internal(written)
        if before and not after:
            self._report(f"{name} is without InternalIP")
        foreign = {entry["address"] for entry in written if entry["type"] != "Hostname"} - member.all_addresses
        if foreign:
            self._report(f"{name} gets {sorted(foreign)} of another VM")
        lost = (before - after) & member.all_addresses
        is_named = bool(set(filter(None, member.provided.split(","))) & after)
        if lost and not is_named and UNINITIALIZED_TAINT not in taints_of(node["spec"]):
            self._report(f"{name} loses {sorted(lost)}, which it has: {sorted(before)} to {sorted(after)}")
        self._check_owner(name, after - before)

    def _check_taints(self, name: str, node: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        member = self._members[name]
        had = taints_of(node["spec"])
        kept = taints_of(spec)
        for lost in sorted(had - kept - {UNINITIALIZED_TAINT, SHUTDOWN_TAINT}):
            self._report(f"{name} loses the taint {lost}")
        if SHUTDOWN_TAINT in kept - had and member.runs:
            self._report(f"{name} is shut down, and its VM runs")
        if UNINITIALIZED_TAINT not in had - kept:
            return
        addresses = internal(node["status"]["addresses"])
        if not addresses:
            self._report(f"{name} is released without InternalIP")
        uid = spec.get("providerID", node["spec"].get("providerID", "")).removeprefix("harvester://")
        if uid not in member.uids:
            self._report(f"{name} is released as VM {uid!r}, which is another one")
        if not node["spec"].get("providerID"):
            self._check_owner(name, addresses)

    def _check_owner(self, name: str, addresses: set[str]) -> None:
        """Check that no other initialized Node with a running VM has addresses that a Node gets."""
        for other, node in self._scene.guest_server.of(NODE).items():
            shared = addresses & internal(node["status"]["addresses"])
            is_new = UNINITIALIZED_TAINT in taints_of(node["spec"])
            if other == name or is_new or not shared or not self._is_known_to_run(self._members[other]):
                continue
            self._report(f"{name} gets {sorted(shared)}, which {other} has")

    def _is_known_to_run(self, member: Member) -> bool:
        """Return whether the caches have had the running VM for long enough."""
        key = f"{NAMESPACE}/{member.vm.name}"
        caches = self._scene.caches
        is_cached = caches.vms.get(key) is not None and caches.vmis.get(key) is not None
        return is_cached and self._now() - member.started > RECONCILE_SECONDS

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _report(self, text: str) -> None:
        self.wrong.append(f"{self._now():.1f} {text}")


class Simulation:
    """The cluster and its events."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.scene = NodeWorld()
        self.members: dict[str, Member] = {}
        self.log: list[str] = []
        for number in range(NODES):
            networks = ("default/mgmt", "default/vlan5") if number % 3 == 0 else ("default/mgmt",)
            name = f"w{number}"
            first = (f"10.0.{number}.1", f"10.0.{number}.2", f"fd00:{number + 1}::1")
            member = Member(
                machine(name, networks=networks, cluster=dice.choice(["demo", "demo", ""])),
                (first, (f"192.168.{number}.1",))[: len(networks)],
                dice.choice(["", "", first[0], f"{first[0]},{first[2]}"]),
            )
            self.members[name] = member
            self._boot(member)
            self._register(name)
        self.oracle = Oracle(self.scene, self.members)

    def restart(self) -> None:
        """Start another process, which does not know the deletions of the last one."""
        self.scene = NodeWorld(after=self.scene)
        self.oracle = Oracle(self.scene, self.members)

    async def act(self) -> None:
        """Cause an event, and wait."""
        name = self.dice.choice(list(self.members))
        event = self.dice.choice([
            self._kill, self._kill, self._revive, self._power, self._blink, self._rejoin, self._provide, self._taint,
            self._lag, self._allocate, self._share, self._share,
        ])  # fmt: skip
        self.log.append(f"{asyncio.get_running_loop().time():.1f} {event.__name__} {name}")
        await event(name, self.members[name])
        await self.pause(0, 0.01, 1, 15, 45, 45, 400)

    async def _kill(self, name: str, member: Member) -> None:
        """Delete the VM; its kubelet stops."""
        if not member.exists:
            return
        for collection in (VMI, VM):
            if self._has(collection, member):
                self.scene.harvester_server.remove(collection, self._key(member))
        member.exists = member.runs = False
        if self.dice.random() < 0.8:
            await self.pause(0, 40)
            self._ready(name, "Unknown")

    async def _revive(self, name: str, member: Member) -> None:
        """Restore the VM from a backup, or start it; its kubelet starts."""
        if not member.exists:
            self._boot(member)
        elif not member.runs:
            await self._power(name, member)
        if member.runs:
            await self.pause(0, 10)
            self._register(name)
            self._ready(name, "True")

    async def _power(self, name: str, member: Member) -> None:
        """Stop the VM, or start it."""
        if not self._has(VM, member):
            return
        if member.runs:
            member.runs = False
            self.scene.stop(member.vm)
            self._ready(name, "Unknown")
            return
        self._start(member)
        await self.pause(0, 5)
        self._register(name)
        self._ready(name, "True")

    async def _blink(self, _name: str, member: Member) -> None:
        """Let the guest agent omit addresses for a time."""
        if not self._has(VMI, member):
            return
        parts = [self.dice.sample(nic, self.dice.randint(0, len(nic))) for nic in member.addresses]
        self.scene.report_lists(member.vm, *parts)
        await self.pause(0, 1, DEFAULTS.address_grace_seconds - 1)
        self.scene.report_lists(member.vm, *member.addresses)

    async def _rejoin(self, name: str, member: Member) -> None:
        """Delete the Node; its kubelet registers it again."""
        if name in self.scene.names():
            self.scene.guest_server.remove(NODE, name)
        await self.pause(0, 5)
        if member.runs:
            self._register(name)

    async def _provide(self, name: str, member: Member) -> None:
        """Restart the kubelet with another --node-ip."""
        if name in self.scene.names() and member.runs:
            addresses = [address for nic in member.addresses for address in nic if "." in address]
            member.provided = self.dice.choice(["", *addresses])
            annotations = {PROVIDED_NODE_IP: member.provided or None}
            self.scene.guest_server.change(NODE, name, {"metadata": {"annotations": annotations}})

    async def _taint(self, name: str, member: Member) -> None:
        if name not in self.scene.names() or not member.exists:
            return
        taints = list(self.scene.stored(name)["spec"].get("taints") or ())
        more = self.dice.choice([TAINT, OTHER_TAINT])
        if more not in taints:
            self.scene.guest_server.change(NODE, name, {"spec": {"taints": [*taints, more]}})

    async def _lag(self, name: str, member: Member) -> None:
        """Delay the watches of one server during another event."""
        server = self.dice.choice([self.scene.harvester_server, self.scene.guest_server])
        server.lagging = True
        await self.dice.choice([self._kill, self._revive, self._rejoin, self._power])(name, member)
        await self.pause(0, 1, 30)
        for other in self.members.values():
            other.started = asyncio.get_running_loop().time()
        server.catch_up()

    async def _allocate(self, _name: str, member: Member) -> None:
        """Allocate an address of the VM as a virtual IP, or release it."""
        server = self.scene.harvester_server
        key = f"{NAMESPACE}/lb"
        if key in server.of(BALANCER):
            server.remove(BALANCER, key)
            return
        status = {"address": self.dice.choice(sorted(member.all_addresses))}
        server.put(BALANCER, {"metadata": {"name": "lb", "namespace": NAMESPACE}, "status": status})

    async def _share(self, _name: str, member: Member) -> None:
        """Give a VM an address of another one; its kubelet may name it."""
        other = self.members[self.dice.choice(list(self.members))]
        if other is member or not self._has(VMI, member):
            return
        first, *more = member.addresses
        address = other.addresses[0][0]
        addresses = self.dice.choice([(address, *first), (*first, address)])
        member.addresses = (addresses, *more)
        if self.dice.random() < 0.3:
            member.provided = address
        self.scene.report_lists(member.vm, *member.addresses)

    async def pause(self, *seconds: float) -> None:
        await asyncio.sleep(self.dice.choice(seconds))

    def _register(self, name: str) -> None:
        """Register a Node as its kubelet does, unless it exists."""
        member = self.members[name]
        if name not in self.scene.names():
            annotations = {PROVIDED_NODE_IP: member.provided} if member.provided else {}
            self.scene.join(name, system_uuid=member.vm.system_uuid, **annotations)
            self.scene.guest_server.change(NODE, name, {"spec": {"taints": [TAINT, OTHER_TAINT]}})

    def _boot(self, member: Member) -> None:
        member.uids.add(self.scene.create(member.vm))
        member.exists = True
        self._start(member)

    def _start(self, member: Member) -> None:
        self.scene.start(member.vm)
        self.scene.report_lists(member.vm, *member.addresses)
        member.runs = True
        member.started = asyncio.get_running_loop().time()

    def _key(self, member: Member) -> str:
        return f"{NAMESPACE}/{member.vm.name}"

    def _has(self, collection: str, member: Member) -> bool:
        return self._key(member) in self.scene.harvester_server.of(collection)

    def _ready(self, name: str, ready: str) -> None:
        if name in self.scene.names():
            self.scene.say_ready(name, ready)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_day(seed: int, thorough: bool) -> None:
    for number in range(3 if thorough else 1):
        play(f"{seed} {number}")


def play(seed: str) -> None:
    """Run one simulation."""

    @jumping_time
    async def run() -> None:
        simulation = Simulation(Random(seed))
        for _ in range(2):
            async with simulation.scene.live():
                await simulation.pause(0, 60)
                for _ in range(EVENTS):
                    await simulation.act()
                    assert not simulation.oracle.wrong, f"{seed}: {simulation.oracle.wrong} {simulation.log[-12:]}"
            simulation.restart()
        async with simulation.scene.live():
            await asyncio.sleep(3600)
            writes = len(simulation.scene.node_writes())
            await asyncio.sleep(3600)
            assert simulation.scene.node_writes()[writes:] == [], f"{seed}: {simulation.log[-12:]}"
        assert not simulation.oracle.wrong, f"{seed}: {simulation.oracle.wrong} {simulation.log[-12:]}"

    # The product draws random numbers as well.
    random.seed(seed)
    run()
