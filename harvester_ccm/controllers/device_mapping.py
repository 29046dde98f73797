"""Controller of the ConfigMap ``kube-system/harvester-nad-mapping``: Harvester network to device in the nodes.

It has one key; changes of Nodes and VMs within a second cause one reconcile. ``plan_device_mapping`` decides about the
value. Charts before 0.2.13 do not grant ConfigMaps: everything else works without.
"""

from typing import Final

import structlog

from harvester_ccm.controllers.vms import VMCache
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import AdmissionDenied, Forbidden, NotFound
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.outcome import Done, Outcome, Wait
from harvester_ccm.kube.workqueue import WorkQueue
from harvester_ccm.kube.write_limit import WRITE_LIMIT, WriteRateLimiter
from harvester_ccm.model.core import CONFIG_MAPS, ConfigMap
from harvester_ccm.model.event import EventMessage
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NodeReason
from harvester_ccm.plan.node.vms import own_vmis, plan_device_mapping

KEY: Final = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
COMPONENT: Final = "network-mapping"
"""Source of the Events on the ConfigMap."""
COALESCE_SECONDS: Final = 1.0
"""Delay after a change: hundreds of VMs that start one after the other cause few reconciles."""
DENIED_RETRY_SECONDS: Final = 600.0
"""Interval between two attempts to write while RBAC, a quota or an admission webhook denies it."""
_DOCUMENTS: Final = CONFIG_MAPS.whole()
MAPPING_CONFLICT: Final = EventMessage(
    "Warning",
    NodeReason.FIELD_CONFLICT,
    f"Changes of this ConfigMap are delayed: {WRITE_LIMIT}. Another program, for example a GitOps tool, deletes it or "
    f"overwrites its key {NAD_MAPPING_KEY}",
    "Have that program ignore the ConfigMap",
)

log = structlog.get_logger(__name__)


class NetworkMapping:
    """Writes the ConfigMap."""

    def __init__(
        self, guest: ApiClient, vms: VMCache, config_maps: Informer[ConfigMap], *, recorder: EventRecorder
    ) -> None:
        self._guest = guest
        self._vms = vms
        self._config_maps = config_maps
        self._limiter = WriteRateLimiter()
        self._recorder = recorder
        self._denied_until = 0.0
        """Loop time of the next attempt to write after one that was denied."""
        self.queue = WorkQueue("network_mapping", self.reconcile, workers=1, resync=lambda: (KEY,))
        vms.on_wake(lambda _node: self.queue.enqueue_after(KEY, COALESCE_SECONDS))
        config_maps.on_change(lambda _old, _new: self.queue.enqueue(KEY))
        config_maps.on_state(lambda: self.queue.enqueue(KEY))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._vms.nodes.wait_synced()
        self.queue.enqueue(KEY)
        await self.queue.run()

    async def reconcile(self, key: str) -> Outcome:
        """Reconcile the ConfigMap."""
        if not (self._config_maps.synced and self._vms.vms.synced and self._vms.vmis.synced):
            return Wait("caches")
        found = self._config_maps.get(key)
        value = plan_device_mapping(own_vmis(self._vms), found)
        if value is None:
            return Done()
        if delay := max(self._denied_until - loop_time(), 0.0):
            return Wait("permission", delay)
        if delay := self._limiter.delay(KEY):
            if found is not None:
                self._recorder.emit(CONFIG_MAPS, found, MAPPING_CONFLICT, component=COMPONENT)
            return Wait("throttled", delay)
        try:
            self._config_maps.observe(await self._write(value))
        except (Forbidden, AdmissionDenied) as error:
            self._denied_until = loop_time() + DENIED_RETRY_SECONDS
            log.warning(
                "network mapping not written",
                effect="Services with a network annotation get no device",
                remedy="grant get, list, watch, create and update on configmaps, or change the quota or webhook",
                config_map=KEY,
                error=str(error),
            )
            return Wait("permission", DENIED_RETRY_SECONDS)
        self._limiter.record(KEY)
        log.info("network mapping written", config_map=KEY, mapping=value)
        return Done()

    async def _write(self, value: str) -> ConfigMap:
        """Write the value. Charts grant no patch, so other keys and labels of the ConfigMap are read and kept."""
        try:
            document = await self._guest.get(_DOCUMENTS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)
        except NotFound:
            metadata = {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE}
            body = {"metadata": metadata, "data": {NAD_MAPPING_KEY: value}}
            return await self._guest.create(CONFIG_MAPS, body, namespace=NAD_MAPPING_NAMESPACE)
        data = document.get("data")
        document["data"] = {**(data if isinstance(data, dict) else {}), NAD_MAPPING_KEY: value}
        return await self._guest.replace(CONFIG_MAPS, NAD_MAPPING_NAME, document, namespace=NAD_MAPPING_NAMESPACE)
