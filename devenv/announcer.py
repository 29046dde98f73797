"""The state of kube-vip and its reaction to each event, without clock and I/O.

``devenv.kubevip`` runs it on a real API server, the simulation in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from devenv.announcement import (
    ADDRESS_ANNOTATION,
    is_ignored,
    is_load_balancer,
    lacks_address,
    must_withdraw,
    wanted_addresses,
)
from devenv.watch import Document, annotations_of, key_of


@dataclass
class Announced:
    """A Service that is announced."""

    wished: tuple[str, ...]
    addresses: tuple[str, ...]
    annotation: str | None
    uid: str
    """Of the Service: kube-vip identifies Services by UID, not by name."""
    forgotten: bool = False
    """Whether kube-vip ignores the Service, because its type changed."""


class Step(Enum):
    """The reaction to an event."""

    LEAVE = auto()
    """Nothing."""
    WAIT = auto()
    """Wait for an address: the state of the Service at that time counts."""
    ANNOUNCE = auto()
    """Announce it, if it has an address and endpoints."""
    WITHDRAW = auto()
    """Withdraw its addresses."""
    KEEP = auto()
    """Keep the announcement."""


class Announcer:
    """The announced Services, with the same missing withdrawals and announcements as in the real kube-vip."""

    def __init__(self) -> None:
        self.up: dict[str, Announced] = {}
        """Announcements by Service."""
        self.left_behind: list[tuple[str, Announced]] = []
        """Announcements of deleted Services that are never withdrawn."""
        self._silent: dict[str, bool] = {}
        """UIDs of withdrawn Services, and whether they have had an address since."""

    def addresses(self, counts: Callable[[Announced], bool]) -> dict[str, list[str]]:
        """Return the announced addresses, each with its Services."""
        found: dict[str, list[str]] = {}
        for key, one in (*self.up.items(), *self.left_behind):
            for address in one.addresses if counts(one) else ():
                found.setdefault(address, []).append(key)
        return found

    def delete(self, service: Document) -> Announced | None:
        """Handle the deletion of a Service; return the announcement to withdraw."""
        key = key_of(service)
        self._silent.pop(_uid(service), None)
        if self._is_another(service):
            return None
        if is_ignored(service) or not is_load_balancer(service):
            # kube-vip ignores both, so that the announcement is never withdrawn.
            if key in self.up:
                self.left_behind.append((key, self.up.pop(key)))
            return None
        return self.up.pop(key, None)

    def _is_another(self, service: Document) -> bool:
        """Return whether another Service of the name is announced: while kube-vip waits, it reads newer ones."""
        one = self.up.get(key_of(service))
        return one is not None and one.uid != _uid(service)

    def change(self, service: Document) -> Step:
        """Handle a change of a Service."""
        if is_ignored(service) or self._is_another(service):
            return Step.LEAVE
        one = self.up.get(key_of(service))
        if not is_load_balancer(service):
            if one is not None:
                one.forgotten = True
            return Step.LEAVE
        return Step.WAIT if lacks_address(service) else self.follow(service)

    def follow(self, service: Document) -> Step:
        """Handle a Service that has an address or an empty annotation."""
        if self._is_another(service):
            return Step.LEAVE
        one = self.up.get(key_of(service))
        if one is None:
            return Step.ANNOUNCE
        one.forgotten = False
        if must_withdraw(service, one.annotation, (one.wished, one.addresses)):
            self._silent[_uid(service)] = False
            return Step.WITHDRAW
        one.annotation = annotations_of(service).get(ADDRESS_ANNOTATION)
        return Step.KEEP

    def is_heard(self, service: Document) -> bool:
        """Handle the address of a Service that is not announced; return whether to announce it now.

        A withdrawn Service waits for a change of its endpoints.
        """
        uid = _uid(service)
        if uid not in self._silent:
            return True
        self._silent[uid] = bool(wanted_addresses(service))
        return False

    def change_endpoints(self, key: str, service: Document | None, *, has_endpoints: bool) -> Step:
        """Handle a change of a Service's endpoints; ``service`` is None if it does not exist."""
        if service is None or not self._silent.get(_uid(service), True):
            # kube-vip has not read the Service since, and finds no address.
            return Step.LEAVE
        self._silent.pop(_uid(service), None)
        if is_ignored(service):
            return Step.LEAVE
        if key not in self.up:
            return Step.ANNOUNCE
        return Step.LEAVE if has_endpoints else Step.WITHDRAW

    @staticmethod
    def wished(service: Document, *, has_endpoints: bool) -> tuple[str, ...]:
        """Return the addresses to announce for a Service; can be empty."""
        return wanted_addresses(service) if is_load_balancer(service) and has_endpoints else ()

    def announce(self, service: Document, addresses: tuple[str, ...]) -> Announced:
        """Record that a Service is announced with these addresses."""
        annotations = annotations_of(service)
        one = self.up[key_of(service)] = Announced(
            wanted_addresses(service),
            addresses,
            annotations.get(ADDRESS_ANNOTATION),
            _uid(service),
        )
        return one


def _uid(service: Document) -> str:
    return str(service["metadata"].get("uid", ""))
