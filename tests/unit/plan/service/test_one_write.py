"""The steps of the page ``docs/contributing/one-write.md``, taken with the functions that it names."""

from harvester_ccm.controllers.creation_gate import CreationGate
from harvester_ccm.names import Reason
from harvester_ccm.plan.service.allocation.creation import plan_new
from harvester_ccm.plan.service.desired import CreateLoadBalancer
from harvester_ccm.plan.service.load_balancer.specification import new_load_balancer
from harvester_ccm.plan.service.phase import Phase, phase_of
from harvester_ccm.plan.service.plan import PLANS, plan_service, plan_waiting_for_creation
from harvester_ccm.plan.service.verdict import NotReady
from tests.support.builders import CLUSTER, SUPPRESSED, marked, service
from tests.unit.plan.service.snapshots import snapshot_of


def test_prepared_service_leads_to_the_creation_and_then_to_a_wait() -> None:
    prepared = service(annotations=SUPPRESSED, ours=True)
    snapshot = snapshot_of(prepared)

    # Steps 5 to 7.
    assert phase_of(snapshot) is Phase.NEW
    assert PLANS[Phase.NEW] is plan_new
    plan = plan_service(snapshot)
    assert isinstance(plan.write, CreateLoadBalancer)
    assert plan.write.body == new_load_balancer(prepared, snapshot.request, CLUSTER, {})

    # Step 8.
    assert CreationGate(lambda _key: None, CLUSTER).admit(prepared.metadata.key)
    waiting = plan_waiting_for_creation(snapshot, plan)
    assert waiting.write is None
    assert waiting.waiting_reason == Reason.CREATION_QUEUED

    # Steps 10 and 12.
    assert [event.reason for event in plan.events] == [Reason.ENSURING]
    following = snapshot_of(prepared, marked(prepared))
    assert phase_of(following) is Phase.PENDING
    planned = plan_service(following)
    assert planned.write is None
    assert isinstance(planned.verdict, NotReady)
    assert planned.verdict.reason == Reason.NOT_PROCESSED
