"""Services: how fast they get addresses, one by one, at once, and at a steady rate, and what holding them costs.

The column of the API servers alone is measured in the same run, while the program does not run: a client that decides
nothing sends the same requests in the same order, and creates one load balancer at a time, as the program does.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

import aiohttp

from benchmarks.arena import MIB, MINUTE, NAMESPACE, Arena, service
from benchmarks.audit import Request
from benchmarks.table import Row
from devenv.announcement import ADDRESS_ANNOTATION
from devenv.eyes import addresses_in
from devenv.harvester.records import LOAD_BALANCERS, SERVICES
from devenv.process import cpu_seconds
from devenv.stage import VM_NAMESPACE
from devenv.watch import Document, documents
from harvester_ccm.names import LB_CONTROLLER_FINALIZER

ONE_BY_ONE: Final = 30
AT_ONCE: Final = 100
ROUNDS: Final = 3
"""Of those at once. The row shows the middle one, because other work on the machine disturbs each of them."""
WORKERS: Final = 32
"""Services that the client of the API servers alone serves at once: it always has a load balancer to create."""
RATE: Final = 15
"""Services per second."""
SILENT: Final = 4000
"""Connections that are opened and never used."""
PROBES: Final = 20
EVENTS: Final = documents("", "v1", "events", kind="Event")


async def measure(arena: Arena) -> AsyncIterator[Row]:
    """Measure all but the steady rate. The program is started, and runs at the end."""
    alone_one, alone_many = await _alone(arena)
    yield Row("start without Services, until it leads", await arena.start(), "s")
    await arena.mark()
    yield Row("  resident memory when idle", arena.memory, "MiB")
    names = [f"one-{number}" for number in range(ONE_BY_ONE)]
    times = [await _serve_one(arena, name) for name in names]
    await arena.delete(names)
    yield Row(f"one Service, from create to address, p50 of {ONE_BY_ONE}", 1000 * median(times), "ms", alone_one)
    async for row in _at_once(arena, alone_many):
        yield row
    async for row in _restart(arena, f"restart with {AT_ONCE} Services"):
        yield row
    for row in await arena.minute(f"quiet minute with {AT_ONCE} Services", lambda: asyncio.sleep(MINUTE)):
        yield row
    async for row in _silent_connections(arena):
        yield row
    began = _now()
    await arena.delete(_many())
    yield Row(f"{AT_ONCE} Services deleted at once, until the last one is deleted", _now() - began, "s")


async def measure_rate(arena: Arena, count: int) -> AsyncIterator[Row]:
    """Create ``count`` Services at a steady rate and hold them. The program runs, and there is no Service."""
    names, began, mark = [f"rate-{number:05}" for number in range(count)], _now(), await arena.mark()
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await asyncio.sleep(began + number / RATE - _now())
            group.create_task(arena.create([name]))
    created = _now()
    last = await arena.served(names)
    yield Row(f"{count} Services at {RATE} per second: from the last create to the last address", last - created, "s")
    for row in _requests(await arena.requests(mark), count):
        yield row
    yield Row("  one more Service", 1000 * await _serve_one(arena, "one-more"), "ms")
    yield Row("  resident memory", arena.memory, "MiB")
    for row in await arena.minute(f"quiet minute with {count} Services", lambda: asyncio.sleep(MINUTE)):
        yield row
    async for row in _restart(arena, f"restart with {count} Services"):
        yield row
    began, used = _now(), cpu_seconds(arena.program.pid)
    await arena.delete([*names, "one-more"])
    yield Row(f"{count} Services deleted at once, until the last one is deleted", _now() - began, "s")
    yield Row("  processor time of the program", cpu_seconds(arena.program.pid) - used, "s")


def _many() -> list[str]:
    return [f"many-{number:03}" for number in range(AT_ONCE)]


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _serve_one(arena: Arena, name: str) -> float:
    began = _now()
    await arena.create([name])
    return await arena.served([name]) - began


async def _at_once(arena: Arena, alone: float) -> AsyncIterator[Row]:
    """Create Services as fast as the API server takes them; those of the last round stay."""
    rounds: list[tuple[float, float, float, list[Request]]] = []
    for _ in range(ROUNDS):
        if rounds:
            await arena.delete(_many())
        mark = await arena.mark()
        program, servers, began = cpu_seconds(arena.program.pid), arena.server_seconds(), _now()
        await arena.create(_many())
        seconds, servers = await arena.served(_many()) - began, arena.server_seconds() - servers
        requests = await arena.requests(mark)
        rounds.append((seconds, cpu_seconds(arena.program.pid) - program, servers, requests))
    seconds, program, servers, requests = sorted(rounds, key=lambda one: one[0])[ROUNDS // 2]
    yield Row(f"{AT_ONCE} Services at once, from the first create to the last address", seconds, "s", alone)
    for row in _requests(requests, AT_ONCE):
        yield row
    yield Row("  processor time of the program, beside that of the API servers", program, "s", servers)
    yield Row("  peak memory", arena.program.peak_memory() / MIB, "MiB")


def _requests(requests: Sequence[Request], count: int) -> list[Row]:
    to_harvester = [one for one in requests if one.client == "harvester"]
    return [
        Row("  requests to Harvester for each", len(to_harvester) / count),
        Row("  requests to the guest cluster for each, Events included", (len(requests) - len(to_harvester)) / count),
    ]


async def _restart(arena: Arena, title: str) -> AsyncIterator[Row]:
    before = {one["metadata"]["name"]: addresses_in(one) for one in arena.services.all()}
    await arena.stop()
    mark = await arena.mark()
    yield Row(f"{title}, until it leads", await arena.start(), "s")
    requests = await arena.requests(mark)
    after = {one["metadata"]["name"]: addresses_in(one) for one in arena.services.all()}
    yield Row("  requests to both clusters", len(requests))
    yield Row("  changed addresses", sum(after[name] != addresses for name, addresses in before.items()))
    yield Row("  peak memory", arena.program.peak_memory() / MIB, "MiB")


async def _silent_connections(arena: Arena) -> AsyncIterator[Row]:
    """Open connections to the port of the program that send nothing, and probe it meanwhile as the kubelet does."""
    before = arena.memory
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(SILENT + 500, hard)), hard))
    with ExitStack() as stack:
        for _ in range(SILENT):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", arena.port))
        slowest = max([await _probe(arena.port) for _ in range(PROBES)])
        yield Row(f"{SILENT} silent connections: slowest of {PROBES} probes", 1000 * slowest, "ms")
        yield Row("  more memory", arena.memory - before, "MiB")


async def _probe(port: int) -> float:
    """Return the seconds until /livez is answered, with a connection of its own."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    began = _now()
    async with aiohttp.ClientSession() as session, session.get(f"https://127.0.0.1:{port}/livez", ssl=tls) as response:
        await response.read()
    return _now() - began


