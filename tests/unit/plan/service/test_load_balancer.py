"""What a load balancer must contain, the changes of an existing one, and the fields that stay."""

from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, WHOLE_LOAD_BALANCERS, ClusterIdentity, LoadBalancer
from harvester_ccm.names import (
    DESCRIPTION,
    HEALTH_CHECK_PORT,
    IP_POOL,
    IPAM,
    LB_CLUSTER,
    LB_CONTROLLER_FINALIZER,
    LB_DESCRIPTION,
    LB_MANAGEMENT_NETWORK,
    LB_OWNER,
    LB_RECONCILE,
    LB_REQUESTED_NETWORK,
    LB_SELECT_CLUSTER,
    LB_SELECT_NAMESPACE,
    LB_SELECT_NETWORK,
    LB_SELECT_PROJECT,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UID,
    LB_UPDATE_AFTER_CREATE,
    NETWORK,
    POOL_NAMESPACE,
    PROJECT,
    Reason,
)
from harvester_ccm.plan.service.desired import ChangeLoadBalancer, CreateLoadBalancer
from harvester_ccm.plan.service.load_balancer.refused import Refused
from harvester_ccm.plan.service.load_balancer.specification import (
    changed_document,
    kept_annotations,
    network_of,
    new_load_balancer,
    searches_elsewhere,
)
from harvester_ccm.plan.service.load_balancer.vm_spec import vm_spec_of
from tests.support.builders import (
    ADDRESS,
    CLUSTER,
    LB_NAME,
    SUPPRESSED,
    UID,
    VM_SPEC,
    allocated,
    load_balancer,
    marked,
    served,
    service,
)
from tests.unit.plan.service.outcomes import differing, text_of
from tests.unit.plan.service.snapshots import (
    EXHAUSTED_LOAD_BALANCER,
    HEALTH_CHECK,
    HOSTED,
    NO_POOL,
    VM,
    VM_LOAD_BALANCER,
    messages,
    plan,
    short_write,
    snapshot_of,
)

MANAGED: Final = replace(CLUSTER, management_network="infra/mgmt")
NO_UID: Final = replace(CLUSTER, uid="")
LABELS: Final = {LB_CLUSTER: "demo", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "web"}
MARKS: Final = {LB_SELECT_CLUSTER: "demo", LB_SERVICE_UID: UID, LB_OWNER: "cluster-uid"}
SELECTORS: Final = {LB_SELECT_NETWORK: "", LB_REQUESTED_NETWORK: "", LB_SELECT_PROJECT: "", LB_SELECT_NAMESPACE: ""}
DEFAULT: Final = "shop/web of cluster demo"
OF_SERVICE: Final = {LB_DESCRIPTION: "true"}

NEW: dict[str, tuple[dict[str, str], ClusterIdentity, dict[str, str], dict[str, Any]]] = {
    "plain": ({}, CLUSTER, {}, {}),
    "own UID unknown": ({}, NO_UID, {LB_OWNER: ""}, {}),
    "management network": ({}, MANAGED, {LB_MANAGEMENT_NETWORK: "infra/mgmt"}, {}),
    "pool": ({IP_POOL: " lab "}, CLUSTER, {}, {"ipPool": "lab"}),
    "pool with DHCP": ({IP_POOL: "lab", IPAM: "dhcp"}, CLUSTER, {}, {"ipam": "dhcp"}),
    "network": (
        {NETWORK: "vlan9"},
        CLUSTER,
        {LB_SELECT_NETWORK: "default/vlan9", LB_REQUESTED_NETWORK: "vlan9"},
        {},
    ),
    "project and namespace": (
        {PROJECT: "c-1/p-1", POOL_NAMESPACE: "infra"},
        CLUSTER,
        {LB_SELECT_PROJECT: "c-1/p-1", LB_SELECT_NAMESPACE: "infra"},
        {},
    ),
    "description": ({DESCRIPTION: "front"}, CLUSTER, OF_SERVICE, {"description": "front"}),
    "empty description": ({DESCRIPTION: ""}, CLUSTER, {}, {}),
    "VM load balancer": (VM, CLUSTER, {LB_UPDATE_AFTER_CREATE: "true"}, VM_SPEC),
    "VM load balancer with a health check": (
        {HEALTH_CHECK_PORT: "80"},
        CLUSTER,
        {LB_UPDATE_AFTER_CREATE: "true"},
        {**VM_SPEC, "healthCheck": HEALTH_CHECK},
    ),
}


