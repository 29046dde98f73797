"""Plays the steps of a scenario on an API server, next to programs or their emulators, while changes are recorded.

The players of Harvester and of kube-vip say which collections are recorded, and what a step does that is no write.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from devenv.background import Background
from devenv.watch import Document, Mirror
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.objects import Resource

NAMESPACE: Final = "default"
LOOK_SECONDS: Final = 0.1
START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Step:
    """A change of an object, or of what is around the program that is recorded."""

    verb: str
    """``create``, ``patch``, ``patch_status`` or ``delete`` of an object. Each player has further verbs."""
    kind: str = "Service"
    name: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = NAMESPACE
    """Empty for a kind without namespaces."""
    at_once: bool = False
    """Whether the next step follows without a wait, and their changes are recorded together."""
    seconds: float = 0.0
    """For how long to wait at least."""

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}".strip()


def at_once(*steps: Step) -> tuple[Step, ...]:
    """Return the steps, all but the last followed by the next one without a wait."""
    *first, last = steps
    return (*(replace(step, at_once=True) for step in first), last)


def wait(step: Step, seconds: float) -> Step:
    """Return a step after which the player waits at least for these seconds."""
    return replace(step, seconds=seconds)


def groups_of(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Yield the steps, those that are taken at once together."""
    group: list[Step] = []
    for step in steps:
        group.append(step)
        if not step.at_once:
            yield group
            group = []


class Recorder:
    """Notes the changes after each step of a scenario."""

    parts: ClassVar[tuple[str, ...]]
    """What a step has beside its name: the states of objects by their names."""

    def __init__(self) -> None:
        self.changes = 0
        """Number of changes so far."""
        self._steps: list[dict[str, Any]] = []
        self._seen: dict[str, Any] = {}
        """What was last seen of each object."""

    def begin(self, steps: Sequence[Step]) -> None:
        """Begin steps that are taken at once; everything that is noted from now on belongs to them."""
        self._steps.append({"step": ", ".join(map(str, steps)), **{part: {} for part in self.parts}})

    def _note(self, part: str, name: str, seen: Any) -> None:
        if self._seen.get(name) != seen:
            self._seen[name] = seen
            self._add(part, name, seen)

    def _add(self, part: str, name: str, change: Any) -> None:
        self._steps[-1][part].setdefault(name, []).append(change)
        self.changes += 1


async def play_steps(
    steps: Iterable[Step],
    recorder: Recorder,
    mirrors: Sequence[Mirror],
    *,
    take: Callable[[Step], Awaitable[bool]],
    look: Callable[[], None] | None = None,
    quiet_seconds: float,
) -> None:
    """Take the steps, each when nothing has changed for ``quiet_seconds`` after the one before.

    ``take`` carries a step out and returns whether it was accepted; ``look`` is called again and again meanwhile.
    """
    background = Background("player", [mirror.run for mirror in mirrors])
    await background.start([mirror.wait_synced for mirror in mirrors], within=START_SECONDS)
    try:
        for group in groups_of(steps):
            recorder.begin(group)
            accepted = [await take(step) for step in group]
            if any(accepted):
                await _settle(group[-1], recorder, look, quiet_seconds)
    finally:
        await background.stop()


async def _settle(step: Step, recorder: Recorder, look: Callable[[], None] | None, quiet_seconds: float) -> None:
    """Return when nothing has changed for a while."""
    loop = asyncio.get_running_loop()
    began = changed_at = loop.time()
    changes = recorder.changes
    while loop.time() - changed_at < quiet_seconds or loop.time() - began < step.seconds:
        await asyncio.sleep(LOOK_SECONDS)
        if look is not None:
            look()
        if recorder.changes != changes:
            changes = recorder.changes
            changed_at = loop.time()


async def write(step: Step, client: ApiClient, resource: Resource[Document]) -> None:
    """Send the write of a step. Raises ApiError."""
    namespace = step.namespace or None
    match step.verb:
        case "create":
            identity = {"apiVersion": resource.api_version, "kind": resource.kind}
            place = {"namespace": namespace} if namespace else {}
            document = {**step.body, **identity, "metadata": {**step.body["metadata"], **place}}
            await client.create(resource, document, namespace=namespace)
        case "patch":
            await client.merge_patch(resource, step.name, step.body, namespace=namespace)
        case "patch_status":
            await client.merge_patch(resource, step.name, step.body, namespace=namespace, subresource="status")
        case "delete":
            await client.delete(resource, step.name, namespace=namespace)
        case _:
            raise ValueError(f"unknown verb {step.verb!r}")


def recording_in(directory: Path, scenario: str) -> Path:
    """Return the file of the recording of a scenario."""
    return directory / f"{re.sub(r'[^a-z0-9]+', '-', scenario.lower()).strip('-')}.json"


def write_recording(file: Path, program: tuple[str, str], scenario: str, part: str, entries: Iterable[str]) -> None:
    """Write a recording of a program, by its name and version; ``entries`` are the JSON lines of ``part``."""
    head = {program[0]: program[1], "recorded": time.strftime("%Y-%m-%d", time.gmtime()), "scenario": scenario}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    recorded = ",\n".join(entries)
    lines.append(f' "{part}": [\n{recorded}\n ]')
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
