"""The health checks of the running process on its secure port, during an outage of Harvester."""

import aiohttp
import pytest

from devenv.process import ReservedPort
from devenv.stage import Stage, until

pytestmark = pytest.mark.apiserver


@pytest.mark.usefixtures("lan")
async def test_readiness_fails_and_liveness_does_not_when_harvester_is_unreachable(stage: Stage) -> None:
    port = ReservedPort()
    port.release()
    run = stage.run(flags={"secure-port": str(port.number), "bind-address": "127.0.0.1"}, proxied=True)
    await stage.logged(run, "became leader")

    async def get(path: str) -> tuple[int, str]:
        url = f"https://127.0.0.1:{port.number}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
            return response.status, await response.text()

    async def ready() -> bool:
        return await get("/readyz") == (200, "ok")

    async def failed() -> list[str]:
        status, text = await get("/readyz?verbose")
        return [line for line in text.splitlines() if line.startswith("[-]")] if status == 500 else []

    await until(ready, within=60, what="readiness")
    for path, least in (("/healthz", 1), ("/livez", 1), ("/readyz", 3)):
        assert await get(path) == (200, "ok")
        status, text = await get(f"{path}?verbose")
        *checks, summary = text.splitlines()
        assert (status, summary) == (200, f"{path.removeprefix('/')} check passed")
        assert len(checks) >= least
        assert all(line.startswith("[+]") and line.endswith(" ok") for line in checks)

    await stage.harvester_proxy.down()
    lines = await until(failed, within=60, what="failed readiness")
    assert any("harvester" in line for line in lines)
    assert await get("/livez") == (200, "ok")
    await stage.harvester_proxy.up()
    await until(ready, within=60, what="readiness after the outage")
