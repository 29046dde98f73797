"""No address is published that something else has, and the status shows none that is not the Service's."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from msgspec.structs import replace

from harvester_ccm.commands.clusters import ClusterStore
from harvester_ccm.kube.documents import Page
from harvester_ccm.model.core import NODES, SERVICES, Ingress, Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import DHCP_ADDRESS, IPAM, KUBE_VIP_ADDRESSES, KUBE_VIP_HOST, KUBE_VIP_LEASE, Reason
from harvester_ccm.plan.service.announcing.record import Step
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import ServiceSnapshot, observe
from harvester_ccm.plan.service.verdict import NotReady, Ready
from tests.support.builders import ADDRESS, CLUSTER, VM_SPEC, allocated, marked, served, service
from tests.support.node_objects import node
from tests.unit.plan.service.snapshots import (
    PRIMARY,
    SHARES,
    WAITING,
    record_of,
    short_write,
    snapshot_of,
)

OTHER: Final = "192.0.2.66"
"""An address that another client has added."""
NODE: Final = {NODES.plural: Page((node(addresses=[("InternalIP", ADDRESS)]),), "")}
CLUSTER_IP: Final = service("api", uid="api", kind="ClusterIP", spec={"clusterIPs": ["10.43.0.10", ADDRESS]})


def store_of(
    *services: Service,
    load_balancers: tuple[LoadBalancer, ...],
    api_servers: frozenset[str] = frozenset(),
    **lists: Any,
) -> ClusterStore:
    """Return a store with these objects, in which the nodes may get traffic."""
    pages = {SERVICES.plural: Page(services, ""), LOAD_BALANCERS.plural: Page(load_balancers, ""), **lists}
    store = ClusterStore(CLUSTER, pages)
    store.__dict__["backends"] = ("vm-1",)
    store.api_servers = api_servers
    return store


def observed(concerned: Service, load_balancer: LoadBalancer | None, *others: Service, **lists: Any) -> ServiceSnapshot:
    load_balancers = () if load_balancer is None else (load_balancer,)
    return observe(store_of(concerned, *others, load_balancers=load_balancers, **lists), concerned, CLUSTER)


HOLDERS: Final[Mapping[str, tuple[tuple[Service, ...], Mapping[str, Any], str]]] = {
    "a Node": ((), NODE, "Node w1 has it"),
    "a cluster IP": ((CLUSTER_IP,), {}, "Service shop/api has it as cluster IP"),
    "an API server": ((), {"api_servers": frozenset({ADDRESS})}, "an API server of the kubeconfigs has it"),
}


@pytest.mark.parametrize(("others", "lists", "holder"), HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("load_balancer", [allocated(), allocated(spec=VM_SPEC)], ids=["kube-vip", "Harvester"])
def test_new_address_that_something_else_has_is_not_published(
    load_balancer: LoadBalancer, others: tuple[Service, ...], lists: Mapping[str, Any], holder: str
) -> None:
    plan = plan_service(observed(WAITING, load_balancer, *others, **lists))
    assert isinstance(plan.verdict, NotReady)
    assert plan.verdict.reason == Reason.ADDRESS_IN_USE
    assert f"Address {ADDRESS} is not published, because {holder}" in plan.verdict.message.message
    assert plan.write is None or "ingress" not in str(short_write(plan.write))


def test_kubelet_cannot_keep_a_whole_pool_from_all_services() -> None:
    """This controller gives a Node one InternalIP of each family. A kubelet can write every address of a pool."""
    network = ADDRESS.rpartition(".")[0]
    own = ("InternalIP", "10.9.0.2")
    written = node(addresses=[own, *(("InternalIP", f"{network}.{number}") for number in range(256))])
    plan = plan_service(observed(WAITING, allocated(), **{NODES.plural: Page((written,), "")}))
    assert isinstance(plan.verdict, Ready)
    dual_stack = node(addresses=[("InternalIP", "fd00::2"), ("Hostname", "w1"), ("InternalIP", ADDRESS)])
    plan = plan_service(observed(WAITING, allocated(), **{NODES.plural: Page((dual_stack,), "")}))
    assert isinstance(plan.verdict, NotReady)


SPECIAL: Final = {
    "127.0.0.1": "a loopback address",
    "169.254.169.254": "a link-local address",
    "224.0.0.1": "a multicast address",
    "255.255.255.255": "the broadcast address",
    "::": "the unspecified address",
}


@pytest.mark.parametrize(("address", "use"), SPECIAL.items())
def test_address_for_a_special_use_is_not_published(address: str, use: str) -> None:
    plan = plan_service(observed(WAITING, marked(ip=address, pool="lan")))
    assert isinstance(plan.verdict, NotReady)
    assert f"because it is {use}" in plan.verdict.message.message
    assert address not in str(short_write(plan.write))


def test_primary_address_that_a_node_has_is_not_shared() -> None:
    secondary = service(ours=True, annotations=SHARES, ports=[{"port": 443}])
    plan = plan_service(observed(secondary, allocated(PRIMARY, name="demo-shop-main-1"), PRIMARY, **NODE))
    assert isinstance(plan.verdict, NotReady)
    assert plan.verdict.reason == Reason.ADDRESS_IN_USE
    assert plan.verdict.message.remedy == "Name another primary than Service shop/main, which has this address"


def test_lease_that_a_node_has_is_not_taken_over() -> None:
    annotations = {KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_HOST: "n1", KUBE_VIP_LEASE: ADDRESS, IPAM: "dhcp"}
    leased = service(
        ours=True,
        address=ADDRESS,
        annotations={**annotations, **record_of(Step.PUBLISHED, DHCP_ADDRESS)},
    )
    load_balancer = marked(ip=DHCP_ADDRESS, spec={"ipam": "dhcp"})
    assert isinstance(plan_service(observed(leased, load_balancer)).verdict, Ready)
    plan = plan_service(observed(leased, load_balancer, **NODE))
    assert isinstance(plan.verdict, NotReady)
    assert plan.verdict.reason == Reason.ADDRESS_IN_USE
    assert ADDRESS not in str(short_write(plan.write)), "the load balancer gets no copy"


@pytest.mark.parametrize("recorded", [True, False], ids=["this controller", "the Go provider"])
def test_published_address_stays(*, recorded: bool) -> None:
    plan = plan_service(observed(served(recorded=recorded, condition=recorded), allocated(), **NODE))
    assert isinstance(plan.verdict, Ready)


def with_further(concerned: Service, *addresses: str) -> Service:
    """Return a Service to whose status another client has added these addresses."""
    ingress = (*concerned.status.load_balancer.ingress, *(Ingress(ip=address) for address in addresses))
    return replace(
        concerned,
        status=replace(concerned.status, load_balancer=replace(concerned.status.load_balancer, ingress=ingress)),
    )


WAITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Harvester cannot be read": {"harvester_known": False},
    "its load balancer was deleted": {},
}


@pytest.mark.parametrize("facts", WAITS.values(), ids=WAITS)
def test_status_of_a_service_that_waits_shows_its_own_address_only(facts: Mapping[str, Any]) -> None:
    plan = plan_service(snapshot_of(with_further(served(), OTHER), **facts))
    patch: Any = short_write(plan.write)
    assert patch["ingress"] == [f"{ADDRESS} VIP 80/TCP"]


def test_status_of_a_kept_primary_shows_its_own_address_only() -> None:
    secondary = served("api", uid="api", annotations=SHARES, labels={}, ports=[{"port": 443}])
    leaving = with_further(served(deleting=True), OTHER)
    snapshot = snapshot_of(leaving, allocated(), own_secondaries=(secondary,))
    plan = plan_service(snapshot)
    assert isinstance(plan.verdict, NotReady)
    assert plan.verdict.reason == Reason.DELETION_PENDING
    patch: Any = short_write(plan.write)
    assert patch["ingress"] == [f"{ADDRESS} VIP 80/TCP"]


def test_further_addresses_beside_a_lease_stay() -> None:
    annotations = {KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_HOST: "n1", KUBE_VIP_LEASE: ADDRESS, IPAM: "dhcp"}
    record = record_of(Step.SHOWN, DHCP_ADDRESS)
    leased = with_further(service(ours=True, address=ADDRESS, annotations={**annotations, **record}), "fd00::7")
    assert "ingress" not in str(short_write(plan_service(snapshot_of(leased, harvester_known=False)).write))
