"""Credentials in use: reload of changed files, the cluster that they lead to, and reviews of their permissions.

A replaced kubeconfig, a DNS name or a load balancer in front of the API servers can lead to another cluster, in which
none of the Services and Nodes exist. Their absence there must not look like a deletion: the process ends.

* The identity of the guest cluster is the UID of its namespace ``kube-system``. It is read once at the start and again
  before each deletion that no finalizer requested.
* Changed files must lead to the same server and namespace. The contents of the kubeconfigs, and of the certificates
  and keys that they name, are compared, because the kubelet republishes a service account's volume every hour with the
  same certificates. If the new files are not usable, the current credentials stay in use. Requests in flight fail as
  transient and are retried.
* Reviews report whose credential it is, and what is granted to it. A review is created like an object, with the
  question in ``spec``, and is its own answer; nothing is stored.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, retry_if_not_exception_type

from harvester_ccm.errors import CCMError, ClusterReplaced, CredentialError, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.connection import read_all
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.workqueue import IN_PLACE_DELAYS
from harvester_ccm.model.core import NAMESPACES
from harvester_ccm.model.meta import Model, Resource, decoder

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
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(CCMError) & retry_if_not_exception_type(Forbidden),
            wait=IN_PLACE_DELAYS,
            before_sleep=_log_first,
        )
        try:
            self.uid = await retrying(self._read)
        except Forbidden:
            log.warning(
                "kube-system namespace not readable",
                effect="load balancers get no owner annotation, orphaned ones are not deleted",
                remedy="grant get on namespaces kube-system to the service account and restart",
            )
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


def _log_first(attempts: RetryCallState) -> None:
    if attempts.attempt_number == 1 and attempts.outcome is not None:
        log.warning("kube-system namespace not read", error=str(attempts.outcome.exception()))


def warn_if_insecure(credentials: Credentials, cluster: str) -> None:
    """Log a warning if the connection to a cluster is not encrypted or the server is not verified."""
    if credentials.weakness:
        log.warning(
            "connection is not secure",
            cluster=cluster,
            server=credentials.server,
            reason=credentials.weakness,
            effect="anybody on the network between can read the token and change the objects that are read",
            remedy="use https:// and certificate-authority-data in the kubeconfig",
        )


class CredentialReloader:
    """Reloads a client's credentials when their files change."""

    def __init__(self, client: ApiClient, load: Callable[[], Credentials]) -> None:
        """``load`` reads the files."""
        self._client = client
        self._load = load
        self.problem = ""
        """Error in the current files; empty if they are usable."""
        self.on_problem: Callable[[str], None] = lambda _problem: None
        """Called with the error after each check that finds one, for the Event."""

    @property
    def cluster(self) -> str:
        """Name of the cluster: ``guest`` or ``harvester``."""
        return self._client.cluster

    async def run(self) -> None:
        """Check the files until cancelled. Raises ClusterReplaced."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.check()
            if self.problem:
                self.on_problem(self.problem)

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
            is_known = isinstance(error, CredentialError)
            self.problem = str(error) if is_known else f"{current.origin}: {type(error).__name__}"
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
        warn_if_insecure(credentials, self._client.cluster)


class User(Model, frozen=True, kw_only=True):
    """User of the credential."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class ReviewStatus(Model, frozen=True, kw_only=True):
    """``status`` of any review; each kind fills fields of its own."""

    authenticated: bool = False
    user: User = User()
    """Of a token."""
    user_info: User = User()
    """Of the credential that asks."""
    allowed: bool = False


class Review(Model, frozen=True, kw_only=True):
    """A question with the server's answer."""

    status: ReviewStatus = ReviewStatus()


def _kind(group: str, kind: str) -> Resource[Review]:
    return Resource(group, "v1", f"{kind.lower()}s", kind, decoder(Review), namespaced=False, fenced=False)


TOKEN_REVIEWS: Final = _kind("authentication.k8s.io", "TokenReview")
SUBJECT_ACCESS_REVIEWS: Final = _kind("authorization.k8s.io", "SubjectAccessReview")
ACCESS_REVIEWS: Final = _kind("authorization.k8s.io", "SelfSubjectAccessReview")
SUBJECT_REVIEWS: Final = _kind("authentication.k8s.io", "SelfSubjectReview")
"""Served since Kubernetes 1.28."""


async def ask_review(client: ApiClient, kind: Resource[Review], spec: Mapping[str, object]) -> ReviewStatus:
    """Return the answer to a question; it needs no Lease. Raises the errors of ``harvester_ccm.errors``."""
    return (await client.create(kind, {"spec": spec} if spec else {})).status
