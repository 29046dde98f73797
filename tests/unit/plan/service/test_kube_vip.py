"""What kube-vip reads on a Service, and the annotations by which it does what a plan intends."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm import names
from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_DDNS,
    KUBE_VIP_HARDWARE,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    LEASE_NOTE_OUTDATED,
    REQUESTED_ADDRESS,
    REQUESTED_FOR,
    SPECIFIED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service import kube_vip
from harvester_ccm.plan.service.kube_vip import (
    GIVE_UP,
    LEAVE,
    PAUSE,
    Annotations,
    Announce,
    Delegate,
    GiveUp,
    Intent,
    KubeVip,
    Mode,
    Release,
    Withdraw,
    annotations_for,
    compared_fields,
    complete,
    end_of_specification,
    intent_needs_resync,
    is_withdrawn_by_change,
    leases_of,
    makes_ignored,
    mark_of_notes,
    needs_resync,
    overwritten_address,
    read_state,
    record_for,
    request_again,
)
from tests.support.builders import ADDRESS, SUPPRESSED, served, service
from tests.unit.plan.service.snapshots import conditioned

OTHER: Final = "10.0.0.9"
ANNOTATED: Final = {KUBE_VIP_ADDRESSES: ADDRESS}
IGNORED: Final = {KUBE_VIP_IGNORE: "true"}
SPECIFIED: Final = {"loadBalancerIP": ADDRESS}


class Effect(NamedTuple):
    """The annotations to write, and whether the endpoints must be touched after that."""

    annotations: Annotations
    touches: bool = False


NOTHING: Final = Effect({})
PAUSES: Final = Effect(SUPPRESSED)
ANNOUNCES: Final = Effect({KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None})
ANNOUNCES_AGAIN: Final = Effect({KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}, touches=True)
UNIGNORES: Final = Effect({KUBE_VIP_IGNORE: None})
WITHDRAWN: Final = {KUBE_VIP_ADDRESSES: ""}
WITHDRAWS: Final = Effect(WITHDRAWN, touches=True)
WITHDRAWS_VISIBLY: Final = Effect({KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}, touches=True)
"""kube-vip sees the withdrawal only if it does not ignore the Service."""
PAUSES_VISIBLY: Final = Effect({KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None})
PAUSES_WITH_TOUCH: Final = Effect(SUPPRESSED, touches=True)


class Row(NamedTuple):
    """A Service, and what each intent results in."""

    service: Service
    mode: Mode
    pause: Effect
    announce: Effect
    """With ``ADDRESS``."""
    withdraw: Effect
    delegate: Effect


STATES: dict[str, Row] = {
    "nothing to read": Row(service(ours=True), Mode.NOTHING_TO_READ, PAUSES, ANNOUNCES, NOTHING, PAUSES),
    "nothing to read, ignored": Row(
        service(ours=True, annotations=IGNORED), Mode.NOTHING_TO_READ, PAUSES, ANNOUNCES, NOTHING, PAUSES
    ),
    "nothing to read, after an announcement": Row(
        service(ours=True, annotations={KUBE_VIP_HOST: "n1"}),
        Mode.NOTHING_TO_READ,
        PAUSES_VISIBLY,
        WITHDRAWS_VISIBLY,
        NOTHING,
        PAUSES_VISIBLY,
    ),
    "nothing to read, with a condition": Row(
        conditioned(Reason.NO_MATCHING_POOL),
        Mode.NOTHING_TO_READ,
        PAUSES_VISIBLY,
        WITHDRAWS_VISIBLY,
        NOTHING,
        PAUSES_VISIBLY,
    ),
    "nothing to read, ignored, with a condition": Row(
        conditioned(Reason.BACKENDS_UNHEALTHY, annotations=IGNORED),
        Mode.NOTHING_TO_READ,
        PAUSES_VISIBLY,
        WITHDRAWS_VISIBLY,
        NOTHING,
        PAUSES_VISIBLY,
    ),
    "an address requested in the annotation, after another type": Row(
        service(ours=True, annotations={REQUESTED_FOR: "u-1"}),
        Mode.NOTHING_TO_READ,
        PAUSES_VISIBLY,
        WITHDRAWS_VISIBLY,
        NOTHING,
        PAUSES_VISIBLY,
    ),
    "an address requested in the specification, after another type": Row(
        service(ours=True, annotations={SPECIFIED_ADDRESS: ADDRESS}),
        Mode.NOTHING_TO_READ,
        PAUSES_VISIBLY,
        WITHDRAWS_VISIBLY,
        NOTHING,
        PAUSES_VISIBLY,
    ),
    "address in the annotation": Row(
        service(ours=True, annotations=ANNOTATED), Mode.READS_ADDRESS, WITHDRAWS, NOTHING, WITHDRAWS, WITHDRAWS
    ),
    "address in the annotation and the status": Row(
        served(), Mode.READS_ADDRESS, NOTHING, NOTHING, WITHDRAWS, WITHDRAWS
    ),
    "address in the specification": Row(
        service(ours=True, spec=SPECIFIED), Mode.READS_ADDRESS, WITHDRAWS, UNIGNORES, WITHDRAWS, WITHDRAWS
    ),
    "address in the status": Row(
        service(ours=True, address=ADDRESS), Mode.READS_ADDRESS, NOTHING, WITHDRAWS_VISIBLY, WITHDRAWS, WITHDRAWS
    ),
    "another address": Row(
        service(ours=True, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        Mode.READS_ADDRESS,
        WITHDRAWS,
        ANNOUNCES_AGAIN,
        WITHDRAWS,
        WITHDRAWS,
    ),
    "another address, in the status as well": Row(
        service(ours=True, address=OTHER, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        Mode.READS_ADDRESS,
        NOTHING,
        ANNOUNCES_AGAIN,
        WITHDRAWS,
        WITHDRAWS,
    ),
    "withdrawn": Row(
        service(ours=True, annotations=WITHDRAWN), Mode.WITHDRAWN, NOTHING, ANNOUNCES_AGAIN, NOTHING, NOTHING
    ),
    "withdrawn, address in the status": Row(
        service(ours=True, address=ADDRESS, annotations=WITHDRAWN),
        Mode.WITHDRAWN,
        NOTHING,
        ANNOUNCES_AGAIN,
        NOTHING,
        PAUSES,
    ),
    "withdrawn, address in the specification": Row(
        service(ours=True, spec=SPECIFIED, annotations=WITHDRAWN),
        Mode.WITHDRAWN,
        NOTHING,
        ANNOUNCES_AGAIN,
        NOTHING,
        NOTHING,
    ),
    "paused": Row(service(ours=True, annotations=SUPPRESSED), Mode.PAUSED, NOTHING, ANNOUNCES, NOTHING, PAUSES),
    "paused, address in the status": Row(
        service(ours=True, address=ADDRESS, annotations=SUPPRESSED),
        Mode.PAUSED,
        NOTHING,
        ANNOUNCES_AGAIN,
        NOTHING,
        PAUSES,
    ),
    "paused, waits for its first address": Row(
        conditioned(Reason.NO_MATCHING_POOL, annotations=SUPPRESSED), Mode.PAUSED, NOTHING, ANNOUNCES, NOTHING, PAUSES
    ),
    "paused, address was removed from the status": Row(
        conditioned(Reason.BACKENDS_UNHEALTHY, annotations=SUPPRESSED),
        Mode.PAUSED,
        UNIGNORES,
        ANNOUNCES_AGAIN,
        NOTHING,
        PAUSES,
    ),
    "paused, without the finalizer": Row(
        service(annotations=SUPPRESSED), Mode.PAUSED, NOTHING, ANNOUNCES, NOTHING, PAUSES
    ),
    "address in the annotation, ignored": Row(
        service(ours=True, annotations={**ANNOTATED, **IGNORED}),
        Mode.IGNORES_ADDRESS,
        WITHDRAWS_VISIBLY,
        NOTHING,
        WITHDRAWS_VISIBLY,
        WITHDRAWS_VISIBLY,
    ),
    "address in the annotation and the status, ignored": Row(
        served(annotations=IGNORED),
        Mode.IGNORES_ADDRESS,
        NOTHING,
        NOTHING,
        WITHDRAWS_VISIBLY,
        WITHDRAWS_VISIBLY,
    ),
    "another address in the annotation than in the status, ignored": Row(
        served(annotations={**IGNORED, KUBE_VIP_ADDRESSES: OTHER}),
        Mode.IGNORES_ADDRESS,
        WITHDRAWS_VISIBLY,
        ANNOUNCES_AGAIN,
        WITHDRAWS_VISIBLY,
        WITHDRAWS_VISIBLY,
    ),
    "address in the specification, ignored": Row(
        service(ours=True, spec=SPECIFIED, annotations=IGNORED),
        Mode.IGNORES_ADDRESS,
        WITHDRAWS_VISIBLY,
        UNIGNORES,
        WITHDRAWS_VISIBLY,
        WITHDRAWS_VISIBLY,
    ),
    "address in the annotation, ignored by a user": Row(
        service(annotations={**ANNOTATED, **IGNORED}),
        Mode.IGNORED_BY_USER,
        WITHDRAWS,
        NOTHING,
        WITHDRAWS,
        PAUSES_WITH_TOUCH,
    ),
    "address in the specification, ignored by a user": Row(
        service(spec=SPECIFIED, annotations=IGNORED),
        Mode.IGNORED_BY_USER,
        WITHDRAWS,
        UNIGNORES,
        WITHDRAWS,
        PAUSES_WITH_TOUCH,
    ),
}


def differences(service: Service, annotations: Annotations) -> Annotations:
    """Return the annotations that a patch has to change."""
    present = service.metadata.annotations or {}
    return {key: value for key, value in annotations.items() if present.get(key) != value}


@pytest.mark.parametrize("row", STATES.values(), ids=STATES.keys())
def test_intent(row: Row) -> None:
    state = read_state(row.service)
    assert state.mode is row.mode
    intents: dict[str, Intent] = {
        "pause": PAUSE,
        "announce": Announce(ADDRESS),
        "withdraw": Withdraw(),
        "delegate": Delegate(),
    }
    effects = {
        name: Effect(annotations_for(state, intent), intent_needs_resync(state, intent))
        for name, intent in intents.items()
    }
    assert effects == {name: getattr(row, name) for name in intents}


def test_every_mode_has_a_row() -> None:
    assert {row.mode for row in STATES.values()} == set(Mode)


@pytest.mark.parametrize("row", STATES.values(), ids=STATES.keys())
def test_intents_that_do_not_depend_on_the_state(row: Row) -> None:
    state = read_state(row.service)
    effects: dict[str, tuple[Intent, Effect]] = {
        "leave": (LEAVE, NOTHING),
        "release": (Release(was_announced=True), Effect({KUBE_VIP_ADDRESSES: None, KUBE_VIP_IGNORE: None})),
        "release of another controller": (Release(was_announced=False), NOTHING),
    }
    for intent, effect in effects.values():
        assert Effect(annotations_for(state, intent), intent_needs_resync(state, intent)) == effect


@pytest.mark.parametrize("row", STATES.values(), ids=STATES.keys())
def test_service_that_loses_its_address_is_not_ignored(row: Row) -> None:
    state = read_state(row.service)
    expected = Effect({**row.withdraw.annotations, KUBE_VIP_IGNORE: None}, row.withdraw.touches)
    assert Effect(annotations_for(state, GIVE_UP), intent_needs_resync(state, GIVE_UP)) == expected


def patched(service_before: Service, annotations: Annotations) -> Service:
    """Return the Service after a patch of its annotations."""
    merged = {**(service_before.metadata.annotations or {}), **annotations}
    return service(
        ours=bool(service_before.metadata.finalizers),
        address=service_before.addresses[0] if service_before.addresses else None,
        spec={"loadBalancerIP": service_before.spec.load_balancer_ip},
        annotations={key: value for key, value in merged.items() if value is not None},
    )


@pytest.mark.parametrize(
    "intent", [PAUSE, Announce(ADDRESS), Withdraw(), Delegate()], ids=lambda intent: type(intent).__name__
)
@pytest.mark.parametrize("row", STATES.values(), ids=STATES.keys())
def test_intent_is_carried_out_after_at_most_two_patches(row: Row, intent: Intent) -> None:
    current, patches = row.service, 0
    while change := differences(current, annotations_for(read_state(current), intent)):
        current, patches = patched(current, change), patches + 1
        assert patches <= 2
    reached = read_state(current).mode
    expected = {
        # Without an address in the status, kube-vip ignores the Service after the next one.
        Delegate: {Mode.PAUSED} if current.addresses else {Mode.PAUSED, Mode.WITHDRAWN},
        Withdraw: {Mode.WITHDRAWN, Mode.PAUSED, Mode.NOTHING_TO_READ},
        # An address in the status stays announced, also if a user has set ``ignore`` since.
        type(PAUSE): {Mode.WITHDRAWN, Mode.PAUSED, Mode.READS_ADDRESS, Mode.IGNORES_ADDRESS},
        # If ``ignore`` is present next to the address, a user has set it.
        Announce: {Mode.READS_ADDRESS, Mode.IGNORES_ADDRESS, Mode.IGNORED_BY_USER},
    }
    assert reached in expected[type(intent)]


DEVICES: dict[str, tuple[str | None, Annotations]] = {
    "the one that is annotated": (None, {}),
    "a device": ("eth1", {KUBE_VIP_INTERFACE: "eth1"}),
    "kube-vip's default device": ("", {KUBE_VIP_INTERFACE: None}),
}


@pytest.mark.parametrize(("device", "expected"), DEVICES.values(), ids=DEVICES.keys())
def test_device(device: str | None, expected: Annotations) -> None:
    state = read_state(served(annotations={KUBE_VIP_INTERFACE: "bond7"}))
    assert state.device == "bond7"
    intents: tuple[Intent, ...] = (
        Announce(ADDRESS, device),
        Withdraw(device),
        GiveUp(device),
        Delegate(device),
        Release(was_announced=False, device=device),
    )
    for intent in intents:
        written = annotations_for(state, intent)
        assert {key: value for key, value in written.items() if key == KUBE_VIP_INTERFACE} == expected


OF_ANOTHER_CLIENT: Final = {**ANNOTATED, **IGNORED}
"""The address that another client wrote, on a Service that this controller has paused."""


@pytest.mark.parametrize("address", [None, ADDRESS], ids=["no status", "status of kube-vip"])
def test_first_announcement_removes_the_ignore_of_the_pause(address: str | None) -> None:
    state = read_state(service(ours=True, address=address, annotations=OF_ANOTHER_CLIENT))
    first = Announce(ADDRESS, is_first=True)
    assert annotations_for(state, first) == {KUBE_VIP_IGNORE: None}
    assert record_for(state, first, "") == {ANNOUNCED_AS: state.compared}


def test_ignore_that_a_user_set_after_the_announcement_stays() -> None:
    published = {**OF_ANOTHER_CLIENT, ANNOUNCED_AS: compared_fields(service())}
    state = read_state(service(ours=True, annotations=published))
    assert annotations_for(state, Announce(ADDRESS, is_first=True)) == {}


def test_dhcp_is_announced_by_its_placeholder() -> None:
    assert annotations_for(read_state(service()), Announce(DHCP_ADDRESS)) == {
        KUBE_VIP_ADDRESSES: DHCP_ADDRESS,
        KUBE_VIP_IGNORE: None,
    }


READ: dict[str, tuple[Service, str]] = {
    "nothing": (service(), ""),
    "annotation first": (served(address=OTHER, spec={"loadBalancerIP": "10.0.0.7"}), ADDRESS),
    "an empty annotation hides the others": (served(annotations={KUBE_VIP_ADDRESSES: ""}, spec=SPECIFIED), ""),
    "then the specification": (service(address=OTHER, spec=SPECIFIED), ADDRESS),
    "then the status": (service(address=ADDRESS), ADDRESS),
    "first address of the status": (service(status={"ingress": [{"ip": ADDRESS}, {"ip": OTHER}]}), ADDRESS),
}


@pytest.mark.parametrize(("read", "address"), READ.values(), ids=READ.keys())
def test_address_that_kube_vip_reads(read: Service, address: str) -> None:
    assert read_state(read).read_address == address


def test_facts_are_read_once() -> None:
    state = read_state(
        served(
            spec={"loadBalancerIP": "10.0.0.7"},
            annotations={
                REQUESTED_ADDRESS: " 10.0.0.8 ",
                REQUESTED_FOR: "a-uid",
                SPECIFIED_ADDRESS: "10.0.0.7",
                KUBE_VIP_HOST: "n1",
                KUBE_VIP_LEASE: "10.0.0.5",
                KUBE_VIP_HARDWARE: "02:00:00:00:00:01",
                LEASE_NOTE_OUTDATED: "true",
                KUBE_VIP_INTERFACE: "eth1",
                KUBE_VIP_DDNS: "true",
                ANNOUNCED_AS: "Local IPv4 SingleStack",
            },
        )
    )
    assert state == KubeVip(
        mode=Mode.READS_ADDRESS,
        annotated=ADDRESS,
        status=(ADDRESS,),
        specified="10.0.0.7",
        requested="10.0.0.8",
        requested_for="a-uid",
        only_specified="10.0.0.7",
        ignored=False,
        device="eth1",
        node="n1",
        noted_leases=("10.0.0.5",),
        has_dhcp_interface=True,
        ddns="true",
        is_note_outdated=True,
        is_noted=True,
        had_address=True,
        compared="Cluster IPv4 SingleStack DDNS",
        announced_as="Local IPv4 SingleStack",
    )


DUAL: Final = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}
COMPARED: dict[str, tuple[Service, str]] = {
    "defaults": (service(), "Cluster IPv4 SingleStack"),
    "defaults of an API server": (
        service(
            spec={"externalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
            annotations={KUBE_VIP_DDNS: "False"},
        ),
        "Cluster IPv4 SingleStack",
    ),
    "everything else": (
        service(spec={"externalTrafficPolicy": "Local", **DUAL}, annotations={KUBE_VIP_DDNS: "true"}),
        "Local IPv4,IPv6 PreferDualStack DDNS",
    ),
    "a text that is no value": (service(annotations={KUBE_VIP_DDNS: "x" * 100_000}), "Cluster IPv4 SingleStack"),
}


@pytest.mark.parametrize(("compared", "expected"), COMPARED.values(), ids=COMPARED.keys())
def test_fields_that_kube_vip_compares(compared: Service, expected: str) -> None:
    assert compared_fields(compared) == read_state(compared).compared == expected


def test_only_the_beginning_of_a_record_is_read() -> None:
    assert read_state(service(annotations={ANNOUNCED_AS: "x" * 100_000})).announced_as == "x" * 100


LOCAL: Final = "Local IPv4 SingleStack"
"""A record that differs from the fields of the Services here."""
SAME: Final = "Cluster IPv4 SingleStack"
CHANGED: dict[str, tuple[Service, str, bool]] = {
    "not known": (served(), "", False),
    "the same": (served(), SAME, False),
    "another policy": (served(), LOCAL, True),
    "another policy, announced by the specification": (
        service(ours=True, address=ADDRESS, spec=SPECIFIED, condition=False),
        LOCAL,
        True,
    ),
    "another policy, which kube-vip does not see": (served(annotations=IGNORED), LOCAL, False),
    "withdrawn": (service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ""}), LOCAL, False),
    "another address": (served(annotations={KUBE_VIP_ADDRESSES: OTHER}), LOCAL, False),
    "not published yet": (service(annotations=SUPPRESSED), LOCAL, False),
}


@pytest.mark.parametrize(("changed", "announced_as", "expected"), CHANGED.values(), ids=CHANGED.keys())
def test_kube_vip_withdraws_an_address_when_another_field_changes(
    changed: Service, announced_as: str, expected: bool
) -> None:
    state = read_state(changed)
    assert is_withdrawn_by_change(state, ADDRESS, announced_as) is expected
    if expected:
        # kube-vip before 1.0 would stay silent after an empty annotation.
        assert KUBE_VIP_ADDRESSES not in annotations_for(state, Announce(ADDRESS))


SPECIFIED_ONLY: Final = {SPECIFIED_ADDRESS: ADDRESS}
FROM_SPECIFICATION: dict[str, tuple[Service, bool]] = {
    "a new Service": (service(spec=SPECIFIED), True),
    "noted": (conditioned(Reason.ENSURED, spec=SPECIFIED, annotations=SPECIFIED_ONLY), True),
    "another client removed the annotation": (conditioned(Reason.ENSURED, spec=SPECIFIED), False),
    "the same, and the user requests the address twice": (
        conditioned(Reason.ENSURED, spec=SPECIFIED, annotations={REQUESTED_ADDRESS: ADDRESS}),
        False,
    ),
    "the user specifies another address since": (
        conditioned(Reason.ENSURED, spec=SPECIFIED, annotations={SPECIFIED_ADDRESS: OTHER}),
        False,
    ),
    "annotation": (service(spec=SPECIFIED, annotations={**ANNOTATED, **SPECIFIED_ONLY}), False),
}


@pytest.mark.parametrize(("of", "expected"), FROM_SPECIFICATION.values(), ids=FROM_SPECIFICATION.keys())
def test_address_that_kube_vip_never_had_from_the_annotation(of: Service, *, expected: bool) -> None:
    assert read_state(of).takes_from_specification(ADDRESS) is expected


@pytest.mark.parametrize(
    ("of", "written", "ends"),
    [
        (service(spec=SPECIFIED), {}, False),
        (service(spec=SPECIFIED), {KUBE_VIP_IGNORE: None}, False),
        (service(spec=SPECIFIED), WITHDRAWN, True),
        (service(spec=SPECIFIED), ANNOTATED, True),
        (service(spec=SPECIFIED, annotations=ANNOTATED), {}, True),
        (service(spec=SPECIFIED, annotations=ANNOTATED), {KUBE_VIP_ADDRESSES: None}, False),
    ],
)
def test_annotation_ends_the_note_about_the_specification(of: Service, written: Annotations, *, ends: bool) -> None:
    expected = {SPECIFIED_ADDRESS: None} if ends else {}
    assert end_of_specification(read_state(of), written) == expected


WITH_RECORD: Final = {ANNOUNCED_AS: SAME}
WITHOUT_RECORD: Final = {ANNOUNCED_AS: None}
RECORDS: dict[str, tuple[Service, Intent, str, Annotations]] = {
    "publication": (service(annotations=SUPPRESSED), Announce(ADDRESS), "", WITH_RECORD),
    "publication of the address in the specification": (service(spec=SPECIFIED), Announce(ADDRESS), "", WITH_RECORD),
    "announced from the specification before the controller": (
        service(spec=SPECIFIED, address=ADDRESS, annotations=SPECIFIED_ONLY),
        Announce(ADDRESS),
        "",
        WITH_RECORD,
    ),
    "announced from the specification, and recorded": (
        service(spec=SPECIFIED, address=ADDRESS, annotations={**SPECIFIED_ONLY, ANNOUNCED_AS: SAME}),
        Announce(ADDRESS),
        SAME,
        {},
    ),
    "announced from the user's annotation before the controller": (
        service(address=ADDRESS, annotations={**ANNOTATED, REQUESTED_ADDRESS: ADDRESS, REQUESTED_FOR: "uid"}),
        Announce(ADDRESS),
        "",
        WITH_RECORD,
    ),
    "second announcement": (served(), Announce(ADDRESS), LOCAL, WITH_RECORD),
    "nothing changed": (served(), Announce(ADDRESS), SAME, {}),
    "no record, as of the Go provider": (served(condition=False), Announce(ADDRESS), "", {}),
    "withdrawal before the announcement": (
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_HOST: "n1"}),
        Announce(ADDRESS),
        SAME,
        WITHOUT_RECORD,
    ),
    "withdrawal": (served(), Withdraw(), SAME, WITHOUT_RECORD),
    "address of Harvester": (served(), Delegate(), SAME, WITHOUT_RECORD),
    "waits for an address": (service(), PAUSE, "", WITHOUT_RECORD),
    "keeps an address": (served(), PAUSE, SAME, {}),
    "release": (served(), Release(was_announced=True), SAME, WITHOUT_RECORD),
    "release of another controller": (served(), Release(was_announced=False), SAME, WITHOUT_RECORD),
    "nothing": (served(), LEAVE, SAME, {}),
}


@pytest.mark.parametrize(("of", "intent", "announced_as", "expected"), RECORDS.values(), ids=RECORDS.keys())
def test_record_of_the_fields(of: Service, intent: Intent, announced_as: str, expected: Annotations) -> None:
    assert record_for(read_state(of), intent, announced_as) == expected


@pytest.mark.parametrize("value", ["", "false", "True", "1", " true"])
def test_only_true_makes_kube_vip_ignore_a_service(value: str) -> None:
    assert not read_state(service(annotations={KUBE_VIP_IGNORE: value})).ignored
    assert not makes_ignored({KUBE_VIP_IGNORE: value})


def test_patch_after_which_kube_vip_ignores_the_service_is_known() -> None:
    assert makes_ignored(SUPPRESSED)
    assert not makes_ignored({KUBE_VIP_IGNORE: None})
    assert not makes_ignored({})


@pytest.mark.parametrize("mode", Mode)
def test_modes_in_which_kube_vip_may_announce(mode: Mode) -> None:
    states = [read_state(row.service) for row in STATES.values() if row.mode is mode]
    may_announce = mode in {Mode.READS_ADDRESS, Mode.IGNORES_ADDRESS}
    assert {state.may_announce for state in states} == {may_announce}
    assert all(state.is_paused is (mode is Mode.PAUSED) for state in states)


SILENT: dict[str, tuple[Service, bool]] = {
    "a new Service": (service(), False),
    "a new Service, paused": (service(annotations=SUPPRESSED), False),
    "it announces the address": (served(), False),
    "it announced and withdrew one": (service(annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"}), True),
    "it may have announced and withdrawn one": (service(annotations=WITHDRAWN), True),
    "it announced and withdrew one, paused": (service(annotations={**SUPPRESSED, KUBE_VIP_HOST: "n1"}), True),
    "Harvester announces one": (service(address=ADDRESS, annotations=SUPPRESSED), True),
    "it announces another one": (service(annotations={KUBE_VIP_ADDRESSES: OTHER}), True),
    "it ignores another one": (service(annotations={KUBE_VIP_ADDRESSES: OTHER, **IGNORED}), False),
    "the specification has the address": (service(spec=SPECIFIED), False),
    "the specification has the address, after an announcement": (
        service(spec=SPECIFIED, address=ADDRESS, annotations={KUBE_VIP_HOST: "n1"}),
        False,
    ),
    "the specification has another one": (service(spec={"loadBalancerIP": OTHER}), True),
    "the specification has the address, withdrawn": (service(spec=SPECIFIED, annotations=WITHDRAWN), True),
    "only the status has the address": (service(address=ADDRESS), True),
    "another client removed the annotation and the status": (conditioned(Reason.ENSURED), True),
    "Harvester announced one, which another client removed": (
        conditioned(Reason.ENSURED, annotations=SUPPRESSED),
        True,
    ),
    "it withdrew one for a switch, which another client removed": (
        conditioned(Reason.REPLACEMENT_PENDING, annotations=SUPPRESSED),
        True,
    ),
    "no node was noted for one, which another client removed": (
        conditioned(Reason.NOT_ANNOUNCED, annotations=SUPPRESSED),
        True,
    ),
    "a paused Service waits for its first address": (
        conditioned(Reason.POOL_EXHAUSTED, annotations=SUPPRESSED),
        False,
    ),
}


@pytest.mark.parametrize(("silent", "expected"), SILENT.values(), ids=SILENT.keys())
def test_kube_vip_stays_silent_after_a_withdrawal(silent: Service, *, expected: bool) -> None:
    state = read_state(silent)
    assert needs_resync(state, ADDRESS) is expected
    assert intent_needs_resync(state, Announce(ADDRESS)) is expected


DIFFERING: dict[str, tuple[Annotations, Annotations, Annotations]] = {
    "nothing differs": ({}, {KUBE_VIP_ADDRESSES: ""}, {}),
    "a withdrawal": (WITHDRAWN, WITHDRAWN, {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None}),
    "a visible withdrawal": (
        {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None},
        {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None},
        {KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: None},
    ),
    "a pause": (SUPPRESSED, SUPPRESSED, SUPPRESSED),
    "a pause of a Service that kube-vip ignores": (WITHDRAWN, SUPPRESSED, WITHDRAWN),
    "an announcement": (ANNOTATED, ANNOUNCES.annotations, ANNOTATED),
    "other annotations": ({"a": "1"}, {"a": "1"}, {"a": "1"}),
}


@pytest.mark.parametrize(("differing", "wanted", "expected"), DIFFERING.values(), ids=DIFFERING.keys())
def test_patch_that_withdraws_an_address_removes_ignore(
    differing: Annotations, wanted: Annotations, expected: Annotations
) -> None:
    assert complete(differing, wanted) == expected


BY_DHCP: Final = {KUBE_VIP_ADDRESSES: DHCP_ADDRESS}
NOTED: Final = {**BY_DHCP, KUBE_VIP_HOST: "n1", KUBE_VIP_HARDWARE: "02:00:00:00:00:01", KUBE_VIP_LEASE: OTHER}
OUTDATED: Final = {**NOTED, LEASE_NOTE_OUTDATED: "true"}
TWO_FAMILIES: Final = {"ingress": [{"ip": OTHER}, {"ip": "fd00::1"}]}
LEASES: dict[str, tuple[Service, str, tuple[str, ...]]] = {
    "none": (service(annotations=BY_DHCP), "", ()),
    "in the status": (service(annotations=NOTED, address=OTHER), "", (OTHER,)),
    "in the status, not announced by a node": (
        service(annotations={**BY_DHCP, KUBE_VIP_LEASE: OTHER}, address=OTHER),
        "",
        (OTHER,),
    ),
    "in the status, not noted": (service(annotations=BY_DHCP, address=ADDRESS), "", ()),
    "in the status, the note was outdated": (service(annotations=OUTDATED, address=OTHER), "", (OTHER,)),
    "in the status, kube-vip takes 0.0.0.0 from the specification": (
        service(spec={"loadBalancerIP": DHCP_ADDRESS}, annotations={KUBE_VIP_LEASE: OTHER}, address=OTHER),
        "",
        (OTHER,),
    ),
    "in the status, withdrawn": (service(annotations={**NOTED, KUBE_VIP_ADDRESSES: ""}, address=OTHER), "", ()),
    "in the status and recorded, withdrawn": (
        service(annotations={**NOTED, KUBE_VIP_ADDRESSES: ""}, address=OTHER),
        OTHER,
        (OTHER,),
    ),
    "in the status, another address is announced": (
        service(annotations={**NOTED, KUBE_VIP_ADDRESSES: ADDRESS}, address=OTHER),
        "",
        (),
    ),
    "in the status, no annotation of kube-vip": (service(annotations={KUBE_VIP_LEASE: OTHER}, address=OTHER), "", ()),
    "in the status, recorded, the note was changed": (service(annotations=NOTED, address=ADDRESS), ADDRESS, (ADDRESS,)),
    "in the status, recorded, the note was removed": (
        service(annotations={**BY_DHCP, KUBE_VIP_HOST: "n1"}, address=ADDRESS),
        ADDRESS,
        (ADDRESS,),
    ),
    "one of each family": (
        service(annotations={**NOTED, KUBE_VIP_LEASE: f"{OTHER}, FD00:0::1"}, status=TWO_FAMILIES),
        "",
        (OTHER, "fd00::1"),
    ),
    "one family, the other one is noted": (
        service(annotations={**NOTED, KUBE_VIP_LEASE: f"{OTHER},fd00::1"}, address=OTHER),
        "",
        (OTHER,),
    ),
    "one beside the address of a gateway": (service(annotations=NOTED, status=TWO_FAMILIES), "", (OTHER,)),
    "renewed, the status has the earlier one": (service(annotations=NOTED, address=ADDRESS), ADDRESS, (ADDRESS,)),
    "renewed, the status has the next one": (service(annotations=NOTED, address=OTHER), ADDRESS, (OTHER,)),
    "noted, the status was changed": (service(annotations=NOTED, address=ADDRESS), "", (OTHER,)),
    "noted and recorded, the status was changed": (service(annotations=NOTED, address=ADDRESS), OTHER, (OTHER,)),
    "noted, the status was emptied": (service(annotations=NOTED), "", (OTHER,)),
    "recorded, the status was emptied": (service(annotations={**BY_DHCP, KUBE_VIP_HOST: "n1"}), OTHER, (OTHER,)),
    "recorded, the cluster was restored to the time before the lease": (service(annotations=BY_DHCP), OTHER, ()),
    "recorded, another one is noted, the status was emptied": (service(annotations=NOTED), ADDRESS, (OTHER,)),
    "recorded, another one is noted without a node, the status was emptied": (
        service(annotations={**BY_DHCP, KUBE_VIP_LEASE: OTHER, KUBE_VIP_HARDWARE: "02:00:00:00:00:01"}),
        ADDRESS,
        (),
    ),
    "noted before the load balancer": (service(annotations=OUTDATED), "", ()),
    "noted and recorded before the load balancer": (service(annotations=OUTDATED), OTHER, ()),
    "noted before the load balancer, the status was changed": (service(annotations=OUTDATED, address=ADDRESS), "", ()),
    "noted before the load balancer, withdrawn": (
        service(annotations={**OUTDATED, KUBE_VIP_ADDRESSES: ""}, address=OTHER),
        "",
        (),
    ),
    "requested by a user": (service(annotations={**BY_DHCP, KUBE_VIP_LEASE: OTHER}), "", ()),
    "requested by a user, announced before": (
        service(annotations={**BY_DHCP, KUBE_VIP_LEASE: OTHER, KUBE_VIP_HOST: "n1"}),
        "",
        (),
    ),
    "noted, withdrawn": (service(annotations={**NOTED, KUBE_VIP_ADDRESSES: ""}), "", ()),
    "noted, no address": (service(annotations={**NOTED, KUBE_VIP_LEASE: "soon"}), "", ()),
    "noted, a long text": (
        service(annotations={**NOTED, KUBE_VIP_LEASE: "x," * 100_000 + OTHER}, address=OTHER),
        "",
        (),
    ),
}


@pytest.mark.parametrize(("leasing", "recorded", "leases"), LEASES.values(), ids=LEASES.keys())
def test_leases(leasing: Service, recorded: str, leases: tuple[str, ...]) -> None:
    assert leases_of(read_state(leasing), recorded=recorded) == leases


REQUESTS: dict[str, tuple[Service, str | None]] = {
    "nothing is noted": (service(annotations=SUPPRESSED), None),
    "an address is noted": (service(annotations={KUBE_VIP_LEASE: OTHER}), "true"),
    "only the interface is noted": (service(annotations={KUBE_VIP_HARDWARE: "02:00:00:00:00:01"}), "true"),
}


@pytest.mark.parametrize(("leasing", "mark"), REQUESTS.values(), ids=REQUESTS.keys())
def test_earlier_notes_are_marked_with_the_request_of_a_lease(leasing: Service, mark: str | None) -> None:
    assert mark_of_notes(read_state(leasing)) == {LEASE_NOTE_OUTDATED: mark}


@pytest.mark.parametrize(
    ("value", "next_value"), [(None, "False"), ("False", "FALSE"), ("FALSE", "False"), ("true", ""), ("false", "")]
)
def test_lease_is_requested_again_by_another_spelling_of_false(value: str | None, next_value: str) -> None:
    annotations = BY_DHCP if value is None else {**BY_DHCP, KUBE_VIP_DDNS: value}
    expected = {KUBE_VIP_DDNS: next_value} if next_value else {}
    assert request_again(read_state(service(annotations=annotations))) == expected


def test_address_of_the_specification_needs_a_touch_after_another_one() -> None:
    """kube-vip has announced the address that the specification had before, and withdrawn it."""
    specified = {"loadBalancerIP": ADDRESS}
    assert needs_resync(read_state(service(spec=specified, address=OTHER)), ADDRESS)
    assert not needs_resync(read_state(service(spec=specified, address=ADDRESS)), ADDRESS)
    noted = {KUBE_VIP_HOST: "node-1"}
    assert not needs_resync(read_state(service(spec=specified, address=ADDRESS, annotations=noted)), ADDRESS)
    # kube-vip announced an address while the Service was of type LoadBalancer before.
    assert needs_resync(read_state(service(spec=specified, annotations=noted)), ADDRESS)
    assert not needs_resync(read_state(service(spec=specified)), ADDRESS)


SECOND_LEASES: dict[str, tuple[Service, bool]] = {
    "no address was announced": (service(annotations=BY_DHCP), False),
    "a node is noted": (service(annotations={**BY_DHCP, KUBE_VIP_HOST: "n1"}), True),
    "it was withdrawn before the node was noted": (service(annotations={**BY_DHCP, KUBE_VIP_DDNS: "False"}), True),
    "a lease was noted before the node": (
        service(annotations={**BY_DHCP, KUBE_VIP_LEASE: OTHER, KUBE_VIP_HARDWARE: "02:00:00:00:00:01"}),
        True,
    ),
    "a user has set the annotation": (service(annotations={**BY_DHCP, KUBE_VIP_DDNS: "false"}), False),
    "there is one": (service(annotations={**BY_DHCP, KUBE_VIP_HOST: "n1"}, address=ADDRESS), False),
    "it is withdrawn": (service(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_HOST: "n1"}), False),
    "it is ignored": (service(annotations={**BY_DHCP, KUBE_VIP_HOST: "n1", KUBE_VIP_IGNORE: "true"}), False),
}


@pytest.mark.parametrize(("leasing", "awaits"), SECOND_LEASES.values(), ids=SECOND_LEASES.keys())
def test_second_lease_is_awaited(leasing: Service, *, awaits: bool) -> None:
    assert read_state(leasing).awaits_second_lease is awaits


@pytest.mark.parametrize("value", ["False", "FALSE"])
def test_release_removes_the_spelling_of_this_controller(value: str) -> None:
    released = annotations_for(read_state(served(annotations={KUBE_VIP_DDNS: value})), Release(was_announced=True))
    assert released[KUBE_VIP_DDNS] is None


@pytest.mark.parametrize("value", ["false", "true"])
def test_release_keeps_the_annotation_of_a_user(value: str) -> None:
    released = annotations_for(read_state(served(annotations={KUBE_VIP_DDNS: value})), Release(was_announced=True))
    assert KUBE_VIP_DDNS not in released


OVERWRITTEN: dict[str, tuple[Service, str]] = {
    "as announced": (served(), ""),
    "another one": (served(annotations={KUBE_VIP_ADDRESSES: OTHER}), OTHER),
    "the one of the status, while the address changes": (
        service(address=OTHER, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        "",
    ),
    "DHCP": (served(annotations=BY_DHCP), ""),
    "withdrawn": (served(annotations=WITHDRAWN), ""),
    "removed": (service(address=ADDRESS), ""),
    "not served yet": (service(annotations={KUBE_VIP_ADDRESSES: OTHER}), ""),
    "a pair with the address": (served(annotations={KUBE_VIP_ADDRESSES: f"{ADDRESS},fd00::9"}), ""),
    "a pair with the requested address": (
        served(annotations={KUBE_VIP_ADDRESSES: f"fd00::9,{OTHER}", REQUESTED_ADDRESS: OTHER}),
        "",
    ),
    "a pair with another address": (
        served(annotations={KUBE_VIP_ADDRESSES: f"{OTHER},fd00::9"}),
        f"{OTHER},fd00::9",
    ),
}


@pytest.mark.parametrize(("changed", "address"), OVERWRITTEN.values(), ids=OVERWRITTEN.keys())
def test_address_that_another_client_wrote(changed: Service, address: str) -> None:
    assert overwritten_address(read_state(changed), ADDRESS) == address


PAIRS: dict[str, str] = {
    "": "",
    OTHER: "",
    f"{OTHER},fd00::9": OTHER,
    f"fd00::9, {OTHER}": OTHER,
    f"{OTHER},10.0.0.8": "",
    "fd00::8,fd00::9": "",
    f"{OTHER},soon": "",
    f"{OTHER},fd00::8,fd00::9": "",
}


@pytest.mark.parametrize(("annotated", "address"), PAIRS.items())
def test_ipv4_address_of_a_pair(annotated: str, address: str) -> None:
    assert read_state(service(annotations={KUBE_VIP_ADDRESSES: annotated})).ipv4_of_pair == address


def test_service_without_an_annotation_has_no_pair() -> None:
    assert read_state(service()).ipv4_of_pair == ""


SHOWN: dict[str, tuple[Service, bool]] = {
    "the address": (served(), True),
    "another one": (service(address=OTHER, annotations=ANNOTATED), False),
    "two": (service(status={"ingress": [{"ip": ADDRESS}, {"ip": OTHER}]}, annotations=ANNOTATED), False),
    "none": (service(annotations=ANNOTATED), False),
    "none, withdrawn": (service(annotations=WITHDRAWN), False),
    "no annotation": (service(address=ADDRESS), False),
    "the lease": (service(address=OTHER, annotations=NOTED), True),
    "two leases": (
        service(status=TWO_FAMILIES, annotations={**NOTED, KUBE_VIP_LEASE: f"{OTHER},fd00::1"}),
        True,
    ),
    "another one than the lease": (service(address=ADDRESS, annotations=NOTED), False),
    "no lease yet": (service(annotations=NOTED), False),
}


@pytest.mark.parametrize(("shown", "expected"), SHOWN.values(), ids=SHOWN.keys())
def test_status_that_kube_vip_wrote_is_recognized(shown: Service, *, expected: bool) -> None:
    assert read_state(shown).shows_announced_address is expected


values = st.sampled_from([None, "", ADDRESS, OTHER, DHCP_ADDRESS])


@given(
    annotated=values,
    ignored=st.sampled_from([None, "true"]),
    specified=st.sampled_from(["", ADDRESS, OTHER]),
    address=st.sampled_from([None, ADDRESS, OTHER]),
    node=st.sampled_from([None, "n1"]),
    ours=st.booleans(),
)
def test_kube_vip_never_ignores_a_service_that_it_may_announce(
    annotated: str | None, ignored: str | None, specified: str, address: str | None, node: str | None, ours: bool
) -> None:
    """kube-vip does not withdraw the address of a Service that it ignores."""
    annotations = {KUBE_VIP_ADDRESSES: annotated, KUBE_VIP_IGNORE: ignored, KUBE_VIP_HOST: node}
    state = read_state(
        service(
            ours=ours,
            address=address,
            spec={"loadBalancerIP": specified},
            annotations={key: value for key, value in annotations.items() if value is not None},
        )
    )
    intents: tuple[Intent, ...] = (LEAVE, PAUSE, GIVE_UP, Announce(ADDRESS), Withdraw(), Delegate(), Release(True))
    for intent in intents:
        if state.may_announce:
            assert not makes_ignored(annotations_for(state, intent))


PRODUCT: Final = Path(kube_vip.__file__).parents[2]
ONLY_READERS: Final = {"plan/service/kube_vip.py", "names.py"}
KEYS: Final = {
    name
    for name, value in vars(names).items()
    if str(value).startswith("kube-vip.io/") and value != names.DEFAULT_KUBEVIP_CLASS
}
"""The names of the constants with the keys of kube-vip's annotations."""


