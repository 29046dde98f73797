"""What a credential may do, asked of the API server itself: SelfSubjectAccessReview and SelfSubjectReview."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from harvester_ccm.commands import clusters
from harvester_ccm.commands.clusters import Asked, ask, no_answer
from harvester_ccm.commands.permissions import Collection, Right
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.meta import Model, Resource, decoder

AT_ONCE: Final = 6
"""Questions to one server at the same time."""


class ReviewStatus(Model, frozen=True, kw_only=True):
    """``status`` of a SelfSubjectAccessReview."""

    allowed: bool = False


class AccessReview(Model, frozen=True, kw_only=True):
    """Whether the asking credential may do something."""

    status: ReviewStatus = ReviewStatus()


class SubjectInfo(Model, frozen=True, kw_only=True):
    """``status.userInfo`` of a SelfSubjectReview."""

    username: str = ""


class SubjectStatus(Model, frozen=True, kw_only=True):
    """``status`` of a SelfSubjectReview."""

    user_info: SubjectInfo = SubjectInfo()


class SubjectReview(Model, frozen=True, kw_only=True):
    """Who the asking credential is."""

    status: SubjectStatus = SubjectStatus()


ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    decoder(AccessReview),
    namespaced=False,
)
SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
    decoder(SubjectReview),
    namespaced=False,
)
"""Served since Kubernetes 1.28."""

Reviewed = tuple[Right, Asked[bool]]


async def review(client: ApiClient, collections: Iterable[Collection], namespace: str) -> dict[str, list[Reviewed]]:
    """Return for each collection, by title, which of its rights are granted; ``namespace`` is that of Harvester.

    All of it goes on for as long as the server answers something within the time limit of one question: slow ones are
    waited for, and those that answer nothing are given up at once for all questions.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    answers: dict[tuple[str, str], Asked[bool]] = {}
    silence = no_answer(clusters.SECONDS)

    async def put(collection: Collection, right: Right) -> None:
        question = _question(collection, right, namespace)
        async with gate:
            asked = await ask(client.create(ACCESS_REVIEWS, question))
        allowed = None
        if asked.answer is not None:
            allowed = asked.answer.status.allowed
            limit.reschedule(asyncio.get_running_loop().time() + clusters.SECONDS)
        answers[collection.title, right.verb] = Asked(allowed, asked.error)

    pairs = [(one, right) for one in collections for right in one.rights]
    with suppress(TimeoutError):
        # One limit for all: the end of one question must not be the beginning of another.
        async with asyncio.timeout(clusters.SECONDS) as limit:
            await asyncio.gather(*(put(one, right) for one, right in pairs))
    found: dict[str, list[Reviewed]] = {}
    for one, right in pairs:
        answer = answers.get((one.title, right.verb)) or Asked(error=silence)
        found.setdefault(one.title, []).append((right, answer))
    return found


async def who_am_i(client: ApiClient) -> Asked[str]:
    """Return the user name that the server knows the credential by."""
    body: dict[str, object] = {"apiVersion": SUBJECT_REVIEWS.api_version, "kind": SUBJECT_REVIEWS.kind}
    asked = await ask(client.create(SUBJECT_REVIEWS, body))
    return Asked(asked.answer.status.user_info.username if asked.answer else None, asked.error)


def _question(collection: Collection, right: Right, namespace: str) -> dict[str, object]:
    attributes = {
        "namespace": namespace or collection.namespace,
        "verb": right.verb,
        "group": collection.group,
        "resource": collection.resource,
        "subresource": collection.subresource,
        "name": collection.name if right.named else "",
    }
    return {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
