"""A sequence of faults on one process: Services get addresses after each, and no file descriptor leaks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest

from devenv.ccm import CcmProcess
from devenv.faults import Answer
from devenv.harvester import FAST
from devenv.stage import SERVICE_ACCOUNT, VM_NAMESPACE, Stage, until
from harvester_ccm.errors import CCMError

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

LEASE = {
    "leader-elect-lease-duration": "120s",
    "leader-elect-renew-deadline": "100s",
    "leader-elect-retry-period": "25s",
}
"""The Lease must not expire: the servers of the guest cluster are stopped."""
REFUSALS = (
    Answer(429, "too many requests", "TooManyRequests", retry_after=1),
    Answer(500, "etcdserver: request timed out", "InternalError"),
    Answer(503, "the server is currently unable to handle the request", "ServiceUnavailable"),
)
MAX_FILES = 20
"""Open files of an idle process, without its connections."""
MAX_CONNECTIONS = 20
"""To API servers when idle: six watches, and those of the last requests."""


async def cut_watches(stage: Stage) -> None:
    for _ in range(5):
        stage.guest_proxy.cut_watches()
        stage.harvester_proxy.cut_watches()
        await asyncio.sleep(0.1)


async def refuse(stage: Stage, answer: Answer) -> None:
    for proxy in (stage.guest_proxy, stage.harvester_proxy):
        proxy.inject(answer)
        proxy.cut_watches()
    await asyncio.sleep(1)
    for proxy in (stage.guest_proxy, stage.harvester_proxy):
        proxy.heal()


async def restart_api_server(stage: Stage, side: str) -> None:
    plane = getattr(stage.scene, side)
    await asyncio.to_thread(plane.stop_apiserver)
    await asyncio.sleep(0.5)
    await asyncio.to_thread(plane.start_apiserver)


async def halt_etcd(stage: Stage, side: str) -> None:
    etcd = getattr(stage.scene, side).processes["etcd"]
    os.kill(etcd, signal.SIGSTOP)
    try:
        await asyncio.sleep(1)
    finally:
        os.kill(etcd, signal.SIGCONT)


async def exchange_credential(stage: Stage, side: str) -> None:
    """Write a new token into the file that the controller reads."""
    (run,) = stage.runs
    namespace, file = ("kube-system", "kubeconfig") if side == "guest" else (VM_NAMESPACE, "cloud-config")
    new = getattr(stage.scene, side).kubeconfig_for_service_account(
        namespace, SERVICE_ACCOUNT, context_namespace=namespace, path=stage.directory / f"new-{side}"
    )
    before = run.log.count("credentials reloaded")
    getattr(stage, f"{side}_proxy").kubeconfig(new, stage.directory / file)

    async def reloaded() -> bool:
        return run.log.count("credentials reloaded") > before

    await until(reloaded, within=60, what=f"new credential for {side}")


FAULTS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "watches": cut_watches,
    **{f"http-{answer.status}": partial(refuse, answer=answer) for answer in REFUSALS},
    **{f"restart-{side}": partial(restart_api_server, side=side) for side in ("guest", "harvester")},
    **{f"etcd-{side}": partial(halt_etcd, side=side) for side in ("guest", "harvester")},
    **{f"token-{side}": partial(exchange_credential, side=side) for side in ("guest", "harvester")},
}


async def insist(action: Callable[[], Awaitable[object]], what: str) -> None:
    """Repeat an action until the API server accepts it."""

    async def done() -> bool:
        with suppress(CCMError):
            await action()
            return True
        return False

    await until(done, within=60, what=what)


async def cut_connections(stage: Stage) -> None:
    """Cut all connections: those of the client's pool would stay for 15 s, and a leaked one would stay open."""
    for proxy in (stage.guest_proxy, stage.harvester_proxy):
        await proxy.down()
        await proxy.up()


async def descriptors(stage: Stage, run: CcmProcess, *, at_most: int) -> int:
    """Wait until a run has at most this number of open files, without its connections, and return the number."""

    async def idle() -> tuple[int] | None:
        connections = stage.guest_proxy.connections + stage.harvester_proxy.connections
        found = len(os.listdir(f"/proc/{run.pid}/fd")) - connections
        return (found,) if connections <= MAX_CONNECTIONS and found <= at_most else None

    return (await until(idle, within=60, what=f"{at_most} open files"))[0]


@pytest.mark.timeout(900)
async def test_services_get_addresses_and_no_descriptor_leaks_after_all_faults(stage: Stage) -> None:
    run = stage.run(flags=LEASE, proxied=True, times={"kube.identity.INTERVAL": 0.5})
    await stage.logged(run, "service controller started")
    await stage.create_service("first")
    await stage.served("first")
    await cut_connections(stage)
    before = await descriptors(stage, run, at_most=MAX_FILES)

    for name, fault in FAULTS.items():
        await fault(stage)
        await insist(partial(stage.create_service, name), f"creation of {name}")
        await stage.served("first", name, within=90)
    for name in ("first", *FAULTS):
        await insist(partial(stage.delete_service, name), f"deletion of {name}")
    await stage.nothing_left(within=90)

    assert run.exit_code is None
    await cut_connections(stage)
    assert await descriptors(stage, run, at_most=before)
