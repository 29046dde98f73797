"""kube-vip of a guest cluster as a step machine: events in, announcements and writes out, one after the other."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from devenv.announcement import (
    DEFAULT_CLASS,
    NEWEST,
    REQUESTED_ANNOTATION,
    Settings,
    Version,
    counts_endpoint,
    ingress_due,
    lacks_address,
    marks_of,
    service_of,
)
from devenv.announcer import (
    Announce,
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
from devenv.kubevip import SHARED_GAP
from devenv.watch import annotations_of, key_of
from harvester_ccm.kube.errors import KubeError
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICES
from harvester_ccm.names import LOAD_BALANCER_CLASS
from tests.simulation.loop import SeededLoop
from tests.support.memory_server import Document, MemoryServer, name_of

LAG: Final = (0.005, 0.3)
"""Shortest and longest time in seconds until a change is seen."""
WATCH_SECONDS: Final = (0.001, 0.05)
"""The same until a new watch of EndpointSlices delivers those that exist."""
WRITE_SECONDS: Final = (0.01, 0.1)
LEASE_SECONDS: Final = (0.1, 3.0)
LEASES: Final = tuple(f"10.10.0.{number}" for number in range(10, 30))
"""Addresses of the DHCP server in the nodes' network."""
DHCP_TIMEOUT: Final = 130.0
"""Seconds for which it requests a lease: three attempts."""
ADDRESS_TIMEOUT: Final = 30.0
"""Seconds for which a Service without an address blocks all others."""
LOOK_SECONDS: Final = 1.0
NODE: Final = "node-1"
VERSIONS: Final[tuple[Version, ...]] = ((1, 1, 2), (1, 2, 3), NEWEST)
"""Versions of kube-vip that a simulation plays in turn: those that announce a Service again from any state."""
RACE_SECONDS: Final = (0.4, 3.0)
RACED_SHARE: Final = 0.5
"""Share of the raced announcements (``Announce.is_raced``) whose address is away for ``RACE_SECONDS``: 17 of 34.

Of about 50, kube-vip 1.1.2 lost three addresses for good although it had noted their Services. Nothing shows that to a
controller, so it is not played.
"""


