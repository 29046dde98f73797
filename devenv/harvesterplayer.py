"""Plays a scenario on an API server with Harvester's controller and webhook, real or emulated, and records changes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from devenv import player
from devenv.harvester.records import INSTANCES, LOAD_BALANCERS, MACHINES, NAMESPACES, POOLS, SERVICES, SLICES
from devenv.harvester.webhook import NETWORKS
from devenv.harvesterrecording import Recorder
from devenv.harvesterscenarios import OTHER_NAMESPACE, PORT, Scenario, bystander
from devenv.player import LOOK_SECONDS, NAMESPACE, Step
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AlreadyExists, ApiError, NotFound
from harvester_ccm.kube.objects import Resource

QUIET_SECONDS: Final = 1.7
"""Without any change, after which the next step follows: Harvester looks for a pool every second."""
GONE_SECONDS: Final = 60.0
KINDS: Final[dict[str, Resource[Document]]] = {
    "LoadBalancer": LOAD_BALANCERS,
    "IPPool": POOLS,
    "Service": SERVICES,
    "EndpointSlice": SLICES,
    "VirtualMachine": MACHINES,
    "VirtualMachineInstance": INSTANCES,
    "NetworkAttachmentDefinition": NETWORKS,
    "Namespace": NAMESPACES,
}
RECORDED: Final = ("LoadBalancer", "IPPool", "Service", "EndpointSlice")
"""Kinds whose changes are recorded."""
OF_THE_SERVER: Final = frozenset({"kubernetes"})
"""Names of objects of the API server."""


@dataclass(frozen=True)
class Surroundings:
    """What is around the controller that is recorded."""

    client: ApiClient
    switch: Callable[[str, bool], Awaitable[None]]
    """Stops or starts ``controller`` or ``webhook``."""
    let_backend_answer: Callable[[str, int, bool], None]
    """Lets an address accept connections on a port, or refuse them."""


async def play(scenario: Scenario, around: Surroundings) -> list[dict[str, Any]]:
    """Play a scenario and return its steps. What it created stays."""
    recorder = Recorder()
    mirrors = [_watched(kind, recorder, around.client) for kind in RECORDED]

    async def take(step: Step) -> bool:
        return await _take(step, recorder, around)

    await write(bystander(NAMESPACE), around.client)
    await asyncio.sleep(LOOK_SECONDS)
    await player.play_steps(scenario.steps, recorder, mirrors, take=take, quiet_seconds=QUIET_SECONDS)
    return recorder.result()


def _watched(kind: str, recorder: Recorder, client: ApiClient) -> Mirror:
    """Return a copy of a collection whose changes are recorded."""
    mirror = Mirror(client, KINDS[kind])

    def note(before: Document | None, after: Document | None) -> None:
        document = after or before
        if document is not None and _is_of_scenario(document):
            recorder.note(kind, document, is_deleted=after is None)

    mirror.subscribe(note)
    return mirror


def _is_of_scenario(document: Document) -> bool:
    metadata = document["metadata"]
    return (
        metadata.get("namespace", NAMESPACE) in {NAMESPACE, OTHER_NAMESPACE} and metadata["name"] not in OF_THE_SERVER
    )


async def _take(step: Step, recorder: Recorder, around: Surroundings) -> bool:
    """Carry out a step; return whether it was not rejected."""
    if step.kind == "backend":
        around.let_backend_answer(step.name, PORT, step.verb == "listen")
    elif step.kind not in KINDS:
        await around.switch(step.kind, step.verb == "start")
    else:
        try:
            await write(step, around.client)
        except ApiError as error:
            recorder.note_refusal(str(error.answer.message))
            return False
    return True


async def write(step: Step, client: ApiClient) -> None:
    """Send the write of a step. Raises ApiError."""
    if step.kind != "Namespace":
        await player.write(step, client, KINDS[step.kind])
        return
    # A namespace of an earlier scenario stays.
    with suppress(AlreadyExists):
        await player.write(step, client, NAMESPACES)
    await write(bystander(step.name), client)


async def clear(client: ApiClient) -> None:
    """Delete what a scenario left, as an administrator does: the controller has something of each pool in memory.

    Raises TimeoutError if something stays.
    """
    for kind in ("LoadBalancer", "VirtualMachineInstance", "VirtualMachine"):
        await _delete_all(client, KINDS[kind])
    for kind in ("LoadBalancer", "VirtualMachineInstance", "VirtualMachine", "Service"):
        await _gone(client, KINDS[kind])
    for pool in (await client.list(POOLS)).items:
        name, books = pool["metadata"]["name"], {"allocated": None, "allocatedHistory": None}
        if pool.get("status"):
            await client.merge_patch(POOLS, name, {"status": books})
        await client.delete(POOLS, name)
    await _gone(client, POOLS)
    # No write of a pool is accepted without its network.
    await _delete_all(client, NETWORKS)


async def _gone(client: ApiClient, resource: Resource[Document]) -> None:
    """Return when no object of a scenario is left. Raises TimeoutError."""
    async with asyncio.timeout(GONE_SECONDS):
        while await _left(client, resource):  # noqa: ASYNC110 - remote state
            await asyncio.sleep(LOOK_SECONDS)


async def _left(client: ApiClient, resource: Resource[Document]) -> list[Document]:
    return [document for document in (await client.list(resource)).items if _is_of_scenario(document)]


async def _delete_all(client: ApiClient, resource: Resource[Document]) -> None:
    for document in await _left(client, resource):
        with suppress(NotFound):
            metadata = document["metadata"]
            await client.delete(resource, metadata["name"], namespace=metadata["namespace"])
