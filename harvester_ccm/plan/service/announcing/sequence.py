"""Announcing: what kube-vip has to do with a Service, how far this controller is with it, and the next step.

Three things decide. ``Seen`` is what kube-vip can read on the Service and has written there. ``Record`` is what this
controller did last: one annotation, which each step writes in the patch that makes the step. ``Wish`` is what the plan
wants. ``next_step`` compares them. It is pure, and starts the sequence again whenever record and wish differ, so it
heals from any state. Nothing else writes kube-vip's annotations.

What kube-vip does, by its versions 0.9 to 1.2 in ARP mode (recordings in ``tests/devenv/recordings``):

* It announces any address that it finds in its annotation, else in the specification, else in the status. An empty
  annotation makes it withdraw the address. It skips all events of a Service with ``ignore``, also the withdrawal.
* After another address than before it needs a second event of the Service and then a touch of an EndpointSlice (1.2).
* After a withdrawal it needs another spelling of an unused annotation in a later patch (1.1.2 and 1.2).
* It notes its node in ``vipHost`` when it announces, which is the receipt, and never removes that. Whoever removes the
  receipt gets another one with the next announcement.
* With DHCP it writes the lease to ``requestedIP`` and to the status, once.
"""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm import names
from harvester_ccm.config import Announcer
from harvester_ccm.plan.service.announcing.record import Record, Step, written_record
from harvester_ccm.plan.service.announcing.seen import NO_ADDRESS, Seen

Annotations = Mapping[str, str | None]
"""Annotations to write; None removes a key."""
STEP_SECONDS: Final = 1.0
"""Time between two steps: kube-vip gets it to read the one before. An earlier touch has no effect."""
TOUCH_SECONDS: Final = (1.0, 4.0, 10.0, 30.0)
"""Time from a step to its first touch, and from each touch to the next one. Further touches follow after three times
the time of the one before, as long as a receipt is missing."""
LEASE_SECONDS: Final = 30.0
"""Time that kube-vip gets to write a lease to the status after the publication."""
_SPELLINGS: Final = ("False", "FALSE")
"""Values of kube-vip's annotation for dynamic DNS that mean its default, and that users hardly write."""


class Goal(StrEnum):
    """What a plan wants kube-vip to do with a Service."""

    LEAVE = auto()
    """What it does now: nothing is known that says otherwise."""
    HOLD = auto()
    """Announce nothing, and be ready for an address: the Service waits, or Harvester announces it."""
    WITHDRAW = auto()
    """Announce nothing: the Service is being removed."""
    RELEASE = auto()
    """Forget this controller: its annotations are removed."""
    ANNOUNCE = auto()
    """Announce an address."""


class Wish(Struct, frozen=True):
    """What a plan wants kube-vip to do."""

    goal: Goal
    address: str = ""
    """The address to announce, ``0.0.0.0`` for one from DHCP. With HOLD, the one that Harvester announces."""
    device: str | None = None
    """Device of the nodes to annotate; empty removes the annotation, None leaves it."""
    has_lease: bool = False
    """Whether the lease of ``0.0.0.0`` is known."""
    had_address: bool = False
    """Whether the load balancer of the Service has an address, so that a Service without any trace is not new."""


LEAVE: Final = Wish(Goal.LEAVE)
HOLD: Final = Wish(Goal.HOLD)
WITHDRAW: Final = Wish(Goal.WITHDRAW)


class Progress(StrEnum):
    """How far the announcement of an address is."""

    NONE = auto()
    """No address is to be announced, or nothing is known about it."""
    SILENT = auto()
    """The address is withdrawn, or is about to be."""
    WAITING = auto()
    """The address is published, and a receipt is expected, or a touch is due."""
    SHOWN = auto()
    """The address is announced, as far as the cluster shows it."""
    IGNORED = auto()
    """A user has made kube-vip ignore the Service."""


class Next(Struct, frozen=True):
    """The next step of announcing."""

    progress: Progress
    annotations: Annotations = {}
    """The annotations that the patch of the Service writes, the record included."""
    holds_status: bool = False
    """Whether the status is left to a later patch, which is an event of its own for kube-vip."""
    clears_status: bool = False
    """Whether the patch also clears the status: the address that appears there next is the lease."""
    touch: bool = False
    """Whether an EndpointSlice is touched, if nothing else is left to write."""
    is_receipt_expected: bool = False
    """Whether an address without a receipt counts as not announced."""
    has_receipt: bool = False
    """Whether there is a receipt for the address, now or when the record was completed."""
    look_again_after: float | None = None
    """Seconds until the next step is due; None if it follows from a change."""


