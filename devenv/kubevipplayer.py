"""Plays a scenario on an API server next to a kube-vip, the real one or the emulator, and records what changes."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from devenv import player
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubeviprecording import Recorder
from devenv.kubevipscenarios import Scenario
from devenv.player import NAMESPACE, Step
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.kube.objects import Resource

QUIET_SECONDS: Final = 3.5
"""Without any change, after which the next step follows: a shared address is away for 2 s."""
KINDS: Final[dict[str, Resource[Document]]] = {"Service": SERVICES, "EndpointSlice": SLICES}


@dataclass(frozen=True)
class Surroundings:
    """What is around the kube-vip that is recorded."""

    client: ApiClient
    addresses: Callable[[], Collection[str]]
    """Returns the addresses that kube-vip has put on the node."""
    let_dhcp_answer: Callable[[bool], None]
    leases: Collection[str]
    """Addresses of the DHCP server."""


async def play(scenario: Scenario, around: Surroundings) -> list[dict[str, Any]]:
    """Play a scenario and return its steps. What it created stays."""
    recorder = Recorder(around.leases)
    services = Mirror(around.client, SERVICES, namespace=NAMESPACE)

    def note(before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is not None and document["metadata"]["name"] != "kubernetes":
            recorder.note_service(document, is_deleted=after is None)

    services.subscribe(note)
    before: set[str] = set()

    async def take_and_look(step: Step) -> bool:
        nonlocal before
        await take(step, around)
        before = set(around.addresses())
        return True

    def look() -> None:
        nonlocal before
        addresses = set(around.addresses())
        # An address that is away for some milliseconds is seen or not by chance.
        if addresses == before:
            recorder.note_addresses(addresses)
        before = addresses

    await player.play_steps(
        scenario.steps, recorder, [services], take=take_and_look, look=look, quiet_seconds=QUIET_SECONDS
    )
    return recorder.result()


async def take(step: Step, around: Surroundings) -> None:
    """Carry out a step; for the DHCP server, ``answer`` or ``stay_silent``."""
    resource = KINDS.get(step.kind)
    if resource is None:
        around.let_dhcp_answer(step.verb == "answer")
        return
    with suppress(*([NotFound] if step.verb == "delete" else [])):
        await player.write(step, around.client, resource)
