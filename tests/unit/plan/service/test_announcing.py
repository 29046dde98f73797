"""Announcing: the next step from what kube-vip sees, the record and the wish, as rows; then properties of all steps."""

from typing import Final, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.core import Service
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_DDNS,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    KUBE_VIP_INTERFACE,
    KUBE_VIP_LEASE,
    KUBE_VIP_LEASE_NAME,
)
from harvester_ccm.plan.service.announcing.record import Record, Step, read_record, written_record
from harvester_ccm.plan.service.announcing.seen import Seen, compared_fields, read_seen
from harvester_ccm.plan.service.announcing.sequence import (
    HOLD,
    LEAVE,
    TOUCH_SECONDS,
    WITHDRAW,
    Annotations,
    Goal,
    Next,
    Progress,
    Timers,
    Wish,
    leases_of,
    next_step,
)
from tests.support.builders import ADDRESS, UID, service
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import short_record

FIELDS: Final = "Cluster IPv4 SingleStack"
OTHER: Final = "10.0.0.9"
AUTO: Final = Announcer.AUTO
KUBE_VIP: Final = Announcer.KUBE_VIP
NEW: Final = Seen(
    uid=UID,
    address_annotation=None,
    specified="",
    status=(),
    ignored=False,
    device=None,
    node="",
    lease_annotation=(),
    ddns=None,
    compared=FIELDS,
)
"""A Service on which kube-vip finds nothing."""
HELD: Final = replace(NEW, address_annotation="", ignored=True)
UP: Final = replace(NEW, address_annotation=ADDRESS, status=(ADDRESS,), node="n1")
"""kube-vip announces the address."""
SILENT: Final = replace(UP, address_annotation="")
RETURNING: Final = replace(UP, node="")
"""Published again: without the receipt."""
LEASED: Final = replace(UP, address_annotation=DHCP_ADDRESS, lease_annotation=(ADDRESS,))
ANNOUNCE: Final = Wish(Goal.ANNOUNCE, ADDRESS, had_address=True)
LEASE: Final = Wish(Goal.ANNOUNCE, DHCP_ADDRESS, had_address=True)
DELEGATE: Final = Wish(Goal.HOLD, ADDRESS, had_address=True)
RELEASE: Final = Wish(Goal.RELEASE)
ALL_TOUCHES: Final = len(TOUCH_SECONDS)


def recorded(step: Step, address: str = ADDRESS, **more: bool | str) -> Record:
    return msgspec.convert({"uid": UID, "step": step, "address": address, "fields": FIELDS, **more}, Record)


FIRST_HELD: Final = recorded(Step.HELD, "", again=False)
PUBLISHED: Final = recorded(Step.PUBLISHED, needs_respelling=True)
DIRECT: Final = recorded(Step.PUBLISHED)
FIRST: Final = recorded(Step.PUBLISHED, again=False)
SHOWN: Final = recorded(Step.SHOWN)


class Situation(NamedTuple):
    """The arguments of ``next_step``."""

    seen: Seen
    record: Record | None
    wish: Wish
    timers: Timers = Timers()
    announcer: Announcer = AUTO


def outline(situation: Situation) -> str:
    """Return a step in words: progress, annotations of the patch, the record in short, and what else follows."""
    step = next_step(*situation)
    keys = {KUBE_VIP_ADDRESSES: "address", KUBE_VIP_IGNORE: "ignore", KUBE_VIP_HOST: "receipt", KUBE_VIP_DDNS: "ddns"}
    words = [f"{step.progress}"]
    for key, value in step.annotations.items():
        if key != ANNOUNCED_AS:
            words.append(f"{keys.get(key, key)}={'-' if value is None else value}")
    flags = {
        "status later": step.holds_status and KUBE_VIP_ADDRESSES in step.annotations,
        "status cleared": step.clears_status,
        "touch": step.touch,
        "receipt expected": step.is_receipt_expected,
        "noted": step.has_receipt,
        f"in {step.look_again_after} s": step.look_again_after is not None,
    }
    words += [word for word, is_set in flags.items() if is_set]
    written = step.annotations.get(ANNOUNCED_AS)
    if written:
        words.append(f"record: {short_record(written)}")
    return "; ".join(words)


