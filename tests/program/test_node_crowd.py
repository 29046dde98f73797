"""A cluster whose VMs come, go, move and are copied, while both servers misbehave: what must never be written.

The world knows on which VM each kubelet runs and which addresses every VM has. No Node is deleted while its VM is
there or it is Ready, nor more than one per minute by one process; none loses its InternalIP; the
uninitialized taint goes only with an InternalIP and a provider ID; nobody else's taint is lost; no Node is marked as
shut down while its VM runs. When all is left alone, nothing is written any more.

The provider ID and the addresses are those of the Node's own VM wherever the program can tell. It cannot for a Node
that joins while its VM is not known to the program, or marked as another cluster's, and a copy of that VM is: then it
takes the copy, and the provider ID stays with it. Addresses and provider ID of such a Node are not judged. Addresses
are compared with what its VM has, not with what it reports at that moment.

The seed alone decides what happens, whatever the hashes of strings are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from devenv.harvester.machines import Machine
from harvester_ccm.controllers.node_lifecycle import DELETION_INTERVAL_SECONDS
from harvester_ccm.errors import CCMError
from harvester_ccm.names import PROVIDED_NODE_IP, SHUTDOWN_TAINT, UNINITIALIZED_TAINT, VM_CLUSTER
from tests.worlds.clock import jumping_time
from tests.worlds.memory_server import Call, page, refused
from tests.worlds.node_objects import DEFAULTS
from tests.worlds.node_world import NAMESPACE, NODE, TAINT, VM, VMI, NodeWorld, machine

GUESTS: Final = 6
MOVES: Final = 25
ONE_LOOK: Final = 0.1
"""Seconds within which all writes of one look at a Node are sent: a request takes some milliseconds here."""
SEEDS: Final = 8
KNOWN: Final = ("2 22",)
"""A Node joins, and of its VM the program has only a copy: Harvester forgot the VM, or has not told of it yet."""
OTHERS_TAINT: Final = {"key": "example.com/drained", "effect": "NoExecute"}


@dataclass
class Guest:
    """A machine that is a Node, as the world knows it."""

    vm: Machine
    addresses: tuple[tuple[str, ...], ...]
    """By interface."""
    provided: str = ""
    uuid: str = ""
    """Of its firmware."""
    there: bool = True
    """Whether its VM exists."""
    runs: bool = True
    uids: set[str] = field(default_factory=set)
    """Of the VMs that it has been."""

    @property
    def all_addresses(self) -> set[str]:
        """Return all that it has."""
        return {one for nic in self.addresses for one in nic}


class Crowd:
    """The world, and the judge of every request."""

    def __init__(self, dice: Random) -> None:
        self.dice, self.scene = dice, NodeWorld()
        self.guests: dict[str, Guest] = {}
        self.deleted: list[float] = []
        self.wrong: list[str] = []
        self.mistaken: set[str] = set()
        """UIDs of the Nodes that were initialised while a copy could be taken for their VM: their provider ID stays."""
        self.guessed: dict[str, float] = {}
        """When a Node was last written while that was so, by its UID."""
        self.log: list[str] = []
        self.copies = 0
        self.fault: Callable[[Call], CCMError | None] = lambda _call: None
        for number in range(GUESTS):
            networks = ("default/mgmt", "default/vlan5") if number % 3 == 0 else ("default/mgmt",)
            name = f"w{number}"
            first = (f"10.0.{number}.1", f"10.0.{number}.2", f"fd00:{number + 1}::1")
            guest = Guest(
                machine(name, networks=networks, cluster=dice.choice(["demo", "demo", ""])),
                (first, (f"192.168.{number}.1",))[: len(networks)],
                dice.choice(["", "", first[0], f"{first[0]},{first[2]}"]),
            )
            guest.uuid = guest.vm.system_uuid
            self.guests[name] = guest
            self._boot(guest)
            self.register(name)
        self._watch()

    def _watch(self) -> None:
        self.scene.guest_server.fault = self._judge
        self.scene.harvester_server.fault = lambda call: self.fault(call)  # noqa: PLW0108  # it changes

    def restart(self) -> None:
        """Have another process on the same servers."""
        self.scene = NodeWorld(after=self.scene)
        # What the last one has deleted is not known to it.
        self.deleted = []
        self._watch()

    def register(self, name: str, *, taints: bool = True) -> None:
        """Have a kubelet register its Node, unless it is there."""
        guest = self.guests[name]
        if name not in self.scene.names():
            annotations = {PROVIDED_NODE_IP: guest.provided} if guest.provided else {}
            self.scene.join(name, system_uuid=guest.uuid, **annotations)
            if taints:
                self.scene.guest_server.change(NODE, name, {"spec": {"taints": [TAINT, OTHERS_TAINT]}})

    def _boot(self, guest: Guest) -> None:
        guest.uids.add(self.scene.boot(guest.vm))
        guest.there = guest.runs = True
        self._firmware(guest.vm, guest.uuid)
        self.scene.report_lists(guest.vm, *guest.addresses)

    # The judge.

    def _judge(self, call: Call) -> CCMError | None:
        if call.is_write and "/nodes/" in call.path:
            name = call.path.split("/nodes/")[1].partition("/")[0]
            node = self.scene.guest_server.of(NODE).get(name)
            if node is not None and name in self.guests:
                if call.verb == "DELETE":
                    self._judge_deletion(name, node, call)
                elif all(
                    node["metadata"][key] == call.body["metadata"].get(key, node["metadata"][key])
                    for key in ("uid", "resourceVersion")
                ):
                    self._judge_patch(name, node, call.body)
        return None

    def _judge_deletion(self, name: str, node: Mapping[str, Any], call: Call) -> None:
        guest = self.guests[name]
        wanted = (call.body or {}).get("preconditions", {})
        if any(node["metadata"][key] != value for key, value in wanted.items()):
            return
        now = asyncio.get_running_loop().time()
        self.deleted = [at for at in self.deleted if now - at < DELETION_INTERVAL_SECONDS] + [now]
        if guest.there:
            self._says(f"{name} is deleted, and its VM is there")
        if node["status"]["conditions"][0]["status"] == "True":
            self._says(f"{name} is deleted, and Ready")
        if len(self.deleted) > 1:
            self._says(f"{len(self.deleted)} deleted within {DELETION_INTERVAL_SECONDS:g} s")

    def _judge_patch(self, name: str, node: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        mistaken = self._may_be_mistaken(name, node, body)
        before = internal(node["status"]["addresses"])
        tainted = any(taint["key"] == UNINITIALIZED_TAINT for taint in node["spec"].get("taints") or [])
        if "addresses" in body.get("status", {}):
            self._judge_addresses(name, before, body["status"]["addresses"], tainted=tainted, mistaken=mistaken)
        if "taints" in body.get("spec", {}):
            self._judge_taints(name, node, body["spec"], released=bool(tainted and before), mistaken=mistaken)

    def _may_be_mistaken(self, name: str, node: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
        """Return whether a copy may be taken for the Node's VM, or was when it got its provider ID."""
        uid, now = node["metadata"]["uid"], asyncio.get_running_loop().time()
        if not node["spec"].get("providerID"):
            if not self._knows(self.guests[name]):
                self.guessed[uid] = now
            # One look at a Node leads to several writes, and the VM may become known between them.
            if now - self.guessed.get(uid, -ONE_LOOK) >= ONE_LOOK:
                return False
            if body.get("spec", {}).get("providerID"):
                self.mistaken.add(uid)
            return True
        return uid in self.mistaken

    def _knows(self, guest: Guest) -> bool:
        """Return whether the program has been told of a VM that is the guest's, and not of another cluster.

        While it has not, a copy is all that there is of a machine with this firmware UUID, and a Node that has just
        joined shows nothing else: whoever wants to know that it is a copy has to know what is not there.
        """
        return any(
            vm.metadata.uid in guest.uids and (vm.metadata.labels or {}).get(VM_CLUSTER) != "other"
            for vm in self.scene.machines.all()
        )

    def _judge_addresses(
        self, name: str, before: set[str], written: list[Mapping[str, str]], *, tainted: bool, mistaken: bool
    ) -> None:
        guest, after = self.guests[name], internal(written)
        if before and not after:
            self._says(f"{name} is without InternalIP")
        if mistaken:
            return
        foreign = {one["address"] for one in written if one["type"] != "Hostname"} - guest.all_addresses
        if foreign:
            self._says(f"{name} gets {sorted(foreign)} of another VM")
        lost = (before - after) & guest.all_addresses
        if lost and not tainted and not set(filter(None, guest.provided.split(","))) & after:
            self._says(f"{name} loses {sorted(lost)}, which it has: {sorted(before)} to {sorted(after)}")

    def _judge_taints(
        self, name: str, node: Mapping[str, Any], spec: Mapping[str, Any], *, released: bool, mistaken: bool
    ) -> None:
        guest = self.guests[name]
        had = {one["key"] for one in node["spec"].get("taints") or []}
        kept = {one["key"] for one in spec["taints"] or []}
        for lost in sorted(had - kept - {UNINITIALIZED_TAINT, SHUTDOWN_TAINT}):
            self._says(f"{name} loses the taint {lost}")
        if UNINITIALIZED_TAINT in had - kept:
            provider = spec.get("providerID", node["spec"].get("providerID", "")).removeprefix("harvester://")
            if not released:
                self._says(f"{name} is released without InternalIP")
            if provider not in guest.uids and not (mistaken and provider):
                self._says(f"{name} is released as VM {provider!r}, which is another one")
        if SHUTDOWN_TAINT in kept - had and guest.there and guest.runs:
            self._says(f"{name} is shut down, and its VM runs")

    def _says(self, text: str) -> None:
        self.wrong.append(f"{asyncio.get_running_loop().time():.1f} {text}")

    # What happens.

    async def act(self) -> None:
        """Do something, and let some time pass."""
        name = self.dice.choice(list(self.guests))
        deeds = [
            self._kill, self._kill, self._revive, self._power, self._blink, self._clone, self._clone, self._impostor,
            self._migrate, self._hotplug, self._unready, self._anew, self._provide, self._taint, self._refuse,
            self._truncate, self._compact, self._lag, self._restored, self._flicker, self._rename, self._relabel,
        ]  # fmt: skip
        deed = self.dice.choice(deeds)
        self.log.append(f"{asyncio.get_running_loop().time():.1f} {deed.__name__} {name}")
        await deed(name, self.guests[name])
        await asyncio.sleep(self.dice.choice([0, 0.01, 1, 15, 45, 45, 400]))

    async def _kill(self, name: str, guest: Guest) -> None:
        """The VM is deleted; its kubelet is not heard of any more."""
        if guest.there:
            if self._has(VMI, guest):
                self.scene.harvester_server.remove(VMI, self._key(guest))
            self.scene.harvester_server.remove(VM, self._key(guest))
            guest.there = guest.runs = False
            if self.dice.random() < 0.8:
                await asyncio.sleep(self.dice.choice([0, 40]))
                self._ready(name, "Unknown")

    async def _revive(self, name: str, guest: Guest) -> None:
        """The VM is restored from a backup, and its kubelet comes back."""
        if not guest.there and not self._has(VM, guest):
            self._boot(guest)
        elif guest.there and not guest.runs:
            await self._power(name, guest)
        if guest.there and guest.runs:
            await asyncio.sleep(self.dice.choice([0, 10]))
            self.register(name)
            self._ready(name, "True")

    async def _power(self, name: str, guest: Guest) -> None:
        if not guest.there:
            return
        if not self._has(VM, guest) or guest.runs is not self._has(VMI, guest):
            return
        if guest.runs:
            guest.runs = False
            self.scene.stop(guest.vm)
            self._ready(name, "Unknown")
        else:
            self.scene.start(guest.vm)
            self._firmware(guest.vm, guest.uuid)
            guest.runs = True
            await asyncio.sleep(self.dice.choice([0, 5]))
            self.scene.report_lists(guest.vm, *guest.addresses)
            self.register(name)
            self._ready(name, "True")

    async def _blink(self, _name: str, guest: Guest) -> None:
        if self._has(VMI, guest):
            parts = [self.dice.sample(nic, self.dice.randint(0, len(nic))) for nic in guest.addresses]
            self.scene.report_lists(guest.vm, *parts)
            await asyncio.sleep(self.dice.choice([0, 1, DEFAULTS.address_patience - 1]))
            self.scene.report_lists(guest.vm, *guest.addresses)

    async def _clone(self, _name: str, guest: Guest) -> None:
        """Somebody copies a VM: another name and UID, the same firmware UUID, addresses of its own."""
        self.copies += 1
        copy = machine(f"copy{self.copies}", cluster=self.dice.choice([guest.vm.cluster, "other", ""]))
        self.scene.boot(copy)
        self._firmware(copy, guest.uuid)
        self.scene.report_lists(copy, [f"10.9.{self.copies}.1"])

    async def _impostor(self, _name: str, guest: Guest) -> None:
        """A VM that is gone has its name taken by another machine."""
        if not guest.there and not self._has(VM, guest):
            cluster = self.dice.choice(["other", "", "demo"])
            self.copies += 1
            other = machine(guest.vm.name, cluster=cluster)
            self.scene.boot(other)
            self._firmware(other, str(UUID(int=self.copies)))
            self.scene.report_lists(other, [f"10.9.{self.copies}.1"])
            await asyncio.sleep(self.dice.choice([1, 60, 700]))
            self.scene.destroy(other)

    async def _migrate(self, _name: str, guest: Guest) -> None:
        if self._has(VMI, guest):
            state = {"sourceNode": "harvester-1", "targetNode": "harvester-2", "completed": False}
            self._vmi(guest, {"status": {"migrationState": state}})
            self._vm(guest, {"status": {"printableStatus": "Migrating"}})
            if self.dice.random() < 0.5:
                self.scene.report(guest.vm)
            await asyncio.sleep(self.dice.choice([0, 5, 100]))
            self._vmi(guest, {"status": {"migrationState": {"completed": True, "failed": self.dice.random() < 0.3}}})
            self._vm(guest, {"status": {"printableStatus": "Running"}})
            if self._has(VMI, guest):
                self.scene.report_lists(guest.vm, *guest.addresses)

    async def _hotplug(self, name: str, guest: Guest) -> None:
        """The VM gets another interface, before or behind those that it has, or loses it again."""
        if not self._has(VMI, guest):
            return
        if len(guest.vm.networks) < 3:
            address = (f"172.16.{len(guest.vm.networks)}.{name[1:]}",)
            guest.vm = machine(
                guest.vm.name, networks=(*guest.vm.networks, "default/storage"), cluster=guest.vm.cluster
            )
            guest.addresses = (*guest.addresses, address)
        spec = self.scene.harvester_server.of(VMI)[self._key(guest)]["spec"]
        networks = [{"name": f"nic-{n}", "multus": {"networkName": one}} for n, one in enumerate(guest.vm.networks)]
        names = [one["name"] for one in spec["networks"]]
        networks = [{**one, "name": names[n] if n < len(names) else f"hot-{n}"} for n, one in enumerate(networks)]
        if self.dice.random() < 0.3:
            networks.reverse()
        self._vmi(guest, {"spec": {"networks": networks}})
        reported = [
            {"name": networks_name, "interfaceName": f"eth{n}", "ipAddresses": list(guest.addresses[n])}
            for n, networks_name in enumerate(sorted(str(one["name"]) for one in networks))
        ]
        self._vmi(guest, {"status": {"interfaces": reported}})
        await asyncio.sleep(self.dice.choice([0, 40]))

    async def _unready(self, _name: str, _guest: Guest) -> None:
        """The guest's network is cut: no kubelet is heard of for a while."""
        for one in self.guests:
            self._ready(one, "Unknown")
        await asyncio.sleep(self.dice.choice([5, 60, 900]))
        for one, other in self.guests.items():
            if other.there and other.runs:
                self.register(one)
                self._ready(one, "True")

    async def _anew(self, name: str, guest: Guest) -> None:
        """Somebody deletes the Node, and the kubelet registers it again."""
        if name in self.scene.names():
            self.scene.guest_server.remove(NODE, name)
        await asyncio.sleep(self.dice.choice([0, 5]))
        if guest.there and guest.runs:
            self.register(name)

    async def _provide(self, name: str, guest: Guest) -> None:
        """The kubelet is started with another --node-ip."""
        if name in self.scene.names() and guest.there:
            guest.provided = self.dice.choice(["", *(one for nic in guest.addresses for one in nic if "." in one)])
            annotations = {PROVIDED_NODE_IP: guest.provided or None}
            self.scene.guest_server.change(NODE, name, {"metadata": {"annotations": annotations}})

    async def _taint(self, name: str, guest: Guest) -> None:
        if name in self.scene.names() and guest.there:
            present = self.scene.stored(name)["spec"].get("taints") or []
            more = self.dice.choice([TAINT, OTHERS_TAINT])
            self.scene.guest_server.change(
                NODE, name, {"spec": {"taints": [*present, *([] if more in present else [more])]}}
            )

    async def _refuse(self, _name: str, _guest: Guest) -> None:
        """Harvester answers everything with an error for a while."""
        error = self.dice.choice([
            page(), refused(403, "Forbidden", 'virtualmachines is forbidden: User "x" cannot list'),
            refused(500, "InternalError", "boom"), refused(410, "Expired", "too old"),
            refused(401, "Unauthorized", "no"),
            refused(404, "NotFound", "the server could not find the requested resource"),
        ])  # fmt: skip
        self.fault = lambda _call: error
        self.scene.harvester_server.break_watches()
        await asyncio.sleep(self.dice.choice([1, 60, 900]))
        self.fault = lambda _call: None

    async def _truncate(self, _name: str, _guest: Guest) -> None:
        """Harvester loses some VMs from its lists, and all watches; a GET of one of them is answered well."""
        server, hidden = self.scene.harvester_server, {}
        for name, guest in self.guests.items():
            if guest.there and self._has(VM, guest) and self.dice.random() < 0.5:
                hidden[name] = server.of(VM).pop(self._key(guest))
        self.fault = lambda call: (
            refused(503, "ServiceUnavailable", "not now")
            if "/virtualmachines/" in call.path and call.verb == "GET"
            else None
        )
        server.compact()
        server.break_watches(refused(410, "Expired", "too old"))
        for name in hidden:
            if self.dice.random() < 0.5:
                self._ready(name, "Unknown")
        await asyncio.sleep(self.dice.choice([1, 60, 900]))
        for name, document in hidden.items():
            server.put(VM, document)
            self._ready(name, "True" if self.guests[name].runs else "Unknown")
        self.fault = lambda _call: None

    async def _restored(self, _name: str, _guest: Guest) -> None:
        """Harvester's etcd goes back to before some VMs were made; their guests run, and they are imported again."""
        server, lost = self.scene.harvester_server, {}
        for name, guest in self.guests.items():
            if guest.runs and self._has(VM, guest) and self._has(VMI, guest) and self.dice.random() < 0.7:
                lost[name] = server.of(VM).pop(self._key(guest)), server.of(VMI).pop(self._key(guest))
        server.compact()
        server.break_watches(refused(410, "Expired", "too old"))
        await asyncio.sleep(self.dice.choice([1, 60, 900]))
        for name, (vm, vmi) in lost.items():
            for collection, document in ((VM, vm), (VMI, vmi)):
                meta = {key: one for key, one in document["metadata"].items() if key != "resourceVersion"}
                if collection == VM and self.dice.random() < 0.5:
                    del meta["uid"]
                stored = server.put(collection, {**document, "metadata": meta})
                if collection == VM:
                    self.guests[name].uids.add(stored["metadata"]["uid"])

    async def _compact(self, _name: str, _guest: Guest) -> None:
        for server in (self.scene.harvester_server, self.scene.guest_server):
            server.compact()
            server.break_watches(refused(410, "Expired", "too old"))

    async def _lag(self, name: str, guest: Guest) -> None:
        """Watches of one server say nothing while something happens."""
        server = self.dice.choice([self.scene.harvester_server, self.scene.guest_server])
        server.lagging = True
        await self.dice.choice([self._kill, self._revive, self._anew, self._power])(name, guest)
        await asyncio.sleep(self.dice.choice([0, 1, 30]))
        server.catch_up()

    async def _flicker(self, name: str, guest: Guest) -> None:
        for _ in range(5):
            self._ready(name, "Unknown")
            await asyncio.sleep(self.dice.choice([0.01, 6]))
            if guest.there and guest.runs:
                self._ready(name, "True")
            await asyncio.sleep(self.dice.choice([0.01, 6]))

    async def _rename(self, name: str, guest: Guest) -> None:
        """The VM is made again under another name, from its disk: same host, same firmware UUID, another UID."""
        if guest.there and guest.runs and self._has(VM, guest) and self._has(VMI, guest):
            self.scene.destroy(guest.vm)
            self.copies += 1
            renamed = machine(f"{name}-new{self.copies}", networks=guest.vm.networks, cluster="demo")
            self.guests[name] = Guest(renamed, guest.addresses, guest.provided, uuid=guest.uuid, uids=guest.uids)
            self._boot(self.guests[name])
            await asyncio.sleep(self.dice.choice([0, 30]))

    async def _relabel(self, _name: str, guest: Guest) -> None:
        """Somebody marks a VM as one of another cluster for a while."""
        if not guest.there:
            return
        for mark in ("other", guest.vm.cluster):
            labels = {"guestcluster.harvesterhci.io/name": mark}
            self._vm(guest, {"metadata": {"labels": labels}})
            if self._has(VMI, guest):
                self._vmi(guest, {"metadata": {"labels": labels}})
            await asyncio.sleep(self.dice.choice([1, 60]))

    # How.

    def _key(self, guest: Guest) -> str:
        return f"{NAMESPACE}/{guest.vm.name}"

    def _has(self, collection: str, guest: Guest) -> bool:
        return self._key(guest) in self.scene.harvester_server.of(collection)

    def _vm(self, guest: Guest, change: Mapping[str, Any]) -> None:
        if self._has(VM, guest):
            self.scene.harvester_server.change(VM, self._key(guest), change)

    def _vmi(self, guest: Guest, change: Mapping[str, Any]) -> None:
        if self._has(VMI, guest):
            self.scene.harvester_server.change(VMI, self._key(guest), change)

    def _firmware(self, vm: Machine, uuid: str) -> None:
        server, domain = self.scene.harvester_server, {"domain": {"firmware": {"uuid": uuid}}}
        server.change(VMI, f"{NAMESPACE}/{vm.name}", {"spec": domain})
        server.change(VM, f"{NAMESPACE}/{vm.name}", {"spec": {"template": {"spec": domain}}})

    def _ready(self, name: str, ready: str) -> None:
        if name in self.scene.names():
            self.scene.say_ready(name, ready)


