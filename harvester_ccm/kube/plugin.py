"""Credential plugins (client.authentication.k8s.io): programs that print a token, a client certificate, or both.

A plugin runs in a process group of its own, which ends whole when the plugin does not end in time or prints too much.
All who need a credential at the same time wait for the same run. Neither what a plugin prints nor its complaints are in
a message or in the log.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Final, cast

import msgspec

from harvester_ccm.errors import UNREADABLE, CredentialError
from harvester_ccm.kube.tokens import Section, TokenSource, checked_token

PLUGIN_SECONDS: Final = 20.0
"""Time limit for a run of a plugin; it is killed then."""
EARLY_SECONDS: Final = 30.0
"""So long before a credential expires a new one is asked for."""
UNREADABLE_EXPIRY_SECONDS: Final = 60.0
"""So long a credential is used whose expiry is no time."""
OUTPUT_LIMIT: Final = 1024 * 1024
"""So much may a plugin print, in bytes."""
_CONFIG_EXTENSION: Final = "client.authentication.k8s.io/exec"

TakeCertificate = Callable[[str], None]
"""Called with a client certificate and its key in PEM, to be used for new connections. Raises CredentialError."""


class ExecToken(TokenSource):
    """A token, a client certificate, or both, that a plugin prints."""

    renewed = True

    def __init__(
        self,
        path: Path,
        plugin: Section,
        cluster: Section,
        *,
        take_certificate: TakeCertificate | None = None,
        seconds: float = PLUGIN_SECONDS,
    ) -> None:
        """``take_certificate`` is None where the server is not asked over TLS; ``seconds`` is for one run."""
        self._path = path
        self._plugin = dict(plugin)
        self._cluster = dict(cluster)
        self._take_certificate = take_certificate
        self._seconds = seconds
        self._run: asyncio.Task[None] | None = None
        self._token: str | None = None
        self._valid_until = float("-inf")

    def get(self) -> str | None:
        """Return the token of the last run."""
        return self._token

    async def fetch(self) -> str | None:
        """Return the token to send now. Raises CredentialError."""
        if time.time() >= self._valid_until:
            if self._run is None or self._run.done():
                self._run = asyncio.create_task(self._renew(), name="credential plugin")
                # All who wait may give up before it ends.
                self._run.add_done_callback(lambda run: run.cancelled() or run.exception())
            await asyncio.shield(self._run)
        return self._token

    async def _renew(self) -> None:
        status = await self._ask()
        self._token = self._taken(status)
        self._valid_until = _expiry(status.get("expirationTimestamp"))

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

    async def _ask(self) -> Section:
        api_version = self._plugin.get("apiVersion")
        if not isinstance(api_version, str):
            raise self._failure("apiVersion is missing in the kubeconfig")
        if self._plugin.get("interactiveMode") == "Always":
            raise self._failure("it wants a terminal (interactiveMode is Always), and there is none")
        try:
            answer = msgspec.json.decode(await self._output(api_version))
        except UNREADABLE:
            raise self._failure("it printed no JSON document") from None
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._failure("it printed no ExecCredential")
        if answer.get("apiVersion") != api_version:
            raise self._failure(
                f"it printed apiVersion {str(answer.get('apiVersion'))[:40]!r}, expected {api_version!r}"
            )
        status = answer.get("status")
        return cast("Section", status) if isinstance(status, dict) else {}

    async def _output(self, api_version: str) -> bytes:
        """Run the plugin and return what it prints."""
        try:
            output, into = os.pipe()
        except OSError as error:
            raise self._failure(error.strerror or error.__class__.__name__) from None
        with FileIO(output) as pipe:
            try:
                process = await asyncio.create_subprocess_exec(  # the kubeconfig's author chose the program
                    *self._command(),
                    env={**os.environ, **self._variables(), "KUBERNETES_EXEC_INFO": self._info(api_version)},
                    cwd=self._path.parent,
                    stdin=DEVNULL,
                    stdout=into,
                    stderr=DEVNULL,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise self._failure(getattr(error, "strerror", None) or error.__class__.__name__) from None
            finally:
                os.close(into)
            try:
                async with asyncio.timeout(self._seconds):
                    code, printed = await self._collect(process, pipe)
            except TimeoutError:
                raise self._failure(f"it did not end within {self._seconds:g} s") from None
            finally:
                _end_group(process)
                await process.wait()
        if code != 0:
            raise self._failure(f"it ended with exit code {code}")
        return printed

    async def _collect(self, process: asyncio.subprocess.Process, pipe: FileIO) -> tuple[int, bytes]:
        """Return exit code and output of a process."""
        stream = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        reading = asyncio.create_task(self._read(stream), name="plugin output")
        ending = asyncio.create_task(process.wait(), name="plugin end")
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                # What it has started and left behind may hold its output open.
                _end_group(process)
            printed = await reading
            return await ending, printed
        finally:
            reading.cancel()
            ending.cancel()
            transport.close()

    async def _read(self, output: asyncio.StreamReader) -> bytes:
        printed = bytearray()
        while piece := await output.read(65536):
            printed += piece
            if len(printed) > OUTPUT_LIMIT:
                raise self._failure(f"it printed more than {OUTPUT_LIMIT // 1024} KiB")
        return bytes(printed)

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


def _end_group(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
