"""VMs and kubelets; all of them are removed after a test."""

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
    """Additional flags of the controller; a parameter of a test replaces them."""
    return {}


@pytest.fixture
async def program(stage: Stage, cluster: Cluster, flags: Mapping[str, str]) -> AsyncIterator[CcmProcess]:
    """The leader, with all its requests through the proxies."""
    assert cluster is not None, "created before the controller and removed after its end"
    run = stage.run(flags=flags, proxied=True)
    await stage.logged(run, "became leader")
    yield run
    run.terminate(0)
    await stage.ended(run)
