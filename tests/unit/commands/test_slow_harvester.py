"""Harvester's API answers after three seconds, and its webhook hangs: when the first line is there, and when the last.

The commands run in a loop whose clock jumps to the next timer, with the time limits of their client and without a
network, so that the seconds are those of the program and not those of the machine.
"""

import asyncio
import io
import json
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from harvester_ccm.cli import main
from harvester_ccm.kube import errors
from harvester_ccm.kube.client import ApiClient, Request
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.names import IP_POOL, LB_OWNER
from harvester_ccm.plan.service.ownership.owner import load_balancer_name
from tests.support.clock import JumpingLoop
from tests.support.loopback_api import TOKEN, LoopbackApi, kubeconfig
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import Json, pool_rule

ANSWERS_AFTER = 3.0
HANGS_FOR = 30.0
FIRST_LINE = 2.0
WHOLE = 10.0
START = 0.5
"""Seconds from the start of a process until its first request, which this loop does not show."""


class TimedStream(io.StringIO):
    """What a command prints, with the time of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, text: str) -> int:
        self.times.append(loop_time())
        return super().write(text)


class SlowServers:
    """A guest cluster that answers at once, and a Harvester that is slow."""

    def __init__(self, guest: LoopbackApi, harvester: LoopbackApi) -> None:
        self._servers = {"guest": guest, "harvester": harvester}

    def seconds(self, cluster: str, request: Request) -> float:
        """Return how long the server of a cluster takes for a request."""
        if cluster == "guest":
            return 0.01
        return HANGS_FOR if request.method == "POST" and "/loadbalancers" in request.path else ANSWERS_AFTER

    async def exchange(self, client: ApiClient, request: Request, limit: float) -> bytes:
        """Return the response, as the client does: with its time limit, and its observer."""
        started = loop_time()
        status = 0
        try:
            async with asyncio.timeout(limit):
                await asyncio.sleep(self.seconds(client.cluster, request))
            body = json.loads(request.data or b"{}")
            status, document = self._servers[client.cluster].answer(request.http_method, request.target, body)
        except TimeoutError as error:
            raise client._unreachable(request, error, limit) from error
        finally:
            if client._observer is not None:
                client._observer(client.cluster, request.method, request.path, status, loop_time() - started)
        answer = json.dumps(document).encode()
        if status >= 300:
            raise errors.error_from_response(status=status, body=answer, request=str(request), retry_after=None)
        return answer


def jump(command: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(command)


NEW = objects.service("new")
REQUESTING = objects.service("new", annotations={IP_POOL: "lan"}, loadBalancerIP="10.0.0.7")
"""The IP pool is read before the next write is known."""
POOL = {
    "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
    "kind": "IPPool",
    "metadata": {"name": "lan", "uid": "uid-of-lan"},
    "spec": {"ranges": [{"subnet": "10.0.0.0/24"}]},
    "status": {"allocatedHistory": {"10.0.0.7": f"vms/{load_balancer_name('demo', 'shop', 'new', objects.UID)}"}},
}
OTHER = objects.balancer(of="shop/other", uid="9", address="10.0.0.9", annotations={LB_OWNER: objects.CLUSTER_UID})
COMMANDS = (("status",), ("explain", "svc/new", "-n", "shop"), ("preflight",))


@pytest.mark.parametrize("service", [NEW, REQUESTING], ids=["any address", "requested address"])
@pytest.mark.parametrize("noted", [None, "--cluster-name=demo"], ids=["named", "noted"])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_slow_harvester_whose_webhook_hangs_is_reported_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], service: Json, noted: str | None
) -> None:
    servers = SlowServers(
        LoopbackApi([objects.home(), objects.lease(flags=noted), objects.node(), service], clusters.GUEST_GROUPS),
        LoopbackApi([objects.machine(), OTHER, POOL], clusters.HARVESTER_GROUPS, rules=[pool_rule("lan")]),
    )
    out = TimedStream()
    err = TimedStream()

    async def exchange(client: ApiClient, request: Request, limit: float) -> bytes:
        return await servers.exchange(client, request, limit)

    monkeypatch.setattr(ApiClient, "_exchange", exchange)
    monkeypatch.setattr(asyncio, "run", jump)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    of_name = [] if noted else ["--cluster-name=demo"]
    main(["harvester-ccm", *words, *files(tmp_path), *of_name], {})
    shown = " ".join(out.getvalue().split())
    assert [text for text in expected(words[0]) if text not in shown] == [], out.getvalue() + err.getvalue()
    assert shown.count("slow)") == (0 if words[0] == "explain" else 1), "the guest cluster is not slow"
    assert START + min(out.times + err.times) <= FIRST_LINE
    assert START + max(out.times + err.times) <= WHOLE


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_client_is_closed_after_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Services cannot be listed, which ends the command, and the Lease is read slowly: a later request would leak."""
    guest = LoopbackApi([objects.home(), objects.lease(), objects.node()], clusters.GUEST_GROUPS)
    servers = SlowServers(guest, LoopbackApi([], clusters.HARVESTER_GROUPS))
    monkeypatch.setattr(servers, "seconds", lambda _, request: 5.0 if "/leases/" in request.path else 0.01)
    running: set[str] = set()
    close = ApiClient.close
    left: list[str] = []

    async def exchange(client: ApiClient, request: Request, limit: float) -> bytes:
        name = f"{client.cluster} {request}"
        running.add(name)
        try:
            answer = await servers.exchange(client, request, limit)
            if (client.cluster, request.path) == ("guest", "/api/v1/services"):
                raise errors.error_from_response(status=403, body=b"{}", request=str(request), retry_after=None)
            return answer
        finally:
            running.discard(name)

    async def closed(client: ApiClient) -> None:
        left.extend(name for name in running if name.startswith(client.cluster))
        await close(client)

    monkeypatch.setattr(ApiClient, "_exchange", exchange)
    monkeypatch.setattr(ApiClient, "close", closed)
    monkeypatch.setattr(asyncio, "run", jump)
    main(["harvester-ccm", *words, *files(tmp_path), "--cluster-name=demo"], {})
    assert left == []


def files(directory: Path) -> Iterator[str]:
    for name, namespace in (("kubeconfig", ""), ("cloud-config", objects.VMS)):
        file = directory / name
        file.write_text(kubeconfig(f"http://{name}.invalid", namespace, TOKEN))
        file.chmod(0o600)
        yield f"--{name}={file}"


def expected(command: str) -> list[str]:
    """Return what a command finds: only ``preflight`` meets the webhook, with a dry run."""
    slow = "Harvester responds slowly: a request took 3.0 s."
    hangs = "Harvester can be read but does not respond to the dry run"
    return {
        "status": [" OK (3.0 s, slow)", slow],
        "explain": ["create LoadBalancer demo-shop-new-"],
        "preflight": [" answers (3.0 s, slow), Kubernetes", hangs],
    }[command]