HOLDING: dict[str, Situation] = {
    "new: empty and ignored in the first patch": Situation(NEW, None, HOLD),
    "new, but its load balancer has an address: it lost everything": Situation(
        NEW, None, Wish(Goal.HOLD, had_address=True)
    ),
    "new, names an address: empty first": Situation(replace(NEW, specified=ADDRESS), None, HOLD),
    "kube-vip has noted a node: empty first": Situation(replace(NEW, node="n1"), None, HOLD),
    "new, a user's annotation: empty first": Situation(replace(NEW, address_annotation=ADDRESS), None, HOLD),
    "emptied by another client: kube-vip may not have read it yet": Situation(
        replace(NEW, address_annotation=""), None, HOLD
    ),
    "held, without a record": Situation(HELD, None, HOLD),
    "a user has it ignored": Situation(replace(NEW, ignored=True), None, HOLD),
    "announced: empty first": Situation(UP, SHOWN, HOLD),
    "emptied, the status has the address": Situation(SILENT, recorded(Step.WITHDRAWN), HOLD, Timers(since=0.4)),
    "emptied, the status had the address for a second": Situation(
        SILENT, recorded(Step.WITHDRAWN), HOLD, Timers(since=1.0)
    ),
    "emptied a second ago, the status is empty": Situation(
        replace(SILENT, status=()), recorded(Step.WITHDRAWN), HOLD, Timers(since=1.0)
    ),
    "held": Situation(HELD, FIRST_HELD, HOLD),
    "held, another client removed both annotations": Situation(NEW, FIRST_HELD, HOLD),
    "held, another client wrote an address": Situation(replace(HELD, address_annotation=OTHER), FIRST_HELD, HOLD),
    "held, another client removed ignore": Situation(replace(HELD, ignored=False), FIRST_HELD, HOLD),
    "emptied, another client wrote ignore": Situation(
        replace(SILENT, ignored=True), recorded(Step.WITHDRAWN), HOLD, Timers(since=9.0)
    ),
    "Harvester announces the address": Situation(HELD, FIRST_HELD, DELEGATE),
    "Harvester has announced the address": Situation(
        replace(HELD, status=(ADDRESS,)), recorded(Step.DELEGATED), DELEGATE
    ),
}
REMOVAL: dict[str, Situation] = {
    "announced": Situation(UP, SHOWN, WITHDRAW),
    "announced by another provider": Situation(UP, None, WITHDRAW),
    "ignored by a user": Situation(replace(UP, ignored=True), SHOWN, WITHDRAW),
    "withdrawn": Situation(SILENT, recorded(Step.WITHDRAWN), WITHDRAW),
    "withdrawn, ignored by another client since": Situation(
        replace(SILENT, ignored=True), recorded(Step.WITHDRAWN), WITHDRAW
    ),
    "held": Situation(HELD, FIRST_HELD, WITHDRAW),
    "emptied, without a record": Situation(SILENT, None, WITHDRAW),
    "kube-vip has never had an address": Situation(NEW, None, WITHDRAW),
    "given back": Situation(UP, SHOWN, RELEASE),
    "given back, respelled before": Situation(replace(UP, ddns="False"), SHOWN, RELEASE),
    "given back, a user's dynamic DNS": Situation(replace(UP, ddns="true"), SHOWN, RELEASE),
    "left": Situation(UP, None, LEAVE),
}
FIRST_PUBLICATION: dict[str, Situation] = {
    "one patch, and shown": Situation(HELD, FIRST_HELD, ANNOUNCE),
    "with kube-vip: it has to note it": Situation(HELD, FIRST_HELD, ANNOUNCE, announcer=KUBE_VIP),
    "waits for the note": Situation(RETURNING, FIRST, ANNOUNCE, announcer=KUBE_VIP),
    "noted": Situation(UP, FIRST, ANNOUNCE, announcer=KUBE_VIP),
    "never touched or respelled": Situation(RETURNING, FIRST, ANNOUNCE, Timers(3600.0, 0, 3600.0), KUBE_VIP),
    "a lease: the status is cleared": Situation(HELD, FIRST_HELD, LEASE),
    "a lease is there": Situation(LEASED, recorded(Step.PUBLISHED, DHCP_ADDRESS, again=False), LEASE),
    "noted although it was to be ignored: kube-vip read that too late": Situation(
        replace(HELD, node="n1"), FIRST_HELD, ANNOUNCE
    ),
    "held as recorded, but another client has filled the annotation": Situation(
        replace(HELD, address_annotation=ADDRESS), FIRST_HELD, ANNOUNCE
    ),
    "held as recorded, but kube-vip does not ignore it": Situation(replace(HELD, ignored=False), FIRST_HELD, ANNOUNCE),
    "a lease where kube-vip notes no node": Situation(
        replace(LEASED, node=""), recorded(Step.PUBLISHED, DHCP_ADDRESS, again=False), LEASE
    ),
    "held after another address": Situation(HELD, recorded(Step.HELD), ANNOUNCE),
    "a new Service shares an address": Situation(NEW, None, Wish(Goal.ANNOUNCE, ADDRESS)),
    "on the device of the network": Situation(HELD, FIRST_HELD, replace(ANNOUNCE, device="eth1")),
}
ANOTHER_ADDRESS: dict[str, Situation] = {
    "directly, without the receipt; status later": Situation(UP, recorded(Step.SHOWN, OTHER), ANNOUNCE),
    "another client removed the receipt before": Situation(
        RETURNING, recorded(Step.SHOWN, OTHER, node="n1", answers=True), ANNOUNCE
    ),
    "another client changed the annotation": Situation(replace(UP, address_annotation=OTHER), SHOWN, ANNOUNCE),
    "another client removed the annotation": Situation(replace(UP, address_annotation=None), SHOWN, ANNOUNCE),
    "published a moment ago": Situation(RETURNING, DIRECT, ANNOUNCE, Timers(since=0.4, since_touch=0.4)),
    "a second later: touch": Situation(RETURNING, DIRECT, ANNOUNCE, Timers(since=1.0, since_touch=1.0)),
    "noted before the touch: touch nevertheless": Situation(UP, DIRECT, ANNOUNCE, Timers(since=1.0, since_touch=1.0)),
    "touched and noted": Situation(UP, DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5)),
    "touched and noted, but the touch was not permitted": Situation(
        UP, DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5, is_touch_refused=True)
    ),
    "an instance of kube-vip that ends has written its address and its node": Situation(
        replace(UP, status=(OTHER,)), DIRECT, ANNOUNCE, Timers(0.2, 0, 0.2)
    ),
    "touched and noted, another program announces": Situation(
        UP, DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5), Announcer.OTHER
    ),
    "touched, not noted, no receipt is expected": Situation(RETURNING, DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5)),
    "touched, not noted, kube-vip has answered before": Situation(
        RETURNING, replace(DIRECT, answers=True), ANNOUNCE, Timers(1.5, 1, 0.5)
    ),
    "touched, not noted, with kube-vip": Situation(RETURNING, DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5), KUBE_VIP),
    "all touches, no receipt is expected": Situation(RETURNING, DIRECT, ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0)),
    "all touches and respelled, the receipt is missing": Situation(
        RETURNING, replace(DIRECT, was_respelled=True), ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0), KUBE_VIP
    ),
    "all touches, the receipt is missing: respelled a second later": Situation(
        RETURNING, DIRECT, ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0), KUBE_VIP
    ),
    "the receipt is missing for a day": Situation(RETURNING, DIRECT, ANNOUNCE, Timers(86400.0, 100, 0.0), KUBE_VIP),
    "nothing is noted, and nobody expects it: left alone after the touches": Situation(
        RETURNING, DIRECT, ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0)
    ),
    "another program announces, and kube-vip has answered before": Situation(
        RETURNING, replace(DIRECT, answers=True), ANNOUNCE, Timers(1.5, 1, 0.5), Announcer.OTHER
    ),
    "another program announces: shown after the touch": Situation(
        RETURNING, DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5), Announcer.OTHER
    ),
}
AFTER_WITHDRAWAL: dict[str, Situation] = {
    "withdrawn: ignored before it comes back": Situation(
        replace(SILENT, status=()), recorded(Step.WITHDRAWN), ANNOUNCE, Timers(since=1.0)
    ),
    "held: published, without the receipt": Situation(replace(HELD, node="n1"), recorded(Step.HELD), ANNOUNCE),
    "Harvester announced it": Situation(replace(HELD, status=(ADDRESS,)), recorded(Step.DELEGATED), ANNOUNCE),
    "noted within a second: touched": Situation(UP, PUBLISHED, ANNOUNCE, Timers(1.0, 0, 1.0)),
    "published a moment ago": Situation(RETURNING, PUBLISHED, ANNOUNCE, Timers(0.2, 0, 0.2)),
    "not noted within a second: respelled": Situation(RETURNING, PUBLISHED, ANNOUNCE, Timers(1.0, 0, 1.0)),
    "respelled before: the other spelling": Situation(
        replace(RETURNING, ddns="False"), PUBLISHED, ANNOUNCE, Timers(2.0, 1, 1.0)
    ),
    "a user's dynamic DNS: touches only": Situation(
        replace(RETURNING, ddns="true"), PUBLISHED, ANNOUNCE, Timers(2.0, 1, 1.0), KUBE_VIP
    ),
    "noted after the touch: not respelled": Situation(UP, PUBLISHED, ANNOUNCE, Timers(2.0, 1, 1.0)),
    "respelled a moment ago": Situation(RETURNING, recorded(Step.RESPELLED), ANNOUNCE, Timers(0.4)),
    "respelled: one more event": Situation(
        replace(RETURNING, ddns="FALSE"), recorded(Step.RESPELLED, needs_respelling=True), ANNOUNCE, Timers(1.0)
    ),
    "respelled, and another client removed the spelling: once more": Situation(
        RETURNING, recorded(Step.RESPELLED), ANNOUNCE, Timers(1.0)
    ),
    "respelled and noted, the lease is missing": Situation(
        replace(LEASED, status=()), recorded(Step.RESPELLED, DHCP_ADDRESS), LEASE, Timers(0.4)
    ),
    "respelled and noted": Situation(UP, recorded(Step.RESPELLED, needs_respelling=True), ANNOUNCE, Timers(0.4)),
    "another program announces: not respelled": Situation(
        RETURNING, PUBLISHED, ANNOUNCE, Timers(2.0, 1, 1.0), Announcer.OTHER
    ),
}
SAME_ADDRESS: dict[str, Situation] = {
    "left alone": Situation(UP, SHOWN, ANNOUNCE),
    "left alone, the receipt was removed by another client": Situation(
        RETURNING, replace(SHOWN, node="n1"), ANNOUNCE, announcer=KUBE_VIP
    ),
    "never noted, and with kube-vip only now": Situation(RETURNING, SHOWN, ANNOUNCE, announcer=KUBE_VIP),
    "another client changed the status": Situation(replace(UP, status=(OTHER,)), SHOWN, ANNOUNCE),
    "the status was emptied, as with another type for a moment: touches follow": Situation(
        replace(UP, status=()), SHOWN, ANNOUNCE
    ),
    "another policy: recorded": Situation(replace(UP, compared="Local IPv4 SingleStack"), SHOWN, ANNOUNCE),
    "another policy: touched": Situation(UP, recorded(Step.ANNOUNCED), ANNOUNCE, Timers(1.0, 0, 1.0)),
    "another policy: touched again after 4 s": Situation(UP, recorded(Step.ANNOUNCED), ANNOUNCE, Timers(2.0, 1, 1.0)),
    "touches that the API server does not permit: not completed": Situation(
        UP, recorded(Step.ANNOUNCED), ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0, is_touch_refused=True)
    ),
    "another policy: touched again after 30 s": Situation(UP, recorded(Step.ANNOUNCED), ANNOUNCE, Timers(16.0, 3, 1.0)),
    "another policy: all touches": Situation(UP, recorded(Step.ANNOUNCED), ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0)),
    "all touches, and a kube-vip that notes its node has noted nothing": Situation(
        RETURNING, replace(recorded(Step.ANNOUNCED), answers=True), ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0)
    ),
    "all touches, and kube-vip, which always notes its node, has noted nothing": Situation(
        RETURNING, recorded(Step.ANNOUNCED), ANNOUNCE, Timers(46.0, ALL_TOUCHES, 0.0), KUBE_VIP
    ),
    "all touches, and another program announces now": Situation(
        RETURNING,
        replace(recorded(Step.ANNOUNCED), answers=True),
        ANNOUNCE,
        Timers(46.0, ALL_TOUCHES, 0.0),
        Announcer.OTHER,
    ),
    "another policy while the address is published": Situation(
        replace(RETURNING, compared="Local IPv4 SingleStack"), DIRECT, ANNOUNCE, Timers(1.5, 1, 0.5)
    ),
    "another policy while the address is respelled": Situation(
        replace(RETURNING, compared="Local IPv4 SingleStack"), recorded(Step.RESPELLED), ANNOUNCE, Timers(0.4)
    ),
    "a user has it ignored": Situation(replace(UP, ignored=True), SHOWN, ANNOUNCE),
    "a user has it ignored, it was never noted": Situation(replace(RETURNING, ignored=True), SHOWN, ANNOUNCE),
    "noted 20 s ago, the lease is missing": Situation(
        replace(LEASED, status=()), recorded(Step.PUBLISHED, DHCP_ADDRESS), LEASE, Timers(20.0, 1, 19.0)
    ),
    "noted 30 s ago, the lease is missing: requested again": Situation(
        replace(LEASED, status=()), recorded(Step.PUBLISHED, DHCP_ADDRESS), LEASE, Timers(30.0, 1, 29.0)
    ),
    "the lease is lost: requested again": Situation(
        replace(LEASED, status=()), recorded(Step.SHOWN, DHCP_ADDRESS), LEASE
    ),
    "the lease is known": Situation(
        replace(LEASED, status=()), recorded(Step.SHOWN, DHCP_ADDRESS), replace(LEASE, has_lease=True)
    ),
}
WITHOUT_RECORD: dict[str, Situation] = {
    "of another provider: adopted": Situation(UP, None, ANNOUNCE),
    "of another provider, a lease": Situation(LEASED, None, LEASE),
    "of another provider, not noted": Situation(RETURNING, None, ANNOUNCE),
    "another address in the annotation": Situation(replace(UP, address_annotation=OTHER), None, ANNOUNCE),
    "another address in the status": Situation(replace(UP, status=(OTHER,)), None, ANNOUNCE),
    "another address in the status as well": Situation(replace(UP, status=(ADDRESS, OTHER)), None, ANNOUNCE),
    "the annotation is missing": Situation(replace(UP, address_annotation=None), None, ANNOUNCE),
    "it lost everything": Situation(NEW, None, ANNOUNCE),
    "a user has it ignored": Situation(replace(UP, ignored=True), None, ANNOUNCE),
    "a user has it ignored, not noted": Situation(replace(RETURNING, ignored=True), None, ANNOUNCE),
    "emptied": Situation(SILENT, None, ANNOUNCE),
    "adopted": Situation(UP, recorded(Step.ADOPTED), ANNOUNCE),
}
ROWS: Final = {
    f"{name}: {title}": row
    for name, table in {
        "hold": HOLDING,
        "remove": REMOVAL,
        "first": FIRST_PUBLICATION,
        "another": ANOTHER_ADDRESS,
        "back": AFTER_WITHDRAWAL,
        "same": SAME_ADDRESS,
        "no record": WITHOUT_RECORD,
    }.items()
    for title, row in table.items()
}


