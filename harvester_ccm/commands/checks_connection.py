"""A check, and those that all others stand on: is it the right server, does it answer, does it take the credential."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from harvester_ccm.commands.clusters import Asked, ask
from harvester_ccm.commands.rights import GUEST, HARVESTER, who_am_i
from harvester_ccm.commands.status_report import SOON
from harvester_ccm.errors import (
    ApiError,
    CCMError,
    CredentialError,
    Forbidden,
    NotServed,
    NotTrusted,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    credential_hint,
)
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import FixedToken, token_account, token_end

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


class Check(Struct, frozen=True):
    """One check that was made."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    name: str
    result: Result
    detail: str
    advice: str = ""
    """What to do; empty when nothing is."""

    def document(self) -> dict[str, object]:
        """Return the check as printed with ``-o json``."""
        return {
            "where": self.where,
            "check": self.name,
            "result": self.result.lower(),
            "detail": self.detail,
            "advice": self.advice or None,
        }


REMEDIES: Final = {
    HARVESTER: "Make a new kubeconfig for Harvester (generate_addon.sh, or Rancher) and name it with --cloud-config",
    GUEST: "Make a new kubeconfig for this cluster, or leave --kubeconfig out to use the pod's service account",
}
"""What to do about a credential that is not accepted."""
UNREADABLE: Final = {
    HARVESTER: "Correct --cloud-config or what is in the file; generate_addon.sh makes a new one",
    GUEST: "Correct --kubeconfig or KUBECONFIG, or what is in the file; in a pod leave both out",
}
"""What to do about a kubeconfig that cannot be read."""


class Version(msgspec.Struct, rename="camel"):
    """Answer of ``/version``."""

    git_version: str


async def check_connection(client: ApiClient, where: str, say: Callable[[Check], None]) -> str | None:
    """Make the checks in their order and return the name of the user, empty when the server does not tell.

    None: the cluster cannot be used.
    """
    if where == HARVESTER:
        say(_address_check(client.credentials.server))
    asked = await ask(_version(client))
    error = asked.error
    if isinstance(error, CredentialError):
        # The plugin or the token file, not the server.
        say(Check(where, "server", Result.SKIPPED, "not asked, because there is no credential"))
        say(Check(where, "credential", Result.FAILED, str(error), REMEDIES[where]))
        return None
    for check in _server_checks(client.credentials, where, asked):
        say(check)
    if error is not None and not isinstance(error, Unauthorized | Forbidden):
        return None
    who = await who_am_i(client)
    refusal = error if isinstance(error, Unauthorized) else who.error
    expiry = token_end((await ask(client.credentials.token.fetch())).answer)
    # Servers before Kubernetes 1.28 do not know the question; one that does not answer it may answer others.
    if isinstance(refusal, Unauthorized | CredentialError):
        text, advice = f"not accepted: {refusal}", REMEDIES[where]
        if isinstance(refusal, Unauthorized):
            text, advice = str(refusal), refusal.remedy
        say(Check(where, "credential", Result.FAILED, text, advice))
        return None
    user = who.answer or ""
    say(Check(where, "credential", *_credential_verdict(client.credentials, where, expiry, user, refusal)))
    return user


async def _version(client: ApiClient) -> Version:
    body = await client.request("GET", "/version")
    try:
        return msgspec.json.decode(body, type=Version)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer("its answer to /version is not that of a Kubernetes API server") from error


