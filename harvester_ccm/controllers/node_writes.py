"""Patches of Nodes within the rate limit of each Node, for all controllers of Nodes."""

from __future__ import annotations

from harvester_ccm.controllers.field_conflict import NODE_CONFLICT
from harvester_ccm.errors import Conflict, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.flowcontrol import WriteRateLimiter
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.plan.node.patch import NodeRequest


class NodeWrites:
    """Sends patches and stores the responses in the cache."""

    def __init__(self, guest: ApiClient, nodes: Informer[Node], recorder: EventRecorder) -> None:
        self._guest = guest
        self._nodes = nodes
        self._limiter = WriteRateLimiter()
        self._recorder = recorder

    async def patch(self, node: Node, request: NodeRequest, *, component: str) -> Node | float:
        """Patch a Node and return the response, or the seconds until its rate limit permits the patch."""
        if delay := self._limiter.delay(node.metadata.uid, terminating=node.metadata.deleting):
            self._recorder.emit(NODES, node, NODE_CONFLICT, component=component)
            return delay
        try:
            answer = await self._guest.merge_patch(NODES, request.name, request.body, subresource=request.subresource)
        except NotFound as error:
            # The watch delivers the deletion.
            raise Conflict(error.answer) from error
        self._limiter.record(node.metadata.uid)
        self._nodes.observe(answer)
        return answer
