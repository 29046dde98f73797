"""What becomes of load balancers whose Services were seen to go."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER
from harvester_ccm.plan.service.departure import Departure, plan_departure
from tests.worlds.builders import CLASS_ONLY, CLUSTER, allocated, marked, service


@pytest.mark.parametrize(
    ("found", "present", "in_use", "expected"),
    [
        pytest.param(allocated(), None, False, Departure.DELETE, id="the Service is gone"),
        pytest.param(
            allocated(), service(uid="another", kind="ClusterIP"), False, Departure.DELETE, id="a new one wants none"
        ),
        pytest.param(
            allocated(),
            service(uid="another", spec={"loadBalancerClass": "example.com/other"}),
            False,
            Departure.DELETE,
            id="a new one is another controller's",
        ),
        pytest.param(
            marked(message="no matched IPPool with requirement"), None, False, Departure.DELETE, id="address refused"
        ),
        pytest.param(marked(), None, False, Departure.WAIT, id="address still being booked"),
        pytest.param(allocated(finalizer=False), None, False, Departure.WAIT, id="without Harvester's finalizer"),
        pytest.param(allocated(), None, True, Departure.WAIT, id="another Service shows the address"),
        pytest.param(allocated(), service(uid="another"), False, Departure.KEEP, id="a new one takes it over"),
        pytest.param(
            allocated(),
            service(uid="another", kind="ClusterIP", finalizers=[SERVICE_FINALIZER]),
            False,
            Departure.KEEP,
            id="a new one is being cleaned up",
        ),
        pytest.param(allocated(), service(kind="ClusterIP"), False, Departure.KEEP, id="its Service is there"),
        pytest.param(allocated(deleting=True), None, False, Departure.KEEP, id="being deleted"),
        pytest.param(allocated(annotations={LB_OWNER: "another"}), None, False, Departure.KEEP, id="another cluster's"),
        pytest.param(allocated(annotations={LB_OWNER: ""}), None, False, Departure.KEEP, id="without a mark"),
    ],
)
def test_departure(found: Any, present: Any, in_use: bool, expected: Departure) -> None:
    assert plan_departure(found, present, CLUSTER, address_in_use=in_use) is expected


@pytest.mark.parametrize(("cluster", "expected"), [(CLUSTER, Departure.KEEP), (CLASS_ONLY, Departure.DELETE)])
def test_a_new_one_takes_it_over_only_where_it_is_served(cluster: ClusterIdentity, expected: Departure) -> None:
    present = service(uid="another")
    decided = plan_departure(allocated(), present, cluster, address_in_use=False)
    assert decided is expected


def test_nothing_is_ours_while_we_do_not_know_our_own_mark() -> None:
    unknown = ClusterIdentity(CLUSTER.name, CLUSTER.namespace)
    assert plan_departure(allocated(), None, unknown, address_in_use=False) is Departure.KEEP
    unmarked = allocated(annotations={LB_OWNER: ""})
    assert plan_departure(unmarked, None, unknown, address_in_use=False) is Departure.KEEP
