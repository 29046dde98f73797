"""Collections seen as they change, with the time of what the benchmarks measure.

Times are the event loop's and are taken when the watch delivers the change: what any other client would see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Generic

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer, Selection
from harvester_ccm.model.core import SERVICES, Service
from harvester_ccm.model.meta import ObjectT, Resource

LOOK_SECONDS: Final = 0.5
"""Longest time between two looks while nothing changes."""


class Follower(Generic[ObjectT]):
    """A live copy of one collection, on which conditions can be awaited. ``run`` must be running."""

    def __init__(
        self, client: ApiClient, resource: Resource[ObjectT], namespace: str, *, check: Callable[[], None]
    ) -> None:
        """``check`` is called while something is awaited and raises when waiting has become pointless."""
        self._check = check
        self.informer = Informer(client, resource, Selection(namespace))
        self.informer.on_change(self._wake)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        await self.informer.run()

    async def until(self, condition: Callable[[], bool], *, within: float, what: str) -> None:
        """Return once the condition holds; raise TimeoutError that says ``what`` was waited for."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self._check()
                    self._changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not within {within:g} s: {what}") from None

    def all(self) -> tuple[ObjectT, ...]:
        """Return the objects as last seen."""
        return self.informer.all()

    def _wake(self, _old: ObjectT | None, _new: ObjectT | None) -> None:
        self._changed.set()


class ServiceFollower(Follower[Service]):
    """The Services of one namespace, and when each got its address."""

    def __init__(self, client: ApiClient, namespace: str, *, check: Callable[[], None]) -> None:
        super().__init__(client, SERVICES, namespace, check=check)
        self.served_at: dict[str, float] = {}
        """Loop time since when the status of a Service, by name, has held an address."""
        self.informer.on_change(self._note_time)

    async def all_served(self, names: Iterable[str], *, within: float) -> float:
        """Return the loop time at which the last of the Services got its address. Raises TimeoutError."""
        chosen = set(names)
        await self.until(
            lambda: chosen <= self.served_at.keys(),
            within=within,
            what=f"an address for each of {len(chosen)} Services",
        )
        return max(self.served_at[name] for name in chosen)

    def addresses(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the addresses in the status of each of the Services that exist."""
        chosen = set(names)
        return {one.metadata.name: one.addresses for one in self.all() if one.metadata.name in chosen}

    def _note_time(self, old: Service | None, new: Service | None) -> None:
        if new is not None and new.addresses:
            self.served_at.setdefault(new.metadata.name, asyncio.get_running_loop().time())
        elif old is not None:
            self.served_at.pop(old.metadata.name, None)
