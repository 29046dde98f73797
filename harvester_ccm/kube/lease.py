"""Leader election on a Lease, compatible with client-go: at most one replica acts.

* Only get, create and update are used, which every Role for client-go grants. Only ``spec`` is changed, and the
  annotations of the program.
* The holder's clock is never trusted: a Lease of another holder counts as expired if it did not change for its own
  duration, measured here.
* ``hold`` raises LeaseLost ``renew_deadline`` seconds after the last renewal at the latest, before any other replica
  can take the Lease. Durations are monotonic and start before the request of the renewal.
* ``release`` gives the Lease up, so that a successor need not wait.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from harvester_ccm.kube.builtin import LEASES, Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from harvester_ccm.kube.fence import WriteFence

RETRY_JITTER: Final = (0.5, 1.0)
"""Range of the factor for ``retry_period`` of a candidate; shorter than in client-go, as no replica works meanwhile."""

_WHOLE: Final = LEASES.whole()

log = structlog.get_logger(__name__)


class LeaseLost(KubeError):
    """Raised when the Lease was not renewed in time or another replica holds it."""


class LeaseTimes(Struct, frozen=True):
    """Durations in seconds; lease > renew deadline > 1.2 × retry period."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaderElector:
    """One candidate for one Lease."""

    def __init__(
        self, client: ApiClient, fence: WriteFence, *, namespace: str, name: str, identity: str, times: LeaseTimes
    ) -> None:
        """``fence`` stops writes from the renew deadline on; the Lease itself is not fenced."""
        self._client = client
        self._fence = fence
        self._namespace = namespace
        self._name = name
        self._times = times
        self._document: dict[str, object] | None = None
        """The Lease in the last response; None if no Lease exists or it is not known."""
        self._since = 0.0
        """Loop time since which it has had this ``spec``."""
        self._unanswered = False
        """Whether a write was sent whose response was not received: the Lease can be newer than the last response."""
        self._failing_since: float | None = None
        self.renewed_at = -math.inf
        """Loop time of the last successful renewal."""
        self.identity = identity
        self.annotations: Mapping[str, str] = {}
        """Annotations of the program that each write of the Lease sets; others are kept."""
        self.on_change: Callable[[str, Lease], None] = lambda _verb, _lease: None
        """Called with ``became leader`` or ``stopped leading`` and the Lease, for the Event."""

    @property
    def _lease(self) -> Lease:
        return msgspec.convert(self._document or {}, Lease, strict=False)

    @property
    def holder(self) -> str:
        """Identity of the holder in the last response; empty if the Lease has none or is not known."""
        return self._lease.spec.holder_identity or ""

    @property
    def leading(self) -> bool:
        """Whether this process was the holder in the last response."""
        return self.holder == self.identity

    async def acquire(self) -> None:
        """Return when this process holds the Lease."""
        holder: str | None = None
        while not await self._attempt():
            if self.holder != holder:
                holder = self.holder
                log.info("waiting for leadership", holder=holder or "unknown")
            await asyncio.sleep(self._times.retry_period * random.uniform(*RETRY_JITTER))
        log.info("became leader", identity=self.identity)

    async def hold(self) -> None:
        """Renew the Lease until cancelled. Raises LeaseLost."""
        while True:
            try:
                async with asyncio.timeout_at(self._fence.deadline):
                    await asyncio.sleep(self._times.retry_period)
                    while not await self._attempt():
                        if not self.leading:
                            self._stopped()
                            raise LeaseLost(f"the Lease was taken by {self.holder or 'no holder'}")
                        await asyncio.sleep(self._times.retry_period)
            except TimeoutError:
                self._stopped()
                self._observe(None)
                raise LeaseLost(f"the Lease could not be renewed for {loop_time() - self.renewed_at:.1f} s") from None

    async def release(self) -> None:
        """Give the Lease up if this process holds it. On an error it expires instead."""
        try:
            if self.leading or self._unanswered:
                await self._read()
            if self.leading:
                await self._write("", 1, transitions=self._lease.spec.lease_transitions or 0)
                self._stopped()
                log.info("lease released", identity=self.identity)
        except KubeError as error:
            if self.leading:
                log.warning("lease not released", error=str(error))

    def _stopped(self) -> None:
        log.info("stopped leading", identity=self.identity)
        self.on_change("stopped leading", self._lease)

    async def _attempt(self) -> bool:
        """Take or renew the Lease if possible; return whether this process holds it now. Logs errors."""
        limit = max(1.0, self._times.renew_deadline / 2)
        holds, error = False, ""
        try:
            async with asyncio.timeout(limit):
                holds = await self._take_or_renew()
        except TimeoutError:
            error = f"no answer within {limit:g} s; check the load and the admission webhooks of the API server"
        except (Conflict, AlreadyExists):
            log.debug("lease changed while writing")
        except KubeError as failure:
            error = str(failure)
        # Only the first error in a row and the end of the errors: the API server can be away for hours.
        if error and self._failing_since is None:
            self._failing_since = loop_time()
            log.warning("lease requests failed", error=error)
        elif not error and self._failing_since is not None:
            log.info("lease requests recovered", seconds=round(loop_time() - self._failing_since, 1))
            self._failing_since = None
        return holds

    async def _take_or_renew(self) -> bool:
        if not self.leading or self._unanswered:
            await self._read()
        spec = self._lease.spec
        renews = self.leading
        expires_at = self._since + (spec.lease_duration_seconds or self._times.lease_duration)
        if self.holder and not renews and loop_time() < expires_at:
            return False
        transitions = 0 if self._document is None else (spec.lease_transitions or 0) + (not renews)
        # Counted from before the request: other replicas count from when they see the write, which is later.
        started = loop_time()
        # Whole seconds in the API: never less than this process counts on.
        seconds = math.ceil(self._times.lease_duration)
        await self._write(self.identity, seconds, transitions=transitions, since=spec.acquire_time if renews else None)
        self.renewed_at = started
        self._fence.deadline = started + self._times.renew_deadline
        if not renews:
            self.on_change("became leader", self._lease)
        return True

    async def _read(self) -> None:
        try:
            self._observe(await self._client.get(_WHOLE, self._name, namespace=self._namespace))
        except NotFound:
            self._observe(None)

    async def _write(self, holder: str, seconds: int, *, transitions: int, since: str | None = None) -> None:
        """Replace the Lease, or create it if it does not exist; ``since`` is when its holder acquired it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": since or now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        known = self._document
        metadata: Any = {"name": self._name, "namespace": self._namespace}
        if known is not None:
            metadata = known.get("metadata") or metadata
        annotations = {**(metadata.get("annotations") or {}), **self.annotations}
        body = {**(known or {}), "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        self._unanswered = True
        if known is not None:
            document = await self._client.replace(_WHOLE, self._name, body, namespace=self._namespace)
        else:
            document = await self._client.create(_WHOLE, body, namespace=self._namespace)
        self._observe(document)

    def _observe(self, document: dict[str, object] | None) -> None:
        """Record a response; None if no Lease exists, or nothing is known about it any more."""
        if document is None or self._document is None or document.get("spec") != self._document.get("spec"):
            self._since = loop_time()
        self._document, self._unanswered = document, False
        if not self.leading:
            self._fence.deadline = -math.inf