def test_next_step() -> None:
    assert differing("announcing", {name: outline(situation) for name, situation in ROWS.items()}) == []


class Cluster:
    """A Service, the controller that makes the steps, and a kube-vip that announces after a touch or never."""

    def __init__(self, situation: Situation, *, answers: bool) -> None:
        self.seen = situation.seen
        self.record = situation.record
        self.wish = situation.wish
        self.announcer = situation.announcer
        self.answers = answers
        self.since = 0.0
        self.touches = 0
        self.since_touch = 0.0
        self.patches: list[dict[str, str | None]] = []
        self.last = Next(Progress.NONE)

    def run(self) -> "Cluster":
        """Make all steps of some minutes."""
        for _ in range(60):
            wish = replace(self.wish, has_lease=bool(leases_of(self.seen, self.record, recorded="")))
            timers = Timers(self.since, self.touches, self.since_touch)
            self.last = next_step(self.seen, self.record, wish, timers, self.announcer)
            if self._patch():
                continue
            if self.last.touch:
                self._touch()
            elif self.last.look_again_after is None or self.since > 600:
                return self
            else:
                self._wait(self.last.look_again_after)
        pytest.fail(f"no end: {self.patches}")

    def _patch(self) -> bool:
        step = self.last
        present = _annotations(self.seen, self.record)
        changed = {key: value for key, value in step.annotations.items() if present.get(key) != value}
        status = self.seen.status
        if step.clears_status:
            status = ()
        elif self.wish.goal is Goal.ANNOUNCE and not step.holds_status and self.wish.address != DHCP_ADDRESS:
            is_shown_here = step.progress is not Progress.IGNORED
            status = (self.wish.address,) if is_shown_here else status
        if not changed and status == self.seen.status:
            return False
        self.patches.append(changed)
        self.seen = _with_annotations(replace(self.seen, status=status), changed)
        if ANNOUNCED_AS in changed:
            text = changed[ANNOUNCED_AS]
            self.record = msgspec.json.decode(text, type=Record) if text else None
            self.since = self.since_touch = 0.0
            self.touches = 0
        first = not step.holds_status and self.record is not None and not self.record.again
        self._announce(is_new=first)
        return True

    def _touch(self) -> None:
        self.touches += 1
        self.since_touch = 0.0
        self._announce(is_new=True)

    def _wait(self, seconds: float) -> None:
        self.since += seconds
        self.since_touch += seconds

    def _announce(self, *, is_new: bool) -> None:
        if not self.answers or not is_new or self.seen.ignored or not self.seen.address_annotation:
            return
        self.seen = replace(self.seen, node="n2")
        if self.seen.address_annotation == DHCP_ADDRESS:
            self.seen = replace(self.seen, lease_annotation=(ADDRESS,), status=(ADDRESS,))


