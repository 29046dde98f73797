"""What the running process answers on its secure port, on real API servers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml

from devenv.process import ReservedPort
from devenv.stage import Stage, until
from tests.conftest import bind

pytestmark = pytest.mark.apiserver

SILENT_CALLERS = 4000


@dataclass(frozen=True)
class Served:
    """An answer."""

    status: int
    text: str
    type: str


class Port:
    """The secure port of a run."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def get(self, path: str, token: str | None = None) -> Served:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{self.number}{path}"
        async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=False) as answer:
            return Served(answer.status, await answer.text(), answer.content_type)


def token_of(kubeconfig: Path) -> str:
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


@pytest.fixture
async def port(stage: Stage, lan: None) -> Port:
    """The port of a run that leads and is ready, and whose requests go through the proxies."""
    reserved = ReservedPort()
    reserved.release()
    flags = {"secure-port": str(reserved.number), "bind-address": "127.0.0.1"}
    run = stage.run(flags=flags, proxied=True)
    await stage.logged(run, "became leader")
    port = Port(reserved.number)

    async def ready() -> bool:
        return (await port.get("/readyz")).status == 200

    await until(ready, within=60, what="readiness")
    return port


async def test_probes_answer_everybody(port: Port) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert await port.get(path) == Served(200, "ok", "text/plain")
        verbose = await port.get(f"{path}?verbose")
        checks = verbose.text.splitlines()
        assert (verbose.status, checks[-1]) == (200, f"{path.removeprefix('/')} check passed")
        assert len(checks) >= 2
        assert all(line.startswith("[+]") and line.endswith(" ok") for line in checks[:-1])


async def test_metrics_are_for_those_who_may(stage: Stage, port: Port) -> None:
    guest = stage.scene.guest
    tokens = {
        name: token_of(guest.kubeconfig_for_service_account("kube-system", name, context_namespace="default"))
        for name in ("may-read-metrics", "may-nothing")
    }
    bind(guest, "cluster-admin", account=("kube-system", "may-read-metrics"))

    async def allowed() -> Served | None:
        answer = await port.get("/metrics", tokens["may-read-metrics"])
        return answer if answer.status == 200 else None

    page = await until(allowed, within=60, what="the right to read metrics")
    assert page.type == "text/plain"
    assert "leader_election_master_status" in page.text
    refused = [(await port.get("/metrics", token)).status for token in (None, "made-up", tokens["may-nothing"])]
    assert refused == [401, 401, 403]


async def test_what_is_wrong_is_told_and_is_no_reason_for_a_restart(stage: Stage, port: Port) -> None:
    await stage.harvester_proxy.down()

    async def unready() -> Served | None:
        answer = await port.get("/readyz?verbose")
        return answer if answer.status != 200 else None

    answer = await until(unready, within=60, what="notice of the outage")
    failed = [line for line in answer.text.splitlines() if line.startswith("[-]")]
    assert answer.status == 500
    assert any("harvester" in line for line in failed)
    assert await port.get("/livez") == Served(200, "ok", "text/plain")
    await stage.harvester_proxy.up()

    async def ready() -> bool:
        return (await port.get("/readyz")).status == 200

    await until(ready, within=60, what="readiness again")


async def test_callers_who_say_nothing_cost_nothing(stage: Stage, port: Port) -> None:
    """As many connects as a port scanner makes, without a word of TLS; the kubelet's probe gets through meanwhile."""
    run = stage.runs[0]
    before = run.peak_memory()
    opened: list[asyncio.StreamWriter] = []
    for number in range(SILENT_CALLERS):
        _, writer = await asyncio.open_connection("127.0.0.1", port.number)
        opened.append(writer)
        if number % (SILENT_CALLERS // 4) == 0:
            async with asyncio.timeout(3):
                assert (await port.get("/livez")).status == 200
    grown = run.peak_memory() - before
    for writer in opened:
        writer.close()
    assert (await port.get("/livez")).status == 200
    assert grown <= 30 * 2**20
