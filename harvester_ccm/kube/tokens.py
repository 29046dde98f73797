"""Bearer tokens (fixed, from a file that is rotated, or from a credential plugin), and files with credentials.

Plugins are those of client.authentication.k8s.io. Tokens are never logged.
"""

import asyncio
import base64
import math
import os
import re
import ssl
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from harvester_ccm.errors import UNREADABLE, CredentialError
from harvester_ccm.kube.connection import load_certificate
from harvester_ccm.redaction import one_line, redact_text

PLUGIN_SECONDS: Final = 20.0
"""Time limit for a run of a plugin; then it is killed."""


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file. Raises CredentialError."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        # ValueError: a path in a file can contain a null character.
        raise CredentialError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def read_all(paths: Iterable[Path]) -> dict[Path, bytes]:
    """Return the contents of files, empty for those that cannot be read. Raises nothing."""
    contents = dict.fromkeys(paths, b"")
    for path in contents:
        with suppress(CredentialError):
            contents[path] = read_bytes(path)
    return contents


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


class Plugin(msgspec.Struct, rename="camel"):
    """The field ``exec`` of a user in a kubeconfig."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    provide_cluster_info: bool = False


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
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
        self._received: str | None = None
        self._run: asyncio.Task[None] | None = None
        """The run that all callers wait for."""

    def forget(self) -> None:
        self._valid_until = -math.inf

    async def fetch(self) -> str | None:
        if time.time() >= self._valid_until:
            if self._run is None or self._run.done():
                self._run = asyncio.create_task(self._renew(), name="credential plugin")
                # Retrieve the exception: all callers may have been cancelled.
                self._run.add_done_callback(lambda run: run.cancelled() or run.exception())
            await asyncio.shield(self._run)
        return self._received

    async def _renew(self) -> None:
        output = await asyncio.to_thread(self._output)
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
            if status.client_certificate_data and self._tls is not None:
                load_certificate(self._tls, f"{status.client_certificate_data}\n{status.client_key_data}".encode())
            elif not status.token:
                raise self._failure("it printed neither a token nor a client certificate")
        except (*UNREADABLE, OSError) as error:
            raise self._failure(f"it printed no ExecCredential: {one_line(str(error))}") from None
        self._received = checked_token(status.token, f"{self._path}: token of the plugin") if status.token else None
        expiry = status.expiration_timestamp
        self._valid_until = math.inf if expiry is None else expiry.timestamp()

    def _output(self) -> bytes:
        """Run the plugin and return its standard output."""
        plugin = self._plugin
        spec = {"interactive": False, **({"cluster": self._cluster} if plugin.provide_cluster_info else {})}
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {one.get("name", ""): one.get("value", "") for one in plugin.env or ()}
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
            message = one_line(redact_text(done.stderr.decode(errors="replace").strip()))[-500:]
            raise self._failure(f"it ended with exit code {done.returncode}: {message}")
        return done.stdout

    def _failure(self, why: str) -> CredentialError:
        return CredentialError(f"{self._path}: credential plugin {self._plugin.command!r} failed: {why}")


class _Claims(msgspec.Struct):
    exp: float | None = None
    sub: str = ""


_SERVICE_ACCOUNT: Final = re.compile(r"system:serviceaccount:([a-z0-9][a-z0-9-]{0,62}):([a-z0-9][a-z0-9.-]{0,252})")


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
    match = _SERVICE_ACCOUNT.fullmatch(claims.sub)
    return end, f"{match[1]}/{match[2]}" if match is not None else ""


def credential_text(token: str, origin: str, now: datetime) -> str:
    """Return the text for a rejected credential; ``token`` is empty for a client certificate."""
    if not token:
        return f"the credential in {origin}"
    end, account = token_claims(token)
    owner = f" of ServiceAccount {account}" if account else ""
    expiry = f", which {'expired on' if end <= now else 'is valid until'} {end:%Y-%m-%d %H:%M} UTC" if end else ""
    return f"the token{owner} in {origin}{expiry}"
