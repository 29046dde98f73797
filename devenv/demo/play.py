"""What the demo and ``make dev`` share: the IP pool, the nodes of the guest cluster, and output as text."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devenv.ccm import CcmProcess
from devenv.guestnodes import GuestNodes, address_of, name_of
from devenv.harvester.machines import Machine
from devenv.harvester.queue import FAST
from devenv.kubelets import Kubelet, Kubelets
from devenv.kubevip import KubeVipOptions
from devenv.process import DevenvError
from devenv.stage import Scene, Stage, until
from harvester_ccm.errors import CCMError
from harvester_ccm.names import UNINITIALIZED_TAINT

POOL_NAME: Final = "lan"
POOL: Final = "127.77.0.0/24"
DHCP_RANGE: Final = ("127.78.0.10", "127.78.0.99")
PORT: Final = 18080
"""Of Services that respond to HTTP requests."""
NODES: Final = (1, 2, 3)
"""Numbers of the nodes."""
SECONDS: Final = 60.0
"""Timeout of each wait."""


class UnexpectedError(Exception):
    """Raised if the demo does not observe what it expects; the text states what it observed."""


FAILURES: Final = (AssertionError, CCMError, DevenvError, UnexpectedError, TimeoutError)
"""Raised if something is not as expected."""


def expect(condition: object, otherwise: str) -> None:
    """Raise UnexpectedError with the text unless the condition holds."""
    if not condition:
        raise UnexpectedError(otherwise)


@asynccontextmanager
async def open_stage(scene: Scene, directory: Path) -> AsyncIterator[Stage]:
    """Yield a stage with an IP pool and a DHCP server. Harvester is as fast as this machine allows."""
    options = KubeVipOptions(serve=True, dhcp_range=DHCP_RANGE)
    async with Stage(scene, directory, pace=FAST, kube_vip=options) as stage:
        await stage.harvester.create_pool(POOL_NAME, POOL)
        yield stage


class Guest:
    """The nodes of the guest cluster: VMs, kubelets, and servers on the node ports."""

    def __init__(self, stage: Stage, backends: GuestNodes) -> None:
        self._stage = stage
        self._kubelets = Kubelets(stage.guest)
        self._backends = backends

    async def join(self, number: int, *, agent: bool = True) -> None:
        """Start a VM and register its Node. Without an ``agent`` in the VM its address is unknown."""
        machine = _machine_of(number)
        await self._backends.machines.create(machine, *([address_of(number)] if agent else []))
        await self._kubelets.register(Kubelet(machine.name, system_uuid=machine.system_uuid))

    async def leave(self, number: int) -> None:
        """Delete a Node and its VM. Raises NotFound."""
        await self._kubelets.remove(name_of(number))
        await self._backends.machines.delete(_machine_of(number))

    async def initialized(self) -> None:
        """Return once no Node has the taint. Raises TimeoutError."""

        async def untainted() -> bool:
            nodes = (await self._stage.nodes()).values()
            return not any(taint.key == UNINITIALIZED_TAINT for node in nodes for taint in node.spec.taints)

        await until(untainted, within=SECONDS, what="nodes without the taint")

    async def answer(self) -> None:
        """Respond on the node ports of all current Services, as kube-proxy does."""
        for service in await self._stage.services(None):
            await self._backends.listen(service, *NODES)


def _machine_of(number: int) -> Machine:
    return Machine(name_of(number), zone=f"rack-{number}", region="home")


class Text:
    """Prints lines, each new topic with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def headline(self, text: str) -> None:
        """Begin a topic."""
        print(f"\n{time.monotonic() - self._began:6.2f} s  {text}", flush=True)

    def show(self, text: str) -> None:
        """Print lines, indented."""
        for line in text.splitlines():
            print(f"    {line}".rstrip(), flush=True)


@dataclass
class Play:
    """What ``make dev`` keeps running."""

    text: Text
    stage: Stage
    guest: Guest
    run: CcmProcess
    """The controller."""
