"""kube-vip of a guest cluster as a step machine: events in, announcements and writes out, one after the other."""

import random
from collections import deque
from typing import Final

from devenv.announcement import (
    DHCP_ADDRESS,
    REQUESTED_ANNOTATION,
    SERVICE_NAME_LABEL,
    has_endpoints,
    ingress_due,
    lacks_address,
    marks_of,
)
from devenv.announcer import Announced, Announcer, Step
from devenv.watch import annotations_of, key_of, labels_of
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICES
from harvester_ccm.names import SERVICE_FINALIZER
from tests.simulation.loop import SeededLoop
from tests.support.memory_server import Document, MemoryServer, name_of

LAG: Final = (0.005, 0.3)
"""Shortest and longest time in seconds until a change is seen."""
WRITE_SECONDS: Final = (0.01, 0.1)
LEASE_SECONDS: Final = (0.1, 3.0)
LEASES: Final = tuple(f"10.10.0.{number}" for number in range(10, 30))
"""Addresses of the DHCP server in the nodes' network."""
ADDRESS_TIMEOUT: Final = 30.0
"""Seconds for which a Service without an address blocks all others."""
LOOK_SECONDS: Final = 1.0


class KubeVip:
    """kube-vip of one guest cluster."""

    def __init__(self, server: MemoryServer, loop: SeededLoop, seed: str) -> None:
        self._server = server
        self._loop = loop
        self._dice = random.Random(f"{seed} kube-vip")
        self._told_until = 0.0
        self._run = 0
        self._under_way: deque[tuple[str, str, Document]] = deque()
        self._cache: dict[str, Document] = {}
        self._slices: dict[str, Document] = {}
        self._events: deque[tuple[str, str, Document]] = deque()
        self._announcer = Announcer()
        self._holding_up: str | None = None
        """The Service without an address that blocks all others."""
        self._leasing = ""
        """The Service whose lease all others wait for."""
        self._dhcp_from = 0.0
        """Loop time from which the DHCP server answers."""
        self.late: set[tuple[str, str]] = set()
        """Services and the addresses that it has written to their status although they have no finalizer.

        The controller has released these Services, or has not seen them yet.
        """
        self.leases = 0
        """Leases that it has given."""
        self.changes: list[str] = []
        """All announcements and withdrawals, for the trace."""
        server.on_change.append(self._changed)

    @property
    def up(self) -> dict[str, Announced]:
        """Announced addresses, by Service."""
        return self._announcer.up

    def left_behind(self, address: str, key: str) -> set[str]:
        """Return the UIDs of deleted Services of this name for which kube-vip goes on announcing an address."""
        return {one.uid for name, one in self._announcer.left_behind if name == key and address in one.addresses}

    def announced(self) -> dict[str, list[str]]:
        """Return the addresses that are up and that kube-vip minds, and the Services that they are up for."""
        return self._announcer.addresses(lambda one: not one.forgotten)

    def restart(self) -> None:
        """Restart: all addresses are withdrawn, and all objects are listed."""
        for key, one in self.up.items():
            self._note_withdrawn(key, one)
        self._run += 1
        self._announcer, self._holding_up, self._leasing = Announcer(), None, ""
        for known in (self._under_way, self._events, self._cache, self._slices):
            known.clear()
        for resource in (ENDPOINT_SLICES, SERVICES):
            for document in self._server.of(resource).values():
                self._changed(name_of(resource), "ADDED", document)

    def _changed(self, collection: str, kind: str, document: Document) -> None:
        if collection in {name_of(SERVICES), name_of(ENDPOINT_SLICES)}:
            self._told_until = max(self._told_until, self._loop.time() + self._dice.uniform(*LAG))
            self._under_way.append((collection, kind, document))
            self._loop.call_at(self._told_until, self._see, self._run)

    def _see(self, run: int) -> None:
        if run != self._run:
            return
        collection, kind, document = self._under_way.popleft()
        cache = self._cache if collection == name_of(SERVICES) else self._slices
        if kind == "DELETED":
            cache.pop(key_of(document), None)
        else:
            cache[key_of(document)] = document
        self._events.append((collection, kind, document))
        self._handle_all()

    def _handle_all(self) -> None:
        while self._events and self._holding_up is None and not self._leasing:
            collection, kind, document = self._events.popleft()
            if collection == name_of(ENDPOINT_SLICES):
                self._on_endpoints(f"{document['metadata']['namespace']}/{labels_of(document)[SERVICE_NAME_LABEL]}")
            elif kind == "DELETED":
                self._on_deleted(document)
            else:
                self._on_changed(document)

    def _look_for_address(self, run: int, key: str, until: float) -> None:
        """Continue with the blocking Service when it has an address; its older events follow."""
        if run != self._run:
            return
        service = self._server.of(SERVICES).get(key)
        if service is not None and lacks_address(service) and self._loop.time() < until:
            self._loop.call_later(LOOK_SECONDS, self._look_for_address, run, key, until)
            return
        self._holding_up = None
        if service is not None and not lacks_address(service):
            self._take(self._announcer.follow(service), service)
        self._handle_all()

    def _on_deleted(self, service: Document) -> None:
        one = self._announcer.delete(service)
        if one is not None:
            self._note_withdrawn(key_of(service), one)

    def _on_changed(self, service: Document) -> None:
        self._take(self._announcer.change(service), service)

    def _take(self, step: Step, service: Document) -> None:
        match step:
            case Step.WAIT:
                self._holding_up = key_of(service)
                until = self._loop.time() + ADDRESS_TIMEOUT
                self._loop.call_later(LOOK_SECONDS, self._look_for_address, self._run, self._holding_up, until)
            case Step.ANNOUNCE if self._announcer.is_heard(service):
                self._announce(service)
            case Step.WITHDRAW:
                self._withdraw(key_of(service))

    def _on_endpoints(self, key: str) -> None:
        service = self._cache.get(key)
        found = service is not None and has_endpoints(service, self._slices.values())
        match self._announcer.change_endpoints(key, service, has_endpoints=found):
            case Step.ANNOUNCE if service is not None:
                self._announce(service)
            case Step.WITHDRAW:
                self._withdraw(key)

    def _announce(self, service: Document) -> None:
        key, found = key_of(service), has_endpoints(service, self._slices.values())
        wished = self._announcer.wished(service, has_endpoints=found)
        if DHCP_ADDRESS in wished:
            self._leasing = key
            asked = max(self._loop.time(), self._dhcp_from)
            self._loop.call_at(asked + self._dice.uniform(*LEASE_SECONDS), self._lease, self._run, service)
        elif wished:
            self._put_up(service, wished)

    def stop_dhcp(self, seconds: float) -> None:
        """Delay the responses of the DHCP server."""
        self._dhcp_from = self._loop.time() + seconds

    def _lease(self, run: int, service: Document) -> None:
        """Obtain a lease, usually the previous one."""
        if run != self._run:
            return
        free = [address for address in LEASES if address not in self.announced()]
        asked = annotations_of(service).get(REQUESTED_ANNOTATION)
        self._leasing = ""
        self.leases += 1
        self._put_up(service, (asked if asked in free and self._dice.random() < 0.8 else self._dice.choice(free),))
        self._handle_all()

    def _put_up(self, service: Document, addresses: tuple[str, ...]) -> None:
        key = key_of(service)
        one = self._announcer.announce(service, addresses)
        self.changes.append(f"{self._loop.time():9.3f} kube-vip announces {', '.join(addresses)} for {key}")
        self._loop.call_later(self._dice.uniform(*WRITE_SECONDS), self._write, key, one)

    def _withdraw(self, key: str) -> None:
        self._note_withdrawn(key, self.up.pop(key))

    def _note_withdrawn(self, key: str, one: Announced) -> None:
        self.changes.append(f"{self._loop.time():9.3f} kube-vip withdraws {', '.join(one.addresses)} of {key}")

    def _write(self, key: str, one: Announced) -> None:
        """Annotate node and lease, and write the status, if they differ."""
        service = self._server.of(SERVICES).get(key)
        if service is None or key not in self.up:
            return
        marks = marks_of(key, "node-1", one.addresses, leased=one.addresses != one.wished)
        try:
            if not marks.items() <= annotations_of(service).items():
                self._server.change(SERVICES, key, {"metadata": {"annotations": marks}})
            ingress = ingress_due(service, one.addresses)
            if ingress is not None:
                self._server.change(SERVICES, key, {"status": {"loadBalancer": {"ingress": ingress}}})
                if SERVICE_FINALIZER not in (service["metadata"].get("finalizers") or ()):
                    self.late.update((key, address) for address in one.addresses)
        except CCMError:
            return
