"""Another program insists on a field of ours: the real program backs off, and says once who it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from devenv.stage import Stage
from harvester_ccm.kube.brakes import UNDONE_AT_ONCE
from harvester_ccm.model.core import SERVICES
from harvester_ccm.names import Reason
from tests.e2e.observing import caught_up, completed, writes
from tests.worlds.background import running

pytestmark = pytest.mark.apiserver

PAUSE = 0.05


@asynccontextmanager
async def insisting(stage: Stage, path: str, patch: Mapping[str, object], manager: str) -> AsyncIterator[None]:
    """Write to an object of the guest without end, under a name of its own, for the time of the block."""

    async def insist() -> None:
        while True:
            await stage.guest.request("PATCH", path, params={"fieldManager": manager}, body=patch)
            await asyncio.sleep(PAUSE)

    async with running(insist()):
        yield


@pytest.mark.usefixtures("ccm")
async def test_another_load_balancer_controller_writes_the_status(stage: Stage) -> None:
    await stage.create_service("web")
    await completed(stage, "web")
    await caught_up(stage)
    stage.guest_proxy.forget()
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}]}}}
    async with insisting(stage, SERVICES.path("default", "web", "status"), status, "servicelb"):
        told = await stage.hears("web", Reason.CONTESTED)
        # Others are served meanwhile, and nothing more is written.
        await caught_up(stage)
    assert told.type == "Warning"
    assert told.message.startswith("Somebody else (servicelb")
    assert "status.loadBalancer" in told.message
    assert "192.0.2.5" in told.message
    assert len(writes(stage.guest_proxy, "/services/web/")) <= UNDONE_AT_ONCE
    assert len(await stage.told("web", Reason.CONTESTED)) == 1
