"""Bearer tokens: fixed, in a file that is rotated, or from a credential plugin (client.authentication.k8s.io)."""

import asyncio
import base64
import math
import os
import re
import ssl
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Struct

from harvester_ccm.kube.connection import load_certificate, read_bytes
from harvester_ccm.kube.errors import UNREADABLE, CredentialError
from harvester_ccm.redaction import end_of, one_line, redact_text

PLUGIN_SECONDS: Final = 20.0
"""Time limit for a run of a plugin; then it is killed."""
MAX_ERROR: Final = 4096
"""Characters of its error output that are looked at, from the end."""
_ZERO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The zero value of Go's time: like client-go, treat it as no expiry."""
_SUBJECT: Final = re.compile(r"system:serviceaccount:([a-z0-9][a-z0-9-]{0,62}):([a-z0-9][a-z0-9.-]{0,252})")


def checked_token(text: str, where: str) -> str:
    """Return a token without surrounding whitespace. Raises CredentialError if a header cannot carry it."""
    token = text.strip()
    if not re.fullmatch("[!-~]+", token):
        raise CredentialError(f"{where}: expected one word of ASCII characters")
    return token


class TokenSource:
    """A bearer token that never changes, or none; the other sources of tokens override its methods."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def get(self) -> str | None:
        """Return the current token; None if no token exists or a plugin renews it. Raises CredentialError."""
        return self._token

    def forget(self) -> None:
        """Fetch a new token for the next request: the server rejected the current one."""

    async def fetch(self) -> str | None:
        """Return the token to send, without blocking the event loop. Raises CredentialError."""
        return self.get()


class FileToken(TokenSource):
    """A token file that the kubelet rotates; it is read for every request."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises CredentialError."""
        self._path = path
        self.get()

    def get(self) -> str | None:
        return checked_token(read_bytes(self._path).decode("utf-8", "replace"), f"{self._path}: token")


class Plugin(Struct, rename="camel"):
    """The field ``exec`` of a user in a kubeconfig."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    provide_cluster_info: bool = False


class _Status(Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """With a time zone, without which the time is not defined."""


class _ExecCredential(Struct):
    status: _Status


class ExecToken(TokenSource):
    """A token, a client certificate, or both, from a plugin. It runs again when they have expired, as in client-go."""

    def __init__(self, path: Path, plugin: Plugin, cluster: Mapping[str, object], tls: ssl.SSLContext | None) -> None:
        """Build it for a kubeconfig at ``path``; ``tls`` receives the client certificates."""
        super().__init__(None)
        self._path = path
        self._plugin = plugin
        self._cluster = cluster
        self._tls = tls
        self._valid_until = -math.inf
        self._run: asyncio.Task[str | None] | None = None
        """The last run, which all callers wait for."""

    def forget(self) -> None:
        self._valid_until = -math.inf

    async def fetch(self) -> str | None:
        if self._run is None or (self._run.done() and time.time() >= self._valid_until):
            self._run = asyncio.create_task(self._renew(), name="credential plugin")
            # Retrieve the exception: all callers can be cancelled. From Python 3.14 on, shield would log it then.
            self._run.add_done_callback(lambda run: run.cancelled() or run.exception())
        run = self._run
        await asyncio.wait((run,))
        return run.result()

    async def _renew(self) -> str | None:
        """Return a new token; None if there is only a certificate."""
        self._valid_until = -math.inf
        output = await asyncio.to_thread(self._output)
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
            if status.client_certificate_data and self._tls is not None:
                load_certificate(self._tls, f"{status.client_certificate_data}\n{status.client_key_data}".encode())
            elif not status.token:
                raise self._failure("it printed neither a token nor a client certificate")
        except (*UNREADABLE, OSError) as error:
            raise self._failure(f"it printed no ExecCredential: {one_line(str(error))}") from None
        token = checked_token(status.token, f"{self._path}: token of the plugin") if status.token else None
        expiry = status.expiration_timestamp
        if expiry is None or expiry == _ZERO_TIME:
            self._valid_until = math.inf
        else:
            self._valid_until = expiry.timestamp()
        return token

    def _output(self) -> bytes:
        plugin = self._plugin
        spec: dict[str, object] = {"interactive": False}
        if plugin.provide_cluster_info:
            spec["cluster"] = self._cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {variable.get("name", ""): variable.get("value", "") for variable in plugin.env or ()}
        variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        try:
            done = subprocess.run(
                [plugin.command, *(plugin.args or ())],
                check=False,
                env=os.environ | variables,
                cwd=self._path.parent,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise self._failure(f"it did not end within {PLUGIN_SECONDS:g} s") from None
        except (OSError, ValueError) as error:
            raise self._failure(getattr(error, "strerror", None) or str(error)) from None
        if done.returncode:
            end = end_of(done.stderr.decode(errors="replace").strip(), MAX_ERROR)
            raise self._failure(f"it ended with exit code {done.returncode}: {one_line(redact_text(end))[-500:]}")
        return done.stdout

    def _failure(self, why: str) -> CredentialError:
        return CredentialError(f"{self._path}: credential plugin {self._plugin.command!r} failed: {why}")


class _Claims(Struct):
    exp: float | None = None
    sub: str = ""


def token_claims(token: str | None) -> tuple[datetime | None, str]:
    """Return when a token expires, and the ``namespace/name`` of its ServiceAccount.

    They are None and empty if the token is not a JSON web token with such a claim. The signature is not verified: only
    the server knows whether a token is valid.
    """
    try:
        # The decoder ignores surplus padding.
        claims = msgspec.json.decode(base64.urlsafe_b64decode(f"{(token or '').split('.')[1]}==="), type=_Claims)
        end = None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (IndexError, OverflowError, *UNREADABLE):
        return None, ""
    match = _SUBJECT.fullmatch(claims.sub)
    account = f"{match[1]}/{match[2]}" if match is not None else ""
    return end, account


def fixed_token(source: TokenSource) -> str | None:
    """Return a token that stays until it is replaced.

    A file is expected to be rotated before its token expires.
    """
    return None if isinstance(source, FileToken) else source.get()


def certificate_end(pem: bytes) -> datetime | None:
    """Return when a client certificate expires; None for none, or for one that cannot be read.

    The library is loaded here: without a client certificate, the running program does not need it.
    """
    if not pem:
        return None
    from cryptography import x509  # noqa: PLC0415 - see above

    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc
    except ValueError:
        return None


def credential_text(token: str, origin: str, now: datetime, certificate: bytes = b"") -> str:
    """Return the text for a rejected credential; ``token`` is empty for a client certificate."""
    end, account = token_claims(token)
    owner = f" of ServiceAccount {account}" if account else ""
    text = f"the token{owner} in {origin}"
    if not token:
        end = certificate_end(certificate)
        text = f"the client certificate in {origin}" if certificate else f"the credential in {origin}"
    if end is None:
        return text
    state = "expired on" if end <= now else "is valid until"
    return f"{text}, which {state} {end:%Y-%m-%d %H:%M} UTC"
