"""One process of the controller: started, killed at any await, stopped, suspended, and restarted at its end."""

import asyncio
import signal
from collections.abc import Callable
from contextvars import copy_context
from typing import Final

from harvester_ccm.app import Application
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import Request
from harvester_ccm.kube.errors import WRITE_TIMEOUT, NoResponse, TimedOut, Unreachable
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.telemetry.metrics import Telemetry
from tests.simulation.loop import PROCESS, SeededLoop
from tests.support.builders import CLUSTER
from tests.support.memory_server import MemoryClient, MemoryServer

RESTART_SECONDS: Final = 2.0
"""After which the kubelet starts a process that has ended."""
PAGE_OBJECTS: Final = 2
"""Small pages: much happens between two of them."""


class _Client(MemoryClient):
    """The client of a process, which ends with it."""

    def __init__(self, server: MemoryServer, *, cluster: str, namespace: str, fence: WriteFence, name: str) -> None:
        super().__init__(
            server, cluster=cluster, namespace=namespace, fence=fence, name=name, page_objects=PAGE_OBJECTS
        )
        self.is_dead = False

    async def _exchange(self, request: Request, limit: float) -> bytes:
        if self.is_dead:
            raise Unreachable("this process is dead")
        try:
            async with asyncio.timeout(limit):
                return await super()._exchange(request, limit)
        except TimeoutError as error:
            kind = NoResponse if limit == WRITE_TIMEOUT else TimedOut
            raise kind(f"no answer within {limit:g} s ({request})") from error


class Process:
    """A Pod of the controller."""

    def __init__(
        self,
        name: str,
        loop: SeededLoop,
        guest: MemoryServer,
        harvester: MemoryServer,
        flags: tuple[str, ...],
        failed: Callable[[str], None],
    ) -> None:
        """``failed`` is called with an unexpected exception."""
        self.name = name
        self.guest = guest
        self._loop = loop
        self._harvester = harvester
        self.flags = flags
        self._failed = failed
        self._run = 0
        self._task: asyncio.Task[None] | None = None
        self._clients: list[_Client] = []
        self._starting: asyncio.TimerHandle | None = None
        self.resumed_at = float("-inf")
        """Loop time at which it last went on after a halt."""

    @property
    def running(self) -> str:
        """Name of the present run; empty while nothing runs."""
        return f"{self.name}.{self._run}" if self._task is not None else ""

    def start(self) -> None:
        """Start the controller unless it runs."""
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        if self._task is not None:
            return
        self._run += 1
        context = copy_context()
        name = f"{self.name}.{self._run}"
        context.run(PROCESS.set, name)
        self._task = self._loop.create_task(self._live(name), context=context)
        self._task.add_done_callback(self._ended, context=copy_context())

    def kill(self) -> None:
        """End it as SIGKILL does: what it has sent goes on, and nothing more is sent."""
        self.go_on()
        for client in self._clients:
            client.is_dead = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def stop(self) -> bool:
        """End it as SIGTERM does; return whether it ran."""
        handler = self._loop.signal_handlers.get((self.running, signal.SIGTERM))
        if handler is not None:
            handler()
        return handler is not None

    def halt(self) -> None:
        if self.running:
            self._loop.halt(self.running)

    @property
    def is_halted(self) -> bool:
        return self._loop.is_halted(self.running)

    def go_on(self) -> None:
        """End a suspension."""
        if self.running:
            self.resumed_at = self._loop.time()
            self._loop.go_on(self.running)

    async def _live(self, name: str) -> None:
        fence = WriteFence(shut=True)
        self._clients = [
            _Client(self.guest, cluster="guest", namespace="", fence=fence, name=name),
            _Client(self._harvester, cluster="harvester", namespace=CLUSTER.namespace, fence=fence, name=name),
        ]
        guest, harvester = self._clients
        settings = build_settings(parse_command_line(self.flags), {})
        application = Application(
            settings, guest, harvester, fence=fence, reloaders=(), telemetry=Telemetry("simulated")
        )
        await application.run()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(f"{self.name} ended with {error!r}")
        if task is self._task:
            for client in self._clients:
                client.is_dead = True
            self._task = None
            self._starting = self._loop.call_later(RESTART_SECONDS, self.start)
