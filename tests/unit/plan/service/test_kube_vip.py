"""kube-vip's two annotations: what is read from them, and what each verb does to kube-vip."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.kube_vip_names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_LEASE,
    USER_IGNORE,
)
from harvester_ccm.model.core import Service
from harvester_ccm.names import REQUESTED_ADDRESS
from harvester_ccm.plan.service.kube_vip import (
    Announcement,
    announce,
    hand_to_harvester,
    has_ignored,
    hold,
    hold_and_withdraw,
    hold_or_leave_requested,
    stays_silent,
    stripped,
    withdraw,
)
from tests.worlds.builders import ADDRESS, service

OTHER = "192.168.100.99"
IGNORED = {KUBE_VIP_IGNORE: "true"}
BY_USER = {**IGNORED, USER_IGNORE: "true"}
SILENT = {KUBE_VIP_ADDRESSES: ""}
NOTED = {KUBE_VIP_HOST: "node-a", KUBE_VIP_LEASE: "10.115.3.9"}
"""What kube-vip notes of a lease that it has."""

STATES: dict[str, tuple[dict[str, str], set[str]]] = {
    "told nothing": ({}, set()),
    "announced": ({KUBE_VIP_ADDRESSES: ADDRESS}, {"shown"}),
    "withdrawn": (SILENT, {"withdrawn"}),
    "held": ({**SILENT, **IGNORED}, {"withdrawn", "ignored", "ignored_for_us", "held"}),
    "held, and an address written since": (
        {KUBE_VIP_ADDRESSES: OTHER, **IGNORED},
        {"ignored", "ignored_for_us", "shown"},
    ),
    "ignored by the user": (BY_USER, {"ignored"}),
    "ignored by the user, and told nothing by us": ({**SILENT, **BY_USER}, {"withdrawn", "ignored"}),
    "a word that kube-vip does not know": ({KUBE_VIP_IGNORE: "True"}, set()),
}


@pytest.mark.parametrize(("annotations", "true"), STATES.values(), ids=STATES.keys())
def test_what_is_read_from_the_annotations(annotations: dict[str, str], true: set[str]) -> None:
    found = Announcement.of(service(annotations=annotations))
    words = ("shown", "withdrawn", "ignored", "ignored_for_us", "held")
    assert {word for word in words if getattr(found, word)} == true


class KubeVip:
    """What is known of kube-vip: it follows a Service event by event, and passes over those of an ignored one."""

    def __init__(self, met: Service, *, before_it_was_ignored: bool) -> None:
        self.service = met
        self.announced = ""
        if before_it_was_ignored or not Announcement.of(met).ignored:
            self.announced = self._address()

    def patch(self, annotations: Mapping[str, str | None]) -> None:
        meta = self.service.metadata
        merged = {**(meta.annotations or {}), **annotations}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.service = service(annotations=kept, ours=True, address=(*self.service.addresses, None)[0])
        if not Announcement.of(self.service).ignored:
            self.announced = self._address()

    def _address(self) -> str:
        found = Announcement.of(self.service)
        return found.address if found.address is not None else (*found.status, found.specified)[0]


@st.composite
def met_services(draw: st.DrawFn) -> tuple[Service, bool]:
    """A Service as kube-vip may have met it, and whether it may have met it before it was to ignore it."""
    annotations = draw(st.sampled_from([one for one, _ in STATES.values()]))
    met = service(
        annotations=annotations,
        ours=draw(st.booleans()),
        address=draw(st.sampled_from([None, ADDRESS])),
        spec={"loadBalancerIP": draw(st.sampled_from(["", OTHER]))},
    )
    # An address that somebody wrote on a held Service may have reached it, or the one in the status where somebody took
    # the empty annotation off; what its user had ignored never did.
    found, ours = Announcement.of(met), bool(met.metadata.finalizers)
    return met, draw(st.booleans()) if found.ignored_for_us and found.shown and ours else not found.ignored


@given(met_services())
def test_nothing_is_announced_after_a_service_went_to_harvester(case: tuple[Service, bool]) -> None:
    met, before = case
    kube_vip = KubeVip(met, before_it_was_ignored=before)
    for _ in range(2):
        kube_vip.patch(hand_to_harvester(kube_vip.service))
    assert kube_vip.announced == ""
    assert Announcement.of(kube_vip.service).ignored


@given(met_services())
def test_nothing_is_announced_after_a_withdrawal(case: tuple[Service, bool]) -> None:
    met, before = case
    ours = service(annotations=met.metadata.annotations, ours=True, address=(*met.addresses, None)[0])
    kube_vip = KubeVip(ours, before_it_was_ignored=before)
    kube_vip.patch(withdraw(ours))
    by_user = Announcement.of(ours).ignored_by_user
    assert by_user or kube_vip.announced == ""


@given(met_services())
def test_a_service_that_is_held_has_no_address_for_kube_vip(case: tuple[Service, bool]) -> None:
    met, before = case
    kube_vip = KubeVip(met, before_it_was_ignored=before)
    kube_vip.patch(hold(met))
    assert bool(met.addresses) or Announcement.of(kube_vip.service).withdrawn


@given(met_services())
def test_a_held_service_is_announced_with_the_patch_that_brings_the_address(case: tuple[Service, bool]) -> None:
    met, before = case
    kube_vip = KubeVip(met, before_it_was_ignored=before)
    kube_vip.patch(hold_and_withdraw(met))
    held = kube_vip.service
    kube_vip.patch(announce(held, ADDRESS))
    found = Announcement.of(kube_vip.service)
    assert found.address == ADDRESS
    assert not found.ignored or not Announcement.of(held).held


@pytest.mark.parametrize(("ours", "ignored"), [(True, None), (False, "true")], ids=["ours", "new to us"])
def test_what_kube_vip_may_announce_is_not_ignored(ours: bool, ignored: str | None) -> None:
    """Somebody took our annotation off and emptied the status: kube-vip would not let go of the address."""
    bare = service(annotations=NOTED, ours=ours)
    assert hold(bare) == {KUBE_VIP_ADDRESSES: "", **({KUBE_VIP_IGNORE: ignored} if ignored else {})}


@pytest.mark.parametrize("left", [{}, {KUBE_VIP_ADDRESSES: OTHER}], ids=["taken off", "written over"])
def test_a_held_service_is_announced_whatever_somebody_made_of_the_empty_annotation(left: dict[str, str]) -> None:
    held = service(annotations={**left, **IGNORED}, ours=True)
    assert announce(held, ADDRESS) == {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}


def test_an_address_left_in_the_status_of_an_ignored_service_is_withdrawn() -> None:
    """Somebody took the empty annotation off while kube-vip still waited for an address."""
    left = service(annotations=IGNORED, ours=True, address=ADDRESS)
    for way in (withdraw, hand_to_harvester):
        kube_vip = KubeVip(left, before_it_was_ignored=True)
        kube_vip.patch(way(left))
        assert kube_vip.announced == ""


def test_what_the_user_has_ignored_stays_so() -> None:
    by_user = service(annotations={KUBE_VIP_IGNORE: "true", USER_IGNORE: "true"}, ours=True)
    served = service(annotations={KUBE_VIP_IGNORE: "true"}, ours=True, address=ADDRESS)
    cleared = service(annotations={**IGNORED, KUBE_VIP_ADDRESSES: ADDRESS}, ours=True)
    for one in (by_user, served, cleared, service(annotations={KUBE_VIP_IGNORE: "true"})):
        assert KUBE_VIP_IGNORE not in announce(one, ADDRESS)


def test_a_wish_that_kube_vip_announces_is_left_to_it() -> None:
    asked = service(annotations={KUBE_VIP_ADDRESSES: OTHER})
    assert hold_or_leave_requested(asked) == {REQUESTED_ADDRESS: OTHER}
    assert hold(asked) == {KUBE_VIP_ADDRESSES: "", REQUESTED_ADDRESS: OTHER}


def test_the_word_of_the_user_is_kept() -> None:
    asked = service(annotations=IGNORED)
    assert hold(asked)[USER_IGNORE] == "true"
    assert announce(service(annotations={**SILENT, **BY_USER}), ADDRESS) == {KUBE_VIP_ADDRESSES: ADDRESS}


def test_only_the_patch_that_has_a_service_ignored_must_not_meet_another_one() -> None:
    assert has_ignored(IGNORED)
    assert not has_ignored({KUBE_VIP_IGNORE: None})
    assert not has_ignored(SILENT)


@pytest.mark.parametrize(
    ("annotations", "address", "late"),
    [
        ({}, None, None),
        ({KUBE_VIP_HOST: "node-a"}, None, True),
        ({KUBE_VIP_ADDRESSES: ADDRESS}, ADDRESS, None),
        ({KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_HOST: "node-a"}, None, None),
        ({KUBE_VIP_ADDRESSES: OTHER}, OTHER, True),
        (SILENT, ADDRESS, True),
        (SILENT, None, True),
        ({**SILENT, **IGNORED}, ADDRESS, None),
        ({**SILENT, **IGNORED, KUBE_VIP_HOST: "node-a"}, ADDRESS, True),
        ({**SILENT, **BY_USER, KUBE_VIP_HOST: "node-a"}, ADDRESS, None),
    ],
    ids=[
        "new",
        "announced before",
        "announced",
        "shown already",
        "another one",
        "withdrawn",
        "withdrawn before it was noted",
        "never",
        "since Harvester",
        "not for kube-vip",
    ],
)
def test_who_let_an_address_go_waits_for_the_endpoints(
    annotations: dict[str, str], address: str | None, late: bool | None
) -> None:
    assert stays_silent(service(annotations=annotations, address=address), ADDRESS) == bool(late)


@pytest.mark.parametrize(
    ("found", "address", "words"),
    [
        pytest.param(service(ours=True, address=ADDRESS), ADDRESS, "stops announcing", id="taken off"),
        pytest.param(service(ours=True, address=ADDRESS), "", "announces the address as well", id="of a VM LB"),
        pytest.param(service(ours=True, address=ADDRESS, annotations=IGNORED), ADDRESS, "", id="kube-vip is kept away"),
        pytest.param(service(ours=True, address=ADDRESS, annotations=SILENT), "", "", id="still there"),
        pytest.param(service(ours=True, address=OTHER), ADDRESS, "", id="the address changes"),
        pytest.param(service(ours=True), ADDRESS, "", id="not served yet"),
        pytest.param(service(address=ADDRESS), ADDRESS, "", id="not ours yet"),
        pytest.param(
            service(ours=True, address=ADDRESS, spec={"loadBalancerIP": ADDRESS}), ADDRESS, "", id="never written"
        ),
    ],
)
def test_annotations_that_were_taken_off_are_told(found: Service, address: str, words: str) -> None:
    event = stripped(found, address)
    assert (event is not None) == bool(words)
    assert event is None or words in event.message


@pytest.mark.parametrize("again", [False, True])
def test_an_annotation_that_is_set_again_has_kube_vip_look_at_the_service(*, again: bool) -> None:
    # It let go of the address when the annotation went, though the status has shown it all the time.
    noted = {KUBE_VIP_HOST: "node-1"} if again else {KUBE_VIP_HOST: "node-1", KUBE_VIP_ADDRESSES: ADDRESS}
    assert stays_silent(service(ours=True, address=ADDRESS, annotations=noted), ADDRESS) == again