def _annotations(seen: Seen, record: Record | None) -> dict[str, str | None]:
    return {
        KUBE_VIP_ADDRESSES: seen.address_annotation,
        KUBE_VIP_IGNORE: "true" if seen.ignored else None,
        KUBE_VIP_HOST: seen.node or None,
        KUBE_VIP_DDNS: seen.ddns,
        KUBE_VIP_INTERFACE: seen.device,
        ANNOUNCED_AS: None if record is None else written_record(record),
    }


def _with_annotations(seen: Seen, changed: Annotations) -> Seen:
    after = {**_annotations(seen, None), **changed}
    return replace(
        seen,
        address_annotation=after[KUBE_VIP_ADDRESSES],
        ignored=after[KUBE_VIP_IGNORE] == "true",
        node=after[KUBE_VIP_HOST] or "",
        ddns=after[KUBE_VIP_DDNS],
        device=after[KUBE_VIP_INTERFACE],
    )


ADDRESSES: Final = st.sampled_from([ADDRESS, OTHER, DHCP_ADDRESS])
ANY_SEEN: Final = st.builds(
    Seen,
    uid=st.just(UID),
    address_annotation=st.sampled_from([None, "", ADDRESS, OTHER, DHCP_ADDRESS, "no address", f"{ADDRESS},fd00::1"]),
    specified=st.sampled_from(["", ADDRESS, OTHER]),
    status=st.sampled_from([(), (ADDRESS,), (OTHER,), (ADDRESS, "fd00::1")]),
    ignored=st.booleans(),
    device=st.sampled_from([None, "eth1"]),
    node=st.sampled_from(["", "n1"]),
    lease_annotation=st.sampled_from([(), (ADDRESS,), (OTHER,)]),
    ddns=st.sampled_from([None, "False", "FALSE", "false", "no", "true"]),
    compared=st.sampled_from([FIELDS, "Local IPv4 SingleStack"]),
)
ANY_RECORD: Final = st.none() | st.builds(
    Record,
    uid=st.just(UID),
    step=st.sampled_from(Step),
    address=st.just("") | ADDRESSES,
    fields=st.sampled_from(["", FIELDS]),
    again=st.booleans(),
    needs_respelling=st.booleans(),
    was_respelled=st.booleans(),
    node=st.sampled_from(["", "n1"]),
    answers=st.booleans(),
)
ANY_WISH: Final = st.builds(
    Wish,
    goal=st.sampled_from(Goal),
    address=ADDRESSES,
    device=st.sampled_from([None, "", "eth1"]),
    had_address=st.booleans(),
)
SITUATIONS: Final = st.builds(Situation, ANY_SEEN, ANY_RECORD, ANY_WISH, announcer=st.sampled_from(Announcer))
MAX_PATCHES: Final = 8


