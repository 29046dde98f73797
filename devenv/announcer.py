"""What kube-vip announces and what an event comes to, step by step, without a clock or a server.

Runners give it events and carry out what it says: ``devenv.kubevip`` on a real API server, the schedules in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from devenv.announcement import (
    ADDRESS_ANNOTATION,
    DEVICE_ANNOTATION,
    ELECTION_ANNOTATION,
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
    """Of the Service: kube-vip knows them by it, and not by their names."""
    device: str = ""
    """Device in the node; empty for the default one. It is read once."""
    forgotten: bool = False
    """Whether the Service is of another type by now, and so not looked at any more."""


class Step(Enum):
    """What an event comes to."""

    LEAVE = auto()
    """Nothing."""
    WAIT = auto()
    """It has no address: whatever is up for it, what counts is how it is when it has one."""
    ANNOUNCE = auto()
    """It is to be announced, if it has an address and endpoints."""
    WITHDRAW = auto()
    """Its addresses go down."""
    KEEP = auto()
    """It stays as it is announced."""


class Announcer:
    """The Services that are announced. It forgets to withdraw and fails to announce what the real one does."""

    def __init__(self) -> None:
        self.up: dict[str, Announced] = {}
        """What is announced, by Service."""
        self.left_behind: list[tuple[str, Announced]] = []
        """What stays up for Services that are gone."""
        self._silent: dict[str, bool] = {}
        """UIDs of Services that were withdrawn, and whether an address has been seen on them since."""

    def addresses(self, counts: Callable[[Announced], bool]) -> dict[str, list[str]]:
        """Return the addresses that are up, and the Services that they are up for."""
        found: dict[str, list[str]] = {}
        for key, one in (*self.up.items(), *self.left_behind):
            for address in one.addresses if counts(one) else ():
                found.setdefault(address, []).append(key)
        return found

    def delete(self, service: Document) -> Announced | None:
        """Take in that a Service is gone; return what goes down with it."""
        key = key_of(service)
        self._silent.pop(_uid(service), None)
        if self._is_another(service):
            return None
        if is_ignored(service) or not is_load_balancer(service):
            # Neither is looked at any more: what is up for it stays up for ever.
            if key in self.up:
                self.left_behind.append((key, self.up.pop(key)))
            return None
        return self.up.pop(key, None)

    def _is_another(self, service: Document) -> bool:
        """Return whether another Service of the name is announced: while it waits it looks ahead, by the name."""
        one = self.up.get(key_of(service))
        return one is not None and one.uid != _uid(service)

    def change(self, service: Document) -> Step:
        """Take in a change of a Service."""
        if is_ignored(service) or self._is_another(service):
            return Step.LEAVE
        one = self.up.get(key_of(service))
        if not is_load_balancer(service):
            if one is not None:
                one.forgotten = True
            return Step.LEAVE
        return Step.WAIT if lacks_address(service) else self.follow(service)

    def follow(self, service: Document) -> Step:
        """Take in a Service that has an address, or that is parked."""
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
        """Take note of the address of a Service that is not announced; return whether that is to be announced now.

        One that was withdrawn waits for a change of its endpoints.
        """
        uid = _uid(service)
        if uid not in self._silent:
            return True
        self._silent[uid] = bool(wanted_addresses(service))
        return False

    def change_endpoints(self, key: str, service: Document | None, *, has_endpoints: bool) -> Step:
        """Take in a change of a Service's endpoints; ``service`` is None for one that there is not."""
        if service is None or not self._silent.get(_uid(service), True):
            # It has not looked at the Service since, and finds nothing to announce.
            return Step.LEAVE
        self._silent.pop(_uid(service), None)
        if is_ignored(service):
            return Step.LEAVE
        if key not in self.up:
            return Step.ANNOUNCE
        return Step.LEAVE if has_endpoints else Step.WITHDRAW

    @staticmethod
    def wished(service: Document, *, has_endpoints: bool) -> tuple[str, ...]:
        """Return the addresses that a Service is to be announced with; empty when it is not to be."""
        elects = annotations_of(service).get(ELECTION_ANNOTATION) == "true"
        return wanted_addresses(service) if is_load_balancer(service) and not elects and has_endpoints else ()

    def announce(self, service: Document, addresses: tuple[str, ...]) -> Announced:
        """Take note that a Service is announced with these addresses."""
        annotations = annotations_of(service)
        one = self.up[key_of(service)] = Announced(
            wanted_addresses(service),
            addresses,
            annotations.get(ADDRESS_ANNOTATION),
            _uid(service),
            annotations.get(DEVICE_ANNOTATION, ""),
        )
        return one


def _uid(service: Document) -> str:
    return str(service["metadata"].get("uid", ""))
