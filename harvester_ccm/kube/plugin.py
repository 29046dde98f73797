"""Credential plugins (client.authentication.k8s.io): programs that print a token, a client certificate, or both."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from harvester_ccm.errors import UNREADABLE, CredentialError
from harvester_ccm.kube.tokens import Section, TokenSource, checked_token
from harvester_ccm.redaction import one_line, redact_text

PLUGIN_SECONDS: Final = 20.0
"""Time limit for a run of a plugin; its process group is killed then."""
EARLY_SECONDS: Final = 30.0
"""A credential is renewed this long before it expires."""
COMPLAINT_LIMIT: Final = 500
"""Characters of the end of a plugin's standard error that an error message has."""


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Plugin(msgspec.Struct, rename="camel"):
    """The section ``exec`` of a kubeconfig."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    provide_cluster_info: bool = False


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status


_decode: Final = msgspec.json.Decoder(_ExecCredential).decode


class ExecToken(TokenSource):
    """A token, a client certificate, or both, that a plugin prints. All who fetch at the same time wait for one run."""

    renewed = True

    def __init__(
        self,
        path: Path,
        plugin: Section,
        cluster: Section,
        *,
        take_certificate: Callable[[str], None] | None = None,
        seconds: float = PLUGIN_SECONDS,
    ) -> None:
        """``take_certificate`` is called with a client certificate and its key in PEM; None for plain http."""
        self._path = path
        try:
            self._plugin = msgspec.convert(plugin, _Plugin)
        except msgspec.ValidationError as error:
            raise CredentialError(f"{path}: exec is not valid: {error}") from None
        self._cluster = cluster
        self._take_certificate = take_certificate
        self._seconds = seconds
        self._run: asyncio.Task[None] | None = None
        self._token: str | None = None
        self._valid_until = float("-inf")

    def get(self) -> str | None:
        """Return the token of the last run."""
        return self._token

    def forget(self) -> None:
        """Run the plugin next time."""
        self._valid_until = float("-inf")

    async def fetch(self) -> str | None:
        """Return the token to send now. Raises CredentialError."""
        if time.time() >= self._valid_until:
            if self._run is None or self._run.done():
                self._run = asyncio.create_task(self._renew(), name="credential plugin")
                # Retrieve the exception: all callers may have been cancelled.
                self._run.add_done_callback(lambda run: run.cancelled() or run.exception())
            await asyncio.shield(self._run)
        return self._token

    async def _renew(self) -> None:
        try:
            credential = _decode(await self._output())
        except UNREADABLE as error:
            raise self._failure(f"it printed no ExecCredential: {one_line(str(error))}") from None
        if credential.api_version != self._plugin.api_version:
            raise self._failure(f"it printed no ExecCredential of apiVersion {self._plugin.api_version!r}")
        status = credential.status
        if status.client_certificate_data and self._take_certificate is not None:
            self._take_certificate(f"{status.client_certificate_data}\n{status.client_key_data}")
            self.certificates += 1
        elif not status.token:
            raise self._failure("it printed neither a token nor a client certificate")
        what = f"{self._path}: the token of the credential plugin"
        self._token = checked_token(status.token, what) if status.token else None
        expiry = status.expiration_timestamp
        self._valid_until = float("inf") if expiry is None else expiry.timestamp() - EARLY_SECONDS

    async def _output(self) -> bytes:
        """Run the plugin and return its standard output."""
        variables = {one.name: one.value for one in self._plugin.env or ()}
        try:
            process = await asyncio.create_subprocess_exec(
                self._plugin.command,
                *(self._plugin.args or ()),
                env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": self._info()},
                cwd=self._path.parent,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise self._failure(getattr(error, "strerror", None) or str(error)) from None
        try:
            async with asyncio.timeout(self._seconds):
                output, complaint = await process.communicate()
        except TimeoutError:
            raise self._failure(f"it did not end within {self._seconds:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode:
            said = one_line(redact_text(complaint.decode(errors="replace").strip()))[-COMPLAINT_LIMIT:]
            raise self._failure(f"it ended with exit code {process.returncode}: {said}")
        return output

    def _info(self) -> str:
        """Return the value of KUBERNETES_EXEC_INFO."""
        spec = {"interactive": False, **({"cluster": self._cluster} if self._plugin.provide_cluster_info else {})}
        document = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(document).decode()

    def _failure(self, why: str) -> CredentialError:
        return CredentialError(f"{self._path}: credential plugin {self._plugin.command!r} failed: {why}")