@pytest.mark.parametrize(("annotations", "cluster", "marks", "spec"), NEW.values(), ids=NEW.keys())
def test_new_load_balancer(
    annotations: dict[str, str], cluster: ClusterIdentity, marks: dict[str, str], spec: dict[str, Any]
) -> None:
    write = plan(service(ours=True, annotations={**SUPPRESSED, **annotations}), cluster=cluster).write
    assert isinstance(write, CreateLoadBalancer)
    expected = {**SELECTORS, **MARKS, **marks}
    if not cluster.uid:
        del expected[LB_OWNER]
    assert write.body == {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "LoadBalancer",
        "metadata": {
            "name": LB_NAME,
            "namespace": "vms",
            "labels": LABELS,
            "annotations": expected,
            "finalizers": [LB_CONTROLLER_FINALIZER],
        },
        "spec": {"description": DEFAULT, "workloadType": "cluster", "ipam": "pool", **spec},
    }
    assert write.name == LB_NAME


@pytest.mark.parametrize("annotations", [{}, VM, {DESCRIPTION: "front"}, {NETWORK: "vlan9"}])
def test_new_load_balancer_needs_no_change(annotations: dict[str, str]) -> None:
    waiting = service(ours=True, annotations={**SUPPRESSED, **annotations})
    created = plan(waiting).write
    assert isinstance(created, CreateLoadBalancer)
    stored = LOAD_BALANCERS.decode(msgspec.json.encode(created.body))
    assert plan(waiting, stored).write is None


DIFFERENCES: dict[str, tuple[Service, LoadBalancer, ClusterIdentity]] = {
    "none": (served(), allocated(), CLUSTER),
    "address": (served(), allocated(address="10.0.0.1"), CLUSTER),
    "address, the pool is named": (served(), allocated(address="10.0.0.1", spec={"ipPool": "vlan100"}), CLUSTER),
    "pool that the Service names later": (served(annotations={IP_POOL: "vlan100"}), allocated(), CLUSTER),
    "pool of the address, an administrator has named another one": (
        served(annotations={IP_POOL: "vlan100"}),
        allocated(spec={"ipPool": "other"}),
        CLUSTER,
    ),
    "pool of another address": (served(annotations={IP_POOL: "lan"}), allocated(), CLUSTER),
    "label": (served(), allocated(labels={LB_CLUSTER: "old"}), replace(CLUSTER, former_names=("old",))),
    "owner annotation of the Go provider's": (
        served(),
        load_balancer(labels=LABELS, ip=ADDRESS, pool="lan", address=ADDRESS),
        CLUSTER,
    ),
    "management network": (served(), allocated(), MANAGED),
    "removed management network": (served(), allocated(annotations={LB_MANAGEMENT_NETWORK: "infra/mgmt"}), CLUSTER),
    "annotations that Harvester's webhook overwrites": (
        served(),
        allocated(
            annotations={
                LB_SELECT_PROJECT: "c-2/p-2",
                LB_SELECT_NAMESPACE: "vms",
                LB_SELECT_NETWORK: "infra/found",
            }
        ),
        CLUSTER,
    ),
    "requested description": (served(annotations={DESCRIPTION: "front"}), allocated(), CLUSTER),
    "requested description, stored": (
        served(annotations={DESCRIPTION: "front"}),
        allocated(annotations=OF_SERVICE, spec={"description": "front"}),
        CLUSTER,
    ),
    "another requested description": (
        served(annotations={DESCRIPTION: "back"}),
        allocated(annotations=OF_SERVICE, spec={"description": "front"}),
        CLUSTER,
    ),
    "removed description": (served(), allocated(annotations=OF_SERVICE, spec={"description": "front"}), CLUSTER),
    "removed description, restored by an administrator": (
        served(),
        allocated(annotations=OF_SERVICE, spec={"description": DEFAULT}),
        CLUSTER,
    ),
    "description of an administrator": (served(), allocated(spec={"description": "mine"}), CLUSTER),
    "description of an administrator on a VM load balancer": (
        HOSTED,
        allocated(spec={**VM_SPEC, "description": "mine"}),
        CLUSTER,
    ),
    "listeners of a newer Harvester": (
        HOSTED,
        allocated(spec={**VM_SPEC, "listeners": [{**VM_SPEC["listeners"][0], "fromTheFuture": 1}]}),
        CLUSTER,
    ),
    "a further listener": (
        HOSTED,
        allocated(spec={**VM_SPEC, "listeners": [*VM_SPEC["listeners"], {"name": "x", "port": 1}]}),
        CLUSTER,
    ),
    "a health check that is not requested": (
        HOSTED,
        allocated(spec={**VM_SPEC, "healthCheck": {"port": 30080}}),
        CLUSTER,
    ),
    "fields of a VM load balancer on a cluster one": (
        served(),
        allocated(spec={"listeners": [], "healthCheck": {"port": 1}}),
        CLUSTER,
    ),
    "another pool, ipam or network after the allocation": (
        served(annotations={IP_POOL: "other", NETWORK: "infra/other", IPAM: "dhcp"}),
        allocated(spec={"ipPool": "lab"}),
        CLUSTER,
    ),
}


