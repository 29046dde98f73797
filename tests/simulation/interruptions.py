"""Switches of the workload type that are interrupted, and lost signs of the state: events, VMs, pools.

A switch takes about five writes. The controller is killed between any two of them, its pool is deleted between two of
them, or it finds other VMs afterwards.
"""

import random
from collections.abc import Sequence
from typing import Final

from devenv.harvester.admission import Refusal
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.names import PRIMARY_SERVICE, WORKLOAD_TYPE
from tests.simulation.actions import LAN, Action, Fragment, pause, ports_of
from tests.simulation.actor import Actor
from tests.simulation.guest import NAMESPACE
from tests.simulation.machines import MACHINES
from tests.support.memory_server import Call

LOOK_SECONDS: Final = 0.01
RESTART_SECONDS: Final = 0.5


class Interruptions(Actor):
    """Runs these faults."""

    def kill_after_writes(self, number: int, seconds: float) -> None:
        """Kill the controller when the server has carried out its n-th write from now on, and start it again later.

        The response to that write is on its way. ``seconds``: pause until the start.
        """
        world, left = self._world, number

        def note(call: Call) -> None:
            nonlocal left
            if call.is_write and "/leases" not in call.path and "/events" not in call.path:
                left -= 1
                if left == 0:
                    # The write is carried out in the same step.
                    world.loop.call_soon(self._kill, call.by.partition(".")[0], seconds)

        for server in world.servers.values():
            server.on_arrived.append(note)

    def kill_for(self, seconds: float) -> None:
        """Kill all replicas of the controller, and start them some time later."""
        for name, process in self._world.processes.items():
            if process.running:
                self._kill(name, seconds)

    def _kill(self, name: str, seconds: float) -> None:
        process = self._world.processes[name]
        process.kill()
        self._world.disturb(seconds)
        self._world.met["killed between two writes"] += 1
        self._world.loop.call_later(seconds, process.start)

    def recreate_machines(self, names: Sequence[str]) -> None:
        """Restore VMs from a backup: with other UIDs."""
        for name in names:
            self._world.met["VMs recreated"] += self._world.machines.recreate(name)

    def delete_pool_in_use(self, name: str, seconds: float) -> None:
        """Delete a pool as soon as none of its addresses is allocated, as its webhook demands."""
        self._try_deletion(name, self._world.loop.time() + seconds)

    def _try_deletion(self, name: str, until: float) -> None:
        loop = self._world.loop
        try:
            self._world.pools.delete(name)
            self._world.met["pool deleted as soon as it was empty"] += 1
        except (Refusal, KubeError):
            if loop.time() < until:
                loop.call_later(LOOK_SECONDS, self._try_deletion, name, until)


def _switch(name: str, kind: str, seconds: float) -> Action:
    return Action(seconds, "annotate", {"name": name, "annotations": {WORKLOAD_TYPE: kind}})


def _killed_during_switch(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service is switched to Harvester and back, and the controller is killed between two writes of it."""
    name = dice.choice(names)

    def kill() -> list[Action]:
        more = {"number": dice.randint(1, 12), "seconds": dice.choice((0.0, RESTART_SECONDS, 10.0))}
        return [Action(0.0, "kill_after_writes", more)] if dice.random() < 0.7 else []

    first, second = dice.choice((("vm", "cluster"), ("vm", "cluster"), ("cluster", "vm")))
    return [
        *([Action(0.0, "create", {"name": name, "ports": ports_of(dice, name), "annotations": {}})]),
        *kill(),
        _switch(name, first, pause(dice)),
        *kill(),
        _switch(name, second, dice.choice((pause(dice), 20.0))),
    ]


def _secondary_leaves_unseen(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """A Service begins or ends to share an address, and the controller is killed between two writes of it."""
    name, primary = names[-1], names[0]
    if name == primary:
        return _killed_during_switch(dice, names)
    shares = {PRIMARY_SERVICE: f"{NAMESPACE}/{primary}"}
    kill = {"number": dice.randint(1, 8), "seconds": dice.choice((0.0, RESTART_SECONDS, 10.0))}
    return [
        Action(pause(dice), "annotate", {"name": name, "annotations": shares}),
        Action(pause(dice), "kill_after_writes", kill),
        Action(0.0, "annotate", {"name": name, "annotations": {PRIMARY_SERVICE: None}}),
    ]


def _lost_deletions(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """Watches do not deliver the deletion of objects."""
    more = {"side": dice.choice(("guest", "guest", "harvester")), "kind": "dropped deletions", "of": ""}
    lost = {**more, "seconds": dice.choice((2.0, 15.0)), "share": dice.choice((0.5, 1.0))}
    return [
        Action(pause(dice), "network_fault", lost),
        *([Action(0.1, "delete", {"name": dice.choice(names)})] if dice.random() < 0.7 else []),
    ]


def _other_machines(dice: random.Random, _names: Sequence[str]) -> list[Action]:
    """VMs are restored from a backup: all of them, or one."""
    names = dice.choice((MACHINES, MACHINES, MACHINES[:1]))
    return [Action(pause(dice), "recreate_machines", {"names": names})]


def _switched_after_restore(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """All VMs are restored from a backup, one Service is left, and it is switched."""
    name, *others = names
    gone = [Action(0.0, "delete", {"name": other}) for other in others]
    return [
        *gone,
        Action(pause(dice), "recreate_machines", {"names": MACHINES}),
        _switch(name, dice.choice(("vm", "cluster")), 10.0),
    ]


def _pool_deleted_during_switch(dice: random.Random, names: Sequence[str]) -> list[Action]:
    """The pool is deleted as soon as a Service that is switched or deleted has released its address."""
    name = dice.choice(names)
    seconds = dice.choice((5.0, 30.0))
    leaves = dice.choice(
        (_switch(name, "vm", 0.0), _switch(name, "cluster", 0.0), Action(0.0, "delete", {"name": name}))
    )
    return [
        Action(pause(dice), "delete_pool_in_use", {"name": LAN, "seconds": seconds}),
        leaves,
        *([Action(pause(dice), "make_pool", {"name": LAN})] if dice.random() < 0.8 else []),
    ]


OF_INTERRUPTIONS: Final[Sequence[Fragment]] = (
    _killed_during_switch, _killed_during_switch, _secondary_leaves_unseen, _lost_deletions, _other_machines,
    _switched_after_restore, _pool_deleted_during_switch,
)  # fmt: skip
