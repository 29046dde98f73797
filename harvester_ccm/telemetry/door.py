"""Who is let in to the HTTPS server: sockets are counted before anything is spent on them.

A TLS connection costs memory and a handshake from its first moment. So an accepted socket costs nothing but its
descriptor until it has said something, and of those that are silent, and of those that are shaking hands, only so many
are kept: when there are more, one is ended: the oldest of the caller that has most, so that a flood from elsewhere does
not touch the kubelet's probe. Whether it has said something is looked up then: under a flood the loop may not have come
to it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import structlog

from harvester_ccm.telemetry.certificate import ServingCertificate

SILENT: Final = 64
"""Accepted sockets that have not said anything yet."""
HANDSHAKES: Final = 32
"""Connections whose TLS handshake is going on."""
HANDSHAKE_SECONDS: Final = 5.0
"""For the first byte, and again for the handshake."""
GOODBYE_SECONDS: Final = 1.0
"""For the end of a TLS connection."""
FULL_SECONDS: Final = 1.0
"""Pause when the process has no descriptor left."""
BACKLOG: Final = 1024
"""Connections that wait in the kernel; under a flood a probe's would be among them."""
_AT_ONCE: Final = 64
"""So many sockets are accepted before anything else gets its turn."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Door:
    """Accepts connections from a listening socket and hands on those that have agreed on TLS."""

    def __init__(
        self, listener: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], certificate: ServingCertificate
    ) -> None:
        """``protocol`` makes what a connection is handed to."""
        listener.setblocking(False)
        self._listener = listener
        self._protocol = protocol
        self._certificate = certificate
        self._loop = asyncio.get_running_loop()
        self._silent: dict[socket.socket, str] = {}
        """Who has not said anything yet: sockets in the order of their arrival, with the caller's address."""
        self._patience: dict[socket.socket, asyncio.TimerHandle] = {}
        """When that has lasted too long."""
        self._shaking: dict[asyncio.Task[None], str] = {}
        """Handshakes in the order of their beginning, with the caller's address."""

    def open(self) -> None:
        """Begin to accept."""
        self._loop.add_reader(self._listener, self._accept)

    async def close(self) -> None:
        """Accept no more, and end all whom nobody serves yet."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for waiting in list(self._silent):
            self._drop(waiting)
        shaking = list(self._shaking)
        for task in shaking:
            task.cancel()
        if shaking:
            await asyncio.wait(shaking)
            # Their connections are closed by the loop, a moment later.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                log.warning("no connection can be accepted", error=str(error))
                self._loop.remove_reader(self._listener)
                self._loop.call_later(FULL_SECONDS, self._accept_again)
                return
            accepted.setblocking(False)
            self._wait_for_first_byte(accepted, address[0])

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self.open()

    def _wait_for_first_byte(self, accepted: socket.socket, caller: str) -> None:
        if len(self._silent) >= SILENT:
            oldest = _oldest_of_most(self._silent)
            self._hear(oldest)
            if oldest in self._silent:
                self._drop(oldest)
        self._silent[accepted] = caller
        self._patience[accepted] = self._loop.call_later(HANDSHAKE_SECONDS, self._drop, accepted)
        self._loop.add_reader(accepted, self._hear, accepted)

    def _forget(self, accepted: socket.socket) -> str:
        self._loop.remove_reader(accepted)
        self._patience.pop(accepted).cancel()
        return self._silent.pop(accepted)

    def _drop(self, accepted: socket.socket) -> None:
        self._forget(accepted)
        accepted.close()

    def _hear(self, accepted: socket.socket) -> None:
        """Begin a handshake with who has said something; for who has gone again there is none."""
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(accepted)
            return
        caller = self._forget(accepted)
        if len(self._shaking) >= HANDSHAKES:
            oldest = _oldest_of_most(self._shaking)
            del self._shaking[oldest]
            oldest.cancel()
        self._certificate.refresh()
        task = self._loop.create_task(self._shake_hands(accepted), name="handshake")
        self._shaking[task] = caller
        task.add_done_callback(lambda ended: self._end(ended, accepted))

    def _end(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        self._shaking.pop(task, None)
        if task.cancelled():
            # It may not even have begun.
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=self._certificate.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=GOODBYE_SECONDS,
            )
        except OSError as error:
            # A caller that speaks no TLS, or went away: neither is our trouble.
            log.debug("tls handshake failed", error=str(error))


def _oldest_of_most(waiting: Mapping[T, str]) -> T:
    """Return what has waited longest of the caller with most that waits."""
    counts = Counter(waiting.values())
    most = max(counts.values())
    return next(one for one, caller in waiting.items() if counts[caller] == most)
