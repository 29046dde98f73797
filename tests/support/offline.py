"""Clients and tokens for tests without a server."""

import base64
import json

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import TokenSource


def offline_client(cluster: str = "guest", token: TokenSource | None = None) -> ApiClient:
    """Return a client that is never used."""
    return ApiClient(Credentials("https://127.0.0.1:1", "", None, token or TokenSource(None)), cluster=cluster)


def json_web_token(claims: object) -> str:
    """Return a token with these claims and no valid signature."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "signature"])
