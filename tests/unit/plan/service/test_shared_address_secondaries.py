"""A Service that shares an address: what it keeps, what it gives up, and what it cannot have."""

from __future__ import annotations

from typing import Any

import pytest

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE, KUBE_VIP_INTERFACE
from harvester_ccm.model.outcome import Done, Refused, Wait
from harvester_ccm.names import (
    CATALOGUE,
    IPAM,
    NETWORK,
    PREFIX,
    PRIMARY_SERVICE,
    PRIMARY_SERVICE_LABEL,
    REQUESTED_ADDRESS,
    Reason,
)
from harvester_ccm.plan.service.selection import primary_label
from harvester_ccm.plan.service.shared_address import PRIMARY_PATIENCE, approved
from tests.unit.plan.service.plans import OURS, outline, plan, said
from tests.unit.plan.service.sharing_services import (
    API,
    HANDS_OFF,
    HELD,
    LABEL,
    NAMES_WEB,
    OTHER,
    WITHDRAWN,
    asking,
    hosted_primary,
    sharing,
)
from tests.worlds.builders import ADDRESS, CLUSTER, allocated, marked, served, service

SHARES = {KUBE_VIP_ADDRESSES: ADDRESS}
KEPT: dict[str, tuple[Any, Any, list[object]]] = {
    "the primary got a port that is used here": (
        sharing(),
        served(ports=[{"port": 80}, {"port": 8080}]),
        ["Warning SharingRefused"],
    ),
    "the primary waits to be deleted": (sharing(), served(deleting=True), ["Warning SharingRefused"]),
    "the primary has lost its address for now": (sharing(), service(ours=True), []),
    "refused while the primary is being switched": (
        sharing(),
        served(annotations={KUBE_VIP_ADDRESSES: ""}, ports=[{"port": 80}, {"port": 8080}]),
        ["Warning SharingRefused", {"service": {"annotations": WITHDRAWN}}],
    ),
}


@pytest.mark.parametrize(("asked", "primary", "steps"), KEPT.values(), ids=KEPT.keys())
def test_what_a_service_has_it_keeps(asked: Any, primary: Any, steps: list[object]) -> None:
    reason = "not_sharable" if "Warning SharingRefused" in steps else "primary"
    assert outline(asked, primary=primary) == (steps, Wait(reason))


NETWORKS: dict[str, tuple[dict[str, str], dict[str, str], list[object]]] = {
    "another than the primary's": (
        {NETWORK: "infra/other"},
        {NETWORK: "infra/vlan9"},
        ["Warning SharingRefused", {"service": {"annotations": HELD, "finalizers": OURS}}],
    ),
    "one, and the primary asks for none": (
        {NETWORK: "infra/other"},
        {},
        ["Warning SharingRefused", {"service": {"annotations": HELD, "finalizers": OURS}}],
    ),
    "another, on one that shares already": (
        {NETWORK: "infra/other", **SHARES},
        {NETWORK: "infra/vlan9"},
        ["Warning SharingRefused"],
    ),
    "the primary's, in other words": ({NETWORK: "lan", **SHARES}, {NETWORK: "default/lan"}, []),
}


@pytest.mark.parametrize(("own", "of_primary", "steps"), NETWORKS.values(), ids=NETWORKS.keys())
def test_a_network_of_its_own_is_never_rewritten(
    own: dict[str, str], of_primary: dict[str, str], steps: list[object]
) -> None:
    asked = sharing(own) if KUBE_VIP_ADDRESSES in own else asking(own)
    primary = served(annotations=of_primary)
    assert outline(asked, primary=primary)[0] == steps
    refusal = said(plan(asked, primary=primary), Reason.SHARING_REFUSED)
    assert all(words in refusal for words in (NETWORK, *own.values()) if steps and words != ADDRESS)


def test_a_secondary_of_another_network_takes_no_port_from_others() -> None:
    refused = asking({NETWORK: "infra/other"}, created=JANUARY)
    other = asking(name="api-2", created=FEBRUARY)
    assert approved(served(), (refused, other), CLUSTER) == (other,)
    sharer = sharing({NETWORK: "infra/other"})
    assert approved(served(), (sharer,), CLUSTER) == (sharer,)


