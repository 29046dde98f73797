"""The controller's part of a VM load balancer in Harvester 1.2 and 1.3.

An attempt waits up to 5 s for the address of the host, and blocks one of the two workers meanwhile. Besides attempts,
the endpoints follow the VMIs. A new endpoint is ready, the result of a probe is written once and never again, and
nothing tells that no backend is healthy. A VMI that loses its address keeps its endpoint until the next attempt.
"""

import asyncio
from typing import Final

import structlog

from devenv.harvester.admission import is_cluster
from devenv.harvester.backends import Backends
from devenv.harvester.endpoints import (
    endpoints_of,
    external_address,
    generated_slice,
    ipv4_of,
    is_ready,
    judged,
    matches,
    selector_problem,
    slice_ports,
)
from devenv.harvester.probes import Check, Connects, LastingTally, connects
from devenv.harvester.problems import Problem
from devenv.harvester.records import Records
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.kube.errors import KubeError

LOOKS: Final = 5
"""How often an attempt looks for the address of the host, once a second."""
RETRY_SECONDS: Final = 0.02

log = structlog.get_logger(__name__)


class BlockingBackends(Backends):
    """Reconciles VM load balancers."""

    counter = LastingTally

    def __init__(
        self, balancers: Mirror, instances: Mirror, services: Records, slices: Records, *, connects: Connects = connects
    ) -> None:
        super().__init__(balancers, instances, services, slices, connects=connects)
        self._changed: asyncio.Queue[tuple[Document, bool]] = asyncio.Queue()
        """VMIs, each with whether it is deleted."""

    async def run(self) -> None:
        """Run probes and follow the VMIs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(), name="probes")
            group.create_task(self._follow(), name="instances")

    async def ensure(self, balancer: Document, status: Document) -> None:
        """Bring Service, endpoints and probes up to date and fill in ``status``. Raises Problem."""
        key = key_of(balancer)
        problem = f"ensure load balancer {key} failed, error: ensure service failed, error:"
        new, known = (f"{problem} {verb} service {key} failed, error" for verb in ("create", "update"))
        await self._put_service(balancer, status, new=new, known=known)
        await self._ensure_endpoints(key, balancer)
        status["address"] = await self._address_of_host(key)
        addresses = self._backend_addresses(key)
        status.pop("backendServers", None)
        if addresses:
            status["backendServers"] = addresses

    async def _ensure_endpoints(self, key: str, balancer: Document) -> None:
        prefix = f"ensure load balancer {key} failed, error: ensure endpointslice failed, error:"
        problem = selector_problem(balancer["spec"].get("backendServerSelector") or {})
        if problem:
            raise Problem(f"{prefix} {problem}")
        stored = self._slices.get(key)
        known = (stored or {}).get("endpoints") or []
        endpoints = endpoints_of(self._backends_of(balancer), known, ready=True)
        if stored is None:
            created = self._slices.create(generated_slice(balancer, endpoints))
            written = await self._write(f"{prefix} create endpointslice {key} failed, error", created)
        else:
            updated = self._slices.put({**stored, "ports": slice_ports(balancer), "endpoints": endpoints})
            written = await self._write(f"{prefix} update endpointslice {key} failed, error", updated)
        self._probe(key, balancer, written.get("endpoints") or [])

    def _probe(self, key: str, balancer: Document, endpoints: list[Document]) -> None:
        states = {entry["addresses"][0]: is_ready(entry) for entry in endpoints}
        self._probes.want(key, Check.of(balancer["spec"]), states)

    async def _address_of_host(self, key: str) -> str:
        """Return the address of the generated Service, and wait for it. Raises Problem."""
        for _ in range(LOOKS):
            await asyncio.sleep(1.0)
            service = self._services.get(key)
            if service is not None and external_address(service):
                return external_address(service)
        raise Problem(f"wait service {key} external ip failed, error: timeout")

    def _backend_addresses(self, key: str) -> list[str]:
        """Return the addresses of the VMIs of the endpoints in the cache. Raises Problem."""
        found: list[str] = []
        for endpoint in (self._slices.get(key) or {}).get("endpoints") or ():
            target = endpoint["targetRef"]
            instance = self._instances.get(f"{target['namespace']}/{target['name']}")
            if instance is None:
                missing = f'virtualmachineinstances.kubevirt.io "{target["name"]}" not found'
                raise Problem(f"get backend servers of lb {key} failed, error: {missing}")
            address = ipv4_of(instance)
            if address is not None:
                found.append(address)
        return found

    def _backends_of(self, balancer: Document) -> list[tuple[Document, str]]:
        selector = balancer["spec"].get("backendServerSelector") or {}
        instances = sorted(self._instances.all(balancer["metadata"]["namespace"]), key=key_of)
        found = [instance for instance in instances if matches(selector, instance)]
        return [(instance, address) for instance in found if (address := ipv4_of(instance)) is not None]

    def _on_instance(self, before: Document | None, after: Document | None) -> None:
        instance = after or before
        if instance is not None:
            self._changed.put_nowait((instance, after is None))

    async def _follow(self) -> None:
        while True:
            instance, is_deleted = await self._changed.get()
            try:
                await self._tell(instance, is_deleted)
            except KubeError as error:
                log.debug("endpoints not written yet", instance=key_of(instance), error=str(error))
                later = asyncio.get_running_loop().call_later
                later(RETRY_SECONDS, self._changed.put_nowait, (instance, is_deleted))

    async def _tell(self, instance: Document, is_deleted: bool) -> None:
        """Add a VMI to the endpoints of the load balancers that select it, and remove it from the others."""
        for balancer in self._balancers.all(instance["metadata"]["namespace"]):
            selector = balancer["spec"].get("backendServerSelector") or {}
            if is_cluster(balancer) or not selector:
                continue
            problem = selector_problem(selector)
            if problem:
                # The real controller stops here: load balancers after this one are not told.
                log.warning("parse selector failed", balancer=key_of(balancer), error=problem)
                return
            wanted = not is_deleted and matches(selector, instance)
            if await self._has_changed(balancer, instance, wanted):
                self._wake(key_of(balancer))

    async def _has_changed(self, balancer: Document, instance: Document, wanted: bool) -> bool:
        """Return whether the endpoint of a VMI has been added or removed."""
        key, address = key_of(balancer), ipv4_of(instance)
        stored = self._slices.get(key)
        if stored is None or address is None:
            return False
        known = stored.get("endpoints") or []
        own = [entry for entry in known if _is_of(entry, instance, address)]
        if bool(own) == wanted:
            return False
        added = endpoints_of([(instance, address)], [], ready=True) if wanted else []
        endpoints = [*(entry for entry in known if entry not in own), *added]
        await self._slices.put({**stored, "endpoints": endpoints})
        self._probe(key, balancer, endpoints)
        return True

    async def _on_verdict(self, key: str, address: str, healthy: bool) -> None:
        stored = self._slices.get(key)
        if stored is None:
            return
        endpoints = [judged(entry, address, healthy=healthy) for entry in stored.get("endpoints") or ()]
        try:
            await self._slices.put({**stored, "endpoints": endpoints})
        except KubeError as error:
            # Lost: nothing repeats it.
            log.warning("health not written", balancer=key, address=address, error=str(error))


def _is_of(endpoint: Document, instance: Document, address: str) -> bool:
    is_same: bool = (endpoint.get("targetRef") or {}).get("uid") == instance["metadata"]["uid"]
    return is_same and endpoint["addresses"][0] == address
