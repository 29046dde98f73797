"""What Harvester cleans up when a guest cluster is removed: the cluster's load balancers go with its VMs."""

from __future__ import annotations

import asyncio

import structlog

from devenv.harvester.admission import (
    CLUSTER_LABEL,
    CREATOR_LABEL,
    GUEST_CLUSTER_LABEL,
    NODE_DRIVER,
    REMOVAL_ANNOTATION,
    is_cluster,
)
from devenv.harvester.records import Records, is_deleting
from devenv.watch import Document, Mirror, annotations_of, key_of, labels_of
from harvester_ccm.errors import CCMError, Conflict, NotFound

log = structlog.get_logger(__name__)


class ClusterRemoval:
    """Deletes cluster load balancers of a guest cluster once a VM that announced its removal is gone."""

    def __init__(self, machines: Mirror, balancers: Records) -> None:
        self._balancers = balancers
        self._removed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        machines.subscribe(self._on_machine)

    async def run(self) -> None:
        """Clean up until cancelled."""
        while True:
            namespace, cluster = await self._removed.get()
            for balancer in self._balancers.all(namespace):
                if is_cluster(balancer) and labels_of(balancer).get(CLUSTER_LABEL) == cluster:
                    await self._delete(balancer)

    async def _delete(self, balancer: Document) -> None:
        if is_deleting(balancer):
            return
        try:
            await self._balancers.delete(balancer)
        except (NotFound, Conflict):
            log.debug("load balancer already gone", key=key_of(balancer))
        except CCMError as error:
            log.warning("load balancer not cleaned up", key=key_of(balancer), error=str(error))

    def _on_machine(self, before: Document | None, after: Document | None) -> None:
        if after is not None or before is None:
            return
        labels = labels_of(before)
        cluster = labels.get(GUEST_CLUSTER_LABEL)
        announced = annotations_of(before).get(REMOVAL_ANNOTATION) == "true"
        if cluster and announced and labels.get(CREATOR_LABEL) == NODE_DRIVER:
            self._removed.put_nowait((before["metadata"]["namespace"], cluster))
