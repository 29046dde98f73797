"""What holds for the plans of all phases: the condition, the order of Events, and the order of writes."""

from pathlib import Path

from harvester_ccm.names import IPAM, PREFIX, PRIMARY_SERVICE, WORKLOAD_TYPE, Reason
from harvester_ccm.plan.service.desired import PatchService
from harvester_ccm.plan.service.phase import Phase
from harvester_ccm.plan.service.plan import PLANS, failed_condition
from harvester_ccm.plan.service.verdict import NotManaged, NotReady, Ready
from tests.support.builders import ADDRESS, LB_NAME, SUPPRESSED, allocated, marked, served, service
from tests.unit.plan.service.snapshots import (
    EXHAUSTED_LOAD_BALANCER,
    VM,
    WAITING,
    plan,
    reasons,
    short_write,
    snapshot_of,
)

OTHER_ADDRESS = allocated(ip="10.0.0.9", address="10.0.0.9")


def test_every_phase_has_a_plan_and_an_outcome() -> None:
    outcomes = "".join(path.read_text() for path in Path(__file__).parent.glob("outcomes/*.txt"))
    assert [phase for phase in Phase if f"    {phase}: " not in outcomes] == []
    assert PLANS.keys() == set(Phase)


def test_condition_says_what_the_event_says() -> None:
    made = plan(WAITING, EXHAUSTED_LOAD_BALANCER, wall_time="2026-02-02T00:00:00Z")
    assert isinstance(made.verdict, NotReady)
    assert made.condition == failed_condition(made.verdict, snapshot_of(WAITING, wall_time="2026-02-02T00:00:00Z"))
    assert made.condition.status == "False"
    assert made.condition.message == made.events[-1].message
    assert made.condition.last_transition_time == "2026-02-02T00:00:00Z"


def test_condition_of_a_ready_service_has_the_message_of_the_verdict() -> None:
    made = plan(WAITING, marked(ip=ADDRESS, pool="lan"))
    assert isinstance(made.verdict, Ready)
    assert made.condition is not None
    assert (made.condition.reason, made.condition.message) == (Reason.ENSURED, made.verdict.message)
    assert made.waiting_reason == ""


def test_service_of_others_has_no_condition_and_a_reason() -> None:
    made = plan(service(kind="ClusterIP"))
    assert made.verdict == NotManaged("its type is ClusterIP, not LoadBalancer")
    assert made.condition is None
    assert made.waiting_reason == ""


def test_reason_for_which_a_service_waits() -> None:
    assert plan(WAITING, EXHAUSTED_LOAD_BALANCER).waiting_reason == Reason.POOL_EXHAUSTED


def test_event_of_the_verdict_comes_after_the_warnings_about_the_request() -> None:
    made = plan(service(annotations={WORKLOAD_TYPE: "pod", f"{PREFIX}zzz": ""}, spec={"ipFamilies": ["IPv6"]}))
    assert reasons(made) == ("Warning InvalidAnnotation", "Warning SettingsIgnored", "Warning Unsupported")


def test_event_is_emitted_once_if_a_mistake_is_the_reason_of_the_verdict() -> None:
    made = plan(service(annotations={IPAM: "static", WORKLOAD_TYPE: "pod"}))
    places = [event.place for event in made.events]
    assert places == [f"Annotation {IPAM}", f"Annotation {WORKLOAD_TYPE}"]
    assert isinstance(made.verdict, NotReady)
    assert made.verdict.message.place == f"Annotation {IPAM}"


def test_warnings_about_the_present_load_balancer_hold_during_a_switch() -> None:
    made = plan(served(annotations={**VM, f"{PREFIX}zzz": ""}), allocated())
    assert made.phase == Phase.SWITCHING
    assert reasons(made) == ("Warning SettingsIgnored", "Normal ChangingWorkloadType")


def test_service_is_patched_before_the_load_balancer_is_written() -> None:
    made = plan(WAITING, marked(ip=ADDRESS, pool="lan"))
    assert isinstance(made.write, PatchService)
    assert short_write(made.following_write) == {"change": LB_NAME, "status": {"address": ADDRESS}}
    made = plan(served(), marked(ip=ADDRESS, pool="lan"))
    assert (short_write(made.write), made.following_write) == (
        {"change": LB_NAME, "status": {"address": ADDRESS}},
        None,
    )


def test_label_alone_does_not_make_a_secondary() -> None:
    new = service(ours=True, annotations=SUPPRESSED, labels={f"{PREFIX}primary-service": ""})
    assert short_write(plan(new).write) == {"labels": {f"{PREFIX}primary-service": None}}


def test_secondary_keeps_its_label_while_it_keeps_its_own_load_balancer() -> None:
    secondary = served(annotations={PRIMARY_SERVICE: "shop/none"}, labels={f"{PREFIX}primary-service": "shop.none"})
    assert plan(secondary, allocated()).write is None
