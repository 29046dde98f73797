"""What wakes what: the changes that enqueue objects, in one table, ``RULES``.

Before a collection is listed for the first time, its changes wake nobody: when the list is complete, everything is
enqueued. Besides, an object is enqueued by its own timers and by the resync of its controller.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.controllers import concerned
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.controllers.concerned import MAPPING_KEY
from harvester_ccm.controllers.reconciler import QueueName, Reconciler
from harvester_ccm.kube.informer import Informer

BACKENDS_SECONDS: Final = 0.2
"""Delay of a refresh of the backends: hundreds of Nodes that join one after the other cause few refreshes."""
MAPPING_SECONDS: Final = 1.0
"""Delay of a reconcile of the network mapping, for the same reason."""


class Signal(StrEnum):
    """What can happen to the caches: an object changes, or the state of a list.

    A list is complete for the first time, fails, or works again after a failure.
    """

    SERVICE = "Service"
    SERVICES = "list of Services"
    LOAD_BALANCER = "load balancer"
    LOAD_BALANCERS = "list of load balancers"
    NODE = "Node"
    NODES = "list of Nodes"
    VM = "VM"
    VMS = "list of VMs"
    VMI = "VM instance"
    VMIS = "list of VM instances"
    CONFIG_MAP = "ConfigMap of devices"
    CONFIG_MAPS = "list of this ConfigMap"
    BACKENDS = "nodes that get traffic"
    POOL_RIGHTS = "permission for IP pools"


class Enqueue(Struct, frozen=True):
    """The objects are enqueued."""

    queue: QueueName
    in_background: bool = False
    """Whether they are reconciled while nothing is urgent: one change can concern thousands of objects."""


class EnqueueFamilies(Struct, frozen=True):
    """The objects are primaries, whose families are enqueued in the background.

    That happens in the next step of the event loop: a list of Services can have thousands of changes at once.
    """

    queue: QueueName = QueueName.SERVICE


class EnqueueMapping(Struct, frozen=True):
    """If there are objects, the network mapping is enqueued."""

    after_seconds: float = 0.0
    queue: QueueName = QueueName.NETWORK_MAPPING


class RefreshBackends(Struct, frozen=True):
    """If there are objects, the nodes that get traffic are determined again."""

    after_seconds: float = 0.0
    queue: QueueName = QueueName.SERVICE
    """The controller that needs them."""


Effect = Enqueue | EnqueueFamilies | EnqueueMapping | RefreshBackends


class Rule(Struct, frozen=True):
    """The objects that a signal concerns, and what happens to them."""

    signals: tuple[Signal, ...]
    keys: Callable[[Caches, Any, Any], Collection[str]]
    effects: tuple[Effect, ...]


_SERVICE: Final = Enqueue(QueueName.SERVICE)
_SERVICE_IN_BACKGROUND: Final = Enqueue(QueueName.SERVICE, in_background=True)
_ORPHAN: Final = Enqueue(QueueName.ORPHANS)
_NODE: Final = Enqueue(QueueName.NODE)
_LIFECYCLE: Final = Enqueue(QueueName.NODE_LIFECYCLE)
_OF_NODES: Final = (_NODE, _LIFECYCLE, EnqueueMapping(MAPPING_SECONDS), RefreshBackends(BACKENDS_SECONDS))
_OF_ALL_SERVICES: Final = (Signal.LOAD_BALANCERS, Signal.VMS, Signal.VMIS, Signal.CONFIG_MAP, Signal.CONFIG_MAPS)

RULES: Final = (
    # Services
    Rule((Signal.SERVICE,), concerned.changed_service, (_SERVICE,)),
    Rule((Signal.SERVICE,), concerned.primaries_of_service, (EnqueueFamilies(),)),
    Rule((Signal.LOAD_BALANCER,), concerned.service_of_load_balancer, (_SERVICE,)),
    Rule((Signal.LOAD_BALANCER,), concerned.primaries_of_load_balancer, (EnqueueFamilies(),)),
    Rule((Signal.LOAD_BALANCER,), concerned.services_of_address, (_SERVICE_IN_BACKGROUND,)),
    Rule((Signal.POOL_RIGHTS,), concerned.services_with_request, (_SERVICE_IN_BACKGROUND,)),
    Rule((Signal.BACKENDS,), concerned.services_with_backends, (_SERVICE,)),
    Rule(_OF_ALL_SERVICES, concerned.services_without_address, (_SERVICE,)),
    Rule(_OF_ALL_SERVICES, concerned.decidable_services, (_SERVICE_IN_BACKGROUND,)),
    # Load balancers without a Service
    Rule((Signal.SERVICE,), concerned.load_balancers_of_service, (_ORPHAN,)),
    Rule((Signal.LOAD_BALANCER,), concerned.orphaned_load_balancer, (_ORPHAN,)),
    # Nodes, and what follows from their VMs
    Rule((Signal.NODE,), concerned.nodes_of_node, _OF_NODES),
    Rule((Signal.VM,), concerned.nodes_of_vm, _OF_NODES),
    Rule((Signal.VMI,), concerned.nodes_of_vmi, _OF_NODES),
    Rule((Signal.VMI,), concerned.nodes_without_identity, (_NODE,)),
    Rule((Signal.VMS, Signal.VMIS), concerned.all_nodes, (_NODE, _LIFECYCLE)),
    Rule((Signal.SERVICES, Signal.LOAD_BALANCERS), concerned.all_nodes, (_NODE,)),
    # What exists once
    Rule((Signal.VMS, Signal.VMIS), concerned.network_mapping, (EnqueueMapping(), RefreshBackends())),
    Rule((Signal.CONFIG_MAP, Signal.CONFIG_MAPS), concerned.network_mapping, (EnqueueMapping(),)),
)


class Wakes:
    """Applies the rules to the controllers of a process, from its creation on."""

    def __init__(self, caches: Caches, controllers: Iterable[Reconciler[Any, Any]]) -> None:
        self._caches = caches
        self._controllers = {controller.name: controller for controller in controllers}
        self._rules = {signal: self._rules_of(signal) for signal in Signal}
        self._primaries: set[str] = set()
        """The primaries whose families are enqueued in the next step of the event loop."""
        self._refresh: asyncio.TimerHandle | None = None
        """Set while a refresh of the backends is scheduled."""
        self._follow(caches.services, change=Signal.SERVICE, state=Signal.SERVICES)
        self._follow(caches.load_balancers, change=Signal.LOAD_BALANCER, state=Signal.LOAD_BALANCERS)
        self._follow(caches.nodes, change=Signal.NODE, state=Signal.NODES)
        self._follow(caches.vms, change=Signal.VM, state=Signal.VMS)
        self._follow(caches.vmis, change=Signal.VMI, state=Signal.VMIS)
        self._follow(caches.config_maps, change=Signal.CONFIG_MAP, state=Signal.CONFIG_MAPS)
        caches.on_backends = partial(self._apply, Signal.BACKENDS)
        caches.on_pool_rights = partial(self._apply, Signal.POOL_RIGHTS)

    def _rules_of(self, signal: Signal) -> list[Rule]:
        """Return the rules for a signal, with the effects on the controllers that run."""
        rules = []
        for rule in RULES:
            effects = tuple(effect for effect in rule.effects if effect.queue in self._controllers)
            if signal in rule.signals and effects:
                rules.append(replace(rule, effects=effects))
        return rules

    def _follow(self, cache: Informer[Any], *, change: Signal, state: Signal) -> None:
        def changed(old: object, new: object) -> None:
            if cache.synced:
                self._apply(change, old, new)

        cache.on_change(changed)
        cache.on_state(partial(self._apply, state))

    def _apply(self, signal: Signal, old: object = None, new: object = None) -> None:
        for rule in self._rules[signal]:
            keys = rule.keys(self._caches, old, new)
            if not keys:
                continue
            for effect in rule.effects:
                self._carry_out(effect, keys)

    def _carry_out(self, effect: Effect, keys: Collection[str]) -> None:
        match effect:
            case Enqueue(queue=queue, in_background=False):
                self._controllers[queue].wake(keys)
            case Enqueue(queue=queue, in_background=True):
                self._controllers[queue].queue.enqueue_background(keys)
            case EnqueueFamilies():
                self._wake_families(keys)
            case EnqueueMapping(queue=queue, after_seconds=seconds):
                self._controllers[queue].queue.enqueue_after(MAPPING_KEY, seconds)
            case RefreshBackends(after_seconds=seconds):
                self._schedule_backends(seconds)

    def _wake_families(self, primary_keys: Collection[str]) -> None:
        if not self._primaries:
            asyncio.get_running_loop().call_soon(self._enqueue_families)
        self._primaries.update(primary_keys)

    def _enqueue_families(self) -> None:
        primary_keys = self._primaries
        self._primaries = set()
        queue = self._controllers[QueueName.SERVICE].queue
        for primary_key in primary_keys:
            queue.enqueue_background(concerned.family_of(self._caches, primary_key))

    def _schedule_backends(self, seconds: float) -> None:
        if not seconds:
            # Before the Services that the same signal enqueues are planned.
            self._caches.refresh_backends()
        elif self._refresh is None:
            self._refresh = asyncio.get_running_loop().call_later(seconds, self._refresh_backends)

    def _refresh_backends(self) -> None:
        self._refresh = None
        self._caches.refresh_backends()
