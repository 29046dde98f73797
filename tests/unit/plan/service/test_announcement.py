"""Announced or explained: the condition and the Event of a published address on which no node is noted."""

from collections.abc import Mapping
from math import inf
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from harvester_ccm.config import Announcer, SharedAddressScope
from harvester_ccm.model.core import EndpointSlice, Service
from harvester_ccm.model.harvester import ClusterIdentity
from harvester_ccm.names import (
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LOAD_BALANCER_CLASS,
)
from harvester_ccm.plan.service.announcement import MAX_PROGRESS_SECONDS, NOTE_SECONDS
from harvester_ccm.plan.service.desired import PatchService, ServicePlan, TriggerKubeVipResync
from harvester_ccm.plan.service.dhcp_lease import LEASE_GRACE_SECONDS
from harvester_ccm.plan.service.endpoints import (
    CONFIRM_SECONDS,
    CURRENT_SECONDS,
    READ_AGAIN_SECONDS,
    Endpoints,
    Reading,
    Use,
    count_endpoints,
    unreadable_endpoints,
)
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import ServiceState
from harvester_ccm.plan.service.vip_hosts import Announcements, Progress, progress_of, vip_hosts_of
from tests.support.builders import ADDRESS, CLUSTER, allocated, endpoint_slice, served, service
from tests.unit.plan.service.snapshots import SHARED, SHARES, reasons, short_condition, snapshot_of

KUBE_VIP: Final = replace(CLUSTER, announcer=Announcer.KUBE_VIP)
OTHER: Final = replace(CLUSTER, announcer=Announcer.OTHER)
USUAL: Final = f"The load balancer has address {ADDRESS}"
CLASS: Final = {"loadBalancerClass": LOAD_BALANCER_CLASS}
LOCAL: Final = {"externalTrafficPolicy": "Local"}
READ: Final = Endpoints(Reading.DONE, at=NOTE_SECONDS, exist_since=NOTE_SECONDS - CONFIRM_SECONDS)
"""A reading that has found no endpoint."""
FOUND: Final = replace(READ, exist=True)
"""Two readings that have found an endpoint."""
PRESENT_FALSE: Final = {
    "type": "LoadBalancerReady",
    "status": "False",
    "reason": "AddressNotAnnounced",
    "message": "old",
}


class Case(NamedTuple):
    """A published Service without a note, what is known, and what follows."""

    expected: str
    """Status and reason of the condition, and the Events."""
    cluster: ClusterIdentity = KUBE_VIP
    service: Service = served()
    announcements: Announcements = Announcements(without_class=True)
    endpoints: Endpoints = Endpoints()
    seconds: float = NOTE_SECONDS
    """Time since the publication."""


def plan_of(case: Case, **facts: Any) -> ServicePlan:
    """Return the plan of a case."""
    snapshot = snapshot_of(case.service, allocated(), cluster=case.cluster, announcements=case.announcements, **facts)
    state = ServiceState(phase_of(snapshot))
    state.note_publication(snapshot.kube_vip, 0.0)
    state.endpoints = case.endpoints
    return plan_service(replace(snapshot, remembered=state, now=case.seconds))


def outcome(plan: ServicePlan) -> str:
    """Return status and reason of the condition, the Events, and what is next."""
    parts = [short_condition(plan.condition), *reasons(plan)]
    if plan.reads_endpoints:
        parts.append("read")
    if plan.look_again_after is not None:
        parts.append(f"again in {plan.look_again_after:g}")
    return ", ".join(parts)


def of_local(endpoints: Endpoints, **fields: Any) -> Endpoints:
    return replace(endpoints, is_local=True, **fields)


