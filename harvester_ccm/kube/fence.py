"""The fence that stops writes without the Lease."""

import asyncio
import errno
import math
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from harvester_ccm.kube.clock import loop_time


class NotLeading(Exception):
    """Raised instead of sending a write when it is not certain that this process holds the Lease.

    It is no error of an API server: whatever reports those, to users as well, does not see it.
    """


class WriteFence:
    """The only way for writes of the clients that share it: none is sent after the renew deadline of the Lease.

    The elector moves the deadline with each renewal. It is loop time: a process that was stopped (SIGSTOP) finds the
    fence shut before it learns that it lost the Lease. A write that was begun before waits for a token, a name server,
    a handshake and other tasks, and the process can be stopped at any of them. So the sockets of writes carry nothing
    else, and each asks the fence whenever it hands bytes to the kernel.

    An API server completes a request whose client disconnected. So a write continues in the background when its caller
    is cancelled, and ``answered`` returns when no write is in flight: only then can the Lease be released.
    """

    def __init__(self, *, shut: bool = False) -> None:
        """``shut`` until an elector sets a deadline; otherwise always open."""
        self.deadline = -math.inf if shut else math.inf
        """Loop time from which no write is sent."""
        self._in_flight: set[asyncio.Task[bytes]] = set()

    async def send(self, exchange: Callable[[], Coroutine[None, None, bytes]], name: str) -> bytes:
        """Make the exchange and return the body of the response. Raises NotLeading, and what the exchange raises."""
        self.check()
        task = asyncio.create_task(exchange(), name=name)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        # Retrieve the exception: the caller can be cancelled. From Python 3.14 on, shield would log it then.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((task,))
        return task.result()

    @property
    def is_shut(self) -> bool:
        """Whether nothing may be sent."""
        return loop_time() >= self.deadline

    def check(self) -> None:
        """Raise NotLeading if nothing may be sent."""
        if self.is_shut:
            raise NotLeading("not sent, because the Lease was not renewed in time and may be another's")

    def open_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for writes to a resolved address."""
        family, kind, protocol, *_ = address
        opened = _WriteSocket(family, kind, protocol)
        opened.fence = self
        return opened

    async def answered(self) -> None:
        """Return when no write is in flight."""
        while self._in_flight:
            await asyncio.wait(self._in_flight)


class _WriteSocket(socket.socket):
    """A socket that sends nothing while its fence is shut, so that its connection breaks."""

    fence: WriteFence

    def send(self, *arguments: Any) -> int:
        """Hand bytes to the kernel. Raises ConnectionAbortedError while the fence is shut."""
        self._check()
        return super().send(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        """Hand several pieces to the kernel, as ``send``."""
        self._check()
        return super().sendmsg(*arguments)

    def _check(self) -> None:
        if self.fence.is_shut:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the Lease was not renewed in time")
