"""The controller of the ConfigMap ``kube-system/harvester-nad-mapping``: Harvester network to device in the nodes.

It has one key. ``plan_device_mapping`` decides about the value. Charts before 0.2.13 do not grant ConfigMaps:
everything else works without.
"""

from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.controllers.concerned import MAPPING_KEY, network_mapping
from harvester_ccm.controllers.reconciler import LimitedWrite, QueueName, Reconciler, Shared
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import AdmissionDenied, Forbidden, NotFound
from harvester_ccm.kube.outcome import Outcome
from harvester_ccm.kube.write_limit import WRITE_LIMIT
from harvester_ccm.model.core import CONFIG_MAPS, ConfigMap
from harvester_ccm.model.event import EventMessage
from harvester_ccm.model.harvester import VirtualMachineInstance
from harvester_ccm.names import NAD_MAPPING_KEY, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, NodeReason
from harvester_ccm.plan.node.device_mapping import plan_device_mapping
from harvester_ccm.plan.node.vms import own_vmis

COMPONENT: Final = "network-mapping"
"""Source of the Events on the ConfigMap."""
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


class MappingSnapshot(Struct, frozen=True):
    """Everything that the value depends on."""

    config_map: ConfigMap | None
    vmis: list[VirtualMachineInstance]
    """The VMIs of the nodes."""
    is_known: bool
    """Whether the ConfigMap, the VMs and the VMIs have been listed."""
    denied_for: float
    """Seconds until the next attempt to write after one that was denied."""


class MappingPlan(Struct, frozen=True):
    """The value to write, or why none is written."""

    write: str | None = None
    outcome: Outcome = Outcome()


class NetworkMapping(Reconciler[MappingSnapshot, MappingPlan]):
    """Writes the ConfigMap."""

    def __init__(self, shared: Shared, guest: ApiClient) -> None:
        super().__init__(QueueName.NETWORK_MAPPING, shared, resource=CONFIG_MAPS, component=COMPONENT, workers=1)
        self._guest = guest
        self._denied_until = 0.0
        """Loop time of the next attempt to write after one that was denied."""

    async def wait_synced(self) -> None:
        """Return when Nodes are listed."""
        await self.caches.nodes.wait_synced()

    def keys(self) -> list[str]:
        return network_mapping(self.caches)

    async def observe(self, key: str) -> MappingSnapshot:
        """Return the snapshot of the ConfigMap, also if it does not exist."""
        caches = self.caches
        return MappingSnapshot(
            config_map=caches.config_maps.get(key),
            vmis=own_vmis(caches),
            is_known=caches.config_maps.synced and caches.vms.synced and caches.vmis.synced,
            denied_for=max(0.0, self._denied_until - loop_time()),
        )

    def plan(self, snapshot: MappingSnapshot) -> MappingPlan:
        if not snapshot.is_known:
            return MappingPlan(outcome=Outcome("caches"))
        value = plan_device_mapping(snapshot.vmis, snapshot.config_map)
        if value is not None and snapshot.denied_for > 0:
            return MappingPlan(outcome=Outcome("permission", snapshot.denied_for))
        return MappingPlan(value)

    async def settle(self, plan: MappingPlan, _snapshot: MappingSnapshot) -> Outcome:
        return plan.outcome

    def limited(self, _write: str, _snapshot: MappingSnapshot) -> LimitedWrite:
        """Return what the rate limit has to know. The ConfigMap has a UID only once it exists."""
        return LimitedWrite(MAPPING_KEY)

    def report_conflict(self, _fields: list[str], snapshot: MappingSnapshot) -> None:
        if snapshot.config_map is not None:
            self.emit(snapshot.config_map, MAPPING_CONFLICT)

    async def send(self, write: str, _plan: MappingPlan, snapshot: MappingSnapshot) -> Outcome | None:
        """Write the value; a denied write is logged and repeated after a long time."""
        cache = self.caches.config_maps
        seen = cache.version
        try:
            written = await self._write(write)
        except (Forbidden, AdmissionDenied) as error:
            self._denied_until = loop_time() + DENIED_RETRY_SECONDS
            log.warning(
                "network mapping not written",
                effect="Services with a network annotation get no device",
                fix="grant get, list, watch, create and update on configmaps, or change the quota or webhook",
                config_map=MAPPING_KEY,
                error=str(error),
            )
            return Outcome("permission", DENIED_RETRY_SECONDS)
        if snapshot.config_map is None:
            cache.observe_missing(written, seen)
        else:
            cache.observe_current(snapshot.config_map, written)
        log.info("network mapping written", config_map=MAPPING_KEY, mapping=write)
        return None

    async def _write(self, value: str) -> ConfigMap:
        """Write the value. Charts grant no patch, so other keys and labels of the ConfigMap are read and kept."""
        try:
            document = await self._guest.get(_DOCUMENTS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)
        except NotFound:
            metadata = {"name": NAD_MAPPING_NAME, "namespace": NAD_MAPPING_NAMESPACE}
            body = {"metadata": metadata, "data": {NAD_MAPPING_KEY: value}}
            return await self._guest.create(CONFIG_MAPS, body, namespace=NAD_MAPPING_NAMESPACE)
        data = document.get("data")
        others = data if isinstance(data, dict) else {}
        document["data"] = {**others, NAD_MAPPING_KEY: value}
        return await self._guest.replace(CONFIG_MAPS, NAD_MAPPING_NAME, document, namespace=NAD_MAPPING_NAMESPACE)
