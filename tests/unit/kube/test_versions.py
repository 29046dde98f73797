"""Which versions of an API a server says that it has."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.errors import Answer, NotServed, UnexpectedAnswer
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import FixedToken
from harvester_ccm.kube.versions import versions_serving

GROUP = b'{"versions": [{"version": "v1"}, {"version": "v1beta1"}]}'
RESOURCES = b'{"resources": [{"name": "things"}]}'


class Server(ApiClient):
    """Answers with what is given for a path."""

    def __init__(self, **answers: bytes) -> None:
        """``answers``: by the last word of a path."""
        super().__init__(Credentials("memory", "", None, FixedToken(None)), cluster="guest")
        self.answers = answers

    async def request(self, method: str, path: str, **_more: Any) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.answers:
            raise NotServed(Answer(404, "NotFound", "not found", f"{method} {path}"))
        return self.answers[name]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({}, ()),
        ({"example": GROUP, "v1": RESOURCES, "v1beta1": RESOURCES}, ("v1", "v1beta1")),
        ({"example": GROUP, "v1": b'{"resources": []}', "v1beta1": RESOURCES}, ("v1beta1",)),
        # It went between the two questions.
        ({"example": GROUP, "v1beta1": RESOURCES}, ("v1beta1",)),
    ],
)
async def test_versions_that_have_the_resource(answers: dict[str, bytes], expected: tuple[str, ...]) -> None:
    assert await versions_serving(Server(**answers), "example", "things") == expected


@pytest.mark.parametrize(
    ("answers", "path"),
    [({"example": b"<html>"}, "/apis/example"), ({"example": GROUP, "v1": b"<html>"}, "/apis/example/v1")],
)
async def test_a_page_is_no_answer(answers: dict[str, bytes], path: str) -> None:
    with pytest.raises(UnexpectedAnswer) as told:
        await versions_serving(Server(**answers), "example", "things")
    assert str(told.value) == f"the answer is not what a Kubernetes API server sends (GET {path})"
