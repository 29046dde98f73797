"""Where a bearer token comes from: a fixed text, a file that is rotated, or a credential plugin.

A source is called for every request and keeps what it got for as long as it is good; ``forget`` makes it fetch a new
one. Every problem is a CredentialError. Nothing read here is ever logged.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from harvester_ccm.errors import CredentialError

TOKEN_FILE_LIFETIME: Final = 60.0
"""Seconds for which a token read from a file is used before the file is read again."""
EARLY_SECONDS: Final = 30.0
"""So long before a token of a plugin expires a new one is asked for."""

Section = Mapping[str, object]
"""A mapping of a kubeconfig as it was read."""
TokenSource = Callable[[], str | None]


def read_text(path: Path) -> str:
    """Return the text of a file. Raises CredentialError with a sentence that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CredentialError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise CredentialError(
            f"{path}: is a directory, not a file; the host path probably did not exist when it was mounted"
        ) from None
    except PermissionError:
        raise CredentialError(
            f"{path}: not readable by user {os.geteuid()}; check owner, mode and SELinux label"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialError(f"{path}: cannot be read: {error.__class__.__name__}") from error


class FixedToken:
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self) -> str | None:
        return self._token

    def forget(self) -> None:
        """There is no other one."""


class FileToken:
    """A token that the kubelet rotates in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        now = time.monotonic()
        if now - self._read_at >= TOKEN_FILE_LIFETIME:
            self._token = read_text(self._path).strip()
            self._read_at = now
        return self._token

    def forget(self) -> None:
        """Read the file again next time."""
        self._read_at = float("-inf")


class ExecToken:
    """A token that a credential plugin prints (client.authentication.k8s.io). May be called from many threads."""

    def __init__(self, path: Path, plugin: Section, cluster: Section) -> None:
        self._path = path
        self._plugin = dict(plugin)
        self._cluster = dict(cluster)
        self._lock = threading.Lock()
        self._token: str | None = None
        self._valid_until = float("-inf")

    def __call__(self) -> str | None:
        with self._lock:
            if time.time() >= self._valid_until:
                status = self._ask()
                token = status.get("token")
                if not isinstance(token, str) or not token:
                    raise self._failure("it printed no token; plugins that hand out client certificates do not work")
                self._token = token
                self._valid_until = _expiry(status.get("expirationTimestamp"))
            return self._token

    def forget(self) -> None:
        """Ask the plugin next time."""
        self._valid_until = float("-inf")

    def _ask(self) -> Section:
        # Loaded here only: the package is large and nearly nobody uses plugins.
        from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415
        from kubernetes.config.exec_provider import ExecProvider  # noqa: PLC0415
        from kubernetes.config.kube_config import ConfigNode  # noqa: PLC0415

        try:
            node = ConfigNode("exec", self._plugin, str(self._path))  # type: ignore[no-untyped-call]  # untyped package
            cluster = ConfigNode("cluster", self._cluster, str(self._path))  # type: ignore[no-untyped-call]  # untyped package
            provider = ExecProvider(node, str(self._path.parent), cluster)  # type: ignore[no-untyped-call]  # untyped package
            status = provider.run()  # type: ignore[no-untyped-call]  # untyped package
        except ConfigException as error:
            # What the plugin itself printed stands behind the first full stop and may be anything.
            raise self._failure(str(error).partition(". ")[0].removeprefix("exec: ")) from None
        except (OSError, TypeError, AttributeError, KeyError) as error:
            raise self._failure(error.strerror if isinstance(error, OSError) else error.__class__.__name__) from error
        return cast("Section", status) if isinstance(status, dict) else {}

    def _failure(self, why: str | None) -> CredentialError:
        return CredentialError(f"{self._path}: credential plugin {self._plugin.get('command')!r} failed: {why}")


def _expiry(timestamp: object) -> float:
    """Return when to ask the plugin again, as seconds since the epoch: a little before the token expires."""
    if not isinstance(timestamp, str):
        return float("inf")
    try:
        return datetime.fromisoformat(timestamp).timestamp() - EARLY_SECONDS
    except ValueError:
        return time.time() + TOKEN_FILE_LIFETIME
