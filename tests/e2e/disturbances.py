"""What may happen to the program at any moment: kills, broken connections, servers that refuse, lost answers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from devenv.ccm import CcmProcess
from devenv.faults import Answer, Delay, Drop, Fault, Lose
from devenv.proxy import FaultProxy
from devenv.stage import Stage
from tests.e2e.observing import SWEPT_SOON

FAULTS: tuple[Fault, ...] = (
    Answer(500, "etcdserver: request timed out", "InternalError"),
    Answer(503, "the server is currently unable to handle the request", "ServiceUnavailable"),
    Answer(429, "too many requests", "TooManyRequests", retry_after=1),
    Answer(409, "the object has been modified", "Conflict"),
    Delay(0.3),
    Drop(),
    Lose(),
)
METHODS = (None, "GET", "POST", "PUT", "PATCH", "DELETE")
LONGEST_FAULT = 0.8
LONGEST_PEACE = 0.6
MOST_REQUESTS = 10
"""So many requests are hit by a fault at most, after so many that pass."""


class Disturbances:
    """Disturbs the program until told to end; ``run`` is the process that is running then."""

    def __init__(self, stage: Stage, dice: random.Random) -> None:
        self._stage = stage
        self._dice = dice
        self.counts: Counter[str] = Counter()
        """How often each kind of disturbance happened."""
        self.run = self._start()
        self._ending = False

    def _start(self) -> CcmProcess:
        return self._stage.run(flags={"leader-elect": "false"}, proxied=True, times=SWEPT_SOON)

    async def go_on(self) -> None:
        """Disturb until ``end``; nothing is broken any more when this returns, and the program runs."""
        kinds = [self._restart, self._break_watches, self._stop_webhook, self._inject, self._inject, self._inject]
        try:
            while not self._ending:
                await self._dice.choice(kinds)()
                await asyncio.sleep(self._dice.uniform(0, LONGEST_PEACE))
        finally:
            for proxy in self._proxies:
                proxy.heal()

    def end(self) -> None:
        """Let the present disturbance be the last one."""
        self._ending = True

    @property
    def _proxies(self) -> tuple[FaultProxy, FaultProxy]:
        return (self._stage.guest_proxy, self._stage.harvester_proxy)

    async def _restart(self) -> None:
        self.counts["restart"] += 1
        if self._dice.random() < 0.7:
            self.run.kill()
        else:
            self.run.terminate(0)
            await self._stage.ended(self.run)
        self.run = self._start()
        await asyncio.sleep(self._dice.uniform(0.5, 2.0))

    async def _break_watches(self) -> None:
        proxy = self._dice.choice(self._proxies)
        action = self._dice.choice([proxy.cut_watches, proxy.expire_watches, proxy.end_watches])
        self.counts[action.__name__] += 1
        action()

    async def _stop_webhook(self) -> None:
        webhook = self._stage.harvester.webhook
        assert webhook is not None
        self.counts["webhook"] += 1
        await webhook.stop()
        try:
            await asyncio.sleep(self._dice.uniform(0, LONGEST_FAULT))
        finally:
            await webhook.start()

    async def _inject(self) -> None:
        proxy, fault = self._dice.choice(self._proxies), self._dice.choice(FAULTS)
        self.counts[type(fault).__name__] += 1
        rule = proxy.inject(
            fault,
            method=self._dice.choice(METHODS),
            path="services|loadbalancers",
            skip=self._dice.randint(0, MOST_REQUESTS),
            times=self._dice.randint(1, MOST_REQUESTS),
        )
        await asyncio.sleep(self._dice.uniform(0, LONGEST_FAULT))
        proxy.heal(rule)
