"""Fields of a Service and its EndpointSlices that kube-vip reads, and its reactions to their changes."""

from typing import Any

import pytest

from devenv.announcement import (
    NEWEST,
    Settings,
    Version,
    counts_endpoint,
    is_changed,
    is_ignored,
    is_served,
    wanted_addresses,
)
from devenv.announcer import (
    Announcer,
    Answer,
    AwaitAddress,
    Reaction,
    ReadSlices,
    RequestLease,
    Withdraw,
    WriteService,
    announcer_for,
)
from devenv.watch import Document, key_of
from tests.devenv.emulated import endpoint_slice, service

A, B = "127.79.0.10", "127.79.0.11"
ADDRESS = "kube-vip.io/loadbalancerIPs"
IGNORE = "kube-vip.io/ignore"
DDNS = "kube-vip.io/ddns"
OUR_CLASS = "cloudprovider.harvesterhci.io/harvester"
KUBE_VIP_CLASS = "kube-vip.io/kube-vip-class"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (service({ADDRESS: A}), (A,)),
        (service({ADDRESS: f"{A}, {B}"}), (A, B)),
        (service({ADDRESS: A}, status=B, requested=B), (A,)),
        (service(status=A, requested=A), (A,)),
        pytest.param(service(status=A, requested=B), (B,), id="specification before another address in the status"),
        pytest.param(service(status=A, requested="fd00::1"), (A,), id="specification of another family"),
        (service(requested=A), (A,)),
        (service({ADDRESS: ""}, status=A, requested=B), ()),
        (service(), ()),
    ],
)
def test_address_comes_from_annotation_status_or_specification(document: Document, expected: tuple[str, ...]) -> None:
    assert wanted_addresses(document) == expected


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("True", False), ("1", False), ("", False)])
def test_only_one_spelling_is_ignored(value: str, expected: bool) -> None:
    assert is_ignored(service({IGNORE: value})) is expected


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (None, Settings(), True),
        (KUBE_VIP_CLASS, Settings(), True),
        (OUR_CLASS, Settings(), False),
        (OUR_CLASS, Settings(load_balancer_class=OUR_CLASS), True),
        (KUBE_VIP_CLASS, Settings(load_balancer_class=OUR_CLASS), False),
        (None, Settings(load_balancer_class=OUR_CLASS), True),
        (None, Settings(class_only=True), False),
        (None, Settings(legacy_class_handling=False), False),
        (None, Settings(legacy_class_handling=False, load_balancer_class=""), True),
        (KUBE_VIP_CLASS, Settings(legacy_class_handling=False), True),
    ],
)
def test_class_decides_whether_a_service_is_served(name: str | None, settings: Settings, expected: bool) -> None:
    document = service()
    if name is not None:
        document["spec"]["loadBalancerClass"] = name
    assert is_served(document, settings) is expected


def endpoint(*addresses: str, node: str = "devenv-node", serving: bool | None = None) -> Document:
    return {"addresses": list(addresses), "nodeName": node, "conditions": {"ready": False, "serving": serving}}


@pytest.mark.parametrize(
    ("policy", "found", "expected"),
    [
        ("Cluster", [], False),
        ("Cluster", [endpoint("192.0.2.1", serving=False)], True),
        ("Local", [endpoint("192.0.2.1", serving=True)], True),
        ("Local", [endpoint("192.0.2.1", serving=False)], False),
        ("Local", [endpoint("192.0.2.1")], False),
        ("Local", [endpoint("192.0.2.1", node="another", serving=True)], False),
    ],
)
def test_endpoints_that_count(policy: str, found: list[Document], expected: bool) -> None:
    document = service()
    document["spec"]["externalTrafficPolicy"] = policy
    assert counts_endpoint(document, found, "devenv-node") is expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(service({ADDRESS: A}), service({ADDRESS: A}, status=A), False, id="status written"),
        pytest.param(service({ADDRESS: A}, status=A), service({ADDRESS: A}), False, id="status cleared"),
        pytest.param(service({ADDRESS: A}), service({ADDRESS: A}, status=B), False, id="status overwritten"),
        pytest.param(service({ADDRESS: A}), service({ADDRESS: B}), True, id="annotation changed"),
        pytest.param(service({ADDRESS: A}), service({ADDRESS: ""}), True, id="annotation emptied"),
        pytest.param(service({ADDRESS: A}), service(status=A), True, id="annotation removed"),
        pytest.param(service(status=A), service(status=B), True, id="status address changed"),
        pytest.param(service(status=A), service(status=A, requested=A), False, id="status specified"),
        pytest.param(service(requested=A), service(status=A, requested=A), False, id="specification reported"),
        pytest.param(service(status=A), service({ADDRESS: A}, status=A), True, id="annotation follows the status"),
        pytest.param(service({ADDRESS: A}), service({ADDRESS: f"{A} "}), False, id="space"),
    ],
)
def test_changes_that_withdraw(before: Document, now: Document, expected: bool) -> None:
    assert is_changed(before, now, (1, 2, 3)) is expected