def _address_check(server: str) -> Check:
    """Look at the address in the cloud-config without asking anybody."""
    row, parts = partial(Check, HARVESTER, "server address"), urlsplit(server)
    if _is_loopback(parts.hostname or ""):
        return row(
            Result.WARNING,
            f"{server} is a loopback address",
            "Inside a VM that is the VM itself, and answers with another cluster's certificate or not at all. Put the "
            "address of Harvester (its VIP) in the cloud-config; generate_addon.sh copies the one of the kubeconfig "
            "that it is run with",
        )
    if "/k8s/clusters/" in parts.path:
        return row(
            Result.WARNING,
            f"{server} goes through Rancher",
            "A service account of Harvester is not accepted there, and nothing works while Rancher is away. Put the "
            "address of Harvester (its VIP) in the cloud-config",
        )
    if parts.scheme == "http":
        return row(Result.WARNING, f"{server} is not encrypted", "Use https://")
    return row(Result.OK, server)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _server_checks(credentials: Credentials, where: str, asked: Asked[Version]) -> list[Check]:
    """Return the checks of reachability and TLS, from the one question that was asked."""
    server, text = credentials.server, str(asked.error)
    named = text if server in text else f"{server}: {text}"
    row, tls = partial(Check, where, "server"), partial(Check, where, "TLS")
    match asked.error:
        case NotTrusted() as error:
            return [row(Result.OK, f"{server} answers"), tls(Result.FAILED, text, _remedy(error, where))]
        case Unreachable() as error:
            advice = _remedy(error, where)
            if credentials.proxy is not None and not isinstance(error, UnexpectedAnswer):
                advice = "The connection goes through a proxy (proxy-url or HTTPS_PROXY); check it, and NO_PROXY"
            return [row(Result.FAILED, named, advice)]
        case ApiError(answer=answer) if not isinstance(asked.error, Unauthorized | Forbidden):
            advice = "Check that the address is that of a Kubernetes API server, and that it is well"
            return [row(Result.FAILED, f"{server} answers with HTTP status {answer.status}: {text}", advice)]
    version = f", Kubernetes {asked.answer.git_version}" if asked.answer else ""
    return [row(Result.OK, f"{server} answers{version}"), tls(*_tls_verdict(credentials))]


def _remedy(error: Unreachable, where: str) -> str:
    """Return the remedy that the Events name for Harvester, or that for the guest cluster."""
    if where == HARVESTER:
        return error.remedy
    return (
        "Check address, certificate-authority-data and tls-server-name in the kubeconfig, the clocks, and what is "
        "between the nodes and this server: routes, firewalls, proxies"
    )


def _tls_verdict(credentials: Credentials) -> tuple[Result, str, str]:
    if credentials.tls is None:
        return Result.WARNING, "none: the token is sent in clear text", "Use https://"
    if credentials.tls.verify_mode is ssl.CERT_NONE:
        text = "the server's certificate is not verified (insecure-skip-tls-verify)"
        return Result.WARNING, text, "Put certificate-authority-data in the kubeconfig instead"
    return Result.OK, "the server's certificate is verified", ""


def _credential_verdict(
    credentials: Credentials, where: str, expiry: datetime | None, user: str, refusal: CCMError | None
) -> tuple[Result, str, str]:
    if refusal is not None and not isinstance(refusal, Forbidden | NotServed):
        return Result.SKIPPED, f"cannot be told: {refusal}", ""
    if user == "system:anonymous":
        return Result.FAILED, "none is sent: the user is system:anonymous", REMEDIES[where]
    name = f"accepted, user {user}" if user else "accepted"
    if credentials.readable_by_all:
        return Result.WARNING, f"{name}; every user of this host may read {credentials.origin}", "Set its mode to 0600"
    # The kubelet renews the token of a pod in time.
    if expiry is None or not isinstance(credentials.token, FixedToken):
        return Result.OK, name, ""
    left = expiry - datetime.now(UTC)
    text = f"{name}, the token expires on {expiry:%Y-%m-%d %H:%M} UTC"
    if left > SOON:
        return Result.OK, text, ""
    hours = int(left / timedelta(hours=1))
    when = f"in {hours // 24} days" if hours >= 48 else f"in {hours} h" if hours else "within the hour"
    advice = credential_hint(where, token_account(credentials.token.get()))
    return Result.WARNING, f"{text}, {when}; it works until then", advice
