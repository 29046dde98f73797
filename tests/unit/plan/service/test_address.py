"""Events about the address of a Service."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IP_POOL,
    IPAM,
    KUBE_VIP_ADDRESSES,
    LB_CLUSTER,
    LB_OWNER,
    LB_UPDATE_AFTER_CREATE,
    PRIMARY_SERVICE,
    REQUESTED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.announcing.address_events import (
    address_event,
    allocated_twice,
    not_allocated,
    not_as_requested,
)
from harvester_ccm.plan.service.plan import plan_service
from harvester_ccm.plan.service.snapshot import observe
from harvester_ccm.plan.service.verdict import NotReady, Ready
from tests.support.builders import (
    ADDRESS,
    CLUSTER,
    SUPPRESSED,
    VM_SPEC,
    allocated,
    listed_store,
    marked,
    served,
    service,
)
from tests.unit.plan.service.outcomes import differing
from tests.unit.plan.service.snapshots import BACKENDS, VM, WAITING, messages, plan, reasons, short_write, snapshot_of

OTHER = "10.0.0.9"
NEW = f"Ensured load balancer, address {ADDRESS}"

EVENTS: dict[str, tuple[Service, LoadBalancer, str]] = {
    "none": (WAITING, marked(), ""),
    "the first one": (WAITING, marked(ip=ADDRESS), ADDRESS),
    "the same": (served(), allocated(), ADDRESS),
    "the same, the load balancer has no copy yet": (served(), marked(ip=ADDRESS), ADDRESS),
    "another one than the Service has": (served(), marked(ip=OTHER), OTHER),
    "another one than the load balancer has, whose copy is old": (served(), allocated(address=OTHER), ADDRESS),
    "another one than an earlier provider published": (
        service(ours=True, address=OTHER),
        allocated(address=OTHER),
        ADDRESS,
    ),
    "another one than the load balancer has, its pool is named": (
        service(ours=True, address=OTHER),
        allocated(address=OTHER, spec={"ipPool": "vlan100"}),
        ADDRESS,
    ),
    "another lease": (
        served(annotations={KUBE_VIP_ADDRESSES: DHCP_ADDRESS}),
        allocated(ip=DHCP_ADDRESS, pool="", address=OTHER, spec={"ipam": "dhcp"}),
        ADDRESS,
    ),
    "the first one, and another program wrote the status": (service(address=OTHER), marked(ip=ADDRESS), ADDRESS),
    "the same, on a new load balancer": (
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ""}),
        marked(ip=ADDRESS),
        ADDRESS,
    ),
    "the same, on a recreated VM load balancer": (
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ""}),
        allocated(spec=VM_SPEC, annotations={LB_UPDATE_AFTER_CREATE: "true"}),
        ADDRESS,
    ),
}


def test_address_event() -> None:
    rows: dict[str, str] = {}
    for name, (concerned, current, address) in EVENTS.items():
        event = address_event(snapshot_of(concerned, current), current, address)
        rows[name] = "" if event is None else f"{event.type} {event.reason}: {event.message}"
    assert differing("address_events", rows) == []


def test_address_event_names_the_backends() -> None:
    document: Any = allocated(spec=VM_SPEC).document()
    document["status"]["backendServers"] = ["10.1.0.2", "10.1.0.1"]
    current = LOAD_BALANCERS.decode(msgspec.json.encode(document))
    event = address_event(snapshot_of(WAITING, current), current, ADDRESS)
    assert event is not None
    assert event.message == f"{NEW}, backends 10.1.0.1, 10.1.0.2"


REQUESTS: dict[str, tuple[str, str, bool]] = {
    "none": ("", ADDRESS, False),
    "no address yet": (OTHER, "", False),
    "as requested": (ADDRESS, ADDRESS, False),
    "another one": (OTHER, ADDRESS, True),
}


@pytest.mark.parametrize(("requested", "address", "is_reported"), REQUESTS.values(), ids=REQUESTS.keys())
def test_address_that_differs_from_the_requested_one(requested: str, address: str, *, is_reported: bool) -> None:
    event = not_as_requested(snapshot_of(served(annotations={REQUESTED_ADDRESS: requested})), address)
    assert (event is not None) is is_reported
    if event is not None:
        assert event.reason == Reason.ADDRESS_NOT_AS_REQUESTED
        assert f"address {OTHER} is requested and {ADDRESS} was allocated" in event.message
        assert f"name the pool in annotation {IP_POOL}" in event.message


def test_another_address_is_not_reported_before_it_is_known_where_one_can_be_requested() -> None:
    requested = served(annotations={REQUESTED_ADDRESS: OTHER})
    assert not_as_requested(snapshot_of(requested, pool_rights=PoolRights(are_known=False)), ADDRESS) is None


def test_address_that_another_service_has_is_shared() -> None:
    web = service("main", uid="main-uid")
    holder = allocated(web, "demo-shop-main-1", ip=OTHER, address=OTHER)
    snapshot = snapshot_of(served(annotations={REQUESTED_ADDRESS: OTHER}), marked(ip=ADDRESS), holder)
    event = not_as_requested(snapshot, ADDRESS)
    assert event is not None
    assert event.cause.endswith(f"Load balancer {holder.metadata.name} has {OTHER}")
    assert event.remedy == (
        f"To share that address, set annotation {PRIMARY_SERVICE} to shop/main; otherwise request another address"
    )


def test_address_that_another_cluster_has_is_not_shared() -> None:
    foreign = {LB_CLUSTER: "other", LB_OWNER: "other-uid"}
    holder = allocated(
        service("main", uid="main-uid"), "other-shop-main-1", ip=OTHER, labels=foreign, annotations=foreign
    )
    snapshot = snapshot_of(served(annotations={REQUESTED_ADDRESS: OTHER}), marked(ip=ADDRESS), holder)
    event = not_as_requested(snapshot, ADDRESS)
    assert event is not None
    assert event.remedy == "Request another address"


CHOSEN_BY: dict[str, tuple[str, str, str, bool]] = {
    "pool": ("pool", "", "Harvester chooses the address itself", False),
    "DHCP": ("dhcp", "dhcp", "a DHCP server", True),
    "pool, and DHCP was requested later": ("pool", "dhcp", "Harvester chooses the address itself", True),
    "DHCP, and a pool was requested later": ("dhcp", "pool", "a DHCP server", False),
}


@pytest.mark.parametrize(("has", "requested", "cause", "is_removed"), CHOSEN_BY.values(), ids=CHOSEN_BY.keys())
def test_cause_of_another_address_is_the_ipam_of_the_load_balancer(
    has: str, requested: str, cause: str, *, is_removed: bool
) -> None:
    annotations = {REQUESTED_ADDRESS: OTHER, IPAM: requested}
    snapshot = snapshot_of(served(annotations=annotations), marked(ip=ADDRESS, spec={"ipam": has}))
    event = not_as_requested(snapshot, ADDRESS)
    assert event is not None
    assert event.cause.endswith(cause)
    assert event.remedy.endswith(f"without annotation {IPAM}") is is_removed


ALLOCATIONS: dict[str, tuple[Service, tuple[LoadBalancer, ...], bool]] = {
    "no address": (WAITING, (), False),
    "allocated": (served(), (allocated(),), False),
    "allocated by DHCP": (served(), (marked(ip="0.0.0.0"),), False),
    "in use": (served(), (marked(address=ADDRESS),), False),
    "no load balancer": (served(), (), True),
    "another one is allocated": (served(), (marked(ip=OTHER),), True),
}


@pytest.mark.parametrize(("concerned", "own", "is_reported"), ALLOCATIONS.values(), ids=ALLOCATIONS.keys())
def test_address_that_no_load_balancer_has(
    concerned: Service, own: tuple[LoadBalancer, ...], *, is_reported: bool
) -> None:
    event = not_allocated(snapshot_of(concerned, *own))
    assert (event is not None) is is_reported
    if event is not None:
        assert event.reason == Reason.ADDRESS_NOT_ALLOCATED
        assert f"Address {ADDRESS} stays announced, but it is not allocated to this Service" in event.message


def own(**fields: Any) -> LoadBalancer:
    made = allocated(**fields)
    return replace(made, metadata=replace(made.metadata, creation_timestamp="2026-02-01T00:00:00Z"))


def twin(created: str, **fields: Any) -> LoadBalancer:
    other = allocated(service("other", uid="other"), "demo-shop-other-1", **fields)
    return replace(other, metadata=replace(other.metadata, uid="twin", creation_timestamp=created))


TWINS: dict[str, tuple[LoadBalancer, bool, bool]] = {
    "an older one has it": (twin("2026-01-01T00:00:00Z"), True, False),
    "a VM load balancer that is older has it": (twin("2026-01-01T00:00:00Z", spec=VM_SPEC), True, False),
    "a younger one has it": (twin("2026-03-01T00:00:00Z"), True, True),
    "an older one that is being deleted has it": (twin("2026-01-01T00:00:00Z", deleting=True), False, True),
    "an older one has another address": (twin("2026-01-01T00:00:00Z", ip="10.0.0.9", address="10.0.0.9"), False, True),
    "an older one has it from another pool": (twin("2026-01-01T00:00:00Z", pool="vlan200"), False, True),
}


@pytest.mark.parametrize(("other", "is_told", "is_ready"), TWINS.values(), ids=TWINS.keys())
@pytest.mark.parametrize("spec", [{}, VM_SPEC], ids=["announced by kube-vip", "announced by Harvester"])
def test_address_that_harvester_allocated_twice(
    other: LoadBalancer, spec: dict[str, Any], *, is_told: bool, is_ready: bool
) -> None:
    concerned = served() if not spec else service(ours=True, address=ADDRESS, annotations={**SUPPRESSED, **VM})
    made = plan(concerned, own(spec=spec), other)
    assert isinstance(made.verdict, Ready) is is_ready
    assert reasons(made) == (("Warning AddressNotAllocated",) if is_told else ())
    # Nothing is withdrawn or deleted.
    assert short_write(made.write) == (None if is_ready else "condition")


def test_new_address_that_an_older_load_balancer_has_is_not_published() -> None:
    """Harvester can lose the record of an address, and allocate it again."""
    made = plan(WAITING, own(), twin("2026-01-01T00:00:00Z"))
    assert isinstance(made.verdict, NotReady)
    assert ADDRESS not in str(short_write(made.write))


def test_one_of_two_services_with_one_address_is_ready() -> None:
    pair = (served("a", uid="a"), served("b", uid="b"))
    balancers = [allocated(member, f"demo-shop-{member.metadata.name}", uid=member.metadata.uid) for member in pair]
    store = listed_store(pair, balancers, BACKENDS)
    plans = [plan_service(observe(store, member, CLUSTER)) for member in pair]
    assert [isinstance(made.verdict, Ready) for made in plans] == [True, False]
    texts = [messages(made, Reason.ADDRESS_NOT_ALLOCATED) for made in plans]
    command = """kubectl patch ippools.loadbalancer.harvesterhci.io vlan100 --type=merge -p '{"status":{"allocated":"""
    owner = f'{{"{ADDRESS}":"vms/demo-shop-a"}}'
    for (text,) in texts:
        assert "demo-shop-a and to demo-shop-b" in text or "demo-shop-b and to demo-shop-a" in text
        assert "other load balancer than demo-shop-a, the oldest" in text
        assert f"{command}{owner}" in text


def test_leases_are_not_compared_with_each_other() -> None:
    balancers = [allocated(ip="0.0.0.0"), allocated(service("b", uid="b"), "demo-shop-b", uid="b", ip="0.0.0.0")]
    assert allocated_twice(snapshot_of(served(), *balancers), balancers[0]) is None
