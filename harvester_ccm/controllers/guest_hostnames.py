"""Host names of guests, asked of their agents for new Nodes whose VM is not known by anything else.

Asked are running VMs that may be ours and that are no Node's yet, and only while a new Node seeks its VM: for a Node
that shows its VM's UUID or name there is no question at all. A VM is asked again with growing pauses, and soon after
another Node joined: a guest often gets its name after its agent has started. Nothing that an agent answers, or that it
does not answer, is worth more than a debug line.

Answers are handed on together, when no question is open any more: two VMs with one name must be seen as two.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from harvester_ccm.controllers.runner import Runner
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.backoff import backoff
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.harvester import GUEST_OS_INFO, VirtualMachineInstance
from harvester_ccm.model.outcome import Done, Outcome, Retry
from harvester_ccm.plan.node.vms import may_be_asked

WORKERS: Final = 8
"""Agents asked at once."""
PAUSES: Final = (5.0, 300.0)
"""First and longest pause in seconds between two questions to one agent."""
LONGEST_WAIT: Final = 10.0
"""Seconds after which answers are handed on although other questions are open."""

log = structlog.get_logger(__name__)


@dataclass
class _Asked:
    instance_uid: str
    times: int = 0
    last: float = 0.0
    """Loop time of the last question."""
    due: float = 0.0
    """Loop time before which the agent is not asked again."""


class GuestHostnames:
    """Learns host names for the join of Nodes and VMs."""

    def __init__(self, harvester: ApiClient, vms: VMCache) -> None:
        self._harvester = harvester
        self._vms = vms
        self._instances = vms.caches.instances
        self._asked: dict[str, _Asked] = {}
        self._answers: dict[str, tuple[VirtualMachineInstance, str]] = {}
        self._first_answer = 0.0
        self._forbidden = False
        self.runner = Runner("guest hostname", self.reconcile, workers=WORKERS)
        vms.on_seek(self._consider_all)
        self._instances.on_change(self._instance_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.runner.run()

    async def reconcile(self, key: str) -> Outcome:
        """Ask one VM's agent, if there is a reason to."""
        try:
            return await self._ask(key)
        finally:
            self._hand_on()

    async def _ask(self, key: str) -> Outcome:
        instance = self._candidate(key)
        if instance is None:
            self._asked.pop(key, None)
            return Done()
        now = asyncio.get_running_loop().time()
        asked = self._asked.get(key)
        if asked is None or asked.instance_uid != instance.metadata.uid:
            asked = self._asked[key] = _Asked(instance.metadata.uid)
        if now >= asked.due:
            asked.times += 1
            first, longest = PAUSES
            asked.last = now
            asked.due = now + backoff(asked.times, first=first, longest=longest)
            await self._question(key, instance)
        return Retry(max(asked.due - asyncio.get_running_loop().time(), 0.0))

    async def _question(self, key: str, instance: VirtualMachineInstance) -> None:
        meta = instance.metadata
        try:
            info = await self._harvester.get(
                GUEST_OS_INFO, meta.name, namespace=meta.namespace, subresource="guestosinfo"
            )
        except CCMError as error:
            if isinstance(error, Forbidden) and not self._forbidden:
                self._forbidden = True
                log.warning(
                    "guest agents may not be asked for host names, a VM must have the name or UUID of its Node; bind "
                    "the ClusterRole harvesterhci.io:cloudprovider to the service account of the cloud-config",
                    error=str(error),
                )
            log.debug("guest agent gave no host name", vm=meta.name, error=str(error))
            return
        log.debug("guest agent gave a host name", vm=meta.name, hostname=info.hostname)
        if not self._answers:
            self._first_answer = asyncio.get_running_loop().time()
        self._answers[key] = (instance, info.hostname)

    def _candidate(self, key: str) -> VirtualMachineInstance | None:
        """Return the instance whose agent should be asked: of a VM that may be ours and is no Node's yet."""
        vms = self._vms
        index = vms.index()
        instance = self._instances.get(key)
        machine = index.by_name.get(instance.metadata.name) if instance and vms.seekers else None
        if machine is None or machine.uid in index.claims or not may_be_asked(machine):
            return None
        nodes = (vms.caches.nodes.get(name) for name in vms.nodes_of(machine))
        found = (vms.match(node).vm for node in nodes if node is not None)
        return None if any(one is not None and one.uid == machine.uid for one in found) else instance

    def _hand_on(self) -> None:
        """Give the answers to the join, unless other questions may still bring a second VM of the same name."""
        waited = asyncio.get_running_loop().time() - self._first_answer
        if not self._answers or (waited < LONGEST_WAIT and (self.runner.depth or self.runner.busy > 1)):
            return
        answers, self._answers = self._answers, {}
        for instance, hostname in answers.values():
            self._vms.learn(instance, hostname)

    def _consider_all(self) -> None:
        """Ask again soon: a guest has its name by the time that its Node joins."""
        for asked in self._asked.values():
            asked.due = min(asked.due, asked.last + PAUSES[0])
        for instance in self._instances.all():
            self.runner.enqueue(instance.metadata.key)

    def _instance_changed(self, _old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        if new is not None and self._vms.seekers:
            self.runner.enqueue(new.metadata.key)