def is_users_ignore(situation: Situation) -> bool:
    """Return whether a user has kube-vip ignore the Service."""
    seen, record = situation.seen, situation.record
    return seen.ignored and not seen.is_held and (record is None or record.is_published)


@given(SITUATIONS, st.booleans())
def test_every_sequence_ends(situation: Situation, answers: bool) -> None:
    cluster = Cluster(situation, answers=answers).run()
    assert len(cluster.patches) <= MAX_PATCHES


@given(SITUATIONS.filter(lambda situation: situation.wish.goal is Goal.ANNOUNCE))
def test_address_is_announced_from_any_state_and_then_left_alone(situation: Situation) -> None:
    cluster = Cluster(situation, answers=True).run()
    seen = cluster.seen
    if cluster.last.progress is Progress.IGNORED:
        assert is_users_ignore(situation)
        return
    assert cluster.last.progress is Progress.SHOWN
    assert (seen.address_annotation, seen.ignored) == (situation.wish.address, False)
    assert seen.shows(situation.wish.address)
    before = len(cluster.patches)
    assert len(cluster.run().patches) == before
    # After a restart as well: losing the timers costs touches, and no patch.
    cluster.since = cluster.since_touch = 0.0
    cluster.touches = 0
    assert len(cluster.run().patches) == before


