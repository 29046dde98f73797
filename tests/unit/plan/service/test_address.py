"""Events about the address of a Service."""

from typing import Any

import msgspec
import pytest

from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, LoadBalancer
from harvester_ccm.names import IP_POOL, IPAM, KUBE_VIP_ADDRESSES, LB_UPDATE_AFTER_CREATE, REQUESTED_ADDRESS, Reason
from harvester_ccm.plan.service.address import address_event, not_allocated, not_as_requested
from tests.support.builders import ADDRESS, VM_SPEC, allocated, load_balancer, marked, served, service
from tests.unit.plan.service.snapshots import VM, WAITING, snapshot_of

OTHER = "10.0.0.9"
NEW = f"Ensured load balancer, address {ADDRESS}"

EVENTS: dict[str, tuple[Service, LoadBalancer, str, str]] = {
    "none": (WAITING, marked(), "", ""),
    "the first one": (WAITING, marked(ip=ADDRESS), ADDRESS, f"Normal {NEW}"),
    "the same": (served(), allocated(), ADDRESS, ""),
    "the same, the load balancer has no copy yet": (served(), marked(ip=ADDRESS), ADDRESS, ""),
    "another one than the Service has": (
        served(),
        marked(ip=OTHER),
        OTHER,
        f"Warning The address changed from {ADDRESS} to {OTHER}",
    ),
    "another one than the load balancer has": (
        served(),
        allocated(address=OTHER),
        ADDRESS,
        f"Warning The address changed from {OTHER} to {ADDRESS}",
    ),
    "the same, on a new load balancer": (
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ""}),
        marked(ip=ADDRESS),
        ADDRESS,
        f"Normal {NEW}",
    ),
    "the same, on a recreated VM load balancer": (
        service(ours=True, address=ADDRESS, annotations={KUBE_VIP_ADDRESSES: ""}),
        allocated(spec=VM_SPEC, annotations={LB_UPDATE_AFTER_CREATE: "true"}),
        ADDRESS,
        f"Normal {NEW}",
    ),
}


@pytest.mark.parametrize(("concerned", "current", "address", "expected"), EVENTS.values(), ids=EVENTS.keys())
def test_address_event(concerned: Service, current: LoadBalancer, address: str, expected: str) -> None:
    event = address_event(snapshot_of(concerned, current), current, address)
    assert (f"{event.type} {event.message}" if event else "") == expected
    if event is not None:
        assert event.reason == (Reason.ENSURED if event.type == "Normal" else Reason.ADDRESS_CHANGED)


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
    snapshot = snapshot_of(concerned, *own)
    assert snapshot.unallocated_address == (ADDRESS if is_reported else "")
    event = not_allocated(snapshot)
    assert (event is not None) is is_reported
    if event is not None:
        assert event.reason == Reason.ADDRESS_NOT_ALLOCATED
        assert f"Address {ADDRESS} stays announced, but it is not allocated to this Service" in event.message


RETAINED: dict[str, tuple[Service, tuple[LoadBalancer, ...], tuple[LoadBalancer, ...], str]] = {
    "requested": (served(annotations={REQUESTED_ADDRESS: ADDRESS}), (), (), ADDRESS),
    "requested in the specification": (served(spec={"loadBalancerIP": ADDRESS}), (marked(),), (), ADDRESS),
    "not requested": (served(), (), (), ""),
    "another one is requested": (served(annotations={REQUESTED_ADDRESS: OTHER}), (), (), ""),
    "a VM load balancer is requested, which kube-vip does not announce": (
        served(annotations={REQUESTED_ADDRESS: ADDRESS, **VM}),
        (),
        (),
        "",
    ),
    "kube-vip ignores the Service": (
        served(annotations={REQUESTED_ADDRESS: ADDRESS, "kube-vip.io/ignore": "true"}),
        (),
        (),
        "",
    ),
    "Harvester has allocated another one": (
        served(annotations={REQUESTED_ADDRESS: ADDRESS}),
        (marked(ip=OTHER),),
        (),
        "",
    ),
    "another load balancer has it": (
        served(annotations={REQUESTED_ADDRESS: ADDRESS}),
        (),
        (load_balancer("other", ip=ADDRESS),),
        "",
    ),
    "another load balancer that is being deleted has it": (
        served(annotations={REQUESTED_ADDRESS: ADDRESS}),
        (),
        (load_balancer("other", ip=ADDRESS, deleting=True),),
        ADDRESS,
    ),
}


@pytest.mark.parametrize(("concerned", "own", "holders", "address"), RETAINED.values(), ids=RETAINED.keys())
def test_requested_address_is_kept_until_harvester_decides(
    concerned: Service, own: tuple[LoadBalancer, ...], holders: tuple[LoadBalancer, ...], address: str
) -> None:
    assert snapshot_of(concerned, *own, holders=holders).retained_address == address
