"""kube-vip in the guest cluster, emulated on a real API server, with its defects.

It handles Services of type LoadBalancer that have its class, an address and an endpoint, writes ``kube-vip.io/vipHost``
and then the status; ``announced`` contains the addresses of each Service. Like the real one, it handles the events of
Services one after the other, so a Service without an address, or one that waits for a DHCP server, delays all others.
While it waits for an address, it reads newer states of the Service, and handles the older events later. Addresses that
the real one does not withdraw, or does not announce after a change, are not withdrawn or announced here either.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, Self

import structlog

from devenv.announcement import (
    REQUESTED_ANNOTATION,
    Settings,
    ingress_due,
    lacks_address,
    marks_of,
    service_of,
)
from devenv.announcer import (
    Announce,
    Announcer,
    Answer,
    AwaitAddress,
    Effect,
    Instance,
    Reaction,
    ReadSlices,
    RequestLease,
    ServiceWatch,
    Withdraw,
    WriteService,
    announcer_for,
)
from devenv.background import Background
from devenv.echo import EchoServers
from devenv.harvester.records import SERVICES, SLICES
from devenv.watch import Document, Mirror, annotations_of, key_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import ApiError, Conflict, NotFound, Unreachable

SHARED_GAP: Final = 2.0
"""Seconds for which a shared address is not announced after the deletion of one of its Services."""
START_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.2
LEASE_SECONDS: Final = 0.3
"""Seconds until a DHCP server that responds has given an address."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class KubeVipOptions:
    """Settings of the emulated kube-vip, and its surroundings."""

    settings: Settings = field(default_factory=Settings)
    dhcp_range: tuple[str, str] | None = None
    """First and last address of the DHCP server; None means that no DHCP server responds."""
    serve: bool = False
    """Whether announced loopback addresses respond to HTTP with the Service's key on its TCP ports."""
    address_timeout: float = 30.0
    """Seconds for which a Service without an address delays all others."""
    dhcp_timeout: float = 130.0
    """Seconds for which a DHCP server that does not respond delays all others: three attempts."""
    seconds_per_service: float = 0.0
    """Seconds until the next Service is handled; with ``svc_election`` about one."""


@dataclass(frozen=True)
class Transition:
    """An address that was announced or withdrawn."""

    kind: Literal["announce", "withdraw"]
    address: str
    service: str


Job = Callable[[], Awaitable[None]]


