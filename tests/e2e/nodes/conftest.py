"""VMs and kubelets on the stage; all that a test made of them is removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from devenv.ccm import CcmProcess
from devenv.stage import Stage
from tests.e2e.nodes.cluster import Cluster


@pytest.fixture
async def cluster(stage: Stage) -> AsyncIterator[Cluster]:
    """A guest cluster without nodes."""
    opened = Cluster(stage)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def flags() -> Mapping[str, str]:
    """Flags of the program beside the usual ones; tests override them by parameter."""
    return {}


@pytest.fixture
async def program(stage: Stage, cluster: Cluster, flags: Mapping[str, str]) -> AsyncIterator[CcmProcess]:
    """The program, leading, with everything that it sends going through the proxies."""
    assert cluster is not None, "made before the program and removed after its end"
    run = stage.run(flags=flags, proxied=True)
    await stage.logged(run, "became leader")
    yield run
    run.terminate(0)
    await stage.ended(run)
