"""Where a bearer token comes from, and when it ends: a fixed text, a file that is rotated, or a credential plugin.

A source is asked for every request and keeps what it got for as long as it is good. Nothing read here is ever logged,
and neither what a plugin (client.authentication.k8s.io) prints nor its complaints are in a message.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.credential_files import read_text

TOKEN_FILE_LIFETIME: Final = 60.0
"""Seconds for which a token read from a file is used before the file is read again."""
PLUGIN_SECONDS: Final = 20.0
"""Time limit for a run of a plugin; it is killed then."""
EARLY_SECONDS: Final = 30.0
"""So long before a credential expires a new one is asked for."""
UNREADABLE_EXPIRY_SECONDS: Final = 60.0
"""So long a credential is used whose expiry is no time."""
_CONFIG_EXTENSION: Final = "client.authentication.k8s.io/exec"

Section = Mapping[str, object]
"""A mapping of a kubeconfig as it was read."""
TakeCertificate = Callable[[str], None]
"""Called with a client certificate and its key in PEM, to be used for new connections. Raises CredentialError."""


def checked_token(text: str, what: str) -> str:
    """Return a token without the white space around it. Raises CredentialError: a header cannot carry it."""
    token = text.strip()
    if not token:
        raise CredentialError(f"{what} is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialError(f"{what} is no single word of ASCII characters; was more than the token pasted?")
    return token


class TokenSource(Protocol):
    """What gives the bearer token of a credential."""

    blocking: bool = False
    """Whether ``get`` may take long, so that it has to be called outside the event loop."""
    certificates: int = 0
    """How many client certificates came with the tokens; a connection keeps the one it was opened with."""

    def get(self) -> str | None:
        """Return the token to send now, None for none. Raises CredentialError."""

    def forget(self) -> None:
        """Fetch a new one next time: the server refused this one."""

    async def fetch(self) -> str | None:
        """Return the token to send now without blocking the event loop. Raises CredentialError."""
        return await asyncio.to_thread(self.get) if self.blocking else self.get()


class FixedToken(TokenSource):
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def get(self) -> str | None:
        return self._token

    def forget(self) -> None:
        """There is no other one."""


class FileToken(TokenSource):
    """A token that the kubelet rotates in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = float("-inf")

    def get(self) -> str:
        now = time.monotonic()
        if now - self._read_at >= TOKEN_FILE_LIFETIME:
            self._token = checked_token(read_text(self._path), f"{self._path}: the token")
            self._read_at = now
        return self._token

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")


