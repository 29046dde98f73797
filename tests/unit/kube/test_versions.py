"""Which versions of an API a server says that it has."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.errors import Answer, NotServed, UnexpectedAnswer
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.reviews import served_versions
from harvester_ccm.kube.tokens import FixedToken

GROUP = b'{"versions": [{"version": "v1"}, {"version": "v1beta1"}]}'


class Server(ApiClient):
    """Answers with what is given for a path."""

    def __init__(self, **answers: bytes) -> None:
        """``answers``: by the last word of a path."""
        super().__init__(Credentials("memory", "", None, FixedToken(None)), cluster="guest")
        self.answers = answers

    async def request(self, method: str, path: str, **_more: Any) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.answers:
            raise NotServed(Answer(404, "NotFound", "not found"))
        return self.answers[name]


async def test_versions_of_a_group() -> None:
    assert await served_versions(Server(example=GROUP), "example") == ("v1", "v1beta1")
    assert await served_versions(Server(), "example") == ()


async def test_a_page_is_no_answer() -> None:
    with pytest.raises(UnexpectedAnswer, match=r"is not what a Kubernetes API server sends \(GET /apis/example\)"):
        await served_versions(Server(example=b"<html>"), "example")