class Timers(Struct, frozen=True):
    """What a process remembers of a Service. Losing it repeats a step."""

    since: float = 0.0
    """Seconds since this process saw the record change."""
    touches: int = 0
    """How often it has touched the endpoints since then."""
    since_touch: float = 0.0
    """Seconds since the last touch; those since the record changed before the first one."""
    is_touch_refused: bool = False
    """Whether the API server did not permit the last touch."""


def next_step(seen: Seen, record: Record | None, wish: Wish, timers: Timers, announcer: Announcer) -> Next:
    """Return the next step towards what a plan wants."""
    match wish.goal:
        case Goal.LEAVE:
            step = Next(Progress.NONE)
        case Goal.HOLD:
            step = _hold(seen, record, wish, timers)
        case Goal.WITHDRAW:
            step = _withdraw_for_good(seen, record)
        case Goal.RELEASE:
            step = Next(Progress.NONE, _release(seen))
        case Goal.ANNOUNCE:
            step = _announce(seen, record, wish, timers, announcer)
    if wish.device is None:
        return step
    return replace(step, annotations={**step.annotations, names.KUBE_VIP_INTERFACE: wish.device or None})


def _hold(seen: Seen, record: Record | None, wish: Wish, timers: Timers) -> Next:
    """Withdraw what kube-vip may announce, and have it ignore the Service afterwards.

    kube-vip does not withdraw the address of a Service that it ignores, so these are two patches. A new Service, on
    which it finds nothing, gets both at once: with one alone it blocks for 30 s, or announces nothing any more.
    """
    if record is None:
        return _hold_without_record(seen, wish)
    if seen.is_untouched and seen.address_annotation is None:
        # Nothing is left to withdraw.
        return _held(replace(record, again=True), wish)
    if not _is_as_withdrawn(seen, record):
        return _empty(seen, record)
    if record.step is Step.WITHDRAWN and timers.since < STEP_SECONDS:
        return Next(Progress.SILENT, holds_status=True, look_again_after=STEP_SECONDS - timers.since)
    return _held(record, wish)


def _hold_without_record(seen: Seen, wish: Wish) -> Next:
    """A Service on which kube-vip finds nothing is new, unless its load balancer shows that it has lost everything.

    On any other, kube-vip may be about to announce what it has read before: it gets time for the withdrawal.
    """
    if seen.ignored and not seen.is_held:
        # A user, and not this controller, makes kube-vip ignore the Service.
        return Next(Progress.IGNORED, has_receipt=bool(seen.node))
    is_unknown = seen.is_untouched and seen.address_annotation is None and not wish.had_address
    is_delegated = seen.is_held and bool(wish.address)
    if is_unknown or is_delegated:
        return _held(Record(seen.uid, Step.HELD, fields=seen.compared, again=not is_unknown), wish)
    return _empty(seen, None)


def _is_as_withdrawn(seen: Seen, record: Record) -> bool:
    """Return whether kube-vip's annotations are as this controller left them when it withdrew the address.

    A new Service with a receipt was announced before kube-vip read that it has to ignore it.
    """
    if record.is_published or not seen.is_withdrawn or (seen.node and not record.again):
        return False
    return seen.ignored == record.is_held


def _held(record: Record, wish: Wish) -> Next:
    annotations = {names.KUBE_VIP_ADDRESSES: NO_ADDRESS, names.KUBE_VIP_IGNORE: "true"}
    held = replace(record, step=Step.HELD)
    if wish.address:
        held = replace(record, step=Step.DELEGATED, address=wish.address)
    return _with_record(Next(Progress.SILENT, annotations), held)


def _empty(seen: Seen, record: Record | None) -> Next:
    """Have kube-vip withdraw the address, in a patch of its own."""
    address = "" if record is None else record.address
    annotations = {names.KUBE_VIP_ADDRESSES: NO_ADDRESS, names.KUBE_VIP_IGNORE: None}
    step = Next(Progress.SILENT, annotations, holds_status=True)
    return _with_record(step, _following(seen, record, Step.WITHDRAWN, address))


def _withdraw_for_good(seen: Seen, record: Record | None) -> Next:
    """Have kube-vip withdraw the address. It would skip the deletion of a Service with an address that it ignores."""
    if record is None and seen.is_untouched:
        return Next(Progress.SILENT)
    is_done = seen.is_withdrawn if record is None else _is_as_withdrawn(seen, record)
    if is_done:
        return Next(Progress.SILENT)
    return replace(_empty(seen, record), holds_status=False)


