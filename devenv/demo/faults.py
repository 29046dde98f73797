"""Faults of ``make dev``. Each breaks one thing, creates an object that is affected by it, and can be fixed again."""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

import yaml

from devenv.demo.scenario import PORT, SECONDS, Scenario
from devenv.guestnodes import name_of
from devenv.stage import until
from harvester_ccm.names import IP_POOL, NETWORK, Reason

RELOADED: Final = "credentials reloaded"
"""Log message of the controller after it has read a changed file."""
NEWCOMER: Final = 4
"""Number of the node that joins without a guest agent."""
EXPIRED: Final = 1_700_000_000
"""End of the expired token, in seconds since 1970."""


class Faults:
    """Breaks one thing at a time."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._stage = scenario.stage
        self._fixes = AsyncExitStack()

    async def fix(self) -> None:
        """End the current fault, if there is one."""
        fixes, self._fixes = self._fixes, AsyncExitStack()
        await fixes.aclose()

    async def cause(self, name: str) -> str:
        """Break something, after the current fault has ended; return what is affected, as ``explain`` takes it.

        Returns once the controller has reported the fault. Raises KeyError for a name that is not in ``FAULTS``.
        """
        fault = FAULTS[name]
        await self.fix()
        return await fault.cause(self)

    async def no_pool(self) -> str:
        """Create a Service with an IP pool that does not exist."""
        return await self._affect("shop", Reason.NO_MATCHING_POOL, {IP_POOL: "dmz"})

    async def wrong_network(self) -> str:
        """Create a Service with a network that no node is in."""
        return await self._affect("wiki", Reason.NETWORK_DEVICE_UNKNOWN, {NETWORK: "default/vlan7"})

    async def webhook_away(self) -> str:
        """Stop Harvester's webhook, which stays registered."""
        webhook = self._stage.harvester.webhook
        assert webhook is not None
        await webhook.stop()
        return await self._affect("blog", Reason.HARVESTER_UNAVAILABLE, fix=webhook.start)

    async def expired_token(self) -> str:
        """Put a token that ended long ago into the cloud-config."""
        file = self._stage.scene.cloud_config
        text, before = file.read_text(), self._scenario.run.log.count(RELOADED)

        async def is_reloaded() -> bool:
            return self._scenario.run.log.count(RELOADED) > before

        async def renew() -> None:
            if file.read_text() == expired:
                file.write_text(text)

        expired = expire_token(text)
        file.write_text(expired)
        await until(is_reloaded, within=SECONDS, what="the program to read the changed cloud-config")
        return await self._affect("chat", Reason.HARVESTER_UNAVAILABLE, fix=renew)

    async def no_agent(self) -> str:
        """Let a node join whose VM has no guest agent."""
        await self._scenario.guest.join(NEWCOMER, agent=False)
        self._fixes.push_async_callback(self._scenario.guest.leave, NEWCOMER)
        return f"node/{name_of(NEWCOMER)}"

    async def _affect(
        self,
        name: str,
        reason: Reason,
        annotations: Mapping[str, str] | None = None,
        *,
        fix: Callable[[], Awaitable[None]] | None = None,
    ) -> str:
        """Create a Service that gets no address; return it once it has the Event. It is deleted after ``fix``."""

        async def delete() -> None:
            if fix is not None:
                await fix()
            await self._stage.delete_service(name)
            await self._stage.gone(name, within=SECONDS)

        self._fixes.push_async_callback(delete)
        await self._stage.create_service(name, ports=[{"name": "http", "port": PORT}], annotations=annotations)
        await self._stage.hears(name, reason, within=SECONDS)
        return f"svc/{name}"


class Fault(NamedTuple):
    """One thing that can be broken."""

    meaning: str
    cause: Callable[[Faults], Awaitable[str]]


FAULTS: Final[Mapping[str, Fault]] = {
    "no-pool": Fault("a Service requests an IP pool that does not exist", Faults.no_pool),
    "wrong-network": Fault("a Service requests a network that no node is in", Faults.wrong_network),
    "webhook-away": Fault("Harvester's admission webhook does not answer", Faults.webhook_away),
    "expired-token": Fault("the token in the cloud-config has expired", Faults.expired_token),
    "no-agent": Fault("a node joins whose VM has no guest agent", Faults.no_agent),
}


def expire_token(kubeconfig: str) -> str:
    """Return a kubeconfig whose token ended long ago. Its signature is void, which the server does not report."""
    document = yaml.safe_load(kubeconfig)
    user = document["users"][0]["user"]
    head, claims, signature = user["token"].split(".")
    content = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    written = json.dumps({**content, "exp": EXPIRED}).encode()
    user["token"] = ".".join((head, base64.urlsafe_b64encode(written).decode().rstrip("="), signature))
    return yaml.safe_dump(document, sort_keys=False)
