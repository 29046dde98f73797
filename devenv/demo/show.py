"""The demo on a terminal, and as a film: both clusters side by side while Services come, wait, and survive a crash.

An act makes something happen, waits until it is observed, and leaves time to read. On a film a pause is one frame; in
plain lines there is no pause.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from devenv.announcement import DHCP_ADDRESS
from devenv.background import Background, Job
from devenv.ccm import DEFAULT_FLAGS, CcmProcess
from devenv.demo.film import SIZE, Film
from devenv.demo.play import PORT, Voice, expect, open_stage, took
from devenv.demo.requests import ask, ask_once
from devenv.eyes import addresses_in
from devenv.harvester.records import LOAD_BALANCERS, POOLS, SERVICES
from devenv.stage import Scene, Stage
from devenv.watch import Document, Mirror, labels_of
from harvester_ccm.names import IPAM, LB_SERVICE_NAME, LOAD_BALANCER_READY, Reason

TITLE: Final = "harvester-ccm serving Services of a guest cluster from Harvester, surviving its leader, leaving nothing"
SMALLEST: Final = (80, 24)
"""Columns and lines that a terminal must have."""
HEAD_LINES, FOOT_LINES = 4, 10
READING: Final = 3.0
"""Seconds to read what is new."""
SECONDS: Final = 120.0
"""Longest time that an act waits for anything."""
POLL_SECONDS: Final = 0.02
FRAME_SECONDS: Final = 0.3
"""Time for which a film shows a frame that was taken while something happened."""
FIRST: Final = {"web": "", "shop": "", "dns": "", "wiki": "dhcp"}
"""Services of the first act, with their IPAM; empty for an IP pool."""
TYPO, WRONG, RIGHT = "store", "dchp", "dhcp"
LATE: Final = "late"
"""The Service that is created while there is no leader."""
CROWD: Final = "crowd-"
HOW_MANY: Final = 100
GO_SECONDS: Final = 103
"""The Go provider's recorded time for this many; docs/contributing/benchmarks.md has its source."""
BAR: Final = 50
WARM_UP: Final = 50
"""Requests that are answered before the leader is killed."""
PATIENCE: Final = 30.0
"""Seconds for one request of the traffic."""


def fits(console: Console) -> bool:
    """Return whether the show can be seen on this console."""
    is_large = console.width >= SMALLEST[0] and console.height >= SMALLEST[1]
    return console.is_terminal and not console.is_dumb_terminal and is_large


async def perform(scene: Scene, directory: Path, console: Console, film: Film | None) -> list[str]:
    """Show all acts on the console, or take them on a film; return what was measured."""
    async with open_stage(scene, directory) as stage:
        if film is not None:
            return await play(Show(stage, film, stage.run))
        with Live(console=console, screen=True, auto_refresh=False) as live:
            return await play(Show(stage, live, stage.run))


async def play(show: Show) -> list[str]:
    """Show all acts and return what was measured, one sentence each."""
    async with show:
        for act in (serve, mistake, crowd, crash, leave):
            await act(show)
        sentences = [Text.assemble(("● ", "green"), sentence) for sentence in show.summary]
        show.begin(
            "That was harvester-ccm", "Real API servers, the real program. Harvester's controllers are emulated."
        )
        show.foot("Measured in this run", *sentences)
        await show.pause(2 * READING)
    return show.summary


