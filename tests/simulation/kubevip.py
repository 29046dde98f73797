"""kube-vip of a guest cluster as a step machine: events in, announcements and writes out, one after the other."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Final

from devenv.announcement import (
    ADDRESS_ANNOTATION,
    HOST_ANNOTATION,
    SERVICE_NAME_LABEL,
    has_endpoints,
    ingress_of,
    is_ignored,
    is_load_balancer,
    lacks_address,
    must_withdraw,
    wanted_addresses,
)
from devenv.watch import annotations_of, key_of, labels_of
from harvester_ccm.errors import CCMError
from harvester_ccm.model.core import ENDPOINT_SLICES, SERVICES
from tests.simulation.loop import SeededLoop
from tests.worlds.memory_server import Document, MemoryServer, name_of

LAG: Final = (0.005, 0.3)
"""Shortest and longest time in seconds until a change is seen."""
WRITE_SECONDS: Final = (0.01, 0.1)
ADDRESS_PATIENCE: Final = 30.0
"""Seconds for which a Service without any address holds up all others."""
LOOK_SECONDS: Final = 1.0


@dataclass
class Announced:
    """A Service that is announced."""

    wished: tuple[str, ...]
    addresses: tuple[str, ...]
    annotation: str | None
    forgotten: bool = False
    """Whether kube-vip does not look at it any more, because it is of another type by now."""


class KubeVip:
    """What is announced in one guest cluster."""

    def __init__(self, server: MemoryServer, loop: SeededLoop, seed: str) -> None:
        self._server = server
        self._loop = loop
        self._dice = random.Random(f"{seed} kube-vip")
        self._told_until = 0.0
        self._under_way: deque[tuple[str, str, Document]] = deque()
        self._cache: dict[str, Document] = {}
        self._slices: dict[str, Document] = {}
        self._events: deque[tuple[str, str, Document]] = deque()
        self._silent: dict[str, bool] = {}
        """Services that were withdrawn, and whether an address has been seen on them since."""
        self._holding_up: tuple[str, float] | None = None
        """The Service without any address that all others wait for, and until when."""
        self.up: dict[str, Announced] = {}
        """What is announced, by Service."""
        self.left_behind: list[tuple[str, Announced]] = []
        """What stays up for Services that are gone."""
        self.changes: list[str] = []
        """Everything that went up or down, for people."""
        server.on_change.append(self._changed)

    def announced(self) -> dict[str, list[str]]:
        """Return the addresses that are up and that kube-vip minds, and the Services that they are up for."""
        found: dict[str, list[str]] = {}
        for key, one in self.up.items():
            for address in () if one.forgotten else one.addresses:
                found.setdefault(address, []).append(key)
        return found

    def _changed(self, collection: str, kind: str, document: Document) -> None:
        if collection in {name_of(SERVICES), name_of(ENDPOINT_SLICES)}:
            self._told_until = max(self._told_until, self._loop.time() + self._dice.uniform(*LAG))
            self._under_way.append((collection, kind, document))
            self._loop.call_at(self._told_until, self._see)

    def _see(self) -> None:
        collection, kind, document = self._under_way.popleft()
        cache = self._cache if collection == name_of(SERVICES) else self._slices
        if kind == "DELETED":
            cache.pop(key_of(document), None)
        else:
            cache[key_of(document)] = document
        self._events.append((collection, kind, document))
        self._handle_all()

    def _handle_all(self) -> None:
        while self._events and not self._is_held_up():
            collection, kind, document = self._events.popleft()
            if collection == name_of(ENDPOINT_SLICES):
                self._on_endpoints(f"{document['metadata']['namespace']}/{labels_of(document)[SERVICE_NAME_LABEL]}")
            elif kind == "DELETED":
                self._on_deleted(document)
            else:
                self._on_changed(document)

    def _is_held_up(self) -> bool:
        """Return whether a Service without an address still holds up all others; go on with it when it does not."""
        if self._holding_up is None:
            return False
        key, until = self._holding_up
        service = self._cache.get(key)
        if service is not None and lacks_address(service) and self._loop.time() < until:
            return True
        self._holding_up = None
        if service is not None:
            self._announce(service)
        return self._holding_up is not None

    def _on_deleted(self, service: Document) -> None:
        key = key_of(service)
        self._silent.pop(key, None)
        if is_ignored(service) or not is_load_balancer(service):
            # Neither is looked at any more: what is up for it stays up for ever.
            if key in self.up:
                self.left_behind.append((key, self.up.pop(key)))
            return
        self._withdraw(key)

    def _on_changed(self, service: Document) -> None:
        if is_ignored(service):
            return
        key = key_of(service)
        one = self.up.get(key)
        if one is not None:
            one.forgotten = not is_load_balancer(service)
        if not is_load_balancer(service):
            return
        if one is None:
            if key in self._silent:
                self._silent[key] = bool(wanted_addresses(service))
            elif lacks_address(service):
                self._holding_up = key, self._loop.time() + ADDRESS_PATIENCE
                self._loop.call_later(ADDRESS_PATIENCE, self._handle_all)
            else:
                self._announce(service)
        elif must_withdraw(service, one.annotation, (one.wished, one.addresses)):
            self._withdraw(key)
            self._silent[key] = False
        else:
            one.annotation = annotations_of(service).get(ADDRESS_ANNOTATION)

    def _on_endpoints(self, key: str) -> None:
        if not self._silent.get(key, True):
            return
        self._silent.pop(key, None)
        service = self._cache.get(key)
        if service is None or is_ignored(service):
            return
        if key not in self.up:
            self._announce(service)
        elif not has_endpoints(service, self._slices.values()):
            self._withdraw(key)

    def _announce(self, service: Document) -> None:
        key, wished = key_of(service), wanted_addresses(service)
        if key in self.up and not self.up[key].forgotten:
            return
        if not wished or not is_load_balancer(service) or not has_endpoints(service, self._slices.values()):
            return
        self.up[key] = Announced(wished, wished, annotations_of(service).get(ADDRESS_ANNOTATION))
        self.changes.append(f"{self._loop.time():9.3f} kube-vip announces {', '.join(wished)} for {key}")
        self._loop.call_later(self._dice.uniform(*WRITE_SECONDS), self._write, key, wished)

    def _withdraw(self, key: str) -> None:
        one = self.up.pop(key, None)
        if one is not None:
            self.changes.append(f"{self._loop.time():9.3f} kube-vip withdraws {', '.join(one.addresses)} of {key}")

    def _write(self, key: str, addresses: tuple[str, ...]) -> None:
        """Note the node, and write the status, each unless it is there."""
        service = self._server.of(SERVICES).get(key)
        if service is None or key not in self.up:
            return
        try:
            if HOST_ANNOTATION not in annotations_of(service):
                self._server.change(SERVICES, key, {"metadata": {"annotations": {HOST_ANNOTATION: "node-1"}}})
            ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
            present = [{name: value for name, value in entry.items() if name != "ipMode"} for entry in ingress]
            wanted = ingress_of(service, addresses)
            if present != wanted and is_load_balancer(service):
                self._server.change(SERVICES, key, {"status": {"loadBalancer": {"ingress": wanted}}})
        except CCMError:
            return
