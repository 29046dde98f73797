"""The controller's part of a VM load balancer: Service, EndpointSlice, probes, and what the status says of them.

Nothing here watches the Service or the EndpointSlice: one that disappears behind the controller's back is made again
only when something touches the load balancer, as on the real one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from devenv.harvester.endpoints import (
    endpoints_of,
    external_address,
    generated_service,
    generated_slice,
    ipv4_of,
    is_dummy,
    is_ready,
    judged,
    matches,
    selector_problem,
    slice_ports,
    updated_service,
    with_dummy,
)
from devenv.harvester.probes import Check, Probes
from devenv.harvester.problems import Problem, Then
from devenv.harvester.records import Records, is_deleting
from devenv.harvester.routes import Routes
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.errors import ApiError, CCMError

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Collections:
    """What VM load balancers are made of."""

    balancers: Mirror
    instances: Mirror
    services: Records
    slices: Records


class Backends:
    """Serves VM load balancers."""

    def __init__(self, collections: Collections, routes: Routes) -> None:
        self._all = collections
        self._callbacks: list[Callable[[str], None]] = []
        self._probes = Probes(routes, self._on_verdict)
        self._verdicts = asyncio.Lock()
        self._order: dict[str, int] = {}
        collections.instances.subscribe(self._on_instance)

    def on_wake(self, callback: Callable[[str], None]) -> None:
        """Have ``callback`` called with the key of a load balancer that has to be looked at again."""
        self._callbacks.append(callback)

    async def run(self) -> None:
        """Let probes run until cancelled."""
        await self._probes.run()

    def forget(self, key: str) -> None:
        """Stop the probes of a load balancer."""
        self._probes.want(key, None, frozenset())
        self._order.pop(key, None)

    async def blank(self, balancer: Document) -> None:
        """Take the address away from the Service. Raises Problem."""
        service = self._all.services.get(key_of(balancer))
        if service is not None:
            await self._write("update service", self._all.services.put(updated_service(service, balancer, "")))

    async def ensure(self, balancer: Document, status: Document) -> None:
        """Bring Service, endpoints and probes up to date and fill in ``status``. Raises Problem."""
        key = key_of(balancer)
        service = await self._ensure_service(key, balancer, status["allocatedAddress"].get("ip", ""))
        address = external_address(service)
        if not address:
            status.pop("address", None)
            raise Problem("service is waiting for external IP", Then.SECOND)
        status["address"] = address
        found = self._instances_of(key, balancer)
        backends = [(instance, ip) for instance in found if (ip := ipv4_of(instance)) is not None]
        endpoints = await self._ensure_slice(key, balancer, backends)
        addresses = [ip for _, ip in backends]
        check = Check.of(balancer["spec"])
        self._probes.want(key, check, frozenset(addresses))
        status.pop("backendServers", None)
        if addresses:
            status["backendServers"] = addresses
        if not found:
            raise Problem("no running backend servers", Then.EVENT)
        if not backends:
            raise Problem("running backend servers have no IP", Then.EVENT)
        if not any(is_ready(entry) for entry in endpoints):
            text = "running backend servers are not probed as healthy"
            raise Problem(f"{text} total:{len(endpoints)}, healthy:0", Then.EVENT)

    async def _ensure_service(self, key: str, balancer: Document, address: str) -> Document:
        service = self._all.services.get(key)
        if service is None:
            created = self._all.services.create(generated_service(balancer, address))
            return await self._write("create service", created)
        return await self._write("update service", self._all.services.put(updated_service(service, balancer, address)))

    async def _ensure_slice(self, key: str, balancer: Document, backends: list[tuple[Document, str]]) -> list[Document]:
        """Return the real endpoints, which are written when they changed."""
        stored = self._all.slices.get(key)
        known = [e for e in (stored or {}).get("endpoints") or () if not is_dummy(e)]
        checked = Check.of(balancer["spec"]) is not None
        endpoints = endpoints_of(backends, known, checked=checked)
        complete = with_dummy(endpoints, balancer)
        if stored is None:
            created = self._all.slices.create(generated_slice(balancer, complete))
            await self._write("create endpointslice", created)
            return endpoints
        wanted = {**stored, "ports": slice_ports(balancer), "endpoints": complete}
        if wanted != stored:
            await self._write("update endpointslice", self._all.slices.put(wanted))
        return endpoints

    async def _write(self, what: str, call: Any) -> Document:
        try:
            answer: Document = await call
        except ApiError as error:
            raise Problem(f"fail to {what}, error: {error}") from error
        return answer

    def _instances_of(self, key: str, balancer: Document) -> list[Document]:
        selector = balancer["spec"].get("backendServerSelector") or {}
        problem = selector_problem(selector)
        if problem:
            raise Problem(f"fail to new selector, error: {problem}")
        instances = self._all.instances.all(balancer["metadata"]["namespace"])
        found = sorted((i for i in instances if matches(selector, i) and not is_deleting(i)), key=key_of)
        round_number = self._order.get(key, 0)
        if round_number:
            # The real controller keeps backends in a map: after each change of a VMI they come in another order.
            random.Random(f"{key} {round_number}").shuffle(found)
        return found

    def _wake(self, key: str) -> None:
        for callback in self._callbacks:
            callback(key)

    def _on_instance(self, before: Document | None, after: Document | None) -> None:
        """Wake the load balancers whose selector matches what the VMI is labelled now."""
        instance = after or before
        if instance is None:
            return
        for balancer in self._all.balancers.all(instance["metadata"]["namespace"]):
            if balancer["spec"].get("workloadType") == "cluster":
                continue
            selector = balancer["spec"].get("backendServerSelector") or {}
            problem = selector_problem(selector)
            if problem:
                # The real controller gives up here: load balancers after this one do not learn of the change.
                log.warning("fail to parse selector", balancer=key_of(balancer), error=problem)
                return
            if matches(selector, instance):
                key = key_of(balancer)
                self._order[key] = self._order.get(key, 0) + 1
                self._wake(key)

    async def _on_verdict(self, key: str, address: str, healthy: bool) -> None:
        async with self._verdicts:
            stored = self._all.slices.get(key)
            if stored is None:
                return
            endpoints = [judged(entry, address, healthy=healthy) for entry in stored.get("endpoints") or ()]
            if endpoints == stored.get("endpoints"):
                return
            try:
                await self._all.slices.put({**stored, "endpoints": endpoints})
            except CCMError as error:
                # Said again one threshold later.
                log.warning("health not written", balancer=key, address=address, error=str(error))
                return
        self._wake(key)
