"""No credential leaves the process: not in logs, Events or metrics."""

import base64
import json
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
from devenv.stage import Stage
from harvester_ccm.kube.builtin import EVENTS
from harvester_ccm.names import IPAM
from tests.conftest import bind
from tests.e2e.connectproxy import ConnectProxy

pytestmark = pytest.mark.apiserver

PROXY_PASSWORD: Final = "open5esame"
VALUE: Final = "7f3a91-not-a-secret"


def secrets_of(kubeconfig: Path) -> set[str]:
    user: Json = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    found = {str(user[key]) for key in ("token", "client-key-data") if key in user}
    if "client-key-data" in user:
        found |= set(base64.b64decode(user["client-key-data"]).decode().splitlines()[1:-1])
    # The signature alone is enough for a reader who has the rest.
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
    made = Authority("other authority", tmp_path / "pki").issue_client("other", "other")
    return made.certificate, made.key


def token_of(kubeconfig: Path) -> str:
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace a text of a file in place."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def leaks(text: str, secrets: set[str]) -> list[str]:
    """Return the first letters of the secrets that are in the text."""
    return [f"{secret[:8]}…" for secret in secrets if secret in text]


async def metrics(port: int, token: str) -> str:
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
@pytest.mark.guarantee("No credential is logged")
@pytest.mark.security("Logs, Events and command output contain no credential of the controller")
@pytest.mark.security("a credential in a log or Event")
async def test_no_credential_is_logged_when_requests_and_reloads_fail(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[Path, Path]
) -> None:
    far = f"https://harvester.test:{stage.harvester_proxy.url.rpartition(':')[2]}"
    cloud_config = with_all_secrets(stage.scene.cloud_config, tmp_path / "cloud-config", pair, server=far)
    kubeconfig = with_all_secrets(stage.guest_proxy.kubeconfig(stage.scene.kubeconfig), tmp_path / "kubeconfig", pair)
    token = reader_token(stage.scene.guest)
    secrets = {*secrets_of(cloud_config), *secrets_of(kubeconfig), token, PROXY_PASSWORD}
    port = ReservedPort()
    port.release()
    flags = {"v": "9", "logging-format": "json", "secure-port": str(port.number), "bind-address": "127.0.0.1"}
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
    assert all({"time", "level", "message"} <= json.loads(line).keys() for line in run.log.splitlines())


async def make_trouble(stage: Stage, run: CcmProcess, cloud_config: Path) -> None:
    """Cause every failure that logs something about requests and credentials."""
    bearer = token_of(cloud_config)
    # Servers that repeat the request in their error.
    echo = f"Authorization: Bearer {bearer} is not accepted"
    stage.harvester_proxy.inject(Answer(500, echo), method="POST", path="/loadbalancers", times=2)
    stage.harvester_proxy.inject(Answer(401, echo), method="GET", path="/loadbalancers", times=2)
    stage.guest_proxy.inject(Answer(403, echo), method="PATCH", path="/services/", times=1)
    await stage.create_service("web")
    await stage.create_service("wrong", annotations={IPAM: f"token: {VALUE}"})
    stage.harvester_proxy.cut_watches()
    stage.guest_proxy.cut_watches()
    await stage.served("web", within=60)
    rewrite(cloud_config, "current-context: default", "current-context: absent")
    await stage.logged(run, "credentials not reloaded", within=60)
    rewrite(cloud_config, "current-context: absent", "current-context: default")
    await stage.logged(run, "credential files restored", within=60)
