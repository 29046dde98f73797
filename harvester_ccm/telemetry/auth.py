"""Access to metrics: the guest's API server authenticates a bearer token and authorizes its user for a path."""

import asyncio
from typing import Final

import structlog
from aiohttp import web

from harvester_ccm.errors import CCMError, Forbidden
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.identity import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, ask_review

MAX_REVIEWS: Final = 4
"""Callers that are reviewed at a time, so that no client can make this process flood the API server."""
REVIEW_TIMEOUT_SECONDS: Final = 10.0

NOT_GRANTED: Final = (
    "callers cannot be checked: the service account of this controller may not create "
    "tokenreviews.authentication.k8s.io and subjectaccessreviews.authorization.k8s.io; grant both to have this served\n"
)
NOT_CHECKED: Final = "callers cannot be checked: the API server of this cluster is unavailable\n"

log = structlog.get_logger(__name__)


class AccessReviewer:
    """Decides about callers with reviews by the guest's API server."""

    def __init__(self, guest: ApiClient) -> None:
        self._guest = guest
        self._slots = asyncio.Semaphore(MAX_REVIEWS)

    async def check(self, authorization: str, path: str) -> None:
        """Return if the caller with this ``Authorization`` header can read ``path``.

        Raises aiohttp's HTTPUnauthorized, HTTPForbidden, or HTTPServiceUnavailable if the API server does not decide.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not (token and token.isascii()):
            raise _unauthorized(f"{path} is served only to callers that send a bearer token")
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS), self._slots:
                await self._review(token, path)
        except Forbidden as error:
            raise web.HTTPForbidden(text=NOT_GRANTED) from error
        except (CCMError, TimeoutError) as error:
            log.debug("caller not checked", path=path, error=str(error))
            raise web.HTTPServiceUnavailable(text=NOT_CHECKED) from error

    async def _review(self, token: str, path: str) -> None:
        review = await ask_review(self._guest, TOKEN_REVIEWS, {"token": token})
        if not review.authenticated:
            raise _unauthorized("the bearer token is not accepted by the API server of this cluster")
        user = review.user
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or (),
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        if not (await ask_review(self._guest, SUBJECT_ACCESS_REVIEWS, spec)).allowed:
            message = f'user "{user.username}" cannot get path "{path}"; grant get on the nonResourceURL to it'
            raise web.HTTPForbidden(text=f"forbidden: {message}\n")


def _unauthorized(message: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=f"{message}\n", headers={"WWW-Authenticate": "Bearer"})
