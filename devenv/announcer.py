"""The state of kube-vip and its reaction to each event, without clock and I/O.

``devenv.kubevip`` runs it on a real API server, the simulation in memory. The reactions are those of ARP mode without
elections, with the same missing withdrawals and announcements as in the real kube-vip.

Each reaction is an iterator of effects. Its driver carries them out in order, and sends the answer to ``AwaitAddress``
and ``RequestLease`` back: kube-vip handles no other event of a Service meanwhile.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Literal

from devenv.announcement import (
    DHCP_ADDRESS,
    NEWEST,
    Settings,
    Wanted,
    counts_endpoint,
    has_refused_lease,
    has_served_class,
    is_changed,
    is_ignored,
    is_load_balancer,
    is_served,
    needs_no_endpoint,
    wanted_of,
)
from devenv.watch import Document, key_of

EventType = Literal["ADDED", "MODIFIED"]


@dataclass(eq=False)
class Instance:
    """A Service whose address kube-vip has read."""

    key: str
    uid: str
    """Of the Service: kube-vip identifies Services by UID, not by name."""
    service: Document
    """The Service at that time."""
    addresses: tuple[str, ...]
    is_leased: bool
    """Whether a DHCP server gave the address."""
    is_up: bool = False
    """Whether the addresses are on the node."""
    is_added: bool = False
    """Whether its announcement has begun."""
    is_forgotten: bool = False
    """Whether kube-vip ignores the Service, because its type or class changed."""
    is_left: bool = False
    """Whether the Service was deleted while kube-vip ignored it, so that the addresses stay."""


@dataclass(eq=False)
class ServiceWatch:
    """kube-vip's watch of the EndpointSlices of one Service."""

    key: str
    uid: str
    service: Document
    """The Service when the watch began: its policy stays in force."""
    endpoints: dict[str, list[Document]] = field(default_factory=dict)
    """Endpoints by address type: those of the slice that changed last, not of all."""
    is_cancelled: bool = False
    is_running: bool = False
    is_announced: bool = False
    """Whether there was an endpoint at the last event."""
    waits: bool = False
    """Whether the Service is to be written with the first endpoint."""
    instance: Instance | None = None
    """The instance that waits for it; None to create another one then."""


@dataclass(frozen=True)
class AwaitAddress:
    """Wait for an address or an empty annotation of a Service. The answer is the Service then; None if there is none.

    The Service can be a newer one of the same name.
    """

    key: str


@dataclass(frozen=True)
class RequestLease:
    """Request an address from the DHCP server. The answer is the address; None if the server does not respond."""

    service: Document


@dataclass(frozen=True)
class Announce:
    """Put the addresses of an instance on the node."""

    instance: Instance
    is_raced: bool = False
    """Whether the same event has withdrawn the same addresses.

    Before 1.2, kube-vip does both at once: half of all such addresses are away for up to three seconds, and a few stay
    away, although kube-vip notes the Service.
    """


@dataclass(frozen=True)
class Withdraw:
    """Remove the addresses of an instance from the node."""

    instance: Instance
    is_deleted: bool = False
    """Whether the Service was deleted."""


@dataclass(frozen=True)
class ReadSlices:
    """Deliver every present EndpointSlice of the Service to ``change_slice``.

    In the real kube-vip other events of the Service can come first, and decide whether it is announced.
    """

    watch: ServiceWatch


@dataclass(frozen=True)
class WriteService:
    """Write node, lease and status to the Service of this name, if they differ."""

    instance: Instance


Effect = AwaitAddress | RequestLease | Announce | Withdraw | ReadSlices | WriteService
Answer = Document | str | None
Reaction = Generator[Effect, Answer, None]


