"""The live demo without servers: what is seen of documents, what is drawn of it, and the film that is made of that."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from benchmarks.scenarios import GO_BULK_SECONDS_EACH
from devenv.demo.live.acts import GO_SECONDS, HOW_MANY
from devenv.demo.live.board import Board, Mark
from devenv.demo.live.film import Film
from devenv.demo.live.performance import fits
from devenv.demo.live.screen import View, command, draw
from devenv.watch import Document
from harvester_ccm.names import LB_SERVICE_NAME, LOAD_BALANCER_READY

ROOT = Path(__file__).parents[2]
REASON = "Annotation cloudprovider.harvesterhci.io/ipam is 'dchp'; expected pool or dhcp"
MOST_BYTES = 600_000
"""Of the picture in README."""


def service(name: str, *, address: str = "", refused: str = "", leaving: bool = False) -> Document:
    conditions = [{"type": LOAD_BALANCER_READY, "status": "False", "message": refused}] if refused else []
    ingress = [{"ip": address}] if address else []
    return {
        "metadata": {"name": name, "namespace": "default", **({"deletionTimestamp": "now"} if leaving else {})},
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions},
    }


def balancer(name: str, *, address: str = "") -> Document:
    allocated = {"ip": address, "ipPool": "lan"} if address else {}
    return {
        "metadata": {"name": f"demo-default-{name}", "namespace": "default", "labels": {LB_SERVICE_NAME: name}},
        "spec": {"ipam": "pool"},
        "status": {"address": address, "allocatedAddress": allocated},
    }


@pytest.fixture
def board() -> Board:
    """One Service that is served, one that was told why it waits, and a crowd of twenty-five."""
    seen = Board()
    for name in ("web", "store", *(f"crowd-{number}" for number in range(25))):
        seen.ask(name, 10.0)
    seen.see_service(None, service("web", address="127.77.0.1"), 10.043)
    seen.see_service(None, service("store", refused=REASON), 10.1)
    seen.see_balancer(None, balancer("web", address="127.77.0.1"))
    seen.see_balancer(None, balancer("crowd-3"))
    seen.see_pool(None, {"metadata": {"name": "lan"}, "status": {"allocated": {"127.77.0.1": "default/demo"}}})
    return seen


def test_board_follows_a_service() -> None:
    board, marks = Board(), []
    board.ask("store", 10.0)
    steps = [
        (service("store"), 10.01),
        (service("store", refused=REASON), 10.02),
        (service("store", address="127.77.0.1"), 12.5),
        (service("store", address="127.77.0.2"), 13.0),
        (service("store", address="127.77.0.2", leaving=True), 14.0),
    ]
    for document, at in steps:
        board.see_service(None, document, at)
        line = board.services["store"]
        marks.append((line.mark, line.reason))
    assert marks == [
        (Mark.ASKED, ""), (Mark.WAITING, REASON), (Mark.SERVED, ""), (Mark.SERVED, ""), (Mark.LEAVING, ""),
    ]  # fmt: skip
    assert line.took == 2.5
    board.see_service(document, None, 15.0)
    assert board.services == {}


def test_board_leaves_services_of_other_types_out() -> None:
    board = Board()
    board.see_service(None, {"metadata": {"name": "kubernetes"}, "spec": {"type": "ClusterIP"}}, 1.0)
    assert board.services == {}


def test_board_counts_what_harvester_has(board: Board) -> None:
    assert (len(board.balancers), board.booked) == (2, 1)
    board.see_balancer(balancer("crowd-3"), None)
    board.see_pool({"metadata": {"name": "lan"}}, {"metadata": {"name": "lan"}, "status": {}})
    assert (len(board.balancers), board.booked) == (1, 0)


def drawn(view: View, width: int, height: int) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, force_terminal=True, no_color=True, _environ={})
    console.print(draw(view, width=width, height=height), end="")
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_screen_fits_the_terminal(board: Board, width: int, height: int) -> None:
    foot = [command("kubectl events"), Text("a sentence that is longer than a line is " * 10)]
    text = drawn(View("Title", "What is seen.", 12.3, board, "crowd-", "Foot", foot), width, height)
    lines = text.splitlines()
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}
    for words in ("Title", "12.3 s", "What is seen.", "1 of 27 Services", "2 LBs, 1 addresses", "$ kubectl events"):
        assert words in text
    assert re.search(r"● web +127\.77\.0\.1 +43 ms", text)
    assert re.search(r"◐ store +Annotation", text)
    assert re.search(r"● 127\.77\.0\.1 +lan +demo-default-web", text)
    assert text.count("○") == 26


def test_film_needs_nothing_from_elsewhere(board: Board) -> None:
    film = Film()
    for number in range(3):
        film.take(draw(View(f"Title {number}", "<&>", 0.0, board), width=100, height=30), 2.0)
    svg = film.svg("three <frames>")
    root = ET.fromstring(svg)  # noqa: S314 - ours
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "three <frames>"
    assert svg.count("http") == 1
    assert "url(" not in svg
    height = float(root.attrib["viewBox"].split()[3])
    moves = re.findall(r"([\d.]+)% \{ transform: translateY\((-?[\d.]+)px\)", svg)
    assert [(at, float(to) / -height) for at, to in moves] == [("0.00", 0), ("33.33", 1), ("66.67", 2)]
    # What plays no animation shows the last frame.
    assert f".strip {{ transform: translateY({-2 * height:g}px); }}" in svg
    assert all(f"Title {number}" in svg for number in range(3))


def test_picture_of_the_readme() -> None:
    picture = ROOT / "docs" / "images" / "demo.svg"
    svg = picture.read_text()
    ET.fromstring(svg)  # noqa: S314 - ours
    assert len(svg) < MOST_BYTES
    assert svg.count("http") == 1 + svg.count("curl http") + svg.count(">http")
    assert "url(" not in svg
    assert str(Path.home()) not in svg
    assert "0 load balancers, 0 addresses left" in svg
    assert "](docs/images/demo.svg)" in (ROOT / "README.md").read_text()


def test_number_of_the_go_provider_is_the_recorded_one() -> None:
    assert round(GO_BULK_SECONDS_EACH * HOW_MANY) == GO_SECONDS
    assert re.search(rf"^\| {HOW_MANY} Services at once\b.*\| {GO_SECONDS} s \|$", _benchmarks(), re.MULTILINE)


def _benchmarks() -> str:
    return (ROOT / "docs" / "benchmarks.md").read_text()


def test_live_demo_is_for_terminals_that_are_large_enough() -> None:
    def console(width: int, height: int, **options: bool) -> Console:
        return Console(file=io.StringIO(), width=width, height=height, _environ={"TERM": "xterm"}, **options)  # type: ignore[arg-type]

    assert fits(console(80, 24, force_terminal=True))
    assert not fits(console(79, 24, force_terminal=True))
    assert not fits(console(80, 24))
