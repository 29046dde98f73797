"""Who the cluster behind a client is: told by the UID of its kube-system namespace, and asked again when in doubt.

A kubeconfig that is replaced, a name in DNS or a load balancer in front of the API servers that leads elsewhere: all of
a sudden another cluster answers, in which none of our Services exist. That must not look like their deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.backoff import pause_after
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import NAMESPACES

IDENTITY_NAMESPACE: Final = "kube-system"
FORBIDDEN_PAUSE: Final = 60.0
"""Seconds until the namespace is asked for again where reading it is not granted."""

log = structlog.get_logger(__name__)


class ClusterReplaced(CCMError):
    """Raised when another cluster answers than the one that this process began with."""


class GuestIdentity:
    """The cluster that this process began with: its UID, and the client that may lead to another one."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self._doubted = asyncio.Event()
        self._answered = asyncio.Event()
        self._callbacks: list[Callable[[str], None]] = []
        self.uid = ""
        """Empty while it is not known."""

    def on_learned(self, callback: Callable[[str], None]) -> None:
        """Have ``callback`` called with the UID when it becomes known."""
        self._callbacks.append(callback)

    async def answered(self) -> str:
        """Return the UID when the cluster was asked for the first time; empty where it may not be read yet."""
        await self._answered.wait()
        return self.uid

    def doubt(self) -> None:
        """Have it asked again now."""
        self._doubted.set()

    async def confirm(self) -> None:
        """Ask once. Raises ClusterReplaced, and what the request raises."""
        uid = (await self.client.get(NAMESPACES, IDENTITY_NAMESPACE)).metadata.uid
        if not self.uid:
            self.uid = uid
            for callback in self._callbacks:
                callback(uid)
        elif uid != self.uid:
            self._doubted.set()
            raise ClusterReplaced(
                f"namespace {IDENTITY_NAMESPACE} had UID {self.uid} and has {uid} now: the credential or the address "
                "of the API server leads to another cluster"
            )

    async def run(self) -> None:
        """Ask until there is an answer, and again after each doubt, until cancelled. Raises ClusterReplaced."""
        failures = 0
        while True:
            self._doubted.clear()
            try:
                await self.confirm()
            except ClusterReplaced:
                raise
            except CCMError as error:
                failures += 1
                if failures == 1:
                    self._tell(error)
                if not isinstance(error, Forbidden):
                    await asyncio.sleep(pause_after(error, failures))
                    continue
                self._answered.set()
                await asyncio.sleep(FORBIDDEN_PAUSE)
            else:
                failures = 0
                self._answered.set()
                await self._doubted.wait()

    def _tell(self, error: CCMError) -> None:
        if isinstance(error, Forbidden):
            log.warning(
                "kube-system namespace not readable, load balancers carry no owner mark and orphans stay; "
                "grant get on namespaces kube-system to the service account"
            )
        else:
            log.warning("kube-system namespace not read", error=str(error), request_id=error.request_id)
