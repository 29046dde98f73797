"""Harvester's load balancers: the cache that follows them, and the writes to them."""

from __future__ import annotations

from contextlib import suppress

import structlog

from harvester_ccm.errors import AlreadyExists, Answer, BadRequest, Conflict, NotFound, NotServed
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.plan.service.load_balancer import Document
from harvester_ccm.plan.service.messages import harvester_unavailable
from harvester_ccm.plan.service.snapshot import LOAD_BALANCER_INDEXES
from harvester_ccm.plan.service.virtual_ips import VIRTUAL_IP, virtual_ips_of_load_balancer

log = structlog.get_logger(__name__)


def follow_load_balancers(client: ApiClient, selection: Selection) -> Informer[LoadBalancer]:
    """Return the informer of Harvester's load balancers, which logs an error while Harvester does not serve them.

    Harvester before 1.2 does not serve this version of the API. The informer keeps listing, so that the controller
    continues after an upgrade.
    """
    indexes = {**LOAD_BALANCER_INDEXES, VIRTUAL_IP: virtual_ips_of_load_balancer}
    informer = Informer(client, LOAD_BALANCERS, selection, indexes=indexes)

    def report() -> None:
        if isinstance(informer.problem, NotServed):
            log.error("load balancer API not served", detail=harvester_unavailable(informer.problem).message)

    informer.on_state(report)
    return informer


class BalancerWrites:
    """Writes to the load balancers of one namespace, with the answers in the cache at once."""

    def __init__(self, harvester: ApiClient, cache: Informer[LoadBalancer], namespace: str) -> None:
        self._harvester = harvester
        self._cache = cache
        self._namespace = namespace

    def get(self, name: str) -> LoadBalancer | None:
        """Return the load balancer of a name as it is known."""
        return self._cache.get(f"{self._namespace}/{name}")

    async def check(self, body: Document) -> None:
        """Ask Harvester whether it would accept a load balancer. Raises AdmissionDenied, Invalid and others if not."""
        path = LOAD_BALANCERS.path(self._namespace)
        try:
            await self._harvester.request("POST", path, params={"dryRun": "All"}, body=body)
        except AlreadyExists:
            # The API server looks for the name after the admission.
            return
        except BadRequest as error:
            if "dry run" not in str(error):
                raise

    async def confirm_absence(self, name: str) -> None:
        """Check that no load balancer of this name exists that the cache lacks. Raises Conflict if one does."""
        if self.get(name) is not None:
            return
        with suppress(NotFound):
            found = await self._harvester.get(LOAD_BALANCERS, name, namespace=self._namespace)
            self._cache.observe(found)
            raise Conflict(Answer(409, "Conflict", "the cached load balancers are not current", f"GET {name}"))

    async def create(self, name: str, body: Document) -> None:
        """Create a load balancer. Raises Conflict when it exists: the cache is behind, and what exists decides."""
        try:
            created = await self._harvester.create(LOAD_BALANCERS, body, namespace=self._namespace)
        except AlreadyExists as error:
            self._cache.observe(await self._harvester.get(LOAD_BALANCERS, name, namespace=self._namespace))
            raise Conflict(error.answer) from error
        self._cache.observe(created)

    async def replace(self, name: str, document: Document) -> LoadBalancer:
        """Write a whole load balancer and return it. Raises Conflict when it is gone or not the cached one any more."""
        try:
            written = await self._harvester.replace(LOAD_BALANCERS, name, document, namespace=self._namespace)
        except NotFound as error:
            raise Conflict(error.answer) from error
        self._cache.observe(written)
        return written

    async def delete(self, name: str, uid: str, version: str) -> None:
        """Delete the load balancer with this UID in this version; not found is success.

        Raises Conflict when another load balancer has the name, or it has changed.
        """
        held = None
        with suppress(NotFound):
            held = await self._harvester.delete(
                LOAD_BALANCERS, name, namespace=self._namespace, uid=uid, version=version
            )
        if held is not None:
            self._cache.observe(held)
        else:
            self._cache.remove(f"{self._namespace}/{name}", uid)
