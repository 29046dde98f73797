"""Queries of guest agents for host names, on behalf of new Nodes whose VM no other identity reveals.

All guests are queried at once, because two VMs with one host name must be seen as two. Results are cached for a minute,
also failures.
"""

import asyncio
from typing import Final

import structlog

from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import Forbidden, KubeError
from harvester_ccm.model.harvester import GUEST_OS_INFO, VirtualMachineInstance
from harvester_ccm.plan.node.vms import queryable_guests

HOSTNAME_SECONDS: Final = 60.0
"""Time for which the host name of a guest, or the failure to get it, is cached."""
MAX_PARALLEL: Final = 16
"""Maximum number of queries in flight: KubeVirt passes each on to a guest."""

log = structlog.get_logger(__name__)


class GuestHostnames:
    """Queries guest agents on behalf of Nodes."""

    def __init__(self, harvester: ApiClient, caches: Caches) -> None:
        self._harvester = harvester
        self._caches = caches
        self._queried_at: dict[str, float] = {}
        """Loop time of the last query by UID of the VMI."""
        self._limit = asyncio.Semaphore(MAX_PARALLEL)
        self._query_lock = asyncio.Lock()
        self._forbidden = False

    async def query(self) -> None:
        """Query the guests whose result is not cached. Concurrent calls share the queries."""
        async with self._query_lock:
            now = loop_time()
            self._queried_at = {uid: at for uid, at in self._queried_at.items() if now - at < HOSTNAME_SECONDS}
            vmis = [vmi for vmi in queryable_guests(self._caches) if vmi.metadata.uid not in self._queried_at]
            hostnames = dict(self._caches.hostnames)
            for vmi, hostname in zip(vmis, await asyncio.gather(*map(self._query, vmis)), strict=True):
                self._queried_at[vmi.metadata.uid] = loop_time()
                hostnames[vmi.metadata.name] = hostname
            # A VM that was restarted meanwhile can have another host name.
            known = {vmi.metadata.name for vmi in self._caches.vmis.all() if vmi.metadata.uid in self._queried_at}
            self._caches.hostnames = {
                name: hostname for name, hostname in hostnames.items() if hostname and name in known
            }

    async def _query(self, vmi: VirtualMachineInstance) -> str:
        """Return the host name of a guest; empty if its agent returned none."""
        name = vmi.metadata.name
        namespace = vmi.metadata.namespace
        try:
            async with self._limit:
                info = await self._harvester.get(GUEST_OS_INFO, name, namespace=namespace, subresource="guestosinfo")
        except KubeError as error:
            if isinstance(error, Forbidden) and not self._forbidden:
                self._forbidden = True
                log.warning(
                    "guest host names not readable",
                    effect="a VM must have the name or system UUID of its Node",
                    fix="bind ClusterRole harvesterhci.io:cloudprovider to the service account of the cloud-config",
                    error=str(error),
                )
            log.debug("guest agent returned no host name", vm=name, error=str(error))
            return ""
        return info.hostname
