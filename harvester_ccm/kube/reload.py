"""Credentials that change while we run: their files are looked at again and again, and what is new is taken over.

So are the certificate and key files that a kubeconfig names: rotating them leaves the kubeconfig itself as it is.
Works for files that are rewritten in place and for mounted volumes, where a symbolic link is swapped. That of a service
account is published anew for every token, each hour; where the bytes are those in use, nothing is taken over. A file
that cannot be used is told once, and the credentials in use stay. Watches end and come back with the new credentials;
requests that were under way fail as transient and are tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credential_files import contents, fingerprint
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.identity import ClusterReplaced

PERIOD: Final = 2.0
"""Seconds between two looks at the files."""

log = structlog.get_logger(__name__)


def warn_of_weaknesses(client: ApiClient) -> None:
    """Say what does not protect the credential."""
    for weakness in client.credentials.weaknesses:
        log.warning("credential is not protected", cluster=client.cluster, detail=weakness)


class CredentialReloader:
    """Keeps a client's credentials as their files have them."""

    def __init__(self, client: ApiClient, load: Callable[[], Credentials], *, fixed_namespace: bool = False) -> None:
        """``load`` reads the files anew; with ``fixed_namespace`` the namespace of the context must not change."""
        self._client = client
        self._load = load
        self._fixed_namespace = fixed_namespace
        files = client.credentials.files
        self._seen, self._contents = fingerprint(*files), contents(*files)
        self.problem: CredentialError | None = None
        """Why the files as they are now cannot be used; None while they can."""

    async def run(self) -> None:
        """Follow the files until cancelled. Raises ClusterReplaced."""
        while True:
            await asyncio.sleep(PERIOD)
            await self.look()

    async def look(self) -> None:
        """Take over what is in the files if it is other than what is in use."""
        files = self._client.credentials.files
        seen = fingerprint(*files)
        if seen == self._seen:
            # One that could not be read may be back as it was.
            self._end_problem()
            return
        found = await asyncio.to_thread(contents, *files)
        if found == self._contents:
            self._seen = seen
            self._end_problem()
            return
        try:
            credentials = await asyncio.to_thread(self._load)
            if credentials.files != files:
                # Looked at before they are read: a change in between is seen next time.
                found = await asyncio.to_thread(contents, *credentials.files)
                credentials = await asyncio.to_thread(self._load)
        except Exception as failure:
            # Whatever is in a file: those in use go on.
            unknown = f"{self._client.credentials.origin}: cannot be used: {failure.__class__.__name__}"
            error = failure if isinstance(failure, CredentialError) else CredentialError(unknown)
            if str(error) != str(self.problem):
                log.warning("changed credentials not usable, keeping the old ones", error=str(error))
            self.problem = error
            # Looked at again: a file may be half written, or come back.
            return
        self._require_same_cluster(credentials)
        # What changed while it was read is read again.
        self._seen, self._contents = seen, found
        self.problem = None
        await self._client.use(credentials)
        log.info("credentials reloaded", cluster=self._client.cluster, server=credentials.server)
        warn_of_weaknesses(self._client)

    def _end_problem(self) -> None:
        if self.problem is not None:
            log.info("credentials are back as they were", cluster=self._client.cluster)
        self.problem = None

    def _require_same_cluster(self, credentials: Credentials) -> None:
        """Raise ClusterReplaced if the credentials lead to another server or namespace.

        The caches hold the objects of one server and namespace. In any other one they would all seem to be deleted.
        """
        before = self._client.credentials.server, self._client.namespace if self._fixed_namespace else ""
        after = credentials.server, (credentials.namespace or "default") if self._fixed_namespace else ""
        if before != after:
            raise ClusterReplaced(
                f"{credentials.origin}: changed from {' namespace '.join(before)} to {' namespace '.join(after)}"
            )
