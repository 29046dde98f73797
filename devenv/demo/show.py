"""The demo: both clusters side by side while Services get addresses, wait, and keep them when the leader is killed.

An act causes something, waits until it is observed, and pauses for the reader. The output is a terminal, a recording,
or text without pauses and without the picture of the clusters.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text as Line

from devenv.announcement import DHCP_ADDRESS
from devenv.background import Background, Job
from devenv.ccm import DEFAULT_FLAGS, CcmProcess
from devenv.demo.recording import FRAME_SECONDS, SIZE, Recording
from devenv.demo.requests import ask, ask_once
from devenv.demo.scenario import PORT, Text, expect, open_stage
from devenv.harvester.records import LOAD_BALANCERS, POOLS, SERVICES
from devenv.stage import Scene, Stage
from devenv.watch import Document, Mirror, addresses_in
from harvester_ccm.names import IPAM, LOAD_BALANCER_READY, Reason

TITLE: Final = "harvester-ccm: Services get addresses, the leader is killed, and everything is deleted"
SMALLEST: Final = (80, 24)
"""Columns and lines that a terminal must have; the output is text on a smaller one."""
HEAD_LINES, FOOT_LINES = 4, 10
READING: Final = 3.0
"""Seconds of a pause."""
SECONDS: Final = 120.0
"""Timeout of each wait."""
POLL_SECONDS: Final = 0.02
FIRST: Final = {"web": "", "shop": "", "dns": "", "wiki": "dhcp"}
"""Services of the first act, with their IPAM; empty for an IP pool."""
TYPO, WRONG, RIGHT = "store", "dchp", "dhcp"
NEXT: Final = "Next: make dev starts the same clusters for your own Services. Ctrl-C ends it."
LATE: Final = "late"
"""The Service that is created while there is no leader."""
CROWD: Final = "crowd-"
CROWD_SIZE: Final = 100
WARM_UP: Final = 50
"""Requests before the leader is killed."""
REQUEST_SECONDS: Final = 30.0


async def perform(scene: Scene, directory: Path, recording: Path | None) -> None:
    """Show all acts on the terminal or as text, or write them to a file; finally print the measured times."""
    console = Console()
    is_large = console.width >= SMALLEST[0] and console.height >= SMALLEST[1]
    async with open_stage(scene, directory) as stage:
        if recording is not None:
            output = Recording()
            summary = await play(Show(stage, output, stage.run))
            await asyncio.to_thread(recording.write_text, output.svg(TITLE))
        elif console.is_terminal and not console.is_dumb_terminal and is_large:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                summary = await play(Show(stage, live, stage.run))
        else:
            show = Show(stage, Text(), stage.run)
            await play(show)
            print("\n".join(["", *show.farewell]))
            return
    print("\n".join(summary))


async def play(show: "Show") -> list[str]:
    """Show all acts and return the measured times, one sentence each."""
    await show.background.start([mirror.wait_synced for mirror in show.mirrors], within=SECONDS)
    try:
        for act in (serve, mistake, crowd, crash, look, leave):
            await act(show)
        show.begin("That was harvester-ccm", "Real API servers, the real controller. Harvester is emulated.")
        show.foot("Measured in this run", *(Line.assemble(("● ", "green"), line) for line in show.summary))
        await show.pause(2 * READING)
    finally:
        await show.background.stop()
    return [*show.summary, "", *show.farewell]


class Show:
    """The running clusters and the picture of them."""

    def __init__(self, stage: Stage, output: Live | Recording | Text, start: Callable[[], CcmProcess]) -> None:
        """``start`` starts a controller."""
        self.stage = stage
        self.start = start
        self.leader = start()
        self.summary: list[str] = []
        self.farewell: list[str] = []
        """What stays on the terminal: a screen of ``status``, and the next step."""
        self.services = Mirror(stage.guest, SERVICES, namespace="default")
        self.balancers = Mirror(stage.host, LOAD_BALANCERS)
        self.pools = Mirror(stage.host, POOLS)
        self.services.subscribe(self._record_time)
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.created: dict[str, float] = {}
        """Time of the creation of each Service, by name, in seconds since the start."""
        self.seconds: dict[str, float] = {}
        """Seconds from the creation of each Service, by name, to its first address."""
        self._title = self._caption = self._foot_title = ""
        self._foot: Sequence[Line | str] = ()
        self.mirrors = (self.services, self.balancers, self.pools)
        refresh: list[Job] = [] if isinstance(output, Text) else [self._refresh]
        self.background = Background("show", [*(mirror.run for mirror in self.mirrors), *refresh])
        """The watches and the refresh of the picture."""

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._loop.time() - self._began

    def begin(self, title: str, caption: str) -> None:
        """Begin an act."""
        self._title, self._caption, self._foot_title, self._foot = title, caption, "", ()
        if isinstance(self._output, Text):
            self._output.headline(title)
            self._output.show(caption)

    def foot(self, title: str, *lines: Line | str, changing: bool = False) -> None:
        """Replace the lines below both clusters. Text has no lines that change all the time."""
        self._foot_title, self._foot = title, lines
        if isinstance(self._output, Text) and not changing:
            self._output.show("\n".join(["", f"{title}:", *map(str, lines)]))

    async def pause(self, seconds: float) -> None:
        """Leave time to read."""
        if not isinstance(self._output, Text):
            await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Return once the condition holds. Raises UnexpectedError that names ``what``."""
        end = self.now + SECONDS
        while not condition():
            expect(self.now < end, f"not within {SECONDS:g} s: {what}")
            await asyncio.sleep(POLL_SECONDS)

    async def create(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Create a Service; its time starts now."""
        self.created[name] = self.now
        await self.stage.create_service(name, ports=[{"name": "http", "port": PORT}], annotations=annotations)

    def address(self, name: str) -> str:
        """Return the address of a Service; empty if it has none."""
        return next(iter(addresses_in(self.services.get(f"default/{name}") or {})), "")

    def load_balancers(self) -> list[Document]:
        """Return the Services of type LoadBalancer."""
        return [one for one in self.services.all() if one["spec"].get("type") == "LoadBalancer"]

    def allocated(self) -> int:
        """Return the number of allocated addresses in all pools."""
        return sum(len((pool.get("status") or {}).get("allocated") or {}) for pool in self.pools.all())

    def _record_time(self, _before: Document | None, after: Document | None) -> None:
        if after is not None and addresses_in(after):
            name = after["metadata"]["name"]
            self.seconds.setdefault(name, self.now - self.created.get(name, self.now))

    async def _refresh(self) -> None:
        while True:
            began = self._loop.time()
            if isinstance(self._output, Live):
                size = self._output.console.size
                self._output.update(self.picture((size.width, size.height)), refresh=True)
                # Drawing must not slow down the controllers.
                await asyncio.sleep(max(0.1, 5 * (self._loop.time() - began)))
            elif isinstance(self._output, Recording):
                self._output.add(self.picture(SIZE))
                await asyncio.sleep(max(0.0, began + FRAME_SECONDS - self._loop.time()))

    def picture(self, size: tuple[int, int]) -> RenderableType:
        """Return the current picture for a terminal of these columns and lines."""
        services, balancers = self.load_balancers(), self.balancers.all()
        ready = sum(bool(addresses_in(one)) for one in services)
        dots = (size[0] // 2 - 4) // 2
        guest = _column(services, self._service_row, dots)
        harvester = _column(balancers, _balancer_row, dots)
        body = Layout()
        body.split_row(
            Layout(_panel(f"Guest: {ready} of {len(services)} Services have an address", guest)),
            Layout(_panel(f"Harvester: {len(balancers)} LBs, {self.allocated()} addresses", harvester)),
        )
        screen = Layout()
        title = f"{self._title} [bright_black]{self.now:.1f} s"
        screen.split_column(
            Layout(_panel(title, self._caption, style="cyan"), size=HEAD_LINES),
            body,
            Layout(_panel(self._foot_title, *self._foot), size=FOOT_LINES if size[1] > SMALLEST[1] else FOOT_LINES - 2),
        )
        return screen

    def _service_row(self, service: Document) -> Sequence[RenderableType]:
        name, addresses = service["metadata"]["name"], addresses_in(service)
        if addresses and not service["metadata"].get("deletionTimestamp"):
            seconds = self.seconds.get(name)
            text = Line.assemble((f"{addresses[0]:13}", "bold"), (f"{took(seconds) if seconds else '':>8}", "green"))
        else:
            text = Line(_reason(service) or "created", "yellow" if _reason(service) else "bright_black")
        return Line(*_dot(service)), name, text


def took(seconds: float) -> str:
    """Return a duration as text.

    >>> took(0.0431), took(15.21)
    ('43 ms', '15.2 s')
    """
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _panel(title: str, *lines: RenderableType, style: str = "bright_black") -> Panel:
    return Panel(Group(*lines), title=f"[bold]{title}[/]" if title else None, title_align="left", border_style=style)


def _column(
    documents: Sequence[Document], row: Callable[[Document], Sequence[RenderableType]], dots: int
) -> RenderableType:
    """Return the crowd as dots, and below it the others, newest first, one row each."""
    crowd = [one for one in documents if CROWD in one["metadata"]["name"]]
    lines, table = Line(), Table.grid(padding=(0, 1))
    # Dots of one color are one piece, which keeps the recording small.
    for first in range(0, len(crowd), dots):
        for (dot, color), alike in groupby(map(_dot, crowd[first : first + dots])):
            lines.append(f"{dot} " * len(list(alike)), color)
        lines.append("\n")
    for one in reversed(documents):
        if one not in crowd:
            table.add_row(*row(one))
    return Group(lines, table)


def _dot(document: Document) -> tuple[str, str]:
    """Return the symbol and the color of a Service or a load balancer."""
    if document["metadata"].get("deletionTimestamp"):
        return "◌", "bright_black"
    if addresses_in(document) or _allocated(document):
        return "●", "green"
    return ("◐", "yellow") if _reason(document) else ("○", "bright_black")


def _reason(service: Document) -> str:
    """Return the message of a Service without an address; empty if its condition has none."""
    for condition in (service.get("status") or {}).get("conditions") or ():
        if condition["type"] == LOAD_BALANCER_READY and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _allocated(balancer: Document) -> str:
    """Return the address of a load balancer; empty if it has none."""
    status = balancer.get("status") or {}
    found = (status.get("address"), (status.get("allocatedAddress") or {}).get("ip"))
    return next((one for one in found if one and one != DHCP_ADDRESS), "")


def _balancer_row(balancer: Document) -> Sequence[RenderableType]:
    pool = ((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ipPool")
    origin = "dhcp" if balancer["spec"].get("ipam") == "dhcp" else pool or ""
    name = Line(balancer["metadata"]["name"], no_wrap=True)
    return Line(*_dot(balancer)), Line(f"{_allocated(balancer):13}", "bold"), Line(origin, "bright_black"), name


def command(text: str, output: str = "") -> Line:
    """Return a command line, and its output."""
    return Line.assemble(("$ ", "bright_black"), (text, "bold"), output)


async def serve(show: Show) -> None:
    """Create Services, wait for their addresses, and send a request to each."""
    show.begin(
        "Services get their addresses",
        "Three Services with an address from an IP pool of Harvester, one by DHCP.\n"
        "○ created   ◐ waits, with the reason   ● has its address, after this time",
    )
    await show.pause(READING)
    for name, ipam in FIRST.items():
        await show.create(name, {IPAM: ipam} if ipam else None)
    await show.until(lambda: all(map(show.address, FIRST)), "addresses")
    answers = []
    for name in FIRST:
        address = show.address(name)
        answer = await ask(address, PORT)
        expect(answer == f"default/{name}", f"{address} responded {answer!r}")
        answers.append(command(f"curl http://{address}:{PORT}/", f"    {answer}"))
    show.foot("Requests to the addresses", *answers)
    await show.pause(READING)


async def mistake(show: Show) -> None:
    """Create a Service with an invalid annotation, show its Event and explain, and correct it."""
    show.begin(
        "A typo in an annotation",
        f"Service {TYPO} requests {IPAM}: {WRONG}. A mistake becomes a Warning Event on the object.",
    )
    began = show.now
    await show.create(TYPO, {IPAM: WRONG})
    event = await show.stage.hears(TYPO, Reason.INVALID_ANNOTATION, within=SECONDS)
    reported = took(show.now - began)
    text = Line.assemble((f"{event.type}  {event.reason}  ", "yellow"), event.message)
    show.foot(f"{reported} later", command(f"kubectl events --for service/{TYPO}"), text)
    await show.pause(READING)
    show.foot("Explanation", command(f"harvester-ccm explain svc/{TYPO}"), *await _explain(show.stage.scene, TYPO))
    await show.pause(READING)
    began = show.now
    await show.stage.change_service(TYPO, {"metadata": {"annotations": {IPAM: RIGHT}}})
    await show.until(lambda: show.address(TYPO), "the address after the correction")
    fixed = took(show.now - began)
    line = command(f"kubectl annotate --overwrite service {TYPO} {IPAM}={RIGHT}")
    show.foot(f"Address {fixed} after the correction", line)
    show.summary.append(f"A typo was reported after {reported}; the address came {fixed} after the correction")
    await show.pause(READING)


async def _explain(scene: Scene, name: str) -> list[str]:
    """Return the last lines of ``explain`` about a Service before its next writes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harvester_ccm", "explain", f"svc/{name}", f"--cloud-config={scene.cloud_config}"),
        *(f"--kubeconfig={scene.guest.admin_kubeconfig}", f"--cluster-name={DEFAULT_FLAGS['cluster-name']}"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "94"},
    )
    output = (await process.communicate())[0].decode()
    expect("Reasons:" in output, f"explain prints no reason for Service {name}: {output}")
    return output.partition("Next writes:")[0].rstrip().splitlines()[-6:]


