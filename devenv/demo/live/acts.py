"""What happens on the screen: each act makes something happen, waits until it is seen and lets people look.

An act raises ``Disappointment`` or TimeoutError when it does not see what it expects. ``ACTS`` is their order.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from rich.text import Text

from devenv.background import Background
from devenv.ccm import DEFAULT_FLAGS
from devenv.demo.live.board import Mark
from devenv.demo.live.screen import command, took
from devenv.demo.live.show import PORT, SECONDS, Show
from devenv.demo.live.traffic import Traffic
from devenv.demo.play import Disappointment, expect
from devenv.demo.requests import ask
from harvester_ccm.names import IPAM, Reason

ALONE: Final = {"web": "", "shop": "", "dns": "", "wiki": "dhcp"}
"""Services of the first act, and where their address is to come from; without a word, from an IP pool."""
TYPO: Final = "store"
WRONG, RIGHT = "dchp", "dhcp"
CROWD: Final = "crowd-"
HOW_MANY: Final = 100
GO_SECONDS: Final = 103
"""What the Go provider needed for so many, by the record that docs/benchmarks.md tells of."""
BAR: Final = 50
"""Letters of the longest bar."""
LATE: Final = "late"
"""The Service that comes while nobody leads."""
WARM_UP: Final = 50
"""Requests that are answered before the leader is killed."""
MEANWHILE: Final = "Requests meanwhile"
READING: Final = 3.0
"""Seconds in which people read what is new."""
EXPLAINED: Final = 6
"""Lines of an explanation that there is room for."""


async def serve(show: Show) -> None:
    """Serve some Services and send a request through each address."""
    show.begin(
        "Services get their addresses",
        "Three Services with an address from an IP pool of Harvester, one by DHCP.\n"
        "○ asked for   ◐ told why it waits   ● has its address, after that time",
    )
    await show.hold(READING)
    async with show.glimpses(4, shown=0.3):
        await asyncio.gather(*(show.create(name, {IPAM: ipam} if ipam else None) for name, ipam in ALONE.items()))
        await show.see(lambda: _all_served(show, *ALONE), "addresses")
    answers = []
    for name in ALONE:
        address = show.board.services[name].address
        answer = await ask("TCP", address, PORT)
        expect(answer == f"default/{name}", f"{address} answered {answer!r}")
        answers.append(Text.assemble(command(f"curl http://{address}:{PORT}/"), f"    {answer}"))
    show.tell("Requests through the addresses", *answers)
    await show.hold(READING)


async def mistake(show: Show) -> None:
    """Make a mistake in an annotation, see it told and explained, and put it right."""
    show.begin(
        "A typo in an annotation",
        f"Service {TYPO} asks for {IPAM}: {WRONG}.\nA user's mistake becomes a Warning Event on the object.",
    )
    began = show.now
    await show.create(TYPO, {IPAM: WRONG})
    told = await show.stage.hears(TYPO, Reason.INVALID_ANNOTATION, within=SECONDS)
    after = show.now - began
    await show.see(lambda: show.board.services[TYPO].mark is Mark.WAITING, "the reason in the Service's status")
    event = Text.assemble((f"{told.type}  {told.reason}  ", "yellow"), told.message)
    show.tell(f"{took(after)} later", command(f"kubectl events --for service/{TYPO}"), event)
    await show.hold(READING)
    explained = await _explain(show, TYPO)
    show.tell("What is it?", command(f"harvester-ccm explain svc/{TYPO}"), *explained[-EXPLAINED:])
    await show.hold(READING)
    cured = show.now
    await show.stage.change_service(TYPO, {"metadata": {"annotations": {IPAM: RIGHT}}})
    await show.see(lambda: _all_served(show, TYPO), "the address after the cure")
    show.tell(
        f"Served {took(show.now - cured)} after the cure",
        command(f"kubectl annotate --overwrite service {TYPO} {IPAM}={RIGHT}"),
    )
    show.summary.append(f"A typo was told {took(after)} after it was made, and cured {took(show.now - cured)} later")
    await show.hold(READING)


async def crowd(show: Show) -> None:
    """Create a hundred Services at once, with a stopwatch."""
    show.begin(
        f"{HOW_MANY} Services at once",
        "Each dot is a Service on the left, its load balancer on the right.\n"
        "Harvester and kube-vip are emulated here, as fast as this machine is.",
    )
    show.crowd = CROWD
    names = [f"{CROWD}{number:03}" for number in range(1, HOW_MANY + 1)]
    began = show.now
    stopwatch = Background("stopwatch", [lambda: _stopwatch(show, began)])
    await stopwatch.start([], within=SECONDS)
    try:
        async with show.glimpses(6, shown=0.3):
            await asyncio.gather(*map(show.create, names))
            await show.see(lambda: _all_served(show, *names), f"addresses of {HOW_MANY} Services")
    finally:
        await stopwatch.stop()
    # Each knows when it was seen to be served: waiting until that was noticed does not count.
    lines = [show.board.services[name] for name in names]
    seconds = max(line.asked + (line.took or 0.0) for line in lines) - began
    show.tell("Stopwatch", *_bars(seconds))
    show.summary.append(f"{HOW_MANY} Services served in {took(seconds)}; recorded of the Go provider: {GO_SECONDS} s")
    await show.hold(READING)


async def crash(show: Show) -> None:
    """Kill the leader while requests go through an address, and see the standby take over."""
    show.begin(
        "The leader is killed",
        "kill -9: it cannot hand on its Lease, which has to run out before the standby\n"
        "leads. Addresses stay announced, and requests through them do not notice.",
    )
    standby = show.start()
    await show.stage.logged(standby, "waiting for leadership", within=SECONDS)
    traffic = Traffic(show.board.services["web"].address, PORT)
    loop = Background("traffic", [traffic.run, lambda: _count(show, traffic)])
    await loop.start([], within=SECONDS)
    try:
        await show.see(lambda: traffic.answered >= WARM_UP, "answers to requests")
        await _told(show, traffic, "The standby waits for the Lease.")
        killed = show.now
        await asyncio.to_thread(show.leader.kill)
        traffic.story = ["The leader is gone; nobody leads.", f"Service {LATE} is created and has to wait."]
        await show.create(LATE)
        async with show.glimpses(4, shown=0.8):
            await show.see(lambda: "became leader" in standby.log, "the standby to lead")
            led = show.now - killed
            await show.see(lambda: _all_served(show, LATE), "the Service that came meanwhile")
        served = show.now - killed
        await _told(show, traffic, f"The standby leads after {took(led)}.", f"Service {LATE} has its address.")
    finally:
        await loop.stop()
    expect(traffic.answered == traffic.sent, traffic.sentence())
    show.leader = standby
    show.summary.append(
        f"Leader killed: the standby led {took(led)} later, a new Service was served after {took(served)}"
    )
    show.summary.append(f"Meanwhile {traffic.sentence()}")


async def leave(show: Show) -> None:
    """Delete everything and show that nothing is left."""
    show.begin(
        "Everything is deleted",
        "No load balancer and no booked address may be left in Harvester.",
    )
    await show.hold(READING / 3)
    began = show.now
    names = list(show.board.services)
    async with show.glimpses(4, shown=0.3):
        await asyncio.gather(*map(show.stage.delete_service, names))
        await show.see(lambda: not show.board.services, "the end of all Services")
        await show.see(lambda: not show.board.balancers and not show.board.booked, "the end of all load balancers")
    counts = await show.stage.harvester.counts()
    expect(counts.balancers == counts.booked == 0, f"{counts.balancers} load balancers, {counts.booked} addresses left")
    show.summary.append(
        f"{len(names)} Services deleted in {took(show.now - began)}: {counts.balancers} load balancers, "
        f"{counts.booked} addresses left"
    )


async def remember(show: Show) -> None:
    """Show what was measured."""
    show.begin(
        "That was harvester-ccm", "Real API servers, the real program; what it takes from Harvester is emulated."
    )
    show.tell("Measured in this run", *(Text.assemble(("● ", "green"), sentence) for sentence in show.summary))
    await show.hold(2 * READING)


ACTS: Final[tuple[Callable[[Show], Awaitable[None]], ...]] = (serve, mistake, crowd, crash, leave, remember)


def _all_served(show: Show, *names: str) -> bool:
    lines = [show.board.services.get(name) for name in names]
    return all(line is not None and line.mark is Mark.SERVED for line in lines)


async def _explain(show: Show, name: str) -> list[str]:
    """Return what the command prints of a Service, up to the next writes."""
    scene = show.stage.scene
    flags = {
        "cloud-config": scene.cloud_config,
        "kubeconfig": scene.guest.admin_kubeconfig,
        "cluster-name": DEFAULT_FLAGS["cluster-name"],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "harvester_ccm", "explain", f"svc/{name}"),
        *(f"--{key}={value}" for key, value in flags.items()),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "94"},
    )
    output, _ = await process.communicate()
    lines = output.decode().splitlines()
    if not any(line.startswith("Condition:") for line in lines):
        raise Disappointment(f"explain shows no condition of Service {name}: {output.decode()}")
    return lines[: next((at for at, line in enumerate(lines) if line.startswith("Next writes:")), len(lines))]


def _bars(seconds: float, *, going_on: bool = False) -> list[Text]:
    """Return how long it took, or takes so far, beside how long the Go provider needs."""
    length = max(round(BAR * seconds / GO_SECONDS), 1)
    ours = "so far" if going_on else ""
    return [
        Text.assemble(f"{'harvester-ccm':15}", ("█" * length, "green"), f" {seconds:.2f} s {ours}"),
        Text.assemble(f"{'Go provider':15}", ("█" * BAR, "bright_black"), f" {GO_SECONDS} s"),
        Text("its number is a recorded one: docs/benchmarks.md says where from", "bright_black"),
    ]


async def _stopwatch(show: Show, began: float) -> None:
    while True:
        show.tell("Stopwatch", *_bars(show.now - began, going_on=True))
        await asyncio.sleep(0.05)


async def _told(show: Show, traffic: Traffic, *story: str) -> None:
    traffic.story = story
    show.tell(MEANWHILE, *traffic.lines())
    await show.hold(READING)


async def _count(show: Show, traffic: Traffic) -> None:
    while True:
        show.tell(MEANWHILE, *traffic.lines())
        await asyncio.sleep(0.1)
