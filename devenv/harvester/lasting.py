"""A webhook that stays while emulators of one API server come and go.

To register it, to wait until the API server follows, and to take it back again is half of what an emulator costs that
does nothing else. It has a thread with an event loop of its own, so that it answers whatever its users are waiting for.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from devenv.background import Background
from devenv.harvester.webhook import Webhook
from devenv.watch import Document, Mirror, key_of
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_kubeconfig

START_SECONDS: Final = 60.0
END_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.01

T = TypeVar("T")


class LastingWebhook:
    """To an emulator it is a ``Webhook`` that is registered with it. Use as a context manager, around all emulators.

    While no emulator has it, it lets everything pass.
    """

    def __init__(self, kubeconfig: Path) -> None:
        """``kubeconfig``: of an administrator of the API server."""
        self._kubeconfig = kubeconfig
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._thread = threading.Thread(target=self._loop.run_forever, name="webhook", daemon=True)
        self._client: ApiClient
        self._webhook: Webhook
        self._background: Background

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        finally:
            self._end_thread()

    async def __aenter__(self) -> Self:
        await self._there(self._wake())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._there(self._fall_asleep())

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """What its user has to run: nothing."""
        return ()

    @property
    def machines(self) -> Mirror:
        """The VMs that it knows."""
        return self._webhook.machines

    @property
    def pools(self) -> Mirror:
        """The pools that it knows."""
        return self._webhook.pools

    @property
    def networks(self) -> Mirror:
        """The networks that it knows."""
        return self._webhook.networks

    async def start(self) -> None:
        """Listen again after ``stop``."""
        await self._there(self._webhook.start())

    async def stop(self) -> None:
        """Stop listening and stay registered: from now on validation fails and mutation is skipped."""
        await self._there(self._webhook.stop())

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of work in the other event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _open(self) -> None:
        self._client = ApiClient(load_kubeconfig(self._kubeconfig), cluster="webhook")
        self._webhook = Webhook(self._client)
        mirrors = self._webhook.mirrors
        self._background = Background("webhook", [mirror.run for mirror in mirrors])
        await self._background.start([mirror.wait_synced for mirror in mirrors], within=START_SECONDS)
        await self._webhook.__aenter__()
        self._webhook.asleep = True

    async def _close(self) -> None:
        try:
            await self._webhook.__aexit__(None, None, None)
        finally:
            try:
                await self._background.stop()
            finally:
                await self._client.close()
        # A TLS connection stays open until its peer has closed it, too. The event loop itself has one socket.
        async with asyncio.timeout(END_SECONDS):
            while len(self._selector.get_map()) > 1:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(POLL_SECONDS)

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _wake(self) -> None:
        """Have the rules hold again, once what is known is what is there: a webhook of one's own begins with that."""
        async with asyncio.timeout(START_SECONDS), asyncio.TaskGroup() as group:
            for mirror in self._webhook.mirrors:
                group.create_task(_caught_up(mirror))
        self._webhook.asleep = False

    async def _fall_asleep(self) -> None:
        self._webhook.asleep = True
        if not self._webhook.listens:
            await self._webhook.start()


async def _caught_up(mirror: Mirror) -> None:
    """Return when the copy has every object as a list shows it, and no other."""
    while True:
        # A new list each time: what a list shows may be gone before the copy hears that it was there.
        there, _ = await mirror.listed()
        if _versions(there) == _versions(mirror.all()):
            return
        await asyncio.sleep(POLL_SECONDS)


def _versions(documents: Iterable[Document]) -> dict[str, str]:
    return {key_of(one): one["metadata"]["resourceVersion"] for one in documents}
