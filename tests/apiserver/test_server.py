"""A real API server authorizes requests for metrics."""

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import yaml
from structlog.testing import capture_logs

from devenv.apiserver import ControlPlane
from devenv.faults import Answer, Hang
from devenv.proxy import FaultProxy
from harvester_ccm.config import ServerSettings
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.telemetry import server as module
from harvester_ccm.telemetry.health import HealthRegistry
from harvester_ccm.telemetry.metrics import Telemetry
from harvester_ccm.telemetry.server import https_server
from tests.conftest import bind
from tests.support.loopback import free_port

pytestmark = pytest.mark.apiserver

READER: dict[str, object] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "ccm-metrics-reader"},
    "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}
TOKEN_REVIEWS, ACCESS_REVIEWS = "/tokenreviews", "/subjectaccessreviews"


class Asking:
    """A client of one server."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._base = f"https://127.0.0.1:{port}"
        self._session = session

    async def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.get(self._base + path, headers=headers) as response:
            return response.status, await response.text()


def token_in(kubeconfig: Path) -> str:
    return str(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"])


@pytest.fixture
def token_of(guest: ControlPlane, tmp_path: Path) -> Callable[[str], str]:
    """A function that makes a service account in the guest and returns a token of it."""

    def make(name: str) -> str:
        path = tmp_path / f"{name}.kubeconfig"
        return token_in(guest.kubeconfig_for_service_account("default", name, context_namespace="default", path=path))

    return make


@pytest.fixture
def scraper(guest: ControlPlane, token_of: Callable[[str], str]) -> str:
    """The token of an account that may read metrics."""
    token = token_of("scraper")
    guest.apply(READER)
    bind(guest, "ccm-metrics-reader", account=("default", "scraper"))
    return token


async def serve(kubeconfig: Path) -> AsyncIterator[Asking]:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(ssl=trusting)
    with free_port() as port:
        settings = ServerSettings("127.0.0.1", port, None, None, "1.2", frozenset({"/healthz"}))
        async with (
            ApiClient(load_credentials(kubeconfig), cluster="guest") as client,
            https_server(
                settings, HealthRegistry(), telemetry=Telemetry("1.2.3"), reviewer=module.AccessReviewer(client)
            ),
            aiohttp.ClientSession(connector=connector) as session,
        ):
            yield Asking(port, session)


@pytest.fixture
async def asking(guest_proxy: FaultProxy, guest_kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Asking]:
    """A server with the permissions of the chart, whose reviews use the proxy."""
    async for one in serve(guest_proxy.kubeconfig(guest_kubeconfig, tmp_path / "kubeconfig")):
        yield one


@pytest.mark.security("`/metrics` requires a token that can get this URL")
async def test_account_with_the_role_gets_metrics(asking: Asking, scraper: str) -> None:
    status, body = await asking.get("/metrics", scraper)

    assert status == 200
    assert "harvester_ccm_build_info{" in body


@pytest.mark.security("`/metrics` requires a token that can get this URL")
@pytest.mark.security("The API server of the cluster reviews the token")
async def test_account_without_the_role_gets_its_missing_permission(
    asking: Asking, token_of: Callable[[str], str]
) -> None:
    status, body = await asking.get("/metrics", token_of("curious"))

    assert status == 403
    assert body.startswith('forbidden: user "system:serviceaccount:default:curious" cannot get path "/metrics"')


async def test_metrics_are_denied_without_the_permission_to_review(account: Callable[..., Path], scraper: str) -> None:
    with capture_logs() as logs:
        async for asking in serve(account("unprivileged")):
            answers = [await asking.get("/metrics", token) for token in (scraper, scraper, "made-up")]

    assert answers == [(403, module.NOT_GRANTED)] * 3
    assert scraper not in str(logs)


@pytest.mark.parametrize("review", [TOKEN_REVIEWS, ACCESS_REVIEWS])
@pytest.mark.parametrize("fault", [Answer(500), Answer(401), Hang()], ids=["error", "credential refused", "silence"])
async def test_metrics_are_denied_when_the_review_fails(
    asking: Asking,
    guest_proxy: FaultProxy,
    scraper: str,
    monkeypatch: pytest.MonkeyPatch,
    review: str,
    fault: Answer | Hang,
) -> None:
    monkeypatch.setattr(module, "REVIEW_TIMEOUT_SECONDS", 0.5)
    rule = guest_proxy.inject(fault, path=review)

    status, body = await asking.get("/metrics", scraper)

    assert (status, body) == (503, module.NOT_CHECKED)
    guest_proxy.heal(rule)
    monkeypatch.undo()
    assert (await asking.get("/metrics", scraper))[0] == 200
