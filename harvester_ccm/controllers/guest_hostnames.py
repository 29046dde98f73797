"""Queries of guest agents for host names, for new Nodes whose VM no other identity reveals.

All candidates are queried at once, because two VMs with one host name must be seen as two. Results are cached for a
minute, also failures.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from harvester_ccm.controllers.vms import GuestHostname, VMCache
from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.model.harvester import GUEST_OS_INFO, VirtualMachineInstance
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.node.vms import VM, all_vms, has_queryable_guest, join

MAX_PARALLEL: Final = 16
"""Maximum number of queries in flight: KubeVirt passes each on to a guest."""

log = structlog.get_logger(__name__)


class GuestHostnames:
    """Queries guest agents on behalf of Nodes."""

    def __init__(self, harvester: ApiClient, vms: VMCache) -> None:
        self._harvester = harvester
        self._vms = vms
        self._limit = asyncio.Semaphore(MAX_PARALLEL)
        self._query_lock = asyncio.Lock()
        self._forbidden = False

    async def query(self) -> bool:
        """Query the candidates whose result is not cached; return whether there is a new host name.

        Concurrent calls share the queries.
        """
        async with self._query_lock:
            vmis = [vm.vmi for vm in self._candidates() if vm.vmi is not None]
            answers = await asyncio.gather(*map(self._query, vmis))
            results = {vmi.metadata.name: answer for vmi, answer in zip(vmis, answers, strict=True)}
            return self._vms.cache_hostnames(results)

    def is_candidate(self, vmi: VirtualMachineInstance) -> bool:
        """Return whether the guest of a VMI can be queried now."""
        vm = self._vms.vms.get(vmi.metadata.key)
        return vm is not None and self._is_candidate(join(self._vms, vm))

    def _candidates(self) -> list[VM]:
        return [vm for vm in all_vms(self._vms) if self._is_candidate(vm)]

    def _is_candidate(self, vm: VM) -> bool:
        vms = self._vms
        if vms.is_cached(vm.name) or not has_queryable_guest(vms, vm):
            return False
        nodes = (vms.nodes.get(name) for name in vms.nodes_of(vm.object, vm.vmi))
        found = (find_vm(vms, node).vm for node in nodes if node is not None)
        return all(one is None or one.uid != vm.uid for one in found)

    async def _query(self, vmi: VirtualMachineInstance) -> GuestHostname:
        meta, hostname = vmi.metadata, ""
        try:
            async with self._limit:
                info = await self._harvester.get(
                    GUEST_OS_INFO, meta.name, namespace=meta.namespace, subresource="guestosinfo"
                )
            hostname = info.hostname
        except CCMError as error:
            if isinstance(error, Forbidden) and not self._forbidden:
                self._forbidden = True
                log.warning(
                    "host names of guests not readable, a VM must have the name or UUID of its Node; bind "
                    "the ClusterRole harvesterhci.io:cloudprovider to the service account of the cloud-config",
                    error=str(error),
                )
            log.debug("guest agent returned no host name", vm=meta.name, error=str(error))
        return GuestHostname(meta.uid, hostname, loop_time())
