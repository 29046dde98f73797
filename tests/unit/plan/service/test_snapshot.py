"""The snapshot of a Service: what is read of the clusters, and whether this is the Harvester of the cluster."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.documents import Page, Unread
from harvester_ccm.kube.errors import Answer, Forbidden, KubeError, Unreachable
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICES, ConfigMap, Service
from harvester_ccm.model.harvester import (
    INSTANCES,
    LOAD_BALANCERS,
    VIRTUAL_MACHINES,
    ClusterIdentity,
    LoadBalancer,
    VirtualMachine,
)
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IP_POOL,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_LEASE,
    LB_CLUSTER,
    LB_OWNER,
    LB_SERVICE_NAME,
    LB_SERVICE_NAMESPACE,
    LB_SERVICE_UUID,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
)
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.ownership.right_harvester import HarvesterCheck, check_harvester
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.request import network_devices
from harvester_ccm.plan.service.snapshot import observe
from harvester_ccm.plan.service.verdict import NotReady
from tests.support.builders import (
    ADDRESS,
    CLUSTER,
    LB_NAME,
    SUPPRESSED,
    UID,
    VM_SPEC,
    allocated,
    listed_store,
    load_balancer,
    marked,
    served,
    service,
)
from tests.support.node_objects import instance, node, vm
from tests.unit.plan.service.snapshots import (
    HOSTED,
    PRIMARY,
    SHARES,
    VM,
    VM_LOAD_BALANCER,
    WAITING,
    record_of,
)

OTHER_UID: Final = "another"
UNDECODED: Final = Unread(f"vms/{LB_NAME}", "lb-uid", "x")
API: Final = served("api", uid="api-uid")
OF_API: Final = allocated(API, name="demo-shop-api-1", uid="api-lb")


def outdated(store: ClusterStore, *, vms: KubeError) -> ClusterStore:
    """Return a store whose VMs were listed once and cannot be read now."""
    store.vms.problem = vms
    return store


def store_of(
    services: Iterable[Service],
    load_balancers: Iterable[LoadBalancer] = (),
    *,
    node_uids: Iterable[str] = ("vm-uid",),
    vm_uids: Iterable[str] | KubeError = (),
    unread: Iterable[Unread] = (),
    unread_vms: Iterable[Unread] = (),
    **lists: KubeError,
) -> ClusterStore:
    """Return a store with Nodes of the VMs ``node_uids``; ``vm_uids`` are in Harvester, or why they are not listed."""
    vms: Page[VirtualMachine] | KubeError
    if isinstance(vm_uids, KubeError):
        vms = vm_uids
    else:
        vms = Page(tuple(vm(uid, uid=uid) for uid in vm_uids), "", {item.key: item for item in unread_vms})
    read: dict[str, Page[Any] | KubeError] = {
        SERVICES.plural: Page(tuple(services), ""),
        LOAD_BALANCERS.plural: Page(tuple(load_balancers), "", {item.key: item for item in unread}),
        NODES.plural: Page(tuple(node(uid, provider_id=f"harvester://{uid}") for uid in node_uids), ""),
        VIRTUAL_MACHINES.plural: vms,
    }
    return ClusterStore(CLUSTER, {**read, **lists})


NOT_LISTED: Final = Unreachable("no route")
CHECKS: dict[str, tuple[ClusterStore, HarvesterCheck]] = {
    "nothing of this cluster": (store_of([served()]), HarvesterCheck.MISMATCH),
    "VMs not listed": (store_of([served()], vm_uids=NOT_LISTED), HarvesterCheck.UNKNOWN),
    "VMs cannot be read": (store_of([served()], vm_uids=Forbidden(Answer(403, "", "no"))), HarvesterCheck.OURS),
    "load balancers not listed": (store_of([served()], loadbalancers=NOT_LISTED), HarvesterCheck.OURS),
    "a VM of a Node": (store_of([served()], vm_uids=["vm-uid"]), HarvesterCheck.OURS),
    "a VM of a Node that cannot be decoded": (
        store_of([served()], unread_vms=[Unread("vms/w1", "vm-uid", "x")]),
        HarvesterCheck.OURS,
    ),
    "a VM of a Node, as the VMs were listed once": (
        outdated(store_of([served()], vm_uids=["vm-uid"]), vms=NOT_LISTED),
        HarvesterCheck.OURS,
    ),
    "a VM of others": (store_of([served()], vm_uids=[OTHER_UID]), HarvesterCheck.MISMATCH),
    "a VM of others that cannot be decoded": (
        store_of([served()], unread_vms=[Unread("vms/other", OTHER_UID, "x")]),
        HarvesterCheck.MISMATCH,
    ),
    "no Node names a VM": (store_of([served()], node_uids=()), HarvesterCheck.OURS),
    "no Service has an address": (store_of([service(), WAITING]), HarvesterCheck.OURS),
    "only a secondary has an address": (
        store_of([served(labels={PRIMARY_SERVICE_LABEL: "shop.main"})]),
        HarvesterCheck.OURS,
    ),
    "only a Service of another class has an address": (
        store_of([served(spec={"loadBalancerClass": "example.com/other"})]),
        HarvesterCheck.OURS,
    ),
    "a load balancer of this cluster": (store_of([served()], [OF_API]), HarvesterCheck.OURS),
    "a load balancer of another cluster": (
        store_of([served()], [marked(API, name="x", annotations={LB_OWNER: "other"})]),
        HarvesterCheck.MISMATCH,
    ),
    "a load balancer of another cluster of this name, for a Service that exists": (
        store_of([served(), API], [marked(API, name="x", annotations={LB_OWNER: "other"})]),
        HarvesterCheck.MISMATCH,
    ),
    "one of the Go provider for a Service that exists": (
        store_of(
            [served(), API],
            [load_balancer("x", labels={LB_CLUSTER: "demo", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "api"})],
        ),
        HarvesterCheck.OURS,
    ),
    "one of the Go provider for a Service that does not exist": (
        store_of(
            [served()],
            [load_balancer("x", labels={LB_CLUSTER: "demo", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "old"})],
        ),
        HarvesterCheck.MISMATCH,
    ),
}


@pytest.mark.parametrize(("store", "expected"), CHECKS.values(), ids=CHECKS.keys())
def test_harvester_of_the_cluster(store: ClusterStore, expected: HarvesterCheck) -> None:
    assert check_harvester(store, CLUSTER) is expected


def test_new_harvester_can_be_accepted() -> None:
    assert check_harvester(store_of([served()]), replace(CLUSTER, new_harvester=True)) is HarvesterCheck.OURS


OWN: Final = allocated()
REPLACEMENTS: dict[str, tuple[ClusterStore, HarvesterCheck]] = {
    "it is the only load balancer": (store_of([served()], [OWN]), HarvesterCheck.MISMATCH),
    "another one stays": (store_of([served(), API], [OWN, OF_API]), HarvesterCheck.OURS),
    "a VM of a Node": (store_of([served()], [OWN], vm_uids=["vm-uid"]), HarvesterCheck.OURS),
}


@pytest.mark.parametrize(("store", "expected"), REPLACEMENTS.values(), ids=REPLACEMENTS.keys())
def test_harvester_of_the_cluster_without_the_load_balancer_that_is_replaced(
    store: ClusterStore, expected: HarvesterCheck
) -> None:
    assert check_harvester(store, CLUSTER, besides=[OWN]) is expected


CHECKED: dict[str, tuple[Service, tuple[LoadBalancer, ...], HarvesterCheck]] = {
    "a new load balancer is needed": (served(), (), HarvesterCheck.MISMATCH),
    "there is one": (served(), (OWN,), HarvesterCheck.OURS),
    "there is one of the requested type": (served(annotations=VM), (allocated(spec=VM_SPEC),), HarvesterCheck.OURS),
    "it is replaced": (served(annotations=VM), (OWN,), HarvesterCheck.MISMATCH),
    "a secondary needs none": (served(annotations=SHARES), (), HarvesterCheck.OURS),
}


@pytest.mark.parametrize(("checked", "own", "expected"), CHECKED.values(), ids=CHECKED.keys())
def test_harvester_is_checked_if_a_load_balancer_may_be_created(
    checked: Service, own: tuple[LoadBalancer, ...], expected: HarvesterCheck
) -> None:
    assert observe(store_of([checked], own), checked, CLUSTER).harvester_check is expected


def test_harvester_is_not_known_while_the_load_balancer_cannot_be_decoded_or_listed() -> None:
    listed, undecoded, failed = (
        store_of([served()]),
        store_of([served()], unread=[UNDECODED]),
        store_of([served()], loadbalancers=NOT_LISTED),
    )
    known = [observe(store, served(), CLUSTER).harvester_known for store in (listed, undecoded, failed)]
    assert known == [True, False, False]
    assert observe(failed, served(), CLUSTER).harvester_problem is NOT_LISTED


CANDIDATES: dict[str, tuple[LoadBalancer, ClusterIdentity]] = {
    "labels": (marked(name="x"), CLUSTER),
    "UID of the Go provider before 0.2": (
        load_balancer("x", labels={LB_CLUSTER: "demo"}, annotations={LB_SERVICE_UUID: UID}),
        CLUSTER,
    ),
    "name": (load_balancer(), CLUSTER),
}


@pytest.mark.parametrize(("candidate", "cluster"), CANDIDATES.values(), ids=CANDIDATES.keys())
def test_load_balancer_is_found(candidate: LoadBalancer, cluster: ClusterIdentity) -> None:
    others = [load_balancer("other", uid="other"), OF_API]
    snapshot = observe(listed_store([service()], [*others, candidate], None), service(), cluster)
    assert snapshot.match.load_balancer == candidate
    assert [claim.load_balancer for claim in snapshot.match.candidates] == [candidate]


def test_holders_of_the_address_are_load_balancers_of_others() -> None:
    holder = load_balancer("other", uid="other", ip=ADDRESS)
    elsewhere = load_balancer("elsewhere", uid="elsewhere", ip="10.0.0.9")
    snapshot = observe(listed_store([served()], [allocated(), holder, elsewhere], None), served(), CLUSTER)
    assert snapshot.other_load_balancers == (holder,)
    assert snapshot.allocated_to_others(ADDRESS) == (holder,)
    assert snapshot.allocated_to_others("10.0.0.9") == ()
    noted = served(annotations={KUBE_VIP_LEASE: "10.0.0.9"})
    assert observe(listed_store([noted], [elsewhere], None), noted, CLUSTER).other_load_balancers == (elsewhere,)
    unshown = observe(listed_store([service()], [allocated(address=""), holder], None), service(), CLUSTER)
    assert unshown.other_load_balancers == (holder,)


REQUESTED: Final = service(annotations={IP_POOL: "lan"}, spec={"loadBalancerIP": ADDRESS})


def permitted(store: ClusterStore) -> ClusterStore:
    """Return a store of a cluster that may request addresses in all pools."""
    store.pool_rights = PoolRights(are_all=True)
    return store


HOLDERS: dict[str, tuple[Mapping[str, Any], str]] = {
    "a Node": ({NODES.plural: Page((node(addresses=[("InternalIP", ADDRESS)]),), "")}, "Node w1 has it"),
    "the report of a VM": ({INSTANCES.plural: Page((instance(ips=["192.168.0.9", ADDRESS]),), "")}, ""),
    "nothing": ({}, ""),
}


@pytest.mark.parametrize(("lists", "expected"), HOLDERS.values(), ids=HOLDERS)
def test_holder_of_the_requested_address(lists: Mapping[str, Any], expected: str) -> None:
    listed = {SERVICES.plural: Page((REQUESTED,), ""), LOAD_BALANCERS.plural: Page((), "")}
    store = permitted(ClusterStore(CLUSTER, {**listed, **lists}))
    assert observe(store, REQUESTED, CLUSTER).holder_of_requested == expected
    # A Service that has a load balancer keeps what it has.
    later = permitted(ClusterStore(CLUSTER, {**listed, **lists, LOAD_BALANCERS.plural: Page((marked(),), "")}))
    assert observe(later, REQUESTED, CLUSTER).holder_of_requested == ""


def test_api_server_with_the_requested_address() -> None:
    store = permitted(listed_store([REQUESTED], (), None))
    store.api_servers = frozenset({ADDRESS})
    assert observe(store, REQUESTED, CLUSTER).holder_of_requested == "an API server of the kubeconfigs has it"


def test_address_that_harvester_announces_already_is_not_new() -> None:
    store = listed_store([HOSTED], [VM_LOAD_BALANCER], None)
    store.api_servers = frozenset({ADDRESS})
    assert dict(observe(store, HOSTED, CLUSTER).holders_of_new) == {}
    withdrawn = service(ours=True, annotations={**SUPPRESSED, **record_of(Step.HELD)})
    store = listed_store([withdrawn], [allocated()], None)
    store.api_servers = frozenset({ADDRESS})
    assert observe(store, withdrawn, CLUSTER).holders_of_new.keys() == {ADDRESS}


def test_address_of_an_api_server_that_a_service_shows_is_held() -> None:
    store = listed_store([API], (), None)
    assert not observe(store, API, CLUSTER).shows_held_address
    store.api_servers = frozenset({ADDRESS})
    assert observe(store, API, CLUSTER).shows_held_address


def test_another_service_that_shows_the_requested_address_has_it() -> None:
    other, leaving = served("api", uid=OTHER_UID), served("old", uid="old", deleting=True)
    holder = load_balancer("holder", uid="holder", ip=ADDRESS, pool="lan")
    snapshot = observe(permitted(listed_store([REQUESTED, leaving, other], (holder,), None)), REQUESTED, CLUSTER)
    assert snapshot.holder_of_requested == "Service shop/api has it"
    assert snapshot.allocated_to_others(ADDRESS) == (holder,)
    shows_it = replace(REQUESTED, status=served().status)
    alone = observe(permitted(listed_store([shows_it, leaving], (), None)), shows_it, CLUSTER)
    assert alone.holder_of_requested == ""


def test_nothing_is_searched_for_a_request_that_is_not_permitted() -> None:
    store = listed_store([REQUESTED], (load_balancer("waiting", uid="waiting"),), None)
    store.api_servers = frozenset({ADDRESS})
    snapshot = observe(store, REQUESTED, CLUSTER)
    assert snapshot.holder_of_requested == ""


def test_family_of_a_service() -> None:
    secondary = served("b", uid="b", annotations={PRIMARY_SERVICE: "shop/main"}, ports=[{"port": 443}])
    store = listed_store([PRIMARY, secondary, API], [allocated(PRIMARY, name="demo-shop-main-1")], None)
    of_secondary, of_primary = (observe(store, member, CLUSTER) for member in (secondary, PRIMARY))
    assert of_secondary.primary == PRIMARY
    assert of_secondary.primary_allocated == {ADDRESS}
    assert of_secondary.ranking_of_primary.clashes == of_primary.own_ranking.clashes == {"shop/b": ""}
    assert of_primary.own_secondaries == (secondary,)
    assert of_primary.primary is None
    itself = served(annotations={PRIMARY_SERVICE: "shop/web"})
    assert observe(listed_store([itself], (), None), itself, CLUSTER).own_secondaries == ()


FOREIGN: dict[str, LoadBalancer] = {
    "of another cluster": allocated(PRIMARY, labels={LB_CLUSTER: "other"}, annotations={LB_OWNER: "other-uid"}),
    "of another cluster of this name": allocated(PRIMARY, annotations={LB_OWNER: "other-uid"}),
    "of a clone": allocated(PRIMARY, labels={LB_CLUSTER: "clone"}),
    "of an unknown owner": load_balancer(
        "x", labels={LB_CLUSTER: "other", LB_SERVICE_NAMESPACE: "shop", LB_SERVICE_NAME: "main"}, ip=ADDRESS
    ),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
def test_load_balancer_of_others_does_not_allocate_the_address_of_a_primary(foreign: LoadBalancer) -> None:
    secondary = service("b", uid="b", annotations={PRIMARY_SERVICE: "shop/main"}, ports=[{"port": 443}])
    snapshot = observe(listed_store([PRIMARY, secondary], [foreign], None), secondary, CLUSTER)
    assert snapshot.primary_allocated == frozenset()
    assert isinstance(plan_service(snapshot).verdict, NotReady)


NOTED: Final = {KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_LEASE: ADDRESS}
OUTDATED: Final = {
    **NOTED,
}
DHCP: Final[dict[str, Any]] = {"ip": DHCP_ADDRESS, "name": "demo-shop-main-1"}
ADDRESSES_OF_PRIMARY: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "leased": ({"address": ADDRESS, "annotations": NOTED}, DHCP, {DHCP_ADDRESS, ADDRESS}),
    "leased and recorded, the status was emptied": (
        {"annotations": {**NOTED, **record_of(Step.SHOWN, DHCP_ADDRESS, uid=PRIMARY.metadata.uid)}},
        {**DHCP, "address": ADDRESS},
        {DHCP_ADDRESS, ADDRESS},
    ),
    "to be leased, the status is that of another controller": (
        {"address": ADDRESS, "annotations": {KUBE_VIP_ADDRESSES: DHCP_ADDRESS}},
        DHCP,
        {DHCP_ADDRESS},
    ),
    "to be leased, from a pool before": (
        {"address": ADDRESS, "annotations": {KUBE_VIP_ADDRESSES: ADDRESS}},
        DHCP,
        {DHCP_ADDRESS},
    ),
    "to be leased, noted before": ({"annotations": OUTDATED}, DHCP, {DHCP_ADDRESS}),
    "withdrawn": (
        {"address": ADDRESS, "annotations": {**NOTED, KUBE_VIP_ADDRESSES: ""}},
        {**DHCP, "address": ADDRESS},
        {DHCP_ADDRESS},
    ),
    "Harvester has leased it": (
        {"address": ADDRESS, "annotations": SUPPRESSED},
        {**DHCP, "address": ADDRESS, "spec": VM_SPEC},
        {DHCP_ADDRESS, ADDRESS},
    ),
    "from a pool": ({"address": ADDRESS}, {"ip": ADDRESS, "name": "demo-shop-main-1"}, {ADDRESS}),
}


@pytest.mark.parametrize(
    ("of_service", "of_load_balancer", "addresses"), ADDRESSES_OF_PRIMARY.values(), ids=ADDRESSES_OF_PRIMARY.keys()
)
def test_addresses_that_a_primary_has(
    of_service: dict[str, Any], of_load_balancer: dict[str, Any], addresses: set[str]
) -> None:
    primary = service("main", uid="main-uid", ours=True, **of_service)
    secondary = service("b", uid="b", annotations=SHARES)
    store = listed_store([primary, secondary], [marked(primary, **of_load_balancer)], None)
    assert observe(store, secondary, CLUSTER).primary_allocated == addresses


def test_lease_of_a_primary_that_harvester_allocated_to_another_load_balancer_is_not_its_address() -> None:
    primary = service("main", uid="main-uid", ours=True, address=ADDRESS, annotations=NOTED)
    secondary = service("b", uid="b", annotations=SHARES)
    holder = load_balancer("other", uid="other", ip=ADDRESS)
    store = listed_store([primary, secondary], [marked(primary, **DHCP), holder], None)
    assert observe(store, secondary, CLUSTER).primary_allocated == {DHCP_ADDRESS}


def test_copy_of_an_address_on_the_load_balancer_of_a_primary_allocates_nothing() -> None:
    secondary = service("b", uid="b", annotations={PRIMARY_SERVICE: "shop/main"}, ports=[{"port": 443}])
    moved = allocated(PRIMARY, name="demo-shop-main-1", ip="10.0.0.9", address=ADDRESS)
    snapshot = observe(listed_store([PRIMARY, secondary], [moved], None), secondary, CLUSTER)
    assert snapshot.primary_allocated == {"10.0.0.9"}
    assert isinstance(plan_service(snapshot).verdict, NotReady)


MAPPINGS: dict[str, tuple[str | None, dict[str, str]]] = {
    "no name of a device": (
        '{"infra/a": "eth0", "infra/b": "eth0; reboot", "infra/c": "..", "infra/d": "eth0:1"}',
        {"infra/a": "eth0"},
    ),
    "names of 15 and of 16 characters": (
        '{"infra/a": "enp0s31f6.40000", "infra/b": "enp0s31f6.400000"}',
        {"infra/a": "enp0s31f6.40000"},
    ),
    "networks": ('{"infra/vlan9":"eth1","vlan8":"eth2"}', {"infra/vlan9": "eth1", "default/vlan8": "eth2"}),
    "empty": ("", {}),
    "no networks": ("{}", {}),
    "no JSON": ("x", {}),
    "no JSON object": ("[1]", {}),
    "device that is no text": ('{"infra/vlan9":"eth1","vlan8":2}', {}),
    "network without a device": ('{"infra/vlan9":""}', {}),
    "no such key": (None, {}),
}


@pytest.mark.parametrize(("text", "expected"), MAPPINGS.values(), ids=MAPPINGS.keys())
def test_network_devices(text: str | None, expected: dict[str, str]) -> None:
    data = {} if text is None else {"interface-nad-mapping": text}
    assert network_devices(ConfigMap(metadata=ObjectMeta(name="x"), data=data)) == expected


def test_network_devices_are_those_of_the_config_map() -> None:
    mapping = CONFIG_MAPS.decode(
        b'{"metadata":{"namespace":"kube-system","name":"harvester-nad-mapping"},'
        b'"data":{"interface-nad-mapping":"{\\"infra/vlan9\\":\\"eth1\\"}"}}'
    )
    listed = ClusterStore(CLUSTER, {CONFIG_MAPS.plural: Page((mapping,), "")})
    assert observe(listed, service(), CLUSTER).network_devices == {"infra/vlan9": "eth1"}
    refused = ClusterStore(CLUSTER, {CONFIG_MAPS.plural: Forbidden(Answer(403, "", "no"))})
    assert observe(refused, service(), CLUSTER).network_devices == {}
