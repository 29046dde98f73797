"""Addresses of other Services that can be read on a Service."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.config import SharedAddressScope
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UUID,
    Reason,
)
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.ownership.claims import claim_events, owners_of_claimed, shows_address_of_others
from tests.support.builders import ADDRESS, CLUSTER, allocated, load_balancer, served, service
from tests.unit.plan.service.snapshots import PRIMARY, SHARED, SHARES, record_of, snapshot_of

TAKEN: Final = "10.0.0.77"
OWN: Final = allocated()
NAMESPACE_ONLY: Final = replace(CLUSTER, shared_address_scope=SharedAddressScope.NAMESPACE)


def of(name: str, address: str = TAKEN, **labels: str) -> LoadBalancer:
    """Return the load balancer of another Service, to which Harvester has allocated an address."""
    known = {LB_CLUSTER: CLUSTER.name, LB_SERVICE_NAMESPACE: "other", LB_SERVICE_NAME: name, **labels}
    return load_balancer(f"of-{name}", uid=name, labels=known, ip=address, pool="lan", address=address)


VICTIM: Final = of("victim")
OF_PRIMARY: Final = allocated(
    PRIMARY, labels={LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "main"}, annotations={LB_SERVICE_UUID: "main-uid"}
)
CLAIM: Final = {KUBE_VIP_ADDRESSES: TAKEN}
CLAIMED: dict[str, Service] = {
    "annotation": served(annotations=CLAIM),
    "annotation, in the form of IPv6": served(annotations={KUBE_VIP_ADDRESSES: f"::ffff:{TAKEN}"}),
    "list in the annotation": served(annotations={KUBE_VIP_ADDRESSES: f"{ADDRESS}, {TAKEN}"}),
    "status": service(ours=True, address=TAKEN),
    "status, beside the own address for kube-vip": service(
        ours=True, address=TAKEN, recorded=False, annotations={KUBE_VIP_ADDRESSES: ADDRESS}
    ),
    "specification, which kube-vip reads without the annotation": service(spec={"loadBalancerIP": TAKEN}),
}


def test_address_of_a_node_is_of_others() -> None:
    snapshot = snapshot_of(served(), OWN)
    assert not shows_address_of_others(snapshot)
    assert shows_address_of_others(replace(snapshot, shows_held_address=True))


def test_own_address_that_another_load_balancer_has_as_well_is_no_claim() -> None:
    assert owners_of_claimed(snapshot_of(served(), OWN, of("twin", ADDRESS))) == ()


UNCLAIMED: dict[str, Service] = {
    "own address": served(),
    "nobody's address": served(annotations={KUBE_VIP_ADDRESSES: "10.0.0.78"}),
    "no address": service(),
    "specification, beside the annotation": served(spec={"loadBalancerIP": TAKEN}),
}


@pytest.mark.parametrize("claiming", CLAIMED.values(), ids=CLAIMED.keys())
def test_service_whose_address_was_written_to_another_one_gets_an_event(claiming: Service) -> None:
    snapshot = snapshot_of(claiming, OWN, VICTIM)
    assert owners_of_claimed(snapshot) == (VICTIM,)
    ((key, event),) = claim_events(snapshot).items()
    assert key == "other/victim"
    assert (event.type, event.reason) == ("Warning", Reason.ADDRESS_CLAIMED)
    assert event.message == (
        f"Address {TAKEN} of this Service was written to Service shop/web, for which kube-vip can announce it as well "
        "until it is removed there. Traffic can reach the Pods of that Service meanwhile. Find in its managed fields "
        "who does that. From Kubernetes 1.30 on, kubeVipPolicy=deny in the chart rejects such a change of a Service "
        "that exists"
    )


@pytest.mark.parametrize("usual", UNCLAIMED.values(), ids=UNCLAIMED.keys())
def test_other_addresses_concern_nobody(usual: Service) -> None:
    snapshot = snapshot_of(usual, OWN, VICTIM)
    assert owners_of_claimed(snapshot) == ()
    assert claim_events(snapshot) == {}


SHARING: dict[str, Any] = {"uid": "2", "ports": [{"port": 9}], "annotations": {**SHARES, KUBE_VIP_ADDRESSES: ADDRESS}}


@pytest.mark.parametrize(
    ("cluster", "is_claimed"), [(CLUSTER, False), (NAMESPACE_ONLY, True)], ids=["permitted", "not permitted"]
)
def test_address_of_the_primary_is_claimed_if_it_may_not_be_shared(
    cluster: ClusterIdentity, *, is_claimed: bool
) -> None:
    sharing = served("api", namespace="mallory", labels=SHARED, **SHARING)
    snapshot = snapshot_of(
        sharing, OF_PRIMARY, cluster=cluster, primary=PRIMARY, primary_allocated=frozenset({ADDRESS}), ranked=(sharing,)
    )
    assert bool(owners_of_claimed(snapshot)) is is_claimed


OTHERS: dict[str, LoadBalancer] = {
    "of another cluster, by its name": of("victim", **{LB_CLUSTER: "another"}),
    "of another cluster, by its mark": replace(
        VICTIM, metadata=replace(VICTIM.metadata, annotations={LB_OWNER: "another"})
    ),
    "of this Service, not proven": of("web", **{LB_SERVICE_NAMESPACE: "shop"}),
}


@pytest.mark.parametrize("owner", OTHERS.values(), ids=OTHERS.keys())
def test_only_another_service_of_this_cluster_gets_an_event(owner: LoadBalancer) -> None:
    snapshot = snapshot_of(served(annotations=CLAIM), OWN, owner)
    assert claim_events(snapshot) == {}


def test_address_that_this_controller_has_published_is_about_to_be_withdrawn() -> None:
    """Harvester gave it to another load balancer, or the Service stops sharing it."""
    former = served(annotations={**CLAIM, **record_of(Step.SHOWN, TAKEN)})
    snapshot = snapshot_of(former, OWN, VICTIM)
    assert owners_of_claimed(snapshot) == (VICTIM,)
    assert claim_events(snapshot) == {}
