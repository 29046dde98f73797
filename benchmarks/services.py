"""Services: time from creation to address of single ones, of many at once and at a steady rate, and the cost at rest.

The value of the API servers alone is measured before the controller starts: a client without decisions sends the same
requests in the same order and creates one load balancer at a time, like the controller.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from statistics import median
from typing import Final

from benchmarks.environment import MIB, NAMESPACE, Environment, now, service
from benchmarks.table import Row
from devenv.announcement import ADDRESS_ANNOTATION
from devenv.harvester.records import LOAD_BALANCERS, SERVICES
from devenv.process import cpu_seconds
from devenv.stage import VM_NAMESPACE
from devenv.watch import Document, documents
from harvester_ccm.names import LB_CONTROLLER_FINALIZER

SINGLE: Final = [f"single-{number}" for number in range(30)]
MANY: Final = [f"many-{number:03}" for number in range(100)]
ROUNDS: Final = 3
"""Of many at once. The table has the median, because other load disturbs each of them."""
WORKERS: Final = 32
"""Concurrent Services of the client without decisions, so that a load balancer to create is always queued."""
HANDOVERS: Final = 18
RATE: Final = 15
"""Services per second."""
MINUTE: Final = 60.0
EVENTS: Final = documents("", "v1", "events", kind="Event")


async def measure(environment: Environment) -> AsyncIterator[Row]:
    """Measure everything except the steady rate. Starts and stops the controller."""
    client = _BareClient(environment)
    single_alone, many_alone = await client.single(), await client.many()
    await environment.start()
    times = [await _create_one(environment, name) for name in SINGLE]
    await environment.delete(SINGLE)
    yield Row(f"one Service, from creation to address, p50 of {len(SINGLE)}", 1000 * median(times), "ms", single_alone)
    rounds = []
    for _ in range(ROUNDS):
        mark, began = await environment.mark(), now()
        await environment.create(MANY)
        rounds.append(await environment.ready(MANY) - began)
        requests = await environment.requests(mark)
        if len(rounds) < ROUNDS:
            await environment.delete(MANY)
    title = f"{len(MANY)} Services at once, from the first creation to the last address"
    yield Row(title, median(rounds), "s", many_alone)
    yield Row("  requests for each Service, Events included", requests / len(MANY))
    yield Row("  peak memory", environment.controller.peak_memory() / MIB, "MiB")
    await environment.give_endpoints(MANY)
    # A minute after the publication, the controller looks once whether each Service has an endpoint.
    await asyncio.sleep(MINUTE)
    mark, used = await environment.mark(), cpu_seconds(environment.controller.pid)
    await asyncio.sleep(MINUTE)
    used = cpu_seconds(environment.controller.pid) - used
    yield Row(f"minute without changes, {len(MANY)} Services: requests", await environment.requests(mark))
    yield Row("  CPU time", used, "s")
    began = now()
    await environment.delete(MANY)
    yield Row(f"{len(MANY)} Services deleted at once", now() - began, "s")
    times = [await environment.hand_over() for _ in range(HANDOVERS)]
    yield Row(f"{HANDOVERS} handovers by SIGTERM: median", median(times), "s")
    yield Row("  longest", max(times), "s")
    await environment.stop()


async def measure_rate(environment: Environment, count: int) -> AsyncIterator[Row]:
    """Create ``count`` Services at a steady rate. Starts and stops the controller."""
    await environment.start()
    names, began = [f"rate-{number:05}" for number in range(count)], now()
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await asyncio.sleep(began + number / RATE - now())
            group.create_task(environment.create([name]))
    created = now()
    last = await environment.ready(names)
    yield Row(f"{count} Services at {RATE} per second: last creation to last address", max(0.0, last - created), "s")
    yield Row("  peak memory", environment.controller.peak_memory() / MIB, "MiB")
    await environment.delete(names)
    await environment.stop()


async def _create_one(environment: Environment, name: str) -> float:
    began = now()
    await environment.create([name])
    return await environment.ready([name]) - began


class _BareClient:
    """Sends the requests of the controller for a Service, without any decision."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._creation = asyncio.Lock()
        self._allocated: dict[str, asyncio.Event] = {}
        environment.balancers.subscribe(self._changed)

    async def single(self) -> float:
        """Return the median time of one Service in ms."""
        times = [await self._create(name) for name in SINGLE]
        await self._delete(SINGLE)
        return 1000 * median(times)

    async def many(self) -> float:
        """Return the time of many Services at once in s."""
        began = now()
        await self._environment.each(self._create, MANY, at_once=WORKERS)
        seconds = now() - began
        await self._delete(MANY)
        return seconds

    def _changed(self, _before: Document | None, after: Document | None) -> None:
        if after is not None and ((after.get("status") or {}).get("allocatedAddress") or {}).get("ip"):
            self._allocated.setdefault(after["metadata"]["name"], asyncio.Event()).set()

    async def _create(self, name: str) -> float:
        """Create a Service with its load balancer and return the seconds until it has its address."""
        guest, began = self._environment.guest, now()
        await guest.create(SERVICES, service(name), namespace=NAMESPACE)
        await self._patch(name, {"metadata": {"annotations": {ADDRESS_ANNOTATION: ""}}})
        await self._event(name, 1)
        async with self._creation:
            balancer = await self._create_balancer(name)
        address = balancer["status"]["allocatedAddress"]["ip"]
        status = {"loadBalancer": {"ingress": [{"ip": address, "ports": [{"port": 80, "protocol": "TCP"}]}]}}
        await self._patch(name, {"metadata": {"annotations": {ADDRESS_ANNOTATION: address}}, "status": status})
        seconds = now() - began
        await self._event(name, 2)
        balancer = {**balancer, "status": {**balancer["status"], "address": address}}
        await self._environment.harvester.replace(LOAD_BALANCERS, name, balancer, namespace=VM_NAMESPACE)
        return seconds

    async def _create_balancer(self, name: str) -> Document:
        """Create a load balancer and return it once it has its address."""
        body: Document = {
            "apiVersion": LOAD_BALANCERS.api_version,
            "kind": LOAD_BALANCERS.kind,
            "metadata": {"name": name, "namespace": VM_NAMESPACE, "finalizers": [LB_CONTROLLER_FINALIZER]},
            "spec": {"ipam": "pool", "workloadType": "cluster"},
        }
        await self._environment.harvester.create(LOAD_BALANCERS, body, namespace=VM_NAMESPACE)
        await self._allocated.setdefault(name, asyncio.Event()).wait()
        stored = self._environment.balancers.get(f"{VM_NAMESPACE}/{name}")
        assert stored is not None, f"load balancer {name} was deleted"
        return stored

    async def _patch(self, name: str, patch: Document) -> None:
        subresource = "status" if "status" in patch else None
        await self._environment.guest.merge_patch(SERVICES, name, patch, namespace=NAMESPACE, subresource=subresource)

    async def _event(self, name: str, number: int) -> None:
        about = {"apiVersion": "v1", "kind": "Service", "namespace": NAMESPACE, "name": name}
        metadata = {"name": f"{name}.{number}", "namespace": NAMESPACE}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "reason": "Bench"}
        await self._environment.guest.create(EVENTS, event, namespace=NAMESPACE)

    async def _delete(self, names: Sequence[str]) -> None:
        """Delete the Services and their load balancers."""
        harvester, balancers = self._environment.harvester, self._environment.balancers
        await self._environment.each(lambda name: harvester.delete(LOAD_BALANCERS, name, namespace=VM_NAMESPACE), names)
        await self._environment.until(lambda: not balancers.all(), "deletion of load balancers")
        await self._environment.delete(names)