def test_load_balancer_is_written_if_it_differs() -> None:
    rows: dict[str, str] = {}
    for name, (changed, current, cluster) in DIFFERENCES.items():
        rows[name] = text_of(short_write(plan(changed, current, cluster=cluster, network_devices=None).write))
    assert differing("load_balancer_changes", rows) == []


def test_description_is_restored_before_there_is_an_address() -> None:
    waiting = service(ours=True, annotations=SUPPRESSED)
    write = plan(waiting, marked(annotations=OF_SERVICE, spec={"description": "front"})).write
    assert write == ChangeLoadBalancer(LB_NAME, annotations={LB_DESCRIPTION: None}, spec={"description": DEFAULT})


CHECKED: Final = service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM, HEALTH_CHECK_PORT: "80"})


def test_field_that_harvester_does_not_store_ends_in_one_warning() -> None:
    made = plan(CHECKED, VM_LOAD_BALANCER)
    assert made.write == ChangeLoadBalancer(LB_NAME, spec={"healthCheck": HEALTH_CHECK})
    made = plan(CHECKED, VM_LOAD_BALANCER, not_stored={"healthCheck": HEALTH_CHECK})
    assert made.write is None
    (message,) = messages(made, Reason.IGNORED)
    assert message.startswith("Harvester does not store spec.healthCheck of the load balancer as it was sent")


def test_another_value_of_such_a_field_is_sent_again() -> None:
    other = {**HEALTH_CHECK, "port": 1}
    made = plan(CHECKED, VM_LOAD_BALANCER, not_stored={"healthCheck": other})
    assert made.write == ChangeLoadBalancer(LB_NAME, spec={"healthCheck": HEALTH_CHECK})


def test_listener_that_harvester_rejected_is_not_sent() -> None:
    snapshot = snapshot_of(HOSTED, VM_LOAD_BALANCER)
    snapshot.remembered.refused = Refused(VM_SPEC["listeners"], frozenset({("TCP", 80)}), 0.0)
    assert vm_spec_of(snapshot)["listeners"] == []


ELSEWHERE: dict[str, tuple[dict[str, str], LoadBalancer, bool]] = {
    "the same": ({}, marked(), False),
    "another pool": ({IP_POOL: "lab"}, marked(), True),
    "another pool, but there is an address": ({IP_POOL: "lab"}, allocated(), False),
    "no pool any more": ({}, marked(spec={"ipPool": "lab"}), True),
    "the same pool": ({IP_POOL: "lab"}, marked(spec={"ipPool": "lab"}), False),
    "a pool, with DHCP": ({IP_POOL: "lab", IPAM: "dhcp"}, marked(spec={"ipam": "dhcp"}), False),
    "another network": ({NETWORK: "infra/v9"}, marked(), True),
    "the same network in another form": (
        {NETWORK: "default/v9"},
        marked(annotations={LB_REQUESTED_NETWORK: "v9"}),
        False,
    ),
    "Go provider before 0.2.7": ({NETWORK: "infra/v9"}, load_balancer(labels=LABELS), False),
}


