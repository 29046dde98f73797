"""The second announcement of an address by kube-vip."""

import shlex

import pytest
from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.core import Service, ServiceCondition
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    ANNOUNCED_AS,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LOAD_BALANCER_READY,
    Reason,
)
from harvester_ccm.plan.service.desired import Desired, TriggerKubeVipResync
from harvester_ccm.plan.service.kube_vip import Announce, Withdraw, read_state
from harvester_ccm.plan.service.reannouncement import (
    Reannouncement,
    Stage,
    reannouncement_of,
    record_in,
    resync_not_permitted,
    with_reannouncement,
)
from harvester_ccm.plan.service.snapshot import ServiceState
from harvester_ccm.plan.service.verdict import NotReady, Ready
from tests.support.builders import ADDRESS, CLUSTER, SUPPRESSED, allocated, served, service
from tests.unit.plan.service.snapshots import WITHDRAWN, conditioned, snapshot_of

OTHER = "10.0.0.9"
LOCAL = {"externalTrafficPolicy": "Local"}
RECORDED = {ANNOUNCED_AS: "Cluster IPv4 SingleStack"}
CHANGED = served(annotations=RECORDED, spec=LOCAL)
"""A Service that kube-vip announced with another externalTrafficPolicy."""
WITHDRAWN_SERVICE = service(ours=True, address=ADDRESS, annotations={**WITHDRAWN, KUBE_VIP_HOST: "n1"})

