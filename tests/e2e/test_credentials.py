"""Credentials of the running program: rotated, broken and repaired under it, from a plugin, and through a web proxy."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.background import Background
from devenv.ccm import CcmProcess
from devenv.harvester import FAST
from devenv.restclient import RefusedError, RestClient
from devenv.stage import VM_NAMESPACE, Stage, until
from harvester_ccm.names import LB_SERVICE_NAME
from tests.conftest import bind
from tests.e2e.connectproxy import ConnectProxy

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.usefixtures("lan"),
    pytest.mark.parametrize("pace", [FAST], ids=["fast"]),
]

ROLE: Final = "harvesterhci.io:cloudprovider"
RELOADED: Final = "credentials reloaded"
REFUSED: Final = "credentials not reloaded"
REVOKED_WITHIN: Final = 30.0
"""The API server keeps a token that it has accepted for up to 10 s."""
EVERY_SECONDS: Final = 0.5

_accounts = itertools.count(1)


def issue(harvester: ControlPlane, path: Path) -> tuple[str, Path]:
    """Write a cloud-config of a service account of its own; return the account's name and the path."""
    name = f"rotated-{next(_accounts)}"
    harvester.kubeconfig_for_service_account(VM_NAMESPACE, name, context_namespace=VM_NAMESPACE, path=path)
    bind(harvester, ROLE, account=(VM_NAMESPACE, name), namespace=VM_NAMESPACE)
    return name, path


async def revoked(harvester: ControlPlane, account: str, kubeconfig: Path) -> None:
    """Delete an account; return once the server takes its token no more."""
    client = RestClient.from_kubeconfig(kubeconfig)
    harvester.admin.request("DELETE", f"/api/v1/namespaces/{VM_NAMESPACE}/serviceaccounts/{account}")

    async def refused() -> bool:
        try:
            await asyncio.to_thread(client.request, "GET", "/version")
        except RefusedError as refusal:
            return refusal.status == 401
        return False

    await until(refused, within=REVOKED_WITHIN, what=f"the end of the token of {account}")


class Arrivals:
    """Services that keep being created."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.names: list[str] = []

    async def run(self) -> None:
        """Create one after the other until cancelled."""
        for number in itertools.count():
            name = f"web-{number}"
            creation = asyncio.create_task(self._stage.create_service(name), name=name)
            try:
                await asyncio.shield(creation)
            finally:
                # A request that was cancelled on its way may still be carried out, after all have been counted. Who
                # cancels may do so twice.
                self.names.append(name)
                await asyncio.wait({creation})
            await asyncio.sleep(EVERY_SECONDS)


async def logged_times(run: CcmProcess, text: str, times: int) -> None:
    """Return once a text is in the log so often."""

    async def enough() -> bool:
        return run.log.count(text) >= times

    await until(enough, within=60, what=f"{text!r} {times} times in the log")


def mount(directory: Path, version: str) -> Path:
    """Let ``..data`` point to the directory of this version in one step, as the kubelet does with a Secret."""
    (directory / version).mkdir(parents=True, exist_ok=True)
    new = directory / "..new"
    new.symlink_to(version)
    new.rename(directory / "..data")
    link = directory / "cloud-config"
    if not link.is_symlink():
        link.symlink_to("..data/cloud-config")
    return link


async def test_cloud_config_is_rotated_broken_and_swapped_without_loss(stage: Stage, tmp_path: Path) -> None:
    harvester, secret = stage.scene.harvester, tmp_path / "secret"
    cloud_config = mount(secret, "v1")
    first, _ = issue(harvester, secret / "v1" / "cloud-config")
    kept = tmp_path / "first"
    kept.write_bytes(cloud_config.read_bytes())
    run = stage.run(cloud_config=cloud_config)
    await stage.logged(run, "became leader", within=60)
    arrivals = Arrivals(stage)
    background = Background("arrivals", [arrivals.run])
    await background.start([], within=60)
    try:
        # Rewritten in place; the account of the old token is deleted.
        issue(harvester, secret / "v1" / "cloud-config")
        await logged_times(run, RELOADED, 1)
        ended = asyncio.create_task(revoked(harvester, first, kept), name="revoked")
        # Half written: the token from before goes on working, and one line says so.
        good = cloud_config.read_text()
        cloud_config.write_text(good[: len(good) // 2])
        await logged_times(run, REFUSED, 1)
        count = len(arrivals.names)
        await stage.served(*arrivals.names, within=60)
        # The kubelet puts another version of the Secret in its place.
        issue(harvester, secret / "v2" / "cloud-config")
        mount(secret, "v2")
        await logged_times(run, RELOADED, 2)
        await ended
    finally:
        await background.stop()

    await stage.create_service("last")
    await stage.served(*arrivals.names, "last", within=60)
    assert len(arrivals.names) > count > 0
    assert run.exit_code is None
    assert (run.log.count(RELOADED), run.log.count(REFUSED), run.log.count("became leader")) == (2, 1, 1)
    # New credentials are no trouble: nobody is to be woken by them.
    assert "list or watch failed" not in run.log
    balancers = await stage.load_balancers()
    assert len(balancers) == len(arrivals.names) + 1
    assert {one.metadata.label(LB_SERVICE_NAME) for one in balancers} == {*arrivals.names, "last"}


async def test_token_of_a_plugin(stage: Stage, tmp_path: Path) -> None:
    document = yaml.safe_load(stage.scene.cloud_config.read_text())
    user = document["users"][0]["user"]
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": user["token"]},
    }
    plugin, calls = tmp_path / "plugin.sh", tmp_path / "calls"
    plugin.write_text(f"#!/bin/sh\necho called >> {calls}\ncat <<'END'\n{json.dumps(credential)}\nEND\n")
    plugin.chmod(0o700)
    order = {"apiVersion": credential["apiVersion"], "command": str(plugin), "interactiveMode": "Never"}
    document["users"][0]["user"] = {"exec": order}
    run = stage.run(cloud_config=written(tmp_path / "with-plugin", document))
    await stage.create_service("web")

    await stage.served("web", within=60)
    assert calls.read_text().splitlines() == ["called"]
    assert user["token"] not in run.log


async def test_proxy_of_the_environment_and_its_exceptions(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the proxy knows where the first is. The second leads here too, but is no loopback address to the rules.
    harvester = renamed(stage.scene.cloud_config, tmp_path / "far", "harvester.test")
    guest = renamed(stage.scene.kubeconfig, tmp_path / "near", "0.0.0.0")
    async with ConnectProxy(login="ccm:letmein") as proxy:
        # The client that looks at the clusters reads the environment, too.
        with monkeypatch.context() as environment:
            environment.setenv("HTTPS_PROXY", proxy.url)
            environment.setenv("NO_PROXY", "10.0.0.0/8,0.0.0.0/32,.svc")
            run = stage.run(cloud_config=harvester, kubeconfig=guest)
        await stage.create_service("web")
        await stage.served("web", within=60)
        run.terminate(0)
        assert await stage.ended(run) == 0

    port = stage.scene.harvester.url.rpartition(":")[2]
    assert set(proxy.asked) == {f"harvester.test:{port}"}


def renamed(source: Path, target: Path, host: str) -> Path:
    """Write a copy of a kubeconfig that calls its server by another name."""
    document = yaml.safe_load(source.read_text())
    cluster = document["clusters"][0]["cluster"]
    cluster["server"] = f"https://{host}:{cluster['server'].rpartition(':')[2]}"
    cluster["tls-server-name"] = "127.0.0.1"
    return written(target, document)


def written(path: Path, document: Mapping[str, object]) -> Path:
    """Write a kubeconfig and return its path."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path
