"""VMs and kubelets on the stage; all that a test made of them is removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from devenv.ccm import CcmProcess
from devenv.harvester.records import INSTANCES, MACHINES
from devenv.stage import Stage
from tests.conftest import ACCOUNT
from tests.e2e.nodes.cluster import Cluster, Elsewhere


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
async def elsewhere(stage: Stage, vm_namespace: str, tmp_path: Path) -> AsyncIterator[Elsewhere]:
    """A namespace without VMs, but for those that the test makes there."""
    cloud_config = stage.scene.harvester.kubeconfig_for_service_account(
        vm_namespace, ACCOUNT, context_namespace=vm_namespace, path=tmp_path / "elsewhere"
    )
    yield Elsewhere(vm_namespace, cloud_config)
    for collection in (INSTANCES, MACHINES):
        await stage.host.request("DELETE", collection.path(vm_namespace))


@pytest.fixture
async def program(stage: Stage, cluster: Cluster, flags: Mapping[str, str]) -> AsyncIterator[CcmProcess]:
    """The program, leading, with everything that it sends going through the proxies."""
    assert cluster is not None, "made before the program and removed after its end"
    run = stage.run(flags=flags, proxied=True)
    await stage.logged(run, "became leader")
    yield run
    run.terminate(0)
    await stage.ended(run)
