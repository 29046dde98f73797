"""The serving certificate: from files, which are read again when they change, or self-signed and in memory only.

A private key made here never touches a disk: it comes through a pipe.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError, CredentialError
from harvester_ccm.kube.credential_files import Fingerprint, fingerprint, load_certificate, read_bytes

LOOK_SECONDS: Final = 10.0
"""Shortest time between two looks whether the files have changed."""
ISSUE_SECONDS: Final = 30.0
"""Time limit for making a certificate."""
_ISSUER: Final = Path(__file__).with_name("issuer.py")
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

log = structlog.get_logger(__name__)


class ServingCertificate:
    """A TLS context whose certificate follows its files."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._loaded: tuple[Fingerprint, ...] = ()
        self._looked_at = float("-inf")
        self.context = _context(settings)
        """To be used for every connection; stays the same object."""

    async def load(self) -> None:
        """Have a certificate. Raises ConfigurationError when the files cannot be used, or none could be made."""
        settings = self._settings
        if settings.certificate is None or settings.key is None:
            load_certificate(self.context, await asyncio.to_thread(_issue, _hosts(settings.bind_address)))
            return
        try:
            self._loaded = fingerprint(settings.certificate, settings.key)
            self._load_files(settings.certificate, settings.key)
        except (CredentialError, OSError) as error:
            raise ConfigurationError([f"--tls-cert-file, --tls-private-key-file: {_explain(error)}"]) from error

    def refresh(self) -> None:
        """Load the files again if they changed; what cannot be used is logged, and the old certificate stays."""
        certificate, key = self._settings.certificate, self._settings.key
        now = time.monotonic()
        if certificate is None or key is None or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        current = fingerprint(certificate, key)
        if current == self._loaded:
            return
        self._loaded = current
        try:
            self._load_files(certificate, key)
        except (CredentialError, OSError) as error:
            log.warning("serving certificate not reloaded, the old one is used", error=_explain(error))
        else:
            log.info("serving certificate reloaded", file=str(certificate))

    def _load_files(self, certificate: Path, key: Path) -> None:
        pem = read_bytes(certificate) + b"\n" + read_bytes(key)
        # A pair that does not fit would leave half of it in the context that is in use.
        load_certificate(_context(self._settings), pem)
        load_certificate(self.context, pem)


def _context(settings: ServerSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_tls]
    # Of TLS 1.2: forward secrecy and authenticated encryption. The suites of TLS 1.3 are always on.
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.set_alpn_protocols(["http/1.1"])
    return context


def _explain(error: CredentialError | OSError) -> str:
    if isinstance(error, CredentialError):
        return str(error)
    # OpenSSL says of some encrypted keys no more than "invalid argument".
    reason = (getattr(error, "reason", "") or "not PEM").replace("_", " ").lower()
    return f"the files are not an unencrypted PEM certificate and its key: {reason}"


def _hosts(bind_address: str) -> tuple[str, ...]:
    """Return the names under which this server is reached, as far as they are known."""
    always = ("localhost", "127.0.0.1", "::1", socket.gethostname())
    wildcards = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
    return always if bind_address in (*always, *wildcards) else (*always, bind_address)


def _issue(hosts: Iterable[str]) -> bytes:
    """Return a new key and certificate. Raises ConfigurationError."""
    try:
        # -P: nothing beside the program itself may stand in for a library that it imports.
        done = subprocess.run(
            [sys.executable, "-P", str(_ISSUER), *hosts],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ISSUE_SECONDS,
        )
        last_line = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        problem = "" if done.returncode == 0 else last_line or f"exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        way_out = "give --tls-cert-file and --tls-private-key-file, or --secure-port=0 for no server"
        raise ConfigurationError([f"no self-signed certificate could be made: {problem}; {way_out}"])
    return done.stdout
