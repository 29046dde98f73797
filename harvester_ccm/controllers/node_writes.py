"""Patches of Nodes, with a brake for each group of fields that somebody else may insist on."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from typing import Final

from harvester_ccm.controllers.fights import node_event
from harvester_ccm.errors import CCMError, Conflict, NotFound
from harvester_ccm.kube.brakes import Brakes, Hold
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.events import EventRecorder
from harvester_ccm.kube.informer import Informer
from harvester_ccm.kube.managed_fields import ask_writers
from harvester_ccm.model.core import NODES, Node
from harvester_ccm.plan.node.patch import NodeRequest

UNPROCESSABLE: Final = HTTPStatus.UNPROCESSABLE_ENTITY


class NodeWrites:
    """Sends patches of one controller; the answers are in the cache at once."""

    def __init__(self, guest: ApiClient, nodes: Informer[Node], recorder: EventRecorder, *, component: str) -> None:
        self._guest = guest
        self._nodes = nodes
        self._recorder = recorder
        self._component = component

    async def patch(self, node: Node, request: NodeRequest, brakes: Brakes) -> Node | Hold:
        """Patch a Node and return it, or what holds the patch back; say once who keeps undoing it."""
        release = brakes.release("PATCH", request.name, request.body, node.document(), loop_time())
        for hold in release.holds:
            await self._tell(node, hold, brakes)
            return hold
        try:
            answer = await self._guest.merge_patch(NODES, request.name, request.body, subresource=request.subresource)
        except NotFound as error:
            # That it is gone is for the watch to say.
            raise Conflict(error.answer) from error
        except Conflict as error:
            if error.answer.status == UNPROCESSABLE:
                # Another Node has the name, and the watch may be late to say so.
                with suppress(CCMError):
                    self._nodes.observe(await self._guest.get(NODES, request.name))
            raise
        brakes.sent(release, answer.document(), loop_time())
        self._nodes.observe(answer)
        return answer

    async def _tell(self, node: Node, hold: Hold, brakes: Brakes) -> None:
        if brakes.is_told(hold):
            return
        writers = await ask_writers(self._guest, NODES, node.metadata, hold.path)
        event = node_event(hold, writers)
        if not self._recorder.emit(NODES, node, event, component=self._component):
            brakes.set_told(hold)
