"""kube-vip in the guest cluster, emulated on a real API server, with its defects.

It handles Services of type LoadBalancer that have an address, writes ``kube-vip.io/vipHost`` and then the status;
``announced`` contains the addresses of each Service. Like the real one, it handles one event after the other, so a
Service without an address delays all others. While it waits for that address, it reads newer states of the Service, and
handles the older events later. Addresses that the real one does not withdraw, or does not announce after a change, are
not withdrawn or announced here either.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Self

import structlog

from devenv.announcement import (
    DHCP_ADDRESS,
    REQUESTED_ANNOTATION,
    SERVICE_NAME_LABEL,
    ingress_due,
    lacks_address,
    marks_of,
)
from devenv.announcer import Announcer, Step
from devenv.background import Background
from devenv.echo import EchoServers
from devenv.harvester.records import SERVICES, SLICES
from devenv.watch import Document, Mirror, annotations_of, key_of, labels_of
from harvester_ccm.errors import ApiError, Conflict, NotFound, Unreachable
from harvester_ccm.kube.client import ApiClient

SHARED_GAP: Final = 2.0
"""Seconds for which a shared address is not announced after the deletion of one of its Services."""
START_SECONDS: Final = 30.0
NODE: Final = "devenv-node"
POLL_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.2

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class KubeVipOptions:
    """Settings of the emulated kube-vip."""

    dhcp_range: tuple[str, str] | None = None
    """First and last address of the DHCP server; None means that no DHCP server responds."""
    serve: bool = False
    """Whether announced loopback addresses respond to HTTP with the Service's key on its TCP ports."""
    address_timeout: float = 30.0
    """Seconds for which a Service without an address delays all others."""
    dhcp_timeout: float = 130.0
    """Seconds for which a DHCP server that does not respond delays all others."""


@dataclass(frozen=True)
class Transition:
    """An address that was announced or withdrawn."""

    kind: Literal["announce", "withdraw"]
    address: str
    service: str


Event = Callable[[], Awaitable[None]]


