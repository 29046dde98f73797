"""Identity: the cluster that a credential leads to, by the UID of its namespace ``kube-system``.

A replaced kubeconfig, a DNS name or a proxy can lead to another cluster, in which none of the objects exist. Their
absence there must not look like a deletion. So the UID is read at the start, and again before each deletion that no
finalizer requested.
"""

from typing import Final

import structlog

from harvester_ccm.kube.backoff import repeat
from harvester_ccm.kube.builtin import NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import ClusterReplaced, Forbidden, KubeError

IDENTITY_NAMESPACE: Final = "kube-system"

log = structlog.get_logger(__name__)


class ServerIdentity:
    """The cluster that a client led to at the start of the process, by its UID."""

    def __init__(self, client: ApiClient, *, without: str) -> None:
        """``without`` is what does not work while the UID is not known, for the log."""
        self.client = client
        self._without = without
        self.uid = ""
        """Empty until ``learn`` returned, and if reading the namespace is forbidden."""

    async def learn(self) -> str:
        """Read the UID, retrying until the API server responds; empty if reading the namespace is forbidden."""
        self.uid = await repeat(self._read_if_allowed, on=KubeError, what="kube-system namespace not read")
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

    async def _read_if_allowed(self) -> str:
        try:
            return await self._read()
        except Forbidden:
            log.warning(
                "kube-system namespace not readable",
                effect=self._without,
                fix="grant get on namespaces kube-system to the service account and restart",
            )
            return ""

    async def _read(self) -> str:
        namespace = await self.client.get(NAMESPACES, IDENTITY_NAMESPACE)
        return namespace.metadata.uid