class KubeVip:
    """kube-vip of one guest cluster. Use as an async context manager; a new one is a restarted kube-vip."""

    def __init__(self, client: ApiClient, options: KubeVipOptions | None = None) -> None:
        self._client = client
        self._options = options or KubeVipOptions()
        self._announcer: Announcer = announcer_for(self._options.settings)
        self._down: set[str] = set()
        self._events: asyncio.Queue[Job] = asyncio.Queue()
        """Events of Services, handled one after the other."""
        self._others: asyncio.Queue[Job] = asyncio.Queue()
        """Everything else, handled at once: events of EndpointSlices, and writes."""
        self._services = Mirror(client, SERVICES)
        self._slices = Mirror(client, SLICES)
        self._services.subscribe(self._on_service)
        self._slices.subscribe(self._on_slice)
        self._echo = EchoServers()
        jobs = [self._services.run, self._slices.run, self._handle_events, self._handle_others]
        self._background = Background("kube-vip", jobs)
        self.dhcp_answers = True
        """Whether the DHCP server responds, if there is one."""
        self.waiting_for: str | None = None
        """The Service that currently delays all others: it has no address or waits for a lease."""
        self.writing = 0
        """Number of Services that it writes to now."""
        self.transitions: list[Transition] = []
        """All announcements and withdrawals, in order."""

    @property
    def announced(self) -> dict[str, set[str]]:
        """The announced addresses, each with the keys of its Services."""
        found = self._announcer.addresses(lambda _instance: True).items()
        return {address: set(keys) for address, keys in found if address not in self._down}

    async def __aenter__(self) -> Self:
        ready = [self._services.wait_synced, self._slices.wait_synced]
        await self._background.start(ready, within=START_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._background.stop()
        finally:
            await self._echo.end()

    # Events.

    def _on_service(self, before: Document | None, after: Document | None) -> None:
        if after is not None:
            kind: Literal["ADDED", "MODIFIED"] = "ADDED" if before is None else "MODIFIED"
            self._events.put_nowait(partial(self._on_changed, kind, after))
        elif before is not None:
            self._events.put_nowait(partial(self._on_deleted, before))

    async def _on_changed(self, kind: Literal["ADDED", "MODIFIED"], service: Document) -> None:
        watches = set(self._announcer.watches.values())
        await self._run(self._announcer.change(kind, service))
        if not watches.issuperset(self._announcer.watches.values()):
            await asyncio.sleep(self._options.seconds_per_service)
        key = key_of(service)
        for instance in self._announcer.instances:
            if instance.is_up and instance.key == key:
                await self._refresh(instance)

    async def _on_deleted(self, service: Document) -> None:
        await self._run(self._announcer.delete(service))

    def _on_slice(self, before: Document | None, after: Document | None) -> None:
        document = after or before
        key = service_of(document) if document else None
        if document is None or key is None:
            return
        for watch in self._announcer.watches_of(key):
            if after is None:
                self._others.put_nowait(partial(self._run, self._announcer.delete_slice(watch)))
            else:
                self._others.put_nowait(partial(self._run, self._announcer.change_slice(watch, document)))

    async def _handle_events(self) -> None:
        while True:
            await self._attempt(await self._events.get())

    async def _handle_others(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                job = await self._others.get()
                group.create_task(self._attempt(job))

    async def _attempt(self, job: Job) -> None:
        try:
            await job()
        except ApiError as error:
            log.warning("event given up", error=str(error))

    # Effects.

    async def _run(self, reaction: Reaction) -> None:
        """Carry out the effects of a reaction."""
        answer: Answer = None
        while True:
            try:
                effect = reaction.send(answer)
            except StopIteration:
                return
            answer = await self._carry_out(effect)

    async def _carry_out(self, effect: Effect) -> Answer:
        match effect:
            case AwaitAddress(key):
                return await self._with_address(key)
            case RequestLease(service):
                return await self._lease(service)
            case Announce(instance):
                for address in instance.addresses:
                    self._note("announce", address, instance.key)
                    await self._serve(instance.key, address)
            case Withdraw(instance, is_deleted):
                self._withdraw(instance, is_deleted=is_deleted)
            case ReadSlices(watch):
                await self._read_slices(watch)
            case WriteService(instance) if self._options.settings.updates_services:
                self.writing += 1
                self._others.put_nowait(partial(self._write, instance))
        return None

    async def _with_address(self, key: str) -> Document | None:
        """Return a Service once it has an address or an empty annotation; None after the timeout, or if it is gone."""
        self.waiting_for = key
        current = self._services.get(key)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.address_timeout):
                while current is not None and lacks_address(current):
                    await asyncio.sleep(POLL_SECONDS)
                    current = self._services.get(key)
        self.waiting_for = None
        return None if current is None or lacks_address(current) else current

    async def _lease(self, service: Document) -> str | None:
        """Return an address of the DHCP server; None if it does not respond before the timeout."""
        self.waiting_for = key_of(service)
        await asyncio.sleep(LEASE_SECONDS)
        lease = self._given_lease(service)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.dhcp_timeout):
                while lease is None:
                    await asyncio.sleep(RETRY_SECONDS)
                    lease = self._given_lease(service)
        self.waiting_for = None
        return lease

    def _given_lease(self, service: Document) -> str | None:
        """Return the address that the DHCP server gives now: the present lease, else the requested or a free address.

        None if it does not respond.
        """
        span = self._options.dhcp_range
        if span is None or not self.dhcp_answers:
            return None
        present = self._announcer.lease_of(service)
        if present is not None:
            return present
        first, last = (int(ipaddress.ip_address(end)) for end in span)
        leased = {address for instance in self._announcer.instances for address in instance.addresses}
        free = [str(ipaddress.ip_address(number)) for number in range(first, last + 1)]
        free = [address for address in free if address not in leased]
        asked = annotations_of(service).get(REQUESTED_ANNOTATION)
        if asked in free:
            return asked
        return free[0] if free else None

    async def _read_slices(self, watch: ServiceWatch) -> None:
        """Deliver the slices at once: the real one may handle other events of the Service before, and announce it."""
        for document in self._slices.all():
            if service_of(document) == watch.key:
                await self._run(self._announcer.change_slice(watch, document))

    def _withdraw(self, instance: Instance, *, is_deleted: bool) -> None:
        for address in instance.addresses:
            self._note("withdraw", address, instance.key)
            others = self.announced.get(address, set())
            if others and is_deleted and self._options.settings.version >= (1, 2, 0):
                self._down.add(address)
                self._others.put_nowait(partial(self._restore, address))
                continue
            for other in others:
                self._note("announce", address, other)

    async def _restore(self, address: str) -> None:
        await asyncio.sleep(SHARED_GAP)
        self._down.discard(address)
        for key in self.announced.get(address, ()):
            self._note("announce", address, key)
            await self._serve(key, address)

    async def _refresh(self, instance: Instance) -> None:
        """Announce a shared address again after a change of one of its Services, and listen on changed ports."""
        for address in instance.addresses:
            if len(self.announced.get(address, ())) > 1:
                self._note("withdraw", address, instance.key)
                self._note("announce", address, instance.key)
            await self._serve(instance.key, address)

    def _note(self, kind: Literal["announce", "withdraw"], address: str, key: str) -> None:
        self.transitions.append(Transition(kind, address, key))
        log.debug("address changed", change=kind, address=address, service=key)
        if kind == "withdraw" and address not in self.announced:
            self._echo.close(address)

    async def _serve(self, key: str, address: str) -> None:
        service = self._services.get(key)
        if self._options.serve and service is not None:
            ports = [(port.get("protocol", "TCP"), port["port"]) for port in service["spec"].get("ports") or ()]
            await self._echo.open(key, address, ports)

    # Writes.

    async def _write(self, instance: Instance) -> None:
        """Write node, lease and status, unless they are there. Errors are retried for as long as it is announced."""
        try:
            while instance in self._announcer.instances:
                try:
                    await self._annotate(instance)
                    await self._write_status(instance)
                except (Conflict, Unreachable):
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    return
        except NotFound:
            return
        finally:
            self.writing -= 1

    async def _annotate(self, instance: Instance) -> None:
        namespace, _, name = instance.key.partition("/")
        service = await self._client.get(SERVICES, name, namespace=namespace)
        marks = marks_of(instance.key, instance.addresses, self._options.settings, leased=instance.is_leased)
        if not marks.items() <= annotations_of(service).items():
            body = {"metadata": {"annotations": marks}}
            await self._client.merge_patch(SERVICES, name, body, namespace=namespace)

    async def _write_status(self, instance: Instance) -> None:
        """Write the addresses with every port of the Service."""
        namespace, _, name = instance.key.partition("/")
        service = await self._client.get(SERVICES, name, namespace=namespace)
        ingress = ingress_due(service, instance.service, instance.addresses)
        if ingress is not None:
            service["status"] = {**(service.get("status") or {}), "loadBalancer": {"ingress": ingress}}
            await self._client.request("PUT", SERVICES.path(namespace, name, "status"), body=service)