STAGES: dict[str, tuple[Service, float | None, Reannouncement]] = {
    "new": (service(), None, Reannouncement(Stage.NOT_NEEDED)),
    "paused": (service(annotations=SUPPRESSED), None, Reannouncement(Stage.NOT_NEEDED)),
    "announced": (served(), None, Reannouncement(Stage.NOT_NEEDED)),
    "another one is announced": (
        service(ours=True, address=OTHER, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        None,
        Reannouncement(Stage.WITHDRAW_FIRST),
    ),
    "another one is announced, a touch is due": (
        service(ours=True, address=OTHER, annotations={KUBE_VIP_ADDRESSES: OTHER}),
        -1.0,
        Reannouncement(Stage.WITHDRAW_FIRST),
    ),
    "withdrawn": (WITHDRAWN_SERVICE, None, Reannouncement(Stage.PUBLISH, 1.0)),
    "withdrawn, a touch is due": (WITHDRAWN_SERVICE, -1.0, Reannouncement(Stage.PUBLISH, 1.0)),
    "paused, a touch is due": (service(annotations=SUPPRESSED), -1.0, Reannouncement(Stage.PUBLISH, 1.0)),
    "announced with these fields": (served(annotations=RECORDED), None, Reannouncement(Stage.NOT_NEEDED)),
    "announced with another policy": (CHANGED, None, Reannouncement(Stage.PUBLISH, 1.0)),
    "announced with another policy, a touch is due": (CHANGED, 0.5, Reannouncement(Stage.PUBLISH, 1.0)),
    "published": (served(), 0.25, Reannouncement(Stage.WAIT, 0.25)),
    "published a second ago": (served(), 0.0, Reannouncement(Stage.RESYNC)),
    "the touch is late": (served(), -5.0, Reannouncement(Stage.RESYNC)),
}


@pytest.mark.parametrize(("concerned", "touch_in", "expected"), STAGES.values(), ids=STAGES.keys())
def test_stage(concerned: Service, touch_in: float | None, expected: Reannouncement) -> None:
    assert reannouncement_of(snapshot_of(concerned, touch_in=touch_in), ADDRESS) == expected


def test_another_program_withdraws_nothing_when_the_policy_changes() -> None:
    cluster = replace(CLUSTER, announcer=Announcer.OTHER)
    changed = snapshot_of(CHANGED, cluster=cluster)
    assert reannouncement_of(changed, ADDRESS) == Reannouncement(Stage.NOT_NEEDED)
    assert record_in(changed, Announce(ADDRESS)) == {}
    assert record_in(changed, Withdraw()) == {ANNOUNCED_AS: None}


def test_policy_of_the_first_reconcile_counts_without_a_record() -> None:
    state = ServiceState()
    state.note_fields(read_state(served()))
    assert state.announced_as == RECORDED[ANNOUNCED_AS]
    changed = served(spec=LOCAL)
    state.note_fields(read_state(changed))
    assert state.announced_as == RECORDED[ANNOUNCED_AS]
    assert record_in(replace(snapshot_of(changed), remembered=state), Announce(ADDRESS)) == {
        ANNOUNCED_AS: "Local IPv4 SingleStack"
    }
    state.note_fields(read_state(served(spec=LOCAL, annotations={ANNOUNCED_AS: "Local IPv4 SingleStack"})))
    assert state.announced_as == "Local IPv4 SingleStack"


@pytest.mark.parametrize(
    ("changed", "published", "resync_at", "expected"),
    [
        (served(spec=LOCAL), ADDRESS, None, 5.0),
        (served(spec=LOCAL), "", 4.0, 5.0),
        (served(spec=LOCAL), "", None, None),
        (WITHDRAWN_SERVICE, "", None, None),
        (served(spec=LOCAL, annotations={KUBE_VIP_IGNORE: "true"}), ADDRESS, None, None),
    ],
    ids=["announced", "a touch is due", "not announced yet", "withdrawn", "ignored"],
)
def test_change_of_an_announced_service_has_its_endpoints_touched(
    changed: Service, published: str, resync_at: float | None, expected: float | None
) -> None:
    state = ServiceState(published=published, resync_at=resync_at)
    state.expect_resync(read_state(changed), 5.0)
    assert state.resync_at == expected


def test_every_stage_is_reached() -> None:
    assert {reannouncement.stage for _, _, reannouncement in STAGES.values()} == set(Stage)


READY = Ready((ADDRESS,), "x")
ANNOUNCED = Desired(READY, Announce(ADDRESS))


@pytest.mark.parametrize(("concerned", "touch_in", "expected"), STAGES.values(), ids=STAGES.keys())
def test_state_of_a_stage(concerned: Service, touch_in: float | None, expected: Reannouncement) -> None:
    desired = with_reannouncement(ANNOUNCED, snapshot_of(concerned, touch_in=touch_in), ADDRESS)
    waits = expected.stage is not Stage.NOT_NEEDED
    assert isinstance(desired.verdict, NotReady) is waits
    if isinstance(desired.verdict, NotReady):
        assert desired.verdict.reason is Reason.KUBE_VIP_RESYNC_PENDING
    assert desired.kube_vip == (Withdraw() if expected.stage is Stage.WITHDRAW_FIRST else Announce(ADDRESS))
    assert desired.triggers_resync is (expected.stage is Stage.PUBLISH)
    assert desired.look_again_after == (expected.seconds or None)
    assert desired.write == (TriggerKubeVipResync() if expected.stage is Stage.RESYNC else None)


def with_condition(of: Service, status: str) -> Service:
    """Return a Service with this controller's condition."""
    condition = ServiceCondition(type=LOAD_BALANCER_READY, status=status, reason=Reason.KUBE_VIP_RESYNC_PENDING)
    return replace(of, status=replace(of.status, conditions=(condition,)))


RESTARTS: dict[str, tuple[Service, str, float | None]] = {
    "ready": (served(), "", None),
    "ready, was of another type": (conditioned(Reason.ENSURED, annotations={KUBE_VIP_ADDRESSES: ADDRESS}), "", 6.0),
    "not ready, an address is announced": (served(condition=False), "False", 5.0),
    "not ready, an address is announced, not the first reconcile": (served(condition=False), "False in Pending", None),
    "not ready, withdrawn": (WITHDRAWN_SERVICE, "False", None),
}


@pytest.mark.parametrize(("concerned", "condition", "resync_at"), RESTARTS.values(), ids=RESTARTS.keys())
def test_restarted_process_assumes_that_the_touch_is_missing(
    concerned: Service, condition: str, resync_at: float | None
) -> None:
    status, _, phase = condition.partition(" in ")
    state = ServiceState(phase=phase)
    state.resume(snapshot_of(with_condition(concerned, status) if status else concerned), 5.0)
    assert state.resync_at == resync_at


OF_THIS_CONTROLLER = allocated(spec={"description": "shop/web of cluster demo"})
"""The Go provider writes no description."""


@pytest.mark.parametrize(
    ("concerned", "own", "resync_at"),
    [
        (served(condition=False), OF_THIS_CONTROLLER, 5.0),
        (served(condition=False, annotations={KUBE_VIP_HOST: "n1"}), OF_THIS_CONTROLLER, 5.0),
        (served(condition=False), allocated(), None),
        (service(ours=True, address=ADDRESS, annotations=WITHDRAWN, condition=False), OF_THIS_CONTROLLER, None),
    ],
    ids=["removed", "removed, kube-vip has noted its node", "Go provider", "removed, withdrawn"],
)
def test_removed_condition_may_have_said_that_the_touch_is_missing(
    concerned: Service, own: LoadBalancer, resync_at: float | None
) -> None:
    state = ServiceState()
    state.resume(snapshot_of(concerned, own), 5.0)
    assert state.resync_at == resync_at


def test_phase_restarts_the_time() -> None:
    state = ServiceState()
    state.enter("New", 3.0)
    state.enter("New", 4.0)
    assert (state.phase, state.since) == ("New", 3.0)
    state.enter("Pending", 5.0)
    assert (state.phase, state.since) == ("Pending", 5.0)


def test_touch_that_is_not_permitted_has_a_command() -> None:
    event = resync_not_permitted(service())
    assert (event.type, event.reason) == ("Warning", Reason.NOT_ANNOUNCED)
    assert "rbac.endpointSlices" in event.message
    assert shlex.split(event.command)[:6] == [
        "kubectl",
        "--namespace",
        "shop",
        "annotate",
        "endpointslices",
        "--selector",
    ]
    assert "kubernetes.io/service-name=web" in event.command
