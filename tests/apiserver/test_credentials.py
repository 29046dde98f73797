"""Every kind of credential on a real API server."""

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.pki import Authority
from devenv.restclient import Json
from harvester_ccm.kube import credentials as module
from harvester_ccm.kube import tokens
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials, load_credentials
from harvester_ccm.kube.errors import CredentialError, Unauthorized, Unreachable
from tests.apiserver.plugins import API_VERSION, printing, running

pytestmark = pytest.mark.apiserver


def token_of(kubeconfig: Path) -> str:
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


def with_user(kubeconfig: Path, target: Path, user: Json) -> Path:
    """Write a copy of a kubeconfig with another user."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = user
    target.write_text(yaml.safe_dump(document))
    return target


async def is_accepted(credentials: Credentials) -> bool:
    async with ApiClient(credentials, cluster="guest") as client:
        return (await client.get(NAMESPACES, "default")).metadata.name == "default"


@pytest.fixture
def plugin(admin_kubeconfig: Path, tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a credential plugin, and a kubeconfig that uses it."""

    def write(script: str, **settings: object) -> Path:
        program = tmp_path / "plugin.sh"
        program.write_text(f"#!/bin/sh\necho called >> {tmp_path / 'calls'}\n{script}\n")
        program.chmod(0o700)
        settings = {"apiVersion": API_VERSION, "command": str(program), **settings}
        return with_user(admin_kubeconfig, tmp_path / "kubeconfig", {"exec": settings})

    return write


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


async def test_client_certificate_is_accepted(guest: ControlPlane) -> None:
    assert await is_accepted(load_credentials(guest.certificate_kubeconfig))


