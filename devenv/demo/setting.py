"""The stage that every form of the demo plays on: where addresses come from, and what a failed demo raises."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from devenv.demo.play import Disappointment
from devenv.harvester.queue import FAST
from devenv.kubevip import KubeVipOptions
from devenv.process import DevenvError
from devenv.stage import Scene, Stage
from harvester_ccm.errors import CCMError

POOL_NAME: Final = "lan"
POOL: Final = "127.77.0.0/24"
DHCP_RANGE: Final = ("127.78.0.10", "127.78.0.99")
FAILURES: Final = (AssertionError, CCMError, DevenvError, Disappointment, TimeoutError)
"""What is raised where something is not as expected."""


@asynccontextmanager
async def open_stage(scene: Scene, directory: Path) -> AsyncIterator[Stage]:
    """Return the stage with an IP pool and a DHCP server; Harvester is as fast as it can be."""
    options = KubeVipOptions(serve=True, dhcp_range=DHCP_RANGE)
    async with Stage(scene, directory, pace=FAST, kube_vip=options) as stage:
        await stage.harvester.create_pool(POOL_NAME, POOL)
        yield stage
