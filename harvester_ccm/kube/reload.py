"""Reload of credentials whose files changed.

Changed files must lead to the same server and namespace. The contents of the kubeconfigs, and of the certificates and
keys that they name, are compared, because the kubelet republishes a service account's volume every hour with the same
certificates. If the new files are not usable, the current credentials stay in use. Requests in flight fail as transient
and are retried.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.connection import read_all
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.errors import ClusterReplaced, CredentialError

INTERVAL: Final = 2.0
"""Interval in seconds between two checks of the files."""

log = structlog.get_logger(__name__)


def warn_if_insecure(credentials: Credentials, cluster: str) -> None:
    """Log a warning if the connection to a cluster is not encrypted or the server is not verified."""
    if credentials.weakness:
        log.warning(
            "connection is not secure",
            cluster=cluster,
            server=credentials.server,
            reason=credentials.weakness,
            effect="anybody on the network between can read the token and change the objects that are read",
            fix="use https:// and certificate-authority-data in the kubeconfig",
        )


class CredentialReloader:
    """Reloads a client's credentials when their files change."""

    def __init__(self, client: ApiClient, load: Callable[[], Credentials]) -> None:
        """``load`` reads the files."""
        self._client = client
        self._load = load
        self.cluster = client.cluster
        """Name of the API server, as its client has it."""
        self.problem = ""
        """Error in the current files; empty if they are usable."""
        self.on_check: Callable[[], None] = lambda: None
        """Called after each check, for the Event."""

    async def run(self) -> None:
        """Check the files until cancelled. Raises ClusterReplaced."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check()
            self.on_check()

    async def check(self) -> None:
        """Load the files if their contents changed. Raises ClusterReplaced."""
        current = self._client.credentials
        last_problem = self.problem
        if read_all(current.files) == current.files:
            if last_problem:
                self.problem = ""
                log.info("credential files restored", cluster=self.cluster)
            return
        try:
            credentials = await asyncio.to_thread(self._load)
        except Exception as error:
            # No content of a file may end the process.
            is_known = isinstance(error, CredentialError)
            self.problem = str(error) if is_known else f"{current.origin}: {type(error).__name__}"
            if self.problem != last_problem:
                log.warning("credentials not reloaded", cluster=self.cluster, error=self.problem)
            return
        self.problem = ""
        before = _destination_of(current)
        after = _destination_of(credentials)
        if before != after:
            # The caches hold the objects of one server and namespace: elsewhere, all would seem to be deleted.
            raise ClusterReplaced(f"{credentials.origin} changed from {before} to {after}: restore it if it is wrong")
        await self._client.use(credentials)
        log.info("credentials reloaded", cluster=self.cluster, server=credentials.server)
        warn_if_insecure(credentials, self.cluster)


def _destination_of(credentials: Credentials) -> str:
    return f"{credentials.server} namespace {credentials.namespace or 'default'}"
