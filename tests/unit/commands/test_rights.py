"""What counts as granted, and what a server is asked for it."""

from __future__ import annotations

from typing import Any, cast

from harvester_ccm.commands.rights import GUEST, HARVESTER, collections_of, review
from harvester_ccm.errors import CCMError, Unreachable
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.reviews import ACCESS_REVIEWS, Review, ReviewStatus
from harvester_ccm.model.meta import Resource

SETTINGS = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})


class Server:
    """Answers reviews; ``asked`` holds the attributes of each."""

    def __init__(self, error: CCMError | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._error = error

    async def create(self, resource: Resource[Any], body: dict[str, Any]) -> Review:
        assert resource is ACCESS_REVIEWS
        assert not resource.fenced
        self.asked.append(body["spec"]["resourceAttributes"])
        if self._error is not None:
            raise self._error
        return Review(status=ReviewStatus(allowed=True))

    async def verdicts(self, cluster: str, namespace: str = "") -> dict[str, bool | None]:
        """Return what is found for each right, by verb and title."""
        collections = collections_of(cluster, SETTINGS)
        found = await review(cast("ApiClient", self), collections, namespace)
        assert [[right for right, _ in found[one.title]] for one in collections] == [
            list(one.rights) for one in collections
        ]
        return {f"{right.verb} {title}": asked.answer for title, those in found.items() for right, asked in those}


async def test_each_right_is_reviewed_in_its_namespace() -> None:
    server = Server()
    verdicts = await server.verdicts(HARVESTER, "prod")
    assert set(verdicts.values()) == {True}
    assert len(server.asked) == len(verdicts)
    assert {
        "namespace": "prod",
        "verb": "get",
        "group": "subresources.kubevirt.io",
        "resource": "virtualmachineinstances",
        "subresource": "guestosinfo",
    } in server.asked
    server = Server()
    await server.verdicts(GUEST)
    assert {one.get("namespace") for one in server.asked} == {None, "kube-system"}
    assert {"verb": "get", "resource": "namespaces", "name": "kube-system"} in server.asked


async def test_a_server_that_does_not_respond_grants_nothing() -> None:
    assert set((await Server(Unreachable("away")).verdicts(GUEST)).values()) == {None}
