"""Leader election on a Lease, compatible with client-go: at most one process of all replicas acts.

Only get, create and update are used (what installed charts grant). The holder's clock is never trusted: a foreign
Lease counts as free when it did not change for its own duration as measured here. ``hold`` raises LeaseLost early
enough (``renew_deadline`` after the last success, less than ``lease_duration``) that another process cannot hold the
Lease at the same time. ``release`` gives it up so that a successor need not wait. Only ``spec`` is ever changed:
labels, annotations and owners that others put on the Lease stay.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from harvester_ccm.errors import AlreadyExists, CCMError, Conflict, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.model.core import LEASES, Lease, LeaseSpec

LOOKS: Final = (0.5, 1.0)
"""A candidate looks at a Lease of somebody else after a random share of ``retry_period`` between these two: sooner than
client-go (1 to 2.2), because all that time nobody works after a Lease was given up, and a look is one small GET."""

_DOCUMENTS: Final = LEASES.whole()

log = structlog.get_logger(__name__)


class LeaseLost(CCMError):
    """Raised when the Lease could not be renewed in time or is held by somebody else."""


class LeaseTimes(Struct, frozen=True):
    """Durations in seconds; lease > renew deadline > 1.2 × retry period."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class _Observed(Struct):
    """The Lease as last seen."""

    lease: Lease
    document: dict[str, object]
    at: float
    """Loop time since when it has had this ``spec``."""
    fresh: bool = True
    """False when a write failed and somebody may have changed it since."""

    @property
    def spec(self) -> LeaseSpec:
        return self.lease.spec


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
        self._observed: _Observed | None = None
        self.renewed_at = float("-inf")
        """Loop time of the last successful write of the Lease."""
        self._failing_since: float | None = None
        self.taking = False
        """Whether a take of the Lease was sent that may have got through: its answer has not come, or not yet."""
        self.identity = identity
        self.on_change: Callable[[str, Lease], None] = lambda _verb, _lease: None
        """Called with ``became leader`` or ``stopped leading`` and the Lease, for the Event."""

    @property
    def leading(self) -> bool:
        """Whether this process holds the Lease as far as it knows."""
        return self._observed is not None and self._observed.spec.holder_identity == self.identity

    @property
    def renewal_due(self) -> float:
        """Loop time until when the Lease has to be renewed, or counts as lost."""
        return self.renewed_at + self._times.renew_deadline

    @property
    def holder(self) -> str:
        """Who holds the Lease as last seen; empty when nobody does or it was never read."""
        return (self._observed.spec.holder_identity or "") if self._observed else ""

    async def acquire(self) -> None:
        """Return when the Lease is ours."""
        holder: str | None = None
        while True:
            if await self._try_quietly():
                log.info("became leader", identity=self.identity)
                return
            if self.holder != holder:
                holder = self.holder
                log.info("waiting for leadership", holder=holder or "unknown")
            await asyncio.sleep(self._times.retry_period * random.uniform(*LOOKS))

    async def hold(self) -> None:
        """Renew until cancelled; raises LeaseLost when that did not work for ``renew_deadline`` seconds."""
        while True:
            try:
                async with asyncio.timeout_at(self.renewal_due):
                    await asyncio.sleep(self._times.retry_period)
                    while not await self._try_quietly():
                        if not self.leading:
                            self._tell_stopped()
                            raise LeaseLost(f"the Lease was taken by {self.holder or 'nobody'}")
                        await asyncio.sleep(self._times.retry_period)
            except TimeoutError:
                self._tell_stopped()
                self._see(None)
                late = asyncio.get_running_loop().time() - self.renewed_at
                raise LeaseLost(f"the Lease could not be renewed for {late:.1f} s") from None

    async def release(self) -> None:
        """Give the Lease up if it is ours; errors are left to the next holder's waiting time."""
        try:
            if self.taking and not self.leading:
                await self._look()
            if not self.leading:
                return
            if not await self._give_up():
                # A renewal that was cut short may have got through.
                await self._look()
                await self._give_up()
        except CCMError as error:
            if self.leading:
                log.warning("lease not released", error=str(error))
        else:
            log.info("lease released", identity=self.identity)

    async def _give_up(self) -> bool:
        """Write that nobody holds our Lease; False when it is not as we knew it."""
        held = self._observed
        if held is None or not self.leading:
            return True
        now = _now()
        spec: dict[str, object] = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": held.spec.lease_transitions or 0,
        }
        try:
            await self._write(held, spec)
        except Conflict:
            return False
        self._tell_stopped()
        return True

    def _tell_stopped(self) -> None:
        log.info("stopped leading", identity=self.identity)
        if self._observed is not None:
            self.on_change("stopped leading", self._observed.lease)

    async def _try_quietly(self) -> bool:
        limit = max(1.0, self._times.renew_deadline / 2)
        try:
            async with asyncio.timeout(limit):
                held = await self._try()
        except TimeoutError:
            self._tell_failure(f"no answer within {limit:g} s")
        except (Conflict, AlreadyExists):
            self._tell_answer()
            log.debug("lease changed while writing")
        except CCMError as error:
            self._tell_failure(str(error), error.request_id)
        else:
            self._tell_answer()
            return held
        if self._observed is not None:
            self._observed.fresh = False
        return False

    def _tell_failure(self, error: str, request_id: str = "") -> None:
        """Say the first failure in a row; the API server may be away for hours."""
        if self._failing_since is None:
            self._failing_since = asyncio.get_running_loop().time()
            log.warning("lease requests fail", error=error, request_id=request_id)
        else:
            log.debug("lease request failed", error=error, request_id=request_id)

    def _tell_answer(self) -> None:
        """Say that requests work again, if they did not."""
        if self._failing_since is not None:
            seconds = asyncio.get_running_loop().time() - self._failing_since
            self._failing_since = None
            log.info("lease requests work again", seconds=round(seconds, 1))

    async def _try(self) -> bool:
        if not (self.leading and self._observed and self._observed.fresh):
            try:
                await self._look()
            except NotFound:
                await self._take(None)
                return True
        if not self.leading and not self._expired():
            return False
        await self._take(self._observed)
        return True

    def _expired(self) -> bool:
        if self._observed is None or not self._observed.spec.holder_identity:
            return True
        duration = self._observed.spec.lease_duration_seconds or self._times.lease_duration
        return asyncio.get_running_loop().time() >= self._observed.at + duration

    async def _look(self) -> None:
        """Read the Lease. Raises NotFound."""
        document = await self._client.get(_DOCUMENTS, self._name, namespace=self._namespace)
        self._note(document)

    async def _take(self, held: _Observed | None) -> None:
        """Renew our Lease, take a free one, or create the one that is not there."""
        now = _now()
        ours = held is not None and held.spec.holder_identity == self.identity
        spec: dict[str, object] = {
            "holderIdentity": self.identity,
            # Whole seconds on the wire: never less than what we count on ourselves.
            "leaseDurationSeconds": math.ceil(self._times.lease_duration),
            "acquireTime": (held.spec.acquire_time or now) if held and ours else now,
            "renewTime": now,
            "leaseTransitions": (held.spec.lease_transitions or 0) + (not ours) if held else 0,
        }
        # Counted from before the request: others count from when they see the write, which is later.
        started = asyncio.get_running_loop().time()
        self.taking = not ours
        lease = await self._write(held, spec)
        self.taking = False
        self.renewed_at = started
        self._fence.deadline = self.renewal_due
        if not ours:
            self.on_change("became leader", lease)

    async def _write(self, held: _Observed | None, spec: dict[str, object]) -> Lease:
        if held is not None:
            body = {**held.document, "spec": spec}
            write = self._client.replace(_DOCUMENTS, self._name, body, namespace=self._namespace)
        else:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
            write = self._client.create(_DOCUMENTS, body, namespace=self._namespace)
        return self._note(await write)

    def _note(self, document: dict[str, object]) -> Lease:
        """Take note of the Lease as the server has it."""
        lease, before = msgspec.convert(document, Lease, strict=False), self._observed
        same = before is not None and before.spec == lease.spec
        self._see(_Observed(lease, document, before.at if same and before else asyncio.get_running_loop().time()))
        return lease

    def _see(self, observed: _Observed | None) -> None:
        """Take note of the Lease; that it is not ours shuts the fence."""
        self._observed = observed
        if not self.leading:
            self._fence.deadline = -math.inf


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