@given(SITUATIONS.filter(lambda situation: situation.wish.goal is Goal.HOLD), st.booleans())
def test_held_service_ends_empty_and_ignored(situation: Situation, answers: bool) -> None:
    cluster = Cluster(situation, answers=answers).run()
    if cluster.last.progress is Progress.IGNORED:
        assert is_users_ignore(situation)
        assert cluster.patches == [] or set(cluster.patches[0]) == {KUBE_VIP_INTERFACE}
        return
    assert cluster.seen.is_held


@given(SITUATIONS.filter(lambda situation: situation.wish.goal is Goal.WITHDRAW))
def test_removed_service_is_never_ignored_with_an_address(situation: Situation) -> None:
    seen = situation.seen
    cluster = Cluster(situation, answers=True).run()
    assert not cluster.seen.address_annotation
    assert not cluster.seen.ignored or seen.is_held or (seen.is_untouched and situation.record is None)
    for patch in cluster.patches:
        assert KUBE_VIP_ADDRESSES not in patch or patch[KUBE_VIP_ADDRESSES] == ""


@given(SITUATIONS, st.booleans())
def test_empty_annotation_and_ignore_come_in_two_patches(situation: Situation, answers: bool) -> None:
    """kube-vip skips all events of a Service that it ignores, also the withdrawal."""
    announced = bool(situation.seen.read_address)
    cluster = Cluster(situation, answers=answers).run()
    for patch in cluster.patches:
        withdraws = patch.get(KUBE_VIP_ADDRESSES) == "" and patch.get(KUBE_VIP_IGNORE) == "true"
        assert not (withdraws and announced)
        announced = bool(patch.get(KUBE_VIP_ADDRESSES)) or (announced and KUBE_VIP_ADDRESSES not in patch)


