"""Plays a scenario on an API server with Harvester's controller and webhook, real or emulated, and records changes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from devenv.background import Background
from devenv.harvester.records import INSTANCES, LOAD_BALANCERS, MACHINES, NAMESPACES, POOLS, SERVICES, SLICES
from devenv.harvester.webhook import NETWORKS
from devenv.harvesterrecording import Recorder
from devenv.harvesterscenarios import NAMESPACE, OTHER_NAMESPACE, PORT, Scenario, Step, bystander
from devenv.scenariosteps import groups_of
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AlreadyExists, ApiError, NotFound
from harvester_ccm.kube.objects import Resource

QUIET_SECONDS: Final = 1.7
"""Without any change, after which the next step follows: Harvester looks for a pool every second."""
LOOK_SECONDS: Final = 0.1
START_SECONDS: Final = 60.0
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
    recorder = Recorder(scenario)
    mirrors = [_watched(kind, recorder, around.client) for kind in RECORDED]
    background = Background("player", [mirror.run for mirror in mirrors])
    await background.start([mirror.wait_synced for mirror in mirrors], within=START_SECONDS)
    try:
        await write(bystander(NAMESPACE), around.client)
        await asyncio.sleep(LOOK_SECONDS)
        for steps in groups_of(scenario.steps):
            recorder.begin(steps)
            taken = [await _take(step, recorder, around) for step in steps]
            if any(taken):
                await _settle(steps[-1], recorder)
    finally:
        await background.stop()
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
    resource, namespace = KINDS[step.kind], step.namespace or None
    match step.verb:
        case "create":
            identity = {"apiVersion": resource.api_version, "kind": resource.kind}
            metadata = {**step.body["metadata"], **({"namespace": namespace} if namespace else {})}
            document = {**step.body, **identity, "metadata": metadata}
            # A namespace of an earlier scenario stays.
            with suppress(*([AlreadyExists] if step.kind == "Namespace" else [])):
                await client.create(resource, document, namespace=namespace)
            if step.kind == "Namespace":
                await write(bystander(step.name), client)
        case "patch":
            await client.merge_patch(resource, step.name, step.body, namespace=namespace)
        case "delete":
            await client.delete(resource, step.name, namespace=namespace)
        case _:
            raise ValueError(f"unknown verb {step.verb!r}")


async def _settle(step: Step, recorder: Recorder) -> None:
    """Return when nothing has changed for a while."""
    loop = asyncio.get_running_loop()
    began = changed_at = loop.time()
    changes = recorder.changes
    while loop.time() - changed_at < QUIET_SECONDS or loop.time() - began < step.seconds:
        await asyncio.sleep(LOOK_SECONDS)
        if recorder.changes != changes:
            changes = recorder.changes
            changed_at = loop.time()


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
