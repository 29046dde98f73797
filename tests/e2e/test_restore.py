"""An API server restored from a backup: what was done since is done again, on the real etcd, whatever its versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devenv.apiserver import ControlPlane
from devenv.harvester import FAST
from devenv.proxy import FaultProxy
from devenv.stage import Stage, until
from harvester_ccm.names import LB_SERVICE_NAME
from tests.e2e.observing import SWEPT_SOON

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

LONG_LEASE = {"leader-elect-lease-duration": "120s", "leader-elect-renew-deadline": "100s"}
"""The Lease is in the guest, too; its end, at which the next run lists everything, is not what is looked at here."""
FILLERS = 400
"""More versions than a test needs: those of the restored server are then newer than any that the program saw."""
WITHIN = 60


async def held(stage: Stage) -> dict[str, str]:
    """Return the address that Harvester holds for each Service, by name."""
    return {
        one.metadata.label(LB_SERVICE_NAME) or "": one.address for one in await stage.load_balancers() if one.address
    }


async def shown(stage: Stage, *names: str) -> dict[str, str]:
    """Return the address that each Service shows, once all do."""
    return {one.metadata.name: one.addresses[0] for one in await stage.served(*names, within=WITHIN)}


async def restored(plane: ControlPlane, proxy: FaultProxy, backup: Path, *, overtaken: bool) -> None:
    """Put a backup back while the program cannot look."""
    await proxy.down()
    await asyncio.to_thread(plane.restore, backup)
    if overtaken:
        await asyncio.to_thread(overtake, plane)
    await proxy.up()


def overtake(plane: ControlPlane) -> None:
    """Have the versions of a server grow."""
    path = "/api/v1/namespaces/default/configmaps"
    plane.admin.request("POST", path, body={"metadata": {"name": "filler"}})
    for number in range(FILLERS):
        plane.admin.request("PATCH", f"{path}/filler", body={"data": {"number": str(number)}})
    plane.admin.request("DELETE", f"{path}/filler")


@pytest.mark.parametrize(("side", "overtaken"), [("harvester", True), ("guest", False)])
async def test_restored_server_is_brought_up_to_date(stage: Stage, tmp_path: Path, side: str, overtaken: bool) -> None:
    plane, proxy = {
        "harvester": (stage.scene.harvester, stage.harvester_proxy),
        "guest": (stage.scene.guest, stage.guest_proxy),
    }[side]
    run = stage.run(flags=LONG_LEASE, proxied=True, times=SWEPT_SOON)
    for name in ("kept", "ended"):
        await stage.create_service(name)
    before = await shown(stage, "kept", "ended")
    await asyncio.to_thread(plane.back_up, tmp_path / "backup")
    await stage.create_service("made")
    before |= await shown(stage, "made")
    await stage.delete_service("ended")
    await stage.gone("ended", within=WITHIN)

    await restored(plane, proxy, tmp_path / "backup", overtaken=overtaken)

    # Harvester's past is brought to what the guest says now; the guest's own past is what it says.
    expected = {"kept", "made"} if side == "harvester" else {"kept", "ended"}

    async def settled() -> bool:
        return set(await held(stage)) == expected

    await until(settled, within=WITHIN, what=f"load balancers of {sorted(expected)} and no others")
    assert await shown(stage, *expected) == await held(stage)
    assert (await held(stage)).items() <= before.items()
    assert run.exit_code is None
