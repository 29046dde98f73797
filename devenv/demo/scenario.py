"""Shared by the demo and ``make dev``: the IP pool, the nodes of the guest cluster, and output as text."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from devenv.guestnodes import GuestNodes
from devenv.harvester.queue import FAST
from devenv.kubevip import KubeVipOptions
from devenv.process import DevenvError
from devenv.stage import Scene, Stage, until
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.names import UNINITIALIZED_TAINT

POOL_NAME: Final = "lan"
POOL: Final = "127.77.0.0/24"
DHCP_RANGE: Final = ("127.78.0.10", "127.78.0.99")
PORT: Final = 18080
"""Of Services that respond to HTTP requests."""
NODES: Final = (1, 2, 3)
NETWORKS: Final = ("default/vlan1",)
"""Numbers of the nodes, and networks of their VMs."""
SECONDS: Final = 60.0
"""Timeout of each wait."""


class UnexpectedError(Exception):
    """Raised if the demo does not observe what it expects; the text states what it observed."""


FAILURES: Final = (AssertionError, KubeError, DevenvError, UnexpectedError, TimeoutError)
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


async def initialized(stage: Stage) -> None:
    """Return once no Node has the taint of new Nodes. Raises TimeoutError."""

    async def untainted() -> bool:
        nodes = (await stage.nodes()).values()
        return not any(taint.key == UNINITIALIZED_TAINT for node in nodes for taint in node.spec.taints)

    await until(untainted, within=SECONDS, what="initialized Nodes")


async def listen(stage: Stage, nodes: GuestNodes) -> None:
    """Listen on the node ports of all current Services."""
    for service in await stage.services(None):
        await nodes.listen(service)


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
