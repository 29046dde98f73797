"""What an operator sees on a plain terminal of 80 columns and in a pipe, as files that a person can read.

``transcripts`` has a file for each; HARVESTER_CCM_RENEW_SNAPSHOTS=1 writes them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.support.terminal import on_terminal
from tests.unit.commands import clusters, objects
from tests.unit.commands.test_status import balancer, ready_node, served

DIRECTORY = Path(__file__).with_name("transcripts")
SECONDS = 250.0
"""Until a command counts as hanging, on a busy machine."""
PROGRAM = (sys.executable, "-m", "harvester_ccm")
WORDS = {
    "status": ("status",),
    "preflight": ("preflight",),
    "explain": ("explain", "svc/full", "-n", "shop"),
    "explain-node": ("explain", "node/w1"),
    "healthy": ("status",),
}
PROGRESS = "harvester-ccm: waiting for "
"""Beginning of lines that a busy machine adds."""
VARIABLE = ((r"127\.0\.0\.1:\d+", "127.0.0.1:NNNNN"), (r"\b\d+[dy]\b", "5d"))


def many_states() -> list[objects.Json]:
    """Return a Service that works, one without an address, one of another controller, and a Node."""
    marked = objects.balancer(
        of="shop/full",
        uid="2",
        message="fail to get ip from pool tiny, error: no IP addresses available in range set: 10.9.0.1-10.9.0.2",
    )
    full = objects.service("full", uid="2", finalizers=["service.kubernetes.io/load-balancer-cleanup"])
    other = objects.service("other", uid="3", loadBalancerClass="io.cilium/l2-announcer")
    return [full, marked, other]


@pytest.fixture
def flags(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    working = [served(), balancer(), ready_node(), objects.machine(), objects.on_host("host-2")]
    documents = working if "healthy" in request.node.name else [*working, *many_states()]
    of_harvester = [
        one for one in documents if one["kind"] in ("LoadBalancer", "VirtualMachine", "VirtualMachineInstance")
    ]
    of_guest = [
        objects.home(),
        objects.lease(),
        objects.endpoint_slice(),
        *(one for one in documents if one not in of_harvester),
    ]
    guest = LoopbackApi(of_guest, clusters.GUEST_GROUPS)
    with two_clusters(guest, LoopbackApi(of_harvester, clusters.HARVESTER_GROUPS), tmp_path, objects.VMS) as given:
        # The length of an absolute path would decide where lines end.
        yield [flag.replace(f"{tmp_path}/", "") for flag in given]


def compare(name: str, text: str) -> None:
    """Compare a text with its file, or write that."""
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(PROGRESS))
    for pattern, replacement in VARIABLE:
        text = re.sub(pattern, replacement, text)
    file = DIRECTORY / f"{name}.txt"
    if os.environ.get("HARVESTER_CCM_RENEW_SNAPSHOTS"):
        DIRECTORY.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", WORDS)
def test_terminal_without_features(flags: list[str], tmp_path: Path, name: str) -> None:
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb"}
    with on_terminal([*PROGRAM, *WORDS[name], *flags], environment, size=(24, 80), cwd=tmp_path) as terminal:
        text = terminal.text(within=SECONDS)
    assert "\x1b" not in text
    lines = [line for line in text.splitlines() if not line.startswith(PROGRESS)]
    assert max(map(len, lines)) <= 80
    compare(f"{name}-dumb-80", text)


def test_pager(flags: list[str], tmp_path: Path) -> None:
    """``| less`` gets whole lines, which can be searched, without control characters."""
    order = [*PROGRAM, *WORDS["status"], *flags]
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm-256color"}
    shown = subprocess.run(order, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert shown.returncode == 1
    assert "\x1b" not in shown.stdout
    compare("status-pipe", shown.stdout)