class ExecToken(TokenSource):
    """A token, a client certificate, or both, that a plugin prints. May be asked from many threads."""

    blocking = True

    def __init__(
        self, path: Path, plugin: Section, cluster: Section, *, take_certificate: TakeCertificate | None = None
    ) -> None:
        """``take_certificate`` is None where the server is not asked over TLS."""
        self._path = path
        self._plugin = dict(plugin)
        self._cluster = dict(cluster)
        self._take_certificate = take_certificate
        self._lock = threading.Lock()
        self._token: str | None = None
        self._valid_until = float("-inf")

    def get(self) -> str | None:
        with self._lock:
            if time.time() >= self._valid_until:
                status = self._ask()
                self._token = self._taken(status)
                self._valid_until = _expiry(status.get("expirationTimestamp"))
            return self._token

    def forget(self) -> None:
        """Ask the plugin next time."""
        self._valid_until = float("-inf")

    def _taken(self, status: Section) -> str | None:
        """Return the token, if there is one, and use the certificate, if there is one."""
        token, certificate, key = (
            value if isinstance(value := status.get(name), str) and value else None
            for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if (certificate is None) != (key is None):
            raise self._failure("it printed half of a client certificate and its key")
        if certificate and key:
            if self._take_certificate is None:
                raise self._failure("it printed a client certificate, which only an https:// server can be shown")
            self._take_certificate(f"{certificate}\n{key}")
            self.certificates += 1
        elif token is None:
            raise self._failure("it printed neither a token nor a client certificate")
        return token and checked_token(token, f"{self._path}: the token of the credential plugin")

    def _ask(self) -> Section:
        api_version = self._plugin.get("apiVersion")
        if not isinstance(api_version, str):
            raise self._failure("apiVersion is missing in the kubeconfig")
        if self._plugin.get("interactiveMode") == "Always":
            raise self._failure("it wants a terminal (interactiveMode is Always), and there is none")
        try:
            answer = json.loads(self._output(api_version))
        except ValueError:
            raise self._failure("it printed no JSON document") from None
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._failure("it printed no ExecCredential")
        if answer.get("apiVersion") != api_version:
            raise self._failure(f"it printed apiVersion {answer.get('apiVersion')!r}, expected {api_version!r}")
        status = answer.get("status")
        return cast("Section", status) if isinstance(status, dict) else {}

    def _output(self, api_version: str) -> bytes:
        """Run the plugin and return what it prints."""
        try:
            done = subprocess.run(  # the kubeconfig's author chose the program
                self._command(),
                env={**os.environ, **self._variables(), "KUBERNETES_EXEC_INFO": self._info(api_version)},
                cwd=self._path.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=PLUGIN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failure(f"it did not end within {PLUGIN_SECONDS:g} s") from None
        except (OSError, ValueError) as error:
            raise self._failure(getattr(error, "strerror", None) or error.__class__.__name__) from None
        if done.returncode != 0:
            raise self._failure(f"it ended with exit code {done.returncode}")
        return done.stdout

    def _command(self) -> list[str]:
        command, arguments = self._plugin.get("command"), self._plugin.get("args") or ()
        if not isinstance(command, str) or not command:
            raise self._failure("command is missing in the kubeconfig")
        if not isinstance(arguments, list | tuple):
            raise self._failure("args is no list in the kubeconfig")
        return [command, *(str(one) for one in arguments)]

    def _variables(self) -> dict[str, str]:
        entries = self._plugin.get("env")
        pairs = [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []
        return {str(one["name"]): str(one.get("value", "")) for one in pairs if one.get("name")}

    def _info(self, api_version: str) -> str:
        spec: dict[str, object] = {"interactive": False}
        if self._plugin.get("provideClusterInfo") is True:
            spec["cluster"] = _cluster_info(self._cluster)
        return json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "spec": spec}, default=str)

    def _failure(self, why: str) -> CredentialError:
        return CredentialError(f"{self._path}: credential plugin {self._plugin.get('command')!r} failed: {why}")


def _cluster_info(cluster: Section) -> dict[str, object]:
    """Return what a plugin is told about the cluster, with the part of the kubeconfig that is meant for it."""
    info = {key: value for key, value in cluster.items() if key != "extensions"}
    extensions = cluster.get("extensions")
    for one in extensions if isinstance(extensions, list) else ():
        if isinstance(one, Mapping) and one.get("name") == _CONFIG_EXTENSION:
            info["config"] = one.get("extension")
    return info


def _expiry(timestamp: object) -> float:
    """Return when to ask the plugin again, as seconds since the epoch: a little before the credential expires."""
    if not isinstance(timestamp, str):
        return float("inf")
    try:
        return datetime.fromisoformat(timestamp).timestamp() - EARLY_SECONDS
    except ValueError:
        return time.time() + UNREADABLE_EXPIRY_SECONDS


class _Claims(msgspec.Struct):
    exp: float | None = None


_decode_claims = msgspec.json.Decoder(_Claims).decode


def token_end(token: str | None) -> datetime | None:
    """Return when a token expires; None for one that is no JSON web token or does not say.

    The signature is not looked at: only the server can tell whether a token is good.
    """
    parts = (token or "").split(".")
    if len(parts) != 3:
        return None
    try:
        seconds = _decode_claims(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))).exp
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError, msgspec.MsgspecError):
        return None
