"""Other programs and tenants that write false facts: no Service is ready, adopted or deleted because of them.

``tests/trust.md`` lists every such place, with its test.
"""

from typing import Any, Final

import pytest

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LoadBalancer
from harvester_ccm.names import (
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_INTERFACE,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_UID,
    NETWORK,
    PRIMARY_SERVICE_LABEL,
    Reason,
)
from harvester_ccm.plan.service.desired import DeleteLoadBalancer, PatchService
from harvester_ccm.plan.service.verdict import Ready
from tests.support.builders import ADDRESS, SUPPRESSED, VM_SPEC, allocated, marked, service
from tests.unit.plan.service.snapshots import (
    EXHAUSTED_LOAD_BALANCER,
    PRIMARY,
    SHARED,
    SHARES,
    VM,
    plan,
    short_condition,
    short_write,
    with_condition,
)

FALSE: Final = "10.0.0.66"
"""An address that nobody allocated to the Service."""
STATUSES: dict[str, dict[str, Any]] = {
    "K3s ServiceLB, with the addresses of two nodes": {
        "status": {"ingress": [{"ip": FALSE}, {"ip": "10.0.0.67"}]},
    },
    "MetalLB": {"status": {"ingress": [{"ip": FALSE, "ipMode": "VIP"}]}},
    "kube-vip, for an annotation of a tenant": {"address": FALSE, "annotations": {KUBE_VIP_ADDRESSES: FALSE}},
    "kube-vip, noted": {"address": FALSE, "annotations": {KUBE_VIP_ADDRESSES: FALSE, KUBE_VIP_HOST: "n1"}},
    "restored backup, with our finalizer and condition": {
        "address": FALSE,
        "annotations": {KUBE_VIP_ADDRESSES: FALSE, KUBE_VIP_HOST: "n1"},
        "ours": True,
    },
    "restored backup of a secondary": {
        "address": FALSE,
        "annotations": {KUBE_VIP_ADDRESSES: FALSE},
        "labels": SHARED,
        "ours": True,
    },
}
"""Who wrote the address to the status, and how the Service looks."""
ALLOCATIONS: dict[str, tuple[LoadBalancer, ...]] = {
    "no load balancer": (),
    "not processed": (marked(),),
    "refused": (EXHAUSTED_LOAD_BALANCER,),
    "being deleted": (marked(deleting=True),),
    "another address": (allocated(),),
    "in the copy of the address only": (marked(address=FALSE),),
    "for VMs, not announced": (marked(ip=ADDRESS, spec=VM_SPEC),),
    "for VMs": (allocated(spec=VM_SPEC),),
}
"""The load balancers of the Service."""


def ready_with(verdict: object) -> tuple[str, ...]:
    """Return the addresses with which a Service is ready; empty if it is not."""
    return verdict.addresses if isinstance(verdict, Ready) else ()


@pytest.mark.parametrize("load_balancers", ALLOCATIONS.values(), ids=ALLOCATIONS.keys())
@pytest.mark.parametrize("fields", STATUSES.values(), ids=STATUSES.keys())
@pytest.mark.parametrize("annotations", [{}, VM, SHARES], ids=["cluster", "vm", "shared"])
def test_address_that_another_program_wrote_to_the_status_is_never_ready(
    annotations: dict[str, str], fields: dict[str, Any], load_balancers: tuple[LoadBalancer, ...]
) -> None:
    written = {**fields, "annotations": {**fields.get("annotations", {}), **annotations}}
    made = plan(service(**written), *load_balancers, primary=PRIMARY if annotations is SHARES else None)
    assert FALSE not in ready_with(made.verdict)


FORGED_CONDITIONS: dict[str, tuple[Service, tuple[LoadBalancer, ...], str]] = {
    "no load balancer": (service(ours=True), (), "False Queued"),
    "not processed": (service(ours=True, annotations=SUPPRESSED), (marked(),), "False NotProcessed"),
    "refused": (service(ours=True, annotations=SUPPRESSED), (EXHAUSTED_LOAD_BALANCER,), "False PoolExhausted"),
    "another class": (service(spec={"loadBalancerClass": "x/y"}), (), ""),
    "another type": (service(kind="ClusterIP"), (), ""),
    "another mark": (service(annotations={"metallb.io/address-pool": "x"}), (), ""),
}


@pytest.mark.parametrize(
    ("told", "load_balancers", "condition"), FORGED_CONDITIONS.values(), ids=FORGED_CONDITIONS.keys()
)
def test_condition_that_another_program_wrote_is_replaced(
    told: Service, load_balancers: tuple[LoadBalancer, ...], condition: str
) -> None:
    forged = with_condition(told, "True", Reason.ENSURED, f"The load balancer has address {ADDRESS}")
    made = plan(forged, *load_balancers)
    assert ready_with(made.verdict) == ()
    assert short_condition(made.condition) == condition
    assert isinstance(made.write, PatchService)


THEIRS: Final = allocated(annotations={LB_OWNER: "other-uid", LB_SERVICE_UID: "theirs"})
"""A load balancer of another cluster with the name and the labels that this Service would give it."""
CLAIMS: dict[str, dict[str, Any]] = {
    "address in the status": {"address": ADDRESS},
    "address in the status, finalizer and condition": {"address": ADDRESS, "ours": True},
    "address for kube-vip": {"ours": True, "annotations": {KUBE_VIP_ADDRESSES: ADDRESS}},
    "withdrawn for this controller": {"ours": True, "annotations": SUPPRESSED},
    "label of a secondary": {"ours": True, "labels": {PRIMARY_SERVICE_LABEL: "shop.main"}},
}
"""What shows that this controller has handled a Service, and tenants or other programs can write."""


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
@pytest.mark.parametrize("theirs", [THEIRS, allocated(labels={LB_CLUSTER: "other"})], ids=["other UID", "other name"])
@pytest.mark.parametrize("end", [{"deleting": True}, {"kind": "ClusterIP"}, {}], ids=["deleted", "type", "stays"])
def test_load_balancer_of_others_is_neither_adopted_nor_deleted_whatever_the_service_shows(
    end: dict[str, Any], theirs: LoadBalancer, claim: dict[str, Any]
) -> None:
    claiming = service(**{"finalizers": ["x/y"], **claim, **end})
    made = plan(claiming, theirs)
    assert ADDRESS not in ready_with(made.verdict)
    for write in (made.write, made.following_write):
        assert write is None or isinstance(write, PatchService), short_write(write)
        assert not isinstance(write, DeleteLoadBalancer)


def test_device_that_another_client_wrote_is_replaced_by_the_one_of_the_network() -> None:
    annotations = {NETWORK: "infra/vlan9", KUBE_VIP_INTERFACE: "lo", **SUPPRESSED}
    in_network = allocated(annotations={"cloudprovider.harvesterhci.io/lb-network": "infra/vlan9"}, address="")
    made = plan(service(ours=True, annotations=annotations), in_network, network_devices={"infra/vlan9": "eth1"})
    assert isinstance(made.write, PatchService)
    assert made.write.patch["metadata"]["annotations"][KUBE_VIP_INTERFACE] == "eth1"  # type: ignore[index]
