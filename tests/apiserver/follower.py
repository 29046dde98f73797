"""An informer under test, and the changes that it delivered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import CONFIG_MAPS, ConfigMap
from tests.support.background import running
from tests.support.waiting import wait_for

Data = dict[str, str] | None


def data_of(item: ConfigMap | None) -> Data:
    return item.data if item is not None else None


def words(item: ConfigMap) -> list[str]:
    return list((item.data or {}).values())


class Follower:
    """An informer of the ConfigMaps of one namespace, and the changes that it delivered."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self.informer = Informer(client, CONFIG_MAPS, namespace=namespace, indexes={"word": words})
        self.changes: list[tuple[str, Data, Data]] = []
        """Name, data before and data after of every change."""
        self.states: list[str] = []
        """The problem, or ``synced``, at every change of state."""
        self.informer.on_change(self._changed)
        self.informer.on_state(self._state_changed)

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        item = new or old
        assert item is not None
        assert self.informer.get(item.metadata.key) == new
        self.changes.append((item.metadata.name, data_of(old), data_of(new)))

    def _state_changed(self) -> None:
        problem = self.informer.problem
        self.states.append(type(problem).__name__ if problem else "synced" if self.informer.synced else "")

    def get(self, name: str) -> ConfigMap | None:
        return self.informer.get(f"{self.namespace}/{name}")

    def named(self, word: str) -> list[str]:
        return [item.metadata.name for item in self.informer.by_index("word", word)]

    async def saw(self, *changes: tuple[str, Data, Data], seconds: float = 10) -> None:
        """Return when exactly these changes were delivered."""
        await wait_for(lambda: len(self.changes) >= len(changes), seconds, what=f"changes {changes}")
        assert self.changes == list(changes)

    async def shows(self, name: str, data: Data) -> None:
        await wait_for(lambda: data_of(self.get(name)) == data, what=f"{data} in {name}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Follower"]:
        """Run for the time of the block."""
        async with running(self.informer.run()):
            yield self

    @asynccontextmanager
    async def synced(self) -> AsyncIterator["Follower"]:
        """Run for the time of the block, which begins when the first list is in."""
        async with self.running():
            await wait_for(lambda: self.informer.synced)
            yield self
