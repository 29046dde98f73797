"""Questions to an API server: who somebody is, what is granted to them, and which versions of an API group it serves.

A review is created like an object, with the question in ``spec``, and is its own answer; nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from harvester_ccm.errors import NotServed
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.meta import Model, Resource, decoder


class User(Model, frozen=True, kw_only=True):
    """Whose credential it is."""

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
    question: dict[str, object] = {"apiVersion": kind.api_version, "kind": kind.kind}
    return (await client.create(kind, {**question, "spec": spec} if spec else question)).status


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]


_decode = msgspec.json.Decoder(_Group).decode


async def served_versions(client: ApiClient, group: str) -> tuple[str, ...]:
    """Return the versions of an API group, the preferred one first; empty when the server does not have the group.

    Raises the errors of ``harvester_ccm.errors`` when the server cannot be asked.
    """
    try:
        return tuple(one.version for one in (await client.read(f"/apis/{group}", _decode)).versions)
    except NotServed:
        return ()
