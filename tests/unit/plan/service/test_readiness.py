"""Ready or not: the condition and the Events of a published address, by what kube-vip has noted."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.config import Announcer
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import (
    ANNOUNCED_AS,
    DHCP_ADDRESS,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LOAD_BALANCER_CLASS,
)
from harvester_ccm.plan.service.announcing.endpoints import Endpoints, Reading
from harvester_ccm.plan.service.announcing.record import Record, Step, written_record
from harvester_ccm.plan.service.announcing.sequence import TOUCH_SECONDS
from harvester_ccm.plan.service.desired import ServicePlan
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import ServiceState
from tests.support.builders import ADDRESS, CLUSTER, UID, allocated, served, service
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import (
    SHARED,
    SHARES,
    reasons,
    short_condition,
    short_write,
    snapshot_of,
    with_condition,
)

KUBE_VIP: Final = replace(CLUSTER, announcer=Announcer.KUBE_VIP)
OTHER: Final = replace(CLUSTER, announcer=Announcer.OTHER)
USUAL: Final = f"The load balancer has address {ADDRESS}"
CLASS: Final = {"loadBalancerClass": LOAD_BALANCER_CLASS}
LOCAL: Final = {"externalTrafficPolicy": "Local"}
NOTED: Final = {KUBE_VIP_HOST: "n1"}
ALL_TOUCHES: Final = len(TOUCH_SECONDS)


def published(
    step: Step = Step.SHOWN, *, more: Mapping[str, str] | None = None, again: bool = True, **fields: Any
) -> Service:
    """Return a Service whose record has this step; ``more`` are further annotations.

    Until kube-vip has noted the address, it has no condition.
    """
    answers = bool(fields.pop("answers", False))
    fields.setdefault("condition", step is not Step.PUBLISHED)
    spec = fields.get("spec", {})
    compared = f"{spec.get('externalTrafficPolicy', 'Cluster')} IPv4 SingleStack"
    record = Record(UID, step, ADDRESS, compared, again=again, answers=answers)
    return served(annotations={ANNOUNCED_AS: written_record(record), **(more or {})}, **fields)


FIRST: Final = published(Step.PUBLISHED, again=False)
AGAIN: Final = published(Step.PUBLISHED)
ANSWERED: Final = published(Step.PUBLISHED, answers=True)
SHOWN: Final = published()
ADOPTED: Final = published(Step.ADOPTED)


class Case(NamedTuple):
    """A published Service, and what is known about it."""

    service: Service = FIRST
    cluster: ClusterIdentity = KUBE_VIP
    reading: Reading = Reading.NONE
    since: float = 60.0
    """Seconds since the publication."""
    touches: int = 0
    since_touch: float | None = None
    others_at: float | None = None
    """Seconds after the publication at which kube-vip last noted a node on another Service."""
    read_before: float = 0.0
    """Seconds since the endpoints were read."""


def plan_of(case: Case) -> ServicePlan:
    facts: dict[str, Any] = {} if case.others_at is None else {"last_announced_at": case.others_at - case.since}
    snapshot = snapshot_of(
        case.service, allocated(), cluster=case.cluster, since=case.since, touches=case.touches, **facts
    )
    snapshot.remembered.endpoints = Endpoints(case.reading, -case.read_before)
    if case.since_touch is not None:
        snapshot.remembered.touched_at = -case.since_touch
    return plan_service(snapshot)


def outcome(plan: ServicePlan) -> str:
    """Return the write if it is not of the condition alone, status and reason of the condition, and what is next."""
    write = short_write(plan.write)
    parts = []
    if write == "touch":
        parts.append("touch")
    elif write not in (None, "condition"):  # a write is a dictionary
        parts.append("patch")
    parts += [short_condition(plan.condition), *reasons(plan)]
    if plan.reads_endpoints:
        parts.append("read")
    if plan.look_again_after is not None:
        parts.append(f"again in {plan.look_again_after:g}")
    return ", ".join(parts)


CASES: Final[dict[str, Case]] = {
    "first, in time": Case(since=4),
    "first, 10 s: the endpoints are read": Case(since=10.0),
    "first, 10 s, no endpoint": Case(reading=Reading.MISSING, since=10.0),
    "first, 10 s, an endpoint": Case(reading=Reading.EXIST, since=10.0),
    "first, late": Case(reading=Reading.EXIST),
    "first, late, unreadable": Case(reading=Reading.UNREADABLE),
    "first, late, kube-vip noted another Service": Case(reading=Reading.EXIST, others_at=40),
    "first, others were noted for an hour": Case(
        reading=Reading.EXIST,
        others_at=3650.0,
        since=3660.0,
    ),
    "first, read long ago": Case(reading=Reading.EXIST, read_before=400.0),
    "first, noted": Case(published(Step.PUBLISHED, more=NOTED, again=False)),
    "first, announcer not known": Case(published(again=False), CLUSTER, since=4),
    "first, announcer not known, late": Case(published(again=False), CLUSTER),
    "first, announcer not known, late, no endpoint": Case(published(again=False), CLUSTER, Reading.MISSING),
    "first, another announcer": Case(published(again=False), OTHER, Reading.EXIST),
    "again, before the touch": Case(AGAIN, CLUSTER, since=0.5),
    "again, before the touch, no address was free before": Case(
        with_condition(AGAIN, "False", "PoolExhausted"), CLUSTER, since=0.5
    ),
    "again, the touch": Case(AGAIN, CLUSTER, since=1),
    "again, the touch after the condition": Case(with_condition(AGAIN, "False", "Announcing"), CLUSTER, since=1),
    "again, touched, announcer not known": Case(AGAIN, CLUSTER, since=2, touches=1),
    "again, touched, kube-vip has answered before": Case(ANSWERED, CLUSTER, since=2, touches=1),
    "again, touched, kube-vip": Case(AGAIN, since=2, touches=1),
    "again, touched and noted": Case(published(Step.PUBLISHED, more=NOTED), since=2, touches=1),
    "again, late, kube-vip has answered before": Case(
        ANSWERED,
        CLUSTER,
        Reading.EXIST,
        touches=ALL_TOUCHES,
    ),
    "again, late, kube-vip": Case(
        AGAIN,
        KUBE_VIP,
        Reading.EXIST,
        touches=ALL_TOUCHES,
    ),
    "shown, noted": Case(published(more=NOTED)),
    "shown, never noted, announcer not known": Case(SHOWN, CLUSTER, Reading.EXIST),
    "another policy, noted": Case(published(Step.ANNOUNCED, more=NOTED), since=2, touches=1),
    "adopted, not noted, kube-vip, an endpoint": Case(ADOPTED, reading=Reading.EXIST),
    "adopted, not noted, announcer not known": Case(ADOPTED, CLUSTER, Reading.EXIST),
    "a user has it ignored": Case(published(more={KUBE_VIP_IGNORE: "true"})),
    "a user has it ignored, another announcer": Case(published(more={KUBE_VIP_IGNORE: "true"}), OTHER),
    "a user has it not ignored, noted": Case(published(more={**NOTED, KUBE_VIP_IGNORE: "false"})),
    "a user has a new one ignored": Case(service(ours=True, annotations={KUBE_VIP_IGNORE: "true"})),
    "a user has it ignored, noted": Case(published(more={**NOTED, KUBE_VIP_IGNORE: "true"})),
    "policy Local": Case(
        published(Step.PUBLISHED, again=False, spec=LOCAL),
        reading=Reading.MISSING,
    ),
}


def test_published_service() -> None:
    assert differing("readiness", {name: outcome(plan_of(case)) for name, case in CASES.items()}) == []


TEXTS: Final[dict[str, tuple[Case, list[str]]]] = {
    "no endpoint": (
        CASES["first, 10 s, no endpoint"],
        ["has no endpoint", "a ready Pod that its selector matches, or without a selector an EndpointSlice"],
    ),
    "policy Local": (
        CASES["policy Local"],
        ["No endpoint of the Service takes traffic", "externalTrafficPolicy Local"],
    ),
    "unknown": (
        CASES["shown, never noted, announcer not known"],
        ["No node has noted", "set --announcer=other", "check that the kube-vip Pods run"],
    ),
    "not announced": (
        CASES["first, late"],
        ["that the kube-vip Pods run", "svc_namespace and lb_class_only", "its log", "before 1.1.2"],
    ),
    "class": (
        CASES["first, late"]._replace(service=published(Step.PUBLISHED, again=False, spec=CLASS)),
        [
            f"Check that kube-vip serves class {LOAD_BALANCER_CLASS} (lb_class_name; chart: kube-vip.harvesterClass); ",
            "; that the kube-vip Pods run",
        ],
    ),
    "policy Local, with endpoints": (
        CASES["first, late"]._replace(service=published(Step.PUBLISHED, again=False, spec=LOCAL)),
        ["runs on a node with a Pod of the Service", "runOn all", "svc_election"],
    ),
    "unreadable": (CASES["first, late, unreadable"], ["that a Pod of the Service is ready"]),
    "ignored": (
        CASES["a user has it ignored"],
        ["kube-vip.io/ignore with value 'true'", f"annotate service web {KUBE_VIP_IGNORE}-"],
    ),
    "ignored, noted": (
        CASES["a user has it ignored, noted"],
        ["until it restarts, since version 1.2 only while the Service has an endpoint", "remove the annotation"],
    ),
}


@pytest.mark.parametrize(("case", "texts"), TEXTS.values(), ids=TEXTS.keys())
def test_text_names_the_cause(case: Case, texts: list[str]) -> None:
    plan = plan_of(case)
    condition = plan.condition
    assert condition is not None
    assert plan.events[-1].message in condition.message, "the condition repeats the Event"
    for text in texts:
        assert text in condition.message
    if condition.status == "True":
        assert condition.message.startswith(f"{USUAL}. ")


def test_missing_permission_for_the_touch_is_named_only_if_the_receipt_stays_missing() -> None:
    late = CASES["again, late, kube-vip"]
    snapshot = snapshot_of(late.service, allocated(), cluster=KUBE_VIP, since=60.0, touches=ALL_TOUCHES)
    snapshot.remembered.endpoints = Endpoints(Reading.EXIST)
    snapshot.remembered.is_touch_refused = True
    (warning,) = plan_service(snapshot).events
    assert "kube-vip 1.2 up to 1.2.3 announces" in warning.message
    assert "not permitted to make" in warning.message
    assert "Grant list and patch on endpointslices (chart: rbac.endpointSlices)" in warning.message
    noted = published(Step.PUBLISHED, more=NOTED)
    answered = snapshot_of(noted, allocated(), cluster=KUBE_VIP, since=60.0, touches=1)
    answered.remembered.is_touch_refused = True
    assert plan_service(answered).events == ()
    unknown = replace(snapshot, cluster=CLUSTER)
    assert [(event.type, "not permitted to make" in event.message) for event in plan_service(unknown).events] == [
        ("Normal", True)
    ]


@pytest.mark.parametrize("reason", ["AddressNotAnnounced", "Announcing"])
def test_text_about_a_missing_announcement_stays_while_the_endpoints_are_read_again(reason: str) -> None:
    """Nothing is written that another write replaces at once."""
    plan = plan_of(CASES["first, read long ago"]._replace(service=with_condition(FIRST, "False", reason)))
    assert plan.write is None
    assert plan.reads_endpoints
    assert plan.condition is not None
    assert (plan.condition.reason, plan.condition.message) == (reason, "old")


@pytest.mark.parametrize("published_again", [FIRST, AGAIN], ids=["first", "again"])
def test_service_without_endpoints_stays_ready_while_they_are_read_again(published_again: Service) -> None:
    ready = with_condition(published_again, "True", "EnsuredLoadBalancer")
    plan = plan_of(Case(ready, reading=Reading.MISSING, touches=ALL_TOUCHES, read_before=400.0))
    assert plan.write is None
    assert plan.reads_endpoints


def test_note_ends_the_condition_about_the_announcement() -> None:
    noted = published(Step.PUBLISHED, more=NOTED, again=False)
    plan = plan_of(Case(with_condition(noted, "False", "AddressNotAnnounced")))
    assert plan.condition is not None
    assert (plan.condition.status, plan.condition.message) == ("True", USUAL)
    assert isinstance(short_write(plan.write), dict)


def test_secondary_is_judged_by_its_own_note() -> None:
    secondary = published(
        Step.PUBLISHED, again=False, more=SHARES, labels=SHARED, ports=[{"port": 443, "protocol": "TCP"}]
    )
    noted = served("main", uid="main-uid", annotations=NOTED)
    snapshot = snapshot_of(
        secondary,
        cluster=KUBE_VIP,
        primary=noted,
        ranked=(secondary,),
        primary_allocated=frozenset({ADDRESS}),
        since=60.0,
        reading=Reading.EXIST,
    )
    plan = plan_service(snapshot)
    assert plan.phase == Phase.SHARING
    assert outcome(plan) == outcome(plan_of(CASES["first, late"]))


# DHCP.

DHCP: Final = {IPAM: "dhcp", KUBE_VIP_ADDRESSES: DHCP_ADDRESS}
LATE_LEASES: Final[dict[str, tuple[float, Reading]]] = {
    "in time": (10.0, Reading.NONE),
    "late: the endpoints are read": (30.0, Reading.NONE),
    "late, no endpoint": (30.0, Reading.MISSING),
    "late, an endpoint": (30.0, Reading.EXIST),
    "late, unreadable": (30.0, Reading.UNREADABLE),
}


def leasing(*, again: bool = False, **more: Any) -> Service:
    """Return a Service for which kube-vip has no lease yet; ``again`` after it had another address."""
    record = Record(UID, Step.PUBLISHED, DHCP_ADDRESS, "Cluster IPv4 SingleStack", again=again)
    return served(annotations={**DHCP, ANNOUNCED_AS: written_record(record)}, address=None, **more)


def plan_late_lease(concerned: Service, reading: Reading, since: float = 30.0, *, refused: bool = False) -> ServicePlan:
    by_dhcp = allocated(spec={"ipam": "dhcp"}, ip=DHCP_ADDRESS, pool="", address="")
    snapshot = snapshot_of(concerned, by_dhcp, cluster=KUBE_VIP, since=since, touches=ALL_TOUCHES, reading=reading)
    snapshot.remembered.is_touch_refused = refused
    return plan_service(snapshot)


def test_lease_that_is_late() -> None:
    rows = {name: outcome(plan_late_lease(leasing(), reading, since)) for name, (since, reading) in LATE_LEASES.items()}
    assert differing("readiness_leases", rows) == []


@pytest.mark.parametrize("has_class", [False, True])
def test_text_about_a_late_lease_names_the_endpoint_first_and_the_class_second(*, has_class: bool) -> None:
    concerned = leasing(spec=CLASS if has_class else {})
    class_check = f"that kube-vip serves class {LOAD_BALANCER_CLASS} (lb_class_name), "
    first = class_check if has_class else ""
    dhcp = "that a DHCP server answers in the network of the nodes"
    texts = {
        Reading.MISSING: "The Service has no endpoint, and since version 1.2 kube-vip gets an address from DHCP only "
        f"for a Service that has one. Start a Pod of the Service. If that does not help, check in this order: "
        f"{first}{dhcp}",
        Reading.UNREADABLE: f"Check in this order: that a Pod of the Service is ready (kube-vip gets an address only "
        f"then), {first}{dhcp}",
        Reading.EXIST: f"Check in this order: {first}{dhcp}",
    }
    for reading, text in texts.items():
        event = plan_late_lease(concerned, reading).events[-1]
        assert text in event.message
        assert event.command.startswith("kubectl -n kube-system logs -l 'app.kubernetes.io/name in (kube-vip, ")
        refused = plan_late_lease(concerned, reading, refused=True).events[-1].message
        assert f"{first}that this controller may list and patch endpointslices" in refused


@pytest.mark.parametrize("again", [False, True], ids=["never announced", "announced before"])
def test_text_about_a_late_lease_of_a_service_that_was_announced_asks_for_a_restart_of_kube_vip(*, again: bool) -> None:
    late = plan_late_lease(leasing(again=again), Reading.EXIST).events[-1]
    assert late.type == "Warning"
    assert ("If nothing of that is wrong, restart kube-vip" in late.message) is again


def test_text_about_a_late_lease_stays_while_the_endpoints_are_read_again() -> None:
    for reading, since in ((Reading.NONE, 5.0), (Reading.NONE, 30.0)):
        plan = plan_late_lease(with_condition(leasing(), "False", "DHCPLeasePending"), reading, since)
        assert plan.write is None
        assert plan.condition is not None
        assert plan.condition.message == "old"


def test_state_of_a_service_begins_anew_with_each_step() -> None:
    state = snapshot_of(FIRST, allocated(), touches=2, reading=Reading.EXIST).remembered
    state.see_record(FIRST, 5.0)
    state.count_touch(6.0, is_permitted=False)
    state.see_record(FIRST, 7.0)
    assert (state.record_since, state.touches, state.is_touch_refused) == (5.0, 1, True)
    state.count_touch(7.5, is_permitted=True)
    assert not state.is_touch_refused
    state.see_record(SHOWN, 8.0)
    assert (state.record_since, state.touches, state.endpoints) == (8.0, 0, Endpoints())
    assert msgspec.json.decode(state.record)["step"] == "shown"
    first = ServiceState()
    first.see_record(service(), 9.0)
    assert first.record_since == 9.0, "the clock does not begin with the process"


def test_no_event_says_that_an_address_is_in_use_that_a_user_keeps_from_kube_vip() -> None:
    ignored = published(Step.PUBLISHED, again=False, more={KUBE_VIP_IGNORE: "true"}, address=None)
    made = plan_service(snapshot_of(ignored, allocated()))
    assert [event.type for event in made.events] == ["Warning"]