UNKNOWN: Final = "True EnsuredLoadBalancer, Normal AnnouncementUnknown"
NO_ENDPOINTS: Final = "True EnsuredLoadBalancer, Normal NoEndpoints"
FALSE: Final = "False AddressNotAnnounced, Warning AddressNotAnnounced"
ELSEWHERE: Final = of_local(FOUND, nodes="'node-9'")
CASES: Final[Mapping[str, Case]] = {
    "in time": Case("True EnsuredLoadBalancer, again in 20", seconds=40),
    "another announced a moment ago": Case(
        "True EnsuredLoadBalancer, again in 50",
        announcements=Announcements(without_class=True, last_at=90),
        seconds=100,
    ),
    "others announced for an hour": Case(
        "True EnsuredLoadBalancer, read",
        announcements=Announcements(without_class=True, last_at=MAX_PROGRESS_SECONDS + 50),
        seconds=MAX_PROGRESS_SECONDS + NOTE_SECONDS,
    ),
    "other announcer": Case("True EnsuredLoadBalancer", OTHER, endpoints=FOUND),
    "nothing noted": Case(UNKNOWN, CLUSTER, announcements=Announcements()),
    "nothing noted by kube-vip": Case("True EnsuredLoadBalancer, read", announcements=Announcements()),
    "noted elsewhere": Case("True EnsuredLoadBalancer, read", CLUSTER),
    "no endpoint": Case(NO_ENDPOINTS, endpoints=READ),
    "unreadable": Case(UNKNOWN, endpoints=replace(READ, reading=Reading.UNREADABLE)),
    "endpoint found once": Case(
        "True EnsuredLoadBalancer, again in 5", endpoints=replace(FOUND, exist_since=NOTE_SECONDS)
    ),
    "endpoint found once, some time ago": Case(
        "True EnsuredLoadBalancer, read",
        endpoints=replace(FOUND, exist_since=NOTE_SECONDS),
        seconds=NOTE_SECONDS + CONFIRM_SECONDS,
    ),
    "endpoint": Case(FALSE, endpoints=FOUND),
    "endpoint, read long ago": Case(
        "True EnsuredLoadBalancer, read", endpoints=FOUND, seconds=NOTE_SECONDS + READ_AGAIN_SECONDS
    ),
    "no endpoint, read a moment ago, nothing said": Case(
        "True EnsuredLoadBalancer, read", endpoints=READ, seconds=NOTE_SECONDS + CURRENT_SECONDS
    ),
    "unreadable, a moment ago, nothing said": Case(
        "True EnsuredLoadBalancer, read",
        endpoints=replace(READ, reading=Reading.UNREADABLE),
        seconds=NOTE_SECONDS + CURRENT_SECONDS,
    ),
    "endpoint, read a moment ago, nothing said": Case(
        "True EnsuredLoadBalancer, read", endpoints=FOUND, seconds=NOTE_SECONDS + CURRENT_SECONDS
    ),
    "policy changed since the reading": Case(
        "True EnsuredLoadBalancer, Warning LocalTrafficPolicy, read", service=served(spec=LOCAL), endpoints=FOUND
    ),
    "class": Case(FALSE, service=served(spec=CLASS), endpoints=FOUND),
    "ignored": Case(FALSE, service=served(annotations={KUBE_VIP_IGNORE: "true"})),
    "noted": Case("True EnsuredLoadBalancer", service=served(annotations={KUBE_VIP_HOST: "node-1"}), endpoints=FOUND),
    "noted and ignored": Case(UNKNOWN, service=served(annotations={KUBE_VIP_HOST: "node-1", KUBE_VIP_IGNORE: "true"})),
    "of the go provider": Case(", Warning AddressNotAnnounced", service=served(condition=False), endpoints=FOUND),
}


@pytest.mark.parametrize("name", CASES)
def test_published_service_without_a_note(name: str) -> None:
    case = CASES[name]
    plan = plan_of(case)
    assert outcome(plan) == case.expected
    patch = plan.write.patch if isinstance(plan.write, PatchService) else {}
    assert set(patch) <= {"status"}, "finalizer and annotations stay"
    assert "loadBalancer" not in patch.get("status", {})  # type: ignore[operator]  # a document


def test_endpoints_are_read_before_the_condition_changes() -> None:
    """The reading decides what it says next: nothing is written that another write replaces at once."""
    shown = served()
    condition = replace(shown.status.conditions[0], status="False", reason="AddressTaken", message="old")
    waiting = replace(shown, status=replace(shown.status, conditions=(condition,)))
    plan = plan_of(CASES["noted elsewhere"]._replace(service=waiting))
    assert (plan.write, plan.reads_endpoints) == (None, True)
    known = plan_of(CASES["no endpoint"]._replace(service=waiting))
    assert isinstance(known.write, PatchService)