class KubeVip:
    """kube-vip of one guest cluster. Use as an async context manager; a new one is a restarted kube-vip."""

    def __init__(self, client: ApiClient, options: KubeVipOptions | None = None) -> None:
        self._client = client
        self._options = options or KubeVipOptions()
        self._announcer = Announcer()
        self._down: set[str] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._services = Mirror(client, SERVICES)
        self._slices = Mirror(client, SLICES)
        self._services.subscribe(self._on_service)
        self._slices.subscribe(self._on_slice)
        self._echo = EchoServers()
        self._background = Background("kube-vip", [self._services.run, self._slices.run, self._handle_events])
        self.waiting_for: str | None = None
        """The Service that currently delays all others: it has no address or waits for a lease."""
        self.transitions: list[Transition] = []
        """All announcements and withdrawals, in order."""

    @property
    def announced(self) -> dict[str, set[str]]:
        """The announced addresses, each with the keys of its Services."""
        found = self._announcer.addresses(lambda _one: True).items()
        return {address: set(keys) for address, keys in found if address not in self._down}

    async def __aenter__(self) -> Self:
        ready = [self._services.wait_synced, self._slices.wait_synced]
        await self._background.start(ready, within=START_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._background.stop()
        finally:
            for timer in self._timers:
                timer.cancel()
            self._echo.close()

    def _on_service(self, before: Document | None, after: Document | None) -> None:
        if after is not None:
            self._events.put_nowait(partial(self._on_changed, after))
        elif before is not None:
            self._events.put_nowait(partial(self._on_deleted, before))

    def _on_slice(self, before: Document | None, after: Document | None) -> None:
        for document in (before, after):
            name = labels_of(document).get(SERVICE_NAME_LABEL) if document else None
            if document and name:
                self._events.put_nowait(partial(self._on_endpoints, f"{document['metadata']['namespace']}/{name}"))
                return

    async def _handle_events(self) -> None:
        while True:
            event = await self._events.get()
            while True:
                try:
                    await event()
                except Unreachable:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                except ApiError as error:
                    log.warning("event given up", error=str(error))
                break

    async def _on_deleted(self, service: Document) -> None:
        key = key_of(service)
        one = self._announcer.delete(service)
        for address in one.addresses if one else ():
            self._note("withdraw", address, key)
            if address in self.announced:
                self._down.add(address)
                loop = asyncio.get_running_loop()
                restore = partial(self._restore, address)
                self._timers.add(loop.call_later(SHARED_GAP, self._events.put_nowait, restore))

    async def _restore(self, address: str) -> None:
        self._down.discard(address)
        for key in self.announced.get(address, ()):
            self._note("announce", address, key)
            await self._serve(key, address)

    async def _on_changed(self, service: Document) -> None:
        step = self._announcer.change(service)
        if step is Step.WAIT:
            found = await self._with_address(service)
            if found is None:
                return
            service, step = found, self._announcer.follow(found)
        key = key_of(service)
        match step:
            case Step.ANNOUNCE if self._announcer.is_heard(service):
                await self._announce_if_wanted(service)
            case Step.WITHDRAW:
                self._withdraw(key)
            case Step.KEEP:
                for address in self._announcer.up[key].addresses:
                    self._blink_if_shared(address, key)
                    await self._serve(key, address)

    async def _on_endpoints(self, key: str) -> None:
        service = self._services.get(key)
        match self._announcer.change_endpoints(key, service, has_endpoints=True):
            case Step.ANNOUNCE if service is not None:
                await self._announce_if_wanted(service)
            case Step.WITHDRAW:
                self._withdraw(key)

    async def _with_address(self, service: Document) -> Document | None:
        """Return a Service once it has an address or an empty annotation; None after the timeout."""
        key = self.waiting_for = key_of(service)
        current: Document | None = service
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.address_timeout):
                while current is not None and lacks_address(current):
                    await asyncio.sleep(POLL_SECONDS)
                    current = self._services.get(key)
        self.waiting_for = None
        return None if current is None or lacks_address(current) else current

    async def _announce_if_wanted(self, service: Document) -> None:
        key, wished = key_of(service), self._announcer.wished(service, has_endpoints=True)
        if not wished:
            return
        addresses = wished
        if DHCP_ADDRESS in wished:
            leased = await self._lease(service)
            if leased is None:
                return
            addresses = (leased,)
        self._announcer.announce(service, addresses)
        for address in addresses:
            self._note("announce", address, key)
            await self._serve(key, address)
        await self._annotate(key, marks_of(key, NODE, addresses, leased=addresses != wished))
        await self._write_status(key, addresses)

    async def _lease(self, service: Document) -> str | None:
        """Return an address of the DHCP server; None, after the timeout, if it does not respond."""
        span = self._options.dhcp_range
        if span is not None:
            first, last = (int(ipaddress.ip_address(end)) for end in span)
            free = [str(ipaddress.ip_address(n)) for n in range(first, last + 1)]
            free = [address for address in free if address not in self.announced]
            asked = annotations_of(service).get(REQUESTED_ANNOTATION)
            if free:
                return asked if asked in free else free[0]
        self.waiting_for = key_of(service)
        await asyncio.sleep(self._options.dhcp_timeout)
        self.waiting_for = None
        return None

    def _withdraw(self, key: str) -> None:
        for address in self._announcer.up.pop(key).addresses:
            self._note("withdraw", address, key)
            for other in self.announced.get(address, ()):
                self._note("announce", address, other)

    def _blink_if_shared(self, address: str, key: str) -> None:
        if len(self.announced.get(address, ())) > 1:
            self._note("withdraw", address, key)
            self._note("announce", address, key)

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

    async def _annotate(self, key: str, marks: dict[str, str]) -> None:
        service = self._services.get(key)
        if service is None or marks.items() <= annotations_of(service).items():
            return
        namespace, _, name = key.partition("/")
        with suppress(NotFound):
            body = {"metadata": {"annotations": marks}}
            await self._client.merge_patch(SERVICES, name, body, namespace=namespace)

    async def _write_status(self, key: str, addresses: tuple[str, ...]) -> None:
        """Write the addresses with every port of the Service, unless they are there."""
        namespace, _, name = key.partition("/")
        while True:
            try:
                service = await self._client.get(SERVICES, name, namespace=namespace)
                ingress = ingress_due(service, addresses)
                if ingress is None:
                    return
                service["status"] = {**(service.get("status") or {}), "loadBalancer": {"ingress": ingress}}
                await self._client.request("PUT", SERVICES.path(namespace, name, "status"), body=service)
            except Conflict:
                continue
            except NotFound:
                return
            return
