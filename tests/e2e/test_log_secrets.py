"""No credential leaves the program: not in logs, Events, metrics or error output."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.ccm import CcmProcess
from devenv.faults import Answer
from devenv.harvester import FAST
from devenv.pki import Authority
from devenv.process import ReservedPort
from devenv.restclient import Json
from devenv.stage import Scene, Stage
from harvester_ccm.model.core import EVENTS
from harvester_ccm.names import IPAM
from tests.conftest import bind
from tests.e2e.connectproxy import ConnectProxy
from tests.e2e.observing import outcome

pytestmark = pytest.mark.apiserver

PROXY_PASSWORD: Final = "open5esame"
PLUGIN_SECRET: Final = "plugin5ecret-in-environment"
WORDS: Final = "7f3a91-not-a-secret"


def secrets_of(kubeconfig: Path) -> set[str]:
    """Return every word of a kubeconfig that nobody else may see."""
    user: Json = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    found = {str(user[key]) for key in ("token", "client-key-data") if key in user}
    if "client-key-data" in user:
        found |= set(base64.b64decode(user["client-key-data"]).decode().splitlines()[1:-1])
    # The signature alone would do for somebody who has the rest.
    return found | {part for one in found if one.count(".") == 2 for part in one.split(".")[1:]}


def with_all_secrets(source: Path, target: Path, pair: tuple[Path, Path], *, server: str | None = None) -> Path:
    """Write a kubeconfig that also has a client key and, if wanted, another server."""
    document = yaml.safe_load(source.read_text())
    certificate, key = (base64.b64encode(path.read_bytes()).decode() for path in pair)
    secret = {"client-certificate-data": certificate, "client-key-data": key}
    document["users"][0]["user"].update(secret)
    if server:
        cluster = document["clusters"][0]["cluster"]
        cluster.update({"server": server, "tls-server-name": "127.0.0.1"})
    target.touch(mode=0o600)
    target.write_text(yaml.safe_dump(document))
    return target


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A client certificate and its key that no server knows."""
    made = Authority("strangers", tmp_path / "pki").issue_client("stranger", "stranger")
    return made.certificate, made.key


def token_of(kubeconfig: Path) -> str:
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace words of a file that has them, in place."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def leaks(text: str, secrets: set[str]) -> list[str]:
    """Return the first letters of the secrets that are in the text."""
    return [f"{secret[:8]}…" for secret in secrets if secret in text]


def parsed(log: str) -> list[Mapping[str, object]]:
    """Return the lines of a JSON log; each has to be one."""
    lines = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    return lines


async def metrics(port: int, token: str) -> str:
    """Return the page of metrics."""
    url = f"https://127.0.0.1:{port}/metrics"
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=False) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


def reader_token(guest: ControlPlane) -> str:
    """Return the token of an account that may do everything, such as to read metrics."""
    path = guest.kubeconfig_for_service_account("kube-system", "metrics-reader", context_namespace="default")
    bind(guest, "cluster-admin", account=("kube-system", "metrics-reader"))
    return token_of(path)


@pytest.mark.usefixtures("lan")
@pytest.mark.parametrize("pace", [FAST], ids=["fast"])
@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.guarantee("No credential is logged")
async def test_nothing_secret_is_shown_by_a_run_with_troubles(
    stage: Stage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pair: tuple[Path, Path],
    log_format: str,
) -> None:
    far = f"https://harvester.test:{stage.harvester_proxy.url.rpartition(':')[2]}"
    cloud_config = with_all_secrets(stage.scene.cloud_config, tmp_path / "cloud-config", pair, server=far)
    kubeconfig = with_all_secrets(stage.guest_proxy.kubeconfig(stage.scene.kubeconfig), tmp_path / "kubeconfig", pair)
    token = reader_token(stage.scene.guest)
    secrets = {*secrets_of(cloud_config), *secrets_of(kubeconfig), token, PROXY_PASSWORD}
    port = ReservedPort()
    port.release()
    flags = {"v": "9", "logging-format": log_format, "secure-port": str(port.number), "bind-address": "127.0.0.1"}
    async with ConnectProxy(login=f"ccm:{PROXY_PASSWORD}") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        run = stage.run(cloud_config=cloud_config, kubeconfig=kubeconfig, flags=flags)
        await stage.logged(run, "became leader", within=60)
        await make_trouble(stage, run, cloud_config)
        page = await metrics(port.number, token)
        run.terminate(0)
        assert await stage.ended(run) == 0

    events = (await stage.guest.request("GET", EVENTS.path())).decode()
    for place, text in {"log": run.log, "metrics": page, "Events": events}.items():
        assert leaks(text, secrets) == [], place
    assert "LoadBalancer" in events
    assert "harvester_ccm" in page
    if log_format == "json":
        parsed(run.log)


