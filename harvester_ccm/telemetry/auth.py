"""Who may ask: the guest's API server says who a bearer token belongs to, and what that user may read.

Every answer is kept for ten seconds, yes and no alike. At most ``AT_ONCE`` callers are looked into at a time, so that
nobody can make this program flood the API server.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from http import HTTPStatus
from typing import Final

import structlog
from msgspec import Struct

from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.kube.reviews import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, User, ask_review
from harvester_ccm.telemetry.answers import HttpAnswer, say

REMEMBERED_SECONDS: Final = 10.0
REMEMBERED: Final = 256
"""Answers that are kept at most."""
AT_ONCE: Final = 4
REVIEW_SECONDS: Final = 10.0
"""Time limit for looking into one caller."""

NOT_GRANTED: Final = (
    "callers cannot be checked: the service account of this program may not create "
    "tokenreviews.authentication.k8s.io and subjectaccessreviews.authorization.k8s.io; grant both to have this served"
)

log = structlog.get_logger(__name__)


class _Decision(Struct, frozen=True):
    refusal: HttpAnswer | None
    until: float


class AccessReviewer:
    """Decides about callers by asking the guest's API server."""

    def __init__(self, guest: ApiClient) -> None:
        self._guest = guest
        self._decisions: OrderedDict[bytes, _Decision] = OrderedDict()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._told = False

    async def refusal(self, authorization: str, path: str) -> HttpAnswer | None:
        """Return None if the caller with this ``Authorization`` header may get ``path``, else what to answer."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return say(HTTPStatus.UNAUTHORIZED, f"{path} is served only to callers that send a bearer token")
        if not token.isascii():
            return say(HTTPStatus.UNAUTHORIZED, "the bearer token is none: it has characters beyond ASCII")
        # The token itself is not kept.
        key = hashlib.sha256(f"{path}\n{token}".encode()).digest()
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._places:
                known = self._decisions.get(key)
                if known is None or known.until <= loop_time():
                    known = self._remember(key, await self._review(token, path))
                return known.refusal
        except (CCMError, TimeoutError) as error:
            log.debug("caller not checked", path=path, error=str(error))
            return say(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "callers cannot be checked at the moment: the API server of this cluster gave no usable answer",
            )

    def _remember(self, key: bytes, refusal: HttpAnswer | None) -> _Decision:
        decision = _Decision(refusal, loop_time() + REMEMBERED_SECONDS)
        self._decisions[key] = decision
        self._decisions.move_to_end(key)
        if len(self._decisions) > REMEMBERED:
            self._decisions.popitem(last=False)
        return decision

    async def _review(self, token: str, path: str) -> HttpAnswer | None:
        try:
            review = await ask_review(self._guest, TOKEN_REVIEWS, {"token": token})
            if not review.authenticated:
                return say(
                    HTTPStatus.UNAUTHORIZED, "the bearer token is not accepted by the API server of this cluster"
                )
            if await self._may_get(review.user, path):
                return None
        except Forbidden as error:
            if not self._told:
                self._told = True
                log.warning("callers cannot be checked, metrics are not served", error=str(error))
            return say(HTTPStatus.FORBIDDEN, NOT_GRANTED)
        return say(
            HTTPStatus.FORBIDDEN,
            f'forbidden: user "{review.user.username}" cannot get path "{path}"; grant get on the nonResourceURL to it',
        )

    async def _may_get(self, user: User, path: str) -> bool:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or (),
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        return (await ask_review(self._guest, SUBJECT_ACCESS_REVIEWS, spec)).allowed
