"""Whatever agents report, tenants claim and programs forget: no InternalIP that a VM still has is moved or lost.

The world knows which addresses the VM has. Its agent leaves some out, never for longer than they are waited for while
it shows others of the interface, or all of an interface for as long as it likes. The VM starts, and its interfaces come
up one after the other, each with one family after the other. Load balancers get the same addresses, the program starts
anew, the Node gets its taint again or is made anew, the VM is restored from a backup or has its interfaces in another
order, and its addresses change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import pytest

from harvester_ccm.config import NodeSettings
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import Node
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NODE_NETWORK_RECORD, PROVIDED_NODE_IP
from harvester_ccm.netip import IPAddress, parse_range, plain_address
from harvester_ccm.plan.node.decision import NodeView, VirtualIPs, plan_node
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.patch import patch_request, uninitialized_taints
from tests.worlds.node_objects import (
    DEFAULTS,
    OWN,
    UNINITIALIZED,
    answered,
    instance,
    node,
    node_settings,
    pairs,
    patched,
    store,
    vm,
)

POOLS: Final = {
    "prod/a": ("10.1.0.1", "10.1.0.2", "10.1.0.100", "fd01::1", "fd01::2"),
    "prod/b": ("10.2.0.1", "10.2.0.2", "fd02::1"),
}
PATIENCE: Final = DEFAULTS.address_patience
MOVES: Final = 25
"""What happens in one game."""
FEW: Final = 4
"""Seeds, each of six games at most."""
MANY: Final = 64


@dataclass
class Game:
    """A Node with its VM, and what the program remembers of it."""

    dice: Random
    settings: NodeSettings
    provided: str | None
    has: dict[str, list[str]]
    """What the VM has, by network."""
    target: Node
    starting: bool = False
    """Whether the VM starts just when the program does."""
    reported: dict[str, list[str]] = field(default_factory=dict)
    awaited: dict[IPAddress, float] = field(default_factory=dict)
    """Since when, as the program remembers it."""
    claims: set[str] = field(default_factory=set)
    read: bool = True
    """Whether load balancers can be listed."""
    order: int = 1
    """Of the interfaces."""
    machine: int = 0
    """How often the VM was made anew."""
    now: float = 0.0
    partial_since: float | None = None
    """Since when the agent leaves something out and shows something else."""
    log: list[str] = field(default_factory=list)

    @property
    def running(self) -> VirtualMachineInstance:
        """The instance as Harvester shows it."""
        networks = [(f"nic-{network[-1]}", network) for network in list(self.has)[:: self.order]]
        pods = {"interfaceName": "cali12345", "ipAddresses": ["10.42.0.7"]}
        interfaces = [
            {"name": f"nic-{network[-1]}", "ipAddresses": addresses} for network, addresses in self.reported.items()
        ]
        return instance(networks=networks, interfaces=[*interfaces, pods], labels=OWN, agent=bool(self.reported))

    def look(self) -> None:
        """Let the program look until it is at rest, and judge what it did."""
        for again in range(4):
            before, writes = self.target, self._write()
            self._judge(before)
            if not writes:
                break
            assert again < 3, "not at rest"

    def _write(self) -> bool:
        machines = store([vm(uid=f"uid-{self.machine}", labels=OWN)], [self.running])
        problem: CCMError | None = None if self.read else answered(500, "no")
        virtual = {plain_address(one): "load balancer prod/lb" for one in self.claims} if self.read else {}
        waited = {address: self.now - since for address, since in self.awaited.items()}
        known = VirtualIPs(virtual, complete=self.read, problem=problem)
        plan = plan_node(NodeView(self.target, find_vm(machines, self.target), self.settings, known, waited=waited))
        self.awaited = {address: self.now - seconds for address, seconds in plan.awaited.items()}
        for patch in plan.patches:
            request = patch_request(self.target, patch)
            self.target = patched(self.target, request.body) if request else self.target
        return bool(plan.patches)

    def _judge(self, before: Node) -> None:
        first, last = internal(before), internal(self.target)
        theirs = {one for addresses in self.has.values() for one in addresses}
        named = set(self.provided.split(",")) if self.provided else set()
        fresh = UNINITIALIZED["key"] in {taint.key for taint in before.spec.taints} and not is_known(before)
        if uninitialized_taints(before) and not uninitialized_taints(self.target):
            assert last, "released without an InternalIP"
            assert named <= last or is_known(before), "released without what the kubelet was given"
        if fresh:
            return
        for address in (first & theirs) - last:
            # The kubelet's own word is no report.
            by_kubelet = bool(named & last) and address not in named
            undecided = address in self.claims and NODE_NETWORK_RECORD not in (before.metadata.annotations or {})
            assert by_kubelet or undecided, f"{address} was lost: {first} to {last}, the VM has {self.has}"

    def move(self) -> None:
        """Let one thing happen, and some time pass."""
        kind = self.dice.choice(
            ["report"] * 6
            + [
                "interfaces",
                "interfaces",
                "start",
                "silence",
                "claim",
                "claim",
                "restart",
                "taint",
                "anew",
                "restore",
                "order",
                "lease",
                "read",
            ]
        )
        getattr(self, f"_{kind}")()
        left = PATIENCE - 0.1 if self.partial_since is None else PATIENCE - 0.1 - (self.now - self.partial_since)
        if left <= 0:
            self._full()
        self.log.append(f"{self.now:g} {kind}: {self.reported} claims {self.claims} {sorted(internal(self.target))}")
        self.look()
        passes = self.dice.choice([0.0, 0.1, 5.0, PATIENCE / 2, *([] if self.partial_since is not None else [600.0])])
        self.now += passes if self.partial_since is None else min(passes, left)
        if self.partial_since is not None and self.now - self.partial_since >= PATIENCE - 0.1:
            self._full()
        self.look()

    def _full(self) -> None:
        self.reported = {network: list(addresses) for network, addresses in self.has.items()}
        self.partial_since = None

    def _report(self) -> None:
        if self.dice.random() < 0.3:
            self._full()
            return
        self.reported = {
            network: self.dice.sample(addresses, self.dice.randint(0, len(addresses)))
            for network, addresses in self.has.items()
        }
        if self.partial_since is None:
            self.partial_since = self.now

    def _interfaces(self) -> None:
        self._full()
        for network in self.has:
            if self.dice.random() < 0.5:
                self.reported[network] = []

    def _start(self) -> None:
        self._silence()
        for network in self.dice.sample(list(self.has), len(self.has)):
            six = self.dice.random() < 0.5
            family = [one for one in self.has[network] if (":" in one) == six]
            for up in (family, list(self.has[network])):
                self.reported[network] = up
                self.look()
                self.now += self.dice.choice([0.0, 5.0, 2 * PATIENCE])
                self.look()

    def _silence(self) -> None:
        self.reported, self.partial_since = {}, None

    def _claim(self) -> None:
        everything = [one for addresses in POOLS.values() for one in addresses]
        self.claims = set(self.dice.sample(everything, self.dice.randint(0, 4)))

    def _restart(self) -> None:
        self.awaited = {}

    def _taint(self) -> None:
        if not uninitialized_taints(self.target):
            self.target = patched(self.target, {"spec": {"taints": [UNINITIALIZED]}})

    def _anew(self) -> None:
        self.target, self.awaited = registered(self.provided), {}

    def _restore(self) -> None:
        self.machine += 1
        self._silence()

    def _order(self) -> None:
        self.order = -self.order

    def _lease(self) -> None:
        network = self.dice.choice(list(self.has))
        named = self.provided.split(",") if self.provided else []
        some = self.dice.sample(POOLS[network], self.dice.randint(1, len(POOLS[network])))
        self.has[network] = [*dict.fromkeys([*some, *(one for one in named if one in self.has[network])])]
        self._full()

    def _read(self) -> None:
        self.read = not self.read


def is_known(target: Node) -> bool:
    """Return whether a tainted Node was one of ours before."""
    return (
        bool(internal(target))
        and bool(target.metadata.annotations)
        and any(key.startswith("cloudprovider.harvesterhci.io/") for key in target.metadata.annotations or {})
    )


def internal(target: Node) -> set[str]:
    return {address.address for address in target.status.addresses if address.type == "InternalIP"}


def registered(provided: str | None) -> Node:
    return node(
        taints=[UNINITIALIZED],
        addresses=pairs("H w1"),
        annotations={} if provided is None else {PROVIDED_NODE_IP: provided},
    )


def games(seed: int) -> Iterator[Game]:
    """Yield the games of a seed: without and with what the kubelet was given, and with a Node that was one before."""
    dice = Random(seed)
    networks = ["prod/a", "prod/b"][: dice.randint(1, 2)]
    has = {network: dice.sample(POOLS[network], dice.randint(1, len(POOLS[network]))) for network in networks}
    flag = dice.choice([None, None, networks[-1]])
    ranges = dice.choice([(), (), (parse_range("10.0.0.0/8")[1], parse_range("fd00::/8")[1])])
    settings = node_settings(management_network=flag, node_ip_cidrs=ranges)
    mine = has[flag or dice.choice(networks)]
    families = [[one for one in mine if (":" in one) == six] for six in (False, True)]
    pair = ",".join(dice.choice(family) for family in families if family)
    for provided in dict.fromkeys((None, dice.choice(mine), pair, "10.9.0.9")):
        yield Game(Random(f"{seed} {provided}"), settings, provided, dict(has), registered(provided))
    # As the Go provider leaves it: without records, and before v0.2.6 with the addresses of all interfaces.
    everything = mine if flag else [one for addresses in has.values() for one in addresses]
    chosen = {6 if ":" in one else 4: one for one in dice.sample(mine, len(mine))}.values()
    shown = ", ".join(f"{'I' if one in chosen else 'E'} {one}" for one in everything)
    by_go = node(provider_id="harvester://uid-0", addresses=pairs(f"{shown}, H w1"))
    for starting in (False, True):
        yield Game(Random(f"{seed} Go {starting}"), settings, None, dict(has), by_go, starting=starting)


def play(game: Game) -> None:
    """Play a game to its end."""
    try:
        game._start() if game.starting else game._full()
        for _ in range(MOVES):
            game.move()
    except AssertionError as error:
        error.add_note("\n".join([f"{game.settings.management_network} {game.provided}", *game.log]))
        raise


@pytest.mark.parametrize("part", range(4))
def test_no_internal_ip_that_the_vm_still_has_is_moved_or_lost(part: int, thorough: bool) -> None:
    for seed in range(part, MANY if thorough else FEW, 4):
        for game in games(seed):
            play(replace(game))