async def crowd(show: Show) -> None:
    """Create many Services at once and measure the time."""
    show.begin(
        f"{CROWD_SIZE} Services at once",
        "Harvester and kube-vip are emulated in this process: make bench measures without them.\n"
        "Each dot is a Service on the left, its load balancer on the right.",
    )
    names = [f"{CROWD}{number:03}" for number in range(CROWD_SIZE)]
    began = show.now

    def all_ready() -> bool:
        show.foot("Stopwatch", took(show.now - began), changing=True)
        return all(name in show.seconds for name in names)

    await asyncio.gather(*map(show.create, names), show.until(all_ready, f"{CROWD_SIZE} addresses"))
    # Each has the time of its own watch event.
    seconds = max(show.seconds[name] + show.created[name] for name in names) - began
    show.foot("Stopwatch", took(seconds))
    show.summary.append(f"{CROWD_SIZE} addresses after {took(seconds)}")
    await show.pause(READING)


class Traffic:
    """Requests to an address, one after the other."""

    def __init__(self, address: str) -> None:
        self.line = command(f"while true; do curl http://{address}:{PORT}/; done")
        self._address = address
        self.sent, self.answered_at = 0, [asyncio.get_running_loop().time()]

    async def run(self) -> None:
        """Send requests until cancelled."""
        while True:
            answer = await ask_once(self._address, PORT, within=REQUEST_SECONDS)
            self.sent += 1
            if answer is not None:
                self.answered_at.append(asyncio.get_running_loop().time())
            await asyncio.sleep(POLL_SECONDS)

    def __str__(self) -> str:
        longest = max((after - before for before, after in pairwise(self.answered_at)), default=0.0)
        answered = f"{len(self.answered_at) - 1:,} of {self.sent:,} requests answered"
        return f"{answered}, longest pause between two responses {longest * 1000:.0f} ms"


