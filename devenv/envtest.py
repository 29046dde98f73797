"""The published envtest archive: etcd, kube-apiserver and kubectl, built by the Kubernetes project for tests.

It is used only where its checksum is pinned here, so that what runs is what was reviewed.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tarfile
import tempfile
import threading
import urllib.request
from concurrent.futures import Future
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO

from devenv.process import DevenvError

VERSION = "v1.35.0"
RELEASE = f"envtest-{VERSION}"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")

CONNECT_SECONDS = 3.0
READ_SECONDS = 30.0
_URL = "https://github.com/kubernetes-sigs/controller-tools/releases/download/{release}/{release}-{platform}.tar.gz"
_SHA512 = {
    "linux-amd64": (
        "130369c16f076e724d089189afaede960316f5f5dea6cf57be7a4fc6f09c7734"
        "2893192509790e4056e116e232dff832ed863f5bd55dcb55d38f3ab834828a11"
    ),
}


class UnavailableError(DevenvError):
    """Raised when the archive cannot be had or is not the one that was reviewed."""


def fetch(directory: Path, platform: str) -> None:
    """Download, check and unpack the programs for ``platform`` into ``directory``.

    Raises UnavailableError with the reason, within a few seconds where there is no network.
    """
    if platform not in _SHA512:
        raise UnavailableError(f"no checksum is pinned for {platform}")
    url = _URL.format(release=RELEASE, platform=platform)
    try:
        _probe(url)
        with tempfile.TemporaryFile() as archive:
            checksum = _download(url, archive)
            if checksum != _SHA512[platform]:
                raise UnavailableError(f"{url} has SHA-512 {checksum}, expected {_SHA512[platform]}")
            _unpack(archive, directory)
    except (OSError, HTTPException, tarfile.TarError) as error:
        raise UnavailableError(f"cannot fetch {url}: {error}") from error
    if missing := [one for one in PROGRAMS if not (directory / one).exists()]:
        raise UnavailableError(f"{url} has no {', '.join(missing)}")


def _probe(url: str) -> None:
    """Raise OSError soon when ``url`` cannot be reached. Name resolution has no time limit of its own."""
    answer: Future[None] = Future()

    def attempt() -> None:
        try:
            urllib.request.urlopen(url, timeout=CONNECT_SECONDS).close()  # noqa: S310 - constant https
        except Exception as error:  # handed to the caller, who waits for it
            answer.set_exception(error)
        else:
            answer.set_result(None)

    threading.Thread(target=attempt, name="devenv-envtest-probe", daemon=True).start()
    try:
        answer.result(2 * CONNECT_SECONDS)
    except TimeoutError as error:
        raise OSError(f"no answer within {2 * CONNECT_SECONDS:g} s") from error


def _download(url: str, archive: IO[bytes]) -> str:
    print(f"downloading {url}", file=sys.stderr, flush=True)
    digest = hashlib.sha512()
    with urllib.request.urlopen(url, timeout=READ_SECONDS) as response:  # noqa: S310 - constant https
        while chunk := response.read(1 << 20):
            digest.update(chunk)
            archive.write(chunk)
    archive.seek(0)
    return digest.hexdigest()


def _unpack(archive: IO[bytes], directory: Path) -> None:
    with tarfile.open(fileobj=archive, mode="r:gz") as members:
        for member in members:
            name = PurePosixPath(member.name).name
            content = members.extractfile(member) if name in PROGRAMS else None
            if content is not None:
                with contextlib.closing(content), (directory / name).open("wb") as program:
                    shutil.copyfileobj(content, program)
                (directory / name).chmod(0o755)
