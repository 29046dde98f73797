"""The serving certificate: from files, which are loaded again when they change, or self-signed and in memory only.

A private key made here never touches a disk: the process that creates it prints it into a pipe.
"""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError, CredentialError
from harvester_ccm.kube.connection import load_certificate, read_all, read_bytes

ISSUE_TIMEOUT_SECONDS: Final = 30.0
_ISSUER: Final = Path(__file__).with_name("issuer.py")
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

log = structlog.get_logger(__name__)


class ServingCertificate:
    """A TLS context whose certificate follows its files."""

    def __init__(self, settings: ServerSettings) -> None:
        self._files = tuple(filter(None, (settings.certificate, settings.key)))
        self._min_version = _VERSIONS[settings.min_tls]
        self._loaded = read_all(self._files)
        self.context: ssl.SSLContext
        """For new connections; set by ``load``."""

    async def load(self) -> None:
        """Load or create the certificate. Raises ConfigurationError."""
        try:
            self.context = self._read() if self._files else self._new_context(await asyncio.to_thread(_issue))
        except CredentialError as error:
            raise ConfigurationError([f"--tls-cert-file, --tls-private-key-file: {error}"]) from error

    def refresh(self) -> None:
        """Load changed files. If they cannot be used, log the reason and keep the old certificate."""
        current = read_all(self._files)
        if current == self._loaded:
            return
        self._loaded = current
        try:
            self.context = self._read()
        except CredentialError as error:
            log.warning("serving certificate not reloaded", error=str(error))
        else:
            log.info("serving certificate reloaded", file=str(self._files[0]))

    def _read(self) -> ssl.SSLContext:
        try:
            return self._new_context(b"\n".join(map(read_bytes, self._files)))
        except OSError as error:
            # OpenSSL reports some encrypted keys as "invalid argument".
            reason = (getattr(error, "reason", "") or "not PEM").replace("_", " ").lower()
            problem = f"the files are not an unencrypted PEM certificate and its key: {reason}"
            raise CredentialError(problem) from error

    def _new_context(self, pem: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._min_version
        # TLS 1.2: forward secrecy and authenticated encryption only. The suites of TLS 1.3 are always on.
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
        context.set_alpn_protocols(["http/1.1"])
        load_certificate(context, pem)
        return context


def _issue() -> bytes:
    """Return a new key and certificate. Raises ConfigurationError."""
    try:
        # -P: no file in the current directory can replace a library that the issuer imports.
        command = [sys.executable, "-P", str(_ISSUER)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=ISSUE_TIMEOUT_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        way_out = "give --tls-cert-file and --tls-private-key-file, or --secure-port=0 for no server"
        raise ConfigurationError([f"no self-signed certificate could be made: {error}; {way_out}"]) from error
