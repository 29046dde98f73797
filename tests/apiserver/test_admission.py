"""Responses of a real API server if an admission webhook denies a request, or is unreachable."""

import base64
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from devenv.apiserver import ControlPlane
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AdmissionDenied, ApiError, WebhookFailed
from harvester_ccm.model.core import CONFIG_MAPS
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

WEBHOOK = "validator.harvesterhci.io"


@pytest.fixture
async def refusing_webhook(guest: ControlPlane) -> AsyncIterator[str]:
    """The URL of a webhook that denies every request with code 500, as Harvester's does."""

    async def refuse(request: web.Request) -> web.Response:
        uid = (await request.json())["request"]["uid"]
        answer = {"uid": uid, "allowed": False, "status": {"code": 500, "message": "pool is not found"}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    application = web.Application()
    application.router.add_post("/", refuse)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=guest.serving.server_context())
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@pytest.mark.parametrize(
    ("works", "error", "message"),
    [
        (True, AdmissionDenied, f'admission webhook "{WEBHOOK}" denied the request: pool is not found'),
        (False, WebhookFailed, f'Internal error occurred: failed calling webhook "{WEBHOOK}"'),
    ],
)
@pytest.mark.thorough
async def test_denied_request_is_distinguished_from_an_unreachable_webhook(
    client: ApiClient,
    guest: ControlPlane,
    namespace: str,
    refusing_webhook: str,
    works: bool,
    error: type[ApiError],
    message: str,
) -> None:
    register(guest, namespace, refusing_webhook if works else "https://127.0.0.1:1/")
    body = {"metadata": {"generateName": "cm-"}}

    async def refusal() -> ApiError | None:
        """Return the error; None until the server calls the webhook."""
        try:
            await client.create(CONFIG_MAPS, body, namespace=namespace)
        except ApiError as refused:
            return refused
        return None

    found = await wait_for(refusal)

    assert found is not None
    assert type(found) is error
    assert str(found).startswith(message)
    assert found.answer.status == 500


def register(plane: ControlPlane, namespace: str, url: str) -> None:
    """Call the webhook for every ConfigMap in one namespace."""
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    plane.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [
                {
                    "name": WEBHOOK,
                    "clientConfig": {"url": url, "caBundle": authority},
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["configmaps"],
                        }
                    ],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                }
            ],
        }
    )