@given(SITUATIONS, st.booleans())
def test_a_users_dynamic_dns_is_never_respelled(situation: Situation, answers: bool) -> None:
    users = situation._replace(seen=replace(situation.seen, ddns="true"))
    assert not any(KUBE_VIP_DDNS in patch for patch in Cluster(users, answers=answers).run().patches)


@given(
    st.sampled_from([NEW, HELD]),
    st.sampled_from([ANNOUNCE, LEASE]),
    st.sampled_from(Announcer),
    st.booleans(),
)
def test_first_publication_is_one_patch_and_never_respelled(
    seen: Seen,
    wish: Wish,
    announcer: Announcer,
    answers: bool,
) -> None:
    held = Cluster(Situation(seen, None, HOLD, announcer=announcer), answers=answers).run()
    cluster = Cluster(Situation(held.seen, held.record, wish, announcer=announcer), answers=answers)
    patches = cluster.run().patches
    published = [patch for patch in patches if patch.get(KUBE_VIP_ADDRESSES)]
    if seen == NEW:
        assert len(published) == 1
        assert not any(KUBE_VIP_DDNS in patch for patch in patches)
    assert cluster.last.progress is Progress.SHOWN or not answers


def test_status_of_a_publication_that_is_not_the_first_is_a_patch_of_its_own() -> None:
    cluster = Cluster(Situation(UP, recorded(Step.SHOWN, OTHER), ANNOUNCE), answers=True)
    cluster.seen = replace(cluster.seen, address_annotation=OTHER, status=(OTHER,))
    first, second, *_rest = cluster.run().patches
    assert set(first) == {KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, ANNOUNCED_AS}
    assert second == {}


RECORD_TEXTS: dict[str, str] = {
    "empty": "",
    "not JSON": "shown",
    "cut": written_record(SHOWN)[:-5],
    "a list": "[]",
    "without a step": f'{{"uid": "{UID}"}}',
    "an unknown step": f'{{"uid": "{UID}", "step": "flown"}}',
    "a wrong type": f'{{"uid": "{UID}", "step": "shown", "again": "yes"}}',
    "of another Service": written_record(replace(SHOWN, uid="other")),
    "too long": written_record(replace(SHOWN, fields="x" * 2000)),
    "deep": "[" * 900,
    "no text": '{"uid": "\ud800"}',
}


@pytest.mark.parametrize("text", RECORD_TEXTS.values(), ids=RECORD_TEXTS.keys())
def test_unreadable_record_is_none(text: str) -> None:
    concerned = service(annotations={ANNOUNCED_AS: text} if text.isascii() else {})
    if not text.isascii():
        concerned = replace(concerned, metadata=replace(concerned.metadata, annotations={ANNOUNCED_AS: text}))
    assert read_record(concerned) is None


@given(ANY_RECORD.filter(bool))
def test_record_is_read_as_it_was_written(record: Record) -> None:
    text = written_record(record)
    concerned = service(annotations={ANNOUNCED_AS: text})
    was_announced = record.answers or record.step in {Step.WITHDRAWN, Step.RESPELLED}
    assert read_record(concerned) == replace(record, again=record.again or was_announced)


def test_unknown_field_of_a_later_version_does_not_void_the_record() -> None:
    text = written_record(SHOWN)[:-1] + ', "later": 1}'
    assert read_record(service(annotations={ANNOUNCED_AS: text})) == SHOWN


@pytest.mark.parametrize(
    "record",
    [replace(SHOWN, answers=True), replace(SHOWN, step=Step.WITHDRAWN), replace(SHOWN, step=Step.RESPELLED)],
    ids=["answered", "withdrawn", "respelled"],
)
def test_record_that_kube_vip_never_announced_the_service_is_not_believed(record: Record) -> None:
    forged = written_record(replace(record, again=False))
    assert read_record(service(annotations={ANNOUNCED_AS: forged})) == replace(record, again=True)


@pytest.mark.parametrize("step", [Step.SHOWN, Step.WITHDRAWN, Step.HELD, Step.DELEGATED])
def test_kube_vip_that_has_answered_is_expected_to_answer_for_every_further_address(step: Step) -> None:
    """After a change or a withdrawal, a kube-vip that has become silent must not pass for one that never notes."""
    seen = replace(UP, address_annotation=OTHER, status=(OTHER,))
    if step is not Step.SHOWN:
        seen = replace(HELD, node="n1", ignored=step is not Step.WITHDRAWN)
    last = Cluster(Situation(seen, recorded(step, OTHER, answers=True), ANNOUNCE), answers=False).run().last
    assert last.is_receipt_expected
    assert last.progress is Progress.WAITING


