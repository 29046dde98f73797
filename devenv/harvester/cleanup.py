"""Harvester's removal of the load balancers of a guest cluster, when Rancher removes the cluster."""

import asyncio

import structlog

from devenv.harvester.admission import CLUSTER_LABEL, GUEST_CLUSTER_LABEL, is_cluster, is_removed
from devenv.harvester.records import Records, is_deleting
from devenv.watch import Document, Mirror, key_of, labels_of
from harvester_ccm.kube.errors import Conflict, KubeError, NotFound

RETRY_SECONDS = 0.2

log = structlog.get_logger(__name__)


class CleanUp:
    """Deletes the cluster load balancers of a guest cluster whose VM is deleted with the mark of a removal."""

    def __init__(self, balancers: Records, machines: Mirror) -> None:
        self._balancers = balancers
        self._due: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        machines.subscribe(self._on_machine)

    async def run(self) -> None:
        """Delete until cancelled."""
        while True:
            namespace, cluster = await self._due.get()
            for balancer in self._balancers.all(namespace):
                if is_cluster(balancer) and labels_of(balancer).get(CLUSTER_LABEL) == cluster:
                    await self._delete(balancer)

    async def _delete(self, balancer: Document) -> None:
        while not is_deleting(balancer):
            try:
                await self._balancers.delete(balancer)
            except (NotFound, Conflict):
                return
            except KubeError as error:
                log.debug("load balancer of a removed cluster stays", balancer=key_of(balancer), error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _on_machine(self, before: Document | None, after: Document | None) -> None:
        if after is None and before is not None and is_removed(before):
            self._due.put_nowait((before["metadata"]["namespace"], labels_of(before)[GUEST_CLUSTER_LABEL]))
