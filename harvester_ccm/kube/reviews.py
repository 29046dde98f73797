"""Reviews: whose credential it is, and what is granted to it or to others.

A review is created like an object, with the question in ``spec``, and is its own answer; nothing is stored.
"""

from collections.abc import Mapping
from typing import Final

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import AdmissionDenied, BadRequest, Forbidden, Invalid, NotFound
from harvester_ccm.kube.objects import Model, Resource, ResourceRule, decoder


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
    resource_rules: tuple[ResourceRule, ...] | None = None
    """What the credential that asks may do."""


class Review(Model, frozen=True, kw_only=True):
    """A question with the server's answer."""

    status: ReviewStatus = ReviewStatus()


def _kind(group: str, kind: str) -> Resource[Review]:
    return Resource(group, "v1", f"{kind.lower()}s", kind, decoder(Review), namespaced=False, fenced=False)


TOKEN_REVIEWS: Final = _kind("authentication.k8s.io", "TokenReview")
SUBJECT_ACCESS_REVIEWS: Final = _kind("authorization.k8s.io", "SubjectAccessReview")
ACCESS_REVIEWS: Final = _kind("authorization.k8s.io", "SelfSubjectAccessReview")
RULES_REVIEWS: Final = _kind("authorization.k8s.io", "SelfSubjectRulesReview")
SUBJECT_REVIEWS: Final = _kind("authentication.k8s.io", "SelfSubjectReview")
"""Served since Kubernetes 1.28."""


REFUSALS: Final = (AdmissionDenied, BadRequest, Forbidden, Invalid, NotFound)
"""Errors after which the same question gets the same answer.

``NotServed`` is not one of them: every API server serves reviews, so a 404 page is the response of a proxy that has no
route at the moment.
"""


async def ask_review(client: ApiClient, kind: Resource[Review], spec: Mapping[str, object]) -> ReviewStatus:
    """Return the answer to a question; it needs no Lease. Raises the errors of ``kube.errors``."""
    body: dict[str, object] = {}
    if spec:
        body["spec"] = spec
    review = await client.create(kind, body)
    return review.status