async def make_trouble(stage: Stage, run: CcmProcess, cloud_config: Path) -> None:
    """Let everything happen that makes the program say something about requests and credentials."""
    bearer = token_of(cloud_config)
    # Servers that repeat in their refusal what they were sent.
    echo = f"Authorization: Bearer {bearer} is not accepted"
    stage.harvester_proxy.inject(Answer(500, echo), method="POST", path="/loadbalancers", times=2)
    stage.harvester_proxy.inject(Answer(401, echo), method="GET", path="/loadbalancers", times=2)
    stage.guest_proxy.inject(Answer(403, echo), method="PATCH", path="/services/", times=1)
    await stage.create_service("web")
    await stage.create_service("wrong", annotations={IPAM: f"token: {WORDS}"})
    stage.harvester_proxy.cut_watches()
    stage.guest_proxy.cut_watches()
    await stage.served("web", within=60)
    rewrite(cloud_config, "current-context: default", "current-context: absent")
    await stage.logged(run, "credentials not reloaded", within=60)
    rewrite(cloud_config, "current-context: absent", "current-context: default")
    await stage.logged(run, "credential files restored", within=60)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("broken", "cloud-config"),
        ("server", "kubeconfig"),
        ("login", "cloud-config"),
        ("plugin", "kubeconfig"),
        ("key", "cloud-config"),
        ("proxy", "kubeconfig"),
    ],
)
def test_error_output_of_a_start_that_fails(
    scene: Scene, tmp_path: Path, pair: tuple[Path, Path], name: str, flag: str
) -> None:
    path = with_all_secrets(scene.cloud_config, tmp_path / "cloud-config", pair)
    secrets = {*secrets_of(path), PROXY_PASSWORD, PLUGIN_SECRET}
    document: Json = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    match name:
        case "plugin":
            variables = [{"name": "SECRET", "value": PLUGIN_SECRET}]
            arguments = ["-c", "echo $SECRET; echo $SECRET >&2; exit 1"]
            user["exec"] = {"command": "sh", "args": arguments, "env": variables, "apiVersion": "v0"}
            # A plugin is asked when a request is sent: something else has to be wrong with the file.
            cluster["certificate-authority-data"] = "!"
        case "server":
            cluster["server"] = f"ftp://admin:{PROXY_PASSWORD}@harvester.test"
        case "login":
            cluster["server"] = f"https://admin:{PROXY_PASSWORD}@harvester.test"
        case "key":
            user["client-key-data"] = base64.b64encode(f"-----BEGIN {user['client-key-data']}".encode()).decode()
        case "proxy":
            cluster["proxy-url"] = f"socks5://ccm:{PROXY_PASSWORD}@proxy.test:1080"
    text = yaml.safe_dump(document)
    path.write_text(text.replace("users:", "users: {", 1) if name == "broken" else text)

    code, said = outcome(scene, tmp_path, flags={flag: str(path), "v": "9"})
    assert code == (255 if flag == "cloud-config" else 1)
    assert str(path) in said
    assert leaks(said, secrets) == []
