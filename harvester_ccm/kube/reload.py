"""Reload of credentials whose files changed: the kubeconfigs, and the certificates and keys that they name.

Files can be rewritten in place or mounted from a volume, whose symbolic links the kubelet swaps. New credentials are
used only if the contents differ: the kubelet republishes a service account's volume every hour. If the new files are
not usable, the current credentials stay in use. Requests in flight fail as transient and are retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credential_files import fingerprint
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.identity import ClusterReplaced

INTERVAL: Final = 2.0
"""Interval in seconds between two checks of the files."""

log = structlog.get_logger(__name__)


def warn_of_weaknesses(client: ApiClient) -> None:
    """Log missing protections of a credential."""
    for weakness in client.credentials.weaknesses:
        log.warning("credential is not protected", cluster=client.cluster, detail=weakness)


class CredentialReloader:
    """Reloads a client's credentials when their files change."""

    def __init__(self, client: ApiClient, load: Callable[[], Credentials]) -> None:
        """``load`` reads the files."""
        self._client = client
        self._load = load
        self._seen = fingerprint(*client.credentials.files)
        self.problem = ""
        """Error in the current files; empty if they are usable."""

    async def run(self) -> None:
        """Check the files until cancelled. Raises ClusterReplaced."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Load the files if they changed or were unusable. Raises ClusterReplaced."""
        current, last_problem = self._client.credentials, self.problem
        # Computed before the files are read: the next check finds a later change.
        seen = fingerprint(*current.files)
        if seen == self._seen and not last_problem:
            return
        try:
            credentials = await asyncio.to_thread(self._load)
        except Exception as error:
            # No content of a file may end the process.
            unexpected = f"{current.origin}: {error.__class__.__name__}"
            self.problem = str(error) if isinstance(error, CredentialError) else unexpected
            if self.problem != last_problem:
                log.warning("changed credentials not usable, keeping the old ones", error=self.problem)
            return
        self._seen, self.problem = seen, ""
        before, after = (f"{one.server} namespace {one.namespace or 'default'}" for one in (current, credentials))
        if before != after:
            # The caches hold the objects of one server and namespace: elsewhere, all would seem to be deleted.
            raise ClusterReplaced(f"{credentials.origin}: changed from {before} to {after}")
        if credentials.files != current.files:
            await self._client.use(credentials)
            log.info("credentials reloaded", cluster=self._client.cluster, server=credentials.server)
            warn_of_weaknesses(self._client)
        elif last_problem:
            log.info("credentials are back as they were", cluster=self._client.cluster)
