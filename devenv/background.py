"""Jobs that run next to a test or the demo until they are stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any

from aiohttp import web

Job = Callable[[], Coroutine[Any, Any, None]]


async def closed(server: asyncio.Server, http: web.Server) -> None:
    """Close a server and its connections, also those in their TLS handshake, within 2 s."""
    await end_listening(server)
    # Before Python 3.12, wait_closed waits for no connection.
    for _ in range(400):
        if not _has_connections(server):
            return
        abort_connections(http)
        await asyncio.sleep(0.005)


async def end_listening(server: asyncio.Server) -> None:
    """Close the listening sockets of a server, which has all connections that were accepted.

    asyncio accepts a connection in one iteration of the loop and creates its transport in the next. If the server is
    closed between the two, that fails and leaves the socket open.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    await asyncio.sleep(0)
    server.close()


def _has_connections(server: asyncio.Server) -> bool:
    """Return whether a server has connections, which asyncio shows to nobody. Python 3.13 keeps them in a set."""
    connections: Collection[object] | None = getattr(server, "_clients", None)
    if connections is not None:
        return len(connections) > 0
    active: int = server._active_count  # type: ignore[attr-defined]  # noqa: SLF001
    return active > 0


def abort_connections(http: web.Server) -> None:
    """Abort the connections of a server."""
    for connection in http.connections:
        if connection.transport is not None:
            connection.transport.abort()


class Background:
    """Several endless jobs in one task. An error in one ends all and is raised by ``stop``."""

    def __init__(self, name: str, jobs: Sequence[Job]) -> None:
        self._name = name
        self._jobs = tuple(jobs)
        self._task: asyncio.Task[None] | None = None

    async def start(self, ready: Sequence[Callable[[], Awaitable[object]]], *, within: float) -> None:
        """Start the jobs and return when everything in ``ready`` has returned.

        Raises TimeoutError after ``within`` seconds, or the error of a job that failed meanwhile.
        """
        self._task = asyncio.create_task(self._run(), name=self._name)
        waiting = asyncio.create_task(_all(ready), name=f"{self._name}-ready")
        try:
            await asyncio.wait({self._task, waiting}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_ready = waiting.done()
            waiting.cancel()
            await asyncio.wait({waiting})
            if self._task.done() or not is_ready:
                await self.stop()
        if not is_ready:
            raise TimeoutError(f"{self._name} is not ready after {within:g} s")
        waiting.result()

    async def stop(self) -> None:
        """Stop the jobs. Raises the error of one that failed."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(self._jobs):
                group.create_task(job(), name=f"{self._name}-{number}")


async def _all(ready: Sequence[Callable[[], Awaitable[object]]]) -> None:
    for wait in ready:
        await wait()