@pytest.mark.parametrize("endpoints", [READ, FOUND, replace(READ, reading=Reading.UNREADABLE)])
def test_what_is_said_stays_without_another_reading(endpoints: Endpoints) -> None:
    """Only something else needs one: between the readings, an unchanged text is the last thing that was known."""
    case = Case("", endpoints=endpoints)
    condition = plan_of(case).condition
    assert condition is not None
    shown = served()
    saying = replace(shown, status=replace(shown.status, conditions=(condition,)))
    later = plan_of(case._replace(service=saying, seconds=NOTE_SECONDS + READ_AGAIN_SECONDS - 1))
    assert (later.reads_endpoints, later.condition) == (False, condition)


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        (
            Case("", CLUSTER, announcements=Announcements()),
            [
                "nor that of any other Service",
                "--announcer=other",
                "check that kube-vip runs in this cluster, and that the Service has an endpoint (kube-vip needs one)",
            ],
        ),
        (
            # kube-vip can skip all Services of a cluster.
            Case("", CLUSTER, service=served(spec=CLASS), announcements=Announcements()),
            ["that kube-vip runs in this cluster, that it serves class", f"{LOAD_BALANCER_CLASS} (lb_class_name), and"],
        ),
        (Case("", endpoints=READ), ["has no endpoint", "Pod of the Service is ready"]),
        (Case("", service=served(spec=LOCAL), endpoints=of_local(READ)), ["No endpoint of the Service takes traffic"]),
        (
            Case("", endpoints=replace(READ, reading=Reading.UNREADABLE)),
            ["cannot read the EndpointSlices", "Grant list on endpointslices (chart: rbac.endpointSlices)"],
        ),
        (
            Case("", service=served(spec=LOCAL), endpoints=ELSEWHERE),
            ["Probable cause", "The endpoints are on 'node-9', where kube-vip has announced nothing", "runOn all"],
        ),
        (
            Case("", service=served(spec=CLASS), endpoints=FOUND),
            [
                "Probable cause",
                f"Set lb_class_name of kube-vip to {LOAD_BALANCER_CLASS} (chart: kube-vip.harvesterClass optional)",
            ],
        ),
        (
            Case("", service=served(spec=CLASS), announcements=Announcements(with_class=True), endpoints=FOUND),
            ["not visible to this controller", f"lb_class_name is {LOAD_BALANCER_CLASS}"],
        ),
        (
            Case("", endpoints=FOUND),
            ["not visible to this controller", "kube-vip Pods run", "svc_namespace and lb_class_only", "see its log;"],
        ),
        (
            Case("", endpoints=FOUND, announcements=Announcements(True, True, "infra/dhcp")),
            ["see its log (infra/dhcp waits for an address from DHCP)"],
        ),
        (
            Case("", service=served(annotations={KUBE_VIP_IGNORE: "true"})),
            ["kube-vip.io/ignore with value 'true'", f"annotate service web {KUBE_VIP_IGNORE}-"],
        ),
        (
            # It is not known where kube-vip runs.
            Case("", service=served(spec=LOCAL), announcements=Announcements(), endpoints=ELSEWHERE),
            ["not visible to this controller"],
        ),
        (
            Case("", service=served(spec=LOCAL), endpoints=replace(ELSEWHERE, is_on_announcing_node=True)),
            ["not visible to this controller"],
        ),
    ],
)
def test_text_names_the_cause(case: Case, texts: list[str]) -> None:
    plan = plan_of(case)
    condition = plan.condition
    assert condition is not None
    events = [event for event in plan.events if event.message in condition.message]
    assert events, "the condition repeats the Event"
    for text in texts:
        assert text in condition.message
    if condition.status == "True":
        assert condition.message.startswith(f"{USUAL}. ")


def test_service_of_another_tenant_is_not_named() -> None:
    separated = replace(KUBE_VIP, shared_address_scope=SharedAddressScope.NAMESPACE)
    plan = plan_of(Case("", separated, endpoints=FOUND, announcements=Announcements(True, True, "infra/dhcp")))
    assert plan.condition is not None
    assert "infra" not in plan.condition.message
    assert "(one in another namespace waits for an address from DHCP)" in plan.condition.message


@pytest.mark.parametrize(
    "present",
    [PRESENT_FALSE, {**PRESENT_FALSE, "status": "True", "reason": "EnsuredLoadBalancer", "message": f"{USUAL}. old"}],
)
@pytest.mark.parametrize("name", ["in time", "noted elsewhere", "endpoint found once"])
def test_present_condition_stays_until_the_service_is_judged(name: str, present: Mapping[str, str]) -> None:
    shown = served()
    condition = replace(shown.status.conditions[0], **{key: present[key] for key in ("status", "reason", "message")})
    status = replace(shown.status, conditions=(condition,))
    plan = plan_of(CASES[name]._replace(service=replace(shown, status=status)))
    assert plan.write is None
    assert plan.condition is not None
    assert (plan.condition.status, plan.condition.message) == (condition.status, condition.message)
    assert reasons(plan) == ()
    assert plan.waiting_reason == ("AddressNotAnnounced" if present["status"] == "False" else "")