async def crash(show: Show) -> None:
    """Kill the leader while requests are sent to an address, and wait for the standby to lead."""
    show.begin(
        "The leader is killed",
        "kill -9: it cannot release its Lease, which must expire before the standby leads.\n"
        "Addresses stay announced, and requests to them are answered.",
    )
    standby = show.start()
    await show.stage.logged(standby, "waiting for leadership", within=SECONDS)
    traffic = Traffic(show.address("web"))
    requests = Background("traffic", [traffic.run])
    await requests.start([], within=SECONDS)

    async def until(condition: Callable[[], object], state: str) -> None:
        def holds() -> object:
            show.foot("Requests meanwhile", traffic.line, str(traffic), "", state, changing=True)
            return condition()

        await show.until(holds, state)

    try:
        await until(lambda: traffic.sent >= WARM_UP, "The standby waits for the Lease.")
        await show.pause(READING)
        killed = show.now
        await asyncio.to_thread(show.leader.kill)
        await show.create(LATE)
        state = f"The leader is killed; there is none. Service {LATE} is created and must wait."
        await until(lambda: "became leader" in standby.log, state)
        led = took(show.now - killed)
        await until(lambda: show.address(LATE), f"The standby leads after {led}. Service {LATE} waits.")
        created = took(show.now - killed)
        state = f"The standby leads after {led}. Service {LATE} has its address."
        show.foot("Requests meanwhile", traffic.line, str(traffic), "", state)
        await show.pause(READING)
    finally:
        await requests.stop()
    expect(len(traffic.answered_at) == traffic.sent + 1, str(traffic))
    show.leader = standby
    show.summary.append(f"Leader killed: the standby led after {led}, a new Service had its address after {created}")
    show.summary.append(f"Meanwhile {traffic}")


