"""Access to metrics: the guest's API server authenticates a bearer token and authorizes its user for a path.

A decision, positive or negative, is cached for ten seconds. At most ``MAX_REVIEWS`` callers are reviewed at a time, so
that no client can make this process flood the API server.
"""

from __future__ import annotations

import asyncio
import hashlib
from http import HTTPStatus
from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.reviews import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ask_review

CACHE_SECONDS: Final = 10.0
MAX_CACHED: Final = 256
MAX_REVIEWS: Final = 4
REVIEW_TIMEOUT_SECONDS: Final = 10.0
"""Time limit for the review of one caller."""

NOT_GRANTED: Final = (
    "callers cannot be checked: the service account of this program may not create "
    "tokenreviews.authentication.k8s.io and subjectaccessreviews.authorization.k8s.io; grant both to have this served"
)

log = structlog.get_logger(__name__)


class Refusal(Struct, frozen=True):
    """Why a caller gets no response, with the HTTP status for it."""

    status: HTTPStatus
    message: str


class AccessReviewer:
    """Decides about callers with reviews by the guest's API server."""

    def __init__(self, guest: ApiClient) -> None:
        self._guest = guest
        self._decisions: dict[bytes, tuple[float, Refusal | None]] = {}
        """Time at which a decision expires, and the decision; oldest first."""
        self._slots = asyncio.Semaphore(MAX_REVIEWS)
        self._logged = False

    async def refusal(self, authorization: str, path: str) -> Refusal | None:
        """Return None if the caller with this ``Authorization`` header can read ``path``."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return Refusal(HTTPStatus.UNAUTHORIZED, f"{path} is served only to callers that send a bearer token")
        if not token.isascii():
            return Refusal(HTTPStatus.UNAUTHORIZED, "invalid bearer token: contains non-ASCII characters")
        # The token itself is not kept.
        key = hashlib.sha256(f"{path}\n{token}".encode()).digest()
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS), self._slots:
                expires, refusal = self._decisions.get(key, (0.0, None))
                if expires <= loop_time():
                    refusal = await self._review(token, path)
                    self._decisions.pop(key, None)
                    self._decisions[key] = loop_time() + CACHE_SECONDS, refusal
                    if len(self._decisions) > MAX_CACHED:
                        del self._decisions[next(iter(self._decisions))]
                return refusal
        except (CCMError, TimeoutError) as error:
            log.debug("caller not checked", path=path, error=str(error))
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "callers cannot be checked at the moment: the API server of this cluster gave no usable answer",
            )

    async def _review(self, token: str, path: str) -> Refusal | None:
        try:
            review = await ask_review(self._guest, TOKEN_REVIEWS, {"token": token})
            if not review.authenticated:
                return Refusal(
                    HTTPStatus.UNAUTHORIZED, "the bearer token is not accepted by the API server of this cluster"
                )
            user = review.user
            spec = {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups or (),
                "extra": user.extra or {},
                "nonResourceAttributes": {"path": path, "verb": "get"},
            }
            if (await ask_review(self._guest, SUBJECT_ACCESS_REVIEWS, spec)).allowed:
                return None
        except Forbidden as error:
            if not self._logged:
                self._logged = True
                log.warning("callers cannot be checked, metrics are not served", error=str(error))
            return Refusal(HTTPStatus.FORBIDDEN, NOT_GRANTED)
        return Refusal(
            HTTPStatus.FORBIDDEN,
            f'forbidden: user "{user.username}" cannot get path "{path}"; grant get on the nonResourceURL to it',
        )