def with_policy(policy: str) -> Document:
    document = service({ADDRESS: A})
    document["spec"]["externalTrafficPolicy"] = policy
    return document


@pytest.mark.parametrize(
    ("changed", "since"),
    [
        pytest.param(with_policy("Local"), (1, 0, 1), id="policy"),
        pytest.param(service({ADDRESS: A, DDNS: "False"}), (1, 0, 3), id="ddns"),
        pytest.param(service({ADDRESS: A, "kube-vip.io/leaseName": "other"}), (1, 2, 3), id="leaseName"),
        pytest.param(service({ADDRESS: A, "kube-vip.io/serviceInterface": "eth1"}), (9, 0, 0), id="interface"),
    ],
)
def test_versions_compare_more_and_more_fields(changed: Document, since: Version) -> None:
    versions = [(0, 9, 2), (1, 0, 0), (1, 0, 1), (1, 0, 3), (1, 1, 2), (1, 2, 2), (1, 2, 3), NEWEST]
    found = [version for version in versions if is_changed(service({ADDRESS: A}), changed, version)]
    assert found == [version for version in versions if version >= since]


def met(document: Document, uid: str = "one") -> Document:
    return {**document, "metadata": {**document["metadata"], "uid": uid}}


def effects(reaction: Reaction, *answers: Answer) -> list[Any]:
    """Run a reaction; return its effects."""
    found: list[Any] = []
    left = list(answers)
    answer: Answer = None
    while True:
        try:
            effect = reaction.send(answer)
        except StopIteration:
            return found
        found.append(effect)
        answer = left.pop(0) if isinstance(effect, AwaitAddress | RequestLease) else None


def with_endpoint(announcer: Announcer, uid: str = "one") -> list[Any]:
    return effects(announcer.change_slice(announcer.watches[uid], endpoint_slice("192.0.2.1")))


def holders(announcer: Announcer) -> dict[str, list[str]]:
    return announcer.addresses(lambda _instance: True)


@pytest.fixture
def announcer() -> Announcer:
    return announcer_for(Settings())


def test_announces_with_the_first_endpoint(announcer: Announcer) -> None:
    (read,) = effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    assert isinstance(read, ReadSlices)
    assert effects(announcer.change_slice(announcer.watches["one"], endpoint_slice())) == []
    announced, written = with_endpoint(announcer)
    assert announced.instance.addresses == (A,)
    assert isinstance(written, WriteService)
    (withdrawn,) = effects(announcer.change_slice(announcer.watches["one"], endpoint_slice()))
    assert isinstance(withdrawn, Withdraw)
    assert len(with_endpoint(announcer)) == 1, "the Service is written once"


def test_older_event_without_address_waits_and_withdraws_nothing(announcer: Announcer) -> None:
    now = met(service({ADDRESS: A}, status=A))
    effects(announcer.change("ADDED", now))
    with_endpoint(announcer)
    (awaited,) = effects(announcer.change("MODIFIED", met(service())), now)
    assert awaited == AwaitAddress("shop/web")
    assert holders(announcer) == {A: ["shop/web"]}
    assert [type(one) for one in effects(announcer.change("MODIFIED", met(service({ADDRESS: ""}, status=A))))] == [
        Withdraw,
        ReadSlices,
    ]


def test_deletion_does_not_affect_a_recreated_service(announcer: Announcer) -> None:
    later = met(service({ADDRESS: A}, status=A), "later")
    # While it waits for the first one, it reads the later one of the same name.
    effects(announcer.change("ADDED", met(service(), "first")), later)
    with_endpoint(announcer, "later")
    for left in ({IGNORE: "true"}, {ADDRESS: ""}):
        assert effects(announcer.change("MODIFIED", met(service(left), "first"))) == []
        assert effects(announcer.delete(met(service(left), "first"))) == []
    assert holders(announcer) == {A: [key_of(later)]}
    (withdrawn,) = effects(announcer.delete(later))
    assert withdrawn.is_deleted


def test_address_of_a_service_that_is_ignored_stays_after_its_deletion(announcer: Announcer) -> None:
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    with_endpoint(announcer)
    assert effects(announcer.delete(met(service({ADDRESS: A, IGNORE: "true"})))) == []
    assert holders(announcer) == {A: ["shop/web"]}
    effects(announcer.delete_slice(announcer.watches["one"]))
    assert holders(announcer) == {}, "until its EndpointSlice is deleted"


@pytest.mark.parametrize(("version", "expected"), [((1, 2, 2), {}), ((1, 2, 3), {A: ["shop/web"]})])
def test_deletion_of_one_slice_withdraws(version: tuple[int, int, int], expected: dict[str, list[str]]) -> None:
    announcer = announcer_for(Settings(version=version))
    document = met(service({ADDRESS: A}))
    effects(announcer.change("ADDED", document))
    with_endpoint(announcer)
    effects(announcer.delete_slice(announcer.watches["one"]))
    assert holders(announcer) == {}
    effects(announcer.change("MODIFIED", document))
    with_endpoint(announcer)
    assert holders(announcer) == expected


