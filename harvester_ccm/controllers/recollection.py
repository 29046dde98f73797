"""What is remembered of Services between two looks; lost at a restart without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.model.outcome import EventMessage
from harvester_ccm.plan.service.create import REPLACEMENT_PAUSE
from harvester_ccm.plan.service.decision import phase
from harvester_ccm.plan.service.load_balancer import Former, former_of
from harvester_ccm.plan.service.ownership import claim, service_key
from harvester_ccm.plan.service.situation import Situation


@dataclass
class Memory:
    """What is remembered of one Service. Times are the event loop's."""

    phase: str
    since: float
    uid: str
    """Of the Service; a new one of the same name starts anew."""
    hosted: float | None = None
    """When a VM load balancer of the Service was last there."""
    former: Former | None = None
    """Its last load balancer that had an address."""
    emitted: set[EventMessage] = field(default_factory=set)

    def complete(self, situation: Situation) -> Situation:
        """Return the situation with what is remembered in it."""
        now = asyncio.get_running_loop().time()
        hosted = None if self.hosted is None else now - self.hosted
        return replace(
            situation,
            waited=now - self.since,
            since_hosted=hosted,
            former=self.former,
            emitted=frozenset(self.emitted),
        )


class Recollection:
    """The memories of all Services, by key."""

    def __init__(self) -> None:
        self._memories: dict[str, Memory] = {}
        self._found: frozenset[str] = frozenset()
        self._started = 0.0

    def __len__(self) -> int:
        return len(self._memories)

    def start(self, services: Iterable[Service]) -> None:
        """Begin; of Services that are there already nobody knows what they had a moment before."""
        self._found = frozenset(one.metadata.uid for one in services)
        self._started = asyncio.get_running_loop().time()

    def remember(self, situation: Situation) -> Memory:
        """Return the memory of a Service as it is now."""
        meta, current = situation.service.metadata, phase(situation)
        now = asyncio.get_running_loop().time()
        memory = self._memories.get(meta.key)
        if memory is None or memory.uid != meta.uid:
            hosted = self._started - REPLACEMENT_PAUSE if meta.uid in self._found else None
            memory = self._memories[meta.key] = Memory(current, now, meta.uid, hosted)
        elif memory.phase != current:
            memory.phase, memory.since = current, now
        serving = claim(situation.load_balancers, situation.service, situation.cluster).chosen
        if serving is not None and (serving.allocated_ip or serving.address):
            memory.former = former_of(serving)
        return memory

    def note(self, load_balancer: LoadBalancer) -> None:
        """Take note that a load balancer was there until now."""
        memory = self._memories.get(service_key(load_balancer))
        if memory is not None and load_balancer.spec.workload_type == "vm":
            memory.hosted = asyncio.get_running_loop().time()

    def forget(self, key: str) -> None:
        """Drop what is remembered of a Service that is gone."""
        self._memories.pop(key, None)