def _release(seen: Seen) -> Annotations:
    removed: Annotations = {
        names.KUBE_VIP_ADDRESSES: None,
        names.KUBE_VIP_IGNORE: None,
        names.ANNOUNCED_AS: None,
    }
    return {**removed, names.KUBE_VIP_DDNS: None} if seen.ddns in _SPELLINGS else removed


def _announce(seen: Seen, record: Record | None, wish: Wish, timers: Timers, announcer: Announcer) -> Next:
    if record is None:
        return _announce_without_record(seen, wish, announcer)
    is_ready_for_address = record.is_held and _is_as_withdrawn(seen, record)
    if not is_ready_for_address and (seen.is_withdrawn or not record.is_published):
        # kube-vip gets time for a withdrawal, whoever has emptied the annotation.
        return replace(_hold(seen, record, HOLD, timers), holds_status=True)
    if not _is_as_published(seen, record, wish):
        return _publish(seen, record, wish.address, announcer)
    if seen.ignored:
        return Next(Progress.IGNORED, has_receipt=bool(seen.node))
    if record.fields != seen.compared:
        return _with_new_fields(seen, record, announcer)
    return _after_publication(seen, record, timers, announcer)


def _is_as_published(seen: Seen, record: Record, wish: Wish) -> bool:
    """Return whether the wanted address is published. A lease that was lost afterwards has to be requested again."""
    if not record.is_published or record.address != wish.address or seen.address_annotation != wish.address:
        return False
    is_lease = wish.address == names.DHCP_ADDRESS
    return not is_lease or wish.has_lease or record.step in {Step.PUBLISHED, Step.RESPELLED}


def _announce_without_record(seen: Seen, wish: Wish, announcer: Announcer) -> Next:
    """Adopt a Service that another provider has published; withdraw the address of any other one first.

    A Service that shares the address of another one can be new.
    """
    is_announced = bool(seen.node) or not seen.ignored
    if seen.address_annotation == wish.address and seen.shows(wish.address) and is_announced:
        adopted = Record(seen.uid, Step.ADOPTED, wish.address, seen.compared, node=seen.node)
        return _with_record(replace(_shown(seen, adopted, announcer), holds_status=True), adopted)
    if seen.is_untouched and not seen.ignored and not wish.had_address:
        return _publish_first(seen, wish.address, announcer)
    held = _hold_without_record(seen, Wish(Goal.HOLD, had_address=True))
    return replace(held, holds_status=bool(held.annotations))


def _publish(seen: Seen, record: Record, address: str, announcer: Announcer) -> Next:
    """Publish an address that kube-vip does not announce yet.

    The first one of a Service is complete in one patch. Any other one is one patch for kube-vip's annotations, and one
    for the status and the condition: kube-vip 1.2 needs a second event. The patch removes the receipt, which kube-vip
    then writes again. With DHCP it clears the status: the next address there is the lease.
    """
    if not record.again and not record.is_published:
        return _publish_first(seen, address, announcer)
    is_lease = address == names.DHCP_ADDRESS
    needs_respelling = record.needs_respelling or not record.is_published or not seen.address_annotation or is_lease
    published = replace(_following(seen, record, Step.PUBLISHED, address), needs_respelling=needs_respelling)
    annotations = {names.KUBE_VIP_ADDRESSES: address, names.KUBE_VIP_IGNORE: None, names.KUBE_VIP_HOST: None}
    step = Next(Progress.WAITING, annotations, holds_status=True, clears_status=is_lease)
    return _with_record(step, published)


def _publish_first(seen: Seen, address: str, announcer: Announcer) -> Next:
    annotations = {names.KUBE_VIP_ADDRESSES: address, names.KUBE_VIP_IGNORE: None}
    step = Next(Progress.SHOWN, annotations, clears_status=address == names.DHCP_ADDRESS)
    first = Record(seen.uid, Step.PUBLISHED, address, seen.compared, again=False)
    if announcer is Announcer.KUBE_VIP:
        return _with_record(replace(step, progress=Progress.WAITING, is_receipt_expected=True), first)
    if address == names.DHCP_ADDRESS:
        return _with_record(step, first)
    return _with_record(step, replace(first, step=Step.SHOWN))


def _following(seen: Seen, record: Record | None, step: Step, address: str) -> Record:
    """Return the record of a step after which kube-vip announces something else than before."""
    following = Record(seen.uid, step, address, seen.compared, node=seen.node)
    if record is None:
        return following
    return replace(following, node=seen.node or record.node, answers=record.answers)