COMPARED: dict[str, tuple[Service, str]] = {
    "defaults": (service(), FIELDS),
    "all fields": (
        service(
            spec={
                "externalTrafficPolicy": "Local",
                "ipFamilies": ["IPv4", "IPv6"],
                "ipFamilyPolicy": "PreferDualStack",
            },
            annotations={KUBE_VIP_DDNS: "true", KUBE_VIP_LEASE_NAME: "mine"},
        ),
        "Local IPv4,IPv6 PreferDualStack DDNS lease mine",
    ),
    "all spellings of false are one": (service(annotations={KUBE_VIP_DDNS: "FALSE"}), FIELDS),
    "unknown annotations of kube-vip": (service(annotations={"kube-vip.io/x": "1"}), FIELDS),
}


@pytest.mark.parametrize(("concerned", "expected"), COMPARED.values(), ids=COMPARED.keys())
def test_fields_that_kube_vip_compares(concerned: Service, expected: str) -> None:
    assert compared_fields(concerned) == expected


READ: dict[str, tuple[Service, str]] = {
    "the annotation": (service(annotations={KUBE_VIP_ADDRESSES: ADDRESS}, spec={"loadBalancerIP": OTHER}), ADDRESS),
    "an empty annotation hides all others": (
        service(annotations={KUBE_VIP_ADDRESSES: ""}, spec={"loadBalancerIP": OTHER}, address=ADDRESS),
        "",
    ),
    "the specification": (service(spec={"loadBalancerIP": OTHER}, address=ADDRESS), OTHER),
    "the status": (service(address=ADDRESS), ADDRESS),
    "none": (service(), ""),
}


@pytest.mark.parametrize(("concerned", "expected"), READ.values(), ids=READ.keys())
def test_address_that_kube_vip_reads(concerned: Service, expected: str) -> None:
    assert read_seen(concerned).read_address == expected


PUBLISHED_LEASE: Final = recorded(Step.PUBLISHED, DHCP_ADDRESS)
SHOWN_LEASE: Final = recorded(Step.SHOWN, DHCP_ADDRESS)
LONG: Final = ("2001:db8:1111:2222:3333:4444:5555:6661", "2001:db8:1111:2222:3333:4444:5555:6662")
LEASES: dict[str, tuple[str, tuple[str, ...], Record | None, str, tuple[str, ...]]] = {
    "in the status and noted": (ADDRESS, (ADDRESS,), PUBLISHED_LEASE, "", (ADDRESS,)),
    "two addresses": (f"{ADDRESS},fd00::1", (ADDRESS, "fd00::1"), PUBLISHED_LEASE, "", (ADDRESS, "fd00::1")),
    "the status is not in the usual form": ("fd00::1", ("FD00::1",), PUBLISHED_LEASE, "", ("FD00::1",)),
    "two long addresses": (",".join(LONG), LONG, PUBLISHED_LEASE, "", LONG),
    "not in the usual form": ("FD00::0001", ("fd00::1",), PUBLISHED_LEASE, "", ("fd00::1",)),
    "noted only": (ADDRESS, (), PUBLISHED_LEASE, ADDRESS, ()),
    "in the status only": ("", (ADDRESS,), PUBLISHED_LEASE, "", ()),
    "the status was emptied, the copy shows it": (ADDRESS, (), SHOWN_LEASE, ADDRESS, (ADDRESS,)),
    "the status was emptied and the note is another one: the copy shows it": (
        OTHER,
        (),
        SHOWN_LEASE,
        ADDRESS,
        (ADDRESS,),
    ),
    "no record": (ADDRESS, (ADDRESS,), None, ADDRESS, ()),
    "an address of a pool is published": (ADDRESS, (ADDRESS,), SHOWN, ADDRESS, ()),
    "no addresses": ("a, ,1", (ADDRESS,), PUBLISHED_LEASE, "", ()),
}


@pytest.mark.parametrize(("noted", "status", "record", "copied", "expected"), LEASES.values(), ids=LEASES.keys())
def test_leases(
    noted: str, status: tuple[str, ...], record: Record | None, copied: str, expected: tuple[str, ...]
) -> None:
    entries = {"ingress": [{"ip": address} for address in status]}
    seen = read_seen(service(annotations={KUBE_VIP_LEASE: noted}, status=entries))
    assert leases_of(seen, record, recorded=copied) == expected
