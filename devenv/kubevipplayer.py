"""Plays a scenario on an API server next to a kube-vip, the real one or the emulator, and records what changes."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from devenv.background import Background
from devenv.harvester.records import SERVICES, SLICES
from devenv.kubeviprecording import Recorder
from devenv.kubevipscenarios import Scenario, Step
from devenv.scenariosteps import groups_of
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import NotFound
from harvester_ccm.kube.objects import Resource

NAMESPACE: Final = "default"
QUIET_SECONDS: Final = 3.5
"""Without any change, after which the next step follows: a shared address is away for 2 s."""
LOOK_SECONDS: Final = 0.1
START_SECONDS: Final = 30.0
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


async def play(scenario: Scenario, around: Surroundings) -> dict[str, Any]:
    """Play a scenario and return its recording. What it created stays."""
    recorder = Recorder(scenario, around.leases)
    services = Mirror(around.client, SERVICES, namespace=NAMESPACE)

    def note(before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is not None and document["metadata"]["name"] != "kubernetes":
            recorder.note_service(document, is_deleted=after is None)

    services.subscribe(note)
    background = Background("player", [services.run])
    await background.start([services.wait_synced], within=START_SECONDS)
    try:
        for steps in groups_of(scenario.steps):
            recorder.begin(steps)
            for step in steps:
                await take(step, around)
            await _settle(steps[-1], recorder, around)
    finally:
        await background.stop()
    return recorder.result()


async def take(step: Step, around: Surroundings) -> None:
    """Carry out a step."""
    client, resource, name = around.client, KINDS.get(step.kind), step.name
    if resource is None:
        around.let_dhcp_answer(step.verb == "answer")
        return
    match step.verb:
        case "create":
            metadata = {**step.body["metadata"], "namespace": NAMESPACE}
            identity = {"apiVersion": resource.api_version, "kind": resource.kind}
            await client.create(resource, {**step.body, **identity, "metadata": metadata}, namespace=NAMESPACE)
        case "patch":
            await client.merge_patch(resource, name, step.body, namespace=NAMESPACE)
        case "patch_status":
            await client.merge_patch(resource, name, step.body, namespace=NAMESPACE, subresource="status")
        case "delete":
            with suppress(NotFound):
                await client.delete(resource, name, namespace=NAMESPACE)
        case _:
            raise ValueError(f"unknown verb {step.verb!r}")


async def _settle(step: Step, recorder: Recorder, around: Surroundings) -> None:
    """Return when nothing has changed for a while."""
    loop = asyncio.get_running_loop()
    began = changed_at = loop.time()
    changes = recorder.changes
    before = set(around.addresses())
    while loop.time() - changed_at < QUIET_SECONDS or loop.time() - began < step.seconds:
        await asyncio.sleep(LOOK_SECONDS)
        addresses = set(around.addresses())
        # An address that is away for some milliseconds is seen or not by chance.
        if addresses == before:
            recorder.note_addresses(addresses)
        before = addresses
        if recorder.changes != changes:
            changes = recorder.changes
            changed_at = loop.time()
