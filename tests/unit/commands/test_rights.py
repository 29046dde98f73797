"""What counts as granted, and what a server is asked for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harvester_ccm.commands.rights import (
    GUEST,
    HARVESTER,
    NO_NAMESPACE,
    Collection,
    Right,
    collections_of,
    grants,
    review,
)
from harvester_ccm.errors import Answer, CCMError, Forbidden, Unreachable
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.reviews import ACCESS_REVIEWS, RULES_REVIEWS, ResourceRule, Review, ReviewStatus
from harvester_ccm.model.meta import Resource

SETTINGS = build_settings(parse_command_line(["--cloud-config=x", "--cluster-name=demo"]), {})
PATCH_STATUS = Collection("apps", "things", (), subresource="status", name="one")


def rule(verbs: str = "*", groups: str = "*", resources: str = "*", names: str = "") -> ResourceRule:
    """Return a rule; several values stand in one text, with commas between them."""
    split = (tuple(text.split(",")) for text in (verbs, groups, resources))
    verb, group, resource = split
    return ResourceRule(
        verbs=verb, api_groups=group, resources=resource, resource_names=tuple(names.split(",")) if names else None
    )


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        (rule(), True),
        (rule("get,patch", "apps", "things/status"), True),
        (rule("patch", "apps", "*/status"), True),
        (rule("patch", "apps", "things"), False),
        (rule("patch", "apps", "*/scale"), False),
        (rule("patch", "", "things/status"), False),
        (rule("get", "apps", "things/status"), False),
        (rule(names="one,two"), True),
        (rule(names="two"), False),
        (ResourceRule(), False),
    ],
)
def test_rules_as_rbac_reads_them(granted: ResourceRule, expected: bool) -> None:
    assert grants(granted, PATCH_STATUS, Right("patch", "")) is expected


def test_a_name_does_not_count_for_what_has_none_yet() -> None:
    assert not grants(rule(names="one"), PATCH_STATUS, Right("create", ""))
    assert grants(rule(), PATCH_STATUS, Right("create", ""))


class Server:
    """Answers reviews; ``asked`` holds kind and spec of each."""

    def __init__(self, rules: ReviewStatus | CCMError, *, allowed: bool = False) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._rules = rules
        self._allowed = allowed

    async def create(self, resource: Resource[Any], body: dict[str, Any]) -> Review:
        assert not resource.fenced
        self.asked.append((body["kind"], body["spec"]))
        if resource is ACCESS_REVIEWS:
            return Review(status=ReviewStatus(allowed=self._allowed))
        assert resource is RULES_REVIEWS
        if isinstance(self._rules, CCMError):
            raise self._rules
        return Review(status=self._rules)

    async def verdicts(self, cluster: str, namespace: str = "") -> dict[str, bool | None]:
        """Return what is found for each right, by verb and title."""
        collections = collections_of(cluster, SETTINGS)
        found = await review(cast("ApiClient", self), collections, namespace)
        assert [[right for right, _ in found[one.title]] for one in collections] == [
            list(one.rights) for one in collections
        ]
        return {f"{right.verb} {title}": asked.answer for title, those in found.items() for right, asked in those}


@pytest.mark.parametrize(
    ("cluster", "namespace", "homes"), [(GUEST, "", [NO_NAMESPACE, "kube-system"]), (HARVESTER, "prod", ["prod"])]
)
async def test_one_question_for_each_namespace(cluster: str, namespace: str, homes: list[str]) -> None:
    server = Server(ReviewStatus(resource_rules=(rule(),)))
    assert set((await server.verdicts(cluster, namespace)).values()) == {True}
    assert server.asked == [("SelfSubjectRulesReview", {"namespace": home}) for home in homes]


@pytest.mark.parametrize("allowed", [True, False])
async def test_what_rules_do_not_grant_is_asked_for_itself(allowed: bool) -> None:
    rules = (rule(resources="loadbalancers,virtualmachines,virtualmachineinstances"),)
    server = Server(ReviewStatus(resource_rules=rules), allowed=allowed)
    verdicts = await server.verdicts(HARVESTER, "prod")
    assert verdicts.pop("get virtualmachineinstances/guestosinfo") is allowed
    assert set(verdicts.values()) == {True}
    assert server.asked[1:] == [
        (
            "SelfSubjectAccessReview",
            {
                "resourceAttributes": {
                    "namespace": "prod",
                    "verb": "get",
                    "group": "subresources.kubevirt.io",
                    "resource": "virtualmachineinstances",
                    "subresource": "guestosinfo",
                }
            },
        )
    ]


@pytest.mark.parametrize(
    "rules",
    [ReviewStatus(resource_rules=(rule(),), incomplete=True), Forbidden(Answer(403, "Forbidden", "no", "POST /"))],
)
async def test_where_not_all_rules_are_known_each_right_is_asked_for(rules: ReviewStatus | CCMError) -> None:
    server = Server(rules, allowed=False)
    verdicts = await server.verdicts(HARVESTER, "prod")
    assert set(verdicts.values()) == {False}
    assert len(server.asked) == 1 + len(verdicts)


async def test_a_silent_server_is_asked_once() -> None:
    server = Server(Unreachable("away"))
    assert set((await server.verdicts(GUEST)).values()) == {None}
    assert {kind for kind, _ in server.asked} == {"SelfSubjectRulesReview"}
