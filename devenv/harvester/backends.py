"""The controller's part of a VM load balancer: Service, EndpointSlice, probes, and their state in its status.

The Service and the EndpointSlice are not watched: if another client deletes one, it is created again only after a
change of the load balancer, like in the real controller.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, ClassVar

import structlog

from devenv.announcement import DHCP_ADDRESS
from devenv.harvester.admission import is_cluster
from devenv.harvester.endpoints import (
    dummy_endpoint,
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
    with_readiness,
)
from devenv.harvester.probes import Check, Connects, LastingTally, Probes, Tally, connects
from devenv.harvester.problems import Problem, Then
from devenv.harvester.records import Records, is_deleting
from devenv.harvester.versions import V1_9, Words
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.kube.errors import AlreadyExists, ApiError, KubeError

log = structlog.get_logger(__name__)


class Backends:
    """Reconciles VM load balancers."""

    counter: ClassVar[type[Tally | LastingTally]] = Tally
    """Counts the results of the probes of a backend."""

    def __init__(
        self,
        balancers: Mirror,
        instances: Mirror,
        services: Records,
        slices: Records,
        *,
        connects: Connects = connects,
        words: Words = V1_9.words,
    ) -> None:
        """``connects`` says whether a backend accepts a connection."""
        self._words = words
        self._balancers = balancers
        self._instances = instances
        self._services = services
        self._slices = slices
        self._callbacks: list[Callable[[str], None]] = []
        self._probes = Probes(self._on_verdict, connects, self.counter)
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
        self._probes.want(key, None, {})
        self._order.pop(key, None)

    async def ensure(self, balancer: Document, status: Document) -> None:
        """Bring Service, endpoints and probes up to date and fill in ``status``. Raises Problem.

        What a write has changed is visible only in the cache, later.
        """
        key = key_of(balancer)
        await self._ensure_service(balancer)
        service = self._services.get(key)
        address = external_address(service) if service else ""
        if not address:
            status.pop("address", None)
        if service is None:
            raise Problem("service is not existing, ensure it first")
        if not address:
            raise Problem("service is waiting for external IP", Then.SECOND)
        status["address"] = address
        found = self._instances_of(key, balancer)
        backends = [(instance, ip) for instance in found if (ip := ipv4_of(instance)) is not None]
        await self._ensure_slice(balancer, backends)
        addresses = [ip for _, ip in backends]
        status.pop("backendServers", None)
        if addresses:
            status["backendServers"] = addresses
        if not found:
            raise Problem("no running backend servers", Then.EVENT)
        if not backends:
            raise Problem(self._words.no_addresses, Then.EVENT)
        if Check.of(balancer["spec"]) is not None and not self._has_healthy(key):
            text = "running backend servers are not probed as healthy"
            raise Problem(f"{text} total:{len(addresses)}, healthy:0", Then.EVENT)

    def _has_healthy(self, key: str) -> bool:
        """Whether an endpoint in the cache is ready. Raises Problem."""
        stored = self._slices.get(key)
        if stored is None:
            raise Problem(f'endpointslices.discovery.k8s.io "{key.partition("/")[2]}" not found')
        return any(is_ready(entry) for entry in stored.get("endpoints") or () if not is_dummy(entry))

    async def _ensure_service(self, balancer: Document) -> None:
        """Create or update the Service with the address that the status had before."""
        status = balancer.get("status") or {}
        try:
            await self._put_service(
                balancer, status, new="fail to create service, error", known="fail to update service, error"
            )
        except Problem as problem:
            if not isinstance(problem.__cause__, AlreadyExists):
                raise

    async def _put_service(self, balancer: Document, status: Document, *, new: str, known: str) -> None:
        """Write the Service with the address in a status; ``new`` and ``known`` are the beginnings of problems."""
        address = (status.get("allocatedAddress") or {}).get("ip", "")
        if balancer["spec"].get("ipam") == "dhcp":
            address = DHCP_ADDRESS
        service = self._services.get(key_of(balancer))
        if service is None:
            await self._write(new, self._services.create(generated_service(balancer, address)))
        else:
            await self._write(known, self._services.put(updated_service(service, balancer, address)))

    async def _ensure_slice(self, balancer: Document, backends: list[tuple[Document, str]]) -> None:
        """Write the endpoints, up to three times as Harvester does, and start the probes.

        The later writes are of the copy that the first one returned: if there are two, the second is a conflict.
        """
        key = key_of(balancer)
        stored = self._slices.get(key)
        known = [entry for entry in (stored or {}).get("endpoints") or () if not is_dummy(entry)]
        endpoints = endpoints_of(backends, known) or [dummy_endpoint(balancer)]
        if stored is None:
            created = self._slices.create(generated_slice(balancer, endpoints))
            written = await self._write("fail to create endpointslice, error", created)
        else:
            written = {**stored, "ports": slice_ports(balancer), "endpoints": endpoints}
            if written != stored:
                written = await self._write("fail to update endpointslice, error", self._slices.put(written))
        await self._ensure_probes(key, balancer, written)
        await self._ensure_dummy(balancer, written)

    async def _ensure_probes(self, key: str, balancer: Document, written: Document) -> None:
        check = Check.of(balancer["spec"])
        entries = [entry for entry in written["endpoints"] if not is_dummy(entry)]
        if check is not None:
            self._probes.want(key, check, {entry["addresses"][0]: is_ready(entry) for entry in entries})
            return
        self._probes.want(key, None, {})
        if all(map(is_ready, entries)):
            return
        ready = [entry if is_dummy(entry) else with_readiness(entry, ready=True) for entry in written["endpoints"]]
        problem = f"fail to ensure probs, error: fail to update all conditions of lb {key} endpoints to true error"
        await self._write(problem, self._slices.put({**written, "endpoints": ready}))

    async def _ensure_dummy(self, balancer: Document, written: Document) -> None:
        """Add the dummy while no endpoint is ready, and remove it otherwise."""
        entries = [entry for entry in written["endpoints"] if not is_dummy(entry)]
        has_dummy = len(entries) < len(written["endpoints"])
        has_ready = any(map(is_ready, entries))
        prefix = "fail to ensure dummy endpointslice, error: fail to"
        suffix = f"lb {balancer['metadata']['name']} endpoint, error"
        if not has_ready and not has_dummy:
            wanted = {**written, "endpoints": [*entries, dummy_endpoint(balancer)]}
            await self._write(f"{prefix} append dummy endpoint to {suffix}", self._slices.put(wanted))
        elif has_ready and has_dummy:
            wanted = {**written, "endpoints": entries}
            await self._write(f"{prefix} remove dummy endpoint from {suffix}", self._slices.put(wanted))

    async def _write(self, problem: str, call: Any) -> Document:
        try:
            answer: Document = await call
        except ApiError as error:
            raise Problem(f"{problem}: {error}") from error
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
            # Harvester wakes the load balancer first; it looks at the endpoints some milliseconds later.
            self._wake(key)
            try:
                await self._slices.put({**stored, "endpoints": endpoints})
            except KubeError as error:
                # Repeated one threshold later.
                log.warning("health not written", balancer=key, address=address, error=str(error))
