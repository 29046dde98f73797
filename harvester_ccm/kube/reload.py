"""Reload of credentials whose files changed: the kubeconfigs, and the certificates and keys that they name.

The contents are compared, because the kubelet republishes a service account's volume every hour with the same
certificates. If the new files are not usable, the current credentials stay in use. Requests in flight fail as transient
and are retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from harvester_ccm.errors import ClusterReplaced, CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import read_all

INTERVAL: Final = 2.0
"""Interval in seconds between two checks of the files."""

log = structlog.get_logger(__name__)


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
