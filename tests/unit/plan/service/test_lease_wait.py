"""The wait for an address from DHCP that kube-vip has to get once more."""

from typing import Final

import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import ServiceCondition
from harvester_ccm.names import DHCP_ADDRESS, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, LOAD_BALANCER_READY, Reason
from harvester_ccm.plan.service.lease_wait import Action, LeaseWait, Step
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, ServiceState
from tests.support.builders import ADDRESS, service
from tests.unit.plan.service.snapshots import snapshot_of

BEGAN: Final = 100.0
SECOND: Final = {KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_HOST: "n1"}
FOR_LEASE: Final = snapshot_of(service(annotations=SECOND))
FIRST: Final = snapshot_of(service(annotations={KUBE_VIP_ADDRESSES: DHCP_ADDRESS}))
WITH_LEASE: Final = snapshot_of(service(address=ADDRESS, annotations=SECOND))
WITHDRAWN: Final = snapshot_of(service(annotations={KUBE_VIP_ADDRESSES: "", KUBE_VIP_HOST: "n1"}))


def _with_condition(reason: Reason) -> ServiceSnapshot:
    """Return the snapshot of a Service with a lease and this condition."""
    with_lease = service(ours=True, address=ADDRESS, annotations=SECOND)
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status="False", reason=reason)
    status = replace(with_lease.status, conditions=(condition,))
    return snapshot_of(replace(with_lease, status=status))


AGAIN: Final = _with_condition(Reason.KUBE_VIP_RESYNC_PENDING)
OTHERWISE_NOT_READY: Final = _with_condition(Reason.SYNC_FAILED)


def _times(action: Action, seconds: float, *, may_request: bool) -> list[float]:
    """Return when something is done within a time, in seconds from the beginning."""
    wait, now, times = LeaseWait(BEGAN), BEGAN, []
    while now <= BEGAN + seconds:
        step = wait.step(now, may_request=may_request)
        if step.action is Action.WAIT:
            if step.seconds is None:
                break
            now += step.seconds
            continue
        if step.action is action:
            times.append(now - BEGAN)
        wait = wait.requested(now) if step.action is Action.REQUEST else wait.touched()
    return times


def test_endpoints_are_touched_until_a_dhcp_server_must_have_answered() -> None:
    assert _times(Action.TOUCH, 10_000.0, may_request=False) == [5.0, 15.0, 45.0, 135.0]


def test_pauses_between_requests_double() -> None:
    assert _times(Action.REQUEST, 10_000.0, may_request=True) == [10.0, 610.0, 1810.0, 4210.0, 9010.0]


def test_endpoints_are_touched_after_each_request() -> None:
    touches = _times(Action.TOUCH, 1000.0, may_request=True)
    assert touches == [5.0, 15.0, 25.0, 55.0, 145.0, 615.0, 625.0, 655.0, 745.0]


def test_pause_after_very_many_requests() -> None:
    assert LeaseWait(0.0, requests=5000, touches=4).step(1e9, may_request=True).action is Action.WAIT


def test_nothing_is_due_after_the_touches() -> None:
    assert LeaseWait(0.0, touches=4).step(1e9, may_request=False) == Step(Action.WAIT)


def test_wait_begins_with_an_announcement_that_needs_a_touch() -> None:
    state = ServiceState(resync_at=BEGAN + 1.0)
    state.note_lease_wait(FIRST, Reason.KUBE_VIP_RESYNC_PENDING, BEGAN)
    assert state.lease_wait == LeaseWait(BEGAN)
    state.note_lease_wait(FIRST, Reason.KUBE_VIP_RESYNC_PENDING, BEGAN + 1.0)
    assert state.lease_wait == LeaseWait(BEGAN)


def test_wait_begins_without_a_lease_if_an_address_was_announced() -> None:
    state = ServiceState()
    state.note_lease_wait(FOR_LEASE, Reason.DHCP_LEASE_PENDING, BEGAN)
    assert state.lease_wait == LeaseWait(BEGAN)


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        pytest.param(FIRST, Reason.DHCP_LEASE_PENDING, id="no address was announced"),
        pytest.param(WITH_LEASE, "", id="it has a lease"),
        pytest.param(FOR_LEASE, "", id="the status was emptied"),
        pytest.param(WITHDRAWN, Reason.DHCP_LEASE_PENDING, id="it is withdrawn"),
    ],
)
def test_wait_does_not_begin(snapshot: ServiceSnapshot, reason: str) -> None:
    state = ServiceState()
    state.note_lease_wait(snapshot, reason, BEGAN)
    assert state.lease_wait is None


def test_wait_goes_on_with_a_lease_and_ends_with_its_withdrawal() -> None:
    state = ServiceState(lease_wait=LeaseWait(BEGAN))
    state.note_lease_wait(WITH_LEASE, "", BEGAN + 5.0)
    assert state.lease_wait == LeaseWait(BEGAN)
    state.note_lease_wait(WITHDRAWN, "", BEGAN + 5.0)
    assert state.lease_wait is None


def test_request_begins_the_touches_again() -> None:
    state = ServiceState(lease_wait=LeaseWait(BEGAN, requests=1, touches=4))
    state.note_lease_request(BEGAN + 600.0)
    assert state.lease_wait == LeaseWait(BEGAN + 600.0, requests=2)


def test_touch_that_follows_a_patch_is_not_counted() -> None:
    state = ServiceState(lease_wait=LeaseWait(BEGAN), resync_at=BEGAN)
    state.note_touch()
    assert state.lease_wait == LeaseWait(BEGAN)
    state.resync_at = None
    state.note_touch()
    assert state.lease_wait == LeaseWait(BEGAN, touches=1)


DOUBTS: dict[str, tuple[ServiceSnapshot, LeaseWait | None, float | None, bool]] = {
    "it is announced again": (AGAIN, None, BEGAN, True),
    "it is written before the touch": (AGAIN, LeaseWait(BEGAN), BEGAN, True),
    "it is written after the touch": (AGAIN, LeaseWait(BEGAN), None, False),
    "it was requested again": (AGAIN, LeaseWait(BEGAN, requests=1), BEGAN, False),
    "there is none": (FOR_LEASE, None, BEGAN, False),
    "the condition has another cause": (OTHERWISE_NOT_READY, None, BEGAN, False),
    "there is no condition": (WITH_LEASE, None, BEGAN, False),
}


@pytest.mark.parametrize(("snapshot", "wait", "resync_at", "is_doubtful"), DOUBTS.values(), ids=DOUBTS.keys())
def test_lease_that_may_be_the_one_from_before(
    snapshot: ServiceSnapshot, wait: LeaseWait | None, resync_at: float | None, *, is_doubtful: bool
) -> None:
    state = ServiceState(lease_wait=wait, resync_at=resync_at)
    state.note_lease_wait(snapshot, "", BEGAN)
    assert state.lease_wait is not None
    assert state.lease_wait.is_doubtful is is_doubtful
