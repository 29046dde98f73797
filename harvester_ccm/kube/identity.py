"""Credentials in use: reload of changed files, and the cluster that they lead to.

A replaced kubeconfig, a DNS name or a load balancer in front of the API servers can lead to another cluster, in which
none of the Services and Nodes exist. Their absence there must not look like a deletion: the process ends.

* The identity of the guest cluster is the UID of its namespace ``kube-system``. It is read once at the start and again
  before each deletion that no finalizer requested.
* Changed files must lead to the same server and namespace. The contents of the kubeconfigs, and of the certificates
  and keys that they name, are compared, because the kubelet republishes a service account's volume every hour with the
  same certificates. If the new files are not usable, the current credentials stay in use. Requests in flight fail as
  transient and are retried.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from harvester_ccm.errors import CCMError, ClusterReplaced, CredentialError, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import read_all
from harvester_ccm.kube.workqueue import pause_after
from harvester_ccm.model.core import NAMESPACES

IDENTITY_NAMESPACE: Final = "kube-system"
INTERVAL: Final = 2.0
"""Interval in seconds between two checks of the files."""

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


class CredentialReloader:
    """Reloads a client's credentials when their files change."""

    def __init__(self, client: ApiClient, load: Callable[[], Credentials]) -> None:
        """``load`` reads the files."""
        self._client = client
        self._load = load
        self.problem = ""
        """Error in the current files; empty if they are usable."""

    async def run(self) -> None:
        """Check the files until cancelled. Raises ClusterReplaced."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Load the files if their contents changed. Raises ClusterReplaced."""
        current, last_problem = self._client.credentials, self.problem
        if read_all(current.files) == current.files:
            if last_problem:
                self.problem = ""
                log.info("credential files restored", cluster=self._client.cluster)
            return
        try:
            credentials = await asyncio.to_thread(self._load)
        except Exception as error:
            # No content of a file may end the process.
            unexpected = f"{current.origin}: {error.__class__.__name__}"
            self.problem = str(error) if isinstance(error, CredentialError) else unexpected
            if self.problem != last_problem:
                log.warning("credentials not reloaded", cluster=self._client.cluster, error=self.problem)
            return
        self.problem = ""
        before, after = (f"{one.server} namespace {one.namespace or 'default'}" for one in (current, credentials))
        if before != after:
            # The caches hold the objects of one server and namespace: elsewhere, all would seem to be deleted.
            raise ClusterReplaced(f"{credentials.origin} changed from {before} to {after}: restore it if it is wrong")
        await self._client.use(credentials)
        log.info("credentials reloaded", cluster=self._client.cluster, server=credentials.server)