class Show:
    """The running scene and its screen. Use as an async context manager."""

    def __init__(self, stage: Stage, screen: Live | Film | Voice, start: Callable[[], CcmProcess]) -> None:
        """``start`` starts the program on the stage."""
        self.stage = stage
        self.start = start
        self.leader = start()
        self.summary: list[str] = []
        self.services = Mirror(stage.guest, SERVICES, namespace="default")
        self.balancers = Mirror(stage.host, LOAD_BALANCERS)
        self.pools = Mirror(stage.host, POOLS)
        self.services.subscribe(self._note_time)
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.created: dict[str, float] = {}
        """When a Service, by name, was created, in seconds since the start."""
        self.seconds: dict[str, float] = {}
        """Seconds from the creation of a Service, by name, to its first address."""
        self._title = self._caption = self._foot_title = ""
        self._foot: Sequence[RenderableType] = ()
        mirrors = (self.services, self.balancers, self.pools)
        self._ready = [mirror.wait_synced for mirror in mirrors]
        refresh: list[Job] = [self._refresh] if isinstance(screen, Live) else []
        self._background = Background("show", [*(mirror.run for mirror in mirrors), *refresh])

    async def __aenter__(self) -> Self:
        await self._background.start(self._ready, within=SECONDS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._background.stop()

    @property
    def now(self) -> float:
        """Seconds since the start of the show."""
        return self._loop.time() - self._began

    def begin(self, title: str, caption: str, legend: str = "") -> None:
        """Begin an act. ``legend`` explains the picture, and is no part of plain lines."""
        self._title, self._caption = title, f"{caption}\n{legend}".rstrip()
        self._foot_title, self._foot = "", ()
        if isinstance(self._screen, Voice):
            self._screen.headline(title)
            self._screen.say(caption)

    def foot(self, title: str, *lines: Text | str, changing: bool = False) -> None:
        """Replace the lines below both clusters. Plain lines leave out those that are ``changing`` all the time."""
        self._foot_title, self._foot = title, lines
        if isinstance(self._screen, Voice) and not changing:
            self._screen.say(f"{title}:")
            for line in lines:
                self._screen.say(str(line))

    async def pause(self, seconds: float) -> None:
        """Leave time to read."""
        if isinstance(self._screen, Film):
            self._screen.take(self.picture(SIZE), seconds)
        elif isinstance(self._screen, Live):
            await asyncio.sleep(seconds)

    async def see(self, condition: Callable[[], object], what: str, *, frames: float = 0.0) -> None:
        """Return once the condition holds. Raises TimeoutError that names ``what``.

        A film gets frames meanwhile, the first two after ``frames`` seconds, later ones more rarely; none if that is 0.
        """
        due, end = self.now, self.now + SECONDS
        while not condition():
            if self.now > end:
                raise TimeoutError(f"not within {SECONDS:g} s: {what}")
            if frames and isinstance(self._screen, Film) and self.now >= due:
                self._screen.take(self.picture(SIZE), FRAME_SECONDS)
                due, frames = self.now + frames, 1.5 * frames
            await asyncio.sleep(POLL_SECONDS)

    async def create(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Create a Service as a user would; its time starts now."""
        self.created[name] = self.now
        await self.stage.create_service(name, ports=[{"name": "http", "port": PORT}], annotations=annotations)

    def address(self, name: str) -> str:
        """Return the address of a Service; empty while it has none."""
        return next(iter(addresses_in(self.services.get(f"default/{name}") or {})), "")

    def load_balancers(self) -> list[Document]:
        """Return the Services of type LoadBalancer, newest first."""
        return [one for one in reversed(self.services.all()) if one["spec"].get("type") == "LoadBalancer"]

    def booked(self) -> int:
        """Return the number of allocated addresses in all pools."""
        return sum(len((pool.get("status") or {}).get("allocated") or {}) for pool in self.pools.all())

    def _note_time(self, _before: Document | None, after: Document | None) -> None:
        if after is not None and addresses_in(after):
            name = after["metadata"]["name"]
            self.seconds.setdefault(name, self.now - self.created.get(name, self.now))

    async def _refresh(self) -> None:
        assert isinstance(self._screen, Live)
        while True:
            began = self._loop.time()
            console = self._screen.console
            self._screen.update(self.picture((console.width, console.height)), refresh=True)
            # Drawing must not take the machine from what is shown.
            await asyncio.sleep(max(0.1, 5 * (self._loop.time() - began)))

    def picture(self, size: tuple[int, int]) -> RenderableType:
        """Return what the screen shows now."""
        services, balancers = self.load_balancers(), list(reversed(self.balancers.all()))
        served = sum(bool(addresses_in(one)) for one in services)
        title = f"{self._title} [bright_black]{self.now:.1f} s"
        columns = (size[0] // 2 - 4) // 2 * 2
        guest = _column(services, lambda one: one["metadata"]["name"], self._service, columns)
        harvester = _column(balancers, lambda one: labels_of(one).get(LB_SERVICE_NAME, ""), _balancer, columns)
        body = Layout()
        body.split_row(
            Layout(_panel(f"Guest: {served} of {len(services)} Services served", *guest)),
            Layout(_panel(f"Harvester: {len(balancers)} LBs, {self.booked()} addresses", *harvester)),
        )
        screen = Layout()
        screen.split_column(
            Layout(_panel(title, self._caption, style="cyan"), size=HEAD_LINES),
            body,
            Layout(_panel(self._foot_title, *self._foot), size=FOOT_LINES if size[1] > SMALLEST[1] else FOOT_LINES - 2),
        )
        return screen

    def _service(self, service: Document) -> Sequence[RenderableType]:
        name, addresses = service["metadata"]["name"], addresses_in(service)
        if addresses and not service["metadata"].get("deletionTimestamp"):
            seconds = self.seconds.get(name)
            text = Text.assemble((f"{addresses[0]:13}", "bold"), (f"{took(seconds) if seconds else '':>8}", "green"))
        else:
            text = Text(_reason(service) or "asked for", "yellow" if _reason(service) else "bright_black")
        return Text(*_dot(service)), name, text


def _panel(title: str, *lines: RenderableType, style: str = "bright_black") -> Panel:
    return Panel(Group(*lines), title=f"[bold]{title}[/]" if title else None, title_align="left", border_style=style)


def _column(
    documents: Sequence[Document],
    service_of: Callable[[Document], str],
    row: Callable[[Document], Sequence[RenderableType]],
    columns: int,
) -> Iterator[RenderableType]:
    """Yield the crowd as dots, and below it the others, one row each."""
    dots = [_dot(one) for one in documents if service_of(one).startswith(CROWD)]
    for first in range(0, len(dots), columns // 2):
        line = Text()
        # Dots of one color are one piece, which keeps the film small.
        for (dot, color), alike in groupby(dots[first : first + columns // 2]):
            line.append(f"{dot} " * len(list(alike)), color)
        yield line
    table = Table.grid(padding=(0, 1))
    for one in documents:
        if not service_of(one).startswith(CROWD):
            table.add_row(*row(one))
    yield table


def _dot(document: Document) -> tuple[str, str]:
    """Return the sign and the color of a Service or a load balancer."""
    if document["metadata"].get("deletionTimestamp"):
        return "◌", "bright_black"
    if addresses_in(document) or _allocated(document):
        return "●", "green"
    return ("◐", "yellow") if _reason(document) else ("○", "bright_black")


def _reason(service: Document) -> str:
    """Return why a Service has no address; empty if its condition does not say so."""
    for condition in (service.get("status") or {}).get("conditions") or ():
        if condition["type"] == LOAD_BALANCER_READY and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _allocated(balancer: Document) -> str:
    """Return the address of a load balancer; empty while it has none."""
    status = balancer.get("status") or {}
    found = (status.get("address"), (status.get("allocatedAddress") or {}).get("ip"))
    return next((one for one in found if one and one != DHCP_ADDRESS), "")


def _balancer(balancer: Document) -> Sequence[RenderableType]:
    pool = ((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ipPool")
    origin = "dhcp" if balancer["spec"].get("ipam") == "dhcp" else pool or ""
    name = Text(balancer["metadata"]["name"], no_wrap=True)
    return Text(*_dot(balancer)), Text(f"{_allocated(balancer):13}", "bold"), Text(origin, "bright_black"), name


def command(text: str, *more: str) -> Text:
    """Return a command line that a user would type, and what it prints."""
    return Text.assemble(("$ ", "bright_black"), (text, "bold"), *more)


async def serve(show: Show) -> None:
    """Serve some Services and send a request to each address."""
    show.begin(
        "Services get their addresses",
        "Three Services with an address from an IP pool of Harvester, one by DHCP.",
        "○ created   ◐ waits, and says why   ● has its address, after this time",
    )
    await show.pause(READING)
    for name, ipam in FIRST.items():
        await show.create(name, {IPAM: ipam} if ipam else None)
    await show.see(lambda: all(map(show.address, FIRST)), "addresses", frames=0.1)
    answers = []
    for name in FIRST:
        address = show.address(name)
        answer = await ask("TCP", address, PORT)
        expect(answer == f"default/{name}", f"{address} answered {answer!r}")
        answers.append(command(f"curl http://{address}:{PORT}/", f"    {answer}"))
    show.foot("Requests to the addresses", *answers)
    await show.pause(READING)


async def mistake(show: Show) -> None:
    """Make a mistake in an annotation, show its Event and its explanation, and correct it."""
    show.begin(
        "A typo in an annotation",
        f"Service {TYPO} requests {IPAM}: {WRONG}. A mistake becomes a Warning Event on the object.",
    )
    began = show.now
    await show.create(TYPO, {IPAM: WRONG})
    event = await show.stage.hears(TYPO, Reason.INVALID_ANNOTATION, within=SECONDS)
    reported = took(show.now - began)
    text = Text.assemble((f"{event.type}  {event.reason}  ", "yellow"), event.message)
    show.foot(f"{reported} later", command(f"kubectl events --for service/{TYPO}"), text)
    await show.pause(READING)
    show.foot("Its explanation", command(f"harvester-ccm explain svc/{TYPO}"), *await _explain(show, TYPO))
    await show.pause(READING)
    began = show.now
    await show.stage.change_service(TYPO, {"metadata": {"annotations": {IPAM: RIGHT}}})
    await show.see(lambda: show.address(TYPO), "the address after the correction")
    served = took(show.now - began)
    line = command(f"kubectl annotate --overwrite service {TYPO} {IPAM}={RIGHT}")
    show.foot(f"Served {served} after the correction", line)
    show.summary.append(f"A typo was reported {reported} after it was made; served {served} after its correction")
    await show.pause(READING)


async def _explain(show: Show, name: str) -> list[Text]:
    """Return the last lines that the command prints about a Service before its next writes."""
    scene = show.stage.scene
    flags = {
        "cloud-config": scene.cloud_config,
        "kubeconfig": scene.guest.admin_kubeconfig,
        "cluster-name": DEFAULT_FLAGS["cluster-name"],
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harvester_ccm", "explain", f"svc/{name}"),
        *(f"--{key}={value}" for key, value in flags.items()),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "94"},
    )
    output = (await process.communicate())[0].decode()
    expect("Reasons:" in output, f"explain shows no reason for Service {name}: {output}")
    return [Text(line) for line in output.partition("Next writes:")[0].rstrip().splitlines()[-6:]]


async def crowd(show: Show) -> None:
    """Create a hundred Services at once, with a stopwatch."""
    show.begin(
        f"{HOW_MANY} Services at once",
        "Harvester and kube-vip are emulated in this process: make bench measures without them.",
        "Each dot is a Service on the left, its load balancer on the right.",
    )
    names = [f"{CROWD}{number:03}" for number in range(HOW_MANY)]
    began = show.now

    def served() -> bool:
        show.foot("Stopwatch", *_bars(show.now - began, "so far"), changing=True)
        return all(name in show.seconds for name in names)

    await asyncio.gather(*map(show.create, names), show.see(served, f"{HOW_MANY} addresses", frames=1.0))
    # Each has the time of its own watch event.
    seconds = max(show.seconds[name] + show.created[name] for name in names) - began
    show.foot("Stopwatch", *_bars(seconds))
    show.summary.append(f"{HOW_MANY} Services served in {took(seconds)}; recorded of the Go provider: {GO_SECONDS} s")
    await show.pause(READING)


def _bars(seconds: float, note: str = "") -> list[Text]:
    """Return the time beside that of the Go provider."""
    length = max(round(BAR * seconds / GO_SECONDS), 1)
    return [
        Text.assemble(f"{'harvester-ccm':15}", ("█" * length, "green"), f" {seconds:.2f} s {note}"),
        Text.assemble(f"{'Go provider':15}", ("█" * BAR, "bright_black"), f" {GO_SECONDS} s"),
        Text("a recorded number: see docs/contributing/benchmarks.md", "bright_black"),
    ]


class Traffic:
    """Requests to an address, one after the other."""

    def __init__(self, address: str) -> None:
        self.line = command(f"while true; do curl http://{address}:{PORT}/; done")
        self._address = address
        self.sent = self.answered = 0
        self._longest = 0.0

    async def run(self) -> None:
        """Send requests until cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            answer = await ask_once("TCP", self._address, PORT, within=PATIENCE)
            self.sent += 1
            if answer is not None:
                now = loop.time()
                self.answered, self._longest, last = self.answered + 1, max(self._longest, now - last), now
            await asyncio.sleep(POLL_SECONDS)

    def __str__(self) -> str:
        longest = f"longest pause between two answers {self._longest * 1000:.0f} ms"
        return f"{self.answered:,} of {self.sent:,} requests answered, {longest}"


async def crash(show: Show) -> None:
    """Kill the leader while requests are sent to an address, and wait for the standby to lead."""
    show.begin(
        "The leader is killed",
        "kill -9: it cannot release its Lease, which must expire before the standby leads.",
        "Addresses stay announced, and requests to them are answered.",
    )
    standby = show.start()
    await show.stage.logged(standby, "waiting for leadership", within=SECONDS)
    traffic = Traffic(show.address("web"))
    loop = Background("traffic", [traffic.run])
    await loop.start([], within=SECONDS)

    def meanwhile(condition: Callable[[], object], *lines: str) -> Callable[[], object]:
        def holds() -> object:
            show.foot("Requests meanwhile", traffic.line, str(traffic), "", *lines, changing=True)
            return condition()

        return holds

    try:
        waiting = meanwhile(lambda: traffic.answered >= WARM_UP, "The standby waits for the Lease.")
        await show.see(waiting, "answers to requests")
        await show.pause(READING)
        killed = show.now
        await asyncio.to_thread(show.leader.kill)
        await show.create(LATE)
        lines = ("The leader is killed; there is none.", f"Service {LATE} is created and must wait.")
        leads = meanwhile(lambda: "became leader" in standby.log, *lines)
        await show.see(leads, "the standby to lead", frames=3.0)
        led = took(show.now - killed)
        await show.see(meanwhile(lambda: show.address(LATE), *lines), f"the address of Service {LATE}", frames=1.0)
        served = took(show.now - killed)
        meanwhile(bool, f"The standby leads after {led}.", f"Service {LATE} has its address.")()
        await show.pause(READING)
    finally:
        await loop.stop()
    expect(traffic.answered == traffic.sent, str(traffic))
    show.leader = standby
    show.summary.append(f"Leader killed: the standby led {led} later, a new Service was served after {served}")
    show.summary.append(f"Meanwhile {traffic}")


async def leave(show: Show) -> None:
    """Delete everything and show that nothing is left."""
    show.begin("Everything is deleted", "No load balancer and no allocated address may be left in Harvester.")
    await show.pause(READING / 3)
    began, names = show.now, [one["metadata"]["name"] for one in show.load_balancers()]

    def is_empty() -> bool:
        return not (show.load_balancers() or show.balancers.all() or show.booked())

    await asyncio.gather(
        *map(show.stage.delete_service, names), show.see(is_empty, "the deletion of everything", frames=1.0)
    )
    counts = await show.stage.harvester.counts()
    expect(counts.balancers == counts.booked == 0, f"{counts.balancers} load balancers, {counts.booked} addresses left")
    show.summary.append(
        f"{len(names)} Services deleted in {took(show.now - began)}: {counts.balancers} load balancers, "
        f"{counts.booked} addresses left"
    )