def test_lease_is_requested_without_an_endpoint_and_written_with_one(announcer: Announcer) -> None:
    requested, _ = effects(announcer.change("ADDED", met(service({ADDRESS: "0.0.0.0"}))), B)
    assert isinstance(requested, RequestLease)
    assert holders(announcer) == {}
    _, written = with_endpoint(announcer)
    assert (written.instance.addresses, written.instance.is_leased) == ((B,), True)


def test_dhcp_server_that_does_not_respond_is_asked_again_at_the_next_event(announcer: Announcer) -> None:
    document = met(service({ADDRESS: "0.0.0.0"}))
    for _ in range(2):
        (requested,) = effects(announcer.change("MODIFIED", document), None)
        assert isinstance(requested, RequestLease)
    assert announcer.watches == {}


@pytest.mark.parametrize(
    ("version", "after_change", "after_event"),
    [((0, 9, 1), {B}, {B}), ((0, 9, 2), set(), {B}), ((1, 0, 0), set(), {B}), ((1, 1, 2), {B}, {B})],
)
def test_versions_before_1_2_announce_without_endpoints(
    version: tuple[int, int, int], after_change: set[str], after_event: set[str]
) -> None:
    announcer = announcer_for(Settings(version=version))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    assert set(holders(announcer)) == {A}
    effects(announcer.change("MODIFIED", met(service({ADDRESS: B}))))
    assert set(holders(announcer)) == after_change
    effects(announcer.change("MODIFIED", met(service({ADDRESS: B}))))
    assert set(holders(announcer)) == after_event


@pytest.mark.parametrize(("version", "expected"), [((0, 9, 2), []), ((1, 1, 1), []), ((1, 1, 2), [A])])
def test_versions_before_1_1_2_stay_silent_after_an_empty_annotation(
    version: tuple[int, int, int], expected: list[str]
) -> None:
    announcer = announcer_for(Settings(version=version))
    effects(announcer.change("ADDED", met(service({ADDRESS: ""}))))
    effects(announcer.change("MODIFIED", met(service({ADDRESS: A}))))
    assert list(holders(announcer)) == expected


@pytest.mark.parametrize(("version", "expected"), [((0, 9, 2), 0), ((1, 0, 1), 3)])
def test_changed_policy_is_read_since_1_0_1(version: tuple[int, int, int], expected: int) -> None:
    announcer = announcer_for(Settings(version=version))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    local = met(service({ADDRESS: A}))
    local["spec"]["externalTrafficPolicy"] = "Local"
    assert len(effects(announcer.change("MODIFIED", local))) == expected
    assert list(holders(announcer)) == [A], "it is announced again at once"


def test_newest_version_announces_another_address_with_the_same_event() -> None:
    announcer = announcer_for(Settings(version=NEWEST))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    with_endpoint(announcer)
    found = effects(announcer.change("MODIFIED", met(service({ADDRESS: B}))))
    assert [type(effect) for effect in found] == [Withdraw, ReadSlices]
    with_endpoint(announcer)
    assert list(holders(announcer)) == [B]


@pytest.mark.parametrize("ignored", [{}, {IGNORE: "true"}])
def test_newest_version_withdraws_at_another_type(ignored: dict[str, str]) -> None:
    announcer = announcer_for(Settings(version=NEWEST))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    with_endpoint(announcer)
    effects(announcer.change("MODIFIED", met(service({ADDRESS: A, **ignored}, kind="ClusterIP"))))
    assert holders(announcer) == {}


def test_newest_version_withdraws_an_ignored_service_that_is_deleted() -> None:
    announcer = announcer_for(Settings(version=NEWEST))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    with_endpoint(announcer)
    effects(announcer.delete_slice(announcer.watches["one"]))
    assert list(holders(announcer)) == [A], "the deletion of a slice changes nothing"
    effects(announcer.delete(met(service({ADDRESS: A, IGNORE: "true"}))))
    assert holders(announcer) == {}


def test_old_version_announces_and_withdraws_one_address_at_once() -> None:
    announcer = announcer_for(Settings(version=(1, 1, 2)))
    effects(announcer.change("ADDED", met(service({ADDRESS: A}))))
    _, again, _ = effects(announcer.change("MODIFIED", met(with_policy("Local"))))
    assert again.is_raced
    _, other, _ = effects(announcer.change("MODIFIED", met(service({ADDRESS: B}))))
    assert not other.is_raced


def test_old_version_announces_a_silent_address_without_a_race() -> None:
    announcer = announcer_for(Settings(version=(1, 1, 2)))
    for annotations in ({ADDRESS: A}, {ADDRESS: ""}, {ADDRESS: A}):
        effects(announcer.change("MODIFIED", met(service(annotations))))
    assert holders(announcer) == {}, "nothing was up when the spelling changes"
    again, _ = effects(announcer.change("MODIFIED", met(service({ADDRESS: A, DDNS: "False"}))))
    assert not again.is_raced
