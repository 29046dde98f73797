"""The status of the running program beside a command, over its own port.

Only a leader's is used: what others know of the whole is no more than lists show. The certificate of that port is most
often one that nobody can verify, so the token is sent only to a socket on which that very process listens: then nobody
else gets it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harvester_ccm.commands.beside import RunningProgram
from harvester_ccm.commands.clusters import Asked, ask
from harvester_ccm.errors import UnexpectedAnswer
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.status.document import API_VERSION, Status, decode

PATH: Final = "/status"
_LISTENS: Final = "0A"
"""State of a listening socket in /proc/net/tcp."""
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104 - looked up, not bound


async def status_of(program: RunningProgram, guest: Credentials) -> Asked[Status]:
    """Return what the program answers; neither answer nor error where it serves nothing that can be trusted.

    ``guest`` has the token to show: the program asks the guest's API server who that is.
    """
    port = program.flags.read("secure-port", int)
    if not port or not listens(program.directory, port):
        return Asked()
    bound = program.flags.text("bind-address")
    host = _ANYWHERE.get(bound, f"[{bound}]" if ":" in bound else bound)
    credentials = Credentials(f"https://{host}:{port}", "", _unverified(), guest.token, origin=guest.origin)
    async with ApiClient(credentials, cluster="program") as client:
        return await ask(_read(client))


async def _read(client: ApiClient) -> Status:
    body = await client.request("GET", PATH)
    try:
        status = decode(body)
    except msgspec.MsgspecError as error:
        raise UnexpectedAnswer(f"its answer to {PATH} cannot be read: {error}") from error
    if status.api_version != API_VERSION:
        raise UnexpectedAnswer(f"its answer to {PATH} is {status.api_version}; expected {API_VERSION}")
    return status


def why_not(asked: Asked[Status]) -> str:
    """Return why the answer of the program is not what is shown; empty where it is, or none was asked."""
    error, status = asked.error, asked.answer
    if error is not None:
        return f"the running program gave no status, what follows is from lists: {error}"
    if status is not None and status.services is None:
        return "the program in this pod does not lead, what follows is from lists"
    return ""


def listens(process: Path, port: int) -> bool:
    """Return whether a process listens on a TCP port, and nobody else does. ``process`` is its directory in /proc."""
    sockets = {f"socket:[{inode}]" for inode in _listening(process, port)}
    return bool(sockets) and sockets <= set(_open_files(process))


def _listening(process: Path, port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port in the process's network namespace."""
    for table in ("tcp", "tcp6"):
        try:
            rows = (process / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in map(str.split, rows):
            if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port:
                yield row[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        try:
            yield str(descriptor.readlink())
        except OSError:
            # Closed meanwhile.
            continue


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