@pytest.mark.parametrize(("annotations", "current", "expected"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_harvester_searches_elsewhere(annotations: dict[str, str], current: LoadBalancer, *, expected: bool) -> None:
    snapshot = snapshot_of(service(ours=True, annotations=annotations), current)
    assert searches_elsewhere(current, snapshot) is expected


NETWORKS: dict[str, tuple[LoadBalancer, str]] = {
    "no address": (marked(annotations={LB_REQUESTED_NETWORK: "v8"}), "infra/v9"),
    "fixed with the address": (allocated(annotations={LB_REQUESTED_NETWORK: "v8"}), "default/v8"),
    "fixed without a network": (allocated(), ""),
    "Go provider before 0.2.7": (load_balancer(ip=ADDRESS), "infra/v9"),
}


@pytest.mark.parametrize(("current", "network"), NETWORKS.values(), ids=NETWORKS.keys())
def test_network_of_a_load_balancer(current: LoadBalancer, network: str) -> None:
    assert network_of(current, "infra/v9") == network


def test_kept_fields_are_in_every_new_load_balancer() -> None:
    snapshot = snapshot_of(service())
    body: Any = new_load_balancer(snapshot.service, snapshot.request, MANAGED, VM_SPEC)
    assert body["metadata"]["labels"] == LABELS
    assert kept_annotations(snapshot.service, MANAGED).items() <= body["metadata"]["annotations"].items()
    assert VM_SPEC.items() <= body["spec"].items()


@pytest.mark.guarantee("Fields of other controllers survive")
def test_put_keeps_unknown_fields() -> None:
    document: Any = load_balancer(
        labels={"team": "a"},
        annotations={"note": "b", LB_UPDATE_AFTER_CREATE: "true"},
        spec={"description": "mine", "fromTheFuture": {"x": [1]}, "healthCheck": {"port": 1}},
    ).document()
    document["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "owner"}]
    status = {"allocatedAddress": {"ip": ADDRESS, "ipPool": "lan"}, "fromTheFuture": "x"}
    current = WHOLE_LOAD_BALANCERS.decode(msgspec.json.encode({**document, "status": status}))
    change = ChangeLoadBalancer(
        LB_NAME,
        labels={"l": "1"},
        annotations={LB_SERVICE_UID: UID, LB_UPDATE_AFTER_CREATE: None},
        spec={"listeners": [], "healthCheck": None},
        status={"address": ADDRESS},
    )
    written: Any = changed_document(current, change)
    assert written["metadata"] == {
        **document["metadata"],
        "labels": {"team": "a", "l": "1"},
        "annotations": {"note": "b", LB_SERVICE_UID: UID},
    }
    assert written["metadata"]["resourceVersion"] == "11"
    assert written["spec"] == {
        "workloadType": "cluster",
        "ipam": "pool",
        "description": "mine",
        "fromTheFuture": {"x": [1]},
        "listeners": [],
    }
    assert written["status"] == {**status, "address": ADDRESS}


DELETIONS: dict[str, tuple[LoadBalancer, dict[str, Any]]] = {
    "one more search": (marked(message=NO_POOL), {"allocatedAddress": {}}),
    "blocked pool": (EXHAUSTED_LOAD_BALANCER, {"allocatedAddress": {"ipPool": "lan"}}),
}


@pytest.mark.parametrize(("current", "status"), DELETIONS.values(), ids=DELETIONS.keys())
def test_write_before_a_deletion_resets_the_response_of_harvester(
    current: LoadBalancer, status: dict[str, Any]
) -> None:
    deleted = service(ours=True, deleting=True, annotations=SUPPRESSED)
    write = plan(deleted, current).write
    assert isinstance(write, ChangeLoadBalancer)
    written: Any = changed_document(current, write)
    assert written["status"] == status
    # Until Harvester responds, the load balancer is not deleted.
    assert plan(deleted, LOAD_BALANCERS.decode(msgspec.json.encode(written))).write is None
    assert (LB_RECONCILE in written["metadata"]["annotations"]) is (not status["allocatedAddress"])
