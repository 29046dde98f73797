"""Faults that are prepared in the running scene, for who wants to find out what is wrong with nothing but the commands.

Each breaks one thing, sees to it that somebody suffers from it, and can be mended again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import yaml

from devenv.demo.household import Household
from devenv.demo.play import Play
from devenv.guestnodes import name_of
from devenv.stage import until
from harvester_ccm.names import IP_POOL, NETWORK, Reason

SECONDS: Final = 60.0
RELOADED: Final = "credentials reloaded"
"""What the program logs when it has taken over a changed file."""
NEWCOMER: Final = 4
"""Number of the node that joins without a guest agent."""
MISSING_POOL: Final = "dmz"
MISSING_NETWORK: Final = "default/vlan7"
EXPIRED: Final = 1_700_000_000
"""When the expired token ended, in seconds since 1970."""


class Faults:
    """Breaks one thing at a time."""

    def __init__(self, play: Play, household: Household) -> None:
        self._stage = play.stage
        self._run = play.run
        self._household = household
        self._mends = AsyncExitStack()

    async def mend(self) -> None:
        """Put right what is broken; nothing to do is fine."""
        mends, self._mends = self._mends, AsyncExitStack()
        await mends.aclose()

    async def cause(self, name: str) -> str:
        """Break something, after mending what was broken; return what suffers from it, as ``explain`` takes it.

        Returns once the program has met the fault. Raises KeyError for a name that is not in ``FAULTS``.
        """
        fault = FAULTS[name]
        await self.mend()
        return await fault.cause(self)

    async def no_pool(self) -> str:
        """Let a Service ask for an IP pool that does not exist."""
        return await self._suffer("shop", Reason.ADDRESS_PENDING, {IP_POOL: MISSING_POOL})

    async def wrong_network(self) -> str:
        """Let a Service ask for a network in which no node is."""
        return await self._suffer("wiki", Reason.NO_DEVICE, {NETWORK: MISSING_NETWORK})

    async def webhook_away(self) -> str:
        """Stop Harvester's webhook, which stays registered, and let a Service come."""
        webhook = self._stage.harvester.webhook
        assert webhook is not None
        await webhook.stop()
        return await self._suffer("blog", Reason.HARVESTER_UNAVAILABLE, mend=webhook.start)

    async def expired_token(self) -> str:
        """Put a token that ended long ago into the cloud-config, and let a Service come."""
        file = self._stage.scene.cloud_config
        text, before = file.read_text(), self._run.log.count(RELOADED)

        async def taken_over() -> bool:
            return self._run.log.count(RELOADED) > before

        async def renew() -> None:
            file.write_text(text)

        file.write_text(expire_token(text))
        await until(taken_over, within=SECONDS, what="the program to read the changed cloud-config")
        return await self._suffer("chat", Reason.HARVESTER_UNAVAILABLE, mend=renew)

    async def no_agent(self) -> str:
        """Let a node join in whose VM no guest agent runs."""
        await self._household.join(NEWCOMER, agent=False)
        self._mends.push_async_callback(self._household.leave, NEWCOMER)
        return f"node/{name_of(NEWCOMER)}"

    async def _suffer(
        self,
        name: str,
        reason: Reason,
        annotations: Mapping[str, str] | None = None,
        *,
        mend: Callable[[], Awaitable[None]] | None = None,
    ) -> str:
        """Create a Service that cannot be served and return it once it was told so; it can go after ``mend``."""

        async def forget() -> None:
            if mend is not None:
                await mend()
            await self._stage.delete_service(name)
            await self._stage.gone(name, within=SECONDS)

        self._mends.push_async_callback(forget)
        await self._stage.create_service(name, ports=[{"name": "http", "port": 18080}], annotations=annotations)
        await self._stage.hears(name, reason, within=SECONDS)
        return f"svc/{name}"


@dataclass(frozen=True)
class Fault:
    """One thing that can be broken."""

    meaning: str
    cause: Callable[[Faults], Awaitable[str]]


FAULTS: Final[Mapping[str, Fault]] = {
    "no-pool": Fault("a Service asks for an IP pool that does not exist", Faults.no_pool),
    "wrong-network": Fault("a Service asks for a network in which no node is", Faults.wrong_network),
    "webhook-away": Fault("Harvester's admission webhook does not answer", Faults.webhook_away),
    "expired-token": Fault("the token in the cloud-config has expired", Faults.expired_token),
    "no-agent": Fault("a node joins whose VM has no guest agent", Faults.no_agent),
}


def expire_token(kubeconfig: str) -> str:
    """Return a kubeconfig whose token says that it ended long ago. Its signature is void, which servers tell nobody."""
    document = yaml.safe_load(kubeconfig)
    user = document["users"][0]["user"]
    head, claims, signature = user["token"].split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    written = json.dumps({**content, "exp": EXPIRED}).encode()
    user["token"] = ".".join((head, base64.urlsafe_b64encode(written).decode().rstrip("="), signature))
    return yaml.safe_dump(document, sort_keys=False)