class KubeVip:
    """kube-vip of one guest cluster."""

    def __init__(
        self,
        server: MemoryServer,
        loop: SeededLoop,
        seed: str,
        *,
        settings: Settings | None = None,
        leases: Sequence[str] = LEASES,
        kept_leases: float = 0.8,
        raced_share: float = RACED_SHARE,
    ) -> None:
        """Without ``settings``, it is the kube-vip of the chart: see ``chart_settings``.

        ``leases`` are the addresses of the DHCP server, ``kept_leases`` is the share of the requests for a previous one
        that it grants. ``raced_share`` is about ``Announce.is_raced``.
        """
        self._server = server
        self._leases = leases
        self._kept_leases = kept_leases
        self._loop = loop
        self._dice = random.Random(f"{seed} kube-vip")
        self._settings = settings or chart_settings(seed, version_for(seed))
        self._raced_share = raced_share
        self._told_until = 0.0
        self._run = 0
        self._under_way: deque[tuple[str, str, Document]] = deque()
        self._known: set[str] = set()
        """Keys of the Services that it has seen."""
        self._events: deque[tuple[str, Document]] = deque()
        """Events of Services."""
        self._announcer = announcer_for(self._settings)
        self._blocked = False
        """Whether a Service without an address or a lease blocks all others."""
        self._read_at: dict[ServiceWatch, int] = {}
        """Version of the EndpointSlices with which a watch has begun."""
        self._down_until: dict[str, float] = {}
        """Loop time at which an address that is away returns: a shared or a raced one."""
        self._dhcp_from = 0.0
        """Loop time from which the DHCP server answers."""
        self.leases = 0
        """Leases that it has given."""
        self.changes: list[str] = []
        """All announcements and withdrawals, for the trace."""
        server.on_change.append(self._changed)

    @property
    def version(self) -> Version:
        return self._settings.version

    @property
    def needs_endpoints(self) -> bool:
        """Whether it announces a Service only with an endpoint."""
        return self._settings.version >= (1, 2, 0)

    def has_endpoint(self, service: Document) -> bool:
        """Return whether a Service has the endpoint that kube-vip needs on its node."""
        slices = self._server.of(ENDPOINT_SLICES).values()
        of_service = [found for found in slices if service_of(found) == key_of(service)]
        endpoints = [endpoint for found in of_service for endpoint in found.get("endpoints") or ()]
        return not self.needs_endpoints or counts_endpoint(service, endpoints, self._settings.node)

    def stop_noting(self) -> None:
        """Restart in a mode in which it notes its node on no Service."""
        self._settings = replace(self._settings, notes_node=False)
        self.restart()

    def announced(self) -> dict[str, list[str]]:
        """Return the addresses that are up and that kube-vip minds, and the Services that they are up for."""
        return self._announcer.addresses(lambda instance: not instance.is_forgotten)

    def announced_for(self, key: str) -> set[str]:
        """Return the addresses that are up for a Service, also for one that kube-vip has begun to ignore since."""
        found = self._announcer.addresses(lambda instance: instance.key == key)
        return set(found)

    def on_node(self) -> set[str]:
        found = self._announcer.addresses(lambda _instance: True)
        return {address for address in found if self._down_until.get(address, 0.0) <= self._loop.time()}

    def stop_dhcp(self, seconds: float) -> None:
        """Delay the responses of the DHCP server."""
        self._dhcp_from = self._loop.time() + seconds

    def restart(self) -> None:
        """Restart: all addresses are withdrawn, and all objects are listed."""
        for instance in self._announcer.instances:
            if instance.is_up:
                self._note("withdraws", instance)
        self._run += 1
        self._announcer, self._blocked = announcer_for(self._settings), False
        for known in (self._under_way, self._events, self._known, self._read_at):
            known.clear()
        for document in self._server.of(SERVICES).values():
            self._changed(name_of(SERVICES), "ADDED", document)

    # Events.

    def _changed(self, collection: str, kind: str, document: Document) -> None:
        if collection in {name_of(SERVICES), name_of(ENDPOINT_SLICES)}:
            self._told_until = max(self._told_until, self._loop.time() + self._dice.uniform(*LAG))
            self._under_way.append((collection, kind, document))
            self._loop.call_at(self._told_until, self._see, self._run)

    def _see(self, run: int) -> None:
        if run != self._run:
            return
        collection, kind, document = self._under_way.popleft()
        if collection == name_of(ENDPOINT_SLICES):
            self._see_slice(kind, document)
            return
        self._events.append((kind, document))
        self._handle_all()

    def _see_slice(self, kind: str, document: Document) -> None:
        """Handle an event of a slice at once: nothing blocks it."""
        for watch in self._announcer.watches_of(service_of(document) or ""):
            if int(document["metadata"]["resourceVersion"]) <= self._read_at.get(watch, self._server.version):
                continue
            if kind == "DELETED":
                self._continue(self._run, self._announcer.delete_slice(watch))
            else:
                self._continue(self._run, self._announcer.change_slice(watch, document))

    def _handle_all(self) -> None:
        while self._events and not self._blocked:
            kind, document = self._events.popleft()
            key = key_of(document)
            if kind == "DELETED":
                self._known.discard(key)
                reaction = self._announcer.delete(document)
            else:
                reaction = self._announcer.change("MODIFIED" if key in self._known else "ADDED", document)
                self._known.add(key)
            self._continue(self._run, reaction, blocks=True)

    # Effects.

    def _continue(self, run: int, reaction: Reaction, answer: Answer = None, *, blocks: bool = False) -> None:
        """Carry out the effects of a reaction, until one has to wait. ``blocks``: all other Services wait, too."""
        while run == self._run:
            try:
                effect = reaction.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(effect, AwaitAddress | RequestLease):
                self._wait_for(effect, reaction, blocks=blocks)
                return
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Announce(instance, is_raced):
                self._note("announces", instance)
                until = self._loop.time() + self._race_seconds() if is_raced else 0.0
                self._down_until.update(dict.fromkeys(instance.addresses, until))
            case Withdraw(instance, is_deleted):
                self._note("withdraws", instance)
                if is_deleted and self.needs_endpoints:
                    until = self._loop.time() + SHARED_GAP
                    self._down_until.update(dict.fromkeys(instance.addresses, until))
            case ReadSlices(watch):
                self._loop.call_later(self._dice.uniform(*WATCH_SECONDS), self._read_slices, self._run, watch)
            case WriteService(instance) if self._settings.updates_services:
                self._loop.call_later(self._dice.uniform(*WRITE_SECONDS), self._write, instance)

    def _race_seconds(self) -> float:
        """Return for how long the address of a raced announcement is away."""
        if self._dice.random() >= self._raced_share:
            return 0.0
        return self._dice.uniform(*RACE_SECONDS)

    def _wait_for(self, effect: AwaitAddress | RequestLease, reaction: Reaction, *, blocks: bool) -> None:
        self._blocked = self._blocked or blocks
        if isinstance(effect, AwaitAddress):
            until = self._loop.time() + ADDRESS_TIMEOUT
            self._loop.call_later(LOOK_SECONDS, self._look_for_address, self._run, effect.key, until, reaction)
            return
        until = self._loop.time() + DHCP_TIMEOUT
        self._request_lease(self._run, effect.service, reaction, until, blocks)

    def _request_lease(self, run: int, service: Document, reaction: Reaction, until: float, is_blocking: bool) -> None:
        """Request a lease until the DHCP server responds, or give up."""
        now = self._loop.time()
        if run != self._run:
            return
        if now >= self._dhcp_from:
            delay = self._dice.uniform(*LEASE_SECONDS)
            self._loop.call_later(delay, self._lease, run, service, reaction, is_blocking)
        elif now >= until:
            self._resume(run, reaction, None, is_blocking)
        else:
            self._loop.call_later(LOOK_SECONDS, self._request_lease, run, service, reaction, until, is_blocking)

    def _look_for_address(self, run: int, key: str, until: float, reaction: Reaction) -> None:
        """Continue with the blocking Service when it has an address; its older events follow."""
        if run != self._run:
            return
        service = self._server.of(SERVICES).get(key)
        if service is not None and lacks_address(service) and self._loop.time() < until:
            self._loop.call_later(LOOK_SECONDS, self._look_for_address, run, key, until, reaction)
            return
        found = None if service is None or lacks_address(service) else service
        self._resume(run, reaction, found, is_blocking=True)

    def _lease(self, run: int, service: Document, reaction: Reaction, is_blocking: bool) -> None:
        """Obtain a lease, usually the previous one."""
        if run != self._run:
            return
        self.leases += 1
        present = self._announcer.lease_of(service)
        if present is not None:
            self._resume(run, reaction, present, is_blocking)
            return
        leased = {address for instance in self._announcer.instances for address in instance.addresses}
        free = [address for address in self._leases if address not in leased]
        asked = annotations_of(service).get(REQUESTED_ANNOTATION)
        is_kept = asked in free and self._dice.random() < self._kept_leases
        self._resume(run, reaction, asked if is_kept else self._dice.choice(free), is_blocking)

    def _resume(self, run: int, reaction: Reaction, answer: Answer, is_blocking: bool) -> None:
        """Continue with a reaction that has waited."""
        if run != self._run:
            return
        if is_blocking:
            self._blocked = False
        self._continue(run, reaction, answer, blocks=is_blocking)
        self._handle_all()

    def _read_slices(self, run: int, watch: ServiceWatch) -> None:
        if run != self._run:
            return
        self._read_at[watch] = self._server.version
        found = [
            document for document in self._server.of(ENDPOINT_SLICES).values() if service_of(document) == watch.key
        ]
        # An API server lists them in no certain order.
        for document in self._dice.sample(found, len(found)) if len(found) > 1 else found:
            self._continue(run, self._announcer.change_slice(watch, document))

    def _note(self, what: str, instance: Instance) -> None:
        addresses = ", ".join(instance.addresses)
        self.changes.append(f"{self._loop.time():9.3f} kube-vip {what} {addresses} of {instance.key}")

    def _write(self, instance: Instance) -> None:
        """Annotate node and lease, and write the status, if they differ."""
        key, service = instance.key, self._server.of(SERVICES).get(instance.key)
        if service is None or instance not in self._announcer.instances:
            return
        marks = marks_of(key, instance.addresses, self._settings, leased=instance.is_leased)
        try:
            if not marks.items() <= annotations_of(service).items():
                self._server.change(SERVICES, key, {"metadata": {"annotations": marks}})
            ingress = ingress_due(service, instance.service, instance.addresses)
            if ingress is not None:
                self._server.change(SERVICES, key, {"status": {"loadBalancer": {"ingress": ingress}}})
        except KubeError:
            return


def chart_settings(seed: str, version: Version = (1, 2, 3)) -> Settings:
    """Return settings that the chart can have: in half of all schedules, kube-vip has this controller's class."""
    has_our_class = random.Random(f"{seed} class of kube-vip").random() < 0.5
    load_balancer_class = LOAD_BALANCER_CLASS if has_our_class else DEFAULT_CLASS
    return Settings(version=version, node=NODE, load_balancer_class=load_balancer_class)


def version_for(seed: str) -> Version:
    """Return one of the versions that a simulation plays in turn."""
    return random.Random(f"{seed} version of kube-vip").choice(VERSIONS)