class Announcer:
    """kube-vip since 1.2: it announces a Service as soon as there is an endpoint."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.instances: list[Instance] = []
        self.watches: dict[str, ServiceWatch] = {}
        """By UID."""

    def addresses(self, counts: Callable[[Instance], bool]) -> dict[str, list[str]]:
        """Return the announced addresses, each with its Services."""
        found: dict[str, list[str]] = {}
        for instance in self.instances:
            for address in instance.addresses if instance.is_up and counts(instance) else ():
                found.setdefault(address, []).append(instance.key)
        return found

    def lease_of(self, service: Document) -> str | None:
        """Return the address that a Service has leased; None if it has none."""
        leased = [instance for instance in self._instances_of(_uid(service)) if instance.is_leased]
        return leased[0].addresses[0] if leased else None

    # Events.

    def change(self, kind: EventType, service: Document) -> Reaction:
        """Handle a new or changed Service."""
        instance = self._instance_of(_uid(service))
        if instance is not None:
            instance.is_forgotten = not (is_load_balancer(service) and has_served_class(service, self.settings))
        if is_served(service, self.settings):
            yield from self._serve(kind, service)

    def delete(self, service: Document) -> Reaction:
        """Handle the deletion of a Service. The addresses of one that kube-vip ignores stay."""
        uid = _uid(service)
        watch = self.watches.get(uid)
        if watch is None:
            return
        if not is_load_balancer(service) or is_ignored(service):
            for instance in self._instances_of(uid):
                instance.is_left = True
            return
        yield from self._cancel(watch, is_deleted=True)
        self._forget(uid)

    def watches_of(self, key: str) -> list[ServiceWatch]:
        """Return the watches that an event of a slice of this Service reaches."""
        return [watch for watch in self.watches.values() if watch.key == key and watch.is_running]

    def change_slice(self, watch: ServiceWatch, endpoint_slice: Document) -> Reaction:
        """Handle a new or changed EndpointSlice of a Service."""
        if not watch.is_running:
            return
        watch.endpoints[endpoint_slice.get("addressType", "IPv4")] = list(endpoint_slice.get("endpoints") or ())
        endpoints = [endpoint for found in watch.endpoints.values() for endpoint in found]
        if counts_endpoint(watch.service, endpoints, self.settings.node) or needs_no_endpoint(watch.service):
            yield from self._announce(watch)
        elif watch.is_announced:
            watch.is_announced = False
            yield from self._withdraw(watch.uid)

    def delete_slice(self, watch: ServiceWatch) -> Reaction:
        """Handle the deletion of any EndpointSlice of a Service: kube-vip stops its watch, and withdraws."""
        if watch.is_running:
            yield from self._cancel(watch)

    # Reactions.

    def _serve(self, kind: EventType, service: Document) -> Reaction:
        found = yield from self._with_address(service)
        if found is None:
            return
        uid = _uid(found)
        instance = self._instance_of(uid)
        if instance is None:
            instance = yield from self._new_instance(found)
        if instance is None or has_refused_lease(found):
            return
        watch = self.watches.get(uid)
        if watch is not None and watch.is_cancelled and self.settings.version >= (1, 2, 3):
            watch = None
        if kind == "MODIFIED" and watch is not None and self._is_changed(instance, found):
            yield from self._cancel(watch)
            self._forget(uid)
            watch = None
        if watch is None:
            watch = self.watches[uid] = ServiceWatch(key_of(found), uid, found)
        if not watch.is_running:
            yield from self._start(watch, found)

    def _with_address(self, service: Document) -> Generator[Effect, Answer, Document | None]:
        """Return a Service once it has an address or an empty annotation; None if it gets none in time."""
        if not wanted_of(service).is_missing:
            return service
        found = yield AwaitAddress(key_of(service))
        return found if isinstance(found, dict) else None

    def _is_changed(self, instance: Instance | None, service: Document) -> bool:
        """Return whether the differences to the Service of an instance withdraw its address."""
        return instance is not None and is_changed(instance.service, service, self.settings.version)

    def _start(self, watch: ServiceWatch, service: Document) -> Reaction:
        """Watch the endpoints of a Service, and write it as soon as there is one.

        If the address has just changed, there is no instance. The slices that exist are ignored then, and the Service
        is announced only after another event of it and one of a slice.
        """
        watch.service = service
        instance = self._instance_of(watch.uid)
        if instance is not None and instance.is_added:
            if _is_inconsistent(instance, service):
                yield from self._withdraw(watch.uid)
                self._forget_instances(watch.uid)
        else:
            watch.waits = True
            watch.instance = instance
            if instance is not None:
                instance.is_added = True
        if not watch.is_cancelled:
            watch.is_running = True
            yield ReadSlices(watch)

    def _announce(self, watch: ServiceWatch) -> Reaction:
        """Put the addresses on the node with the first endpoint, and write the Service once."""
        if watch.is_announced:
            return
        instance = self._instance_of(watch.uid)
        if instance is None:
            return
        watch.is_announced = True
        instance.is_up = True
        yield Announce(instance)
        if not watch.waits:
            return
        watch.waits = False
        written = watch.instance
        if written is None:
            written = yield from self._new_instance(watch.service)
        if written is not None:
            written.is_added = True
            yield WriteService(written)

    def _new_instance(self, service: Document) -> Generator[Effect, Answer, Instance | None]:
        """Create an instance, with a lease if the Service requests one; return None if that fails."""
        wanted = wanted_of(service)
        if not _can_be_announced(wanted):
            return None
        addresses = wanted.addresses
        is_leased = DHCP_ADDRESS in addresses
        if is_leased:
            lease = yield RequestLease(service)
            if not isinstance(lease, str):
                return None
            addresses = tuple(lease if address == DHCP_ADDRESS else address for address in addresses)
        instance = Instance(key_of(service), _uid(service), service, addresses, is_leased)
        self.instances.append(instance)
        return instance

    def _cancel(self, watch: ServiceWatch, *, is_deleted: bool = False) -> Reaction:
        """End the watch of a Service, which withdraws its addresses."""
        watch.is_cancelled = True
        watch.is_running = False
        watch.is_announced = False
        watch.waits = False
        yield from self._withdraw(watch.uid, is_deleted=is_deleted)

    def _withdraw(self, uid: str, *, is_deleted: bool = False) -> Reaction:
        for instance in self._instances_of(uid):
            if instance.is_up:
                instance.is_up = False
                yield Withdraw(instance, is_deleted)

    def _forget(self, uid: str) -> None:
        self._forget_instances(uid)
        self.watches.pop(uid, None)

    def _forget_instances(self, uid: str) -> None:
        self.instances = [instance for instance in self.instances if instance.uid != uid]

    def _instances_of(self, uid: str) -> list[Instance]:
        return [instance for instance in self.instances if instance.uid == uid]

    def _instance_of(self, uid: str) -> Instance | None:
        return next(iter(self._instances_of(uid)), None)


class NewestAnnouncer(Announcer):
    """kube-vip after 1.2.3: the event that withdraws a Service also announces it again, or has no address.

    Another type withdraws the address. The watch of the EndpointSlices survives the deletion of one, which changes
    nothing.
    """

    def change(self, kind: EventType, service: Document) -> Reaction:
        """Handle a new or changed Service."""
        if not is_load_balancer(service):
            yield from self._remove(service)
        elif is_served(service, self.settings):
            yield from self._serve(kind, service)

    def delete(self, service: Document) -> Reaction:
        """Handle the deletion of a Service, also of one that kube-vip ignores."""
        yield from self._remove(service)

    def delete_slice(self, _watch: ServiceWatch) -> Reaction:
        """Handle the deletion of an EndpointSlice: its endpoints stay in force."""
        yield from ()

    def _remove(self, service: Document) -> Reaction:
        watch = self.watches.get(_uid(service))
        if watch is not None:
            yield from self._cancel(watch, is_deleted=True)
            self._forget(watch.uid)

    def _serve(self, kind: EventType, service: Document) -> Reaction:
        found = yield from self._with_address(service)
        if found is None or has_refused_lease(found):
            return
        uid = _uid(found)
        watch = self.watches.get(uid)
        if kind == "MODIFIED" and watch is not None and self._is_changed(self._instance_of(uid), found):
            yield from self._cancel(watch)
            self._forget(uid)
            watch = None
        if watch is None:
            watch = self.watches[uid] = ServiceWatch(key_of(found), uid, found)
        if self._instance_of(uid) is None and (yield from self._new_instance(found)) is None:
            return
        if not watch.is_running:
            yield from self._start(watch, found)


class OldAnnouncer(Announcer):
    """kube-vip before 1.2: it does not read endpoints, and waits for no address.

    A watch only records here that it has tried to announce the Service. It tries once, also with an empty annotation.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._leased: set[str] = set()
        """UIDs of Services that have had a lease."""

    def _serve(self, kind: EventType, service: Document) -> Reaction:
        if wanted_of(service).is_missing:
            return
        uid = _uid(service)
        watch = self.watches.get(uid)
        instance = self._instance_of(uid)
        if instance is None and self.settings.version >= (1, 1, 2):
            instance = yield from self._new_instance(service)
            if instance is None:
                return
        if has_refused_lease(service) and self.settings.version >= (1, 0, 1):
            return
        withdrawn = None
        if kind == "MODIFIED" and watch is not None and self._is_changed(instance, service):
            was_up = instance is not None and instance.is_up
            yield from self._cancel(watch)
            self._forget(uid)
            if (0, 9, 2) <= self.settings.version < (1, 0, 1):
                # These versions announce the new address with the next event of the Service.
                return
            withdrawn = instance if was_up else None
            watch, instance = None, None
        if watch is None:
            self.watches[uid] = ServiceWatch(key_of(service), uid, service)
            yield from self._announce_at_once(instance, service, withdrawn)

    def _announce_at_once(self, instance: Instance | None, service: Document, withdrawn: Instance | None) -> Reaction:
        """Announce a Service; ``withdrawn`` is the instance that the same event has withdrawn."""
        if instance is None:
            instance = yield from self._new_instance(service)
        if instance is None:
            return
        if not self._has_lost_device(instance):
            instance.is_up = True
            is_raced = withdrawn is not None and not set(withdrawn.addresses).isdisjoint(instance.addresses)
            yield Announce(instance, is_raced)
        yield WriteService(instance)

    def _has_lost_device(self, instance: Instance) -> bool:
        """Return whether kube-vip adds a lease to a device that it has deleted: the address is noted, but not up.

        Before 1.0, it remembers the device of the first lease of a Service, and creates another one of the same name.
        """
        if not instance.is_leased or self.settings.version >= (1, 0, 0):
            return False
        is_lost = instance.uid in self._leased
        self._leased.add(instance.uid)
        return is_lost


def announcer_for(settings: Settings) -> Announcer:
    """Return a kube-vip of the version in the settings, which has just started."""
    if settings.version < (1, 2, 0):
        return OldAnnouncer(settings)
    return Announcer(settings) if settings.version < NEWEST else NewestAnnouncer(settings)


def _can_be_announced(wanted: Wanted) -> bool:
    return bool(wanted.addresses) and not wanted.names


def _is_inconsistent(instance: Instance, service: Document) -> bool:
    """Return whether kube-vip removes an instance when it begins to watch the endpoints of its Service again.

    It compares the addresses and the ports with those in the status. A DHCP Service with a status never fits.
    """
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if not ingress:
        return False
    shown = {entry.get("ip") for entry in ingress}
    if not shown.issuperset(wanted_of(service).addresses):
        return True
    ports = [(port["port"], port.get("protocol", "TCP")) for port in service["spec"].get("ports") or ()]
    return [(port["port"], port["protocol"]) for port in ingress[0].get("ports") or ()] != ports


def _uid(service: Document) -> str:
    return str(service["metadata"].get("uid", ""))
