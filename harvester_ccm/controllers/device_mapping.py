"""The ConfigMap ``kube-system/harvester-nad-mapping``: which device of the nodes is in which Harvester network.

Kept by one key in one queue: any number of changes of VMs within a moment leads to one look. What it says is decided in
``plan.node.device_mapping``. Charts before 0.2.13 do not grant ConfigMaps; that is said once, and the rest goes on
without.
"""

from __future__ import annotations

from typing import Final

import structlog

from harvester_ccm.controllers.field_conflict import MAPPING_CONFLICT
from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.errors import AdmissionDenied, AlreadyExists, Conflict, Forbidden, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.rate_limiter import WriteRateLimiter
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.model.core import CONFIG_MAPS, ConfigMap
from harvester_ccm.model.outcome import Done, Outcome, Wait
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE
from harvester_ccm.plan.node.device_mapping import new_config_map, plan_device_mapping
from harvester_ccm.plan.node.vms import own_vmis

KEY: Final = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
COMPONENT: Final = "network-mapping"
"""Source of the Events on the ConfigMap."""
COALESCE_SECONDS: Final = 0.2
"""Delay after a change of a VM: hundreds of VMs that start one after the other cause few reconciles."""
FORBIDDEN_PAUSE: Final = 600.0
"""Seconds until a write that is not granted, or that a rule of the cluster refuses, is tried again."""

_NOT_GRANTED: Final = (
    "network mapping not kept, Services with a network annotation get no device; grant get, list, watch, create and "
    "update on configmaps to the service account"
)
_NOT_ADMITTED: Final = (
    "network mapping not kept, Services with a network annotation get no device; have the quota, policy or webhook "
    "that refuses it allow this ConfigMap"
)
_DOCUMENTS: Final = CONFIG_MAPS.whole()

log = structlog.get_logger(__name__)


class NetworkMapping:
    """Keeps the ConfigMap."""

    def __init__(
        self, guest: ApiClient, vms: VMCache, config_maps: Informer[ConfigMap], *, recorder: EventRecorder
    ) -> None:
        self._guest = guest
        self._vms = vms
        self._config_maps = config_maps
        self._limiter = WriteRateLimiter()
        self._recorder = recorder
        self._forbidden_until: float | None = None
        """Loop time before which nothing is written; None while nothing was refused."""
        self.queue = WorkQueue("network mapping", self.reconcile, workers=1)
        vms.on_networks(lambda: self.queue.enqueue_after(KEY, COALESCE_SECONDS))
        config_maps.on_change(lambda _old, _new: self._wake())
        config_maps.on_state(self._wake)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._vms.nodes.wait_synced()
        self._wake()
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Make the ConfigMap say what the nodes' VMs say."""
        if not self._config_maps.synced:
            if isinstance(self._config_maps.problem, Forbidden):
                self._say_forbidden(self._config_maps.problem)
            return Wait("ConfigMap")
        if not (self._vms.vms.synced and self._vms.vmis.synced):
            return Wait("VMs")
        value = plan_device_mapping(own_vmis(self._vms), self._config_maps.get(key))
        return Done() if value is None else await self._apply(value)

    async def _apply(self, value: str) -> Outcome:
        now, found = loop_time(), self._config_maps.get(KEY)
        if self._forbidden_until is not None and now < self._forbidden_until:
            return Wait("grant", self._forbidden_until - now)
        if delay := self._limiter.delay(KEY):
            if found is not None:
                self._recorder.emit(CONFIG_MAPS, found, MAPPING_CONFLICT, component=COMPONENT)
            return Wait("throttled", delay)
        try:
            await self._write(value)
        except (Forbidden, AdmissionDenied) as error:
            self._say_forbidden(error)
            return Wait("grant", FORBIDDEN_PAUSE)
        self._limiter.record(KEY)
        self._forbidden_until = None
        log.info("network mapping written", config_map=KEY, mapping=value)
        return Done()

    async def _write(self, value: str) -> None:
        """Put the value; other keys and labels of the ConfigMap stay (there is no right to patch it)."""
        try:
            document = await self._guest.get(_DOCUMENTS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)
        except NotFound:
            await self._create(value)
            return
        data = document.get("data")
        document["data"] = {**(data if isinstance(data, dict) else {}), NAD_MAPPING_KEY: value}
        written = await self._guest.replace(CONFIG_MAPS, NAD_MAPPING_NAME, document, namespace=NAD_MAPPING_NAMESPACE)
        self._config_maps.observe(written)

    async def _create(self, value: str) -> None:
        try:
            created = await self._guest.create(CONFIG_MAPS, new_config_map(value), namespace=NAD_MAPPING_NAMESPACE)
        except AlreadyExists as error:
            # Somebody was faster; what they wrote is looked at in a moment.
            raise Conflict(error.answer) from error
        self._config_maps.observe(created)

    def _say_forbidden(self, error: Forbidden | AdmissionDenied) -> None:
        said = self._forbidden_until is not None
        self._forbidden_until = loop_time() + FORBIDDEN_PAUSE
        if said:
            return
        log.warning(_NOT_GRANTED if isinstance(error, Forbidden) else _NOT_ADMITTED, config_map=KEY, error=str(error))

    def _wake(self) -> None:
        self.queue.enqueue(KEY)