LOST: dict[str, tuple[Any, frozenset[str] | None, bool]] = {
    "served, load balancer with the address": (served(), frozenset({ADDRESS}), True),
    "served, load balancer is created again": (served(), frozenset(), True),
    "being deleted, held for those who share": (served(deleting=True), frozenset({ADDRESS}), True),
    "being deleted, load balancer is gone": (served(deleting=True), frozenset(), False),
    "no load balancer any more, held for those who share": (served(kind="ClusterIP"), frozenset({ADDRESS}), True),
    "no load balancer any more, and it is gone": (served(kind="ClusterIP"), frozenset(), False),
    "let go, as another type": (service(kind="ClusterIP"), frozenset(), False),
    "let go, and kept by another finalizer": (service(deleting=True, finalizers=["x/y"]), frozenset(), False),
    "let go, nothing known of Harvester": (service(), None, False),
    "Harvester gave another address": (served(), frozenset({OTHER}), False),
    "it shows another address by now": (served(address=OTHER), None, False),
    "lease": (served(deleting=True), frozenset({"0.0.0.0"}), True),
}


@pytest.mark.parametrize(("primary", "allocated", "stays"), LOST.values(), ids=LOST.keys())
def test_a_secondary_leaves_when_nobody_holds_the_address_for_it(
    primary: Any, allocated: frozenset[str] | None, stays: bool
) -> None:
    steps, _ = outline(sharing(ports=[{"port": 80}]), primary=primary, primary_allocated=allocated)
    left = {"service": {"annotations": WITHDRAWN, "labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None}}
    assert (left not in steps) is stays


GIVEN_UP: dict[str, tuple[Any, Any]] = {
    "the primary is gone": (sharing(), None),
    "names another one that does not exist": (sharing({PRIMARY_SERVICE: "shop/none"}), None),
    "its own load balancer is gone": (asking({KUBE_VIP_ADDRESSES: OTHER}, ours=True, address=OTHER), None),
    "names another one that refuses": (sharing({PRIMARY_SERVICE: "shop/edge"}), served("edge", uid="e", ports=API)),
}


@pytest.mark.parametrize(("asked", "primary"), GIVEN_UP.values(), ids=GIVEN_UP.keys())
def test_an_address_that_nobody_holds_for_it_is_given_up(asked: Any, primary: Any) -> None:
    label = {"labels": {PRIMARY_SERVICE_LABEL: None}} if asked.metadata.labels else {}
    gone = {"service": {"annotations": WITHDRAWN, **label, "ingress": None}}
    assert outline(asked, primary=primary) == (["Warning SharingRefused", gone], Wait("not_sharable"))


TWO_PORTS = [*API, {"name": "more", "port": 9090, "protocol": "TCP", "nodePort": 32090}]
JANUARY, FEBRUARY = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


@pytest.mark.parametrize("allocated", [None, frozenset[str]()])
def test_an_address_that_harvester_has_given_to_somebody_else_is_given_up(allocated: frozenset[str] | None) -> None:
    # The primary's load balancer was made anew, and another one has waited for a free address.
    primary = service(ours=True, annotations=HELD)
    taken = {"holders": (marked(service("third", uid="third"), "demo-shop-third-1", ip=ADDRESS, pool="lan"),)}
    leaving = {
        "service": {"annotations": {KUBE_VIP_ADDRESSES: ""}, "labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None}
    }
    told = ["Warning AddressNotBooked", leaving]
    assert outline(sharing(), primary=primary, primary_allocated=allocated, **taken)[0] == told
    assert leaving not in outline(sharing(), primary=primary, primary_allocated=allocated)[0]


def sibling(ports: Any = API, **more: Any) -> Any:
    """Return shop/z, which shares the address of shop/web, too."""
    more = {"name": "z", "uid": "z", "ports": ports, "labels": LABEL, "created": FEBRUARY, **more}
    return served(**more, annotations=NAMES_WEB)


def edited(ports: Any, **more: Any) -> Any:
    """Return shop/api with ports that its status does not have yet."""
    status = {"ingress": [{"ip": ADDRESS, "ipMode": "VIP", "ports": [{"port": 9090, "protocol": "TCP"}]}]}
    return sharing(ports=ports, address=None, status=status, **more)


LEFT: dict[str, tuple[Any, Any]] = {
    "both got it at once, the other is older": (sharing(created=FEBRUARY), sibling(created=JANUARY)),
    "an edit asks for a younger one's port": (edited(TWO_PORTS, created=JANUARY), sibling()),
    "an edit asks for the port of one whose other port the primary got": (
        edited(TWO_PORTS, created=JANUARY),
        sibling([*API, {"port": 80}]),
    ),
}


@pytest.mark.parametrize(("asked", "other"), LEFT.values(), ids=LEFT.keys())
def test_two_services_are_not_left_on_one_port(asked: Any, other: Any) -> None:
    gone = {"service": {"annotations": WITHDRAWN, "labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None}}
    assert outline(asked, primary=served(), secondaries_of_primary=(other,)) == (
        ["Warning SharingRefused", gone],
        Wait("not_sharable"),
    )
    made = plan(asked, primary=served(), secondaries_of_primary=(other,))
    assert "Port 8080/TCP is used on this address by Service shop/z" in said(made, Reason.SHARING_REFUSED)


UNDISTURBED: dict[str, tuple[Any, Any]] = {
    "both got it at once, the other is younger": (sharing(created=JANUARY), sibling(created=FEBRUARY)),
    "an older one asks for its port by an edit": (
        sharing(created=FEBRUARY),
        sibling(
            TWO_PORTS,
            created=JANUARY,
            address=None,
            status={"ingress": [{"ip": ADDRESS, "ports": [{"port": 9090, "protocol": "TCP"}]}]},
        ),
    ),
    "an older one that left asks again": (
        sharing(created=FEBRUARY),
        sibling(created=JANUARY, address=None, labels={}),
    ),
}


@pytest.mark.parametrize(("asked", "other"), UNDISTURBED.values(), ids=UNDISTURBED.keys())
def test_the_one_that_has_the_port_keeps_it_and_hears_nothing(asked: Any, other: Any) -> None:
    assert outline(asked, primary=served(), secondaries_of_primary=(other,)) == ([], Done())


def test_a_port_that_a_service_keeps_against_its_primary_is_not_given_away() -> None:
    primary = served(ports=[{"port": 80}, {"port": 8080}])
    kept = sharing(ports=TWO_PORTS)
    asked = sibling([{"port": 9090}], address=None, labels={}, created=JANUARY)
    assert "used on this address by Service shop/api" in said(
        plan(asked, primary=primary, secondaries_of_primary=(kept,)), Reason.SHARING_REFUSED
    )
    assert outline(kept, primary=primary, secondaries_of_primary=(asked,)) == (
        ["Warning SharingRefused"],
        Wait("not_sharable"),
    )


def test_who_may_not_share_keeps_no_port_from_others() -> None:
    first, third = sibling(), sibling([{"port": 9090}], name="third", uid="third", labels={}, address=None)
    outranked = asking(ports=TWO_PORTS, created=JANUARY)
    assert approved(served(), (first, outranked, third), CLUSTER) == (first, third)


def test_a_port_on_another_address_gives_no_right_to_it_here() -> None:
    elsewhere = asking(created=FEBRUARY, ours=True, address=OTHER)
    older = asking(name="api-2", uid="api-2", created=JANUARY)
    assert approved(served(), (elsewhere, older), CLUSTER) == (older,)


def test_a_service_that_becomes_a_secondary_gives_its_own_address_back_first() -> None:
    asked = asking({KUBE_VIP_ADDRESSES: OTHER}, ours=True, address=OTHER)
    own = allocated(asked, "demo-shop-api-00000000", ip=OTHER, address=OTHER)
    assert outline(asked, own, primary=served()) == (
        ["Warning AddressChanged", {"service": {"annotations": WITHDRAWN}}],
        Wait("endpoints"),
    )


def test_kube_vip_is_made_to_look_at_a_shared_address_again() -> None:
    asked = sharing()
    assert outline(asked, primary=served(), touch_at=1.0) == ([], Wait("endpoints", 1.0))
    assert outline(asked, primary=served(), touch_at=0.0) == (["touch endpoints"], Done())
    away = {"service": {"annotations": WITHDRAWN}}
    for primary in (served(annotations=WITHDRAWN), hosted_primary()):
        steps, outcome = outline(asked, primary=primary, touch_at=0.0)
        assert (steps[0], outcome) == (away, Done()), "it is announced by nobody, or by Harvester"


def test_its_own_address_is_kept_while_it_may_not_share() -> None:
    asked = asking({KUBE_VIP_ADDRESSES: OTHER}, ours=True, address=OTHER)
    own = allocated(asked, "demo-shop-api-00000000", ip=OTHER, address=OTHER)
    assert outline(asked, own, primary=None) == (["Warning SharingRefused"], Done())


def test_its_own_address_is_kept_while_others_share_it() -> None:
    """What its user has to do about it is told, whatever else it waits for."""
    asked = asking({KUBE_VIP_ADDRESSES: OTHER}, ours=True, address=OTHER)
    own = allocated(asked, "demo-shop-api-00000000", ip=OTHER, address=OTHER)
    shares = {"annotations": {PRIMARY_SERVICE: "shop/api"}, "labels": {PRIMARY_SERVICE_LABEL: "shop.api"}}
    user = served("user", uid="user", address=OTHER, **shares)
    known: dict[str, Any] = {"primary": served(), "own_secondaries": (user,)}
    assert outline(asked, own, **known) == (["Warning SharingRefused"], Wait("secondaries"))
    assert "shop/user shares it" in said(plan(asked, own, **known), Reason.SHARING_REFUSED)


def test_a_load_balancer_that_is_not_booked_yet_is_not_deleted_at_once() -> None:
    asked = asking(HELD, ours=True)
    own = marked(asked, "demo-shop-api-00000000", finalizer=False)
    assert outline(asked, own, primary=served(), waited=1.0) == ([], Wait("booking", 29.0))


LONG = "n" * 40
LABELS = {
    "short": ("shop/web", "shop.web"),
    "just fits": (f"{LONG}/{'s' * 22}", f"{LONG}.{'s' * 22}"),
    "too long": (f"{LONG}/{'s' * 23}", None),
}


@pytest.mark.parametrize(("key", "label"), LABELS.values(), ids=LABELS.keys())
def test_label_of_a_secondary(key: str, label: str | None) -> None:
    made = primary_label(key)
    assert made == label or label is None
    assert len(made) <= 63
    assert made[-1].isalnum()


def test_long_names_share_like_others() -> None:
    primary = served("s" * 40, namespace=LONG, uid="p")
    asked = asking({PRIMARY_SERVICE: primary.metadata.key})
    (write, _), _ = outline(asked, primary=primary)
    assert isinstance(write, dict)
    done = sharing({PRIMARY_SERVICE: primary.metadata.key}, labels=write["service"]["labels"])
    assert outline(done, primary=primary) == ([], Done())


IGNORED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "a pool": ({"cloudprovider.harvesterhci.io/ip-pool": "x"}, {}, "ip-pool"),
    "a health check": ({"cloudprovider.harvesterhci.io/healthcheck-port": "80"}, {}, "healthcheck-port"),
    "a description": ({"cloudprovider.harvesterhci.io/description": "shop"}, {}, "description"),
    "another address": ({REQUESTED_ADDRESS: "10.9.9.9"}, {}, "requested-address"),
    "an address that is none": ({REQUESTED_ADDRESS: "any"}, {}, "requested-address"),
    "an unknown ipam": ({IPAM: "static"}, {}, "ipam"),
    "a field with another address": ({}, {"loadBalancerIP": "10.9.9.9"}, "spec.loadBalancerIP"),
    "IPv6": ({}, {"ipFamilies": ["IPv4", "IPv6"]}, "IPv6"),
}


@pytest.mark.parametrize(("annotations", "spec", "text"), IGNORED.values(), ids=IGNORED.keys())
def test_what_a_secondary_cannot_have_is_told(annotations: dict[str, str], spec: dict[str, Any], text: str) -> None:
    asked = sharing(annotations, spec=spec)
    assert text in said(plan(asked, primary=served()), Reason.IGNORED)


WISHES = {
    one.name
    for one in CATALOGUE
    if (one.on, one.kind, one.direction) == ("Service", "annotation", "read") and one.name.startswith(PREFIX)
}
"""Annotations by which users say what they want of a load balancer."""


@pytest.mark.parametrize("key", sorted(WISHES - {NETWORK, PRIMARY_SERVICE}))
def test_no_annotation_is_without_effect_in_silence(key: str) -> None:
    told = said(plan(sharing({key: "no"}), primary=served()), Reason.IGNORED)
    assert key in told, f"{key} does nothing where an address is shared: plan/service/request.py says so"


UNSAID: dict[str, dict[str, str]] = {
    "the address of the primary": {REQUESTED_ADDRESS: ADDRESS},
    "ipam of its own until now": {IPAM: "dhcp"},
    "no ipam": {IPAM: " "},
}


@pytest.mark.parametrize("annotations", UNSAID.values(), ids=UNSAID.keys())
def test_what_a_secondary_has_anyway_is_not_told(annotations: dict[str, str]) -> None:
    assert said(plan(sharing(annotations), primary=served()), Reason.IGNORED) == ""


NO_NODE_PORTS: dict[str, Any] = {"ports": [{"port": 8080}], "spec": {"allocateLoadBalancerNodePorts": False}}
IPV6: dict[str, Any] = {"spec": {"ipFamilies": ["IPv6"]}}
FAILED = "Warning SyncLoadBalancerFailed"
OBSTACLES: dict[str, tuple[Any, Any, list[object]]] = {
    "IPv6 only": (asking(**IPV6), served(), [FAILED, {"service": {"annotations": HELD}}]),
    "no node ports, announced by Harvester": (
        asking(**NO_NODE_PORTS),
        hosted_primary(),
        [FAILED, {"service": {"annotations": HELD}}],
    ),
    "no node ports any more: it keeps what it has": (sharing(HANDS_OFF, **NO_NODE_PORTS), hosted_primary(), [FAILED]),
    "no node ports, and the primary went to Harvester": (
        sharing(**NO_NODE_PORTS),
        hosted_primary(),
        [FAILED, {"service": {"annotations": WITHDRAWN}}],
    ),
}


@pytest.mark.parametrize(("asked", "primary", "steps"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_a_secondary_that_cannot_be_served_gets_no_address(asked: Any, primary: Any, steps: list[object]) -> None:
    assert outline(asked, primary=primary) == (steps, Refused("not_servable"))


def test_a_secondary_of_kube_vip_needs_no_node_ports() -> None:
    assert outline(sharing(**NO_NODE_PORTS), primary=served()) == ([], Done())


def test_its_own_load_balancer_is_kept_while_it_could_not_be_served_as_a_secondary() -> None:
    asked = asking({KUBE_VIP_ADDRESSES: OTHER}, ours=True, address=OTHER, **NO_NODE_PORTS)
    own = allocated(asked, "demo-shop-api-00000000", ip=OTHER, address=OTHER)
    assert outline(asked, own, primary=hosted_primary()) == ([FAILED], Done())


def test_a_service_that_waited_for_harvester_is_announced_by_kube_vip_with_its_primary() -> None:
    (write, _), _ = outline(asking(HANDS_OFF, ours=True), primary=served())
    assert isinstance(write, dict)
    assert write["service"]["annotations"] == {KUBE_VIP_ADDRESSES: ADDRESS, KUBE_VIP_IGNORE: None}


def test_a_label_alone_takes_no_address_of_its_own_away() -> None:
    unlabelled = {"service": {"labels": {PRIMARY_SERVICE_LABEL: None}}}
    labelled = served(labels={PRIMARY_SERVICE_LABEL: "shop.other"})
    assert outline(labelled, allocated()) == ([unlabelled], Done())
    lease = served(
        labels={PRIMARY_SERVICE_LABEL: "shop.other"}, annotations={KUBE_VIP_ADDRESSES: "0.0.0.0", IPAM: "dhcp"}
    )
    from_dhcp = allocated(ip="0.0.0.0", pool="", spec={"ipam": "dhcp"})
    assert outline(lease, from_dhcp) == ([unlabelled], Done())
    hosted = service(annotations=HANDS_OFF, labels={PRIMARY_SERVICE_LABEL: "shop.other"}, ours=True, address=ADDRESS)
    steps, _ = outline(hosted, allocated(spec={"workloadType": "vm"}))
    assert [one for one in steps if isinstance(one, dict) and "service" in one] == [unlabelled]


def test_one_that_shows_the_address_of_another_gives_it_up_whatever_load_balancer_it_has() -> None:
    shown = served(labels={PRIMARY_SERVICE_LABEL: "shop.other"})
    steps, outcome = outline(shown, allocated(ip=OTHER, address=OTHER))
    change = {"annotations": WITHDRAWN, "labels": {PRIMARY_SERVICE_LABEL: None}, "ingress": None}
    assert (steps, outcome) == ([{"service": change}], Wait("leaving_primary"))


def test_one_of_another_type_loses_the_device_of_its_primary() -> None:
    (*_, let_go), _ = outline(sharing({KUBE_VIP_INTERFACE: "eth1"}, kind="ClusterIP"), primary=served())
    assert isinstance(let_go, dict)
    assert let_go["service"]["annotations"] == {KUBE_VIP_ADDRESSES: None, KUBE_VIP_INTERFACE: None}


def test_one_whose_primary_keeps_an_address_of_its_own_is_told_that_it_is_not_shared() -> None:
    plain, keeping = served(), served(spec={"loadBalancerIP": ADDRESS})
    unshared = frozenset({OTHER})
    parked = [{"service": {"annotations": HELD, "finalizers": OURS}}]
    assert outline(asking(), primary=plain, primary_allocated=unshared) == (
        parked,
        Wait("primary", PRIMARY_PATIENCE),
    )
    made = outline(asking(), primary=keeping, primary_allocated=unshared)
    assert made == (["Warning SharingRefused", *parked], Wait("not_sharable"))
    assert outline(sharing(), primary=keeping, primary_allocated=unshared)[0] == []