def uses_of_kube_vip_keys(tree: ast.AST) -> Iterator[str]:
    """Yield the constants and the texts by which a module names annotations of kube-vip, outside of docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name) if name in KEYS:
                yield name
            case ast.Constant(value=str(text)) if "kube-vip.io/" in text and id(node) not in docstrings:
                yield text


def test_no_other_module_names_annotations_of_kube_vip() -> None:
    users = {}
    for path in PRODUCT.rglob("*.py"):
        used = sorted(set(uses_of_kube_vip_keys(ast.parse(path.read_text()))))
        if used:
            users[str(path.relative_to(PRODUCT))] = used
    assert users.keys() == ONLY_READERS
    assert set(users["plan/service/kube_vip.py"]) == KEYS


@pytest.mark.parametrize(
    "source",
    [
        "from harvester_ccm.names import KUBE_VIP_HOST",
        "from harvester_ccm import names as n\nn.KUBE_VIP_IGNORE",
        "annotation('kube-vip.io/ignore')",
        "f'kube-vip.io/{name}'",
    ],
)
def test_use_of_an_annotation_of_kube_vip_is_found(source: str) -> None:
    assert list(uses_of_kube_vip_keys(ast.parse(source)))


def test_ruff_bans_every_key_of_kube_vip() -> None:
    configuration: Any = tomllib.loads((PRODUCT.parent / "pyproject.toml").read_text())
    banned = configuration["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert {f"harvester_ccm.names.{key}" for key in KEYS} <= banned.keys()