async def test_rotated_token_file_is_read_after_a_401(admin_kubeconfig: Path, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("expired")
    path = with_user(admin_kubeconfig, tmp_path / "kubeconfig", {"tokenFile": "token"})
    async with ApiClient(load_credentials(path), cluster="guest") as client:
        with pytest.raises(Unauthorized):
            await client.get(NAMESPACES, "default")
        token_file.write_text(token_of(admin_kubeconfig))

        assert (await client.get(NAMESPACES, "default")).metadata.name == "default"


async def test_service_account_of_a_pod_is_accepted(
    guest: ControlPlane, admin_kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text(token_of(admin_kubeconfig))
    (tmp_path / "ca.crt").write_bytes(guest.ca_file.read_bytes())
    address = urlsplit(guest.url)
    pod = {"KUBERNETES_SERVICE_HOST": address.hostname or "", "KUBERNETES_SERVICE_PORT": str(address.port)}

    assert await is_accepted(load_credentials((), pod))


async def test_plugin_runs_again_when_its_token_is_rejected(
    plugin: Callable[..., Path], admin_kubeconfig: Path, tmp_path: Path
) -> None:
    good, first = printing({"token": token_of(admin_kubeconfig)}), printing({"token": "expired"})
    path = plugin(f"if [ $(wc -l < {tmp_path / 'calls'}) = 1 ]; then\n{first}\nelse\n{good}\nfi")
    credentials = load_credentials(path)
    async with ApiClient(credentials, cluster="guest") as client:
        with pytest.raises(Unauthorized):
            await client.get(NAMESPACES, "default")
        await asyncio.gather(*(client.get(NAMESPACES, "default") for _ in range(5)))

    assert calls(tmp_path) == 2


async def test_plugin_runs_again_when_its_certificate_is_rejected(
    plugin: Callable[..., Path], guest: ControlPlane, tmp_path: Path
) -> None:
    other = Authority("other authority", tmp_path / "pki").issue_client("other", "other")
    user = yaml.safe_load(guest.certificate_kubeconfig.read_text())["users"][0]["user"]
    pairs = [
        [pem.decode() for pem in (other.certificate.read_bytes(), other.key.read_bytes())],
        [base64.b64decode(user[f"client-{part}-data"]).decode() for part in ("certificate", "key")],
    ]
    first, good = (printing({"clientCertificateData": pair[0], "clientKeyData": pair[1]}) for pair in pairs)
    path = plugin(f"if [ $(wc -l < {tmp_path / 'calls'}) = 1 ]; then\n{first}\nelse\n{good}\nfi")
    async with ApiClient(load_credentials(path), cluster="guest") as client:
        with pytest.raises(Unauthorized):
            await client.get(NAMESPACES, "default")
        await asyncio.gather(*(client.get(NAMESPACES, "default") for _ in range(5)))

    assert calls(tmp_path) == 2


async def test_plugin_gets_the_cluster_and_its_arguments(
    plugin: Callable[..., Path], guest: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    path = plugin(
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path / "info"}; echo "$1 $EXTRA $INHERITED" > {tmp_path / "arguments"}\n'
        + printing({"token": "a"}),
        command="./plugin.sh",
        args=["get-token"],
        env=[{"name": "EXTRA", "value": "more"}],
        provideClusterInfo=True,
    )

    assert await load_credentials(path).token.fetch() == "a"

    assert json.loads((tmp_path / "info").read_text())["spec"]["cluster"]["server"] == guest.url
    assert (tmp_path / "arguments").read_text() == "get-token more yes\n"


ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""What plugins in Go print for a token that does not expire."""


@pytest.mark.parametrize(
    ("end", "times_asked"),
    [(lambda: datetime.now(UTC) + timedelta(hours=1), 1), (lambda: datetime.now(UTC), 2), (lambda: ZERO_TIME, 1)],
    ids=["in an hour", "now", "never"],
)
async def test_plugin_runs_again_when_its_token_has_expired(
    plugin: Callable[..., Path], tmp_path: Path, end: Callable[[], datetime], times_asked: int
) -> None:
    expiry = end().isoformat().replace("+00:00", "Z")
    credentials = load_credentials(plugin(printing({"token": "a", "expirationTimestamp": expiry})))

    assert [await credentials.token.fetch(), await credentials.token.fetch()] == ["a", "a"]
    assert calls(tmp_path) == times_asked


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo secret; echo 'session expired' >&2; exit 3", "it ended with exit code 3: session expired"),
        pytest.param(
            "echo password=hunter2 >&2; exit 3",
            "it ended with exit code 3: password=[removed]",
            id="no secret is shown",
        ),
        pytest.param(
            "echo \"token=$(head -c 900 /dev/zero | tr '\\0' 7) was rejected\" >&2; exit 3",
            "it ended with exit code 3: token=[removed] was rejected",
            id="no end of a long secret is shown",
        ),
        ("echo secret", "it printed no ExecCredential"),
        ("head -c 5000 /dev/zero | tr '\\0' '['", "it printed no ExecCredential"),
        # Half of a character, which no certificate and no header can carry.
        (printing({"clientCertificateData": "\ud800", "clientKeyData": "x"}), "it printed no ExecCredential"),
        (printing({"clientCertificateData": "x", "clientKeyData": "y"}), "it printed no ExecCredential"),
        ("echo '[]'", "it printed no ExecCredential"),
        (printing("secret"), "it printed no ExecCredential"),
        (printing({}), "it printed neither a token nor a client certificate"),
    ],
)
async def test_failure_of_a_plugin_is_explained(
    plugin: Callable[..., Path], tmp_path: Path, script: str, why: str
) -> None:
    path = plugin(script)

    with pytest.raises(CredentialError) as caught:
        await load_credentials(path).token.fetch()

    assert str(caught.value).startswith(f"{path}: credential plugin '{tmp_path / 'plugin.sh'}' failed: {why}")
    assert "secret" not in str(caught.value)


async def test_plugin_is_killed_at_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "PLUGIN_SECONDS", 0.5)
    with pytest.raises(CredentialError, match=r"failed: it did not end within 0\.5 s"):
        await running(f"echo $$ > {tmp_path / 'pid'}; exec sleep 600", tmp_path).fetch()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_concurrent_requests_share_one_run_of_the_plugin(tmp_path: Path) -> None:
    token = running(f"echo run >> {tmp_path / 'calls'}; sleep 0.1; exit 3", tmp_path)
    failures = await asyncio.gather(*(token.fetch() for _ in range(20)), return_exceptions=True)
    assert all(isinstance(one, CredentialError) for one in failures)
    assert calls(tmp_path) == 1


async def test_cancelled_request_does_not_end_the_run_of_the_plugin_for_the_others(tmp_path: Path) -> None:
    """A watch that ends, or a time limit, cancels a request that waits for a plugin."""
    waits = f"echo run >> {tmp_path / 'calls'}; while [ ! -e {tmp_path / 'over'} ]; do sleep 0.05; done"
    token = running(f"{waits}\n{printing({'token': 'a'})}", tmp_path)
    first, second = (asyncio.create_task(token.fetch()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    (tmp_path / "over").touch()
    assert await second == "a"
    assert calls(tmp_path) == 1


async def test_request_times_out_while_the_plugin_runs(plugin: Callable[..., Path], tmp_path: Path) -> None:
    path = plugin(f"while [ ! -e {tmp_path / 'over'} ]; do sleep 0.05; done")
    started = time.monotonic()
    async with ApiClient(load_credentials(path), cluster="guest", timeout=0.3) as client:
        with pytest.raises(Unreachable, match=r"no answer within 0\.3 s"):
            await client.get(NAMESPACES, "default")
    assert time.monotonic() - started < tokens.PLUGIN_SECONDS / 2
    (tmp_path / "over").touch()