async def look(show: Show) -> None:
    """Show where an operator looks first."""
    show.begin(
        "One screen shows everything that is wrong",
        "harvester-ccm status names the leader, both clusters, and each problem with its cause and its fix.\n"
        "harvester-ccm explain does the same for one Service or Node, with the next write.",
    )
    screen = await asyncio.to_thread(_status, show.stage.scene)
    line = command("harvester-ccm status")
    show.foot("What status prints", line, *screen)
    # It stays below the line about the deletion, which comes later.
    show.farewell = ["Before the Services were deleted:", line.plain, *screen, "", NEXT]
    await show.pause(2 * READING)


def _status(scene: Scene) -> list[str]:
    """Return the lines that ``harvester-ccm status`` prints."""
    flags = {
        "cloud-config": scene.cloud_config,
        "kubeconfig": scene.guest.admin_kubeconfig,
        "cluster-name": DEFAULT_FLAGS["cluster-name"],
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    order = [sys.executable, "-m", "harvester_ccm", "status", *words]
    found = subprocess.run(order, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return found.stdout.rstrip().splitlines()


async def leave(show: Show) -> None:
    """Delete everything and verify that nothing is left."""
    show.begin("Everything is deleted", "No load balancer and no allocated address must be left in Harvester.")
    await show.pause(READING / 3)
    began, names = show.now, [one["metadata"]["name"] for one in show.load_balancers()]

    def is_empty() -> bool:
        return not (show.load_balancers() or show.balancers.all() or show.allocated())

    deletions = map(show.stage.delete_service, names)
    await asyncio.gather(*deletions, show.until(is_empty, "the deletion of everything"))
    counts = await show.stage.harvester.counts()
    rest = f"{counts.balancers} load balancers, {counts.booked} addresses left"
    expect(counts.balancers == counts.booked == 0, rest)
    show.summary.append(f"{len(names)} Services deleted in {took(show.now - began)}: {rest}")
