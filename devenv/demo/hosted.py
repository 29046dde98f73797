"""A VM load balancer: Harvester announces the address, balances over the nodes and leaves out those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from devenv.demo.play import Play, expect
from devenv.demo.requests import ask_once
from devenv.guestnodes import GuestNodes, name_of
from devenv.stage import VM_NAMESPACE, until
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.names import (
    HEALTH_CHECK_FAILURE_THRESHOLD,
    HEALTH_CHECK_PERIOD,
    HEALTH_CHECK_PORT,
    HEALTH_CHECK_TIMEOUT,
)

NAME: Final = "portal"
PORT: Final = 8080
THRESHOLD: Final = 2
"""Failed checks after which a node is left out."""
CHECK: Final = {
    HEALTH_CHECK_PORT: "http",
    HEALTH_CHECK_PERIOD: "1",
    HEALTH_CHECK_TIMEOUT: "1",
    HEALTH_CHECK_FAILURE_THRESHOLD: str(THRESHOLD),
}
NUMBERS: Final = (1, 2, 3)
"""Numbers of the nodes that an earlier scene has brought up."""
FAILING: Final = NUMBERS[0]
IN_A_ROW: Final = 9
SHOWN: Final = 6
"""Of them, how many are printed."""
PAUSE_SECONDS: Final = 0.02
"""Between two requests."""
SECONDS: Final = 15.0


async def show_vm_load_balancer(play: Play) -> None:
    """Serve a Service with a health check, let a node fail and come back, delete the Service."""
    voice, stage = play.voice, play.stage
    voice.headline("Creating a Service with a health check: Harvester itself announces it and balances over the nodes")
    async with GuestNodes(stage.guest, stage.host) as nodes:
        service = await _create(play, nodes)
        seen = await _ask_until(play, service, NUMBERS)
        voice.say(f"All three nodes have passed their checks and answer {seen}")
        expect(not stage.kube_vip.announced, "kube-vip in the guest announces the address, too")
        await _lose_and_regain(play, nodes, service)
        await stage.delete_service(NAME)
        await stage.gone(NAME, within=SECONDS)
        await stage.nothing_left(within=SECONDS)
        voice.say(f"Service {NAME} deleted; nothing of it is left in Harvester")


async def _create(play: Play, nodes: GuestNodes) -> Service:
    voice, stage = play.voice, play.stage
    created = await stage.create_service(NAME, ports=[{"name": "http", "port": PORT}], annotations=CHECK)
    await nodes.listen(created, *NUMBERS)
    (service,) = await stage.served(NAME, within=SECONDS)
    voice.say("with the annotations")
    voice.show(f"  {key}: {value!r}" for key, value in CHECK.items())
    voice.command(f"kubectl get service {NAME}")
    voice.show(await play.guest.lines(f"{SERVICES.path('default')}?fieldSelector=metadata.name={NAME}"))
    voice.command("kubectl get loadbalancers.loadbalancer.harvesterhci.io        # in Harvester")
    voice.show(await play.harvester.lines(LOAD_BALANCERS.path(VM_NAMESPACE)))
    return service


async def _lose_and_regain(play: Play, nodes: GuestNodes, service: Service) -> None:
    """Stop one backend until Harvester has left it out, and start it again."""
    voice, name = play.voice, name_of(FAILING)
    voice.headline(f"The backend on {name} stops: it is to be left out after {THRESHOLD} failed checks, one per second")
    nodes.fail(FAILING)
    seen = await _ask_until(play, service, [number for number in NUMBERS if number != FAILING])
    voice.say(f"{name} is left out, the others answer, {seen}")
    voice.headline(f"The backend on {name} starts again")
    await nodes.listen(service, FAILING)
    seen = await _ask_until(play, service, NUMBERS)
    voice.say(f"{name} is back {seen}")


async def _ask_until(play: Play, service: Service, numbers: Sequence[int]) -> str:
    """Send requests until these nodes, and no others, answer all of some in a row; return how that went."""
    voice, address, wanted = play.voice, service.addresses[0], {name_of(number) for number in numbers}
    started, answers = voice.elapsed, list[str | None]()

    async def only_these() -> bool:
        await asyncio.sleep(PAUSE_SECONDS)
        answers.append(await ask_once("TCP", address, PORT))
        return len(answers) >= IN_A_ROW and set(answers[-IN_A_ROW:]) == wanted

    await until(only_these, within=SECONDS, what=f"answers from {', '.join(sorted(wanted))}")
    voice.command(f"for i in 1 2 3 4 5 6; do curl http://{address}:{PORT}/; done | xargs")
    voice.show([" ".join(str(answer) for answer in answers[-SHOWN:])])
    answered = len(answers) - answers.count(None)
    return f"{voice.elapsed - started:.2f} s later; until then {answered} of {len(answers)} requests were answered"
