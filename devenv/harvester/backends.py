"""The controller's part of a VM load balancer: Service, EndpointSlice, probes, and their state in its status.

The Service and the EndpointSlice are not watched: if another client deletes one, it is created again only after a
change of the load balancer, like in the real controller.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import structlog

from devenv.harvester.admission import is_cluster
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
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.kube.errors import ApiError, KubeError

log = structlog.get_logger(__name__)


class Backends:
    """Reconciles VM load balancers."""

    def __init__(self, balancers: Mirror, instances: Mirror, services: Records, slices: Records) -> None:
        self._balancers = balancers
        self._instances = instances
        self._services = services
        self._slices = slices
        self._callbacks: list[Callable[[str], None]] = []
        self._probes = Probes(self._on_verdict)
        self._verdicts = asyncio.Lock()
        self._order: dict[str, int] = {}
        instances.subscribe(self._on_instance)

    def on_wake(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with the key of each load balancer that must be reconciled again."""
        self._callbacks.append(callback)

    async def run(self) -> None:
        """Run probes until cancelled."""
        await self._probes.run()

    def forget(self, key: str) -> None:
        """Stop the probes of a load balancer."""
        self._probes.want(key, None, frozenset())
        self._order.pop(key, None)

    async def blank(self, balancer: Document) -> None:
        """Remove the address from the Service. Raises Problem."""
        service = self._services.get(key_of(balancer))
        if service is not None:
            await self._write("update service", self._services.put(updated_service(service, balancer, "")))

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
        service = self._services.get(key)
        if service is None:
            created = self._services.create(generated_service(balancer, address))
            return await self._write("create service", created)
        return await self._write("update service", self._services.put(updated_service(service, balancer, address)))

    async def _ensure_slice(self, key: str, balancer: Document, backends: list[tuple[Document, str]]) -> list[Document]:
        """Return the real endpoints, which are written if they changed."""
        stored = self._slices.get(key)
        known = [e for e in (stored or {}).get("endpoints") or () if not is_dummy(e)]
        checked = Check.of(balancer["spec"]) is not None
        endpoints = endpoints_of(backends, known, checked=checked)
        complete = with_dummy(endpoints, balancer)
        if stored is None:
            created = self._slices.create(generated_slice(balancer, complete))
            await self._write("create endpointslice", created)
            return endpoints
        wanted = {**stored, "ports": slice_ports(balancer), "endpoints": complete}
        if wanted != stored:
            await self._write("update endpointslice", self._slices.put(wanted))
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
        instances = self._instances.all(balancer["metadata"]["namespace"])
        found = sorted((i for i in instances if matches(selector, i) and not is_deleting(i)), key=key_of)
        round_number = self._order.get(key, 0)
        if round_number:
            # The real controller stores backends in a map: after each change of a VMI their order is another one.
            random.Random(f"{key} {round_number}").shuffle(found)
        return found

    def _wake(self, key: str) -> None:
        for callback in self._callbacks:
            callback(key)

    def _on_instance(self, before: Document | None, after: Document | None) -> None:
        """Enqueue the load balancers whose selector matches the current labels of the VMI."""
        instance = after or before
        if instance is None:
            return
        for balancer in self._balancers.all(instance["metadata"]["namespace"]):
            if is_cluster(balancer):
                continue
            selector = balancer["spec"].get("backendServerSelector") or {}
            problem = selector_problem(selector)
            if problem:
                # The real controller stops here: load balancers after this one are not enqueued.
                log.warning("fail to parse selector", balancer=key_of(balancer), error=problem)
                return
            if matches(selector, instance):
                key = key_of(balancer)
                self._order[key] = self._order.get(key, 0) + 1
                self._wake(key)

    async def _on_verdict(self, key: str, address: str, healthy: bool) -> None:
        async with self._verdicts:
            stored = self._slices.get(key)
            if stored is None:
                return
            endpoints = [judged(entry, address, healthy=healthy) for entry in stored.get("endpoints") or ()]
            if endpoints == stored.get("endpoints"):
                return
            try:
                await self._slices.put({**stored, "endpoints": endpoints})
            except KubeError as error:
                # Repeated one threshold later.
                log.warning("health not written", balancer=key, address=address, error=str(error))
                return
        self._wake(key)
