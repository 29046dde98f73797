"""A check of ``preflight``, and the checks of the connection: address, server, TLS and credential."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from harvester_ccm.commands.clusters import HARVESTER, ask
from harvester_ccm.errors import (
    AdmissionDenied,
    ApiError,
    BadRequest,
    CCMError,
    CredentialError,
    Forbidden,
    Invalid,
    NotServed,
    NotTrusted,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    WebhookFailed,
    credential_hint,
)
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.reviews import SUBJECT_REVIEWS, ask_review
from harvester_ccm.kube.tokens import FixedToken, token_account, token_end
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.plan.service.messages import WEBHOOK_AWAY, remedy

BOTH: Final = "both"
"""Where a check concerns both clusters."""
SOON: Final = timedelta(days=14)
"""A token that expires within this time is reported."""
NEW_CREDENTIAL: Final = {
    "harvester": "Make a new kubeconfig for Harvester (generate_addon.sh, or Rancher) and name it with --cloud-config",
    "guest": "Make a new kubeconfig for this cluster, or leave --kubeconfig out to use the pod's service account",
}
"""Remedy for a credential that is not accepted."""


class Result(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """The rest works."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Depends on a check that failed."""


Finding = tuple[Result, str, str]
"""Result, detail, and what to do, which is empty if nothing is."""


class Check(Struct, frozen=True):
    """A check that was made."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    check: str
    result: Result
    detail: str
    advice: str = ""
    """Remedy."""


class _Version(Struct, rename="camel"):
    git_version: str


_decode_version: Final = msgspec.json.Decoder(_Version).decode


async def check_connection(client: ApiClient, where: str) -> tuple[list[Check], str | None]:
    """Return the checks, and the name of the user, empty if the server does not report it.

    None instead of a name means that the cluster cannot be used.
    """
    credentials, server = client.credentials, client.credentials.server
    checks = [Check(where, "server address", *_address(server))] if where == HARVESTER else []
    version = await ask(client.read("/version", _decode_version))
    if not isinstance(version, _Version | Unauthorized | Forbidden):
        row = "credential" if isinstance(version, CredentialError) else "server"
        row = "TLS" if isinstance(version, NotTrusted) else row
        status = f"{server}: HTTP status {version.answer.status}: " if isinstance(version, ApiError) else ""
        failed = Check(where, row, Result.FAILED, f"{status}{version}", _advice(version, where, credentials))
        return [*checks, failed], None
    known = f", Kubernetes {version.git_version}" if isinstance(version, _Version) else ""
    checks.append(Check(where, "server", Result.OK, f"{server} answers{known}"))
    checks.append(Check(where, "TLS", *_tls(credentials)))
    # Servers before Kubernetes 1.28 do not serve this review.
    who = version if isinstance(version, Unauthorized) else await ask(ask_review(client, SUBJECT_REVIEWS, {}))
    user = "" if isinstance(who, CCMError) else who.user_info.username
    match who:
        case Unauthorized():
            credential = Result.FAILED, str(who), who.remedy
        case CredentialError():
            credential = Result.FAILED, f"not accepted: {who}", NEW_CREDENTIAL[where]
        case CCMError() if not isinstance(who, Forbidden | NotServed):
            credential = Result.SKIPPED, f"unknown: {who}", ""
        case _:
            credential = _credential(credentials, where, user)
    checks.append(Check(where, "credential", *credential))
    return checks, None if checks[-1].result is Result.FAILED else user


def _address(server: str) -> Finding:
    """Check the address in the cloud-config, without a request."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost" or host.endswith(".localhost")
    if is_loopback:
        advice = (
            "Inside a VM that is the VM itself, and answers with another cluster's certificate or not at all. Put the "
            "address of Harvester (its VIP) in the cloud-config; generate_addon.sh copies the one of the kubeconfig "
            "that it is run with"
        )
        return Result.WARNING, f"{server} is a loopback address", advice
    if "/k8s/clusters/" in parts.path:
        advice = (
            "A service account of Harvester is not accepted there, and nothing works while Rancher is away. Put the "
            "address of Harvester (its VIP) in the cloud-config"
        )
        return Result.WARNING, f"{server} goes through Rancher", advice
    if parts.scheme == "http":
        return Result.WARNING, f"{server} is not encrypted", "Use https://"
    return Result.OK, server, ""


def _advice(error: CCMError, where: str, credentials: Credentials) -> str:
    """Return the remedy for a server that cannot be used; for Harvester it is the remedy of the Events."""
    if isinstance(error, CredentialError):
        # The plugin or the token file failed, and nothing was sent.
        return NEW_CREDENTIAL[where]
    if not isinstance(error, Unreachable):
        return "Check that the address is that of a Kubernetes API server, and that it is well"
    if credentials.proxy is not None and not isinstance(error, NotTrusted | UnexpectedAnswer):
        return "The connection goes through a proxy (proxy-url or HTTPS_PROXY); check it, and NO_PROXY"
    if where == HARVESTER:
        return error.remedy
    return (
        "Check address, certificate-authority-data and tls-server-name in the kubeconfig, the clocks, and what is "
        "between the nodes and this server: routes, firewalls, proxies"
    )


def _tls(credentials: Credentials) -> Finding:
    if credentials.tls is None:
        return Result.WARNING, "none: the token is sent in clear text", "Use https://"
    if credentials.tls.verify_mode is ssl.CERT_NONE:
        text = "the server's certificate is not verified (insecure-skip-tls-verify)"
        return Result.WARNING, text, "Put certificate-authority-data in the kubeconfig instead"
    return Result.OK, "the server's certificate is verified", ""


def _credential(credentials: Credentials, where: str, user: str) -> Finding:
    """Check a credential that the server accepts; ``user`` is empty if the server does not report it."""
    if user == "system:anonymous":
        return Result.FAILED, "none is sent: the user is system:anonymous", NEW_CREDENTIAL[where]
    name = f"accepted, user {user}" if user else "accepted"
    if credentials.readable_by_all:
        return Result.WARNING, f"{name}; every user of this host may read {credentials.origin}", "Set its mode to 0600"
    # Other tokens are renewed before they expire.
    token = credentials.token.get() if isinstance(credentials.token, FixedToken) else None
    end = token_end(token)
    if end is None:
        return Result.OK, name, ""
    text = f"{name}, the token expires on {end:%Y-%m-%d %H:%M} UTC"
    if end - datetime.now(UTC) > SOON:
        return Result.OK, text, ""
    return Result.WARNING, f"{text}; it works until then", credential_hint(where, token_account(token))


async def check_admission(harvester: ApiClient, body: Mapping[str, object], namespace: str) -> Finding:
    """Check whether Harvester's webhook and schema accept a new load balancer; a dry run, so none is created."""
    response = await ask(harvester.check_creation(LOAD_BALANCERS, body, namespace=namespace))
    match response:
        case None:
            return Result.OK, "a load balancer would be admitted (dry run, none was created)", ""
        case BadRequest() if "dry run" in str(response):
            return Result.WARNING, f"no dry run is possible: {response}", ""
        case AdmissionDenied() | Invalid() | BadRequest():
            return Result.FAILED, f"Harvester would refuse the load balancer: {response}", remedy(str(response))
        case Forbidden():
            return Result.SKIPPED, "the credential cannot create load balancers, so no dry run is possible", ""
        case WebhookFailed():
            return Result.FAILED, f"no load balancer can be created or deleted: {response}", WEBHOOK_AWAY
    return Result.WARNING, f"the dry run failed: {response}", ""