async def _alone(arena: Arena) -> tuple[float, float]:
    """Return what one Service (p50, in milliseconds) and many at once (in seconds) need without the program."""
    client = _BareClient(arena)
    names = [f"alone-{number}" for number in range(ONE_BY_ONE)]
    one_by_one = median([await client.serve(name) for name in names])
    began = _now()
    await arena.each(client.serve, _many(), at_once=WORKERS)
    at_once = _now() - began
    await client.delete([*names, *_many()])
    return 1000 * one_by_one, at_once


class _BareClient:
    """Sends the requests that the program sends for a Service. It decides nothing."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._creation = asyncio.Lock()
        self._allocated: dict[str, asyncio.Event] = {}
        arena.balancers.subscribe(self._changed)

    def _changed(self, _before: Document | None, after: Document | None) -> None:
        if after is not None and ((after.get("status") or {}).get("allocatedAddress") or {}).get("ip"):
            self._allocated.setdefault(after["metadata"]["name"], asyncio.Event()).set()

    async def serve(self, name: str) -> float:
        """Create a Service and do what makes it served; return the seconds until it has its address."""
        guest, began = self._arena.guest, _now()
        await guest.create(SERVICES, service(name), namespace=NAMESPACE)
        await self._patch(name, {"metadata": {"annotations": {ADDRESS_ANNOTATION: ""}}})
        await self._event(name, 1)
        async with self._creation:
            balancer = await self._create_balancer(name)
        address = balancer["status"]["allocatedAddress"]["ip"]
        status = {"loadBalancer": {"ingress": [{"ip": address, "ports": [{"port": 80, "protocol": "TCP"}]}]}}
        await self._patch(name, {"metadata": {"annotations": {ADDRESS_ANNOTATION: address}}, "status": status})
        seconds = _now() - began
        await self._event(name, 2)
        balancer = {**balancer, "status": {**balancer["status"], "address": address}}
        await self._arena.harvester.replace(LOAD_BALANCERS, name, balancer, namespace=VM_NAMESPACE)
        return seconds

    async def _create_balancer(self, name: str) -> Document:
        """Create a load balancer and return it with its address."""
        body: Document = {
            "apiVersion": LOAD_BALANCERS.api_version,
            "kind": LOAD_BALANCERS.kind,
            "metadata": {"name": name, "namespace": VM_NAMESPACE, "finalizers": [LB_CONTROLLER_FINALIZER]},
            "spec": {"ipam": "pool", "workloadType": "cluster"},
        }
        await self._arena.harvester.create(LOAD_BALANCERS, body, namespace=VM_NAMESPACE)
        await self._allocated.setdefault(name, asyncio.Event()).wait()
        stored = self._arena.balancers.get(f"{VM_NAMESPACE}/{name}")
        assert stored is not None, f"load balancer {name} is gone"
        return stored

    async def _patch(self, name: str, patch: Document) -> None:
        subresource = "status" if "status" in patch else None
        await self._arena.guest.merge_patch(SERVICES, name, patch, namespace=NAMESPACE, subresource=subresource)

    async def _event(self, name: str, number: int) -> None:
        about = {"apiVersion": "v1", "kind": "Service", "namespace": NAMESPACE, "name": name}
        metadata = {"name": f"{name}.{number}", "namespace": NAMESPACE}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about, "reason": "Bench"}
        await self._arena.guest.create(EVENTS, event, namespace=NAMESPACE)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete the Services and their load balancers."""
        arena = self._arena
        await arena.each(lambda name: arena.harvester.delete(LOAD_BALANCERS, name, namespace=VM_NAMESPACE), names)
        await arena.until(lambda: not arena.balancers.all(), "deletion of load balancers")
        await arena.delete(names)
