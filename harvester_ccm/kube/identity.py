"""Identity of the guest cluster: the UID of its namespace ``kube-system``.

A replaced kubeconfig, a DNS name or a load balancer in front of the API servers can lead to another cluster, in which
none of the Services and Nodes exist. Their absence there must not look like a deletion. The UID is read once at the
start and again before each deletion that no finalizer requested.
"""

from __future__ import annotations

from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from harvester_ccm.errors import CCMError, ClusterReplaced, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.workqueue import pause_after
from harvester_ccm.model.core import NAMESPACES

IDENTITY_NAMESPACE: Final = "kube-system"

log = structlog.get_logger(__name__)


class GuestIdentity:
    """UID of the guest cluster of this process."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.uid = ""
        """Empty until ``learn`` returned, and if reading the namespace is forbidden."""

    async def learn(self) -> str:
        """Read the UID, retrying until the API server responds; empty if reading the namespace is forbidden."""
        async for attempt in AsyncRetrying(retry=retry_if_exception_type(CCMError), wait=_pause):
            with attempt:
                try:
                    self.uid = await self._read()
                except Forbidden:
                    log.warning(
                        "kube-system namespace not readable",
                        effect="load balancers get no owner annotation, orphaned ones are not deleted",
                        remedy="grant get on namespaces kube-system to the service account and restart",
                    )
                except CCMError as error:
                    if attempt.retry_state.attempt_number == 1:
                        log.warning("kube-system namespace not read", error=str(error))
                    raise
        return self.uid

    async def confirm(self) -> None:
        """Raise ClusterReplaced if the API server belongs to another cluster now, or the error of the request.

        If the UID could not be read at the start, only the preconditions of a deletion protect another cluster.
        """
        if not self.uid:
            return
        uid = await self._read()
        if uid != self.uid:
            raise ClusterReplaced(
                f"namespace {IDENTITY_NAMESPACE} had UID {self.uid} and has {uid} now: the credential or the address "
                "of the API server leads to another cluster"
            )

    async def _read(self) -> str:
        return (await self.client.get(NAMESPACES, IDENTITY_NAMESPACE)).metadata.uid


def _pause(attempts: RetryCallState) -> float:
    """Return the seconds until the next attempt."""
    error = attempts.outcome.exception() if attempts.outcome is not None else None
    return pause_after(error, attempts.attempt_number)