def test_condition_of_another_address_does_not_stay() -> None:
    shown = served()
    condition = replace(shown.status.conditions[0], message=f"{USUAL}1. old")
    plan = plan_of(
        CASES["in time"]._replace(service=replace(shown, status=replace(shown.status, conditions=(condition,))))
    )
    assert plan.condition is not None
    assert plan.condition.message == USUAL


def test_note_ends_it() -> None:
    shown = served(annotations={KUBE_VIP_HOST: "node-1"})
    condition = replace(shown.status.conditions[0], status="False", reason="AddressNotAnnounced", message="old")
    status = replace(shown.status, conditions=(condition,))
    plan = plan_of(Case("", service=replace(shown, status=status), endpoints=FOUND))
    assert plan.condition is not None
    assert (plan.condition.status, plan.condition.message) == ("True", USUAL)
    assert isinstance(plan.write, PatchService)


def test_condition_about_the_announcement_needs_no_touch_after_a_restart() -> None:
    shown = served()
    condition = replace(shown.status.conditions[0], status="False", reason="AddressNotAnnounced")
    snapshot = snapshot_of(replace(shown, status=replace(shown.status, conditions=(condition,))), allocated())
    state = ServiceState()
    state.resume(snapshot, 1.0)
    assert state.resync_at is None


def test_withdrawal_ends_the_condition_about_the_announcement() -> None:
    """The next process would not touch the endpoints with this condition."""
    shown = served(deleting=True)
    condition = replace(shown.status.conditions[0], status="False", reason="AddressNotAnnounced")
    plan = plan_of(Case("", service=replace(shown, status=replace(shown.status, conditions=(condition,)))))
    assert plan.phase == Phase.LEAVING
    assert short_condition(plan.condition) == "False DeletionPending"


def test_secondary_is_judged_by_its_own_note() -> None:
    secondary = served(annotations=SHARES, labels=SHARED, ports=[{"port": 443, "protocol": "TCP"}])
    noted = served("main", uid="main-uid", annotations={KUBE_VIP_HOST: "node-1"})
    snapshot = snapshot_of(
        secondary,
        cluster=KUBE_VIP,
        announcements=Announcements(without_class=True),
        primary=noted,
        ranked=(secondary,),
        primary_allocated=frozenset({ADDRESS}),
    )
    state = ServiceState(Phase.SHARING)
    state.note_publication(snapshot.kube_vip, 0.0)
    state.endpoints = FOUND
    plan = plan_service(replace(snapshot, remembered=state, now=NOTE_SECONDS))
    assert plan.phase == Phase.SHARING
    assert outcome(plan) == FALSE


def test_publication_restarts_the_time_and_the_reading() -> None:
    state = ServiceState()
    published = snapshot_of(served(), allocated()).kube_vip
    withdrawn = snapshot_of(served(annotations={KUBE_VIP_ADDRESSES: ""}), allocated()).kube_vip
    state.note_publication(published, 5.0)
    state.endpoints = FOUND
    state.note_publication(published, 9.0)
    assert (state.published, state.published_at, state.endpoints) == (ADDRESS, 5.0, FOUND)
    state.note_publication(withdrawn, 10.0)
    assert state.published == ""
    state.resync_at = 21.0
    state.note_publication(published, 20.0)
    assert state.published == "", "the touch is due"
    state.resync_at = None
    state.note_publication(published, 22.0)
    assert (state.published, state.published_at, state.endpoints) == (ADDRESS, 22.0, Endpoints())


# DHCP.

