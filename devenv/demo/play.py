"""What all forms of the demo share: the scene, the nodes of the guest cluster, and output in plain lines."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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
from devenv.restclient import RestClient
from devenv.stage import Scene, Stage, until
from harvester_ccm.errors import CCMError
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_TIMEOUT,
    UNINITIALIZED_TAINT,
)

POOL_NAME: Final = "lan"
POOL: Final = "127.77.0.0/24"
DHCP_RANGE: Final = ("127.78.0.10", "127.78.0.99")
PORT: Final = 18080
"""Of Services that answer HTTP."""
PORTAL: Final = "portal"
"""The Service with a VM load balancer."""
PORTAL_PORT: Final = 8080
NODES: Final = (1, 2, 3)
"""Numbers of the nodes."""
THRESHOLD: Final = 2
"""Failed checks after which a node gets no traffic of a VM load balancer."""
CHECK: Final[Mapping[str, str]] = {
    HEALTH_CHECK_PORT: "http",
    HEALTH_CHECK_PERIOD: "1",
    HEALTH_CHECK_TIMEOUT: "1",
    HEALTH_CHECK_FAILURE_THRESHOLD: str(THRESHOLD),
}
SECONDS: Final = 60.0
"""Longest time that the demo waits for anything."""
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
WIDTHS: Final = (60, 110)
"""Narrowest and widest text."""
INDENT: Final = " " * 4


class UnexpectedError(Exception):
    """Raised if the demo does not observe what it expects; the text says what it observed."""


FAILURES: Final = (AssertionError, CCMError, DevenvError, UnexpectedError, TimeoutError)
"""What is raised if something is not as expected."""


def expect(condition: object, otherwise: str) -> None:
    """Raise UnexpectedError with the text unless the condition holds."""
    if not condition:
        raise UnexpectedError(otherwise)


def took(seconds: float) -> str:
    """Return a duration for people.

    >>> took(0.0431), took(15.21)
    ('43 ms', '15.2 s')
    """
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


@asynccontextmanager
async def open_stage(scene: Scene, directory: Path) -> AsyncIterator[Stage]:
    """Yield a stage with an IP pool and a DHCP server. Harvester is as fast as this machine allows."""
    options = KubeVipOptions(serve=True, dhcp_range=DHCP_RANGE)
    async with Stage(scene, directory, pace=FAST, kube_vip=options) as stage:
        await stage.harvester.create_pool(POOL_NAME, POOL)
        yield stage


class Guest:
    """The nodes of the guest cluster: VMs, kubelets, and what answers on the node ports."""

    def __init__(self, stage: Stage, backends: GuestNodes) -> None:
        self._stage = stage
        self._kubelets = Kubelets(stage.guest)
        self.backends = backends

    async def join(self, number: int, *, agent: bool = True) -> None:
        """Start a VM and let its kubelet register. Without an ``agent`` in the VM its address is unknown."""
        machine = machine_of(number)
        await self.backends.machines.create(machine, *([address_of(number)] if agent else []))
        await self._kubelets.register(Kubelet(machine.name, system_uuid=machine.system_uuid))

    async def leave(self, number: int) -> None:
        """Delete a Node and its VM. Raises NotFound."""
        await self._kubelets.remove(name_of(number))
        await self.backends.machines.delete(machine_of(number))

    async def initialized(self) -> None:
        """Return once no Node has the taint. Raises TimeoutError."""

        async def untainted() -> bool:
            nodes = (await self._stage.nodes()).values()
            return not any(taint.key == UNINITIALIZED_TAINT for node in nodes for taint in node.spec.taints)

        await until(untainted, within=SECONDS, what="nodes without the taint")

    async def answer(self) -> None:
        """Answer on the node ports of all current Services, as kube-proxy does."""
        for service in await self._stage.services(None):
            await self.backends.listen(service, *NODES)


def machine_of(number: int) -> Machine:
    """Return the VM of a node."""
    return Machine(name_of(number), zone=f"rack-{number}", region="home")


class Voice:
    """Prints one line for each thing that happens, with the seconds since the start. Only a terminal gets bold text."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._width = max(WIDTHS[0], min(WIDTHS[1], shutil.get_terminal_size((WIDTHS[1], 24)).columns))

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def headline(self, text: str) -> None:
        """Begin something new."""
        line = f"{self.elapsed:6.2f} s  {text}"
        print(f"\n\x1b[1m{line}\x1b[0m" if self._bold else f"\n{line}", flush=True)

    def say(self, text: str, *, hang: int = 2) -> None:
        """Print a sentence; long ones are wrapped, with ``hang`` blanks before the second and later lines."""
        width = self._width - len(INDENT)
        self.show(textwrap.wrap(text, width, subsequent_indent=" " * hang, break_on_hyphens=False))

    def show(self, lines: Iterable[str]) -> None:
        """Print lines as they are, indented."""
        for line in lines:
            print(f"{INDENT}{line}".rstrip(), flush=True)

    def command(self, text: str) -> None:
        """Print the command with which a user would see what follows."""
        print(f"\n{INDENT}$ {text}", flush=True)


@dataclass
class Play:
    """The running scene and the means to show it."""

    voice: Voice
    stage: Stage
    guest: Guest
    run: CcmProcess
    """The program."""


async def table(client: RestClient, path: str) -> list[str]:
    """Return a collection as ``kubectl get`` prints it: the API server itself names the columns."""
    found = await asyncio.to_thread(client.request, "GET", path, accept=TABLE)
    shown = [index for index, column in enumerate(found["columnDefinitions"]) if not column.get("priority")]
    rows = [[found["columnDefinitions"][index]["name"].upper() for index in shown]]
    rows += [[str(row["cells"][index] or "") for index in shown] for row in found.get("rows") or ()]
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as a line, with its cells under each other.

    >>> aligned([["NAME", "AGE"], ["first", "5s"]])
    ['NAME    AGE', 'first   5s']
    """
    widths = [max(map(len, column)) + 3 for column in zip(*rows, strict=True)]
    return ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
