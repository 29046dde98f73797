"""Host names of guests, asked of their agents for new Nodes whose VM is not known by anything else.

Asked are running VMs that may be ours and that are no Node's yet, and only while a new Node seeks its VM: for a Node
that shows its VM's UUID or name there is no question at all. A VM is asked again with growing pauses, and soon after
another Node joined: a guest often gets its name after its agent has started. Nothing that an agent answers, or that it
does not answer, is worth more than a debug line.

Answers are handed on together, when no question is open any more: two VMs with one name must be seen as two.
"""

from __future__ import annotations

from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.backoff import backoff
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.object_state import ObjectStates
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.harvester import GUEST_OS_INFO, VirtualMachineInstance
from harvester_ccm.model.outcome import Done, Outcome, Wait
from harvester_ccm.plan.node.match import match_vm
from harvester_ccm.plan.node.vms import may_be_asked

WORKERS: Final = 8
"""Agents asked at once."""
PAUSES: Final = (5.0, 300.0)
"""First and longest pause in seconds between two questions to one agent."""
LONGEST_WAIT: Final = 10.0
"""Seconds after which answers are handed on although other questions are open."""

log = structlog.get_logger(__name__)


class _Asked(Struct):
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
        self._unmatched: set[str] = set()
        """Names of new Nodes whose VM is not known by anything that was read so far."""
        self._asked = ObjectStates(_Asked)
        self._answers: dict[str, tuple[VirtualMachineInstance, str]] = {}
        self._first_answer = 0.0
        self._forbidden = False
        self.queue = WorkQueue("guest hostname", self.reconcile, workers=WORKERS)
        vms.vmis.on_change(self._vmi_changed)

    def set_unmatched(self, node_name: str, unmatched: bool) -> None:
        """Note whether a Node can only be found by its guest's host name; agents are asked while there is one."""
        if not unmatched:
            self._unmatched.discard(node_name)
        elif node_name not in self._unmatched:
            self._unmatched.add(node_name)
            self._consider_all()

    async def run(self) -> None:
        """Work until cancelled."""
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Ask one VM's agent, if there is a reason to."""
        try:
            return await self._ask(key)
        finally:
            self._hand_on()

    async def _ask(self, key: str) -> Outcome:
        vmi = self._candidate(key)
        if vmi is None:
            self._asked.forget(key)
            return Done()
        now = loop_time()
        asked = self._asked.of(vmi)
        if now >= asked.due:
            asked.times += 1
            asked.last = now
            asked.due = now + backoff(asked.times, first=PAUSES[0], longest=PAUSES[1])
            await self._question(key, vmi)
        return Wait("guest agent", max(asked.due - loop_time(), 0.0))

    async def _question(self, key: str, vmi: VirtualMachineInstance) -> None:
        meta = vmi.metadata
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
            self._first_answer = loop_time()
        self._answers[key] = (vmi, info.hostname)

    def _candidate(self, key: str) -> VirtualMachineInstance | None:
        """Return the VMI whose agent should be asked: of a VM that may be ours and is no Node's yet."""
        vms = self._vms
        index = vms.index()
        vmi = vms.vmis.get(key)
        vm = index.by_name.get(vmi.metadata.name) if vmi and self._unmatched else None
        if vm is None or not may_be_asked(vm, index):
            return None
        nodes = (vms.nodes.get(name) for name in vms.nodes_of(vm))
        found = (match_vm(vms, node).vm for node in nodes if node is not None)
        return None if any(one is not None and one.uid == vm.uid for one in found) else vmi

    def _hand_on(self) -> None:
        """Give the answers to the join, unless other questions may still bring a second VM of the same name."""
        waited = loop_time() - self._first_answer
        if not self._answers or (waited < LONGEST_WAIT and (self.queue.depth or self.queue.busy > 1)):
            return
        answers, self._answers = self._answers, {}
        for vmi, hostname in answers.values():
            self._vms.set_hostname(vmi, hostname)

    def _consider_all(self) -> None:
        """Ask again soon: a guest has its name by the time that its Node joins."""
        for vmi in self._vms.vmis.all():
            asked = self._asked.of(vmi)
            asked.due = min(asked.due, asked.last + PAUSES[0])
            self.queue.enqueue(vmi.metadata.key)

    def _vmi_changed(self, _old: VirtualMachineInstance | None, new: VirtualMachineInstance | None) -> None:
        if new is not None and self._unmatched:
            self.queue.enqueue(new.metadata.key)