def internal(addresses: list[Mapping[str, str]]) -> set[str]:
    return {one["address"] for one in addresses if one["type"] == "InternalIP"}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_day(seed: int, thorough: bool) -> None:
    for game in range(10 if thorough else 1):
        play(f"{seed} {game}")


@pytest.mark.parametrize("seed", KNOWN)
def test_known_day(seed: str) -> None:
    play(seed)


@contextmanager
def program_dice(seed: str) -> Iterator[None]:
    """Have what the program leaves to chance (pauses, ends of watches) come from the seed for the time of the block."""
    state = random.getstate()
    random.seed(f"{seed} program")
    try:
        yield
    finally:
        random.setstate(state)


def play(seed: str) -> None:
    """Play one game; the seed alone decides what happens."""

    @jumping_time
    async def run() -> None:
        crowd = Crowd(Random(seed))
        for _ in range(2):
            async with crowd.scene.live():
                await asyncio.sleep(crowd.dice.choice([0, 60]))
                for _ in range(MOVES):
                    await crowd.act()
                    assert not crowd.wrong, f"{seed}: {crowd.wrong}\n" + "\n".join(crowd.log[-12:])
            crowd.restart()
        async with crowd.scene.live():
            await asyncio.sleep(3600)
            writes = len(crowd.scene.node_writes())
            await asyncio.sleep(3600)
            assert crowd.scene.node_writes()[writes:] == [], f"{seed}: not at rest\n" + "\n".join(crowd.log[-12:])
        assert not crowd.wrong, f"{seed}: {crowd.wrong}\n" + "\n".join(crowd.log[-12:])

    with program_dice(seed):
        run()