def _with_new_fields(seen: Seen, record: Record, announcer: Announcer) -> Next:
    """Record another field that kube-vip compares. It may have withdrawn the address for that, for a moment."""
    if record.step in {Step.PUBLISHED, Step.RESPELLED}:
        changed = replace(record, step=Step.PUBLISHED, fields=seen.compared, again=True)
        return _with_record(_waiting(seen, changed, Timers(), announcer), changed)
    return _with_record(_shown(seen, record, announcer), replace(record, step=Step.ANNOUNCED, fields=seen.compared))


def _after_publication(seen: Seen, record: Record, timers: Timers, announcer: Announcer) -> Next:
    """Return the step after the publication of an address that is still the wanted one."""
    match record.step:
        case Step.ANNOUNCED:
            return _after_announcement(seen, record, timers, announcer)
        case Step.PUBLISHED:
            return _after_publishing(seen, record, timers, announcer)
        case Step.RESPELLED:
            return _after_respelling(seen, record, timers, announcer)
    shown = _shown(seen, record, announcer)
    if seen.status:
        return shown
    # The API server empties the status of a Service that is of another type for a moment. kube-vip may need a touch.
    return _with_record(shown, replace(record, step=Step.ANNOUNCED, again=True))


def _shown(seen: Seen, record: Record, announcer: Announcer) -> Next:
    """Return the state of an address that is left alone: nothing is known against it."""
    has_receipt = bool(seen.node or record.node)
    return Next(Progress.SHOWN, has_receipt=has_receipt, is_receipt_expected=announcer is Announcer.KUBE_VIP)


def _after_announcement(seen: Seen, record: Record, timers: Timers, announcer: Announcer) -> Next:
    """A touch is what kube-vip needs to announce the address again, and changes nothing where it does."""
    shown = _shown(seen, record, announcer)
    if timers.touches < len(TOUCH_SECONDS) or timers.is_touch_refused:
        return _with_touch(shown, timers)
    if _expects_receipt(record, announcer) and not seen.node:
        # This kube-vip notes its node when it announces an address, so it does not announce this one.
        silent = replace(record, step=Step.PUBLISHED, again=True, needs_respelling=True)
        return _with_record(_waiting(seen, silent, Timers(), announcer), silent)
    return _with_record(shown, replace(record, step=Step.SHOWN))


def _after_respelling(seen: Seen, record: Record, timers: Timers, announcer: Announcer) -> Next:
    """kube-vip needs one more event of the Service after it has read the other spelling, unless there is a receipt."""
    if _has_receipt(seen, record):
        return _completed(seen, record, timers, announcer, Next(Progress.SHOWN, has_receipt=True))
    waiting = _waiting(seen, record, timers, announcer)
    if timers.since < STEP_SECONDS:
        return replace(waiting, look_again_after=STEP_SECONDS - timers.since)
    # Another client may have removed the spelling.
    is_spelled = seen.ddns in _SPELLINGS
    published = replace(record, step=Step.PUBLISHED, needs_respelling=not is_spelled, was_respelled=is_spelled)
    return _with_record(waiting, published)


def _after_publishing(seen: Seen, record: Record, timers: Timers, announcer: Announcer) -> Next:
    waiting = _waiting(seen, record, timers, announcer)
    if timers.touches == 0 and record.again and seen.node and not seen.shows(record.address):
        # An instance of kube-vip that ends has written the status and its node.
        return replace(waiting, annotations={names.KUBE_VIP_HOST: None})
    if waiting.progress is Progress.SHOWN and _is_complete(seen, record, timers, announcer):
        return _completed(seen, record, timers, announcer, waiting)
    if _has_lost_lease(seen, record, timers):
        return _publish(seen, replace(record, again=True), record.address, announcer)
    if not record.again:
        return waiting
    if waiting.has_receipt or timers.touches < _touches_before_respelling(record):
        return _with_touch(waiting, timers)
    if not _may_respell(seen, record, announcer):
        return _with_touch(waiting, timers)
    if timers.since_touch < STEP_SECONDS:
        return replace(waiting, look_again_after=STEP_SECONDS - timers.since_touch)
    other = _SPELLINGS[1] if seen.ddns == _SPELLINGS[0] else _SPELLINGS[0]
    respelled = replace(waiting, annotations={names.KUBE_VIP_DDNS: other}, holds_status=True)
    return _with_record(respelled, replace(record, step=Step.RESPELLED))


def _has_lost_lease(seen: Seen, record: Record, timers: Timers) -> bool:
    """Return whether there is a receipt, and another client has removed the lease from the status since.

    kube-vip writes a lease once, so it has to be requested again.
    """
    is_for_lease = record.address == names.DHCP_ADDRESS
    return is_for_lease and bool(seen.node) and not seen.leases and timers.since >= LEASE_SECONDS


