"""Harvester's API server in memory with the emulated webhook, and scenarios played on it."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from devenv.background import Background
from devenv.harvester import HarvesterEmulator
from devenv.harvester.admission import Refusal
from devenv.harvester.emulator import Substitutes
from devenv.harvester.pools import Pick
from devenv.harvester.probes import Check
from devenv.harvester.records import LOAD_BALANCERS, NAMESPACES, POOLS
from devenv.harvester.versions import NEWEST, version
from devenv.harvester.webhook import MUTATOR, VALIDATOR, Rules
from devenv.harvesterplayer import Surroundings, play, write
from devenv.harvesterscenarios import HOST_LEASES, Scenario
from devenv.harvestertimes import measure
from devenv.player import NAMESPACE
from devenv.watch import Document
from harvester_ccm.kube.errors import Conflict, KubeError
from tests.support.memory_server import MemoryClient, MemoryServer, Place, Watch, Where, name_of, refused

LAG_SECONDS = 0.003
"""Until a change is in a cache."""


class HarvesterServer(MemoryServer):
    """Asks the webhook about load balancers and pools, as the API server does."""

    def __init__(self) -> None:
        super().__init__(uids="harvester")
        self.watch_lag = _lag
        self.put(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.rules: Rules | None = None
        """Absent while there is no webhook."""
        self.webhook_answers = True
        self._sets_timestamp = False

    def create(self, collection: Where, body: Document) -> Document:
        """Store a new object. Raises AlreadyExists, and the answers to rejections of the webhook."""
        if not self._is_judged(collection):
            return super().create(collection, body)
        changed = self._admitted(collection, body, None)
        return super().create(collection, changed)

    def _created(self, place: Place, body: Document, *, dry_run: bool) -> Document:
        document = super()._created(place, body, dry_run=dry_run)
        if not dry_run or not self._is_judged(place.collection):
            return document
        return self._admitted(place.collection, document, None)

    def delete(self, collection: Where, key: str, preconditions: Mapping[str, str] | None = None) -> None:
        """Delete an object. Raises the same."""
        if self._is_judged(collection) and name_of(collection) == name_of(POOLS):
            self._validate(collection, None, self.get(collection, key))
        # The API server sets the deletion timestamp without asking the webhook.
        self._sets_timestamp = True
        try:
            super().delete(collection, key, preconditions)
        finally:
            self._sets_timestamp = False

    def _settled(self, collection: Where, key: str, document: Document) -> Document:
        if self._is_judged(collection) and not self._sets_timestamp:
            document = self._admitted(collection, document, self.get(collection, key))
            if document == self.get(collection, key):
                return document
        return super()._settled(collection, key, document)

    def replace(self, collection: Where, key: str, body: Document) -> Document:
        """Replace an object. Raises NotFound, and Conflict with the words of an API server."""
        try:
            return super().replace(collection, key, body)
        except Conflict:
            prefix, _, plural = name_of(collection).rpartition("/")
            kind = f"{plural}.{prefix.partition('/')[0]}" if "/" in prefix else plural
            what = f'{kind} "{key.rpartition("/")[2]}"'
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise refused(409, "Conflict", f"Operation cannot be fulfilled on {what}: {why}") from None

    def _is_judged(self, collection: Where) -> bool:
        return self.rules is not None and name_of(collection) in {name_of(LOAD_BALANCERS), name_of(POOLS)}

    def _admitted(self, collection: Where, new: Document, old: Document | None) -> Document:
        """Return the object as the webhook changes it."""
        assert self.rules is not None
        if self.webhook_answers:
            try:
                new = self.rules.mutate(_plural(collection), new, old)
            except Refusal as refusal:
                raise _rejected(MUTATOR, refusal) from refusal
        self._validate(collection, new, old)
        return new

    def _validate(self, collection: Where, new: Document | None, old: Document | None) -> None:
        assert self.rules is not None
        if not self.webhook_answers:
            text = f'failed calling webhook "{VALIDATOR}": failed to call webhook'
            raise refused(500, "InternalError", f"Internal error occurred: {text}")
        try:
            self.rules.validate(_plural(collection), new, old)
        except Refusal as refusal:
            raise _rejected(VALIDATOR, refusal) from refusal


def _lag(_watch: Watch) -> float:
    return LAG_SECONDS


def _plural(collection: Where) -> str:
    return name_of(collection).rpartition("/")[2]


def _rejected(webhook: str, refusal: Refusal) -> KubeError:
    text = f'admission webhook "{webhook}" denied the request: Internal error occurred: {refusal}'
    return refused(500, "InternalError", text)


@asynccontextmanager
async def webhook_of(server: HarvesterServer, number: str = NEWEST) -> AsyncIterator[None]:
    rules = Rules(MemoryClient(server, cluster="harvester", name="webhook"), version(number))
    background = Background("webhook", [mirror.run for mirror in rules.mirrors])
    await background.start([mirror.wait_synced for mirror in rules.mirrors], within=60)
    server.rules = rules
    try:
        yield
    finally:
        await background.stop()


async def play_on_emulator(
    scenario: Scenario, pick: Pick = random.choice, number: str = NEWEST
) -> list[dict[str, Any]]:
    """Play a scenario on the emulator of this version of Harvester in memory, and return its steps."""
    server, open_ports = HarvesterServer(), set[tuple[str, int]]()
    client = MemoryClient(server, cluster="harvester", name="player")

    async def connects(address: str, check: Check) -> bool:
        return (address, check.port) in open_ports

    def let_backend_answer(address: str, port: int, answers: bool) -> None:
        (open_ports.add if answers else open_ports.discard)((address, port))

    emulator = _emulator(server, Substitutes(pick, connects), number)
    async with webhook_of(server, number), emulator, AsyncExitStack() as away:

        async def switch(what: str, is_on: bool) -> None:
            if what == "webhook":
                server.webhook_answers = is_on
            elif is_on:
                await away.aclose()
            else:
                await away.enter_async_context(emulator.stopped())

        return await play(scenario, Surroundings(client, switch, let_backend_answer))


def _emulator(server: HarvesterServer, substitutes: Substitutes, number: str) -> HarvesterEmulator:
    return HarvesterEmulator(
        MemoryClient(server, cluster="harvester", name="emulator"),
        webhook=False,
        dhcp_range=HOST_LEASES,
        collection_seconds=0.3,
        substitutes=substitutes,
        version=number,
    )


async def measure_emulator(number: str) -> Mapping[str, float]:
    """Return the times of the emulator of this version of Harvester in memory."""
    server = HarvesterServer()

    async def connects(_address: str, _check: Check) -> bool:
        return False

    async with webhook_of(server, number), _emulator(server, Substitutes(min, connects), number):
        return await measure(MemoryClient(server, cluster="harvester", name="player"), write)