LEASING: Final = served(
    annotations={KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"},
    address=None,
    status={},
)
LEASING_AGAIN: Final = served(
    annotations={KUBE_VIP_ADDRESSES: "0.0.0.0", KUBE_VIP_HOST: "node-1", IPAM: "dhcp"},
    address=None,
    status={},
)
LATE: Final = LEASE_GRACE_SECONDS + CONFIRM_SECONDS
NONE_FOUND: Final = replace(READ, at=LATE, exist_since=LATE)


@pytest.mark.parametrize(
    ("seconds", "endpoints", "expected"),
    [
        (10.0, Endpoints(), "False DHCPLeasePending, again in 20"),
        (30.0, Endpoints(), "False DHCPLeasePending, read"),
        (35.0, replace(NONE_FOUND, exist=True), "False DHCPLeasePending, again in 5"),
        (40.0, replace(NONE_FOUND, exist=True), "False DHCPLeasePending, read"),
        (LATE, NONE_FOUND, "False DHCPLeasePending, Normal DHCPLeasePending"),
        (LATE, replace(NONE_FOUND, exist=True, exist_since=30.0), "False DHCPLeasePending, Warning DHCPLeasePending"),
        (LATE, replace(NONE_FOUND, reading=Reading.UNREADABLE), "False DHCPLeasePending, Warning DHCPLeasePending"),
        # A moment later, nothing new is said because of this reading.
        (LATE + CURRENT_SECONDS, NONE_FOUND, "False DHCPLeasePending, read"),
        (LATE + CURRENT_SECONDS, replace(NONE_FOUND, exist=True, exist_since=30.0), "False DHCPLeasePending, read"),
    ],
)
def test_lease_that_is_late(seconds: float, endpoints: Endpoints, expected: str) -> None:
    plan = plan_late_lease(LEASING, endpoints, seconds)
    assert outcome(plan) == expected


def test_late_lease_is_not_reported_before_the_touch_after_which_kube_vip_requests_it() -> None:
    """Where the touch is not permitted, the Warning about that stays, and no other one contradicts it."""
    plan = plan_late_lease(LEASING, NONE_FOUND, LATE, resync_at=LATE)
    assert isinstance(plan.write, TriggerKubeVipResync)
    assert plan.events == ()


def test_endpoints_are_not_read_before_the_touch_after_which_kube_vip_requests_a_lease() -> None:
    waiting = plan_late_lease(LEASING, Endpoints(), LATE, resync_at=LATE + 1)
    assert not waiting.reads_endpoints


def plan_late_lease(
    leasing: Service, endpoints: Endpoints, seconds: float = LATE, *, resync_at: float | None = None
) -> ServicePlan:
    by_dhcp = allocated(spec={"ipam": "dhcp"}, ip="0.0.0.0", pool="", address="")
    snapshot = snapshot_of(leasing, by_dhcp, cluster=KUBE_VIP)
    state = ServiceState(Phase.ANNOUNCED_BY_KUBE_VIP, endpoints=endpoints, resync_at=resync_at)
    return plan_service(replace(snapshot, remembered=state, now=seconds))


@pytest.mark.parametrize("has_class", [False, True])
def test_text_about_a_late_lease_names_the_endpoint_first_and_the_class_second(*, has_class: bool) -> None:
    leasing = replace(
        LEASING, spec=replace(LEASING.spec, load_balancer_class=LOAD_BALANCER_CLASS if has_class else None)
    )
    missing = plan_late_lease(leasing, NONE_FOUND).events[-1]
    assert missing.cause.startswith("The Service has no endpoint")
    unreadable = plan_late_lease(leasing, replace(NONE_FOUND, reading=Reading.UNREADABLE)).events[-1]
    assert unreadable.remedy.startswith("Check in this order: that a Pod of the Service is ready")
    late = plan_late_lease(leasing, replace(NONE_FOUND, exist=True, exist_since=0.0)).events[-1]
    class_check = f"that kube-vip serves class {LOAD_BALANCER_CLASS} (lb_class_name), "
    first = class_check if has_class else ""
    dhcp = "that a DHCP server answers in the network of the nodes"
    assert late.remedy.startswith(f"Check in this order: {first}{dhcp}")
    assert f"check in this order: {first}{dhcp}" in missing.remedy
    for message in (missing, unreadable, late):
        assert message.command.startswith("kubectl -n kube-system logs -l 'app.kubernetes.io/name in (kube-vip, ")
    assert f"only then), {first}{dhcp}" in unreadable.remedy


@pytest.mark.parametrize("node", [None, "n1"], ids=["never announced", "announced before"])
def test_text_about_a_late_lease_of_a_service_that_was_announced_asks_for_a_restart_of_kube_vip(
    node: str | None,
) -> None:
    noted = {} if node is None else {KUBE_VIP_HOST: node}
    leasing = service(ours=True, annotations={IPAM: "dhcp", KUBE_VIP_ADDRESSES: "0.0.0.0", **noted})
    late = plan_late_lease(leasing, replace(NONE_FOUND, exist=True, exist_since=0.0)).events[-1]
    assert late.type == "Warning"
    assert ("restart kube-vip" in late.message) is (node is not None)


def test_text_about_a_late_lease_stays_while_the_endpoints_are_read_again() -> None:
    condition = replace(served().status.conditions[0], status="False", reason="DHCPLeasePending", message="old")
    leasing = replace(LEASING, status=replace(LEASING.status, conditions=(condition,)))
    for endpoints, seconds in ((Endpoints(), 5.0), (NONE_FOUND, LATE + READ_AGAIN_SECONDS)):
        plan = plan_late_lease(leasing, endpoints, seconds)
        assert plan.write is None
        assert plan.condition is not None
        assert plan.condition.message == "old"


# Facts.


def slices(*endpoints: Mapping[str, Any]) -> list[EndpointSlice]:
    return [endpoint_slice("web-a"), endpoint_slice("web-b", *endpoints)]


def endpoint(node: str | None = "node-1", **conditions: bool | None) -> dict[str, Any]:
    return {"addresses": ["10.42.0.7"], "nodeName": node, "conditions": conditions or None}


@pytest.mark.parametrize(
    ("found", "in_cluster", "local"),
    [
        ([], False, False),
        (slices(), False, False),
        (slices({"addresses": None, "conditions": {"ready": True}}), False, False),
        (slices(endpoint(ready=False)), True, False),
        (slices(endpoint(ready=False, serving=False)), True, False),
        (slices(endpoint(ready=False, serving=True)), True, True),
        (slices(endpoint(ready=True)), True, True),
        (slices(endpoint()), True, True),
        (slices(endpoint(node=None)), True, True),
    ],
)
def test_endpoints_that_kube_vip_counts(*, found: list[EndpointSlice], in_cluster: bool, local: bool) -> None:
    assert count_endpoints(found, service(), bool).exist is in_cluster
    assert count_endpoints(found, service(spec=LOCAL), bool).exist is local


def test_nodes_of_the_endpoints() -> None:
    found = slices(endpoint("node-2"), endpoint("node-1"), endpoint("node-3", serving=False))
    local = count_endpoints(found, service(spec=LOCAL), {"node-3"}.__contains__)
    assert (local.nodes, local.is_on_announcing_node) == ("'node-1', 'node-2'", False)
    assert count_endpoints(found, service(spec=LOCAL), {"node-2"}.__contains__).is_on_announcing_node


def test_second_reading_confirms_and_a_reading_without_endpoints_starts_again() -> None:
    found, web = count_endpoints(slices(endpoint()), service(), bool), service()
    first = Endpoints().followed_by(found, 60.0)
    assert first.use(web, 60.0, is_said=False) is Use.CONFIRM_LATER
    second = first.followed_by(found, 70.0)
    assert second.use(web, 70.0, is_said=False) is Use.DECIDES
    empty = second.followed_by(count_endpoints([], web, bool), 500.0)
    assert empty.use(web, 500.0, is_said=False) is Use.DECIDES
    assert empty.followed_by(found, 900.0).use(web, 900.0, is_said=False) is Use.CONFIRM_LATER
    assert second.followed_by(unreadable_endpoints(web), 500.0).followed_by(found, 510.0).exist_since == 510.0


def test_reading_of_a_command_decides() -> None:
    found = count_endpoints(slices(endpoint()), service(), bool)
    assert found.as_confirmed().use(service(), 1e9, is_said=False) is Use.DECIDES
    assert (found.as_confirmed().at, found.as_confirmed().exist_since) == (inf, -inf)


NOTE: Final = {KUBE_VIP_HOST: "node-1"}


@pytest.mark.parametrize(
    ("noted", "progress"),
    [
        (served(annotations=NOTE), [Progress.NOTED_WITHOUT_CLASS]),
        (served(annotations=NOTE, spec=CLASS), [Progress.NOTED_WITH_CLASS]),
        (served(annotations=NOTE, spec={"loadBalancerClass": "example.com/other"}), []),
        (served(annotations=NOTE, kind="ClusterIP"), []),
        (served(annotations=NOTE, ours=False), []),
        (served(annotations={KUBE_VIP_HOST: ""}), []),
        (LEASING, [Progress.AWAITS_LEASE]),
        (LEASING_AGAIN, [Progress.NOTED_WITHOUT_CLASS, Progress.AWAITS_LEASE]),
        (served(), []),
    ],
)
def test_progress_that_notes_show(noted: Service, progress: list[Progress]) -> None:
    assert list(progress_of(noted)) == progress
    is_noted = any("NOTED" in value.name for value in progress)
    assert vip_hosts_of(noted) == ({"node-1"} if is_noted else set())
