"""The token goes to a port only where the process beside the command listens on it, and nobody else does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from harvester_ccm.commands.beside import RunningProgram
from harvester_ccm.commands.clusters import Asked
from harvester_ccm.commands.reach import listens, status_of, why_not
from harvester_ccm.errors import Unreachable
from harvester_ccm.flags import parse_command_line
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import TokenSource
from harvester_ccm.status.document import Status

OURS = Path("/proc/self")


class Untouched(TokenSource):
    """A token that must not be asked for."""

    def get(self) -> str | None:
        raise AssertionError("the token was asked for")

    def forget(self) -> None:
        raise AssertionError("the token was refused")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_port_that_the_process_listens_on(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        port = listening.getsockname()[1]
        assert listens(OURS, port)
        # Process 1 of this machine does not, and what it does is not seen by everybody.
        assert not listens(Path("/proc/1"), port)
    assert not listens(OURS, port)


def test_a_port_that_somebody_else_listens_on_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine, socket.create_server(("127.0.0.1", 0)) as theirs:
        port = mine.getsockname()[1]
        rows = (OURS / "net" / "tcp").read_text().splitlines()
        own = next(row for row in rows if row.split()[9] == str(os.fstat(mine.fileno()).st_ino))
        other = next(row for row in rows if row.split()[9] == str(os.fstat(theirs.fileno()).st_ino))
        process = tmp_path / "1"
        (process / "net").mkdir(parents=True)
        (process / "fd").mkdir()
        (process / "fd" / "3").symlink_to(f"socket:[{os.fstat(mine.fileno()).st_ino}]")
        (process / "net" / "tcp").write_text("\n".join([rows[0], own]) + "\n")
        assert listens(process, port)
        both = other.replace(other.split()[1], own.split()[1])
        (process / "net" / "tcp").write_text("\n".join([rows[0], own, both]) + "\n")
        assert not listens(process, port)


@pytest.mark.parametrize("port", ["0", "1"])
async def test_nobody_is_shown_the_token_where_the_program_does_not_listen(port: str) -> None:
    program = RunningProgram(OURS, parse_command_line([f"--secure-port={port}"]))
    asked = await status_of(program, Credentials("https://127.0.0.1:1", "", None, Untouched()))
    assert asked == Asked()


def test_why_the_program_was_not_asked() -> None:
    assert why_not(Asked()) == ""
    status = Status(observed="", cluster="demo", namespace="vms")
    assert "does not lead" in why_not(Asked(answer=status))
    said = why_not(Asked(error=Unreachable("no answer")))
    assert said == "the running program gave no status, what follows is from lists: no answer"