def _completed(seen: Seen, record: Record, timers: Timers, announcer: Announcer, step: Next) -> Next:
    has_answered = record.again and bool(seen.node)
    answers = record.answers or has_answered
    needs_touches = has_answered and announcer is not Announcer.OTHER and not timers.is_touch_refused
    completed = Step.ANNOUNCED if needs_touches else Step.SHOWN
    return _with_record(step, replace(record, step=completed, needs_respelling=False, node=seen.node, answers=answers))


def _waiting(seen: Seen, record: Record, timers: Timers, announcer: Announcer) -> Next:
    """Return the state of a published address: a touch in any case, and a receipt where one is expected.

    The first address of a Service needs no touch.
    """
    is_expected = _expects_receipt(record, announcer)
    has_receipt = _has_receipt(seen, record)
    is_touched = timers.touches > 0 or not record.again
    is_respelled_soon = record.needs_respelling and _may_respell(seen, record, announcer)
    is_over = record.step is Step.PUBLISHED and not is_respelled_soon
    is_shown = is_touched and (has_receipt or (is_over and not is_expected))
    progress = Progress.SHOWN if is_shown else Progress.WAITING
    return Next(progress, is_receipt_expected=is_expected, has_receipt=has_receipt)


def _expects_receipt(record: Record, announcer: Announcer) -> bool:
    """Return whether kube-vip notes its node, as the operator says or as it has done before."""
    return announcer is Announcer.KUBE_VIP or (announcer is Announcer.AUTO and record.answers)


def _has_receipt(seen: Seen, record: Record) -> bool:
    """Return whether there is a receipt for the address; for one from DHCP, the lease belongs to it."""
    return bool(seen.node) and (record.address != names.DHCP_ADDRESS or bool(seen.leases))


def _is_complete(seen: Seen, record: Record, timers: Timers, announcer: Announcer) -> bool:
    """Return whether no further touch is due for an address that counts as announced."""
    if record.address == names.DHCP_ADDRESS and not seen.leases:
        return False
    needs_no_touch = announcer is Announcer.OTHER or not record.again
    return needs_no_touch or timers.touches >= len(TOUCH_SECONDS) or bool(seen.node)


def _may_respell(seen: Seen, record: Record, announcer: Announcer) -> bool:
    """Return whether another spelling can make kube-vip handle the Service as a new one.

    It compares the text of the annotation for dynamic DNS, and all spellings of false mean its default.
    """
    return not record.was_respelled and not seen.has_dynamic_dns and announcer is not Announcer.OTHER


def _touches_before_respelling(record: Record) -> int:
    """Without a withdrawal, the touches are enough as a rule. A DHCP server may need some seconds after the first.

    After a withdrawal, kube-vip 1.2 would announce the address with a touch, and withdraw it for the other spelling.
    """
    if not record.needs_respelling:
        return len(TOUCH_SECONDS)
    return 2 if record.address == names.DHCP_ADDRESS else 0


def _with_touch(step: Next, timers: Timers) -> Next:
    left = _seconds_to_touch(timers.touches) - timers.since_touch
    return replace(step, touch=True) if left <= 0 else replace(step, look_again_after=left)


def _seconds_to_touch(touches: int) -> float:
    """Return the seconds between the touch of this number, counted from 0, and what comes before it."""
    if touches < len(TOUCH_SECONDS):
        return TOUCH_SECONDS[touches]
    # A much larger exponent would overflow a float.
    further = min(touches + 1 - len(TOUCH_SECONDS), 20)
    return TOUCH_SECONDS[-1] * 3.0**further


def _with_record(step: Next, record: Record) -> Next:
    """Return a step that writes the record."""
    return replace(step, annotations={**step.annotations, names.ANNOUNCED_AS: written_record(record)})


def leases_of(seen: Seen, record: Record | None, *, recorded: str) -> tuple[str, ...]:
    """Return the addresses that kube-vip has leased by DHCP for a Service, as far as the Service shows it.

    Those in the status count: it was cleared for the publication. kube-vip writes a lease once, and other clients can
    remove it from the status or the annotation. Then ``recorded`` shows it, the copy that this controller made on the
    load balancer.
    """
    if record is None:
        return seen.leases if seen.address_annotation == names.DHCP_ADDRESS and not seen.ignored else ()
    if not record.is_published or record.address != names.DHCP_ADDRESS:
        return ()
    is_copied = bool(recorded) and record.step in {Step.SHOWN, Step.ADOPTED, Step.ANNOUNCED}
    return (recorded,) if is_copied and not seen.leases else seen.leases
