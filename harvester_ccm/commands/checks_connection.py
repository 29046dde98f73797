"""A check, and those that all others stand on: is it the right server, does it answer, does it take the credential."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from harvester_ccm.commands.clusters import Asked, ask
from harvester_ccm.commands.rights import GUEST, HARVESTER, who_am_i
from harvester_ccm.errors import (
    ApiError,
    CCMError,
    CredentialError,
    Forbidden,
    NotServed,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import FixedToken, token_end
from harvester_ccm.netip import parse_address

FLAGS: Final = "flags"
BOTH: Final = "both"
"""Where neither cluster alone is looked at."""


class Result(StrEnum):
    """What came of a check, in the words of the table."""

    OK = "ok"
    WARNING = "warning"
    """It works, or the rest does."""
    FAILED = "FAILED"
    SKIPPED = "skipped"
    """Could not be looked at, for the reason of a failure above."""


@dataclass(frozen=True)
class Check:
    """One check that was made."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    name: str
    result: Result
    detail: str
    advice: str = ""
    """What to do; empty when nothing is."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """More for scripts."""

    def document(self) -> dict[str, object]:
        """Return the check for scripts."""
        document: dict[str, object] = {
            "where": self.where,
            "check": self.name,
            "result": self.result.lower(),
            "detail": self.detail,
            "advice": self.advice or None,
        }
        return {**document, **self.facts}


def ok(where: str, name: str, detail: str) -> Check:
    """Return a check that found all right."""
    return Check(where, name, Result.OK, detail)


def warning(where: str, name: str, detail: str, advice: str) -> Check:
    """Return a check that found something to look at."""
    return Check(where, name, Result.WARNING, detail, advice)


def failed(where: str, name: str, detail: str, advice: str) -> Check:
    """Return a check that found what keeps the program from working."""
    return Check(where, name, Result.FAILED, detail, advice)


def skipped(where: str, name: str, detail: str) -> Check:
    """Return a check that could not be made."""
    return Check(where, name, Result.SKIPPED, detail)


SOON_DAYS: Final = 14.0
"""A token that expires within so many days is worth a warning."""

REMEDIES: Final = {
    HARVESTER: "Make a new kubeconfig for Harvester (generate_addon.sh, or Rancher) and name it with --cloud-config",
    GUEST: "Make a new kubeconfig for this cluster, or leave --kubeconfig out to use the pod's service account",
}
"""What to do about a kubeconfig that cannot be used."""


class Version(msgspec.Struct, rename="camel"):
    """Answer of ``/version``."""

    git_version: str


@dataclass
class Connection:
    """What the checks of a connection found, for those that follow."""

    usable: bool = False
    user: str = ""


async def connection_checks(client: ApiClient, where: str, found: Connection) -> AsyncIterator[Check]:
    """Yield the checks in their order; ``found`` is filled before the last one is yielded."""
    if where == HARVESTER:
        yield _address_check(client.credentials, where)
    asked = await ask(_version(client))
    error = asked.error
    if isinstance(error, CredentialError):
        # The plugin or the token file, not the server.
        yield skipped(where, "server", "not asked, because there is no credential")
        yield failed(where, "credential", str(error), REMEDIES[where])
        return
    for check in _server_checks(client.credentials, where, asked):
        yield check
    if isinstance(error, Unreachable) or (
        isinstance(error, ApiError) and not isinstance(error, Unauthorized | Forbidden)
    ):
        return
    who = await who_am_i(client)
    found.user = who.answer or ""
    refusal = error if isinstance(error, Unauthorized) else who.error
    # Servers before Kubernetes 1.28 do not know the question; one that does not answer it may answer others.
    found.usable = not isinstance(refusal, Unauthorized | CredentialError)
    yield await _credential_check(client.credentials, where, found, refusal)


async def _version(client: ApiClient) -> Version:
    body = await client.request("GET", "/version")
    try:
        return msgspec.json.decode(body, type=Version)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer("its answer to /version is not that of a Kubernetes API server") from error


def _address_check(credentials: Credentials, where: str) -> Check:
    """Look at the address in the cloud-config without asking anybody."""
    server, parts = credentials.server, urlsplit(credentials.server)
    if _is_loopback(parts.hostname or ""):
        return warning(
            where,
            "server address",
            f"{server} is a loopback address",
            "Inside a VM that is the VM itself, and answers with another cluster's certificate or not at all. Put the "
            "address of Harvester (its VIP) in the cloud-config; generate_addon.sh copies the one of the kubeconfig "
            "that it is run with",
        )
    if "/k8s/clusters/" in parts.path:
        return warning(
            where,
            "server address",
            f"{server} goes through Rancher",
            "A service account of Harvester is not accepted there, and nothing works while Rancher is away. Put the "
            "address of Harvester (its VIP) in the cloud-config",
        )
    if parts.scheme == "http":
        return warning(where, "server address", f"{server} is not encrypted", "Use https://")
    return ok(where, "server address", server)


def _is_loopback(host: str) -> bool:
    try:
        return parse_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _server_checks(credentials: Credentials, where: str, asked: Asked[Version]) -> list[Check]:
    """Return the checks of reachability and TLS, from the one question that was asked."""
    server, error = credentials.server, asked.error
    if isinstance(error, UnexpectedAnswer):
        advice = "Check the address, and what stands in between: a proxy or a login page"
        return [failed(where, "server", f"{server}: {error}", advice)]
    if isinstance(error, Unreachable):
        if _is_tls_fault(error.__cause__):
            return [
                ok(where, "server", f"{server} answers"),
                failed(where, "TLS", str(error), _tls_advice(credentials)),
            ]
        advice = (
            "Check the address, DNS, firewalls and routes from the nodes to this server"
            if credentials.proxy is None
            else "The connection goes through a proxy (proxy-url or HTTPS_PROXY); check it, and NO_PROXY"
        )
        return [failed(where, "server", _with_server(str(error), server), advice)]
    if isinstance(error, ApiError) and not isinstance(error, Unauthorized | Forbidden):
        text = f"{server} answers with HTTP status {error.answer.status}: {error}"
        return [
            failed(
                where, "server", text, "Check that the address is that of a Kubernetes API server, and that it is well"
            )
        ]
    version = f", Kubernetes {asked.answer.git_version}" if asked.answer else ""
    return [ok(where, "server", f"{server} answers{version}"), _tls_check(credentials, where)]


def _with_server(text: str, server: str) -> str:
    return text if server in text else f"{server}: {text}"


def _is_tls_fault(cause: BaseException | None) -> bool:
    return isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError | ssl.SSLError)


def _tls_advice(credentials: Credentials) -> str:
    return (
        "The certificate of this server does not fit certificate-authority-data or the host name in "
        f"{credentials.origin}. Check that the address leads to the right cluster; then take over the authority of "
        "that cluster, or name the certificate's host in tls-server-name"
    )


def _tls_check(credentials: Credentials, where: str) -> Check:
    if credentials.tls is None:
        return warning(where, "TLS", "none: the token is sent in clear text", "Use https://")
    if credentials.tls.verify_mode is ssl.CERT_NONE:
        text = "the server's certificate is not verified (insecure-skip-tls-verify)"
        return warning(where, "TLS", text, "Put certificate-authority-data in the kubeconfig instead")
    return ok(where, "TLS", "the server's certificate is verified")


async def _credential_check(credentials: Credentials, where: str, found: Connection, refusal: CCMError | None) -> Check:
    expiry = token_end(await _token(credentials))
    now = datetime.now(UTC)
    if not found.usable:
        when = f"; the token expired on {expiry:%Y-%m-%d %H:%M} UTC" if expiry and expiry <= now else ""
        text = str(refusal) if isinstance(refusal, Unauthorized) else f"not accepted: {refusal}"
        return failed(where, "credential", f"{text}{when}", REMEDIES[where])
    if refusal is not None and not isinstance(refusal, Forbidden | NotServed):
        return skipped(where, "credential", f"cannot be told: {refusal}")
    if found.user == "system:anonymous":
        return failed(where, "credential", "none is sent: the user is system:anonymous", REMEDIES[where])
    name = f"accepted, user {found.user}" if found.user else "accepted"
    days = (expiry - now).total_seconds() / 86400 if expiry else None
    # The kubelet renews the token of a pod in time.
    if expiry is None or days is None or not _is_fixed(credentials):
        return ok(where, "credential", name)
    text = f"{name}, the token expires on {expiry:%Y-%m-%d %H:%M} UTC"
    if days > SOON_DAYS:
        return ok(where, "credential", text)
    return warning(where, "credential", text, REMEDIES[where])


def _is_fixed(credentials: Credentials) -> bool:
    return isinstance(credentials.token, FixedToken)


async def _token(credentials: Credentials) -> str | None:
    async def read() -> str | None:
        return await credentials.token.fetch()

    return (await ask(read())).answer
